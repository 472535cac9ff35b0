//! Comparisons of a target with its source, as tests ask for them and read them.

use uuid::Uuid;
use vitrina_core::{
    Difference, DifferenceKind, Figures, Level, PipelineId, ReconcileStatus, ReconcileTrigger, Verdict,
};
use vitrina_runner::RunnerSettings;
use vitrina_store::{ReconcileOrder, ReconcileRecord};

use crate::stage::Stage;

/// A finished comparison, and the differences it has kept.
pub(crate) struct Compared {
    pub(crate) record: ReconcileRecord,
    pub(crate) differences: Vec<Difference>,
}

impl Compared {
    pub(crate) fn verdict(&self) -> Verdict {
        self.record.verdict.unwrap()
    }

    pub(crate) fn figures(&self) -> &Figures {
        self.record.figures.as_ref().unwrap()
    }

    /// Missing, extra, different.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let figures = self.figures();
        (figures.missing, figures.extra, figures.different)
    }

    /// The first columns of the keys of one kind.
    pub(crate) fn keys(&self, kind: DifferenceKind) -> Vec<String> {
        let of_kind = self.differences.iter().filter(|difference| difference.kind == kind);
        of_kind.map(|difference| difference.key[0].as_str().unwrap().to_owned()).collect()
    }
}

impl Stage {
    pub(crate) async fn request_reconcile(&self, id: PipelineId, level: Level) -> Uuid {
        let trigger = ReconcileTrigger::Manual;
        let order = ReconcileOrder { level, keep: 100_000, trigger, requested_by: None };
        self.store.request_reconcile(id, &order).await.unwrap()
    }

    pub(crate) async fn reconcile_with(
        &self,
        settings: RunnerSettings,
        id: PipelineId,
        level: Level,
    ) -> Compared {
        let reconcile = self.request_reconcile(id, level).await;
        self.work_off(settings).await;
        self.compared(reconcile).await
    }

    pub(crate) async fn reconcile(&self, id: PipelineId, level: Level) -> Compared {
        self.reconcile_with(self.settings("tester"), id, level).await
    }

    pub(crate) async fn compared(&self, reconcile: Uuid) -> Compared {
        let record = self.store.reconcile(reconcile).await.unwrap().unwrap();
        assert_eq!(record.status, ReconcileStatus::Done, "{:?}", record.error);
        let differences = self.store.differences(reconcile, None, 0, i64::MAX).await.unwrap();
        Compared { record, differences: differences.into_iter().map(|(_, difference)| difference).collect() }
    }
}
