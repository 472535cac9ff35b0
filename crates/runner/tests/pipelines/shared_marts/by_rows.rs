//! Each pipeline writes the rows that have its own value in a column of the key.

use serde_json::{Value, json};
use vitrina_core::{Mode, OnActive, Pipeline, PipelineId, RunStatus, Verdict};
use vitrina_store::{Actor, Change, Error, PipelineRef, RunRequest};
use vitrina_testbed::Database;

use super::{Pair, incremental, pipeline};
use crate::stage::{Stage, until};

const SOURCES: &str = "
    create schema content;
    create table content.ru (id int primary key, title text, modified timestamptz not null default now());
    create table content.de (id int primary key, title text, modified timestamptz not null default now());
    create index on content.ru (modified, id); create index on content.de (modified, id);
    insert into etl.etl_targets (name, key, touch_column, shared)
    values ('analytics.mart', '{tenant,id}', 'updated_at', '{\"by\": \"rows\", \"column\": \"tenant\"}')";
const MART: &str = "
    create schema analytics;
    create table analytics.mart (tenant text, id int, title text, modified timestamptz, updated_at timestamptz, primary key (tenant, id))";

type Edit<'a> = Box<dyn FnOnce(Pipeline) -> Pipeline + 'a>;

fn query(tenant: &str) -> String {
    format!("select '{tenant}'::text as tenant, id, title, modified from content.{tenant} where id > 0")
}

impl Pair {
    /// `ru` and `de` with as many films each, read by batches of this size.
    async fn by_rows(films: i32, batch_size: i32, marts: Option<Database>) -> Self {
        let stage = Stage::empty().await;
        stage.db.execute(SOURCES).await;
        marts.as_ref().unwrap_or(&stage.db).execute(MART).await;
        let of = |tenant: &str| {
            let mut more = incremental();
            more["shared_value"] = json!(tenant);
            more
        };
        let first = pipeline(&stage, "ru", &query("ru"), batch_size, of("ru")).await;
        let second = pipeline(&stage, "de", &query("de"), batch_size, of("de")).await;
        let pair = Self { stage, marts, first, second };
        pair.add(1, films).await;
        pair
    }

    async fn add(&self, from: i32, to: i32) {
        for tenant in ["ru", "de"] {
            let sql = format!(
                "insert into content.{tenant} select n, '{tenant} ' || n, '2024-01-01'::timestamptz + n * interval '1 minute' from generate_series({from}, {to}) n"
            );
            self.stage.db.execute(&sql).await;
        }
    }

    async fn run_in_full(&self, id: PipelineId) -> vitrina_store::RunRecord {
        let run = self.stage.request_mode(id, Mode::Full).await;
        self.stage.work_off(self.settings()).await;
        self.stage.run_record(run).await
    }

    async fn loads(&self, id: PipelineId) {
        let run = self.run_in_full(id).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    }

    async fn titles(&self, tenant: &str) -> Vec<String> {
        let sql = format!("select title from analytics.mart where tenant = '{tenant}' order by id");
        self.db().texts(&sql).await.into_iter().map(|row| row[0].clone().unwrap()).collect()
    }

    async fn source(&self, tenant: &str) -> Vec<String> {
        let rows = self.stage.db.texts(&format!("select title from content.{tenant} order by id")).await;
        rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
    }

    async fn has_both(&self) {
        for tenant in ["ru", "de"] {
            assert_eq!(self.titles(tenant).await, self.source(tenant).await, "{tenant}");
        }
    }
}

async fn is_shared_by_rows(pair: &Pair) {
    pair.run_both().await;
    pair.has_both().await;
    for (round, [full, other]) in [["ru", "de"], ["de", "ru"]].into_iter().enumerate() {
        let change = format!(
            "delete from content.{full} where id between 3 and 5; update content.{full} set title = 'new', modified = now() where id = 7;
             insert into content.{other} (id, title) values ({0}, 'came'); update content.{other} set title = 'moved', modified = now() where id = 9;
             delete from content.{other} where id = {1}", 9000 + round, 20 + round
        );
        pair.stage.db.execute(&change).await;
        let (full, other) = if round == 0 { (pair.first, pair.second) } else { (pair.second, pair.first) };
        pair.stage.request_mode(full, Mode::Full).await;
        pair.run(other).await;
        pair.loads(other).await;
        pair.has_both().await;
    }
    pair.is_equal(pair.first).await;
    pair.is_equal(pair.second).await;
}

#[tokio::test]
async fn each_pipeline_loads_in_full_while_the_other_increments_in_one_batch() {
    is_shared_by_rows(&Pair::by_rows(40, 1000, None).await).await;
}

#[tokio::test]
async fn each_pipeline_loads_in_full_while_the_other_increments_in_many_batches() {
    is_shared_by_rows(&Pair::by_rows(400, 30, None).await).await;
}

#[tokio::test]
async fn pipelines_share_a_mart_in_another_database_by_rows() {
    is_shared_by_rows(&Pair::by_rows(60, 7, Some(Database::fresh().await)).await).await;
}

#[tokio::test]
async fn what_one_pipeline_writes_during_the_merge_of_another_stays() {
    let pair = Pair::by_rows(50, 10, None).await;
    pair.run_both().await;
    pair.stage.db.execute("update content.ru set title = 'new'; delete from content.ru where id = 3").await;
    let blocker = pair.stage.db.client().await;
    blocker
        .batch_execute("begin; select from analytics.mart where tenant = 'ru' and id = 9 for update")
        .await
        .unwrap();
    let (runner, stop) = pair.stage.start_runner("tester");
    let load = pair.stage.request_mode(pair.first, Mode::Full).await;
    pair.stage.someone_waits_for_a_row().await;
    pair.stage.db.execute("update content.de set title = 'moved', modified = now() where id < 5; insert into content.de values (99, 'came')").await;
    let pass = pair.stage.request(pair.second).await;
    until(async || pair.stage.run_record(pass).await.status == RunStatus::Success).await;
    blocker.batch_execute("commit").await.unwrap();
    until(async || pair.stage.run_record(load).await.status == RunStatus::Success).await;
    stop.cancel();
    runner.join_all().await;
    pair.has_both().await;
}

#[tokio::test]
async fn a_row_of_another_value_is_rejected_and_the_others_row_stays() {
    for batch_size in [1000, 7] {
        let pair = Pair::by_rows(30, batch_size, None).await;
        pair.run_both().await;
        let query = "select case id when 3 then 'de' when 4 then null else 'ru' end as tenant, id, 'mine' as title, modified from content.ru where id > 0";
        pair.edit(pair.first, |config| Pipeline {
            source_query: Some(query.to_owned()),
            reject_limit: 5,
            ..config
        })
        .await;
        pair.stage.db.execute("update etl.etl_state set checkpoint = checkpoint - 'config_hash'").await;
        let run = pair.run_in_full(pair.first).await;
        assert_eq!((run.status, run.rows_deleted), (RunStatus::Success, 2), "{:?}", run.error);
        assert_eq!(pair.titles("de").await, pair.source("de").await);
        assert_eq!(pair.titles("ru").await, vec!["mine"; 28]);
        let rejects = [("row.foreign", r#"["de", "3"]"#), ("row.null_key", r#"[null, "4"]"#)];
        assert_eq!(pair.stage.rejects().await, rejects.map(|(code, key)| (code.to_owned(), key.to_owned())));
        let (verdicts, _) = pair.verdicts(pair.first).await;
        assert_eq!(verdicts, [Verdict::Differs; 3], "the source has rows that are not in the mart");
        pair.is_equal(pair.second).await;
    }
}

#[tokio::test]
async fn the_delete_limit_is_a_share_of_the_pipelines_own_rows() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.run_both().await;
    pair.stage
        .db
        .execute("insert into content.de (id, title) select n, 'de' from generate_series(100, 400) n")
        .await;
    pair.succeed(pair.second).await;
    assert_eq!(pair.standing(pair.first).await["rows"], 10);
    pair.stage.db.execute("delete from content.ru where id <= 5").await;
    let run = pair.run_in_full(pair.first).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.delete_limit"));
    assert!(run.error.unwrap().contains("would delete 5 of 10 rows"));
    assert_eq!(pair.titles("ru").await.len(), 10);
}

#[tokio::test]
async fn an_empty_source_leaves_the_rows_of_others_and_its_own() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.stage.db.execute("create table content.kept as table content.ru; truncate content.ru").await;
    pair.succeed(pair.second).await;
    pair.loads(pair.first).await;
    assert_eq!((pair.titles("ru").await.len(), pair.titles("de").await.len()), (0, 10));
    pair.stage.db.execute("insert into content.ru table content.kept").await;
    pair.loads(pair.first).await;
    pair.has_both().await;
    pair.stage.db.execute("truncate content.ru").await;
    let run = pair.run_in_full(pair.first).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.source_empty"), "{:?}", run.error);
    assert_eq!((pair.titles("ru").await.len(), pair.titles("de").await.len()), (10, 10));
}

#[tokio::test]
async fn each_pipeline_compares_and_repairs_its_own_rows() {
    let pair = Pair::by_rows(300, 1000, None).await;
    pair.run_both().await;
    pair.db().execute("delete from analytics.mart where tenant = 'ru' and id = 7; update analytics.mart set title = null where tenant = 'ru' and id = 8;
                       insert into analytics.mart (tenant, id) values ('ru', -1)").await;
    let (verdicts, counts) = pair.verdicts(pair.first).await;
    assert_eq!((&verdicts[1..], counts), (&[Verdict::Differs; 2][..], (1, 1, 1)));
    pair.is_equal(pair.second).await;
    pair.repair(pair.first).await;
    pair.is_equal(pair.first).await;
    pair.has_both().await;
}

#[tokio::test]
async fn a_backfill_by_the_key_of_another_pipeline_leaves_its_row() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.run_both().await;
    let run = pair.stage.request_keys(pair.first, json!([["de", "3"], ["ru", "4"]])).await;
    pair.stage.db.execute("delete from content.ru where id = 4").await;
    pair.stage.work_off(pair.settings()).await;
    let run = pair.stage.run_record(run).await;
    assert_eq!((run.status, run.rows_deleted), (RunStatus::Success, 1), "{:?}", run.error);
    pair.has_both().await;
}

#[tokio::test]
async fn a_change_key_without_the_shared_column_deletes_own_rows_alone() {
    let pair = Pair::by_rows(10, 1000, None).await;
    let by_id = |config: Pipeline| Pipeline {
        source_query: Some(query("ru").replace("id > 0", "title <> 'gone'")),
        change_key: vec!["id".to_owned()],
        ..config
    };
    pair.edit(pair.first, by_id).await;
    pair.run_both().await;
    pair.stage.db.execute("update content.ru set title = 'gone', modified = now() where id = 3").await;
    let run = pair.succeed(pair.first).await;
    assert_eq!((run.rows_deleted, pair.titles("ru").await.len()), (1, 9));
    assert_eq!(pair.titles("de").await, pair.source("de").await);
}

#[tokio::test]
async fn what_was_acquired_under_another_sharing_counts_while_its_pipeline_runs() {
    let pair = Pair::by_rows(20, 1000, None).await;
    pair.run_both().await;
    pair.db().execute("update vitrina.marts set shared = 'columns', shared_value = null").await;
    pair.succeed(pair.first).await;
    pair.succeed(pair.second).await;
    let blocker = pair.stage.db.client().await;
    blocker
        .batch_execute("begin; select from analytics.mart where tenant = 'de' and id = 9 for update")
        .await
        .unwrap();
    pair.stage.db.execute("update content.de set title = 'new'").await;
    let (runner, stop) = pair.stage.start_runner("tester");
    let load = pair.stage.request_mode(pair.second, Mode::Full).await;
    pair.stage.someone_waits_for_a_row().await;
    pair.db().execute("update vitrina.marts set shared = null, shared_value = null").await;
    let waiting = pair.stage.request(pair.first).await;
    let is_given_back = "select retry_at is not null from etl.etl_pipelines where name = 'ru'";
    until(|| pair.stage.db.value::<bool>(is_given_back)).await;
    assert_eq!(pair.titles("ru").await.len(), 20);
    blocker.batch_execute("commit").await.unwrap();
    until(async || pair.stage.run_record(load).await.status == RunStatus::Success).await;
    stop.cancel();
    runner.join_all().await;
    pair.stage.db.execute("update etl.etl_pipelines set retry_at = now()").await;
    pair.stage.work_off(pair.settings()).await;
    assert_eq!(pair.stage.run_record(waiting).await.status, RunStatus::Success);
    pair.has_both().await;
}

#[tokio::test]
async fn pipelines_of_two_installations_share_a_mart_unless_they_have_one_value() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.run_both().await;
    const OTHER: &str = "11111111-1111-4111-8111-111111111111";
    pair.db()
        .execute(&format!("update vitrina.marts set installation = '{OTHER}' where pipeline_name = 'de'"))
        .await;
    pair.succeed(pair.first).await;
    let (code, message) = pair.fail(pair.second).await;
    assert_eq!(code, "sink.owned");
    assert!(message.contains(&format!("where installation = '{OTHER}'")), "{message}");
    pair.has_both().await;
}

#[tokio::test]
async fn a_row_of_another_pipeline_is_not_in_the_target_of_this_one() {
    let pair = Pair::by_rows(3, 1000, None).await;
    pair.run_both().await;
    let (_runner, _stop) = pair.stage.start_runner("tester");
    let look = async |id, tenant: &str| {
        let row = pair.stage.looked_for(id, json!([tenant, "2"])).await.answer.unwrap();
        (row["in_source"].clone(), row["in_target"].clone())
    };
    assert_eq!(look(pair.first, "ru").await, (json!(true), json!(true)));
    assert_eq!(look(pair.first, "de").await, (json!(false), json!(false)));
}

impl Pair {
    async fn edit(&self, id: PipelineId, edit: impl FnOnce(Pipeline) -> Pipeline) {
        self.try_edit(vec![(id, Box::new(edit))]).await.unwrap();
    }

    async fn try_edit(&self, edits: Vec<(PipelineId, Edit<'_>)>) -> Result<(), Error> {
        let mut changes = Vec::new();
        for (id, edit) in edits {
            let record = self.stage.store.pipeline(&PipelineRef::Id(id)).await.unwrap();
            changes.push(Change::EditPipeline { after: edit(record.config), version: record.version });
        }
        let actor = Actor { name: "tester".to_owned(), request_id: "1".to_owned() };
        self.stage.store.configure(&changes, &actor).await
    }

    fn value(value: &'static str) -> Edit<'static> {
        Box::new(move |config| Pipeline {
            source_query: Some(query(value)),
            shared_value: Some(value.to_owned()),
            ..config
        })
    }
}

#[tokio::test]
async fn two_pipelines_of_one_value_are_refused_when_they_are_saved_and_when_they_run() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.run_both().await;
    let refused = pair.try_edit(vec![(pair.second, Pair::value("ru"))]).await.unwrap_err();
    assert!(matches!(refused, Error::TargetOwned { .. }), "{refused}");
    assert!(refused.to_string().starts_with("analytics.mart (ru) is written by ru already"), "{refused}");
    pair.stage.db.execute("update etl.etl_pipelines set shared_value = 'ru', enabled = true where name = 'de'; update etl.etl_state set checkpoint = '{}'").await;
    let (code, message) = pair.fail(pair.second).await;
    assert_eq!(code, "sink.owned");
    let message = vitrina_core::values::shown(&message);
    assert!(message.contains("mart analytics.mart, rows of ru, is written by pipeline ru"), "{message}");
    pair.has_both().await;
}

#[tokio::test]
async fn two_pipelines_exchange_their_values() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.run_both().await;
    pair.try_edit(vec![(pair.first, Pair::value("de")), (pair.second, Pair::value("ru"))]).await.unwrap();
    pair.loads(pair.first).await;
    pair.loads(pair.second).await;
    pair.has_both().await;
    pair.is_equal(pair.first).await;
}

#[tokio::test]
async fn a_shared_value_and_a_target_that_is_shared_by_rows_need_each_other() {
    let pair = Pair::by_rows(10, 1000, None).await;
    let none = |config| Pipeline { shared_value: None, ..config };
    let refused = pair.try_edit(vec![(pair.first, Box::new(none))]).await.unwrap_err();
    assert!(
        matches!(&refused, Error::SharedValue(_)) && refused.to_string().contains("column tenant"),
        "{refused}"
    );
    pair.stage.db.execute("update etl.etl_targets set shared = null").await;
    let (code, message) = pair.fail(pair.first).await;
    assert!(code == "sink.shared_value" && message.contains("is not shared"), "{code} {message}");
    pair.stage.db.execute(r#"update etl.etl_targets set shared = '{"by": "rows", "column": "title"}'"#).await;
    let (code, message) = pair.fail(pair.first).await;
    assert!(code == "sink.shared_column" && message.contains("not in its key"), "{code} {message}");
}

#[tokio::test]
async fn a_column_whose_equal_values_have_several_texts_cannot_say_whose_a_row_is() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.db().execute("alter table analytics.mart alter tenant type char(5)").await;
    let (code, message) = pair.fail(pair.first).await;
    assert!(code == "sink.shared_column" && message.contains("character(5)"), "{code} {message}");
    pair.db().execute("alter table analytics.mart alter tenant type int using 1").await;
    let (code, message) = pair.fail(pair.first).await;
    assert!(code == "sink.shared_value" && message.contains("no value of column"), "{code} {message}");
    let seven = |config| Pipeline { shared_value: Some("07".to_owned()), ..config };
    pair.edit(pair.first, seven).await;
    let (code, message) = pair.fail(pair.first).await;
    assert!(code == "sink.shared_value" && message.contains(r#"writes it: "7""#), "{code} {message}");
}

#[tokio::test]
async fn a_changed_value_asks_what_becomes_of_the_checkpoint() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.run_both().await;
    let other = |config| Pipeline { shared_value: Some("fr".to_owned()), ..config };
    pair.edit(pair.first, other).await;
    let asked = pair.stage.store.request_run(pair.first, OnActive::Reject, &RunRequest::default()).await;
    assert!(matches!(asked, Err(Error::ConfigChanged)), "{asked:?}");
}

/// The rows of the other one are still there, and stay.
#[tokio::test]
async fn own_rows_that_somebody_has_deleted_all_are_loaded_anew() {
    let pair = Pair::by_rows(40, 1000, None).await;
    pair.run_both().await;
    pair.has_both().await;
    pair.db().execute("delete from analytics.mart where tenant = 'ru'").await;
    assert_eq!(pair.succeed(pair.second).await.rows_written, 0);
    assert_eq!(pair.succeed(pair.first).await.rows_written, 40);
    pair.has_both().await;
}

#[tokio::test]
async fn a_mart_that_one_pipeline_has_created_anew_is_read_again_by_the_others() {
    let pair = Pair::by_rows(20, 1000, None).await;
    pair.stage.db.execute("update etl.etl_targets set create_if_missing = true").await;
    pair.run_both().await;
    pair.db().execute("drop table analytics.mart").await;
    pair.succeed(pair.first).await;
    assert_eq!((pair.titles("ru").await.len(), pair.titles("de").await.len()), (20, 0));
    pair.succeed(pair.second).await;
    pair.has_both().await;
    assert_eq!(pair.succeed(pair.second).await.rows_written, 0, "once");
}

#[tokio::test]
async fn a_pipeline_that_is_not_told_that_the_mart_is_shared_is_refused() {
    let pair = Pair::by_rows(10, 1000, None).await;
    pair.run_both().await;
    pair.stage.db.execute("update etl.etl_targets set shared = null; update etl.etl_pipelines set shared_value = null; update etl.etl_state set checkpoint = '{}'").await;
    let (code, message) = pair.fail(pair.first).await;
    assert_eq!(code, "sink.owned");
    assert!(message.contains("give its target `shared`"), "{message}");
    pair.has_both().await;
}

#[tokio::test]
async fn a_load_that_was_begun_straight_into_the_mart_is_begun_anew_when_it_is_shared() {
    let stage = Stage::empty().await;
    stage.db.execute(SOURCES).await;
    stage.db.execute(MART).await;
    stage.db.execute("update etl.etl_targets set shared = null; insert into content.ru (id, title) select n, 'ru' from generate_series(1, 50) n").await;
    stage.db.execute("alter table analytics.mart add constraint no_45 check (id <> 45)").await;
    let first = pipeline(&stage, "ru", &query("ru"), 10, json!({})).await;
    stage.fail(first).await;
    let begun: Value = stage.checkpoint().await;
    assert_eq!(begun["load"]["path"], "direct", "{begun}");
    stage.db.execute("alter table analytics.mart drop constraint no_45; update etl.etl_targets set shared = '{\"by\": \"rows\", \"column\": \"tenant\"}';
                      update etl.etl_pipelines set shared_value = 'ru'; update etl.etl_state set checkpoint = checkpoint - 'config_hash';
                      insert into analytics.mart (tenant, id) values ('de', 1)").await;
    let run = stage.request_resume(first).await;
    stage.runner().work_off().await.unwrap();
    assert_eq!(stage.run_record(run).await.error_code.as_deref(), Some("sink.staging_lost"));
    stage.succeed(first).await;
    let rows: i64 = stage.count("analytics.mart").await;
    assert_eq!(rows, 51);
}
