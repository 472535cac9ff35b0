//! How many may be connected at a time, and how long a peer may say nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::app::App;
use crate::tls::files;

const CALL: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
const SOON: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_millis(400);

async fn connect(app: &App) -> TcpStream {
    TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.unwrap()
}

/// One call on a connection that stays open.
async fn call(connection: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    connection.write_all(CALL).await.unwrap();
    answered(connection).await;
}

async fn answered(connection: &mut (impl AsyncRead + Unpin)) {
    let mut answer = Vec::new();
    let mut part = [0; 1024];
    // Ends with the empty line, and with the body that its header announces: one read brings them all but seldom.
    while !answer.ends_with(b"}") {
        let read = timeout(SOON, connection.read(&mut part)).await.expect("an answer").unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..read]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{:?}", String::from_utf8_lossy(&answer));
}

/// Returns when the server has closed the connection, with how long that took.
async fn closed(connection: &mut (impl AsyncRead + Unpin)) -> Duration {
    let began = Instant::now();
    // Without a farewell TLS calls it an error: the end is all that counts.
    let _ = timeout(SOON, connection.read_to_end(&mut Vec::new())).await.expect("it is closed");
    began.elapsed()
}

#[tokio::test]
async fn whoever_comes_beyond_the_limit_of_connections_waits_until_one_ends() {
    let app = App::start_as(None, |settings| settings.max_connections = 2).await;
    let (mut first, mut second) = (connect(&app).await, connect(&app).await);
    call(&mut first).await;
    call(&mut second).await;
    let mut third = connect(&app).await;
    third.write_all(CALL).await.unwrap();
    let early = timeout(Duration::from_millis(300), third.read(&mut [0; 1])).await;
    assert!(early.is_err(), "a third one is answered beside two: {early:?}");
    // Those who are in are served as before.
    call(&mut second).await;
    drop(first);
    answered(&mut third).await;
}

#[tokio::test]
async fn a_peer_that_trickles_its_headers_is_cut_off() {
    let app = App::start_as(None, |settings| settings.patience = PATIENCE).await;
    let began = Instant::now();
    let mut slow = connect(&app).await;
    let trickled = async {
        for byte in CALL.iter().cycle().filter(|byte| byte.is_ascii_alphabetic()) {
            if slow.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, trickled).await.expect("it is cut off");
    assert!(began.elapsed() >= PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed_and_one_that_waits_for_its_answer_is_not() {
    let app = App::start_as(None, |settings| settings.patience = PATIENCE).await;
    let mut idle = connect(&app).await;
    call(&mut idle).await;
    assert!(closed(&mut idle).await >= PATIENCE / 2);
    app.create_pipeline("films").await;
    let began = Instant::now();
    app.get("/pipelines/films/status?wait=1").await.assert(200);
    assert!(began.elapsed() > 2 * PATIENCE, "it has waited for a change: {:?}", began.elapsed());
}

#[tokio::test]
async fn limit_and_patience_hold_for_https_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let (files, pem) = files(&folder);
    let app = App::start_as(None, |settings| {
        (settings.tls, settings.max_connections, settings.patience) = (Some(files), 1, PATIENCE);
    })
    .await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let client = TlsConnector::from(Arc::new(client));
    let name = || ServerName::try_from("127.0.0.1").unwrap();
    // One place: whoever never greets, trickles or is done gives it back to the next.
    let mut silent = connect(&app).await;
    let mut slow = client.connect(name(), connect(&app).await).await.unwrap();
    assert!(closed(&mut silent).await < SOON);
    slow.write_all(b"GET /hea").await.unwrap();
    assert!(closed(&mut slow).await >= PATIENCE / 2);
    let mut idle = client.connect(name(), connect(&app).await).await.unwrap();
    call(&mut idle).await;
    assert!(closed(&mut idle).await >= PATIENCE / 2);
}
