//! The one fault that is aimed: a runner that continues while its heartbeats do not arrive. Its lease ends while its batch
//! waits for a lock; the lock is released at the very moment another runner has the lease.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use crate::fleet::socket_of;
use crate::rng::Rng;
use crate::storm::Storm;

const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// Server processes that are stopped, and go on when this is dropped.
struct StoppedSessions(Vec<Pid>);

impl Drop for StoppedSessions {
    fn drop(&mut self) {
        for pid in &self.0 {
            kill(*pid, Signal::SIGCONT).ok();
        }
    }
}

/// Runs are short, and many end before the lock is there.
const TRIES: usize = 30;

/// Answers whether somebody has taken the runner's place.
pub(crate) async fn isolate(storm: &Storm, rng: &mut Rng) -> Result<bool> {
    for _ in 0..TRIES {
        if storm.over.is_cancelled() || try_to_isolate(storm, rng).await.unwrap_or(false) {
            break;
        }
        sleep(rng.about(Duration::from_millis(50))).await;
    }
    Ok(!storm.over.is_cancelled())
}

async fn try_to_isolate(storm: &Storm, rng: &mut Rng) -> Result<bool> {
    let (session, watcher) = (storm.fixture.session().await?, storm.fixture.session().await?);
    let sql = "select p.name, p.lease_token, a.runner from etl.etl_pipelines p
                 join etl.etl_attempts a on a.run_id = p.run_id and a.ended_at is null
                where p.status = 'RUNNING' and to_regclass('analytics.' || p.name) is not null";
    let rows = watcher.client.query(sql, &[]).await?;
    let Some(row) = rng.pick(&rows) else { return Ok(false) };
    let (mart, token, runner): (&str, i64, &str) = (row.get(0), row.get(1), row.get(2));
    let sockets = storm.fleet.lock().expect("no holder panics").disturb_by_name(runner);
    let Some(sockets) = sockets else { return Ok(false) };
    let lock = format!("begin; set local lock_timeout = '500ms'; lock table analytics.{mart} in share mode");
    session.client.batch_execute(&lock).await?;
    let Some(stopped) = stop_idle_sessions(&watcher.client, &sockets).await? else { return Ok(false) };
    let replaced = wait_for_another(&watcher.client, mart, token, storm.schedule.lease * 2).await?;
    session.client.batch_execute("rollback").await?;
    sleep(Duration::from_millis(200)).await;
    drop(stopped);
    Ok(replaced)
}

/// Stops the server's ends of a runner's sessions at the meta-store, if all of them are idle: one that is stopped
/// in the middle of something might stop the whole server.
async fn stop_idle_sessions(watcher: &Client, sockets: &[String]) -> Result<Option<StoppedSessions>> {
    let idle = "select pid, client_port, state = 'idle' from pg_stat_activity where application_name = 'vitrina-runner'";
    let is_its = |row: &tokio_postgres::Row| {
        let socket = u16::try_from(row.get::<_, i32>(1)).ok().and_then(socket_of);
        socket.is_some_and(|socket| sockets.contains(&socket))
    };
    let rows = watcher.query(idle, &[]).await?;
    let pids: Vec<i32> = rows.iter().filter(|row| is_its(row)).map(|row| row.get(0)).collect();
    let stopped = StoppedSessions(pids.iter().map(|pid| Pid::from_raw(*pid)).collect());
    for pid in &stopped.0 {
        kill(*pid, Signal::SIGSTOP)?;
    }
    let again = "select count(*) from pg_stat_activity where pid = any($1) and state <> 'idle'";
    let asked = timeout(Duration::from_millis(300), watcher.query_one(again, &[&pids])).await;
    Ok(matches!(asked, Ok(Ok(row)) if row.get::<_, i64>(0) == 0).then_some(stopped))
}

async fn wait_for_another(watcher: &Client, mart: &str, token: i64, patience: Duration) -> Result<bool> {
    let started = Instant::now();
    while started.elapsed() < patience {
        let now = "select lease_token, status from etl.etl_pipelines where name = $1";
        let row = watcher.query_one(now, &[&mart]).await?;
        if row.get::<_, i64>(0) > token {
            return Ok(true);
        }
        if row.get::<_, &str>(1) != "RUNNING" {
            return Ok(false);
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(false)
}
