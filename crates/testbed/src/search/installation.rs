//! What a server is started from: its packages, a launcher, and Java.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Distribution;

#[derive(Debug)]
pub(super) struct Installation {
    pub(super) java: PathBuf,
    /// The folder of its packages, which only we may be able to enter.
    pub(super) packages: PathBuf,
    pub(super) launcher: PathBuf,
    /// Where options of Java are.
    pub(super) folder: PathBuf,
}

/// What a server is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To start often, live briefly and hold little.
    Tests,
    /// To be measured.
    Work,
}

impl Purpose {
    /// The file with the options of Java.
    pub(super) fn options(self) -> &'static str {
        match self {
            Self::Tests => "brief.options",
            Self::Work => "work.options",
        }
    }
}

impl Installation {
    pub(super) fn find(distribution: Distribution) -> Result<Self, String> {
        let name = distribution.name();
        let packages = ask("path", name)
            .ok_or(format!("{name} was not fetched\nhint: scripts/search install {name}"))?;
        let java = ask("java", name)
            .ok_or(format!("there is no Java to run {name}\nhint: TESTS=1 scripts/bootstrap"))?;
        let folder = root().join("tests/search");
        let launcher = folder.join(name).join("Launcher.java");
        Ok(Self { java, packages, launcher, folder })
    }
}

fn ask(what: &str, name: &str) -> Option<PathBuf> {
    let script = root().join("scripts/search");
    let asked = Command::new(&script).args([what, name]).output();
    let asked = asked.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let line = asked.stdout.strip_suffix(b"\n").unwrap_or(&asked.stdout).to_vec();
    asked.status.success().then(|| OsString::from_vec(line).into())
}

fn root() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("this crate is two folders below the root")
}
