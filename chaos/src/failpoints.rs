//! Runners that are caught at a point of their work, by a lock that the harness's triggers take there, and killed or stopped
//! in it. What a runner has sent by then happens when the lock goes, whoever owns the pipeline by that time.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use crate::fleet::socket_of;
use crate::rng::Rng;
use crate::storm::Storm;

/// Of the triggers: before rows of a mart are written, and before a run is ended.
const POINTS: [i32; 2] = [1, 2];
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// Answers whether somebody was caught and harmed.
pub(crate) async fn hold(storm: &Storm, rng: &mut Rng) -> Result<bool> {
    let (holder, watcher) = (storm.fixture.session().await?, storm.fixture.session().await?);
    let point = rng.pick(&POINTS).copied().unwrap_or(POINTS[0]);
    let lock = format!("set lock_timeout = '1s'; select pg_advisory_lock(4711, {point})");
    holder.client.batch_execute(&lock).await?;
    let Some(port) = caught(&watcher.client, point).await? else { return Ok(false) };
    let stopped = rng.share() < 0.5;
    let harmed = {
        let mut fleet = storm.fleet.lock().expect("no holder panics");
        let name = socket_of(port).and_then(|socket| fleet.holder_of(&socket));
        match name {
            Some(name) if stopped => fleet.stop_this(&name).then_some(name),
            Some(name) => fleet.kill_this(&name)?.then_some(name),
            None => None,
        }
    };
    let Some(name) = harmed else { return Ok(false) };
    // A row of the pipeline may be locked for as long: shorter than anybody waits for a takeover.
    sleep(rng.between(Duration::from_millis(100), storm.schedule.lease.mul_f64(1.2))).await;
    drop(holder);
    if stopped {
        sleep(rng.about(storm.schedule.lease)).await;
        storm.fleet.lock().expect("no holder panics").wake(&name);
    }
    Ok(true)
}

/// The port of a session that has come to this point.
async fn caught(watcher: &Client, point: i32) -> Result<Option<u16>> {
    let sql = "select a.client_port from pg_locks l join pg_stat_activity a on a.pid = l.pid
                where l.locktype = 'advisory' and l.classid = 4711 and l.objid = $1::int::oid and not l.granted limit 1";
    let started = Instant::now();
    while started.elapsed() < LONGEST_WAIT {
        if let Some(row) = watcher.query_opt(sql, &[&point]).await? {
            return Ok(u16::try_from(row.get::<_, i32>(0)).ok());
        }
        sleep(LOOK).await;
    }
    Ok(None)
}
