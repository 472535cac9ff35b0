//! Runs that no runner which is alive can take. Nobody executes them, so nobody else would report them in a log.

use std::collections::BTreeMap;

use vitrina_store::{Result, Store};

#[derive(Debug, Default)]
pub(crate) struct UntakenRuns {
    /// Why, of each pipeline that was reported and still waits.
    reported: BTreeMap<String, String>,
}

impl UntakenRuns {
    /// Each pipeline once for each reason.
    pub(crate) async fn report(&mut self, store: &Store) -> Result<()> {
        let mut waiting = BTreeMap::new();
        for run in store.untaken_runs().await? {
            let (pipeline, reason) = (run.pipeline, run.waiting.message);
            if self.reported.get(&pipeline) != Some(&reason) {
                tracing::warn!(
                    pipeline,
                    error_code = run.waiting.code,
                    error = reason,
                    "a run waits that no live runner can take"
                );
            }
            waiting.insert(pipeline, reason);
        }
        self.reported = waiting;
        Ok(())
    }
}
