//! The programs of an installation, run on one directory as the right user.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::account::Account;
use crate::{Error, Installation, Result, home};

/// Paths in arguments are relative to the directory, which is where the programs run.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) installation: Installation,
    pub(crate) account: Account,
    pub(crate) directory: PathBuf,
}

impl Programs {
    pub(crate) fn find(directory: &Path) -> Result<Self> {
        Ok(Self {
            installation: Installation::find()?,
            account: Account::for_data(&home::data(directory))?,
            directory: directory.to_owned(),
        })
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        self.account.run(&self.installation.program(program), &self.directory, arguments)
    }

    pub(crate) fn stop(&self) -> Result<()> {
        let output = self.run("pg_ctl", &["stop", "--pgdata=data", "--mode=fast", "--wait", "--silent"])?;
        self.check("pg_ctl stop", &output)
    }

    pub(crate) fn check(&self, program: &'static str, output: &Output) -> Result<()> {
        if output.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Failed { program, output, log: self.directory.join("log") })
    }
}
