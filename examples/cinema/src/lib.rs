//! The online cinema of the demo: its schemas, a deterministic generator, the first two pipelines, and a check
//! that their marts equal their source. All of it is SQL; this crate embeds and runs it.

mod error;
mod verify;

use std::borrow::Cow;

use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection};

pub use error::{Error, Result};
pub use verify::{MartCheck, verify, verify_search};

/// The pipelines of the plain demo, and no others (R-MART-3).
pub const DEMO_PIPELINES: [&str; 2] = ["film_dim_full", "film_rating_agg_full"];

/// What is added where there is a search server: pipelines, each with the file that describes it and its index.
pub const INDEX_PIPELINES: [(&str, &str); 3] = [
    ("film_dim_index", include_str!("../pipelines/search/film_dim_index.yaml")),
    ("film_rating_agg_index", include_str!("../pipelines/search/film_rating_agg_index.yaml")),
    ("movies_index", include_str!("../pipelines/search/movies_index.yaml")),
];

/// What is added where there is Python: the pipeline, the file that describes it, and the module with its function.
pub const FILM_SEARCH: (&str, &str) = ("film_search", include_str!("../pipelines/python/film_search.yaml"));
pub const FUNCTIONS: &str = include_str!("../functions/cinema_functions.py");

/// Repeatable; for psql as well.
pub const INIT_DEMO_DATA: &str = include_str!("../init_demo_data.sql");

static EMBEDDED: Migrator = sqlx::migrate!();

/// Creates `content`, `ugc`, `auth`, `analytics` and the generator, or brings them up to this release.
pub async fn migrate(url: &str) -> Result<()> {
    let migrator = Migrator {
        migrations: Cow::Borrowed(&EMBEDDED.migrations),
        table_name: Cow::Borrowed("cinema.migrations"),
        create_schemas: Cow::Borrowed(&[Cow::Borrowed("cinema")]),
        ..Migrator::DEFAULT
    };
    let mut connection = connect(url).await?;
    migrator.run(&mut connection).await.map_err(Error::migrating)?;
    close(connection).await
}

/// Fills the cinema up to these sizes. The same call again changes nothing.
pub async fn seed(url: &str, films: u32, ratings: u32) -> Result<()> {
    let (films, ratings) = (i64::from(films), i64::from(ratings));
    let content = seed_service(url, "select cinema.seed_content($1::integer), $2::integer", films, ratings);
    let ugc = seed_service(url, "select cinema.seed_ugc($1::integer, $2::integer)", films, ratings);
    tokio::try_join!(Box::pin(content), Box::pin(ugc)).map(|_| ())
}

/// On a connection of its own: the services are independent, and so are their halves of the work.
async fn seed_service(url: &str, sql: &'static str, films: i64, ratings: i64) -> Result<()> {
    let mut connection = connect(url).await?;
    let seeded = sqlx::query(sql).bind(films).bind(ratings).execute(&mut connection).await;
    seeded.map_err(Error::statement("seed the cinema"))?;
    close(connection).await
}

/// Installs the two pipelines, and seeds the demo's size if there are no films yet. Needs schema `etl`.
pub async fn init_demo_data(url: &str) -> Result<()> {
    let mut connection = connect(url).await?;
    sqlx::raw_sql(INIT_DEMO_DATA)
        .execute(&mut connection)
        .await
        .map_err(Error::statement("install the demo's data and pipelines"))?;
    close(connection).await
}

async fn connect(url: &str) -> Result<PgConnection> {
    PgConnection::connect(url).await.map_err(Error::Connect)
}

async fn close(connection: PgConnection) -> Result<()> {
    connection.close().await.map_err(Error::Connect)
}
