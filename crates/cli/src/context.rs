//! What every command may ask for: the configuration, the meta-store's address, a client of the API.

use std::path::PathBuf;

use anyhow::Result;
use secrecy::ExposeSecret;
use vitrina_store::Store;

use crate::client::Client;
use crate::config::{Config, Flag, Inputs, Settings};
use crate::exit::Exit;
use crate::output::{self, Format};

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Format,
    pub(crate) verbose: bool,
    pub(crate) file: Option<PathBuf>,
}

impl Context {
    /// Loads the configuration, and tells what deserves a word.
    pub(crate) fn config(&self, mut flags: Vec<Flag>) -> Result<Config> {
        if self.verbose {
            flags.push(Flag { key: "log.level".to_owned(), name: "--verbose", value: "debug".to_owned() });
        }
        let config = Config::load(&Inputs::of_process(flags, self.file.clone())?)?;
        for warning in &config.warnings {
            output::say(&format!("warning: {warning}"));
        }
        Ok(config)
    }

    pub(crate) fn settings(&self) -> Result<Settings> {
        Ok(self.config(Vec::new())?.settings)
    }

    pub(crate) fn client(&self) -> Result<Client> {
        Client::new(&self.settings()?.api)
    }

    /// For commands that work on the configured database itself.
    pub(crate) fn database_url(&self) -> Result<String> {
        database_url(&self.settings()?).map(str::to_owned)
    }
}

pub(crate) fn database_url(settings: &Settings) -> Result<&str> {
    let url = settings.database_url.as_ref().map(|url| url.expose_secret());
    url.ok_or_else(|| {
        Exit::Usage.fault(
            "database_url is not set\nhint: set VITRINA_DATABASE_URL=postgres://user:password@host:5432/database, \
             or try `vitrina demo`, which needs none",
        )
    })
}

pub(crate) async fn connect(settings: &Settings, application: &str, max_connections: u32) -> Result<Store> {
    Ok(Store::connect(database_url(settings)?, application, max_connections).await?)
}
