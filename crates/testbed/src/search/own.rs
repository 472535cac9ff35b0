//! A server that no other test uses, so that its test may do anything to it.

use std::ops::Deref;
use std::process::Child;

use nix::sys::signal::Signal;

use super::installation::Purpose;
use super::node::Node;
use super::{Distribution, SearchServer, ServerDirectory};
use crate::name;

/// How often a start is tried on a port that another program may hold for a moment.
const TRIES: usize = 20;

#[derive(Debug)]
pub struct OwnSearchServer {
    server: SearchServer,
    node: Node,
    port: u16,
    /// `None` after `kill`.
    child: Option<Child>,
}

impl SearchServer {
    pub async fn own_elasticsearch() -> OwnSearchServer {
        Self::own(Distribution::Elasticsearch, &[]).await
    }

    pub async fn own_opensearch() -> OwnSearchServer {
        Self::own(Distribution::OpenSearch, &[]).await
    }

    /// With further settings of the server, such as `("http.max_content_length", "1mb")`.
    pub async fn own(distribution: Distribution, settings: &[(&str, &str)]) -> OwnSearchServer {
        Self::start_own(distribution, settings, Purpose::Tests).await
    }

    /// As fast as it can, for who measures it.
    pub async fn own_for_work(distribution: Distribution) -> OwnSearchServer {
        Self::start_own(distribution, &[], Purpose::Work).await
    }

    async fn start_own(
        distribution: Distribution,
        settings: &[(&str, &str)],
        purpose: Purpose,
    ) -> OwnSearchServer {
        let directory = ServerDirectory::of_this_process().join(format!("own-{}", name::random()));
        let node = Node::prepare(distribution, directory, settings, purpose);
        let mut child = node.start(0);
        let url = node.url(Some(&mut child)).await;
        let url = url.unwrap_or_else(|said| panic!("{} has ended:\n{said}", distribution.name()));
        let port =
            url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a server tells its port");
        let server = SearchServer::at(distribution, &url);
        server.settled().await;
        OwnSearchServer { server, node, port, child: Some(child) }
    }
}

impl OwnSearchServer {
    /// As `kill -9` does. What was acknowledged is on disk.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            self.node.kill(&mut child);
        }
    }

    /// Starts it again, with the port and the data it had. It answers then, and may still be opening its indexes:
    /// see `settled`.
    pub async fn start(&mut self) {
        assert!(self.child.is_none(), "kill it first");
        for _ in 0..TRIES {
            let mut child = self.node.start(self.port);
            match self.node.url(Some(&mut child)).await {
                Ok(_) => return self.child = Some(child),
                Err(said) => assert!(said.contains("BindException"), "the server has ended:\n{said}"),
            }
        }
        panic!("port {} is taken", self.port);
    }

    /// It keeps its port and its connections and does nothing, until `thaw`.
    pub fn freeze(&self) {
        self.node.freeze();
    }

    pub fn thaw(&self) {
        self.node.send(Signal::SIGCONT);
    }
}

impl Deref for OwnSearchServer {
    type Target = SearchServer;

    fn deref(&self) -> &SearchServer {
        &self.server
    }
}

impl Drop for OwnSearchServer {
    fn drop(&mut self) {
        self.kill();
        self.node.delete();
    }
}
