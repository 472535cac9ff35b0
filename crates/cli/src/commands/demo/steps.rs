//! The demo's single steps, on the configured database: for stands that are not private.

use anyhow::Result;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use vitrina_cinema::MartCheck;

use super::Size;
use super::stand::{self, LOGIN_PASSWORD, READER_PASSWORD};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, grouped};
use crate::roles::Passwords;

const FILMS: u32 = 5000;

pub(super) async fn migrate(context: &Context) -> Result<Exit> {
    vitrina_cinema::migrate(&context.database_url()?).await?;
    output::say("the cinema's schemas are up to date");
    Ok(Exit::Done)
}

pub(super) async fn roles(context: &Context) -> Result<Exit> {
    let passwords = Passwords::given(&password(LOGIN_PASSWORD)?, &password(READER_PASSWORD)?);
    let mut connection = open_migrated(&context.database_url()?).await?;
    stand::grants().apply(&mut connection, &passwords).await?;
    connection.close().await?;
    output::say("the logins vitrina and vitrina_reader are there");
    Ok(Exit::Done)
}

/// The catalogue answers any login, whatever its rights on the schemas.
async fn open_migrated(url: &str) -> Result<PgConnection> {
    let mut connection = PgConnection::connect(url).await.map_err(vitrina_cinema::Error::Connect)?;
    let query = "select count(*) = 2 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where (n.nspname, c.relname) in (('etl', 'etl_migrations'), ('cinema', 'migrations'))";
    if sqlx::query_scalar(query).fetch_one(&mut connection).await? {
        return Ok(connection);
    }
    Err(Exit::Refused
        .fault("the database is not migrated\nhint: run `vitrina migrate` and `vitrina demo migrate` first"))
}

fn password(variable: &str) -> Result<String> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    value.ok_or_else(|| {
        Exit::Usage
            .fault(format!("{variable} is not set\nhint: give it the password that the login shall have"))
    })
}

pub(super) async fn seed(size: Size, context: &Context) -> Result<Exit> {
    let url = context.database_url()?;
    open_migrated(&url).await?.close().await?;
    fill(&url, size).await?;
    output::say("the cinema has its data, and its two pipelines are installed");
    Ok(Exit::Done)
}

/// Without a size the cinema keeps the one it has.
pub(super) async fn fill(url: &str, size: Size) -> Result<()> {
    if size.films.is_some() || size.ratings.is_some() {
        let films = size.films.unwrap_or(FILMS);
        let ratings = size.ratings.unwrap_or(films.saturating_mul(10));
        vitrina_cinema::seed(url, films, ratings).await?;
    }
    Ok(vitrina_cinema::init_demo_data(url).await?)
}

pub(super) async fn verify(context: &Context) -> Result<Exit> {
    let url = context.database_url()?;
    open_migrated(&url).await?.close().await?;
    let checks = vitrina_cinema::verify(&url).await?;
    let document: Vec<_> = checks.iter().map(document).collect();
    context.output.show(&document, || checks.iter().map(verdict).collect::<Vec<_>>().join("\n"));
    Ok(judge(&checks))
}

pub(super) fn judge(checks: &[MartCheck]) -> Exit {
    if checks.iter().all(MartCheck::is_equal) { Exit::Done } else { Exit::Differences }
}

pub(super) fn verdict(check: &MartCheck) -> String {
    let MartCheck { mart, rows, missing, extra, different } = check;
    let rows = grouped(rows.unsigned_abs());
    match check.is_equal() {
        true => format!("{mart}: {rows} rows, equal to its source"),
        false => {
            format!("{mart}: {rows} rows, DIFFERS: {missing} missing, {extra} extra, {different} different")
        }
    }
}

fn document(check: &MartCheck) -> serde_json::Value {
    let MartCheck { mart, rows, missing, extra, different } = check;
    let equal = check.is_equal();
    json!({"mart": mart, "equal": equal, "rows": rows, "missing": missing, "extra": extra, "different": different})
}
