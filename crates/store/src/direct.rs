//! Sessions at a Postgres itself. A pooler such as pgbouncer hands one session of the server to several clients in turn:
//! settings, LISTEN and locks of one would be those of another.

use std::sync::LazyLock;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use uuid::Uuid;
use vitrina_core::{POOLED, REFUSED_OPTIONS};

/// What sessions of this process are recognised by: a pooler refuses startup options or drops them.
const NAME: &str = "vitrina.session";
static TOKEN: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().to_string());

#[derive(Debug, thiserror::Error)]
#[error("{POOLED}")]
pub(crate) struct Pooled;

/// Options by which a session can be recognised.
pub(crate) fn recognisable(options: PgConnectOptions) -> PgConnectOptions {
    options.options([(NAME, TOKEN.as_str())])
}

/// A session that is ours alone, or an error that says what to do.
pub async fn connect_directly(url: &str) -> sqlx::Result<PgConnection> {
    let options: PgConnectOptions = url.parse()?;
    open(&recognisable(options)).await
}

pub(crate) async fn open(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    let mut session = options.connect().await.map_err(|error| match is_of_pooler(&error) {
        true => sqlx::Error::Configuration(Box::new(Pooled)),
        false => error,
    })?;
    match recognise(&mut session).await {
        Ok(()) => Ok(session),
        Err(error) => {
            session.close().await.ok();
            Err(error)
        }
    }
}

/// Asked once a session, before anything is set in it or locked by it.
pub(crate) async fn recognise(session: &mut PgConnection) -> sqlx::Result<()> {
    let sql = "select pg_catalog.current_setting('vitrina.session', true)";
    let told: Option<String> = sqlx::query_scalar(sql).persistent(false).fetch_one(session).await?;
    match told.as_deref() == Some(TOKEN.as_str()) {
        true => Ok(()),
        false => Err(sqlx::Error::Configuration(Box::new(Pooled))),
    }
}

/// What `connect_directly` says where a pooler answers.
pub fn is_of_pooler(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(refusal) => refusal.message().starts_with(REFUSED_OPTIONS),
        sqlx::Error::Configuration(cause) => cause.is::<Pooled>(),
        _ => false,
    }
}
