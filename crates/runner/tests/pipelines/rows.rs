//! Where did a row go? A runner looks for it at both sides.

use serde_json::{Value, json};
use vitrina_core::PipelineId;
use vitrina_store::{PipelineRef, RequestRecord};

use crate::functions::{Functions, plan};
use crate::requests::request;
use crate::stage::Stage;

impl Stage {
    /// What a runner answers about a key.
    pub(crate) async fn looked_for(&self, id: PipelineId, key: Value) -> RequestRecord {
        let pipeline = self.store.pipeline(&PipelineRef::Id(id)).await.unwrap().config;
        let target = self.store.target(&pipeline.effective_target().parse().unwrap()).await.unwrap();
        self.answered(&request("row", json!({"pipeline": pipeline, "target": target, "key": key}))).await
    }

    async fn row(&self, id: PipelineId, key: &str) -> Value {
        let found = self.looked_for(id, json!([key])).await;
        found.answer.unwrap_or_else(|| panic!("{:?} {:?}", found.error_code, found.error))
    }
}

fn sides(row: &Value) -> (bool, bool) {
    (row["in_source"].as_bool().unwrap(), row["in_target"].as_bool().unwrap())
}

/// Name, source and target of the columns that differ.
fn differing(row: &Value) -> Vec<Value> {
    let columns = row["columns"].as_array().unwrap().iter().filter(|column| column["differs"] == true);
    columns.map(|column| json!([column["name"], column["source"], column["target"]])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_looked_for_at_both_sides_and_told_by_its_columns() {
    let stage = Stage::with_films(20).await;
    let id = stage.full(5).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "delete from analytics.film where id = 3; delete from content.film where id = 4;
             update analytics.film set title = null where id = 5",
        )
        .await;
    let (_runner, _stop) = stage.start_runner("r1");
    let equal = stage.row(id, " 07").await;
    assert_eq!((&equal["key"], &equal["key_columns"]), (&json!(["7"]), &json!(["id"])));
    assert_eq!((sides(&equal), differing(&equal)), ((true, true), vec![]));
    let title = json!({"name": "title", "source": "Film 7", "target": "Film 7", "differs": false});
    assert_eq!(
        (&equal["columns"][1], &equal["fits"], &equal["runner"]),
        (&title, &json!(true), &json!("r1"))
    );
    let touched: String =
        stage.db.value("select (updated_at at time zone 'UTC')::text from analytics.film where id = 7").await;
    let told = equal["touched_at"].as_str().unwrap().replace('T', " ");
    assert!(told.starts_with(touched.trim_end_matches('0')), "{told} {touched}");
    assert_eq!(equal["by_meta_store"], true);

    assert_eq!(sides(&stage.row(id, "3").await), (true, false));
    assert_eq!(sides(&stage.row(id, "4").await), (false, true));
    assert_eq!(differing(&stage.row(id, "5").await), [json!(["title", "Film 5", null])]);
    let absent = stage.row(id, "-9").await;
    assert_eq!((sides(&absent), &absent["touched_at"]), ((false, false), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_on_its_way_is_told_from_one_that_no_run_will_write() {
    let stage = Stage::with_films(20).await;
    let id = stage.incremental(5).await;
    stage.succeed(id).await;
    stage.db.execute("update content.film set title = 'New', modified = now() where id = 5; update analytics.film set title = 'Lost' where id = 6").await;
    let (_runner, _stop) = stage.start_runner("r1");
    assert_eq!(stage.row(id, "5").await["in_flight"], true);
    assert_eq!(stage.row(id, "6").await["in_flight"], false);
    assert_eq!(stage.row(id, "7").await["in_flight"], Value::Null, "nothing differs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_mart_cannot_hold_is_shown_as_it_was_read() {
    let stage = Stage::with_films(5).await;
    stage.db.execute("alter table content.film alter rating type numeric(20,1); update content.film set rating = 12345.6 where id = 4").await;
    let id = stage.pipeline(json!({"reject_limit": 5})).await;
    stage.succeed(id).await;
    assert_eq!(stage.rejects().await[0].1, r#"["4"]"#);
    let (_runner, _stop) = stage.start_runner("r1");
    let row = stage.row(id, "4").await;
    assert_eq!((sides(&row), &row["fits"]), ((true, false), &json!(false)));
    assert_eq!(row["columns"][2]["source"], "12345.6");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_no_row_can_have_is_refused_with_what_to_write() {
    let stage = Stage::with_films(1).await;
    let id = stage.full(5).await;
    let (_runner, _stop) = stage.start_runner("r1");
    for (key, said) in [(json!(["seven"]), "no value of id"), (json!(["1", "en"]), "has 1 values: id")] {
        let refused = stage.looked_for(id, key).await;
        assert_eq!(refused.error_code.as_deref(), Some("row.key"), "{:?}", refused.error);
        let error = refused.error.unwrap();
        assert!(error.contains(said) && error.contains("hint: "), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_several_key_columns_is_found_by_all_of_them() {
    let stage = Stage::with_films(3).await;
    stage
        .db
        .execute(
            "create table analytics.label (film int, lang text, label text, primary key (film, lang));
             insert into analytics.label values (2, 'it''s', 'Old')",
        )
        .await;
    let query = "select id as film, 'it''s' as lang, title as label from content.film";
    let id = stage.pipeline(json!({"source_query": query, "target_table": "analytics.label"})).await;
    let (_runner, _stop) = stage.start_runner("r1");
    let row = stage.looked_for(id, json!(["2", "it's"])).await.answer.unwrap();
    assert_eq!(differing(&row), [json!(["label", "Film 2", "Old"])]);
    let none = stage.looked_for(id, json!(["2", "its"])).await.answer.unwrap();
    assert_eq!(sides(&none), (false, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_shown_as_functions_leave_it() {
    let (stage, functions) = (Stage::with_films(30).await, Functions::new().await);
    let id = stage.pipeline(plan(&["slug", "without_dull"])).await;
    functions.succeed(&stage, id).await;
    stage.db.execute("update analytics.film set title = 'Film 30' where id = 30").await;
    let (_runner, _stop) = stage.start(functions.settings(&stage));
    assert_eq!(differing(&stage.row(id, "30").await), [json!(["title", "film-30", "Film 30"])]);
    assert_eq!(sides(&stage.row(id, "3").await), (false, false), "dull");
}
