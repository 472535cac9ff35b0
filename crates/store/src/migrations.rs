//! Brings schema `etl` up to this release, once, however many processes start together.

use std::borrow::Cow;

use sqlx::migrate::{MigrateError, Migrator};

use crate::{Error, Result, Store};

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
        let outcome = migrator().run_direct(None, &mut *connection, false).await;
        // After a failure the session still holds the lock: it must not go back into the pool.
        connection.close().await?;
        outcome.map_err(explain)?;
        self.check_schema().await
    }

    /// Is the schema exactly this release's? Reads only, so that any login may ask.
    pub async fn check_schema(&self) -> Result<SchemaState> {
        let known = EMBEDDED.migrations.len();
        let present: bool = sqlx::query_scalar("select to_regclass($1) is not null")
            .bind(TABLE)
            .fetch_one(&self.pool)
            .await?;
        if !present {
            return Err(Error::NotMigrated);
        }
        let applied: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("select version, checksum from etl.etl_migrations where success order by version")
                .fetch_all(&self.pool)
                .await?;
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

fn explain(error: MigrateError) -> Error {
    match error {
        MigrateError::VersionMissing(version) => Error::SchemaNewer { version },
        MigrateError::VersionMismatch(version) => Error::SchemaChanged { version },
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Error::Database(error),
        other => Error::Database(sqlx::Error::Migrate(Box::new(other))),
    }
}
