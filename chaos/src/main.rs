//! `make chaos`: the storm on the binary as it is, then on binaries with one bug each, which it must find.
//! CHAOS_SECONDS, _KILLS, _ZOMBIES, _RESTARTS and _SEED choose the storm, CHAOS_BUGS the bugs: names, `all` or `none`.
//! CHAOS_TRIALS leaves nothing of the storm but these trials.
#![allow(clippy::print_stdout)] // its summary is its output

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};
use vitrina_chaos::bugs::{self, Bug, Workshop};
use vitrina_chaos::report::Report;
use vitrina_chaos::{FaultSchedule, Trial, storm};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut terminated = signal(SignalKind::terminate())?;
    // Ended from outside it still takes its processes with it.
    let report = tokio::select! {
        report = run() => report?,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    };
    report.write("target/chaos.json".as_ref())?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run() -> Result<Report> {
    let schedule = schedule()?;
    let bugs = chosen_bugs()?;
    let folder = tempfile::Builder::new().prefix("vitrina-chaos-").tempdir()?;
    let mut report = Report::default();
    if !schedule.length.is_zero() {
        eprintln!("storm of {} s, seed {} …", schedule.length.as_secs(), schedule.seed);
        let stormed = storm(&binary(folder.path())?, &folder.path().join("storm"), &schedule).await?;
        print!("{}", stormed.summary());
        report.storm = Some(stormed);
    }
    let workshop = Workshop::open()?;
    for bug in bugs {
        eprintln!("{}: {} …", bug.name, bug.about);
        let sought = workshop.hunt(bug, &folder.path().join(bug.name), schedule.seed).await?;
        println!("{}", sought.summary());
        report.bugs.push(sought);
    }
    if !report.is_good() {
        // With the logs that tell why.
        drop(folder.keep());
    }
    Ok(report)
}

/// A copy, because the original may be built anew under the storm.
fn binary(folder: &std::path::Path) -> Result<PathBuf> {
    let given = std::env::var("CHAOS_BINARY").context("CHAOS_BINARY names the binary: run `make chaos`")?;
    let copy = folder.join("vitrina");
    std::fs::copy(&given, &copy).with_context(|| given)?;
    Ok(copy)
}

fn schedule() -> Result<FaultSchedule> {
    let seed = variable("CHAOS_SEED")?.unwrap_or_else(|| std::process::id().into());
    let mut schedule =
        FaultSchedule { search: true, ..FaultSchedule::of(seed, variable("CHAOS_SECONDS")?.unwrap_or(900)) };
    schedule.kills = variable("CHAOS_KILLS")?.unwrap_or(schedule.kills);
    schedule.zombies = variable("CHAOS_ZOMBIES")?.unwrap_or(schedule.zombies);
    schedule.restarts = variable("CHAOS_RESTARTS")?.unwrap_or(schedule.restarts);
    if let Some(trials) = chosen_trials()? {
        schedule.only(&trials);
    }
    Ok(schedule)
}

/// A storm of nothing else, to see what is wrong with one.
fn chosen_trials() -> Result<Option<Vec<Trial>>> {
    let Some(wanted) = std::env::var("CHAOS_TRIALS").ok().filter(|names| !names.is_empty()) else {
        return Ok(None);
    };
    let known = || Trial::ALL.map(Trial::name).join(", ");
    let find = |name: &str| {
        let found = Trial::ALL.into_iter().find(|trial| trial.name() == name);
        found.with_context(|| format!("no trial is called {name:?}: one of {}", known()))
    };
    wanted.split([',', ' ']).filter(|name| !name.is_empty()).map(find).collect::<Result<_>>().map(Some)
}

fn variable<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str) -> Result<Option<T>> {
    let given = std::env::var(name).ok().filter(|text| !text.is_empty());
    given.map(|text| text.parse().with_context(|| format!("{name} is a number"))).transpose()
}

fn chosen_bugs() -> Result<Vec<&'static Bug>> {
    let wanted =
        std::env::var("CHAOS_BUGS").ok().filter(|names| !names.is_empty()).unwrap_or_else(|| "all".into());
    match wanted.as_str() {
        "all" => return Ok(bugs::ALL.iter().collect()),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let known = || bugs::ALL.iter().map(|bug| bug.name).collect::<Vec<_>>().join(", ");
    let find = |name: &str| {
        let found = bugs::ALL.iter().find(|bug| bug.name == name);
        found.with_context(|| format!("no bug is called {name:?}: one of {}", known()))
    };
    wanted.split([',', ' ']).filter(|name| !name.is_empty()).map(find).collect()
}
