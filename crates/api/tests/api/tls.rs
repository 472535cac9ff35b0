//! HTTPS by the server itself.

use std::fs;

use reqwest::Certificate;
use vitrina_api::{Server, TlsFiles};

use crate::app::{App, migrated, settings};

/// A certificate for localhost that signs itself.
pub(crate) fn files(folder: &tempfile::TempDir) -> (TlsFiles, String) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    let files = TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    fs::write(&files.certificate, cert.pem()).unwrap();
    fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    (files, cert.pem())
}

#[tokio::test]
async fn a_server_with_a_certificate_speaks_https_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (files, pem) = files(&folder);
    let app = App::start_as(None, |settings| settings.tls = Some(files)).await;
    let address = app.base.strip_prefix("http://").unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = Certificate::from_pem(pem.as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().unwrap();
    let call = |path: &str| client.get(format!("https://{address}{path}"));
    let answer = call("/pipelines").send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["strict-transport-security"]),
        (200, &"max-age=31536000".parse().unwrap())
    );
    // A peer that never greets keeps nobody waiting.
    let _silent = tokio::net::TcpStream::connect(address).await.unwrap();
    assert_eq!(call("/health/live").send().await.unwrap().status(), 200);
    let stranger = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    stranger.get(format!("https://{address}/health/live")).send().await.expect_err("an unknown certificate");
    client.get(format!("http://{address}/health/live")).send().await.expect_err("no HTTP here");
    // Nor do greetings that fail keep the next ones from being answered.
    for _ in 0..3 {
        drop(tokio::net::TcpStream::connect(address).await.unwrap());
        let fresh = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([Certificate::from_pem(pem.as_bytes()).unwrap()]);
        let answer =
            fresh.build().unwrap().get(format!("https://{address}/health/live")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (good, _) = files(&folder);
    let (_database, store) = migrated().await;
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    let missing = folder.path().join("missing.pem");
    for (certificate, key) in [(&empty, &good.key), (&good.certificate, &empty), (&missing, &good.key)] {
        let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
        let settings = vitrina_api::ApiSettings { tls: Some(files), ..settings("127.0.0.1:0", None) };
        let error = Server::bind(settings, store.clone()).await.expect_err("a refusal").to_string();
        assert!(error.contains(".pem: ") && error.contains("\nhint: "), "{error}");
    }
}
