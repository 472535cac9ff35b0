//! Claims, leases and the fence in `etl.commit_batch`.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use vitrina_core::{Event, OnActive, RunStatus, Status};
use vitrina_store::{Error, RunRequest, Suspects, Terms, Wakeup};

use crate::stage::{LEASE, Stage, pipeline, runner, ten_rows};

#[tokio::test]
async fn many_claimers_never_get_the_same_pipeline() {
    let stage = Stage::new().await;
    for number in 0..30 {
        let id = stage.create(&format!("p{number}")).await;
        stage.request(id).await;
    }
    let mut claimers = JoinSet::new();
    for number in 0..6 {
        let store = stage.store.clone();
        claimers.spawn(async move {
            let mut claimed = Vec::new();
            while let Some(claim) =
                store.claim(&runner(&format!("r{number}")), &Terms::idle(LEASE)).await.unwrap()
            {
                claimed.push(claim.lease.pipeline);
            }
            claimed
        });
    }
    let claimed = claimers.join_all().await.concat();
    assert_eq!(claimed.len(), 30);
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 30);
}

#[tokio::test]
async fn a_runner_claims_only_what_it_can_run() {
    let stage = Stage::new().await;
    let mut elsewhere = pipeline("elsewhere");
    elsewhere.source_connection = "warehouse".into();
    let id = stage.store.create_pipeline(&elsewhere).await.unwrap().config.id;
    stage.request(id).await;
    assert!(stage.claim().await.is_none());
    let mut able = runner("able");
    able.connections.push("warehouse".into());
    assert!(stage.store.claim(&able, &Terms::idle(LEASE)).await.unwrap().is_some());
}

#[tokio::test]
async fn an_expired_lease_is_taken_over_within_the_same_run_and_the_old_owner_can_do_no_harm() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let old = stage.claim().await.unwrap();
    assert!(stage.claim().await.is_none(), "a live lease is not taken over");
    stage.expire_leases().await;
    let new = stage.claim().await.unwrap();
    assert!(new.takeover && new.run == old.run && new.lease.token > old.lease.token);

    assert_eq!(stage.commit(&old.lease, 0, &ten_rows()).await, Err("VT001".into()));
    assert!(matches!(stage.store.finish(&old.lease).await, Err(Error::LeaseLost)));
    assert!(matches!(stage.store.renew(&old.lease).await, Err(Error::LeaseLost)));
    stage.commit(&new.lease, 0, &ten_rows()).await.unwrap();

    let attempts = stage.store.attempts(new.run).await.unwrap();
    let errors: Vec<_> = attempts.iter().map(|attempt| attempt.error_code.as_deref()).collect();
    assert_eq!(errors, [Some("lease.expired"), None]);
    assert_eq!(stage.status(id).await, Status::Running);
}

/// The claim has seen the run that ends, and locks the pipeline when the next one is open already.
#[tokio::test]
async fn a_claim_that_meets_a_run_opened_meanwhile_leaves_it_to_the_next_claim() {
    let stage = Stage::new().await;
    let ended = stage.begin(stage.create("film_dim").await).await;
    stage.store.request_run(ended.lease.pipeline, OnActive::After, &RunRequest::default()).await.unwrap();
    stage.expire_leases().await;
    let finish = async { stage.store.finish(&ended.lease).await.unwrap() };
    assert!(Box::pin(stage.claim_across(finish)).await.is_none());
    let claim = stage.claim().await.expect("what was not claimed can be claimed");
    assert_ne!(claim.run, ended.run);
    assert_eq!(stage.store.attempts(claim.run).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_claim_that_meets_a_new_attempt_of_a_late_owner_leaves_the_pipeline_to_it() {
    let stage = Stage::new().await;
    let late = stage.begin(stage.create("film_dim").await).await;
    stage.expire_leases().await;
    let retry = async {
        stage.store.retry(&late.lease, "tester", late.run, "test.fault", "it broke").await.unwrap();
    };
    assert!(Box::pin(stage.claim_across(retry)).await.is_none());
    let attempts = stage.store.attempts(late.run).await.unwrap();
    let ended: Vec<bool> = attempts.iter().map(|attempt| attempt.ended_at.is_some()).collect();
    assert_eq!(ended, [true, false]);
}

#[tokio::test]
async fn a_lease_far_in_the_future_is_taken_over_too() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    stage.claim().await.unwrap();
    stage.db.execute("update etl.etl_pipelines set lease_until = now() + interval '1 hour'").await;
    assert!(
        stage.claim().await.is_some_and(|claim| claim.takeover),
        "a clock that jumped back must not block a pipeline"
    );
}

#[tokio::test]
async fn a_disabled_pipeline_whose_runner_died_still_becomes_paused() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    stage.claim().await.unwrap();
    stage.store.request_change(id, Event::Disable).await.unwrap();
    stage.expire_leases().await;
    let claim = stage.claim().await.unwrap();
    assert!(claim.interrupted);
    stage.store.interrupt(&claim.lease).await.unwrap();
    assert_eq!(stage.status(id).await, Status::Paused);
}

#[tokio::test]
async fn a_committed_batch_moves_checkpoint_figures_and_rejects_together() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let claim = stage.claim().await.unwrap();
    stage.commit(&claim.lease, 0, &ten_rows()).await.unwrap();
    let run = stage.store.run(claim.run).await.unwrap().unwrap();
    assert_eq!((run.rows_read, run.rows_written, run.rows_unchanged, run.rows_deleted), (10, 7, 2, 1));
    assert_eq!((run.rows_rejected, run.batches, run.status), (1, 1, RunStatus::Running));
    let state = stage.store.state(id).await.unwrap();
    assert_eq!((state.version, state.last_processed_key.as_deref()), (1, Some("9")));
    assert_eq!(stage.db.value::<i64>("select count(*) from etl.etl_rejects").await, 1);
    assert_eq!(stage.db.value::<i64>("select count(*) from etl.etl_batches").await, 1);
}

#[tokio::test]
async fn a_checkpoint_that_someone_else_moved_is_not_overwritten() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let claim = stage.claim().await.unwrap();
    stage.commit(&claim.lease, 0, &ten_rows()).await.unwrap();
    assert_eq!(stage.commit(&claim.lease, 0, &ten_rows()).await, Err("VT002".into()));
    assert_eq!(stage.store.state(id).await.unwrap().version, 1);
}

#[tokio::test]
async fn a_released_pipeline_keeps_its_run_and_waits_its_time() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let claim = stage.claim().await.unwrap();
    stage
        .store
        .release(&claim.lease, "source.connection_lost", "gone", Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(stage.status(id).await, Status::RunRequested);
    assert!(stage.claim().await.is_none(), "not before retry_at");
    stage.db.execute("update etl.etl_pipelines set retry_at = now()").await;
    let again = stage.claim().await.unwrap();
    assert!(again.run == claim.run && !again.takeover);
    assert_eq!(stage.store.releases(id).await.unwrap(), 1);
    assert_eq!(stage.store.attempts(claim.run).await.unwrap().len(), 2);
}

#[tokio::test]
async fn tokens_do_not_go_back_in_a_restored_meta_store() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let seconds: i64 = stage.db.value("select extract(epoch from now())::bigint - 1735689600").await;
    assert!(stage.claim().await.unwrap().lease.token.0 >= seconds);
}

#[tokio::test]
async fn a_request_wakes_whoever_listens() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let mut wakeups = stage.store.wakeups().await.unwrap();
    stage.request(id).await;
    assert_eq!(wakeups.next().await, Wakeup::Requested);
}

#[tokio::test]
async fn an_old_owner_cannot_write_attempts_into_the_new_owners_run() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let old = stage.claim().await.unwrap();
    stage.expire_leases().await;
    let new = stage.claim().await.unwrap();
    let refused = stage.store.retry(&old.lease, "zombie", old.run, "sink.busy", "late").await;
    assert!(matches!(refused, Err(Error::LeaseLost)));
    assert!(stage.store.attempts(new.run).await.unwrap().last().unwrap().ended_at.is_none());
}

#[tokio::test]
async fn a_run_that_this_release_cannot_read_fails_and_does_not_block_the_queue() {
    let stage = Stage::new().await;
    let (broken, good) = (stage.create("broken").await, stage.create("good").await);
    stage.request(broken).await;
    stage.request(good).await;
    stage
        .db
        .execute(&format!("update etl.etl_runs set snapshot = '{{}}' where pipeline_id = '{broken}'"))
        .await;
    assert_eq!(stage.claim().await.unwrap().lease.pipeline, good);
    assert_eq!(stage.status(broken).await, Status::Failed);
}

/// Claims it again after its lease has expired, as a runner with or without other work.
async fn take_over(stage: &Stage, idle: bool) -> Option<vitrina_store::Claim> {
    stage.expire_leases().await;
    let terms = if idle { Terms::idle(LEASE) } else { Terms::busy(LEASE) };
    stage.store.claim(&runner("tester"), &terms).await.unwrap()
}

#[tokio::test]
async fn a_pipeline_whose_runners_fall_silent_is_given_to_idle_ones_and_fails_after_five_of_them() {
    let stage = Stage::new().await;
    let id = stage.create("killer").await;
    let first = stage.begin(id).await;
    let second = take_over(&stage, false).await.expect("one stall proves nothing");
    assert!(!first.is_suspect() && !second.is_suspect());
    assert!(take_over(&stage, false).await.is_none(), "a runner with other work leaves it alone");
    for _ in 0..5 {
        assert!(take_over(&stage, true).await.expect("an idle runner takes it").is_suspect());
    }
    assert!(take_over(&stage, true).await.is_none());
    let run = stage.run(first.run).await;
    assert_eq!((stage.status(id).await, run.error_code.as_deref()), (Status::Failed, Some("run.stalled")));
    assert!(!stage.begin(id).await.is_suspect(), "asked for anew, it is trusted anew");
}

#[tokio::test]
async fn a_committed_batch_clears_a_pipeline_of_suspicion() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.begin(id).await;
    take_over(&stage, true).await.unwrap();
    let suspect = take_over(&stage, true).await.unwrap();
    assert!(suspect.is_suspect());
    stage.commit(&suspect.lease, 0, &ten_rows()).await.unwrap();
    assert!(take_over(&stage, false).await.is_some_and(|claim| claim.stalls == 1));
}

#[tokio::test]
async fn a_suspect_that_is_only_to_stop_needs_no_idle_runner() {
    for (event, status) in [(Event::Pause, Status::Paused), (Event::Cancel, Status::Idle)] {
        let stage = Stage::new().await;
        let id = stage.create("film_dim").await;
        stage.begin(id).await;
        stage.db.execute("update etl.etl_pipelines set stalls = 7").await;
        stage.store.request_change(id, event).await.unwrap();
        let claim = take_over(&stage, false).await.expect("it is only to stop");
        stage.store.interrupt(&claim.lease).await.unwrap();
        assert_eq!(stage.status(id).await, status);
    }
}

#[tokio::test]
async fn silent_owners_are_those_whose_pipelines_nobody_has_claimed() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    assert!(stage.store.silent(&runner("tester")).await.unwrap().is_empty());
    stage.expire_leases().await;
    let silent = stage.store.silent(&runner("tester")).await.unwrap();
    assert_eq!((silent[0].pipeline, silent[0].token), (id, claim.lease.token));
    assert_eq!(silent[0].connections, ["cinema", "marts"]);
    stage.claim().await.unwrap();
    assert!(stage.store.silent(&runner("tester")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_runner_is_told_to_drain_until_one_of_its_name_starts_anew() {
    let stage = Stage::new().await;
    assert_eq!(stage.store.still_here("tester", 0, 0).await.unwrap(), None, "nobody knows it");
    stage.store.announce(&runner("tester"), 4).await.unwrap();
    assert_eq!(stage.store.still_here("tester", 2, 0).await.unwrap(), Some(false));
    let mut wakeups = stage.store.wakeups().await.unwrap();
    let asked = stage.store.request_drain("tester").await.unwrap().unwrap();
    assert_eq!((asked.status.as_str(), asked.active_runs), ("DRAINING", 2));
    assert_eq!(wakeups.next().await, Wakeup::Round);
    assert_eq!(stage.store.still_here("tester", 2, 0).await.unwrap(), Some(true));
    stage.store.farewell("tester").await.unwrap();
    let stopped = stage.store.request_drain("tester").await.unwrap().unwrap();
    assert_eq!(stopped.status, "STOPPED", "one that has stopped is left as it is");
    stage.store.announce(&runner("tester"), 4).await.unwrap();
    assert_eq!(stage.store.still_here("tester", 0, 0).await.unwrap(), Some(false));
}

#[tokio::test]
async fn wakeups_say_what_to_look_at() {
    let stage = Stage::new().await;
    let mut wakeups = stage.store.wakeups().await.unwrap();
    let id = stage.create_scheduled("film_dim", "5m").await;
    assert_eq!(wakeups.next().await, Wakeup::Round);
    stage.begin(id).await;
    assert_eq!((wakeups.next().await, wakeups.next().await), (Wakeup::Requested, Wakeup::Changed));
    stage.store.request_change(id, Event::Cancel).await.unwrap();
    assert_eq!(wakeups.next().await, Wakeup::Interrupted(id));
    stage.store.request_change(id, Event::Pause).await.unwrap();
    assert_eq!(wakeups.next().await, Wakeup::Interrupted(id));
}

#[tokio::test]
async fn a_runner_takes_over_neither_what_it_executes_itself_nor_anything_while_owners_may_come_back() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.begin(id).await;
    stage.expire_leases().await;
    let own = Terms { besides: vec![id.0], ..Terms::idle(LEASE) };
    assert!(stage.store.claim(&runner("tester"), &own).await.unwrap().is_none());
    let patient = Terms { takeovers: false, ..Terms::idle(LEASE) };
    assert!(stage.store.claim(&runner("tester"), &patient).await.unwrap().is_none());
    let other = stage.create("other").await;
    stage.request(other).await;
    let claim = stage.store.claim(&runner("tester"), &patient).await.unwrap();
    assert_eq!(claim.expect("new work is no takeover").lease.pipeline, other);
    assert!(stage.claim().await.is_some_and(|claim| claim.takeover));
}

#[tokio::test]
async fn a_suspect_that_waits_is_told_of_and_can_be_asked_for() {
    let stage = Stage::new().await;
    let (suspect, other) = (stage.create("suspect").await, stage.create("other").await);
    stage.begin(other).await;
    stage.request(suspect).await;
    assert_eq!(stage.store.suspect_waits(&runner("tester")).await.unwrap(), None);
    stage.db.execute("update etl.etl_pipelines set stalls = 2, requested_at = now() - interval '1 hour' where name = 'suspect'").await;
    let waits = stage.store.suspect_waits(&runner("tester")).await.unwrap().expect("it waits");
    assert!(waits >= Duration::from_secs(3600));
    let third = stage.create("third").await;
    stage.request(third).await;
    let only = Terms { suspects: Suspects::Only, ..Terms::idle(LEASE) };
    let claim = stage.store.claim(&runner("tester"), &only).await.unwrap();
    assert_eq!(claim.expect("the suspect").lease.pipeline, suspect);
    assert!(stage.store.claim(&runner("tester"), &only).await.unwrap().is_none(), "nothing else");
    assert_eq!(stage.store.suspect_waits(&runner("tester")).await.unwrap(), None, "it is executed");
}

#[tokio::test]
async fn a_runner_that_stops_late_does_not_speak_for_another_of_its_name() {
    let stage = Stage::new().await;
    stage.store.announce(&runner("tester"), 4).await.unwrap();
    stage.db.execute("update etl.etl_runners set pid = 1").await;
    stage.store.farewell("tester").await.unwrap();
    assert_eq!(stage.store.runners().await.unwrap()[0].status, "READY");
    stage.db.execute("update etl.etl_runners set status = 'STOPPED'").await;
    stage.store.still_here("tester", 0, 0).await.unwrap();
    assert_eq!(stage.store.runners().await.unwrap()[0].status, "READY", "whoever works is there");
}
