//! A runner that was taken over wakes, at whichever request it was stopped, and changes nothing any more.

use serde_json::json;
use vitrina_testbed::{Fault, Gate};

use crate::play::{Play, Work};
use crate::targets::Target;

async fn an_owner_that_was_taken_over_in_a_load_changes_nothing<T: Target>(play: Play<T>) {
    taken_over(play, Work::Load, 1).await;
}

async fn an_owner_that_was_taken_over_in_an_increment_changes_nothing<T: Target>(play: Play<T>) {
    taken_over(play, Work::Increment, 2).await;
}

/// Neither rows, nor deletes, nor what readers see, nor the checkpoint, nor the figures of its run.
async fn taken_over<T: Target>(play: Play<T>, work: Work, first: usize) {
    let id = play.loaded(10, json!({"delete_limit": 1.0})).await;
    for nth in (first..).step_by(T::ABILITIES.every) {
        play.change(&format!("title = 'Old {nth}'"), "id in (2, 3, 7)").await;
        play.change(&format!("title = case when {nth} % 2 = 0 then 'Film 5' else 'hidden' end"), "id = 5")
            .await;
        let gate = Gate::new();
        play.target.play_at(nth, Fault::Hold(gate.clone()));
        let run = play.request(id, work).await;
        let mut old = play.start("old");
        tokio::select! {
            () = gate.arrived() => {}
            ended = old.join_next() => {
                ended.unwrap().unwrap();
                play.require_success(&play.stage.run_record(run).await).await;
                return;
            }
        }
        play.stage.take_over(run, &play.settings("next")).await;
        play.require_success(&play.stage.run_record(run).await).await;
        play.change(&format!("title = 'New {nth}'"), "id in (2, 9)").await;
        play.succeed(id, Work::Increment).await;
        let state = async || (play.stage.checkpoint().await, play.stage.run_record(run).await);
        let before = state().await;
        gate.open();
        old.join_all().await;
        assert_eq!(play.titles().await, play.source_titles().await, "request {nth}");
        let after = state().await;
        assert_eq!((after.0, after.1.batches, after.1.status), (before.0, before.1.batches, before.1.status));
    }
}

of_every_target!(
    an_owner_that_was_taken_over_in_a_load_changes_nothing,
    an_owner_that_was_taken_over_in_an_increment_changes_nothing,
);
