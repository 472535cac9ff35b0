//! What is done to Vitrina, each kind at its own pace, until the storm is over.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::failpoints;
use crate::fault_schedule::FaultSchedule;
use crate::isolation;
use crate::pipelines::NAMES;
use crate::rewrites;
use crate::rng::Rng;
use crate::storm::Storm;
use crate::trials::Trial;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Harm {
    /// `kill -9`
    Kill,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    Zombie,
    /// Postgres crashes and starts again.
    Restart,
    /// A session of Vitrina is ended at the server.
    Terminate,
    /// A mart is locked for longer than a lease: its writer waits, and must keep what it has.
    Block,
    /// A runner's sessions at the meta-store hang and its mart is locked, until somebody has taken its place: then
    /// it goes on, not knowing, with only the fence before it.
    Isolate,
    /// A table of the source, or a mart, is rewritten or changed, as its owner may do at any time.
    Rewrite,
    /// A runner is held in the middle of a merge or at the end of a run, and killed or stopped there.
    Failpoint,
    /// `kill -9` of the API, which is started again.
    KillApi,
    /// The search server is frozen for a while, or killed and started again.
    Search,
    /// Somebody asks the API for something.
    Ask,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: BTreeMap<Harm, u32>,
    pub(crate) answers: BTreeMap<u16, u32>,
    /// Trials that were played to their end.
    pub(crate) trials: BTreeMap<Trial, u32>,
    pub(crate) first_violation: Option<Duration>,
}

impl Tally {
    pub(crate) fn of(&self, harm: Harm) -> u32 {
        self.done.get(&harm).copied().unwrap_or_default()
    }
}

impl Harm {
    pub(crate) const ALL: [Self; 11] = [
        Self::Kill,
        Self::Zombie,
        Self::Restart,
        Self::Terminate,
        Self::Block,
        Self::Isolate,
        Self::Rewrite,
        Self::Failpoint,
        Self::KillApi,
        Self::Search,
        Self::Ask,
    ];

    fn times(self, schedule: &FaultSchedule) -> u32 {
        match self {
            Self::Kill => schedule.kills,
            Self::Zombie => schedule.zombies,
            Self::Restart => schedule.restarts,
            Self::Terminate => schedule.terminations,
            Self::Block => schedule.blocks,
            Self::Isolate => schedule.isolations,
            Self::Rewrite => schedule.rewrites,
            Self::Failpoint => schedule.failpoints,
            Self::KillApi => schedule.api_kills,
            Self::Search => schedule.search_harms,
            Self::Ask => schedule.calls,
        }
    }
}

/// The harm at its pace. What takes longer than its pace is made up for, so that the numbers come true.
pub(crate) async fn keep_harming(storm: Storm, harm: Harm, mut rng: Rng) -> Result<()> {
    let Some(every) = storm.schedule.every(harm.times(&storm.schedule)) else { return Ok(()) };
    let started = tokio::time::Instant::now();
    let mut times = 0;
    while !storm.over.is_cancelled() && times < harm.times(&storm.schedule) {
        let due = started + every * times + every.mul_f64(rng.share());
        tokio::select! {
            () = storm.over.cancelled() => break,
            () = tokio::time::sleep_until(due) => {}
        }
        if storm.do_harm(harm, &mut rng).await? {
            *storm.tally.lock().expect("no holder panics").done.entry(harm).or_default() += 1;
        }
        times += 1;
    }
    Ok(())
}

/// Writers come back when the server does.
pub(crate) async fn keep_writing(storm: Storm) -> Result<()> {
    let call = format!("call chaos.work(1, {})", storm.schedule.breath.as_secs_f64());
    while !storm.over.is_cancelled() {
        let Ok(session) = storm.fixture.session().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        while !storm.over.is_cancelled() && session.client.batch_execute(&call).await.is_ok() {}
    }
    Ok(())
}

impl Storm {
    /// Answers whether there was anything to harm.
    async fn do_harm(&self, harm: Harm, rng: &mut Rng) -> Result<bool> {
        match harm {
            Harm::Kill => {
                let at_work = self.at_work().await;
                self.fleet.lock().expect("no holder panics").kill(&at_work, rng)
            }
            Harm::Zombie => Ok(self.stop_for_long(rng).await),
            Harm::Restart => self.restart().await,
            Harm::Terminate => Ok(self.terminate(rng).await.unwrap_or(false)),
            Harm::Block => Ok(self.block(rng).await.is_ok()),
            Harm::Isolate => Ok(isolation::isolate(self, rng).await.unwrap_or(false)),
            Harm::Rewrite => Ok(rewrites::rewrite(self, rng).await.is_ok()),
            Harm::Failpoint => Ok(failpoints::hold(self, rng).await.unwrap_or(false)),
            Harm::KillApi => {
                self.api.restart()?;
                Ok(true)
            }
            Harm::Search => Ok(self.fixture.remote.harm(rng).await),
            Harm::Ask => Ok(self.ask(rng).await),
        }
    }

    /// Runners that own a pipeline, as far as the server can say.
    async fn at_work(&self) -> Vec<String> {
        let sql = "select runner from etl.etl_attempts where ended_at is null";
        let Ok(session) = self.fixture.session().await else { return Vec::new() };
        let rows = session.client.query(sql, &[]).await.unwrap_or_default();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn stop_for_long(&self, rng: &mut Rng) -> bool {
        let at_work = self.at_work().await;
        let stopped = self.fleet.lock().expect("no holder panics").stop(&at_work, rng);
        let Some(name) = stopped else { return false };
        let (least, most) = self.schedule.long_stop();
        sleep(rng.between(least, most)).await;
        self.fleet.lock().expect("no holder panics").wake(&name);
        true
    }

    async fn restart(&self) -> Result<bool> {
        self.fleet.lock().expect("no holder panics").server_goes();
        self.fixture.restart().await?;
        self.fleet.lock().expect("no holder panics").server_comes()?;
        Ok(true)
    }

    async fn terminate(&self, rng: &mut Rng) -> Result<bool> {
        let session = self.fixture.session().await?;
        let sql = "select pid, client_port, application_name from pg_stat_activity
                    where datname = current_database() and application_name like 'vitrina%' order by pid";
        let rows = session.client.query(sql, &[]).await?;
        let Some(row) = rng.pick(&rows) else { return Ok(false) };
        let (pid, port): (i32, i32) = (row.get(0), row.get(1));
        let Ok(port) = u16::try_from(port) else { return Ok(false) };
        if !self.fleet.lock().expect("no holder panics").disturb_peer(port, row.get(2)) {
            return Ok(false);
        }
        let ended = session.client.query_one("select pg_terminate_backend($1)", &[&pid]).await?;
        Ok(ended.get(0))
    }

    async fn block(&self, rng: &mut Rng) -> Result<()> {
        let session = self.fixture.session().await?;
        let mart = rng.pick(&NAMES).copied().unwrap_or(NAMES[0]);
        session.client.batch_execute(&format!("begin; lock table analytics.{mart} in share mode")).await?;
        let length = rng.about(self.schedule.lease.mul_f64(1.5));
        tokio::select! {
            () = self.over.cancelled() => {}
            () = sleep(length) => {}
        }
        Ok(())
    }

    async fn ask(&self, rng: &mut Rng) -> bool {
        let names: Vec<_> = NAMES.into_iter().chain(self.fixture.remote.names()).collect();
        let pipeline = rng.pick(&names).copied().unwrap_or(NAMES[0]);
        let status = self.api.ask_something(pipeline, self.schedule.disables, rng).await.unwrap_or(0);
        *self.tally.lock().expect("no holder panics").answers.entry(status).or_default() += 1;
        true
    }
}
