//! A line to a server that can be cut without a word: no bytes pass any more, and neither side is told.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use url::Url;

#[derive(Debug)]
pub struct CuttableProxy {
    url: String,
    is_cut: watch::Sender<bool>,
    _carrying: JoinSet<()>,
}

impl CuttableProxy {
    /// A line to the server of this URL.
    pub async fn before(url: &str) -> Self {
        let mut url = Url::parse(url).expect("a server's URL");
        let server = url.socket_addrs(|| Some(5432)).expect("a server's address")[0];
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("the listener's address").port();
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(port)).expect("a port");
        let (is_cut, watched) = watch::channel(false);
        let mut carrying = JoinSet::new();
        carrying.spawn(accept(listener, server, watched));
        Self { url: url.into(), is_cut, _carrying: carrying }
    }

    /// The URL of the same database at this end of the line.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// What was sent meanwhile arrives now.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, is_cut: watch::Receiver<bool>) {
    let mut calls = JoinSet::new();
    while let Ok((caller, _)) = listener.accept().await {
        calls.spawn(call(caller, server, is_cut.clone()));
    }
}

async fn call(caller: TcpStream, server: SocketAddr, mut is_cut: watch::Receiver<bool>) {
    if is_cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let Ok(callee) = TcpStream::connect(server).await else { return };
    let ((from_caller, to_caller), (from_callee, to_callee)) = (caller.into_split(), callee.into_split());
    tokio::join!(
        carry(from_caller, to_callee, is_cut.clone()),
        carry(from_callee, to_caller, is_cut.clone())
    );
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut is_cut: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if is_cut.wait_for(|cut| !cut).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    // An end that is told while the line is cut arrives later too.
    if is_cut.wait_for(|cut| !cut).await.is_ok() {
        to.shutdown().await.ok();
    }
}
