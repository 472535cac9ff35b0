//! As whom a server runs: ourselves or, because Postgres refuses root, another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use nix::unistd::{Gid, Uid, User};

use crate::{Error, Result};

/// What programs need whatever they do.
const VARIABLES: [&str; 7] = ["PATH", "HOME", "USER", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "JAVA_HOME"];

#[derive(Debug, Clone)]
pub struct Account {
    /// `None` when the server runs as the user who runs us.
    other: Option<User>,
}

impl Account {
    /// The owner of `data` when there already is one, so that a later root does not lock its owner out.
    pub fn for_data(data: &Path) -> Result<Self> {
        if !Uid::effective().is_root() {
            return Ok(Self { other: None });
        }
        let owner = fs::metadata(data).ok().map(|data| Uid::from_raw(data.uid()));
        let user = match owner.filter(|uid| !uid.is_root()) {
            Some(uid) => User::from_uid(uid).ok().flatten(),
            None => ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten()),
        };
        user.map(|user| Self { other: Some(user) }).ok_or(Error::NoAccount)
    }

    /// Our own directory: for us alone or, if the server is another user, passable to it, but not writable,
    /// so that root never writes where that user could have placed a link.
    pub fn home_mode(&self) -> u32 {
        if self.is_other() { 0o711 } else { 0o700 }
    }

    /// Makes a file or directory of ours one of the server.
    pub fn own(&self, path: &Path) -> Result<()> {
        match &self.other {
            Some(user) => {
                chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).map_err(Error::at(path))
            }
            None => Ok(()),
        }
    }

    /// Whether the server can enter its directory.
    pub fn check_reach(&self, home: &Path) -> Result<()> {
        let Some(user) = &self.other else { return Ok(()) };
        match self.run(Path::new("/bin/sh"), home, &["-c", ":"]) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::NotReachable { path: home.to_owned(), user: user.name.clone() }),
        }
    }

    /// Whether the server runs as another user than we do.
    pub fn is_other(&self) -> bool {
        self.other.is_some()
    }

    /// A program in the directory of a server, with messages in English and none of the caller's settings: whoever may read
    /// the environment of a server must not find passwords there.
    pub fn command(&self, program: &Path, home: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(home).env_clear();
        command.envs(VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env("LC_ALL", "C");
        if let Some(User { uid, gid, .. }) = &self.other {
            command.uid(Uid::as_raw(*uid)).gid(Gid::as_raw(*gid));
        }
        command
    }

    /// Runs a program of Postgres to its end.
    pub(crate) fn run(&self, program: &Path, home: &Path, arguments: &[&str]) -> Result<Output> {
        let output = self.command(program, home).args(arguments).output();
        output.map_err(|cause| Error::Spawn { program: program.to_owned(), cause })
    }
}
