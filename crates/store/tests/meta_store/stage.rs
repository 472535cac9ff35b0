//! A migrated meta-store with the verbs that tests speak in.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;
use vitrina_core::{
    Counts, Effect, Event, Lease, Lifecycle, OnActive, Outcome, Pipeline, PipelineId, Refusal, Reject, RunId,
    Status,
};
use vitrina_store::{
    Claim, Error, PipelineRecord, PipelineRef, RetentionStep, RunRecord, RunRequest, RunnerAbilities,
    StepDone, Store, Terms,
};
use vitrina_testbed::Database;

pub(crate) struct Stage {
    pub(crate) db: Database,
    pub(crate) store: Store,
}

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Comparing what a pipeline needs with what a runner has waits while somebody holds the lock. The meta-store pins its search path to
/// pg_catalog, where an operator of exactly these types comes before that of any arrays.
const HELD_CLAIMS: &str = "set allow_system_table_mods = on;
    create function pg_catalog.held_contained(text[], text[]) returns boolean language plpgsql as $$
    begin
        perform pg_advisory_xact_lock_shared(7);
        return arraycontained($1, $2);
    end $$;
    create operator pg_catalog.<@ (leftarg = text[], rightarg = text[], function = pg_catalog.held_contained)";

async fn migrate(url: &str) {
    let store = Store::connect(url, "vitrina-test", 2).await.unwrap();
    store.migrate().await.unwrap();
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let db = Database::prepared(async |url| migrate(url).await).await;
        let store = Store::connect(db.url(), "vitrina-test", 8).await.unwrap();
        Self { db, store }
    }

    pub(crate) async fn create(&self, name: &str) -> PipelineId {
        self.store.create_pipeline(&pipeline(name)).await.unwrap().config.id
    }

    pub(crate) async fn record(&self, id: PipelineId) -> PipelineRecord {
        self.store.pipeline(&PipelineRef::Id(id)).await.unwrap()
    }

    pub(crate) async fn status(&self, id: PipelineId) -> Status {
        self.record(id).await.status
    }

    pub(crate) async fn request(&self, id: PipelineId) {
        self.store.request_run(id, OnActive::Join, &RunRequest::default()).await.unwrap();
    }

    pub(crate) async fn claim(&self) -> Option<Claim> {
        self.store.claim(&runner("tester"), &Terms::idle(LEASE)).await.unwrap()
    }

    /// Asks for a run and claims it.
    pub(crate) async fn begin(&self, id: PipelineId) -> Claim {
        self.request(id).await;
        self.claim().await.expect("something to claim")
    }

    pub(crate) async fn run(&self, id: RunId) -> RunRecord {
        self.store.run(id).await.unwrap().expect("a run")
    }

    /// As the mart's transaction does it; refused with an SQLSTATE.
    pub(crate) async fn commit(
        &self,
        lease: &Lease,
        from_version: i64,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let checkpoint = json!({"position": {"done": {"bound": ["9"]}}});
        let sql = format!(
            "select etl.commit_batch('{}', '{}', {}, {from_version}, '{checkpoint}', '{}')",
            lease.pipeline,
            lease.owner.0,
            lease.token,
            json!(outcome)
        );
        let client = self.db.client().await;
        client.batch_execute(&sql).await.map_err(|error| error.code().unwrap().code().to_owned())
    }

    /// A pipeline of its own, brought into a state by the events that lead there.
    pub(crate) async fn bring_to(&self, name: &str, wanted: Lifecycle) -> (PipelineId, Option<Lease>) {
        let id = self.create(name).await;
        let mut lease = None;
        for event in path_to(wanted) {
            match event {
                Event::Claim => lease = Some(self.claim().await.expect("something to claim").lease),
                Event::Run(on_active) => {
                    drop(self.store.request_run(id, on_active, &RunRequest::default()).await.unwrap());
                }
                Event::Fail => {
                    drop(self.store.fail(&lease.unwrap(), "test.fault", "it broke", false).await.unwrap());
                }
                Event::BatchDone => drop(self.store.interrupt(&lease.unwrap()).await.unwrap()),
                Event::DataEnd => drop(self.store.finish(&lease.unwrap()).await.unwrap()),
                Event::Release => {
                    drop(self.store.release(&lease.unwrap(), "t", "t", Duration::ZERO).await.unwrap());
                }
                request => drop(self.store.request_change(id, request).await.unwrap()),
            }
        }
        assert_eq!(self.record(id).await.lifecycle(), wanted);
        (id, lease.filter(|_| wanted.status.is_leased()))
    }

    /// A runner that finds the pipeline does what a claim leads to.
    pub(crate) async fn claimed(&self, id: PipelineId) -> Result<StepDone, Error> {
        self.expire_leases().await;
        let before = self.record(id).await;
        match self.claim().await {
            None => Err(Error::Refusal(Refusal::NotHeld)),
            Some(claim) if claim.interrupted => self.store.interrupt(&claim.lease).await,
            Some(claim) => Ok(StepDone {
                pipeline: self.record(id).await,
                before: before.lifecycle(),
                run: Some(claim.run),
                effect: Effect::default(),
            }),
        }
    }

    /// Its scheduled time has come, and a runner looks.
    pub(crate) async fn came_due(&self, id: PipelineId) -> Result<StepDone, Error> {
        let before = self.record(id).await;
        self.db
            .execute(&format!("update etl.etl_pipelines set schedule_interval = '1h' where id = '{id}'"))
            .await;
        self.make_due(id).await;
        let requested = self.store.request_due().await?;
        let pipeline = self.record(id).await;
        let effect = Effect { open_run: requested == 1, ..Effect::default() };
        Ok(StepDone { run: pipeline.run_id, pipeline, before: before.lifecycle(), effect })
    }

    pub(crate) async fn make_due(&self, id: PipelineId) {
        self.db
            .execute(&format!(
                "update etl.etl_pipelines set next_run_at = now() - interval '1 day' where id = '{id}'"
            ))
            .await;
    }

    pub(crate) async fn create_scheduled(&self, name: &str, schedule: &str) -> PipelineId {
        let config = Pipeline { schedule_interval: Some(schedule.to_owned()), ..pipeline(name) };
        self.store.create_pipeline(&config).await.unwrap().config.id
    }

    /// What a runner does now and then; answers how many runs and comparisons it has deleted.
    pub(crate) async fn delete_older_than(&self, keep: Duration) -> (u64, u64) {
        let mut retention = self.store.retention(keep);
        while retention.step().await.unwrap() == RetentionStep::Deleted {}
        (retention.runs, retention.reconciles)
    }

    /// A claim that has its snapshot and is held before it locks a row, until `change` is committed.
    pub(crate) async fn claim_across<T>(&self, change: impl Future<Output = T>) -> Option<Claim> {
        self.db.execute(HELD_CLAIMS).await;
        let store = Store::connect(self.db.url(), "vitrina-test", 1).await.unwrap();
        let gate = self.db.client().await;
        gate.batch_execute("select pg_advisory_lock(7)").await.unwrap();
        let runner = runner("held");
        let terms = Terms::idle(LEASE);
        let changed = async {
            let held = "select exists (select from pg_locks where locktype = 'advisory' and not granted
                         and database = (select oid from pg_database where datname = current_database()))";
            while !self.db.value::<bool>(held).await {}
            change.await;
            gate.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
        };
        let (claim, ()) = tokio::join!(store.claim(&runner, &terms), changed);
        claim.unwrap()
    }

    /// As if the runner had been silent for longer than its lease.
    pub(crate) async fn expire_leases(&self) {
        self.db.execute("update etl.etl_pipelines set lease_until = now() - interval '1 second' where lease_until is not null").await;
    }
}

pub(crate) fn runner(name: &str) -> RunnerAbilities {
    RunnerAbilities {
        name: name.to_owned(),
        connections: vec!["cinema".into(), "marts".into()],
        ..RunnerAbilities::default()
    }
}

/// Ten rows of which one is refused.
pub(crate) fn ten_rows() -> Outcome {
    let counts =
        Counts { read: 10, inserted: 4, updated: 3, unchanged: 2, deleted: 1, rejected: 1, bytes: 99 };
    Outcome { counts, ..refusing(1, [reject("7", "row.bad")]) }
}

pub(crate) fn refusing(reject_limit: i64, rejects: impl IntoIterator<Item = Reject>) -> Outcome {
    Outcome { reject_limit, rejects: rejects.into_iter().collect(), ..Outcome::default() }
}

pub(crate) fn reject(key: &str, code: &str) -> Reject {
    let message = format!("{code}: no place for it");
    Reject { key: json!([key]), code: code.to_owned(), message, row: json!({"id": key}) }
}

/// A mart has one writer: each pipeline has its own.
fn mart_of(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    format!("analytics.mart_{}", name.chars().map(plain).collect::<String>())
}

pub(crate) fn pipeline(name: &str) -> Pipeline {
    serde_json::from_value(json!({
        "id": Uuid::new_v4(), "name": name, "type": "SQL", "source_type": "postgres", "source_connection": "cinema",
        "source_table": null, "source_query": "select 1 as id", "target_table": mart_of(name), "mode": "full",
        "batch_size": 1000, "enabled": true, "schedule_interval": null, "incremental_key": null, "incremental_id_key": null,
        "capture": "cursor", "late_window_seconds": 600, "delete_limit": 0.2, "python_task": null,
    }))
    .unwrap()
}

/// Every state that a new pipeline can reach, with the shortest way there.
pub(crate) fn reachable() -> Vec<(Lifecycle, Vec<Event>)> {
    let mut found = vec![(Lifecycle::new(Status::Idle, true), Vec::new())];
    let mut next = 0;
    while next < found.len() {
        let (state, path) = found[next].clone();
        for event in Event::ALL {
            // The schedule is a request like `run`, and a takeover needs a lease that has expired.
            let takeover = event == Event::Claim && state.status != Status::RunRequested;
            // Only backfills and rollbacks fail beside their pipeline.
            let beside = matches!(event, Event::FailBeside(_));
            if event == Event::ScheduleDue || takeover || beside {
                continue;
            }
            let Ok((to, _)) = state.apply(event) else { continue };
            if found.iter().all(|(known, _)| *known != to) {
                let mut path = path.clone();
                path.push(event);
                found.push((to, path));
            }
        }
        next += 1;
    }
    found
}

fn path_to(wanted: Lifecycle) -> Vec<Event> {
    reachable().into_iter().find(|(state, _)| *state == wanted).expect("a reachable state").1
}
