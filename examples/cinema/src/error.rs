//! What can go wrong with the demo's database.

use sqlx::migrate::MigrateError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot reach the cinema's database")]
    Connect(#[source] sqlx::Error),
    #[error(
        "cannot migrate the cinema's schemas\nhint: migrate as the owner of the database; \
         schemas content, ugc, auth and analytics must be the example's own"
    )]
    Migrate(#[source] MigrateError),
    #[error(
        "the cinema's schemas were made by another release\nhint: start over in an empty database; \
         for the demo: `vitrina demo --clean`"
    )]
    OtherRelease,
    #[error("cannot {action}\nhint: both the cinema's and the product's migrations come first")]
    Statement { action: String, source: sqlx::Error },
    #[error("pipeline {name} is not installed\nhint: load init_demo_data.sql")]
    NotInstalled { name: &'static str },
}

impl Error {
    pub(crate) fn migrating(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMismatch(_) | MigrateError::VersionMissing(_) => Self::OtherRelease,
            other => Self::Migrate(other),
        }
    }

    pub(crate) fn statement(action: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Statement { action: action.into(), source }
    }
}
