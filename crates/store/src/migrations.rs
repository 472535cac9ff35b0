//! Brings schema `etl` up to this release, once, however many processes start together.

use std::borrow::Cow;

use sqlx::PgConnection;
use sqlx::migrate::{Migrate, MigrateError, Migrator};

use crate::{Error, Result, Store, squashed};

static EMBEDDED: Migrator = sqlx::migrate!();
const TABLE: &str = "etl.etl_migrations";

/// What `doctor`, `serve` and `runner` find before they start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaState {
    pub applied: usize,
    pub known: usize,
}

fn migrator() -> Migrator {
    Migrator {
        migrations: Cow::Borrowed(&EMBEDDED.migrations),
        table_name: Cow::Borrowed(TABLE),
        create_schemas: Cow::Borrowed(&[Cow::Borrowed("etl")]),
        ..Migrator::DEFAULT
    }
}

impl Store {
    /// Applies what is missing; sqlx holds an advisory lock meanwhile, so others wait and find it done.
    pub async fn migrate(&self) -> Result<SchemaState> {
        let mut connection = self.pool.acquire().await?;
        let outcome = bring_up_to_date(&mut connection).await;
        // After a failure the session still holds the lock: it must not go back into the pool.
        connection.close().await?;
        outcome?;
        self.check_schema().await
    }

    /// Is the schema exactly this release's? Reads only, so that any login may ask.
    pub async fn check_schema(&self) -> Result<SchemaState> {
        let known = EMBEDDED.migrations.len();
        let applied = history(&mut *self.pool.acquire().await?).await?.ok_or(Error::NotMigrated)?;
        if squashed::are_applied(&applied)? {
            return Err(Error::SchemaSquashed);
        }
        for (version, checksum) in &applied {
            let version = *version;
            let own =
                EMBEDDED.iter().find(|own| own.version == version).ok_or(Error::SchemaNewer { version })?;
            if *own.checksum != **checksum {
                return Err(Error::SchemaChanged { version });
            }
        }
        match applied.len() {
            applied if applied < known => Err(Error::SchemaOlder { applied, known }),
            applied => Ok(SchemaState { applied, known }),
        }
    }
}

async fn bring_up_to_date(connection: &mut PgConnection) -> Result<()> {
    // The migrator's own lock, which a session may hold twice.
    connection.lock().await.map_err(explain)?;
    let migrator = migrator();
    if let Some(applied) = history(connection).await?
        && squashed::are_applied(&applied)?
    {
        squashed::replace_history(connection, &migrator).await?;
    }
    migrator.run_direct(None, connection, false).await.map_err(explain)
}

/// Versions and checksums of what was applied; none where there is no history yet.
async fn history(connection: &mut PgConnection) -> Result<Option<Vec<(i64, Vec<u8>)>>> {
    let present: bool = sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(TABLE)
        .fetch_one(&mut *connection)
        .await?;
    if !present {
        return Ok(None);
    }
    let applied =
        sqlx::query_as("select version, checksum from etl.etl_migrations where success order by version")
            .fetch_all(connection)
            .await?;
    Ok(Some(applied))
}

pub(crate) fn explain(error: MigrateError) -> Error {
    match error {
        MigrateError::VersionMissing(version) => Error::SchemaNewer { version },
        MigrateError::VersionMismatch(version) => Error::SchemaChanged { version },
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Error::Database(error),
        other => Error::Database(sqlx::Error::Migrate(Box::new(other))),
    }
}
