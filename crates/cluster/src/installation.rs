//! Finds the programs of a Postgres server: where the user says, where pg_config says, on PATH, or where
//! the distributions put them.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Result};

/// The oldest major version that Vitrina works with.
pub const OLDEST_MAJOR: u32 = 14;

const PROGRAMS: [&str; 3] = ["initdb", "postgres", "pg_ctl"];

/// `*` stands for a version; the newest is tried first.
const PLACES: [&str; 5] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
];

/// A Postgres server's programs, known to be complete and new enough.
#[derive(Debug, Clone)]
pub struct Installation {
    bindir: PathBuf,
    version: String,
}

impl Installation {
    /// The directory named by VITRINA_PG_BINDIR and no other, or else the first that serves.
    pub fn find() -> Result<Self> {
        Self::find_with(|name| env::var_os(name))
    }

    fn find_with(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        if let Some(bindir) = variable("VITRINA_PG_BINDIR").filter(|value| !value.is_empty()) {
            return Self::at(bindir);
        }
        let path = variable("PATH").unwrap_or_default();
        first_usable(pg_config(&path).into_iter().chain(on_path(&path)).chain(PLACES.iter().flat_map(expand)))
    }

    /// The installation whose programs are in `bindir`.
    pub fn at(bindir: impl Into<PathBuf>) -> Result<Self> {
        let bindir = bindir.into();
        if let Some(missing) = PROGRAMS.into_iter().find(|program| !bindir.join(program).is_file()) {
            return Err(Error::Incomplete { bindir, missing });
        }
        let version = version(&bindir.join("postgres"))?;
        if major(&version) < OLDEST_MAJOR {
            return Err(Error::TooOld { bindir, version });
        }
        Ok(Self { bindir, version })
    }

    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    /// As the server says it: `15.13 (Debian 15.13-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }
}

/// Old installations are passed over, but named when there is nothing better.
fn first_usable(candidates: impl Iterator<Item = PathBuf>) -> Result<Installation> {
    let mut looked = Vec::new();
    let mut unusable = None;
    for bindir in candidates {
        match Installation::at(&bindir) {
            Ok(installation) => return Ok(installation),
            Err(Error::Incomplete { .. }) => {}
            Err(error) => unusable = unusable.or(Some(error)),
        }
        if !looked.contains(&bindir) {
            looked.push(bindir);
        }
    }
    looked.extend(PLACES.iter().map(PathBuf::from));
    Err(unusable.unwrap_or(Error::NoInstallation { looked }))
}

fn pg_config(path: &OsString) -> Option<PathBuf> {
    let output = Command::new("pg_config").env("PATH", path).arg("--bindir").output().ok()?;
    let bindir = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    bindir.is_absolute().then_some(bindir)
}

fn on_path(path: &OsString) -> impl Iterator<Item = PathBuf> {
    env::split_paths(path).filter(|directory| directory.is_absolute())
}

fn expand(pattern: &&str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![PathBuf::from(pattern)];
    };
    let (parent, prefix) = before.rsplit_once('/').expect("every place is an absolute path");
    let mut versions: Vec<String> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            entry.ok()?.file_name().into_string().ok()?.strip_prefix(prefix).map(str::to_owned)
        })
        .collect();
    versions.sort_by_key(|version| std::cmp::Reverse(major(version)));
    versions.into_iter().map(|version| PathBuf::from(format!("{before}{version}{after}"))).collect()
}

fn version(postgres: &Path) -> Result<String> {
    let output = Command::new(postgres)
        .arg("--version")
        .output()
        .map_err(|cause| Error::Spawn { program: postgres.to_owned(), cause })?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().trim_start_matches("postgres (PostgreSQL) ").to_owned())
}

/// Zero when there is no number: what does not tell its version is not taken.
fn major(version: &str) -> u32 {
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn pretend(directory: &Path, version: &str) {
        for program in PROGRAMS {
            let path = directory.join(program);
            fs::write(&path, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn a_directory_given_by_the_user_is_the_only_one_tried() {
        let empty = tempfile::tempdir().unwrap();
        let error = Installation::find_with(|name| match name {
            "VITRINA_PG_BINDIR" => Some(empty.path().into()),
            other => env::var_os(other),
        })
        .unwrap_err()
        .to_string();
        assert!(error.starts_with(&format!("{} has no initdb\nhint: ", empty.path().display())), "{error}");
    }

    #[test]
    fn without_an_installation_the_error_says_where_it_looked_and_what_to_install() {
        let looked_at = PathBuf::from("/nowhere/bin");
        let error = first_usable(std::iter::once(looked_at)).unwrap_err().to_string();
        assert!(error.contains("/nowhere/bin, /usr/lib/postgresql/*/bin"), "{error}");
        assert!(error.contains("hint: `apt-get install postgresql`"), "{error}");
    }

    #[test]
    fn an_old_version_is_named_with_its_number() {
        let directory = tempfile::tempdir().unwrap();
        pretend(directory.path(), "13.20");
        let error = Installation::at(directory.path()).unwrap_err().to_string();
        assert!(error.starts_with("Postgres 13.20 in "), "{error}");
    }

    #[test]
    fn an_old_version_is_passed_over_for_a_newer_one() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        pretend(old.path(), "13.20");
        pretend(new.path(), "18beta1");
        let candidates = [old.path().to_owned(), new.path().to_owned()];
        assert_eq!(first_usable(candidates.into_iter()).unwrap().version(), "18beta1");
    }
}
