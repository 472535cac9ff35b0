//! What checkpoints have been.

use serde_json::{Value, json};
use vitrina_core::{Checkpoint, Decision, Entry, Ledger, Outcome, PipelineId, Position, State};
use vitrina_store::Claim;

use crate::stage::Stage;

impl Stage {
    /// Enters a batch that leads to this position; answers the state's version.
    pub(crate) async fn reach(
        &self,
        claim: &Claim,
        from_version: i64,
        done: Value,
        pass: Option<Value>,
    ) -> i64 {
        let position = Position { done, pass, ..Position::default() };
        let checkpoint = Checkpoint { position, config_hash: "c0ffee".into(), ..Checkpoint::default() };
        let (lease, outcome) = (&claim.lease, &Outcome::default());
        let entry = Entry { lease, from_version, checkpoint: &checkpoint, outcome };
        self.store.commit(&entry).await.unwrap().version
    }

    /// Version, reason and position of every row of history, newest first.
    async fn history(&self, id: PipelineId) -> Vec<(i64, String, Value)> {
        let rows = self.store.checkpoints(id, 1000).await.unwrap();
        rows.into_iter().map(|row| (row.version, row.reason, json!(row.checkpoint.position))).collect()
    }
}

#[tokio::test]
async fn history_has_a_row_for_every_change_of_what_is_established_and_none_a_batch() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    stage.reach(&claim, 0, Value::Null, Some(json!({"position": ["1"]}))).await;
    stage.reach(&claim, 1, Value::Null, Some(json!({"position": ["2"]}))).await;
    assert!(stage.history(id).await.is_empty(), "a pass under way establishes nothing");
    stage.reach(&claim, 2, json!({"bound": ["3"]}), None).await;
    stage.reach(&claim, 3, json!({"bound": ["3"]}), None).await;
    stage.reach(&claim, 4, json!({"bound": ["3"]}), Some(json!({"position": ["4"]}))).await;
    stage.reach(&claim, 5, json!({"bound": ["5"]}), None).await;
    let row = |version, bound: &str| (version, "pass".to_owned(), json!({"done": {"bound": [bound]}}));
    assert_eq!(stage.history(id).await, [row(6, "5"), row(3, "3")]);
    let newest = stage.store.checkpoints(id, 1).await.unwrap();
    assert_eq!(newest[0].run_id, Some(claim.run));
}

#[tokio::test]
async fn history_keeps_the_newest_hundred_of_a_pipeline() {
    let stage = Stage::new().await;
    let (id, other) = (stage.create("film_dim").await, stage.create("film_rating").await);
    let claim = stage.begin(other).await;
    stage.reach(&claim, 0, json!({"bound": ["0"]}), None).await;
    let claim = stage.begin(id).await;
    for version in 0..105 {
        stage.reach(&claim, version, json!({"bound": [version.to_string()]}), None).await;
    }
    let versions: Vec<i64> = stage.history(id).await.into_iter().map(|row| row.0).collect();
    assert_eq!(versions, (6..=105).rev().collect::<Vec<_>>());
    assert_eq!(stage.history(other).await.len(), 1);
}

#[tokio::test]
async fn history_tells_what_was_decided_and_what_a_mart_elsewhere_has_overruled() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    stage.reach(&claim, 0, json!({"bound": ["3"]}), None).await;
    let start = Checkpoint { edited: true, ..Checkpoint::default() };
    stage.store.decide(&claim.lease, claim.run, Decision::Reset, 1, &start).await.unwrap();
    stage.store.adopt(&claim.lease, &State { checkpoint: Checkpoint::default(), version: 2 }).await.unwrap();
    let position = Position { done: json!({"bound": ["2"]}), ..Position::default() };
    let checkpoint = Checkpoint { position, ..Checkpoint::default() };
    stage.store.adopt(&claim.lease, &State { checkpoint, version: 9 }).await.unwrap();
    let told: Vec<(i64, String)> =
        stage.history(id).await.into_iter().map(|(version, reason, _)| (version, reason)).collect();
    assert_eq!(told, [(9, "mart".to_owned()), (2, "reset".to_owned()), (1, "pass".to_owned())]);
    assert_eq!(stage.history(id).await[1].2, json!({}), "without the mark of an edit");
}
