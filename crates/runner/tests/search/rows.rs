//! Where did a row go? The same of documents, whose versions tell the lease they were written under.

use serde_json::{Value, json};
use vitrina_core::PipelineId;
use vitrina_store::PipelineRef;
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

impl Shelf {
    pub(crate) async fn row(&self, id: PipelineId, key: &str) -> Value {
        let store = &self.stage.store;
        let pipeline = store.pipeline(&PipelineRef::Id(id)).await.unwrap().config;
        let target = store.target(&pipeline.effective_target().parse().unwrap()).await.unwrap();
        let request = vitrina_store::Request {
            kind: "row",
            pipeline: None,
            payload: json!({"pipeline": pipeline, "target": target, "key": [key]}),
            connections: vec!["search".to_owned()],
            python_tasks: Vec::new(),
            expires_in: std::time::Duration::from_secs(60),
            requested_by: "tester".to_owned(),
        };
        let mut wakeups = store.wakeups().await.unwrap();
        let asked = store.ask(&request).await.unwrap();
        loop {
            let found = store.request_of(asked).await.unwrap().unwrap();
            if !found.is_open() {
                return found.answer.unwrap_or_else(|| json!(found.error_code));
            }
            wakeups.next().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_looked_for_and_tells_the_run_that_wrote_it() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 10).await;
        let id = shelf.full(4).await;
        let run = shelf.succeed(id).await;
        let (_runner, _stop) = shelf.stage.start(shelf.settings("r1"));
        let equal = shelf.row(id, "07").await;
        assert_eq!(
            (&equal["key"], &equal["in_source"], &equal["in_target"]),
            (&json!(["7"]), &json!(true), &json!(true))
        );
        assert!(
            equal["columns"].as_array().unwrap().iter().all(|column| column["differs"] == false),
            "{equal}"
        );
        let token = equal["token"].as_i64().unwrap();
        let (writer, _) = shelf.stage.store.run_of_token(id, token).await.unwrap().unwrap();
        assert_eq!(writer, run.id);

        let document = json!({"doc": {"title": "Another"}});
        let path = format!("{}/_update/8", shelf.index);
        assert_eq!(server.call("POST", &path, document).await.0, 200);
        let changed = shelf.row(id, "8").await;
        let title = json!({"name": "title", "source": "Film 8", "target": "Another", "differs": true});
        assert_eq!(changed["columns"][1], title);
        shelf.stage.db.execute("delete from content.film where id = 9").await;
        let extra = shelf.row(id, "9").await;
        assert_eq!((&extra["in_source"], &extra["in_target"]), (&json!(false), &json!(true)));
        assert_eq!(shelf.row(id, "seven").await, "row.key");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_an_array_that_is_not_in_the_index_is_shown() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 3).await;
        shelf.describe(json!({"key": ["id"]})).await;
        let query = "select id, array[title, null] as titles from content.film";
        let id = shelf.pipeline(json!({"source_query": query})).await;
        let (_runner, _stop) = shelf.stage.start(shelf.settings("r1"));
        let looked = shelf.row(id, "2").await;
        assert_eq!((&looked["in_source"], &looked["in_target"]), (&json!(true), &json!(false)), "{looked}");
    }
}
