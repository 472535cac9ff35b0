//! The server's configuration: flag > environment > `.env` > file > default, every value with its origin.
//!
//! `Config::load` reads nothing but its inputs and the files they name, and reports everything that
//! is wrong at once. Secrets leave this module only inside `SecretString`.

mod commands;
mod dot_env;
mod error;
mod expand;
mod known;
mod layers;
mod mask;
mod origin;
mod parse;
mod redirected;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fmt, io};

use serde::Serialize;

pub use error::{ConfigError, Problem};
pub use known::reference;
pub(crate) use mask::{hides_its_secrets, masked};
pub use origin::Origin;
pub(crate) use parse::{connection_url, duration};
pub use settings::{ApiSettings, Connection, LogFormat, LogSettings, RunnerSettings, Settings};

/// Everything the configuration depends on.
#[derive(Clone, Default)]
pub struct Inputs {
    pub flags: Vec<Flag>,
    pub environment: BTreeMap<String, String>,
    /// Where `.env` and `vitrina.toml` are looked for.
    pub directory: PathBuf,
    /// What `--config` names.
    pub file: Option<PathBuf>,
    /// The default of `runner.name`.
    pub runner_name: String,
}

/// A setting given on the command line: `api.listen`, `--listen`, `0.0.0.0:8080`. Lists are comma separated.
#[derive(Clone)]
pub struct Flag {
    pub key: String,
    pub name: &'static str,
    pub value: String,
}

impl Inputs {
    /// The inputs of this process. Variables that are not UTF-8 cannot be settings and are left out.
    pub fn of_process(flags: Vec<Flag>, file: Option<PathBuf>) -> io::Result<Self> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Ok(Self {
            flags,
            environment: env::vars_os().filter_map(text).collect(),
            directory: env::current_dir()?,
            file,
            runner_name: runner_name()?,
        })
    }
}

/// Two runners on one host are two.
fn runner_name() -> io::Result<String> {
    let host = nix::unistd::gethostname()?;
    Ok(format!("{}-{}", host.to_string_lossy(), std::process::id()))
}

/// The settings to work with, what may be shown of them, and what deserves a word to the user.
#[derive(Debug, Clone)]
pub struct Config {
    pub settings: Settings,
    pub warnings: Vec<Problem>,
    shown: Vec<Shown>,
}

/// A setting as `config show` prints it: secrets are masked, what is not set has no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    pub key: String,
    pub value: Option<String>,
    pub origin: Origin,
}

impl Config {
    pub fn load(inputs: &Inputs) -> Result<Self, ConfigError> {
        let mut layers = layers::collect(inputs);
        let mut values = expand::all(&mut layers, &inputs.directory);
        settings::derive(&mut values, &inputs.runner_name, &mut layers.problems);
        redirected::refuse(&values, &mut layers);
        let settings = settings::read(&values, &mut layers.problems);
        match settings {
            Some(mut settings) if layers.problems.is_empty() => {
                settings.origin = Some(Arc::new(inputs.clone()));
                layers.warnings.extend(mask::in_clear(&values));
                Ok(Self { settings, warnings: layers.warnings, shown: mask::show(&values) })
            }
            _ => Err(ConfigError { problems: layers.problems }),
        }
    }

    /// All settings, in the order of the reference, then the connections by name.
    pub fn show(&self) -> &[Shown] {
        &self.shown
    }
}

// Values of inputs may be secrets, so Debug names where they come from and nothing else.
impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, directory, file, .. } = self;
        f.debug_struct("Inputs")
            .field("flags", flags)
            .field("directory", directory)
            .field("file", file)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flag").field("key", &self.key).field("name", &self.name).finish_non_exhaustive()
    }
}
