//! Bugs that are put into a copy of the sources, one at a time, each with a storm in which it shows.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::report::Sought;
use crate::{FaultSchedule, Trial, storm};

#[derive(Debug)]
pub struct Bug {
    pub name: &'static str,
    pub about: &'static str,
    patch: &'static str,
    /// How the rules begin that it breaks: whatever else goes wrong meanwhile does not show it.
    shows_as: &'static [&'static str],
    /// The faults that brings it to light.
    tune: fn(&mut FaultSchedule),
}

macro_rules! bug {
    ($name:literal, $about:literal, $shows_as:expr, $tune:expr) => {
        Bug {
            name: $name,
            about: $about,
            patch: include_str!(concat!("../bugs/", $name, ".patch")),
            shows_as: &$shows_as,
            tune: $tune,
        }
    };
}

pub const ALL: &[Bug] = &[
    bug!(
        "fence",
        "a batch is committed whoever owns the pipeline, on whatever checkpoint",
        ["a batch was committed by someone who is not the owner"],
        |schedule| {
            (schedule.kills, schedule.zombies, schedule.terminations) = (0, 0, 0);
            (schedule.isolations, schedule.own_logins) = (120, true);
        }
    ),
    bug!(
        "second-transaction",
        "the checkpoint is committed before the rows, not with them",
        ["rows were committed apart from their batch", LOST],
        |_| {}
    ),
    bug!(
        "finish",
        "a run is ended by whoever thinks he owns it",
        ["a run was ended by someone who is not its owner"],
        |schedule| schedule.zombies = 120
    ),
    bug!("recovery", "runs are taken over while their lease is alive", ["a live lease was taken"], |_| {}),
    bug!(
        "cursor",
        "reading goes on from the greatest cursor, and late transactions are missed",
        [LOST, "in the end the mart differs from its source"],
        |schedule| (schedule.kills, schedule.zombies, schedule.writers) = (0, 0, 10)
    ),
    bug!(
        "heartbeat",
        "leases are not renewed while a batch is under way",
        ["a healthy runner lost its lease"],
        |schedule| {
            (schedule.kills, schedule.zombies, schedule.terminations, schedule.isolations) = (0, 0, 0, 0);
            schedule.blocks = 120;
        }
    ),
    bug!(
        "figures",
        "a run that is taken over counts its rows anew",
        ["a run's figures are not the sum of its batches"],
        |_| {}
    ),
    bug!(
        "disabled",
        "a disabled pipeline whose runner died is left alone",
        ["nobody took over"],
        |schedule| (schedule.kills, schedule.blocks, schedule.calls, schedule.disables) =
            (480, 120, 2400, 0.2)
    ),
    bug!(
        "snapshot",
        "the snapshot is taken before tables are locked, and a truncated one looks empty",
        [LOST, "a mart was emptied", "a row vanished that its source still has"],
        |schedule| {
            schedule.only(&[]);
            (schedule.writers, schedule.rewrites) = (6, 720);
        }
    ),
    bug!(
        "refused-row",
        "the next COPY is sent before it is known whether the last one failed",
        ["a run is stuck", "a run failed", "a pipeline does not settle"],
        |schedule| {
            schedule.only(&[]);
            schedule.writers = 6;
        }
    ),
    bug!("old-load", "a load continues what another run has left", [DIFFERS], |schedule| {
        schedule.only(&[Trial::FailedLoad]);
    }),
    bug!("two-writers", "a mart is written by whoever asks", ["a second pipeline wrote"], |schedule| {
        schedule.only(&[Trial::SecondWriter]);
    }),
    bug!(
        "column-type",
        "a column that got another type is read as if it had the old one",
        [DIFFERS],
        |schedule| {
            schedule.only(&[Trial::RetypedColumn]);
        }
    ),
    bug!(
        "restored-source",
        "a source that has gone back in time is believed",
        ["a mart differs from a source that was restored"],
        |schedule| schedule.only(&[Trial::RestoredSource])
    ),
    bug!("rounding", "a mart takes values that it rounds", [DIFFERS], |schedule| schedule
        .only(&[Trial::WidenedNumeric])),
    bug!(
        "delete-steps",
        "the delete limit counts anew with every attempt",
        ["the delete limit was passed", "a run above its delete limit succeeded"],
        |schedule| schedule.only(&[Trial::DeleteLimit])
    ),
    bug!(
        "emptied-mart",
        "a mart that somebody has emptied is believed to hold what it held",
        [DIFFERS],
        |schedule| schedule.only(&[Trial::ReplacedMart])
    ),
    bug!(
        "null-is-zero",
        "a comparison takes NULL for zero",
        ["a comparison does not see that a mart differs"],
        |schedule| schedule.only(&[Trial::Comparison])
    ),
];

const LOST: &str = "the checkpoint is ahead of the mart";
const DIFFERS: &str = "a mart differs after its run";

/// A bug that does not show within this time counts as not found.
const LONGEST_HUNT: u32 = 240;

/// Where copies of the sources and the binaries made of them are kept.
#[derive(Debug)]
pub struct Workshop {
    sources: PathBuf,
    folder: PathBuf,
}

impl Workshop {
    /// For the sources of this workspace.
    pub fn open() -> Result<Self> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a workspace")?.to_owned();
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let folder = cache.context("HOME says where the cache is")?.join("vitrina/chaos");
        fs::create_dir_all(folder.join("binaries"))?;
        Ok(Self { sources, folder })
    }

    /// Builds the binary with the bug, unless that has been done before, and storms until it shows.
    pub async fn hunt(&self, bug: &Bug, folder: &Path, seed: u64) -> Result<Sought> {
        let binary = self.build(bug).with_context(|| format!("the binary with bug {}", bug.name))?;
        let mut schedule =
            FaultSchedule { sought: bug.shows_as, restarts: 0, ..FaultSchedule::of(seed, LONGEST_HUNT) };
        (bug.tune)(&mut schedule);
        let stormed = storm(&binary, folder, &schedule).await?;
        let first = stormed.violations.first();
        Ok(Sought {
            bug: bug.name.to_owned(),
            found: first.is_some(),
            seconds: stormed.seconds_to_first_violation.unwrap_or(stormed.seconds),
            rule: first.map(|violation| violation.rule.clone()),
            detail: first.map(|violation| format!("{}: {}", violation.pipeline, violation.detail)),
        })
    }

    fn build(&self, bug: &Bug) -> Result<PathBuf> {
        let files = self.files()?;
        let binary = self.folder.join("binaries").join(format!("{}-{}", bug.name, self.mark(&files, bug)?));
        if binary.exists() {
            return Ok(binary);
        }
        eprintln!("{}: building …", bug.name);
        let copy = self.copy(&files)?;
        self.apply(bug, &copy)?;
        let made = cargo_build(&copy)?;
        for older in fs::read_dir(self.folder.join("binaries"))?.flatten() {
            if older.file_name().to_string_lossy().starts_with(&format!("{}-", bug.name)) {
                fs::remove_file(older.path())?;
            }
        }
        fs::copy(&made, &binary)?;
        // It must not be taken for the real one, which the next `cargo build` puts back.
        fs::remove_file(&made)?;
        Ok(binary)
    }

    /// All that a build needs, by its path in the workspace.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.sources)
            .output()?;
        ensure!(listed.status.success(), "git cannot list the sources");
        let names = String::from_utf8(listed.stdout)?;
        let files = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
        Ok(files.filter(|file| self.sources.join(file).is_file()).collect())
    }

    /// What the binary is made of: the same again need not be built again.
    fn mark(&self, files: &[PathBuf], bug: &Bug) -> Result<String> {
        let mut hash = Sha256::new();
        hash.update(bug.patch);
        let parts = ["crates", "examples", "sql", "Cargo.toml", "Cargo.lock"];
        for file in files.iter().filter(|file| parts.iter().any(|part| file.starts_with(part))) {
            hash.update(file.to_string_lossy().as_bytes());
            hash.update(fs::read(self.sources.join(file))?);
        }
        Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Files that are the same stay untouched, so that cargo builds only what differs.
    fn copy(&self, files: &[PathBuf]) -> Result<PathBuf> {
        let copy = self.folder.join("sources");
        for file in files {
            let (from, to) = (self.sources.join(file), copy.join(file));
            let content = fs::read(&from)?;
            if fs::read(&to).is_ok_and(|there| there == content) {
                continue;
            }
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(&from, &to)?;
            // Its own time would be older than what was built of the bug before.
            fs::File::options().write(true).open(&to)?.set_modified(std::time::SystemTime::now())?;
        }
        // A migration that is no more would be built in.
        remove_others(&copy.join("crates"), &files.iter().map(|file| copy.join(file)).collect())?;
        Ok(copy)
    }

    fn apply(&self, bug: &Bug, copy: &Path) -> Result<()> {
        let patch = self.folder.join("bug.patch");
        fs::write(&patch, bug.patch)?;
        // Not as part of a repository that the cache may lie in.
        let status = Command::new("git")
            .arg("apply")
            .arg(&patch)
            .current_dir(copy)
            .env("GIT_CEILING_DIRECTORIES", &self.folder)
            .status()?;
        ensure!(status.success(), "chaos/bugs/{}.patch does not fit the sources any more", bug.name);
        Ok(())
    }
}

fn remove_others(folder: &Path, kept: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => remove_others(&path, kept)?,
            false if kept.contains(&path) => {}
            false => fs::remove_file(&path)?,
        }
    }
    Ok(())
}

/// As `make build` does, with the dependencies that it has built already; the wrapper keeps this copy's crates apart.
fn cargo_build(copy: &Path) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| copy.join("target"), PathBuf::from);
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--workspace", "--bin", "vitrina", "--test", "database"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC_WORKSPACE_WRAPPER", copy.join("scripts/rustc"))
        .status()?;
    ensure!(status.success(), "cargo build failed");
    // Timestamps of files are compared in whole steps of the clock: the next patch must not share one.
    std::thread::sleep(Duration::from_millis(20));
    Ok(target.join("debug/vitrina"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(folder: &Path) -> String {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let text = |path: PathBuf| match path.is_dir() {
            true => texts(&path),
            false if path.ends_with("bugs.rs") => String::new(),
            false => fs::read_to_string(path).unwrap(),
        };
        entries.map(text).collect()
    }

    #[test]
    fn every_bug_fits_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for bug in ALL {
            let patch = format!("chaos/bugs/{}.patch", bug.name);
            let status =
                Command::new("git").args(["apply", "--check", &patch]).current_dir(root).status().unwrap();
            assert!(status.success(), "{patch}");
        }
    }

    #[test]
    fn every_rule_that_a_bug_shows_by_is_one_that_the_storm_looks_after() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let told = texts(&here.join("src")) + &texts(&here.join("sql"));
        for bug in ALL {
            for rule in bug.shows_as {
                assert!(told.contains(rule), "{}: {rule}", bug.name);
            }
        }
    }
}
