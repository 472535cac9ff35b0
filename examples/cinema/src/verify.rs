//! Do the marts equal their source? Recomputes the installed queries beside the marts, in one snapshot.

use sqlx::{AssertSqlSafe, Column, Connection, Executor, PgConnection, SqlSafeStr, Statement};

use crate::{DEMO_PIPELINES, Error, Result, close, connect};

/// A mart beside its query, by key, over the columns that the query returns.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct MartCheck {
    pub mart: String,
    pub rows: i64,
    /// Only the query has them.
    pub missing: i64,
    /// Only the mart has them.
    pub extra: i64,
    pub different: i64,
}

impl MartCheck {
    pub fn is_equal(&self) -> bool {
        self.missing == 0 && self.extra == 0 && self.different == 0
    }
}

/// What is compared: names come quoted from the database, the query as it is stored.
#[derive(sqlx::FromRow)]
struct Installed {
    mart: String,
    key: Vec<String>,
    query: String,
}

/// Checks the mart of each of the `DEMO_PIPELINES`.
pub async fn verify(url: &str) -> Result<Vec<MartCheck>> {
    let mut connection = connect(url).await?;
    let mut snapshot = connection
        .begin_with("begin isolation level repeatable read, read only")
        .await
        .map_err(Error::statement("open a snapshot"))?;
    let mut checks = Vec::with_capacity(DEMO_PIPELINES.len());
    for name in DEMO_PIPELINES {
        let installed = installed(&mut snapshot, name).await?;
        checks.push(compare(&mut snapshot, &installed).await?);
    }
    snapshot.rollback().await.map_err(Error::statement("close the snapshot"))?;
    close(connection).await?;
    Ok(checks)
}

/// What of the function's work SQL can say as well.
const SEARCHED: &str = "
select f.id, f.modified,
       replace(replace(concat_ws(' ', nullif(f.title, ''), nullif(f.description, ''), genre.names, person.names), 'ё', 'е'), 'Ё', 'Е') as search_text
  from content.film_work f
 cross join lateral (
       select string_agg(g.name, ' ' order by g.name) as names
         from content.genre_film_work link join content.genre g on g.id = link.genre_id
        where link.film_work_id = f.id) genre
 cross join lateral (
       select string_agg(distinct p.name, ' ' order by p.name) as names
         from content.person_film_work link join content.person p on p.id = link.person_id
        where link.film_work_id = f.id) person";

/// Checks the mart of `FILM_SEARCH`.
pub async fn verify_search(url: &str) -> Result<MartCheck> {
    let mut connection = connect(url).await?;
    let [mart, key, query] = ["analytics.film_search", "id", SEARCHED].map(str::to_owned);
    let check = compare(&mut connection, &Installed { mart, key: vec![key], query }).await?;
    close(connection).await?;
    Ok(check)
}

async fn installed(snapshot: &mut PgConnection, name: &'static str) -> Result<Installed> {
    let query = "select t.name::regclass::text as mart, p.source_query as query,
                        array(select quote_ident(k) from unnest(t.key) k) as key
                   from etl.etl_pipelines p
                   join etl.etl_targets t on t.name = p.target_table
                  where p.name = $1 and p.source_query is not null and t.key <> '{}'";
    let found = sqlx::query_as(query).bind(name).fetch_optional(snapshot).await;
    found.map_err(Error::statement(format!("look up pipeline {name}")))?.ok_or(Error::NotInstalled { name })
}

async fn compare(snapshot: &mut PgConnection, installed: &Installed) -> Result<MartCheck> {
    let failed = || Error::statement(format!("compare {} with its source", installed.mart));
    let columns = columns(snapshot, &installed.query).await.map_err(failed())?;
    let sql = comparison(installed, &columns);
    sqlx::query_as(AssertSqlSafe(sql)).bind(&installed.mart).fetch_one(snapshot).await.map_err(failed())
}

async fn columns(snapshot: &mut PgConnection, query: &str) -> sqlx::Result<Vec<String>> {
    let described = snapshot.prepare(AssertSqlSafe(query.to_owned()).into_sql_str()).await?;
    Ok(described.columns().iter().map(|column| quoted(column.name())).collect())
}

/// Compares values as text: 8.5 is not 8.50 to whoever reads the mart, and every type has a text.
fn comparison(Installed { mart, key, query }: &Installed, columns: &[String]) -> String {
    let same_key: Vec<_> = key.iter().map(|column| format!("s.{column} = m.{column}")).collect();
    let image = |side: &str| {
        let values: Vec<_> = columns.iter().map(|column| format!("{side}.{column}::text")).collect();
        format!("row({})", values.join(", "))
    };
    format!(
        "select $1 as mart, count(m.in_mart) as rows,
                count(*) filter (where m.in_mart is null) as missing,
                count(*) filter (where s.in_source is null) as extra,
                count(*) filter (where s.in_source and m.in_mart and {} is distinct from {}) as different
           from (select true as in_source, q.* from (\n{query}\n) q) s
           full join (select true as in_mart, {} from {mart}) m on {}",
        image("s"),
        image("m"),
        columns.join(", "),
        same_key.join(" and "),
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
