//! Sessions at source databases: read only, short, and only through the guard.

use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::SourceConnection;

/// How long a source may take to let somebody in.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends when it is dropped.
pub(super) struct Session {
    pub(super) client: Client,
    _driver: JoinSet<()>,
}

/// What the source says stays here: its text may hold more than a caller should know.
pub(super) async fn open(connection: &SourceConnection, purpose: &str) -> Result<Session, String> {
    let opened = timeout(PATIENCE, connect(connection, purpose)).await;
    opened.unwrap_or_else(|_| Err("the source does not answer within 5 s".to_owned()))
}

async fn connect(connection: &SourceConnection, purpose: &str) -> Result<Session, String> {
    let config = vitrina_guard::address(connection.url.expose_secret());
    let mut config = config.ok_or("the url of the source is no Postgres URL")?;
    config.application_name(format!("vitrina/{purpose}")).connect_timeout(PATIENCE);
    let connected = vitrina_guard::connect(&mut config).await;
    let (client, driver) = connected.map_err(|error| match error.code() {
        Some(state) => format!("the source refuses the login (SQLSTATE {})", state.code()),
        None => "the source cannot be reached".to_owned(),
    })?;
    let mut session = JoinSet::new();
    session.spawn(async move { drop(driver.await) });
    let read_only = client.batch_execute("set default_transaction_read_only = on").await;
    read_only.map_err(|_| "the connection to the source is lost")?;
    Ok(Session { client, _driver: session })
}

/// Does it let us in and answer?
pub(crate) async fn answers(connection: &SourceConnection) -> Result<(), String> {
    let session = open(connection, "health").await?;
    let asked = timeout(PATIENCE, session.client.simple_query("select 1")).await;
    let answered = asked.map_err(|_| "the source does not answer within 5 s")?;
    answered.map(drop).map_err(|_| "the connection to the source is lost".to_owned())
}
