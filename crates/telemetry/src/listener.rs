//! The one listener of a process that serves no API: `/metrics` and `/health/live`, and nothing else.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{CONTENT_TYPE, Exposition};

#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    /// Where it listens, also when the port was left open.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown`. A scrape that is under way then is not waited for.
    pub async fn serve(self, exposition: Exposition, shutdown: CancellationToken) -> io::Result<()> {
        let shown = exposition.clone();
        let metrics = async move || ([(header::CONTENT_TYPE, CONTENT_TYPE)], shown.render());
        let live = async || ([(header::CONTENT_TYPE, "application/json")], r#"{"status":"ok"}"#);
        let router = Router::new().route("/metrics", get(metrics)).route("/health/live", get(live));
        tokio::select! {
            served = async { axum::serve(self.listener, router).await } => served,
            () = exposition.keep_up() => Ok(()),
            () = shutdown.cancelled() => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn the_listener_shows_metrics_and_liveness_and_nothing_else() {
        let exposition = Exposition::new();
        exposition.record(|| metrics::counter!("turns_total").increment(1));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (address, shutdown) = (listener.local_addr(), CancellationToken::new());
        let mut serving = JoinSet::new();
        serving.spawn(listener.serve(exposition, shutdown.clone()));
        let client = vitrina_testbed::http_client();
        let get = async |path: &str| client.get(format!("http://{address}{path}")).send().await.unwrap();
        let page = get("/metrics").await;
        assert_eq!(page.headers()["content-type"], CONTENT_TYPE);
        assert!(page.text().await.unwrap().contains("turns_total 1"));
        assert_eq!(get("/health/live").await.text().await.unwrap(), r#"{"status":"ok"}"#);
        for nowhere in ["/", "/health", "/pipelines", "/api/v1/pipelines"] {
            assert_eq!(get(nowhere).await.status(), 404, "{nowhere}");
        }
        let post = client.post(format!("http://{address}/metrics")).send().await.unwrap();
        assert_eq!(post.status(), 405);
        shutdown.cancel();
        serving.join_next().await.unwrap().unwrap().unwrap();
    }
}
