//! The meta-store as sinks see it that commit elsewhere: all of it under the lease.

use serde_json::json;
use vitrina_core::{Checkpoint, Entry, Error, Event, Ledger, Outcome, Position, Remedy, State};
use vitrina_store::{Claim, RejectChoice};

use crate::stage::{Stage, refusing, reject, ten_rows};

fn checkpoint(bound: &str) -> Checkpoint {
    let position = Position { done: json!({"bound": [bound]}), ..Position::default() };
    Checkpoint { position, config_hash: "c0ffee".into(), ..Checkpoint::default() }
}

async fn enter(
    stage: &Stage,
    claim: &Claim,
    from_version: i64,
    outcome: &Outcome,
) -> Result<(i64, bool), Error> {
    let (lease, checkpoint) = (&claim.lease, &checkpoint("5"));
    let entry = Entry { lease, from_version, checkpoint, outcome };
    stage.store.commit(&entry).await.map(|committed| (committed.version, committed.interrupted))
}

/// A claim that another runner has taken over.
async fn lost(stage: &Stage, old: Claim) -> Claim {
    stage.expire_leases().await;
    stage.claim().await.expect("a takeover");
    old
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>, code: &str, remedy: Remedy) {
    let error = outcome.unwrap_err();
    assert_eq!((error.code, error.remedy), (code, remedy), "{error}");
}

#[tokio::test]
async fn an_entered_batch_moves_checkpoint_figures_and_rejects_and_hears_of_a_pause() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    assert_eq!(enter(&stage, &claim, 0, &ten_rows()).await.unwrap(), (1, false));
    let state = stage.store.state(id).await.unwrap();
    assert_eq!((state.checkpoint, state.last_processed_key.as_deref()), (checkpoint("5"), Some("5")));
    assert_eq!(stage.run(claim.run).await.rows_read, 10);
    assert_eq!(stage.store.open_rejects(&claim.lease).await.unwrap().len(), 1);
    stage.store.request_change(id, Event::Pause).await.unwrap();
    assert_eq!(enter(&stage, &claim, 1, &Outcome::default()).await.unwrap(), (2, true));
}

#[tokio::test]
async fn what_cannot_be_entered_says_what_happens_next() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    refused(enter(&stage, &claim, 7, &ten_rows()).await, "checkpoint.moved", Remedy::StandDown);
    let many = refusing(0, [reject("7", "row.bad")]);
    refused(enter(&stage, &claim, 0, &many).await, "rejects.limit", Remedy::FixConfiguration);
    let old = lost(&stage, claim).await;
    refused(enter(&stage, &old, 0, &ten_rows()).await, "lease.lost", Remedy::StandDown);
    assert_eq!(stage.store.state(id).await.unwrap().version, 0);
}

#[tokio::test]
async fn a_meta_store_that_is_gone_gives_the_pipeline_back() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    stage.store.close().await;
    refused(enter(&stage, &claim, 0, &ten_rows()).await, "meta_store.connection_lost", Remedy::Release);
}

#[tokio::test]
async fn the_state_that_a_target_vouches_for_is_adopted_by_the_owner_only() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    let vouched = State { checkpoint: checkpoint("8"), version: 12 };
    stage.store.adopt(&claim.lease, &vouched).await.unwrap();
    assert_eq!(enter(&stage, &claim, 12, &ten_rows()).await.unwrap().0, 13);
    let old = lost(&stage, claim).await;
    refused(stage.store.adopt(&old.lease, &vouched).await, "lease.lost", Remedy::StandDown);
    assert_eq!(stage.store.state(id).await.unwrap().version, 13);
}

#[tokio::test]
async fn rejects_of_a_batch_that_may_not_commit_are_kept_without_it() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    enter(&stage, &claim, 0, &refusing(5, [reject("1", "row.bad")])).await.unwrap();
    let batch = Outcome {
        closed: vec![json!(["1"])],
        close_others: true,
        ..refusing(0, [reject("2", "row.bad"), reject("3", "row.bad")])
    };
    assert_eq!(stage.store.keep_rejects(&claim.lease, &batch).await.unwrap(), 3, "it closes none");
    assert_eq!(stage.store.state(id).await.unwrap().version, 1, "the checkpoint stays");
    stage.store.acknowledge_rejects(id, &RejectChoice::default()).await.unwrap();
    assert_eq!(stage.store.keep_rejects(&claim.lease, &batch).await.unwrap(), 0);
    let old = lost(&stage, claim).await;
    let more = refusing(0, [reject("4", "row.bad")]);
    refused(stage.store.keep_rejects(&old.lease, &more).await, "lease.lost", Remedy::StandDown);
    assert_eq!(stage.db.value::<i64>("select count(*) from etl.etl_rejects").await, 3);
}

#[tokio::test]
async fn open_rejects_tell_which_of_them_are_acknowledged() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    let batch = refusing(5, [reject("1", "row.bad"), reject("2", "row.odd")]);
    enter(&stage, &claim, 0, &batch).await.unwrap();
    let odd = RejectChoice { code: Some("row.odd".into()), keys: None };
    stage.store.acknowledge_rejects(id, &odd).await.unwrap();
    let mut open: Vec<_> = stage.store.open_rejects(&claim.lease).await.unwrap();
    open.sort_by_key(|reject| reject.key.to_string());
    let open: Vec<_> = open.into_iter().map(|reject| (reject.key, reject.acknowledged)).collect();
    assert_eq!(open, [(json!(["1"]), false), (json!(["2"]), true)]);
}
