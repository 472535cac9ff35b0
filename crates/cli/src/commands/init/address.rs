//! Where a server is: the URL to connect with, and how a file may write it, without its password.

use std::path::Path;

use anyhow::Result;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::config::{self, Config, Flag, Inputs};
use crate::exit::Exit;

/// The two URLs of a command line, with references replaced.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) from: SecretString,
    pub(super) to: SecretString,
}

impl Ends {
    /// As the configuration itself would read them, beside the `.env` that is there.
    pub(super) fn read(from: &str, to: &str, directory: &Path) -> Result<Self> {
        let flag = |name, key: &str, value: &str| Flag { key: key.to_owned(), name, value: value.to_owned() };
        let flags = vec![
            flag("--from", "connections.source.url", from),
            flag("--to", "connections.destination.url", to),
        ];
        let inputs = Inputs { directory: directory.to_owned(), ..Inputs::of_process(flags, None)? };
        let connections = Config::load(&inputs)?.settings.connections;
        let url = |name: &str| connections[name].url.clone();
        let ends = Self { from: url("source"), to: url("destination") };
        if ends.from.expose_secret().starts_with("http") {
            let hint = "pipelines read from Postgres: begin --from with postgres://";
            return Err(Exit::Usage.fault(format!("--from is a search server\nhint: {hint}")));
        }
        Ok(ends)
    }

    pub(super) fn is_search(&self) -> bool {
        self.to.expose_secret().starts_with("http")
    }

    /// The database that is read, as its URL names it.
    pub(super) fn database(&self) -> String {
        let url = Url::parse(self.from.expose_secret());
        let path = url.ok().map(|url| url.path().trim_matches('/').to_owned()).unwrap_or_default();
        percent_encoding::percent_decode_str(&path).decode_utf8_lossy().into_owned()
    }
}

/// A URL as a file writes it, and the variable it refers to, if that is new.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) written: String,
    pub(super) variable: Option<String>,
}

/// What was given as a reference stays one. Of a plain URL only its password becomes one; all of it, where something
/// else in it may be a secret.
pub(super) fn address(given: &str, connection: &str) -> Address {
    let shown = config::masked(given);
    if config::hides_its_secrets(given) {
        return Address { written: given.to_owned(), variable: None };
    }
    let variable = |what: &str| format!("{}_{what}", connection.to_ascii_uppercase());
    let with_password = Url::parse(given).is_ok_and(|url| url.password().is_some());
    match shown.split_once(":***@") {
        Some((before, after)) if with_password && !after.contains("***") => {
            let variable = variable("PASSWORD");
            Address { written: format!("{before}:${{env:{variable}}}@{after}"), variable: Some(variable) }
        }
        _ => {
            let variable = variable("URL");
            Address { written: format!("${{env:{variable}}}"), variable: Some(variable) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_stands_in_a_file() {
        for (given, written, variable) in [
            ("postgres://a@db/cinema", "postgres://a@db/cinema", None),
            (
                "postgres://a:s3@db/cinema",
                "postgres://a:${env:CINEMA_PASSWORD}@db/cinema",
                Some("CINEMA_PASSWORD"),
            ),
            ("postgres://db/cinema?password=s3", "${env:CINEMA_URL}", Some("CINEMA_URL")),
            ("postgres://a:s3@db/cinema?sslpassword=s4", "${env:CINEMA_URL}", Some("CINEMA_URL")),
            ("https://a:s3@one:9200,https://a:s4@two:9200", "${env:CINEMA_URL}", Some("CINEMA_URL")),
            ("${env:MY_URL}", "${env:MY_URL}", None),
            ("postgres://a:s3@${env:HOST}/cinema", "${env:CINEMA_URL}", Some("CINEMA_URL")),
            ("postgres://a:${env:P}@db/cinema?sslpassword=s4", "${env:CINEMA_URL}", Some("CINEMA_URL")),
            ("postgres://a@${env:HOST}/cinema", "postgres://a@${env:HOST}/cinema", None),
            ("postgres://a:${file:key}@db/cinema", "postgres://a:${file:key}@db/cinema", None),
        ] {
            let variable = variable.map(str::to_owned);
            assert_eq!(address(given, "cinema"), Address { written: written.to_owned(), variable });
        }
    }
}
