//! The source is lost, or the runner dies, at the first request to it, the second, and so on, until a run passes untouched.

use tokio::task::JoinSet;
use vitrina_core::{Mode, RunId, RunStatus, Status};
use vitrina_runner::Runner;
use vitrina_testbed::{Fault, Gate};

use super::{Feed, FeedPlay};

async fn a_load_survives_a_source_that_is_lost_at_any_request<F: Feed>(play: FeedPlay<F>) {
    survives(play, Mode::Full, 1).await;
}

async fn an_increment_survives_a_source_that_is_lost_at_any_request<F: Feed>(play: FeedPlay<F>) {
    survives(play, Mode::Incremental, 2).await;
}

/// By turns its runner lives on, and another takes over; meanwhile the source goes on.
async fn survives<F: Feed>(play: FeedPlay<F>, mode: Mode, first: usize) {
    play.put(1..=8, "Film").await;
    play.equal_after(Mode::Full).await;
    if let Err(reason) = F::ABILITIES.has_requests {
        println!("not played: {reason}");
        return;
    }
    for (turn, nth) in (first..).step_by(F::ABILITIES.every).enumerate() {
        play.put([2, 5, 6, 7, 8], &format!("New {nth}")).await;
        let run = play.request(mode).await;
        match turn % 2 {
            1 => die_behind(&play, run, nth).await,
            _ => lose_reply(&play, nth).await,
        }
        let run = play.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "request {nth}: {:?}", run.error);
        let was_met = play.feed.requests() >= nth;
        play.feed.play_at(usize::MAX, Fault::Pass);
        if turn % 4 == 0 || !was_met {
            play.succeed(Mode::Incremental).await;
            play.require_equal(&format!("request {nth}")).await;
        }
        if !was_met {
            return;
        }
    }
}

async fn lose_reply<F: Feed>(play: &FeedPlay<F>, nth: usize) {
    play.feed.play_at(nth, Fault::DropReply);
    for _ in 0..5 {
        play.work_off("tester").await;
        if play.stage.status(play.id).await != Status::RunRequested {
            return;
        }
        play.put([3], &format!("Meanwhile {nth}")).await;
        play.stage.db.execute("update etl.etl_pipelines set retry_at = null").await;
    }
    panic!("request {nth}: given back again and again");
}

async fn die_behind<F: Feed>(play: &FeedPlay<F>, run: RunId, nth: usize) {
    let gate = Gate::new();
    play.feed.play_at(nth, Fault::HoldReply(gate.clone()));
    let runner = Runner::new(play.settings("dying"), play.stage.store.clone());
    let mut dying = JoinSet::new();
    dying.spawn(async move { runner.work_off().await.unwrap() });
    tokio::select! {
        () = gate.arrived() => {}
        ended = dying.join_next() => return ended.unwrap().unwrap(),
    }
    dying.shutdown().await;
    play.put([3], &format!("Meanwhile {nth}")).await;
    play.stage.take_over(run, &play.settings("next")).await;
    gate.open();
}

of_every_feed!(
    a_load_survives_a_source_that_is_lost_at_any_request,
    an_increment_survives_a_source_that_is_lost_at_any_request,
);
