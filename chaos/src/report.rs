//! A summary for people and one JSON file for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Serialize, Serializer};

use crate::probes::Violation;

/// What a storm did and saw.
#[derive(Debug, Serialize)]
pub struct Stormed {
    pub seed: u64,
    pub seconds: f64,
    pub kills: u32,
    pub zombies: u32,
    pub restarts: u32,
    pub terminated_sessions: u32,
    pub blocked_marts: u32,
    pub isolated_runners: u32,
    pub rewrites: u32,
    pub failpoints: u32,
    pub api_kills: u32,
    /// Times that the search server was frozen or killed.
    pub search_harms: u32,
    /// By name, how often each was played to its end.
    pub trials: BTreeMap<String, u32>,
    pub api_calls: u32,
    /// By status; 0 is no answer at all.
    pub api_answers: BTreeMap<String, u32>,
    pub runners: u32,
    pub probes: u64,
    pub takeovers: u64,
    pub longest_takeover_seconds: f64,
    pub seconds_to_first_violation: Option<f64>,
    #[serde(serialize_with = "as_number")]
    pub violations: Vec<Violation>,
    pub logs: PathBuf,
}

/// A bug that was put into the binary by hand.
#[derive(Debug, Serialize)]
pub struct Sought {
    pub bug: String,
    pub found: bool,
    pub seconds: f64,
    pub rule: Option<String>,
    pub detail: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub storm: Option<Stormed>,
    #[serde(rename = "seeded_bugs")]
    pub bugs: Vec<Sought>,
}

/// The summary tells each of them.
fn as_number<S: Serializer>(violations: &[Violation], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(violations.len() as u64)
}

impl Report {
    pub fn is_good(&self) -> bool {
        self.storm.as_ref().is_none_or(|storm| storm.violations.is_empty())
            && self.bugs.iter().all(|bug| bug.found)
    }

    pub fn write(&self, file: &Path) -> Result<()> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(file, serde_json::to_string_pretty(self)? + "\n")?)
    }
}

impl Stormed {
    pub fn summary(&self) -> String {
        let mut text = format!(
            "seed {}: {} kills, {} zombies, {} restarts, {} sessions ended, {} marts blocked, {} runners isolated, {} tables rewritten, {} runners held at a failpoint, {} kills of the API, {} search servers harmed, {} calls of the API in {:.0} s\n",
            self.seed,
            self.kills,
            self.zombies,
            self.restarts,
            self.terminated_sessions,
            self.blocked_marts,
            self.isolated_runners,
            self.rewrites,
            self.failpoints,
            self.api_kills,
            self.search_harms,
            self.api_calls,
            self.seconds
        );
        let trials: Vec<_> = self.trials.iter().map(|(trial, count)| format!("{trial} {count}")).collect();
        writeln!(text, "trials: {}", trials.join(", ")).expect("a string takes everything");
        let answers: Vec<_> =
            self.api_answers.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        writeln!(text, "the API answered {}", answers.join(", ")).expect("a string takes everything");
        writeln!(
            text,
            "{} probes, {} violations; {} takeovers, the longest {:.2} s after its lease",
            self.probes,
            self.violations.len(),
            self.takeovers,
            self.longest_takeover_seconds
        )
        .expect("a string takes everything");
        for violation in &self.violations {
            writeln!(text, "\nVIOLATION {}: {}\n  {}", violation.pipeline, violation.rule, violation.detail)
                .expect("a string takes everything");
            for line in &violation.history {
                writeln!(text, "    {line}").expect("a string takes everything");
            }
        }
        if !self.violations.is_empty() {
            writeln!(text, "\nlogs of all processes: {}", self.logs.display())
                .expect("a string takes everything");
        }
        text
    }
}

impl Sought {
    pub fn summary(&self) -> String {
        match (&self.rule, &self.detail) {
            (Some(rule), Some(detail)) => {
                format!("{:<20} found after {:>5.1} s: {rule} ({detail})", self.bug, self.seconds)
            }
            _ => format!("{:<20} NOT FOUND in {:.0} s", self.bug, self.seconds),
        }
    }
}
