//! The directory of a private Postgres: its layout, its marker, and what is remembered between starts.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::{Error, Result};

const MARKER: &str = "vitrina-cluster";

/// Holds the marker locked, so that two starts of the same directory follow one another.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    _lock: File,
}

impl Home {
    /// Creates the directory, or takes an empty one or one of ours.
    pub(crate) fn claim(path: &Path, account: &Account) -> Result<Self> {
        fs::create_dir_all(path).map_err(Error::at(path))?;
        // In this order: another start may put its marker there meanwhile, and puts it there first.
        let is_empty = fs::read_dir(path).map_err(Error::at(path))?.next().is_none();
        if is_empty {
            set_mode(path, account.home_mode())?;
        } else if !path.join(MARKER).exists() {
            return Err(Error::NotOurs { path: path.to_owned() });
        }
        Self::lock(path)
    }

    /// `None` when there is no such directory.
    pub(crate) fn existing(path: &Path) -> Result<Option<Self>> {
        match fs::metadata(path.join(MARKER)) {
            Ok(_) => Self::lock(path).map(Some),
            Err(_) if path.exists() => Err(Error::NotOurs { path: path.to_owned() }),
            Err(_) => Ok(None),
        }
    }

    fn lock(path: &Path) -> Result<Self> {
        let marker = path.join(MARKER);
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&marker)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(Error::at(&marker))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// There only once initdb has finished: it works in `unfinished`, which is renamed then.
    pub(crate) fn data(&self) -> PathBuf {
        data(&self.path)
    }

    pub(crate) fn unfinished(&self) -> PathBuf {
        self.path.join("data.unfinished")
    }

    pub(crate) fn password_file(&self) -> PathBuf {
        self.path.join("password")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn recall(&self, what: &str) -> Option<String> {
        fs::read_to_string(self.path.join(what)).ok().filter(|value| !value.is_empty())
    }

    /// Replaces the file as a whole: a crash leaves the old one or the new one.
    pub(crate) fn remember(&self, what: &str, value: &str, mode: u32) -> Result<()> {
        let (path, fresh) = (self.path.join(what), self.path.join(format!("{what}.new")));
        let _ = fs::remove_file(&fresh);
        OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(mode)
            .open(&fresh)
            .and_then(|mut file| {
                file.set_permissions(Permissions::from_mode(mode))?;
                file.write_all(value.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(Error::at(&path))
    }

    /// The port of a server that runs here and listens. A process that merely inherited the number in an old
    /// postmaster.pid does not count; should it be a live server after all, Postgres itself refuses a second.
    pub(crate) fn running_port(&self) -> Option<u16> {
        let pidfile = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let pid = pidfile.lines().next()?.trim().parse().ok()?;
        let port = pidfile.lines().nth(3)?.trim().parse().ok()?;
        let alive = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) != Err(nix::Error::ESRCH);
        (alive && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()).then_some(port)
    }

    /// The marker goes last, so that an interrupted removal can be repeated.
    pub(crate) fn delete(self) -> Result<()> {
        for entry in fs::read_dir(&self.path).map_err(Error::at(&self.path))? {
            let entry = entry.map_err(Error::at(&self.path))?;
            if entry.file_name() != MARKER {
                delete(&entry.path())?;
            }
        }
        delete(&self.path)
    }
}

pub(crate) fn data(home: &Path) -> PathBuf {
    home.join("data")
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::at(path))
}

/// A file or a whole tree; that it is already gone is fine.
pub(crate) fn delete(path: &Path) -> Result<()> {
    let deleted = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match deleted {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::at(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_claim_a_new_directory_at_once_both_get_it() {
        let account = Account::for_data(Path::new("/nowhere")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for number in 0..500 {
            let path = folder.path().join(number.to_string());
            let claim = || Home::claim(&path, &account).map(drop);
            std::thread::scope(|scope| {
                let claims = [scope.spawn(claim), scope.spawn(claim)];
                for claim in claims {
                    claim.join().unwrap().unwrap_or_else(|error| panic!("{number}: {error}"));
                }
            });
        }
    }
}
