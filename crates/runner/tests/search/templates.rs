//! Templates of a server that would reach into what Vitrina makes there.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

impl Shelf {
    /// New indexes of these names are given to readers at once.
    async fn catch(&self, kind: &str, pattern: &str) {
        let caught = json!({"aliases": {&self.index: {}}});
        let template = match kind {
            "_template" => json!({"index_patterns": [pattern], "aliases": caught["aliases"]}),
            _ => json!({"index_patterns": [pattern], "template": caught, "priority": 500}),
        };
        let (status, answer) = self.server().call("PUT", &format!("{kind}/{}", self.index), template).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn release(&self, kind: &str) {
        let (status, answer) =
            self.server().call("DELETE", &format!("{kind}/{}", self.index), Value::Null).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn is_refused(&self, id: vitrina_core::PipelineId) {
        let (code, message) = self.fail(id).await;
        assert_eq!(code, "sink.template", "{message}");
        assert!(message.contains(&self.index) && message.contains("`vitrina-`"), "{message}");
        assert_eq!(self.behind().await, Vec::<String>::new(), "readers see nothing of it");
    }
}

#[rstest]
#[case("_index_template", "full")]
#[case("_index_template", "incremental")]
#[case("_template", "full")]
#[case("_template", "incremental")]
#[tokio::test]
async fn a_template_that_would_show_an_index_before_it_is_whole_is_refused(
    #[case] kind: &str,
    #[case] mode: &str,
) {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 20).await;
        let id = if mode == "full" { shelf.full(10).await } else { shelf.incremental(10).await };
        shelf.catch(kind, &format!("vitrina-{}-*", shelf.index)).await;
        shelf.is_refused(id).await;
        shelf.release(kind).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_template_that_would_show_markers_to_readers_is_refused() {
    let server = SearchServer::elasticsearch().await;
    let shelf = Shelf::new(&server, 20).await;
    let id = shelf.full(10).await;
    shelf.catch("_index_template", &format!("vitrina-marker-{}-*", shelf.index)).await;
    shelf.is_refused(id).await;
    shelf.release("_index_template").await;
    shelf.succeed(id).await;
    shelf.assert_true().await;
}

#[tokio::test]
async fn a_template_for_all_that_is_vitrinas_is_refused_and_shows_readers_nothing() {
    let server = SearchServer::own_opensearch().await;
    let shelf = Shelf::new(&server, 20).await;
    let id = shelf.full(10).await;
    shelf.catch("_index_template", "vitrina-*").await;
    shelf.is_refused(id).await;
    let control = shelf.server().get("vitrina-control/_alias").await;
    assert_eq!(control["vitrina-control"]["aliases"], json!({}));
    shelf.release("_index_template").await;
    shelf.succeed(id).await;
    shelf.assert_true().await;
}
