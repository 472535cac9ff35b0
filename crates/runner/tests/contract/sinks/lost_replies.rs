//! The connection to the target is lost behind a request that has arrived: at the first one, the second, and so on,
//! until a run passes untouched.

use serde_json::json;
use vitrina_core::{PipelineId, RunId, RunStatus, Status};
use vitrina_testbed::{Fault, Gate};

use crate::play::{Play, Work};
use crate::targets::Target;

async fn a_load_into_an_empty_target_survives_lost_replies<T: Target>(play: Play<T>) {
    survives(play, Work::Load, 1, true).await;
}

async fn a_load_into_a_filled_target_survives_lost_replies<T: Target>(play: Play<T>) {
    survives(play, Work::Load, 2, false).await;
}

async fn an_increment_survives_lost_replies<T: Target>(play: Play<T>) {
    survives(play, Work::Increment, 1, false).await;
}

async fn a_backfill_survives_lost_replies<T: Target>(play: Play<T>) {
    survives(play, Work::Backfill, 2, false).await;
}

/// By turns its runner lives on, and another takes over. A checkpoint that were ahead of its rows would show in the
/// increment behind.
async fn survives<T: Target>(play: Play<T>, work: Work, first: usize, empty: bool) {
    let id = play.loaded(10, json!({"delete_limit": 1.0})).await;
    for (turn, nth) in (first..).step_by(T::ABILITIES.every).enumerate() {
        if empty {
            play.target.empty(&play.stage).await;
        }
        play.change(&format!("title = 'New {nth}'"), "id in (2, 7)").await;
        play.change("title = case title when 'hidden' then 'Film 5' else 'hidden' end", "id = 5").await;
        let run = play.request(id, work).await;
        match turn % 2 {
            1 => die_behind(&play, run, nth).await,
            _ => lose_reply(&play, id, run, nth).await,
        }
        let run = play.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "request {nth}: {:?}", run.error);
        assert_eq!(play.titles().await, play.source_titles().await, "request {nth}");
        if T::ABILITIES.exact_figures.is_ok() && !empty && work == Work::Increment {
            assert_eq!(run.rows_written + run.rows_deleted, 3, "request {nth}");
        }
        if play.target.requests() < nth {
            return;
        }
        if turn % 4 == 0 {
            play.change(&format!("title = 'Behind {nth}'"), "id = 9").await;
            play.succeed(id, Work::Increment).await;
        }
    }
}

/// The runner gives the pipeline back, and is told to try again at once.
async fn lose_reply<T: Target>(play: &Play<T>, id: PipelineId, run: RunId, nth: usize) {
    play.target.play_at(nth, Fault::DropReply);
    for _ in 0..5 {
        play.work_off("tester").await;
        if play.stage.status(id).await != Status::RunRequested {
            return;
        }
        play.configure("retry_at = null").await;
    }
    let run = play.stage.run_record(run).await;
    panic!("request {nth}: given back again and again: {:?}", run.error);
}

async fn die_behind<T: Target>(play: &Play<T>, run: RunId, nth: usize) {
    let gate = Gate::new();
    play.target.play_at(nth, Fault::HoldReply(gate.clone()));
    let mut runner = play.start("dying");
    tokio::select! {
        () = gate.arrived() => {}
        ended = runner.join_next() => return ended.unwrap().unwrap(),
    }
    runner.shutdown().await;
    play.stage.take_over(run, &play.settings("next")).await;
    gate.open();
}

of_every_target!(
    a_load_into_an_empty_target_survives_lost_replies,
    a_load_into_a_filled_target_survives_lost_replies,
    an_increment_survives_lost_replies,
    a_backfill_survives_lost_replies,
);
