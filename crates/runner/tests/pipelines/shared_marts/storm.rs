//! Writers change both sources at random while both pipelines load in full, pass and compare.

use vitrina_core::{Mode, OnActive, RunStatus};
use vitrina_store::RunRequest;

use super::Pair;

const CUSTOMERS: &str = "select id::text, name, phone, customer_modified::text from analytics.mart
    where num_nonnulls(name, phone, customer_modified) > 0 order by id";
const LOYALTY: &str = "select id::text, points::text, loyalty_modified::text from analytics.mart
    where num_nonnulls(points, loyalty_modified) > 0 order by id";

/// Changes of either source, by a number.
fn change(number: u32) -> String {
    let id = fastrand::u32(1..60);
    let (table, column) = match number.is_multiple_of(2) {
        true => ("content.customer", "phone"),
        false => ("content.loyalty", "points"),
    };
    match fastrand::u32(..4) {
        0 => format!("delete from {table} where id = {id}"),
        1 => format!("update {table} set {column} = null, modified = clock_timestamp() where id = {id}"),
        2 => format!("update {table} set {column} = {number}, modified = clock_timestamp() where id = {id}"),
        _ => format!("insert into {table} (id, {column}) values ({id}, {number}) on conflict do nothing"),
    }
}

#[tokio::test]
async fn whatever_two_pipelines_do_at_once_a_mart_shared_by_columns_ends_as_its_sources() {
    let pair = Pair::by_columns_and_cursors().await;
    pair.fill(40).await;
    pair.run_both().await;
    let (runner, stop) = pair.stage.start_runner("tester");
    for number in 0..200 {
        pair.stage.db.execute(&change(number)).await;
        if number.is_multiple_of(5) {
            let id = if fastrand::bool() { pair.first } else { pair.second };
            let mode = if fastrand::bool() { Mode::Full } else { Mode::Incremental };
            let request = RunRequest { mode: Some(mode), ..RunRequest::default() };
            pair.stage.store.request_run(id, OnActive::Join, &request).await.ok();
        }
    }
    stop.cancel();
    runner.join_all().await;
    pair.stage.work_off(pair.settings()).await;
    let failed: String = pair
        .stage
        .db
        .value("select coalesce(string_agg(error, '; '), '') from etl.etl_runs where status <> 'SUCCESS'")
        .await;
    assert_eq!(failed, "");
    for (id, others) in [(pair.first, LOYALTY), (pair.second, CUSTOMERS)] {
        let before = pair.db().texts(others).await;
        let run = pair.stage.request_mode(id, Mode::Full).await;
        pair.stage.work_off(pair.settings()).await;
        assert_eq!(pair.stage.run_record(run).await.status, RunStatus::Success);
        assert_eq!(pair.db().texts(others).await, before);
    }
    pair.ends_as_its_sources().await;
    pair.is_equal(pair.first).await;
    pair.is_equal(pair.second).await;
}
