//! A batch that is mostly refused costs requests, scans and time in proportion to what is refused, whatever refuses it and
//! however its rows are written. Requests and scans are counted, as time depends on the machine.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_connectors::Connection;
use vitrina_core::RunStatus;
use vitrina_testbed::{Database, PostgresProxy, eventually};

use crate::stage::Stage;

/// Of each ten rows nine are refused.
const GOOD: &str = "(n % 10 = 0)";

/// What a mart refuses, and the title and the number of a row that it refuses.
struct Rule {
    mart: &'static str,
    title: &'static str,
    number: &'static str,
    code: &'static str,
}

const NOT_NULL: Rule = Rule {
    mart: "alter table analytics.item alter title set not null",
    title: "null",
    number: "1",
    code: "row.not_null",
};
const CHECK: Rule = Rule {
    mart: "alter table analytics.item add check (number < 1000)",
    title: "'item ' || n",
    number: "1000",
    code: "row.check",
};
const UNIQUE: Rule = Rule {
    mart: "create unique index on analytics.item (title)",
    // That of the first row.
    title: "'item 0'",
    number: "1",
    code: "row.unique",
};
const FOREIGN_KEY: Rule = Rule {
    mart: "create table analytics.known (title text primary key);
           insert into analytics.known select word || n from generate_series(0, 100000, 10) n, unnest(array['item ', 'old ']) word;
           alter table analytics.item add foreign key (title) references analytics.known",
    title: "'nobody knows it'",
    number: "1",
    code: "row.foreign_key",
};
const TOO_LONG: Rule = Rule {
    mart: "alter table analytics.item alter title type varchar(20)",
    title: "repeat('x', 30)",
    number: "1",
    code: "row.too_long",
};
const OUT_OF_RANGE: Rule = Rule {
    mart: "alter table analytics.item alter number type smallint",
    title: "'item ' || n",
    number: "100000",
    code: "row.out_of_range",
};

/// What a run has cost.
#[derive(Debug)]
struct Cost {
    /// To the server of the mart.
    requests: i64,
    /// Of the mart.
    scans: i64,
    rows_scanned: i64,
}

/// Runs a pipeline over so many rows, of which nine in ten are refused.
async fn cost(rule: &Rule, rows: i64, is_remote: bool, is_filled: bool, changes: &Value) -> Cost {
    let stage = Stage::empty().await;
    let remote = if is_remote { Some(Database::fresh().await) } else { None };
    let marts = remote.as_ref().unwrap_or(&stage.db);
    stage
        .db
        .execute(&format!(
            "create schema content;
             create table content.item (id bigint primary key, title text, number int, modified timestamptz not null);
             insert into content.item
             select n, case when {GOOD} then 'item ' || n else {} end, case when {GOOD} then 1 else {} end,
                    '2024-01-01'::timestamptz + n * interval '1 s'
               from generate_series(0, {rows} - 1) n;
             analyze content.item",
            rule.title, rule.number
        ))
        .await;
    marts.execute("create schema analytics; create table analytics.item (id bigint primary key, title text, number int, modified timestamptz)").await;
    if is_filled {
        // Old rows of the keys to come, which pass every rule.
        let old = "insert into analytics.item (id, title) select n, 'old ' || n from generate_series(0, 1000000, 10) n";
        marts.execute(&format!("{old} limit {rows}")).await;
    }
    marts.execute(rule.mart).await;
    marts.execute("analyze").await;
    let proxy = PostgresProxy::before(marts.url()).await;
    let mut settings = stage.settings("tester");
    let behind = Connection::new("marts", proxy.url().into(), Vec::new());
    settings.connections.0.insert("marts".to_owned(), behind);
    let mut config = json!({
        "name": "item", "target_table": "analytics.item", "source_query": "select id, title, number, modified from content.item",
        "batch_size": 10_000, "reject_limit": rows, "delete_limit": 1,
    });
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let id = stage.pipeline(config).await;
    let scans = |column: &str| {
        format!("select {column} from pg_stat_user_tables where relid = 'analytics.item'::regclass")
    };
    settled(marts).await;
    let before: (i64, i64) =
        (marts.value(&scans("seq_scan")).await, marts.value(&scans("seq_tup_read")).await);
    let run = stage.request(id).await;
    stage.work_off(settings).await;
    let run = stage.run_record(run).await;
    assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
    let refused = rows - rows / 10;
    assert_eq!(i64::try_from(run.rows_rejected).unwrap(), refused, "{run:?}");
    assert!(
        stage.rejects().await.iter().all(|(code, _)| code == rule.code),
        "{:?}",
        stage.rejects().await.first()
    );
    let good = format!("select count(*) from analytics.item where id < {rows} and title = 'item ' || id");
    assert_eq!(marts.value::<i64>(&good).await, rows / 10);
    settled(marts).await;
    let after: (i64, i64) =
        (marts.value(&scans("seq_scan")).await, marts.value(&scans("seq_tup_read")).await);
    let requests = i64::try_from(proxy.requests()).unwrap();
    Cost { requests, scans: after.0 - before.0, rows_scanned: after.1 - before.1 }
}

/// What sessions have read is counted at their end.
async fn settled(database: &Database) {
    let gone = "select not exists (select from pg_stat_activity where datname = current_database() and application_name like 'vitrina/%')";
    eventually("sessions end", async || database.value::<bool>(gone).await.then_some(())).await;
}

#[rstest]
#[case::a_direct_load(json!({}), false, false)]
#[case::a_load_through_staging(json!({"first_load": "staged"}), false, true)]
#[case::a_load_into_a_filled_mart(json!({}), true, false)]
#[case::an_increment(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"}), true, false)]
#[case::an_increment_elsewhere(json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"}), true, true)]
#[tokio::test]
async fn a_batch_that_is_mostly_rejects_costs_in_proportion_to_them(
    #[case] changes: Value,
    #[case] is_filled: bool,
    #[case] is_remote: bool,
) {
    let is_increment = changes["mode"] == "incremental";
    for rule in [NOT_NULL, CHECK, UNIQUE, FOREIGN_KEY, TOO_LONG, OUT_OF_RANGE] {
        let few = cost(&rule, 40, is_remote, is_filled, &changes).await;
        let many = cost(&rule, 160, is_remote, is_filled, &changes).await;
        let told = format!("{}: {few:?} for 36 rejects, {many:?} for 144", rule.code);
        assert!(many.requests <= 5 * few.requests && many.requests <= 144 * 25, "{told}");
        // The first statement, for the whole batch, scans a mart of a few blocks for each row, where it would look into the
        // index of a larger one. Those for its halves do not.
        let once = if is_increment { 160 } else { 0 };
        assert!(many.scans <= 20 + once && many.rows_scanned <= 160 * (10 + once), "{told}");
    }
}

/// A load looks for rows of its mart by a join, which reads all of it.
#[tokio::test]
async fn a_load_reads_its_mart_a_few_times_however_many_of_its_rows_are_refused() {
    let stage = Stage::empty().await;
    stage
        .db
        .execute(
            "create schema content; create schema analytics;
             create table content.item (id bigint primary key, title text, filler text);
             insert into content.item select n, case n % 1000 when 7 then 'taken' else 'item ' || n end, repeat('x', 200)
               from generate_series(0, 19999) n;
             create table analytics.item (id bigint primary key, title text, filler text);
             insert into analytics.item select n, 'old ' || n from generate_series(0, 19999) n;
             update analytics.item set title = 'taken' where id = 7; create unique index on analytics.item (title); analyze",
        )
        .await;
    let id = stage
        .pipeline(json!({"name": "item", "target_table": "analytics.item", "batch_size": 10_000, "reject_limit": 100,
                         "source_query": "select id, title, filler from content.item"}))
        .await;
    let read = "select seq_tup_read from pg_stat_user_tables where relid = 'analytics.item'::regclass";
    settled(&stage.db).await;
    let before: i64 = stage.db.value(read).await;
    assert_eq!(stage.succeed(id).await.rows_rejected, 19);
    settled(&stage.db).await;
    let read = stage.db.value::<i64>(read).await - before;
    assert!(read <= 10 * 20_000, "{read} rows of the mart were read");
}
