//! The indexes of one test on a server that it shares: deleted when the test succeeds, kept when it panics.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::SearchServer;
use crate::name;

/// How long a test waits for the deletion, which goes on without it.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Indexes {
    server: SearchServer,
    prefix: String,
}

impl SearchServer {
    /// None yet. Whatever the test creates under these names belongs to it.
    pub fn indexes(&self) -> Indexes {
        Indexes { server: self.clone(), prefix: name::of_test() }
    }
}

impl Indexes {
    /// Begins the names of all indexes and aliases of this test, and of no others.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    pub fn server(&self) -> &SearchServer {
        &self.server
    }

    /// All of them, hidden and closed ones too.
    pub async fn list(&self) -> Vec<String> {
        list(&self.server, &self.prefix).await
    }
}

impl fmt::Debug for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexes").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Drop for Indexes {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("kept indexes {}* of {}, while it runs", self.prefix, self.server.url());
        } else {
            delete(&self.server, &self.prefix);
        }
    }
}

/// On a thread with a runtime of its own: the test's runtime cannot be waited for from here.
fn delete(server: &SearchServer, prefix: &str) {
    let server = server.seen_at(server.url());
    let (done, waiting) = mpsc::channel();
    let indexes = prefix.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime for two calls").block_on(delete_all(&server, &indexes));
        done.send(()).ok();
    });
    if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected) {
        eprintln!("indexes {prefix}* are left behind");
    }
}

/// By their names: many servers refuse to delete by a pattern. Aliases go with what they lead to.
async fn delete_all(server: &SearchServer, prefix: &str) {
    for index in list(server, prefix).await {
        let (status, answer) = server.call("DELETE", &index, Value::Null).await;
        assert!(status == 200 || status == 404, "DELETE {index}: {answer}");
    }
}

async fn list(server: &SearchServer, prefix: &str) -> Vec<String> {
    let found = server.get(&format!("*{prefix}*/_settings?expand_wildcards=all&flat_settings=true")).await;
    // A pattern finds indexes by their aliases too.
    let named = found.as_object().expect("settings by index").keys().filter(|index| index.contains(prefix));
    named.cloned().collect()
}
