//! Comparisons are asked for, taken under a lease of their own, and kept with what they have found.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;
use vitrina_core::{
    Cells, Difference, DifferenceKind, Figures, Findings, Level, OnActive, PipelineId, ReconcileProgress,
    ReconcileStage, ReconcileStatus, ReconcileTrigger, RunId, Verdict,
};
use vitrina_store::{
    Error, KEPT, PipelineChoice, ReconcileOrder, ReconcileRecord, RunRequest, RunnerAbilities, TakenReconcile,
};

use crate::stage::{LEASE, Stage, pipeline, runner};

impl Stage {
    async fn ask(&self, id: PipelineId, level: Level) -> Uuid {
        self.store.request_reconcile(id, &order(level)).await.unwrap()
    }

    async fn take(&self) -> Option<TakenReconcile> {
        self.store.take_reconcile(&runner("tester"), LEASE).await.unwrap()
    }

    async fn reconcile(&self, id: Uuid) -> ReconcileRecord {
        self.store.reconcile(id).await.unwrap().expect("a reconcile")
    }

    /// Asks for one and brings it to its verdict.
    async fn compare(&self, id: PipelineId, level: Level, findings: &Findings) -> ReconcileRecord {
        let asked = self.ask(id, level).await;
        let taken = self.take().await.expect("something to take");
        assert_eq!(taken.id, asked);
        self.store.finish_reconcile(&taken, findings).await.unwrap();
        self.reconcile(asked).await
    }

    /// As if its runner had been silent for longer than its lease.
    async fn expire_reconciles(&self) {
        self.db
            .execute("update etl.etl_reconciles set lease_until = now() - interval '1 second' where lease_until is not null")
            .await;
    }

    async fn backfill(&self, id: PipelineId, keys: &[&str]) -> Option<RunId> {
        let keys = keys.iter().map(|key| json!([key])).collect();
        let request = RunRequest { keys: Some(keys), ..RunRequest::default() };
        self.store.request_run(id, OnActive::After, &request).await.unwrap().run
    }
}

fn order(level: Level) -> ReconcileOrder {
    ReconcileOrder {
        level,
        keep: KEPT,
        trigger: ReconcileTrigger::Manual,
        requested_by: Some("anna".to_owned()),
    }
}

fn difference(kind: DifferenceKind, key: &str) -> Difference {
    let cells = Cells { source: Some("new".to_owned()), target: None };
    let columns = match kind {
        DifferenceKind::Different => BTreeMap::from([("title".to_owned(), cells)]),
        _ => BTreeMap::new(),
    };
    Difference { kind, key: json!([key]), columns }
}

/// Of these rows each differs in another way.
fn three() -> Findings {
    let kinds = [DifferenceKind::Missing, DifferenceKind::Different, DifferenceKind::Extra];
    findings(kinds.into_iter().zip(["1", "2", "3"]).map(|(kind, key)| difference(kind, key)).collect())
}

fn findings(differences: Vec<Difference>) -> Findings {
    let mut figures = Figures::default();
    (figures.source.rows, figures.target.rows) = (10, 10);
    differences.iter().for_each(|difference| figures.count(difference.kind));
    Findings { verdict: figures.verdict(), figures, differences }
}

#[tokio::test]
async fn a_request_joins_an_open_one_that_asks_for_no_less() {
    let stage = Stage::new().await;
    let (films, genres) = (stage.create("films").await, stage.create("genres").await);
    let first = stage.ask(films, Level::Hash).await;
    assert_eq!(stage.ask(films, Level::Hash).await, first);
    assert_ne!(stage.ask(films, Level::Rows).await, first, "another level");
    assert_ne!(stage.ask(genres, Level::Hash).await, first, "another pipeline");
    let more = ReconcileOrder { keep: KEPT + 1, ..order(Level::Hash) };
    let more = stage.store.request_reconcile(films, &more).await.unwrap();
    assert_ne!(more, first, "it keeps more");
    stage.store.cancel_reconcile(first).await.unwrap();
    assert_eq!(stage.ask(films, Level::Hash).await, more, "one that is cancelled is not joined");
    let record = stage.reconcile(more).await;
    assert_eq!((record.pipeline.as_str(), record.status), ("films", ReconcileStatus::Requested));
    assert_eq!((record.requested_by.as_deref(), record.trigger), (Some("anna"), ReconcileTrigger::Manual));
}

#[tokio::test]
async fn requests_that_come_at_once_are_one() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let store = stage.store.clone();
        callers.spawn(async move { store.request_reconcile(films, &order(Level::Hash)).await.unwrap() });
    }
    let mut ids = callers.join_all().await;
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

#[tokio::test]
async fn one_runner_takes_a_reconcile_and_only_one_that_reaches_both_sides() {
    let stage = Stage::new().await;
    let mut films = pipeline("films");
    films.python_task = Some("shout".to_owned());
    let films = stage.store.create_pipeline(&films).await.unwrap().config.id;
    let asked = stage.ask(films, Level::Rows).await;
    let able = |connections: &[&str], tasks: &[&str]| RunnerAbilities {
        name: "r".to_owned(),
        connections: connections.iter().map(ToString::to_string).collect(),
        python_tasks: tasks.iter().map(ToString::to_string).collect(),
        ..RunnerAbilities::default()
    };
    for unable in
        [able(&["cinema"], &["shout"]), able(&["marts"], &["shout"]), able(&["cinema", "marts"], &[])]
    {
        assert!(stage.store.take_reconcile(&unable, LEASE).await.unwrap().is_none(), "{unable:?}");
    }
    let mut runners = JoinSet::new();
    for _ in 0..6 {
        let (store, able) = (stage.store.clone(), able(&["cinema", "marts"], &["shout"]));
        runners.spawn(async move { store.take_reconcile(&able, LEASE).await.unwrap() });
    }
    let taken: Vec<TakenReconcile> = runners.join_all().await.into_iter().flatten().collect();
    let [taken] = taken.as_slice() else { panic!("{} have taken it", taken.len()) };
    assert_eq!((taken.id, taken.level, taken.keep), (asked, Level::Rows, 10_000));
    assert_eq!((taken.pipeline.name.as_str(), taken.target.name.as_str()), ("films", "analytics.mart_films"));
    assert_eq!((stage.reconcile(asked).await.status, &taken.keys), (ReconcileStatus::Running, &None));
}

#[tokio::test]
async fn a_reconcile_whose_runner_died_is_taken_again_and_given_up_after_three() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let asked = stage.ask(films, Level::Hash).await;
    let first = stage.take().await.unwrap();
    assert!(stage.take().await.is_none(), "its lease holds");
    stage.store.keep_reconcile(&first, LEASE, None).await.unwrap();
    for _ in 0..2 {
        stage.expire_reconciles().await;
        assert_eq!(stage.take().await.unwrap().id, asked);
    }
    let lost = stage.store.keep_reconcile(&first, LEASE, None).await.unwrap_err();
    assert!(matches!(lost, Error::LeaseLost), "{lost}");
    stage.expire_reconciles().await;
    assert!(stage.take().await.is_none());
    let record = stage.reconcile(asked).await;
    assert_eq!(
        (record.status, record.error_code.as_deref()),
        (ReconcileStatus::Failed, Some("reconcile.abandoned"))
    );
}

#[tokio::test]
async fn a_runner_that_stops_gives_its_reconcile_back_without_counting_against_it() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let asked = stage.ask(films, Level::Hash).await;
    for _ in 0..5 {
        let taken = stage.take().await.expect("it waits again");
        stage.store.release_reconcile(&taken).await.unwrap();
        assert_eq!(stage.reconcile(asked).await.status, ReconcileStatus::Requested);
    }
    let taken = stage.take().await.unwrap();
    stage.store.cancel_reconcile(asked).await.unwrap();
    stage.store.release_reconcile(&taken).await.unwrap();
    assert_eq!(
        stage.reconcile(asked).await.status,
        ReconcileStatus::Cancelled,
        "nobody need take it to end it"
    );
}

#[tokio::test]
async fn a_reconcile_that_waits_is_cancelled_at_once_and_one_that_runs_when_its_runner_hears_of_it() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let waiting = stage.ask(films, Level::Hash).await;
    let record = stage.store.cancel_reconcile(waiting).await.unwrap().unwrap();
    assert_eq!(record.status, ReconcileStatus::Cancelled);
    assert!(stage.take().await.is_none());

    let running = stage.ask(films, Level::Hash).await;
    let taken = stage.take().await.unwrap();
    let progress = ReconcileProgress { stage: ReconcileStage::Scan, done: 3, total: 9 };
    assert!(!stage.store.keep_reconcile(&taken, LEASE, Some(&progress)).await.unwrap());
    assert_eq!(stage.reconcile(running).await.progress, Some(progress));
    let record = stage.store.cancel_reconcile(running).await.unwrap().unwrap();
    assert_eq!((record.status, record.cancel_requested), (ReconcileStatus::Running, true));
    assert!(stage.store.keep_reconcile(&taken, LEASE, None).await.unwrap(), "the runner hears of it");
    stage.store.stop_reconcile(&taken).await.unwrap();
    let record = stage.reconcile(running).await;
    assert_eq!((record.status, record.verdict), (ReconcileStatus::Cancelled, None));
    assert!(stage.store.cancel_reconcile(Uuid::new_v4()).await.unwrap().is_none());

    let done = stage.compare(films, Level::Hash, &findings(vec![])).await;
    let record = stage.store.cancel_reconcile(done.id).await.unwrap().unwrap();
    assert_eq!((record.status, record.cancel_requested), (ReconcileStatus::Done, false), "too late");
}

#[tokio::test]
async fn a_cancelled_reconcile_whose_runner_died_ends_with_the_next_look() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let asked = stage.ask(films, Level::Hash).await;
    stage.take().await.unwrap();
    stage.store.cancel_reconcile(asked).await.unwrap();
    stage.expire_reconciles().await;
    assert!(stage.take().await.is_none());
    assert_eq!(stage.reconcile(asked).await.status, ReconcileStatus::Cancelled);
}

#[tokio::test]
async fn verdict_and_differences_are_written_at_once_and_by_the_owner_only() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let asked = stage.ask(films, Level::Rows).await;
    let zombie = stage.take().await.unwrap();
    stage.expire_reconciles().await;
    let owner = stage.take().await.unwrap();
    let refused = stage.store.finish_reconcile(&zombie, &three()).await.unwrap_err();
    assert!(matches!(refused, Error::LeaseLost), "{refused}");
    stage.store.fail_reconcile(&zombie, "source.away", "gone".to_owned()).await.unwrap();
    assert_eq!(stage.reconcile(asked).await.status, ReconcileStatus::Running);
    assert!(stage.store.differences(asked, None, 0, 10).await.unwrap().is_empty());

    stage.store.finish_reconcile(&owner, &three()).await.unwrap();
    let record = stage.reconcile(asked).await;
    assert_eq!((record.status, record.verdict), (ReconcileStatus::Done, Some(Verdict::Differs)));
    assert_eq!(record.figures.unwrap(), three().figures);
    let kept = stage.store.differences(asked, None, 0, 10).await.unwrap();
    assert_eq!(kept.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(kept.into_iter().map(|(_, difference)| difference).collect::<Vec<_>>(), three().differences);
    let extra = stage.store.differences(asked, Some(DifferenceKind::Extra), 0, 10).await.unwrap();
    assert_eq!((extra.len(), extra[0].0), (1, 3));
    assert_eq!(stage.store.differences(asked, None, 2, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn thousands_of_differences_keep_their_order() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let many = (0..2_500).map(|n| difference(DifferenceKind::Missing, &n.to_string())).collect();
    let record = stage.compare(films, Level::Rows, &findings(many)).await;
    let plan = stage.store.repair_plan(record.id).await.unwrap();
    let wanted: Vec<_> = (0..2_500).map(|n| json!([n.to_string()])).collect();
    assert_eq!((plan.upserts, plan.deletes), (2_500, 0));
    assert_eq!(plan.keys, wanted);
}

#[tokio::test]
async fn the_last_verdict_stands_beside_its_pipeline() {
    let stage = Stage::new().await;
    let (films, genres) = (stage.create("films").await, stage.create("genres").await);
    assert_eq!(stage.record(films).await.last_verdict, None);
    stage.compare(films, Level::Count, &three()).await;
    let equal = stage.compare(films, Level::Count, &findings(vec![])).await;
    let failed = stage.ask(films, Level::Hash).await;
    let taken = stage.take().await.unwrap();
    stage.store.fail_reconcile(&taken, "source.away", "gone".to_owned()).await.unwrap();
    assert_eq!(stage.reconcile(failed).await.error.as_deref(), Some("gone"));

    let beside = stage.record(films).await.last_verdict.expect("a verdict");
    assert_eq!((beside.id, beside.level, beside.verdict), (equal.id, Level::Count, Verdict::Equal));
    let listed = stage.store.listings(&PipelineChoice::default()).await.unwrap();
    assert_eq!(listed[0].last_verdict, Some(beside.clone()));
    assert_eq!((listed[1].id, &listed[1].last_verdict), (genres, &None));
    let gauges = stage.store.gauges().await.unwrap().pipelines;
    assert_eq!((&gauges[0].verdict, &gauges[1].verdict), (&Some(beside), &None));
    assert_eq!(stage.store.last_verdict(films).await.unwrap().unwrap().id, equal.id);

    let all = stage.store.reconciles(None, None, 10).await.unwrap();
    assert_eq!(all.iter().map(|record| record.id).collect::<Vec<_>>()[..2], [failed, equal.id]);
    let older = stage.store.reconciles(Some(films), Some(equal.id), 10).await.unwrap();
    assert_eq!(older.len(), 1);
    assert!(stage.store.reconciles(Some(genres), None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_count_that_finds_nothing_does_not_speak_against_rows_that_differ() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    stage.compare(films, Level::Count, &findings(vec![])).await;
    let differs = stage.compare(films, Level::Hash, &three()).await;
    let count = stage.compare(films, Level::Count, &findings(vec![])).await;
    assert_eq!((count.verdict, count.whole), (Some(Verdict::Equal), false));
    assert_eq!(stage.record(films).await.last_verdict.unwrap().id, differs.id);
    let hash = stage.compare(films, Level::Hash, &findings(vec![])).await;
    let count = stage.compare(films, Level::Count, &three()).await;
    assert_eq!(stage.record(films).await.last_verdict.unwrap().id, count.id);
    assert!(hash.whole && stage.compare(films, Level::Count, &findings(vec![])).await.whole);
}

#[tokio::test]
async fn a_proof_waits_for_the_backfill_it_proves_also_where_that_stands_in_line() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let found = stage.compare(films, Level::Rows, &three()).await;
    let active = stage.begin(films).await;
    let before = stage.backfill(films, &["1", "2", "3"]).await.unwrap();
    assert_eq!(before, active.run, "it stands in line");
    let proof = stage.store.request_proof(&found, before, None).await.unwrap();
    assert!(stage.take().await.is_none(), "the repair waits for the run before it");
    stage.store.finish(&active.lease).await.unwrap();
    assert!(stage.take().await.is_none(), "the repair waits for a runner");
    let repair = stage.claim().await.expect("the repair");
    assert!(stage.take().await.is_none(), "the repair runs");
    stage.store.finish(&repair.lease).await.unwrap();

    let taken = stage.take().await.expect("now it can be proved");
    assert_eq!((taken.id, taken.level), (proof, Level::Rows));
    assert_eq!(taken.keys, Some(vec![json!(["1"]), json!(["2"]), json!(["3"])]));
    stage.store.finish_reconcile(&taken, &findings(vec![])).await.unwrap();
    let proved = stage.reconcile(found.id).await;
    assert_eq!((proved.proved_by, stage.reconcile(proof).await.repair_of), (Some(proof), Some(found.id)));
    let beside = stage.record(films).await.last_verdict.unwrap();
    assert_eq!((beside.id, beside.verdict), (proof, Verdict::Equal), "all that differed has been proved");
}

#[tokio::test]
async fn a_proof_of_a_part_does_not_speak_for_the_whole() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let mut found = three();
    found.figures.missing = 9;
    let found = stage.compare(films, Level::Rows, &found).await;
    let run = stage.backfill(films, &["1", "2", "3"]).await.unwrap();
    stage.store.request_proof(&found, run, None).await.unwrap();
    let repair = stage.claim().await.unwrap();
    stage.store.finish(&repair.lease).await.unwrap();
    let taken = stage.take().await.unwrap();
    stage.store.finish_reconcile(&taken, &findings(vec![])).await.unwrap();
    assert!(!stage.reconcile(taken.id).await.whole);
    assert_eq!(stage.record(films).await.last_verdict.unwrap().verdict, Verdict::Differs);
}

#[tokio::test]
async fn old_reconciles_are_forgotten_but_never_the_newest_verdict_nor_what_it_proves() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    stage.compare(films, Level::Hash, &findings(vec![])).await;
    let found = stage.compare(films, Level::Rows, &three()).await;
    let failed = stage.ask(films, Level::Hash).await;
    let taken = stage.take().await.unwrap();
    stage.store.fail_reconcile(&taken, "source.away", "gone".to_owned()).await.unwrap();
    let run = stage.backfill(films, &["1"]).await.unwrap();
    let proof = stage.store.request_proof(&found, run, None).await.unwrap();
    let repair = stage.claim().await.unwrap();
    stage.store.finish(&repair.lease).await.unwrap();
    let taken = stage.take().await.unwrap();
    stage.store.finish_reconcile(&taken, &findings(vec![])).await.unwrap();
    let open = stage.ask(films, Level::Count).await;

    assert_eq!(stage.delete_older_than(Duration::from_secs(3600)).await, (0, 0));
    assert_eq!(stage.delete_older_than(Duration::ZERO).await, (0, 2));
    let left: Vec<Uuid> =
        stage.store.reconciles(None, None, 10).await.unwrap().iter().map(|record| record.id).collect();
    assert_eq!(left, [open, proof, found.id]);
    assert!(stage.store.reconcile(failed).await.unwrap().is_none());

    let taken = stage.take().await.unwrap();
    stage.store.finish_reconcile(&taken, &findings(vec![])).await.unwrap();
    assert_eq!(stage.delete_older_than(Duration::ZERO).await, (0, 2), "the proof first, then what it proves");
    assert_eq!(stage.db.value::<i64>("select count(*) from etl.etl_differences").await, 0);
    assert_eq!(stage.record(films).await.last_verdict.unwrap().id, open);
}

#[tokio::test]
async fn a_reconcile_of_a_pipeline_that_is_being_deleted_finds_none() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    let deleting = stage.db.client().await;
    deleting.batch_execute("begin; delete from etl.etl_pipelines").await.unwrap();
    let waits = "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                                 where not l.granted and a.datname = current_database())";
    let deleted = async {
        while !stage.db.value::<bool>(waits).await {}
        deleting.batch_execute("commit").await.unwrap();
    };
    let asked = order(Level::Hash);
    let (asked, ()) = tokio::join!(stage.store.request_reconcile(films, &asked), deleted);
    assert!(matches!(asked, Err(Error::NoSuchPipeline(_))), "{asked:?}");
}

#[tokio::test]
async fn the_reconciles_of_a_deleted_pipeline_go_with_it() {
    let stage = Stage::new().await;
    let films = stage.create("films").await;
    stage.compare(films, Level::Rows, &three()).await;
    stage.ask(films, Level::Hash).await;
    stage.db.execute("delete from etl.etl_pipelines").await;
    let left =
        "select (select count(*) from etl.etl_reconciles) + (select count(*) from etl.etl_differences)";
    assert_eq!(stage.db.value::<i64>(left).await, 0);
}
