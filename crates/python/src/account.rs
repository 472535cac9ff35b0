//! As whom workers run: the runner's own user or, where it was started as root and is told so, another one.

use std::ffi::OsString;

use nix::unistd::{Uid, User};
use tokio::process::Command;
use vitrina_core::{Error, Result};

/// A user other than the runner's: what belongs to the runner alone is out of the reach of functions then.
#[derive(Debug, Clone)]
pub(crate) struct Account(User);

impl Account {
    pub(crate) fn named(name: &str) -> Result<Self> {
        let unusable = |reason: String, hint: &str| {
            Err(Error::fix("python.user", format!("python.user {name:?} {reason}")).hint(hint))
        };
        let user = match User::from_name(name) {
            Ok(Some(user)) => user,
            Ok(None) => return unusable("is no user here".into(), "make it: useradd --system NAME"),
            Err(error) => return unusable(format!("cannot be looked up: {error}"), "see /etc/passwd"),
        };
        if user.uid == Uid::effective() {
            let hint = "name another one, which may read nothing of the runner's, or leave python.user out";
            return unusable("is the user of the runner itself".into(), hint);
        }
        if user.uid.is_root() {
            return unusable("may read everything".into(), "name a user that has no rights of its own");
        }
        if !Uid::effective().is_root() {
            let hint =
                "start the runner as root, or leave python.user out: functions run as the runner's user then";
            return unusable("cannot be switched to: the runner is not root".into(), hint);
        }
        Ok(Self(user))
    }

    /// Groups of the runner do not go with it: root's are dropped where the user is switched.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.uid(self.0.uid.as_raw()).gid(self.0.gid.as_raw());
        command.env("USER", &self.0.name).env("HOME", OsString::from(&self.0.dir));
    }
}
