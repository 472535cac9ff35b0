//! A short session at a source, for who only looks: read only, and never waited for long.

use std::pin::pin;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::config::Host;
use vitrina_core::POOLED;

use crate::connect::cancel;
use crate::{Secret, Unconnected, address, connect};

/// How long a source may take to let somebody in, or to say that it is there.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a session that has nothing to do needs for an answer.
const AT_ONCE: Duration = Duration::from_millis(100);
const TOO_SLOW: &str = "the source does not answer within 5 s";
const LOST: &str = "the connection to the source is lost";

/// Of the whole session: whatever is asked for in it writes nothing.
const SETTINGS: [(&str, &str); 2] =
    [("default_transaction_read_only", "on"), ("client_connection_check_interval", "5s")];

/// Ends when it is dropped. Errors are told without the source's own words: they may hold more than a caller should know.
#[derive(Debug)]
pub struct Reading {
    pub client: Client,
    _driver: JoinSet<()>,
}

impl Reading {
    /// `purpose` names the session. A login that was rotated is read again.
    pub async fn open(url: &Secret, purpose: &str) -> Result<Self, String> {
        let opened = async {
            let login = url.get();
            match enter(&login, purpose).await {
                Err(Unopened::Refused(_)) if url.read_again(&login).await => enter(&url.get(), purpose).await,
                entered => entered,
            }
        };
        let opened = timeout(PATIENCE, opened).await.map_err(|_| TOO_SLOW)?;
        opened.map_err(|unopened| match unopened {
            Unopened::Refused(state) => format!("the source refuses the login (SQLSTATE {state})"),
            Unopened::Unreachable(reason) => reason.to_owned(),
        })
    }

    /// Does it answer?
    pub async fn ask(&self) -> Result<(), String> {
        let asked = timeout(PATIENCE, self.client.simple_query("select 1")).await;
        asked.map_err(|_| TOO_SLOW)?.map(drop).map_err(|_| LOST.to_owned())
    }

    /// Returns when the server has ended what it was asked for: folding constants while it plans, it may hear of no timeout
    /// and of no caller who has hung up, for minutes.
    pub async fn leave(self) {
        let mut idle = pin!(self.client.simple_query("select 1"));
        let mut patience = AT_ONCE;
        while timeout(patience, &mut idle).await.is_err() {
            // Asked again, since the server may have been between two statements.
            let _ = timeout(PATIENCE, cancel(&self.client)).await;
            patience = PATIENCE;
        }
    }
}

/// Why nobody was let in.
enum Unopened {
    /// By the server, with this state.
    Refused(String),
    Unreachable(&'static str),
}

async fn enter(url: &SecretString, purpose: &str) -> Result<Reading, Unopened> {
    let no_url = Unopened::Unreachable("the url of the source is no Postgres URL");
    let mut config = address(url.expose_secret()).ok_or(no_url)?;
    config.connect_timeout(PATIENCE);
    let application_name = format!("vitrina/{purpose}");
    let (client, driver) =
        connect(&mut config, &application_name, &SETTINGS).await.map_err(|error| match error {
            Unconnected::Pooled => Unopened::Unreachable(POOLED),
            Unconnected::Failed(error) => match error.code() {
                Some(state) => Unopened::Refused(state.code().to_owned()),
                None => Unopened::Unreachable("the source cannot be reached"),
            },
        })?;
    let mut session = JoinSet::new();
    session.spawn(async move { drop(driver.await) });
    Ok(Reading { client, _driver: session })
}

/// An address that may be shown: put together anew out of what is no secret, since a URL may hold a password in several
/// places.
pub fn shown_address(url: &str) -> Option<String> {
    let config = address(url)?;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    Some(format!("postgres://{user}@{host}:{port}/{database}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("postgres://reader:hunter2@db:6543/cinema?sslmode=require", "postgres://reader@db:6543/cinema")]
    #[case("postgres://reader@db/cinema?password=hunter2", "postgres://reader@db:5432/cinema")]
    #[case("host=db user=reader password=hunter2", "postgres://reader@db:5432/reader")]
    fn a_shown_address_holds_no_password(#[case] url: &str, #[case] shown: &str) {
        assert_eq!(shown_address(url).as_deref(), Some(shown));
    }
}
