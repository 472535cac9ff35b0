//! A search server that answers.

use std::env;
use std::fs::{self, OpenOptions};
use std::path::Path;

use tokio::sync::OnceCell;

use super::installation::Purpose;
use super::node::Node;
use super::{Distribution, ServerDirectory};
use crate::http_client;

/// Shared with other tests, which therefore keep to names of their own: see `indexes`.
#[derive(Debug, Clone)]
pub struct SearchServer {
    distribution: Distribution,
    url: String,
    pub(super) http: reqwest::Client,
}

impl SearchServer {
    pub async fn elasticsearch() -> Self {
        Self::of(Distribution::Elasticsearch).await
    }

    pub async fn opensearch() -> Self {
        Self::of(Distribution::OpenSearch).await
    }

    /// One of each kind that tests always have.
    pub async fn both() -> [Self; 2] {
        tokio::join!(Self::elasticsearch(), Self::opensearch()).into()
    }

    pub async fn of(distribution: Distribution) -> Self {
        static URLS: [OnceCell<String>; 3] = [const { OnceCell::const_new() }; 3];
        let url = URLS[distribution as usize].get_or_init(|| find(distribution)).await;
        Self::at(distribution, url)
    }

    /// With a client of its own: the connections of a client end with the test that has made them.
    pub(super) fn at(distribution: Distribution, url: &str) -> Self {
        Self { distribution, url: url.trim_end_matches('/').to_owned(), http: http_client() }
    }

    /// The same server at another address.
    pub(crate) fn seen_at(&self, url: &str) -> Self {
        Self::at(self.distribution, url)
    }

    /// Without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn distribution(&self) -> Distribution {
        self.distribution
    }
}

async fn find(distribution: Distribution) -> String {
    if let Some(url) = env::var(distribution.variable()).ok().filter(|url| !url.is_empty()) {
        return url;
    }
    let directory = ServerDirectory::of_this_run();
    let shared = move || start_unless_started(distribution, &directory);
    let (node, mut child) = tokio::task::spawn_blocking(shared).await.expect("a search server for the tests");
    let url = node.url(child.as_mut()).await;
    let url = url.unwrap_or_else(|said| panic!("{} has ended:\n{said}", distribution.name()));
    SearchServer::at(distribution, &url).settled().await;
    url
}

/// The lock lets processes that need a server at the same moment follow one another. Whoever comes later waits
/// for the same server, also when the one that started it is gone.
fn start_unless_started(distribution: Distribution, directory: &Path) -> (Node, Option<std::process::Child>) {
    let name = distribution.name();
    let path = directory.join(format!("{name}.lock"));
    let lock = OpenOptions::new().create(true).append(true).open(&path).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    let _lock = lock.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let started = directory.join(format!("{name}.started"));
    let node = Node::prepare(distribution, directory.join(name), &[], Purpose::Tests);
    let child = (!started.exists()).then(|| node.start(0));
    fs::write(&started, "").expect("a file can be written where a lock could");
    (node, child)
}
