//! What must hold at every moment, looked at in one snapshot: one repeatable-read transaction a probe.

mod history;
mod marts;
mod pace;
mod runs;

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tokio_postgres::Client;

use self::pace::Pace;
use crate::fixture::{Fixture, Session};
use crate::fleet::Fleet;

pub use marts::differences;
pub use runs::{left_behind, whole_history};

/// Something that must never be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub rule: String,
    pub pipeline: String,
    pub detail: String,
    /// What the pipeline went through before, oldest first.
    pub history: Vec<String>,
}

impl Violation {
    pub fn new(rule: &str, pipeline: &str, detail: impl Into<String>) -> Self {
        Self {
            rule: rule.to_owned(),
            pipeline: pipeline.to_owned(),
            detail: detail.into(),
            history: Vec::new(),
        }
    }
}

/// The locks come before the snapshot: to an older one a table that was truncated or rewritten meanwhile is empty.
const BEGIN: &str = "begin isolation level repeatable read read only;
    lock table content.film, content.rating, content.role, content.shelf, content.actor in access share mode";

/// Whoever reads all of a target all the time leaves nothing of the machine to others.
const BETWEEN_COPIES: Duration = Duration::from_millis(500);

/// What the probes remember from one to the next.
#[derive(Debug)]
pub struct Prober {
    fixture: Fixture,
    session: Option<Session>,
    blamed: Fresh,
    takeovers: Fresh,
    closings: Fresh,
    marks: marts::Marks,
    /// Things that last are told once.
    told: HashSet<(String, String)>,
    /// When remote targets were copied last.
    copied: Option<Instant>,
    pace: Pace,
    pub probes: u64,
    pub longest_takeover: f64,
    pub takeover_count: u64,
}

impl Prober {
    pub fn new(fixture: &Fixture) -> Self {
        Self {
            fixture: fixture.clone(),
            session: None,
            blamed: Fresh::of("chaos.violations"),
            takeovers: Fresh::of("chaos.takeovers"),
            closings: Fresh::of("chaos.closings"),
            marks: marts::Marks::default(),
            told: HashSet::new(),
            copied: None,
            pace: Pace::default(),
            probes: 0,
            longest_takeover: 0.0,
            takeover_count: 0,
        }
    }

    /// One look at everything; an error means that the server is away.
    pub async fn probe(&mut self, fleet: &Mutex<Fleet>) -> Result<Vec<Violation>> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.fixture.session().await?,
        };
        if self.copied.is_none_or(|copied| copied.elapsed() > BETWEEN_COPIES) {
            self.fixture.remote.copy(&session.client).await?;
            self.copied = Some(Instant::now());
        }
        self.pace.measure(&session.client).await?;
        // Dropped with its transaction when anything fails.
        session.client.batch_execute(BEGIN).await?;
        let mut found = self.look(&session.client, fleet).await?;
        session.client.batch_execute("commit").await?;
        found.retain(|violation| self.told.insert((violation.rule.clone(), violation.pipeline.clone())));
        for violation in &mut found {
            violation.history = history::of(&session.client, &violation.pipeline).await?;
        }
        self.session = Some(session);
        self.probes += 1;
        Ok(found)
    }

    async fn look(&mut self, client: &Client, fleet: &Mutex<Fleet>) -> Result<Vec<Violation>> {
        let mut found = self.blamed(client).await?;
        found.extend(self.takeovers(client, fleet).await?);
        found.extend(self.failures(client).await?);
        found.extend(marts::torn_or_ahead(client).await?);
        found.extend(self.marks.check(client).await?);
        found.extend(runs::wrong_figures(client).await?);
        found.extend(runs::too_many_open(client).await?);
        found.extend(runs::apart_from_their_batch(client).await?);
        found.extend(runs::stuck(client).await?);
        let healthy = fleet.lock().expect("no holder panics").healthy_for();
        found.extend(runs::left_behind(client, healthy, self.pace.slowness()).await?);
        Ok(found)
    }
}

/// Rows of a log that were not there before. Numbers are given out before the commit: a lower one may come later.
#[derive(Debug)]
struct Fresh {
    table: &'static str,
    highest: i64,
    seen: HashSet<i64>,
}

const OUT_OF_ORDER: i64 = 500;

impl Fresh {
    fn of(table: &'static str) -> Self {
        Self { table, highest: 0, seen: HashSet::new() }
    }

    async fn rows(&mut self, client: &Client, columns: &str) -> Result<Vec<tokio_postgres::Row>> {
        let sql = format!("select seq, {columns} from {} where seq > $1 order by seq", self.table);
        let mut rows = client.query(&sql, &[&(self.highest - OUT_OF_ORDER)]).await?;
        rows.retain(|row| self.seen.insert(row.get(0)));
        self.highest = rows.last().map_or(self.highest, |row| self.highest.max(row.get(0)));
        Ok(rows)
    }
}
