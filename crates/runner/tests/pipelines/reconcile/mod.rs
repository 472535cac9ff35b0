//! Targets compared with their sources by a real runner (R-REC-1).

mod changing;
mod million;
mod python;
mod refused;
mod types;
mod values;

use serde_json::{Value, json};
use vitrina_core::{DifferenceKind, Level, ReconcileStatus, ReconcileTrigger, Verdict};
use vitrina_store::ReconcileOrder;

use super::stage::Stage;

#[tokio::test]
async fn equal_sides_are_equal_at_every_level() {
    let stage = Stage::with_films(1000).await;
    let id = stage.full(100).await;
    stage.succeed(id).await;
    for level in [Level::Count, Level::Hash, Level::Rows] {
        let compared = stage.reconcile(id, level).await;
        assert_eq!(compared.verdict(), Verdict::Equal, "{level}");
        let figures = compared.figures();
        assert_eq!((figures.source.rows, figures.target.rows), (1000, 1000));
        assert!(figures.source.as_of.is_some() && figures.target.as_of.is_some());
        assert_eq!(figures.rows_read, 0);
    }
}

#[tokio::test]
async fn counts_come_with_the_smallest_and_greatest_key_and_cursor_of_both_sides() {
    let stage = Stage::with_films(12).await;
    let id = stage.incremental(100).await;
    stage.succeed(id).await;
    stage.db.execute("delete from analytics.film where id = 12").await;
    let compared = stage.reconcile(id, Level::Count).await;
    assert_eq!(compared.verdict(), Verdict::Differs);
    let figures = compared.figures();
    assert_eq!((figures.source.rows, figures.target.rows), (12, 11));
    let text = |text: &str| Some(text.to_owned());
    assert_eq!((&figures.source.min["id"], &figures.source.max["id"]), (&text("1"), &text("12")));
    assert_eq!(figures.target.max["id"], text("11"));
    assert_eq!(figures.target.max["modified"], text("2024-01-01 00:11:00+00"));
}

#[tokio::test]
async fn each_difference_is_told_by_its_kind_with_the_columns_that_differ() {
    let stage = Stage::with_films(1000).await;
    let id = stage.full(100).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "delete from analytics.film where id = 7;
             insert into analytics.film (id, title) values (-3, 'Nobody''s');
             update analytics.film set title = null where id = 500;
             update analytics.film set rating = 0.7, title = 'Another' where id = 600;
             update analytics.film set updated_at = '2000-01-01' where id = 700",
        )
        .await;
    let compared = stage.reconcile(id, Level::Rows).await;
    assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (1, 1, 2)));
    let shown: Vec<Value> = compared.differences.iter().map(|difference| json!(difference)).collect();
    let expected = json!([
        {"kind": "extra", "key": ["-3"], "columns": {}},
        {"kind": "missing", "key": ["7"], "columns": {}},
        {"kind": "different", "key": ["500"], "columns": {"title": {"source": "Film 500", "target": null}}},
        {"kind": "different", "key": ["600"], "columns": {
            "rating": {"source": "0", "target": "0.7"}, "title": {"source": "Film 600", "target": "Another"}}},
    ]);
    assert_eq!(sorted(shown), sorted(expected.as_array().unwrap().clone()));
    let hashed = stage.reconcile(id, Level::Hash).await;
    assert_eq!(
        (hashed.verdict(), hashed.counts(), hashed.differences.len()),
        (Verdict::Differs, (1, 1, 2), 0)
    );
}

fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_key(ToString::to_string);
    values
}

#[tokio::test]
async fn no_more_differences_are_kept_than_were_asked_for_and_all_are_counted() {
    let stage = Stage::with_films(100).await;
    let id = stage.full(100).await;
    let order = ReconcileOrder {
        level: Level::Rows,
        keep: 10,
        trigger: ReconcileTrigger::Manual,
        requested_by: None,
    };
    let reconcile = stage.store.request_reconcile(id, &order).await.unwrap();
    stage.work_off(stage.settings("tester")).await;
    let compared = stage.compared(reconcile).await;
    assert_eq!((compared.counts(), compared.differences.len()), ((100, 0, 0), 10));
    assert!(compared.figures().capped);
}

#[tokio::test]
async fn a_target_that_lacks_rows_because_they_were_refused_is_not_equal() {
    let stage = Stage::with_films(10).await;
    stage.db.execute("alter table analytics.film add check (title <> 'Film 4')").await;
    let id = stage.pipeline(json!({"reject_limit": 5})).await;
    stage.succeed(id).await;
    for level in [Level::Count, Level::Hash, Level::Rows] {
        let compared = stage.reconcile(id, level).await;
        assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (0, 0, 0)), "{level}");
        assert_eq!(compared.figures().rejected, 1);
    }
    // What was refused and is there all the same, as the source has it, is no difference.
    stage.db.execute("alter table analytics.film drop constraint film_title_check; insert into analytics.film (id, title, rating, modified) select id, title, rating, modified from content.film where id = 4").await;
    for level in [Level::Count, Level::Hash, Level::Rows] {
        let compared = stage.reconcile(id, level).await;
        assert_eq!((compared.verdict(), compared.figures().rejected), (Verdict::Equal, 1), "{level}");
    }
}

#[tokio::test]
async fn an_empty_mart_whose_rows_were_all_refused_is_not_equal() {
    let stage = Stage::with_films(3).await;
    stage.db.execute("alter table analytics.film add check (title is null)").await;
    let id = stage.pipeline(json!({"reject_limit": 5})).await;
    stage.succeed(id).await;
    stage.db.execute("create table analytics.keyless (id int primary key, title text)").await;
    let query = "select null::int as id, title from content.film";
    let without_key = stage
        .pipeline(json!({"name": "keyless", "reject_limit": 5, "source_query": query, "target_table": "analytics.keyless"}))
        .await;
    stage.succeed(without_key).await;
    for (pipeline, level) in [(id, Level::Count), (id, Level::Hash), (without_key, Level::Hash)] {
        let compared = stage.reconcile(pipeline, level).await;
        assert_eq!(compared.verdict(), Verdict::Differs, "{level}");
        assert!(compared.figures().rejected > 0);
    }
}

/// A unique constraint lets in any number of them, and no key names them.
#[tokio::test]
async fn a_mart_with_rows_that_have_no_key_is_called_equal_at_no_level() {
    let stage = Stage::with_films(20).await;
    stage
        .db
        .execute(
            "alter table analytics.film drop constraint film_pkey, alter id drop not null, add unique (id)",
        )
        .await;
    let id = stage.full(10).await;
    stage.succeed(id).await;
    assert_eq!(stage.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
    stage
        .db
        .execute("insert into analytics.film (id, title) values (null, 'Nobody''s'), (null, 'Nobody''s')")
        .await;
    for level in [Level::Count, Level::Hash, Level::Rows] {
        let reconcile = stage.request_reconcile(id, level).await;
        stage.work_off(stage.settings("tester")).await;
        let record = stage.store.reconcile(reconcile).await.unwrap().unwrap();
        assert_eq!(
            (record.status, record.error_code.as_deref()),
            (ReconcileStatus::Failed, Some("reconcile.keyless"))
        );
        let error = record.error.unwrap();
        assert!(
            error.contains("2 rows") && error.contains("`delete from analytics.film where \"id\" is null`"),
            "{error}"
        );
    }
    assert_eq!(stage.succeed(id).await.rows_deleted, 2);
    assert_eq!(stage.reconcile(id, Level::Rows).await.verdict(), Verdict::Equal);
}

#[tokio::test]
async fn what_cannot_be_compared_fails_with_what_to_do() {
    let stage = Stage::with_films(3).await;
    let id = stage
        .pipeline(json!({"source_query": "select id, title, 1 as nobody_knows from content.film"}))
        .await;
    let reconcile = stage.request_reconcile(id, Level::Hash).await;
    stage.work_off(stage.settings("tester")).await;
    let record = stage.store.reconcile(reconcile).await.unwrap().unwrap();
    assert_eq!(record.status, ReconcileStatus::Failed);
    assert_eq!(record.error_code.as_deref(), Some("sink.extra_column"));
    assert!(record.error.unwrap().contains("nobody_knows"));
}

#[tokio::test]
async fn a_repair_reads_exactly_the_keys_that_differ_and_is_proved_when_it_has_ended() {
    let stage = Stage::with_films(1000).await;
    let id = stage.full(100).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "delete from analytics.film where id = 7; insert into analytics.film (id) values (-3);
             update analytics.film set title = null where id = 500",
        )
        .await;
    let found = stage.reconcile(id, Level::Rows).await;
    let plan = stage.store.repair_plan(found.record.id).await.unwrap();
    assert_eq!((plan.keys.len(), plan.upserts, plan.deletes), (3, 2, 1));
    let run = stage.request_keys(id, json!(plan.keys)).await;
    let proof = stage.store.request_proof(&found.record, run, None).await.unwrap();
    stage.work_off(stage.settings("tester")).await;
    let run = stage.run_record(run).await;
    assert_eq!((run.rows_read, run.rows_written, run.rows_deleted), (2, 2, 1));
    let proof = stage.compared(proof).await;
    assert_eq!((proof.verdict(), proof.figures().rows_read), (Verdict::Equal, 6));
    assert_eq!(stage.reconcile(id, Level::Hash).await.verdict(), Verdict::Equal);
}

#[tokio::test]
async fn a_repair_that_was_undone_is_told_by_its_proof() {
    let stage = Stage::with_films(10).await;
    let id = stage.full(100).await;
    stage.succeed(id).await;
    stage.db.execute("delete from analytics.film where id = 7").await;
    let found = stage.reconcile(id, Level::Rows).await;
    let run = stage.request_keys(id, json!([["3"]])).await;
    let proof = stage.store.request_proof(&found.record, run, None).await.unwrap();
    stage.work_off(stage.settings("tester")).await;
    let proof = stage.compared(proof).await;
    assert_eq!(
        (proof.verdict(), proof.keys(DifferenceKind::Missing)),
        (Verdict::Differs, vec!["7".to_owned()])
    );
}
