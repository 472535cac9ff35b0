//! The storm: runners, API, writers, faults and probes at once, then calm, and a last look at everything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::fault_schedule::FaultSchedule;
use crate::faults::{self, Harm, Tally};
use crate::fixture::Fixture;
use crate::fleet::Fleet;
use crate::pipelines;
use crate::probes::{self, Prober, Violation};
use crate::report::Stormed;
use crate::rng::Rng;
use crate::trials;

/// Between two probes: some twenty a second, and most of the machine is left to the storm.
const BETWEEN_PROBES: Duration = Duration::from_millis(20);
/// After the storm every pipeline must come to an end within this time.
const CALM: Duration = Duration::from_secs(120);
/// Enough to understand; the rest is in the database's history.
const ENOUGH: usize = 20;

pub(crate) struct Storm {
    pub(crate) fixture: Fixture,
    pub(crate) fleet: Arc<Mutex<Fleet>>,
    pub(crate) api: Arc<Api>,
    pub(crate) schedule: FaultSchedule,
    pub(crate) tally: Arc<Mutex<Tally>>,
    /// What trials have found and nobody has seen yet.
    pub(crate) found: Arc<Mutex<Vec<Violation>>>,
    /// The storm is over, or a hunt has found what it was after.
    pub(crate) over: CancellationToken,
}

/// Storms on this binary. Logs stay below `folder`.
pub async fn storm(binary: &Path, folder: &Path, schedule: &FaultSchedule) -> Result<Stormed> {
    let fixture = Fixture::prepare(binary, folder, schedule).await?;
    let started = Instant::now();
    let stormed = blow(&fixture, schedule).await?;
    fixture.clear().await?;
    Ok(Stormed { seconds: started.elapsed().as_secs_f64(), ..stormed })
}

/// All marts as their sources are, and nobody at work any more.
pub async fn fill_marts(fixture: &Fixture) -> Result<()> {
    let (api, schedule) =
        (Api::start(fixture).await?, FaultSchedule { runners: 1, ..FaultSchedule::of(1, 1) });
    api.describe(&pipelines::targets(&schedule)).await?;
    for mut pipeline in pipelines::all(&schedule) {
        pipeline["schedule_interval"] = serde_json::Value::Null;
        pipeline["full_schedule"] = serde_json::Value::Null;
        api.create(&pipeline).await?;
    }
    let fleet = Fleet::start(fixture, &schedule)?;
    for pipeline in pipelines::NAMES.iter().chain(&fixture.remote.names()) {
        api.succeed(pipeline, CALM).await?;
    }
    drop(fleet);
    Ok(())
}

async fn blow(fixture: &Fixture, schedule: &FaultSchedule) -> Result<Stormed> {
    let api = Arc::new(Api::start(fixture).await?);
    api.describe(&pipelines::targets(schedule)).await?;
    for pipeline in pipelines::all(schedule) {
        api.create(&pipeline).await?;
    }
    for trial in &schedule.trials {
        api.create(&trial.pipeline(schedule)).await?;
    }
    let fleet = Fleet::start(fixture, schedule)?;
    let storm = Storm {
        fixture: fixture.clone(),
        fleet: Arc::new(Mutex::new(fleet)),
        api,
        schedule: schedule.clone(),
        tally: Arc::default(),
        found: Arc::default(),
        over: CancellationToken::new(),
    };
    let mut prober = Prober::new(fixture);
    let mut found = storm.rage(&mut prober).await?;
    if !schedule.is_hunt() || found.is_empty() {
        let settled = storm.settle(&mut prober).await?;
        found.extend(settled.into_iter().filter(|violation| schedule.counts(&violation.rule)));
    }
    Ok(storm.report(&prober, found))
}

impl Storm {
    /// Faults and probes side by side; answers what the probes saw.
    async fn rage(&self, prober: &mut Prober) -> Result<Vec<Violation>> {
        let started = Instant::now();
        let mut rng = Rng::new(self.schedule.seed);
        let mut harms = JoinSet::new();
        for harm in Harm::ALL {
            harms.spawn(faults::keep_harming(self.share(), harm, rng.split()));
        }
        for _ in 0..self.schedule.writers {
            harms.spawn(faults::keep_writing(self.share()));
        }
        for trial in self.schedule.trials.clone() {
            harms.spawn(trials::keep_playing(self.share(), trial, rng.split()));
        }
        let mut found = Vec::new();
        while !self.schedule.is_over(started.elapsed(), prober.probes) && found.len() < ENOUGH {
            for violation in self.look(prober).await? {
                let Violation { rule, pipeline, detail, .. } = &violation;
                eprintln!("after {:.1} s: {rule} ({pipeline}: {detail})", started.elapsed().as_secs_f64());
                if self.schedule.counts(rule) {
                    found.push(violation);
                }
            }
            if !found.is_empty() {
                let mut tally = self.tally.lock().expect("no holder panics");
                tally.first_violation.get_or_insert(started.elapsed());
                if self.schedule.is_hunt() {
                    break;
                }
            }
            tokio::time::sleep(BETWEEN_PROBES).await;
        }
        self.over.cancel();
        while let Some(ended) = harms.join_next().await {
            ended??;
        }
        self.fleet.lock().expect("no holder panics").wake_all();
        Ok(found)
    }

    async fn look(&self, prober: &mut Prober) -> Result<Vec<Violation>> {
        let mut found = match prober.probe(&self.fleet).await {
            Err(error) if !is_away(&error) => return Err(error.context("a probe")),
            probed => probed.unwrap_or_default(),
        };
        found.append(&mut self.found.lock().expect("no holder panics"));
        let mut fleet = self.fleet.lock().expect("no holder panics");
        for (runner, line) in fleet.lost_leases() {
            found.push(Violation::new("a healthy runner lost its lease", "", format!("{runner}: {line}")));
        }
        let unexcused = fleet.replace_ended()?.into_iter().filter(|ended| !ended.excused);
        found.extend(unexcused.map(|ended| {
            Violation::new(
                "a healthy runner ended by itself",
                "",
                format!("{}: {}", ended.name, ended.last_words),
            )
        }));
        Ok(found)
    }

    /// Nobody writes any more: two runs of each pipeline, of which the first may finish an older pass.
    async fn settle(&self, prober: &mut Prober) -> Result<Vec<Violation>> {
        let mut found = Vec::new();
        let accepted = "update content.shelf set title = 'Calm', version = version + 1 where title is null";
        self.fixture.session().await?.client.batch_execute(accepted).await?;
        self.fixture.remote.calm().await;
        let names: Vec<_> = pipelines::NAMES.into_iter().chain(self.fixture.remote.names()).collect();
        for pipeline in names.iter().chain(&names) {
            if let Err(error) = self.api.succeed(pipeline, CALM).await {
                found.push(Violation::new("a pipeline does not settle", pipeline, error.to_string()));
                break;
            }
        }
        found.extend(self.look(prober).await?);
        let session = self.fixture.session().await?;
        self.fixture.remote.copy(&session.client).await?;
        found.extend(probes::differences(&session.client).await?);
        found.extend(probes::whole_history(&session.client).await?);
        Ok(found)
    }

    fn share(&self) -> Self {
        Self {
            fixture: self.fixture.clone(),
            fleet: Arc::clone(&self.fleet),
            api: Arc::clone(&self.api),
            schedule: self.schedule.clone(),
            tally: Arc::clone(&self.tally),
            found: Arc::clone(&self.found),
            over: self.over.clone(),
        }
    }

    fn report(&self, prober: &Prober, violations: Vec<Violation>) -> Stormed {
        let tally = self.tally.lock().expect("no holder panics");
        Stormed {
            seed: self.schedule.seed,
            seconds: 0.0,
            kills: tally.of(Harm::Kill),
            zombies: tally.of(Harm::Zombie),
            restarts: tally.of(Harm::Restart),
            terminated_sessions: tally.of(Harm::Terminate),
            blocked_marts: tally.of(Harm::Block),
            isolated_runners: tally.of(Harm::Isolate),
            rewrites: tally.of(Harm::Rewrite),
            failpoints: tally.of(Harm::Failpoint),
            api_kills: tally.of(Harm::KillApi),
            search_harms: tally.of(Harm::Search),
            trials: tally.trials.iter().map(|(trial, count)| (trial.name().to_owned(), *count)).collect(),
            api_calls: tally.of(Harm::Ask),
            api_answers: tally
                .answers
                .iter()
                .map(|(status, count)| (status.to_string(), *count))
                .collect::<BTreeMap<_, _>>(),
            runners: self.fleet.lock().expect("no holder panics").started(),
            probes: prober.probes,
            takeovers: prober.takeover_count,
            longest_takeover_seconds: prober.longest_takeover,
            seconds_to_first_violation: tally.first_violation.map(|after| after.as_secs_f64()),
            violations,
            logs: PathBuf::from(&self.fixture.logs),
        }
    }
}

/// The server is away now and then; that it does not come back is noticed by the harm that restarts it.
fn is_away(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    refusal.is_none_or(|state| ["53", "57"].iter().any(|class| state.code().starts_with(class)))
}
