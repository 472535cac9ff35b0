//! Each pipeline writes the columns that its query returns.

use serde_json::json;
use vitrina_core::values::shown;
use vitrina_core::{Level, Mode, Pipeline, PipelineId, ReconcileStatus, RunStatus, Verdict};
use vitrina_store::{Actor, Change, PipelineRef};
use vitrina_testbed::Database;

use super::{Pair, incremental, pipeline};
use crate::functions::Functions;
use crate::stage::{Stage, until};

const SOURCES: &str = "
    create schema content;
    create table content.customer (id int primary key, name text, phone text, modified timestamptz not null default now());
    create table content.loyalty (id int primary key, points int, modified timestamptz not null default now());
    create index on content.customer (modified, id); create index on content.loyalty (modified, id);
    insert into etl.etl_targets (name, key, touch_column, shared) values ('analytics.mart', '{id}', 'updated_at', '{\"by\": \"columns\"}')";
const MART: &str = "
    create schema analytics;
    create table analytics.mart (id int primary key, name text, phone text, customer_modified timestamptz, points int,
        loyalty_modified timestamptz, updated_at timestamptz, loaded_at timestamptz default now())";
const CUSTOMERS: &str = "select id, name, phone from content.customer";
const LOYALTY: &str = "select id, points from content.loyalty";

impl Pair {
    async fn by_columns(batch_size: i32, marts: Option<Database>) -> Self {
        let stage = Stage::empty().await;
        stage.db.execute(SOURCES).await;
        marts.as_ref().unwrap_or(&stage.db).execute(MART).await;
        let first = pipeline(&stage, "customers", CUSTOMERS, batch_size, json!({"delete_limit": 1})).await;
        let second = pipeline(&stage, "loyalty", LOYALTY, batch_size, json!({"delete_limit": 1})).await;
        Self { stage, marts, first, second }
    }

    /// Both by their cursors, which are columns of their own.
    pub(super) async fn by_columns_and_cursors() -> Self {
        let stage = Stage::empty().await;
        stage.db.execute(SOURCES).await;
        stage.db.execute(MART).await;
        let of = |cursor: &str| {
            let mut more = incremental();
            more["incremental_key"] = json!(cursor);
            more["delete_limit"] = json!(1);
            more
        };
        let customers = "select id, name, phone, modified as customer_modified from content.customer where phone is distinct from 'none'";
        let loyalty = "select id, points, modified as loyalty_modified from content.loyalty where points is distinct from 0";
        let first = pipeline(&stage, "customers", customers, 1000, of("customer_modified")).await;
        let second = pipeline(&stage, "loyalty", loyalty, 1000, of("loyalty_modified")).await;
        Self { stage, marts: None, first, second }
    }

    /// Customers 1 to `customers`, and points of every second one and of some that are no customers.
    pub(super) async fn fill(&self, customers: i32) {
        self.stage
            .db
            .execute(&format!(
                "insert into content.customer (id, name, phone) select n, 'Name ' || n, nullif(n % 5, 0)::text from generate_series(1, {customers}) n;
                 insert into content.loyalty (id, points) select n, n * 10 from generate_series(2, {customers} + 10, 2) n"
            ))
            .await;
    }

    /// The mart is what an outer join of the sources would be.
    async fn has_all(&self) {
        let expected = "select id::text, name, phone, points::text from content.customer full join content.loyalty using (id)
                         where num_nonnulls(name, phone, points) > 0 order by id";
        let mart = self
            .db()
            .texts("select id::text, name, phone, points::text from analytics.mart order by id")
            .await;
        assert_eq!(mart, self.stage.db.texts(expected).await);
    }

    /// Of the queries by cursors.
    pub(super) async fn ends_as_its_sources(&self) {
        let expected = "select id::text, name, phone, points::text, customer_modified::text, loyalty_modified::text
              from (select id, name, phone, modified as customer_modified from content.customer where phone is distinct from 'none') c
              full join (select id, points, modified as loyalty_modified from content.loyalty where points is distinct from 0) l using (id) order by id";
        let mart = "select id::text, name, phone, points::text, customer_modified::text, loyalty_modified::text from analytics.mart order by id";
        assert_eq!(self.db().texts(mart).await, self.stage.db.texts(expected).await);
    }

    async fn mart(&self) -> Vec<String> {
        let rows = self
            .db()
            .texts("select concat_ws('|', id, name, phone, points) from analytics.mart order by id")
            .await;
        rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
    }
}

async fn is_shared_by_columns(pair: &Pair, customers: i32) {
    pair.fill(customers).await;
    pair.run_both().await;
    pair.has_all().await;
    let changes = [
        "update content.customer set phone = 'new' where id = 2; delete from content.customer where id in (3, 4)",
        "update content.loyalty set points = 7 where id = 2; delete from content.loyalty where id in (4, 6)",
        "insert into content.customer (id, name) values (4, 'back'); delete from content.customer where id = 6; insert into content.loyalty values (3, 5)",
        "update content.customer set name = null, phone = null where id in (1, 2, 8)",
        "update content.loyalty set points = null where id in (2, 10); update content.customer set name = 'again' where id = 8",
    ];
    for change in changes {
        pair.stage.db.execute(change).await;
        pair.run_both().await;
        pair.has_all().await;
        for id in [pair.first, pair.second] {
            let compared = pair.stage.reconcile_with(pair.settings(), id, Level::Hash).await;
            assert_eq!(compared.verdict(), Verdict::Equal, "{change}");
        }
    }
    pair.is_equal(pair.first).await;
    pair.is_equal(pair.second).await;
}

#[tokio::test]
async fn each_pipeline_fills_its_columns_in_one_batch() {
    is_shared_by_columns(&Pair::by_columns(1000, None).await, 30).await;
}

#[tokio::test]
async fn each_pipeline_fills_its_columns_in_many_batches() {
    is_shared_by_columns(&Pair::by_columns(20, None).await, 200).await;
}

#[tokio::test]
async fn pipelines_share_a_mart_in_another_database_by_columns() {
    is_shared_by_columns(&Pair::by_columns(8, Some(Database::fresh().await)).await, 40).await;
}

#[tokio::test]
async fn a_partitioned_mart_with_triggers_is_shared_by_columns() {
    let pair = Pair::by_columns(20, None).await;
    pair.db()
        .execute(
            "alter table analytics.mart rename to whole; alter table analytics.whole rename constraint mart_pkey to whole_pkey;
             create table analytics.mart (like analytics.whole including defaults, primary key (id)) partition by range (id);
             create table analytics.low partition of analytics.mart for values from (0) to (20);
             create table analytics.high partition of analytics.mart default;
             create function analytics.pass() returns trigger language plpgsql as 'begin return new; end';
             create trigger pass before insert or update on analytics.mart for each row execute function analytics.pass()",
        )
        .await;
    is_shared_by_columns(&pair, 60).await;
}

const FUNCTIONS: &str = "
from vitrina import transform

@transform
def told(rows: list[dict]) -> list[dict]:
    known = {name for row in rows for name, value in row.items() if value is not None}
    return [{name: value for name, value in row.items() if name in known} for row in rows]
";

#[tokio::test]
async fn columns_that_a_function_leaves_out_of_a_batch_are_deleted_all_the_same() {
    let pair = Pair::by_columns_and_cursors().await;
    let functions = Functions::of(FUNCTIONS).await;
    let reader = "select id, name, phone, modified as customer_modified from content.customer where name is distinct from 'gone'";
    let plan = json!([{"order_index": 1, "task_type": "SQL", "body": reader}, {"order_index": 2, "task_type": "PYTHON", "body": "told"}]);
    pair.stage.delete(pair.first).await;
    let mut more = incremental();
    more["incremental_key"] = json!("customer_modified");
    more["delete_limit"] = json!(1);
    more["plan"] = plan;
    let first = pipeline(&pair.stage, "told", "select 1", 1000, more).await;
    pair.fill(6).await;
    functions.succeed(&pair.stage, first).await;
    pair.succeed(pair.second).await;
    assert_eq!(pair.mart().await[..2], ["1|Name 1|1", "2|Name 2|2|20"]);
    pair.stage.db.execute("update content.customer set name = 'gone', modified = now() where id in (1, 2); update content.customer set phone = null, modified = now() where id = 3").await;
    functions.succeed(&pair.stage, first).await;
    assert_eq!(
        pair.mart().await[..2],
        ["2|20", "3|Name 3|3"],
        "of a column that a batch does not have nothing is known"
    );
    pair.stage
        .db
        .execute("update content.customer set name = 'gone', modified = now() where id in (3, 4)")
        .await;
    functions.succeed(&pair.stage, first).await;
    assert_eq!(pair.mart().await[..3], ["2|20", "4|40", "5|Name 5"]);
}

#[tokio::test]
async fn increments_change_and_delete_own_columns_alone() {
    let pair = Pair::by_columns_and_cursors().await;
    pair.fill(6).await;
    pair.run_both().await;
    pair.stage
        .db
        .execute("update content.customer set phone = 'none', modified = now() where id in (1, 2)")
        .await;
    pair.succeed(pair.first).await;
    assert_eq!(pair.mart().await[..2], ["2|20", "3|Name 3|3"]);
    pair.stage.db.execute("update content.loyalty set points = 0, modified = now() where id = 2; update content.loyalty set points = 41, modified = now() where id = 4").await;
    pair.succeed(pair.second).await;
    assert_eq!(pair.mart().await[..2], ["3|Name 3|3", "4|Name 4|4|41"]);
    let touched: i64 = pair.db().value("select count(*) from analytics.mart where updated_at is null").await;
    assert_eq!(touched, 0);
    pair.is_equal(pair.first).await;
    pair.is_equal(pair.second).await;
}

#[tokio::test]
async fn a_row_that_both_delete_at_once_is_removed() {
    for _ in 0..3 {
        let pair = Pair::by_columns(1000, None).await;
        pair.fill(6).await;
        pair.run_both().await;
        pair.stage
            .db
            .execute("delete from content.customer where id = 2; delete from content.loyalty where id = 2")
            .await;
        let blocker = pair.stage.db.client().await;
        blocker.batch_execute("begin; select from analytics.mart where id = 2 for update").await.unwrap();
        let (runner, stop) = pair.stage.start_runner("tester");
        let runs = [pair.stage.request(pair.first).await, pair.stage.request(pair.second).await];
        let waiting = "select count(distinct pid) = 2 from pg_locks join pg_stat_activity using (pid)
                        where not granted and datname = current_database()";
        until(|| pair.stage.db.value::<bool>(waiting)).await;
        blocker.batch_execute("commit").await.unwrap();
        for run in runs {
            until(async || pair.stage.run_record(run).await.status == RunStatus::Success).await;
        }
        stop.cancel();
        runner.join_all().await;
        pair.has_all().await;
        assert!(!pair.mart().await.iter().any(|row| row.starts_with("2")));
    }
}

#[tokio::test]
async fn a_pipeline_does_not_delete_what_another_fills_meanwhile() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(6).await;
    pair.run_both().await;
    pair.stage
        .db
        .execute("delete from content.customer where id = 1; insert into content.loyalty values (1, 11)")
        .await;
    let blocker = pair.stage.db.client().await;
    blocker.batch_execute("begin; select from analytics.mart where id = 1 for update").await.unwrap();
    let (runner, stop) = pair.stage.start_runner("tester");
    let deleting = pair.stage.request(pair.first).await;
    pair.stage.someone_waits_for_a_row().await;
    let filling = pair.stage.request(pair.second).await;
    let waiting = "select count(distinct pid) = 2 from pg_locks join pg_stat_activity using (pid)
                    where not granted and datname = current_database()";
    until(|| pair.stage.db.value::<bool>(waiting)).await;
    blocker.batch_execute("commit").await.unwrap();
    for run in [deleting, filling] {
        until(async || pair.stage.run_record(run).await.status == RunStatus::Success).await;
    }
    stop.cancel();
    runner.join_all().await;
    pair.has_all().await;
}

#[tokio::test]
async fn two_pipelines_that_write_one_column_are_refused() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(6).await;
    pair.succeed(pair.first).await;
    pair.query(pair.second, "select id, points, 'x' as phone from content.loyalty").await;
    let (code, message) = pair.fail(pair.second).await;
    assert_eq!(code, "sink.owned");
    let before = pair.standing(pair.second).await;
    let problem = shown(before["problem"].as_str().unwrap_or_default());
    assert!(
        problem.contains("mart analytics.mart, columns phone, is written by pipeline customers"),
        "{before}"
    );
    assert!(
        shown(&message).contains("mart analytics.mart, columns phone, is written by pipeline customers"),
        "{message}"
    );
    pair.query(pair.first, "select id, name from content.customer").await;
    pair.succeed(pair.first).await;
    pair.succeed(pair.second).await;
    assert_eq!(pair.standing(pair.second).await["problem"], json!(null));
    let phones: i64 = pair.db().value("select count(*) from analytics.mart where phone = 'x'").await;
    assert_eq!(phones, 8, "a column that the first gave back is the second's");
    pair.query(pair.first, CUSTOMERS).await;
    assert_eq!(pair.fail(pair.first).await.0, "sink.owned");
}

#[tokio::test]
async fn a_column_of_another_pipeline_is_neither_compared_nor_shown() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(6).await;
    pair.succeed(pair.first).await;
    pair.succeed(pair.second).await;
    pair.query(pair.second, "select id, points, 'x' as phone from content.loyalty").await;
    for level in [Level::Count, Level::Hash, Level::Rows] {
        let order = pair.stage.request_reconcile(pair.second, level).await;
        pair.stage.work_off(pair.settings()).await;
        let record = pair.stage.store.reconcile(order).await.unwrap().unwrap();
        let error = (record.status, record.error_code.as_deref());
        assert_eq!(error, (ReconcileStatus::Failed, Some("sink.owned")), "{:?}", record.error);
        assert!(pair.stage.store.differences(order, None, 0, i64::MAX).await.unwrap().is_empty());
    }
    let (runner, stop) = pair.stage.start(pair.settings());
    let row = pair.stage.looked_for(pair.second, json!(["2"])).await;
    stop.cancel();
    runner.join_all().await;
    assert_eq!((row.error_code.as_deref(), &row.answer), (Some("sink.owned"), &None), "{:?}", row.error);
}

#[tokio::test]
async fn own_columns_need_to_be_null_where_the_pipeline_has_no_row() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(6).await;
    for (alter, hint) in [
        ("alter table analytics.mart alter points set default 0", "drop default"),
        ("alter table analytics.mart alter points set not null", "drop not null"),
    ] {
        pair.db().execute(alter).await;
        let (code, message) = pair.fail(pair.second).await;
        assert!(code == "sink.shared_column" && message.contains(hint), "{code} {message}");
    }
    pair.db().execute("alter table analytics.mart alter points drop default").await;
    let (code, message) = pair.fail(pair.first).await;
    assert!(code == "sink.missing_column" && message.contains("points"), "{code} {message}");
    pair.query(pair.first, "select id from content.customer").await;
    pair.db().execute("alter table analytics.mart alter points drop not null").await;
    let (code, message) = pair.fail(pair.first).await;
    assert!(code == "sink.shared_column" && message.contains("its key alone"), "{code} {message}");
}

#[tokio::test]
async fn an_empty_source_leaves_the_columns_of_others_and_its_own() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(6).await;
    pair.stage
        .db
        .execute("create table content.kept as table content.loyalty; truncate content.loyalty")
        .await;
    pair.run_both().await;
    pair.has_all().await;
    pair.stage.db.execute("insert into content.loyalty table content.kept").await;
    pair.run_both().await;
    pair.stage.db.execute("truncate content.loyalty").await;
    assert_eq!(pair.fail(pair.second).await.0, "sink.source_empty");
    assert_eq!(pair.mart().await[1], "2|Name 2|2|20");
}

#[tokio::test]
async fn the_delete_limit_is_a_share_of_the_rows_in_which_the_pipeline_has_values() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(100).await;
    pair.stage.db.execute("delete from content.loyalty where id > 20").await;
    pair.run_both().await;
    pair.stage
        .db
        .execute("update etl.etl_pipelines set delete_limit = 0.2; delete from content.loyalty where id <= 6")
        .await;
    let (code, message) = pair.fail(pair.second).await;
    assert!(code == "sink.delete_limit" && message.contains("would delete 3 of 10 rows"), "{code} {message}");
    assert_eq!(pair.mart().await[1], "2|Name 2|2|20");
}

#[tokio::test]
async fn each_pipeline_compares_and_repairs_its_own_columns() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(300).await;
    pair.run_both().await;
    pair.db().execute("update analytics.mart set points = 1 where id = 2; update analytics.mart set points = null where id = 4;
                       update analytics.mart set points = 5 where id = 3; update analytics.mart set loaded_at = null").await;
    let (verdicts, counts) = pair.verdicts(pair.second).await;
    assert_eq!((verdicts, counts), ([Verdict::Equal, Verdict::Differs, Verdict::Differs], (1, 1, 1)));
    pair.is_equal(pair.first).await;
    pair.repair(pair.second).await;
    pair.is_equal(pair.second).await;
    pair.has_all().await;
}

#[tokio::test]
async fn the_missing_columns_of_a_second_pipeline_are_told_with_the_statement_that_adds_them() {
    let pair = Pair::by_columns(1000, None).await;
    pair.fill(6).await;
    pair.db().execute("drop table analytics.mart; update etl.etl_targets set create_if_missing = true").await;
    pair.succeed(pair.first).await;
    let (code, message) = pair.fail(pair.second).await;
    assert!(
        code == "sink.extra_column" && message.contains("add column \"points\" integer"),
        "{code} {message}"
    );
    pair.db().execute("alter table analytics.mart add column points integer").await;
    pair.succeed(pair.second).await;
    pair.has_all().await;
    pair.stage.delete(pair.second).await;
    pair.loads_in_full(pair.first).await;
    pair.has_all().await;
}

impl Pair {
    async fn query(&self, id: PipelineId, query: &str) {
        let record = self.stage.store.pipeline(&PipelineRef::Id(id)).await.unwrap();
        let after = Pipeline { source_query: Some(query.to_owned()), ..record.config };
        let actor = Actor { name: "tester".to_owned(), request_id: "1".to_owned() };
        let change = Change::EditPipeline { after, version: record.version };
        self.stage.store.configure(&[change], &actor).await.unwrap();
    }

    async fn loads_in_full(&self, id: PipelineId) {
        let run = self.stage.request_mode(id, Mode::Full).await;
        self.stage.work_off(self.settings()).await;
        let run = self.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    }
}
