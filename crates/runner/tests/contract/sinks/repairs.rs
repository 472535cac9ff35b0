//! A damaged target is found and brought back.

use serde_json::{Value, json};
use vitrina_core::{DifferenceKind, Level, ReconcileStatus, Verdict};

use crate::play::{Play, Work};
use crate::targets::Target;

async fn a_damaged_target_differs_and_is_repaired<T: Target>(play: Play<T>) {
    let id = play.loaded(60, json!({"delete_limit": 1.0})).await;
    play.stage.db.execute("update content.film set modified = modified - interval '1 day'").await;
    play.succeed(id, Work::Load).await;
    if let Err((code, reason)) = T::ABILITIES.compares {
        println!("only refused: {reason}");
        let asked = play.stage.request_reconcile(id, Level::Rows).await;
        play.work_off("tester").await;
        let refused = play.stage.store.reconcile(asked).await.unwrap().unwrap();
        assert_eq!((refused.status, refused.error_code.as_deref()), (ReconcileStatus::Failed, Some(code)));
        return;
    }
    let compare = async |level| play.stage.reconcile_with(play.settings("tester"), id, level).await;
    for level in [Level::Count, Level::Hash, Level::Rows] {
        assert_eq!(compare(level).await.verdict(), Verdict::Equal, "{level}");
    }
    play.target.put(&play.stage, 7, "damaged").await;
    play.target.put(&play.stage, 900, "nobody asked for it").await;
    play.target.remove(&play.stage, 31).await;
    let compared = compare(Level::Rows).await;
    assert_eq!((compared.verdict(), compared.counts()), (Verdict::Differs, (1, 1, 1)));
    assert_eq!(compared.keys(DifferenceKind::Different), ["7"]);
    assert_eq!(compared.keys(DifferenceKind::Extra), ["900"]);
    assert_eq!(compared.keys(DifferenceKind::Missing), ["31"]);
    let keys: Vec<Value> = compared.differences.iter().map(|difference| difference.key.clone()).collect();
    let run = play.stage.request_keys(id, json!(keys)).await;
    let proof = play.stage.store.request_proof(&compared.record, run, None).await.unwrap();
    play.work_off("tester").await;
    play.require_success(&play.stage.run_record(run).await).await;
    assert_eq!(play.stage.compared(proof).await.verdict(), Verdict::Equal);
}

of_every_target!(a_damaged_target_differs_and_is_repaired);
