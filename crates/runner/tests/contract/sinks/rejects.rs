//! Refused rows at every batch size and place: exactly they are rejected, all others arrive, and a limit stops the run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use vitrina_core::{PipelineId, RunStatus};

use crate::play::{Play, Work};
use crate::targets::Target;

/// The first, the middle and the last of a batch, two neighbours in two batches, and one in the last batch.
fn places(size: i32) -> BTreeSet<i32> {
    [1, size / 2 + 1, size, size + 1, 2 * size + 1].into()
}

/// Films that are refused, of two batches and three films.
struct Refused {
    bad: BTreeSet<i32>,
    /// What the target had of them before.
    old: BTreeMap<String, String>,
}

impl Refused {
    async fn require<T: Target>(&self, play: &Play<T>, id: PipelineId, work: Work, size: i32) {
        let run = play.run(id, work).await;
        let (bad, which) = (self.bad.len() as u64, format!("{work:?} by {size}"));
        assert_eq!(run.status, RunStatus::Success, "{which}: {:?}", run.error);
        assert_eq!(run.rows_rejected, bad, "{which}");
        let mut keys: Vec<_> = self.bad.iter().map(|id| format!("[\"{id}\"]")).collect();
        keys.sort();
        let expected: Vec<_> = keys.into_iter().map(|key| (T::ABILITIES.refusal.to_owned(), key)).collect();
        assert_eq!(play.stage.rejects().await, expected, "{which}");
        let mut titles = play.source_titles().await;
        self.bad.iter().for_each(|id| drop(titles.remove(&id.to_string())));
        titles.extend(self.old.clone());
        assert!(play.titles().await == titles, "{which}: other rows than those are missing or old");
    }
}

async fn refused_rows_are_rejects_at_every_batch_size_and_place<T: Target>(play: Play<T>) {
    let id = play.pipeline(json!({"reject_limit": 10, "delete_limit": 1.0})).await;
    for size in T::ABILITIES.batch_sizes {
        let (size, bad) = (*size, places(*size));
        play.target.empty(&play.stage).await;
        play.stage.db.execute("truncate content.film").await;
        play.add_films(1, 2 * size + 3).await;
        play.configure(&format!("batch_size = {size}")).await;
        let ids: Vec<String> = bad.iter().map(ToString::to_string).collect();
        let is_bad = format!("id in ({})", ids.join(", "));

        play.change("note = 'x'", &is_bad).await;
        let refused = Refused { bad: bad.clone(), old: BTreeMap::new() };
        refused.require(&play, id, Work::Load, size).await;
        if size == 10_000 {
            continue;
        }
        play.change("title = 'New ' || id", "true").await;
        refused.require(&play, id, Work::Increment, size).await;

        play.change("note = '1'", "true").await;
        play.succeed(id, Work::Increment).await;
        assert_eq!(play.stage.rejects().await, [], "healed");
        play.change("note = 'x', title = 'Newer ' || id", &is_bad).await;
        let old = bad.iter().map(|id| (id.to_string(), format!("New {id}"))).collect();
        let refused = Refused { bad, old };
        refused.require(&play, id, Work::Increment, size).await;
        refused.require(&play, id, Work::Load, size).await;
        refused.require(&play, id, Work::Backfill, size).await;
    }
}

async fn one_reject_more_than_the_limit_stops_the_run<T: Target>(play: Play<T>) {
    let id = play.loaded(12, json!({"reject_limit": 1})).await;
    play.change("title = 'New'", "id <= 8").await;
    play.change("note = 'x'", "id in (1, 6)").await;
    for work in [Work::Increment, Work::Load] {
        let before = play.titles().await;
        assert_eq!(play.fail(id, work).await, "rejects.limit");
        assert_eq!(play.titles().await.len(), before.len());
        assert_eq!(play.titles().await["6"], "Film 6");
    }
    play.configure("reject_limit = 2").await;
    assert_eq!(play.run(id, Work::Load).await.rows_rejected, 2);
    play.change("note = '1'", "true").await;
    play.succeed(id, Work::Increment).await;
}

of_every_target!(
    refused_rows_are_rejects_at_every_batch_size_and_place,
    one_reject_more_than_the_limit_stops_the_run,
);
