//! Rejects: kept and closed with the batch that meets them, counted against a limit, and what a person
//! does about them.

use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;
use vitrina_core::{Outcome, PipelineId};
use vitrina_store::{Claim, RejectChoice, RejectCursor};

use crate::stage::{Stage, refusing, reject};

/// `<key> <code>` of all rejects, newest first.
async fn kept(stage: &Stage, id: PipelineId) -> Vec<String> {
    let rejects = stage.store.rejects(id, &RejectChoice::default(), None, 100).await.unwrap();
    rejects.iter().map(|reject| format!("{} {}", reject.key[0].as_str().unwrap(), reject.code)).collect()
}

/// Commits a batch that refuses these keys, each with its code.
async fn refuse(stage: &Stage, claim: &Claim, rejects: &[(&str, &str)]) {
    let version = stage.store.state(claim.lease.pipeline).await.unwrap().version;
    let rejects = rejects.iter().map(|(key, code)| reject(key, code));
    stage.commit(&claim.lease, version, &refusing(100, rejects)).await.unwrap();
}

fn of_code(code: &str) -> RejectChoice {
    RejectChoice { code: Some(code.to_owned()), keys: None }
}

/// The reject of one key, as its hash names it.
async fn of_key(stage: &Stage, id: PipelineId, key: &str) -> RejectChoice {
    let rejects = stage.store.rejects(id, &RejectChoice::default(), None, 100).await.unwrap();
    let found = rejects.into_iter().find(|reject| reject.key == json!([key])).unwrap();
    RejectChoice { code: None, keys: Some(vec![found.key_hash]) }
}

#[tokio::test]
async fn a_reject_is_kept_once_a_key_and_renewed_when_the_key_is_refused_again() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let first = stage.begin(id).await;
    refuse(&stage, &first, &[("7", "row.bad"), ("8", "row.bad"), ("8", "row.bad")]).await;
    let old = stage.store.rejects(id, &RejectChoice::default(), None, 100).await.unwrap();
    assert_eq!(old.len(), 2, "a batch may refuse a key twice");
    stage.store.finish(&first.lease).await.unwrap();

    let second = stage.begin(id).await;
    refuse(&stage, &second, &[("7", "row.worse")]).await;
    assert_eq!(kept(&stage, id).await, ["7 row.worse", "8 row.bad"]);
    let chosen = of_key(&stage, id, "7").await;
    let renewed = stage.store.rejects(id, &chosen, None, 100).await.unwrap().remove(0);
    assert_eq!((renewed.run_id, renewed.row), (second.run, json!({"id": "7"})));
    assert_eq!(renewed.message, "row.worse: no place for it");
    assert!(old.iter().all(|old| old.run_id == first.run && old.rejected_at < renewed.rejected_at));
}

#[tokio::test]
async fn a_reject_closes_when_its_key_succeeds_or_leaves_the_source() {
    let stage = Stage::new().await;
    let (id, neighbour) = (stage.create("film_dim").await, stage.create("neighbour").await);
    let other = stage.begin(neighbour).await;
    refuse(&stage, &other, &[("7", "row.bad")]).await;
    let claim = stage.begin(id).await;
    refuse(&stage, &claim, &[("7", "row.bad"), ("8", "row.bad")]).await;
    let outcome = Outcome { closed: vec![json!(["7"]), json!(["99"])], ..Outcome::default() };
    stage.commit(&claim.lease, 1, &outcome).await.unwrap();
    assert_eq!(kept(&stage, id).await, ["8 row.bad"]);
    assert_eq!(kept(&stage, neighbour).await, ["7 row.bad"]);
}

#[tokio::test]
async fn a_finished_load_closes_the_rejects_it_did_not_meet() {
    let stage = Stage::new().await;
    let (id, neighbour) = (stage.create("film_dim").await, stage.create("neighbour").await);
    let other = stage.begin(neighbour).await;
    refuse(&stage, &other, &[("7", "row.bad")]).await;
    let claim = stage.begin(id).await;
    refuse(&stage, &claim, &[("7", "row.bad"), ("8", "row.bad"), ("9", "row.bad")]).await;
    let load = Some(Uuid::new_v4());
    let earlier = Outcome { load, ..refusing(100, [reject("7", "row.bad")]) };
    stage.commit(&claim.lease, 1, &earlier).await.unwrap();
    assert_eq!(kept(&stage, id).await.len(), 3, "the load has not seen every row yet");
    let last = Outcome { load, close_others: true, ..refusing(100, [reject("8", "row.bad")]) };
    stage.commit(&claim.lease, 2, &last).await.unwrap();
    assert_eq!(kept(&stage, id).await, ["8 row.bad", "7 row.bad"]);
    assert_eq!(kept(&stage, neighbour).await, ["7 row.bad"]);
}

#[tokio::test]
async fn more_rejects_than_the_limit_refuse_the_batch_and_leave_nothing_of_it() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    stage.commit(&claim.lease, 0, &refusing(1, [reject("7", "row.bad")])).await.unwrap();
    let beyond = Outcome { closed: vec![json!(["7"])], ..refusing(0, [reject("8", "row.bad")]) };
    assert_eq!(stage.commit(&claim.lease, 1, &beyond).await, Err("VT004".into()));
    assert_eq!(kept(&stage, id).await, ["7 row.bad"]);
    assert_eq!((stage.store.state(id).await.unwrap().version, stage.run(claim.run).await.batches), (1, 1));
    assert_eq!(stage.db.value::<i64>("select count(*) from etl.etl_batches").await, 1);
}

#[tokio::test]
async fn the_limit_holds_over_all_batches_of_a_run_and_counts_no_other_run() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let first = stage.begin(id).await;
    stage.commit(&first.lease, 0, &refusing(1, [reject("1", "row.bad")])).await.unwrap();
    let again = stage.commit(&first.lease, 1, &refusing(1, [reject("1", "row.bad")])).await;
    assert_eq!(again, Ok(()), "the same key is the same reject");
    let second = stage.commit(&first.lease, 2, &refusing(1, [reject("2", "row.bad")])).await;
    assert_eq!(second, Err("VT004".into()));
    stage.store.finish(&first.lease).await.unwrap();
    let next = stage.begin(id).await;
    stage.commit(&next.lease, 2, &refusing(1, [reject("2", "row.bad")])).await.unwrap();
    assert_eq!(kept(&stage, id).await.len(), 2);
}

#[tokio::test]
async fn an_acknowledged_reject_that_comes_again_does_not_count() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let first = stage.begin(id).await;
    refuse(&stage, &first, &[("7", "row.bad")]).await;
    stage.store.finish(&first.lease).await.unwrap();
    let next = stage.begin(id).await;
    let batch = refusing(0, [reject("7", "row.bad")]);
    assert_eq!(stage.commit(&next.lease, 1, &batch).await, Err("VT004".into()));
    assert_eq!(stage.store.acknowledge_rejects(id, &RejectChoice::default()).await.unwrap(), 1);
    stage.commit(&next.lease, 1, &batch).await.unwrap();
    let reject = stage.store.rejects(id, &RejectChoice::default(), None, 100).await.unwrap().remove(0);
    assert!(reject.run_id == next.run && reject.acknowledged_at.is_some(), "it stays acknowledged");
}

#[tokio::test]
async fn an_acknowledgement_keeps_the_time_it_was_first_made() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    refuse(&stage, &claim, &[("7", "row.bad")]).await;
    let times = async || {
        stage.store.acknowledge_rejects(id, &RejectChoice::default()).await.unwrap();
        stage.store.rejects(id, &RejectChoice::default(), None, 1).await.unwrap().remove(0).acknowledged_at
    };
    assert_eq!(times().await, times().await);
}

#[tokio::test]
async fn rejects_are_listed_newest_first_in_pages_that_hold_when_a_reject_closes() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    for key in ["1", "2", "3", "4", "5"] {
        refuse(&stage, &claim, &[(key, if key == "4" { "row.odd" } else { "row.bad" })]).await;
    }
    let page = async |choice: &RejectChoice, after: Option<&RejectCursor>| {
        let page = stage.store.rejects(id, choice, after, 2).await.unwrap();
        let keys: Vec<_> = page.iter().map(|reject| reject.key[0].as_str().unwrap().to_owned()).collect();
        (keys.join(" "), page.last().map(RejectCursor::from))
    };
    let all = RejectChoice::default();
    let (first, cursor) = page(&all, None).await;
    assert_eq!(first, "5 4");
    let closed = Outcome { closed: vec![json!(["4"])], ..Outcome::default() };
    stage.commit(&claim.lease, 5, &closed).await.unwrap();
    let (second, cursor) = page(&all, cursor.as_ref()).await;
    assert_eq!(second, "3 2");
    assert_eq!(page(&all, cursor.as_ref()).await.0, "1");
    assert_eq!(page(&of_code("row.odd"), None).await, (String::new(), None));
}

#[tokio::test]
async fn rejects_are_grouped_by_reason_the_most_frequent_first() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    refuse(&stage, &claim, &[("1", "row.odd"), ("2", "row.bad")]).await;
    refuse(&stage, &claim, &[("3", "row.bad")]).await;
    stage.store.acknowledge_rejects(id, &of_key(&stage, id, "3").await).await.unwrap();
    let groups = stage.store.reject_groups(id).await.unwrap();
    let shown: Vec<_> =
        groups.iter().map(|group| (group.code.as_str(), group.rejects, group.acknowledged)).collect();
    assert_eq!(shown, [("row.bad", 2, 1), ("row.odd", 1, 0)]);
    assert!(groups[0].first_rejected_at < groups[0].last_rejected_at);
}

#[tokio::test]
async fn acknowledging_and_discarding_touch_what_is_chosen_and_no_more() {
    let stage = Stage::new().await;
    let (id, neighbour) = (stage.create("film_dim").await, stage.create("neighbour").await);
    let other = stage.begin(neighbour).await;
    refuse(&stage, &other, &[("1", "row.odd"), ("2", "row.bad")]).await;
    let claim = stage.begin(id).await;
    refuse(&stage, &claim, &[("1", "row.odd")]).await;
    refuse(&stage, &claim, &[("2", "row.bad"), ("3", "row.bad")]).await;
    let store = &stage.store;
    let both = RejectChoice { code: Some("row.odd".into()), ..of_key(&stage, id, "2").await };
    for choice in [of_code("row.none"), both] {
        assert_eq!(store.acknowledge_rejects(id, &choice).await.unwrap(), 0, "{choice:?}");
        assert_eq!(store.discard_rejects(id, &choice).await.unwrap(), 0, "{choice:?}");
    }
    assert_eq!(store.acknowledge_rejects(id, &of_code("row.odd")).await.unwrap(), 1);
    assert_eq!(store.discard_rejects(id, &of_key(&stage, id, "2").await).await.unwrap(), 1);
    let keys = store.reject_keys(id, &RejectChoice::default(), 100).await.unwrap();
    assert_eq!(keys, [json!(["1"]), json!(["3"])], "oldest first");
    assert_eq!(store.reject_keys(id, &RejectChoice::default(), 1).await.unwrap(), [json!(["1"])]);
    assert_eq!(store.discard_rejects(id, &RejectChoice::default()).await.unwrap(), 2);
    assert_eq!(kept(&stage, neighbour).await.len(), 2);
}

/// Two orders of locks would deadlock: here the batch holds the pipeline and goes for the rejects last.
#[tokio::test]
async fn whoever_changes_rejects_waits_for_the_batch_that_is_committing() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    refuse(&stage, &claim, &[("1", "row.bad"), ("2", "row.bad")]).await;
    let batch = stage.db.client().await;
    batch.batch_execute("begin; select from etl.etl_pipelines for no key update").await.unwrap();
    let mut person = JoinSet::new();
    let store = stage.store.clone();
    person.spawn(async move { store.acknowledge_rejects(id, &RejectChoice::default()).await });
    while !stage.db.value::<bool>("select exists (select from pg_locks where not granted)").await {}
    batch
        .batch_execute("delete from etl.etl_rejects where key = '[\"1\"]'; commit")
        .await
        .expect("nobody holds a reject");
    assert_eq!(person.join_next().await.unwrap().unwrap().unwrap(), 1);
}
