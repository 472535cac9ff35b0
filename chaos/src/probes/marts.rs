//! Marts against their sources. A mart may be behind, but never further than its checkpoint says; it is never
//! ahead, never half of one state and half of another, and never empty.

use std::collections::HashMap;

use anyhow::Result;
use tokio_postgres::Client;

use super::Violation;

/// A row that changes while a pass is under way moves behind the end of that pass, and is the next one's: of these
/// only rows that have been left alone since the mark must be there. The same goes for rows that may have been refused.
const NOT_BY_CURSOR: [&str; 2] = ["actor", "actor_full"];

/// The source at one moment, which the mart must hold once its checkpoint says so.
#[derive(Debug)]
struct Mark {
    /// When all of it was committed, by the server's clock, in microseconds.
    at: i64,
    /// Runs that had succeeded by then. The next one may finish a pass that was open already; the one after it
    /// has opened its own.
    successes: i64,
    ids: Vec<i32>,
    versions: Vec<i64>,
    /// Rows of the mart that the source had no more, and the version in which it hid them.
    ghosts: Vec<i32>,
    gone_in: Vec<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: HashMap<String, Mark>,
    filled: HashMap<String, i64>,
}

/// How far each pipeline has come.
struct Progress {
    now: i64,
    opened_at: Option<i64>,
    successes: i64,
}

impl Marks {
    /// Where a checkpoint has passed a mark, the mart must hold all of it; then a new mark is made.
    pub(super) async fn check(&mut self, client: &Client) -> Result<Vec<Violation>> {
        let mut found = self.emptied(client).await?;
        let progress = progress(client).await?;
        for (mart, reached) in &progress {
            if let Some(mark) = self.marks.get(mart) {
                if !mark.is_passed_by(reached) {
                    continue;
                }
                found.extend(mark.missed(client, mart).await?);
            }
            self.marks.insert(mart.clone(), Mark::of(client, mart, reached).await?);
        }
        Ok(found)
    }

    async fn emptied(&mut self, client: &Client) -> Result<Vec<Violation>> {
        let rows = client.query("select mart, count(*) from chaos.mart group by mart", &[]).await?;
        let now: HashMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let lost = self.filled.iter().filter(|(mart, _)| !now.contains_key(*mart));
        let found = lost.map(|(mart, rows)| {
            Violation::new("a mart was emptied", mart, format!("it had {rows} rows at the last look"))
        });
        let found = found.collect();
        self.filled.extend(now);
        Ok(found)
    }
}

/// `opened_at` is the start of the transaction that opened the pass, so its snapshot is as late or later. A copy of a
/// remote target is as far as its pipeline was before it was made.
async fn progress(client: &Client) -> Result<HashMap<String, Progress>> {
    let sql = "select p.name, (extract(epoch from clock_timestamp()) * 1000000)::bigint,
                      (extract(epoch from case when e.mart is null then (s.checkpoint #>> '{position,done,opened_at}')::timestamptz else e.opened_at end) * 1000000)::bigint,
                      coalesce(e.successes, (select count(*) from chaos.closings c where c.pipeline = p.name and c.status = 'SUCCESS' and c.is_pass))
                 from etl.etl_pipelines p join etl.etl_state s on s.pipeline_id = p.id left join chaos.elsewhere_progress e on e.mart = p.name
                where p.name in (select mart from chaos.source) and (e.mart is not null or p.name not in ('film_remote', 'film_index'))";
    let rows = client.query(sql, &[]).await?;
    let progress = |row: &tokio_postgres::Row| {
        (row.get(0), Progress { now: row.get(1), opened_at: row.get(2), successes: row.get(3) })
    };
    Ok(rows.iter().map(progress).collect())
}

impl Mark {
    async fn of(client: &Client, mart: &str, reached: &Progress) -> Result<Self> {
        let visible = "select id, version from chaos.source where mart = $1 and visible";
        let visible = client.query(visible, &[&mart]).await?;
        let ghosts = "select m.id, coalesce(s.hidden_version, 9223372036854775807) from chaos.mart m
                       left join chaos.source s on s.mart = m.mart and s.id = m.id where m.mart = $1 and s.visible is not true and s.refused is not true";
        let ghosts = client.query(ghosts, &[&mart]).await?;
        Ok(Self {
            at: reached.now,
            successes: reached.successes,
            ids: visible.iter().map(|row| row.get(0)).collect(),
            versions: visible.iter().map(|row| row.get(1)).collect(),
            ghosts: ghosts.iter().map(|row| row.get(0)).collect(),
            gone_in: ghosts.iter().map(|row| row.get(1)).collect(),
        })
    }

    fn is_passed_by(&self, reached: &Progress) -> bool {
        reached.opened_at.is_some_and(|opened_at| opened_at > self.at)
            || reached.successes >= self.successes + 2
    }

    async fn missed(&self, client: &Client, mart: &str) -> Result<Vec<Violation>> {
        let stale = "select e.id, e.version, m.version from unnest($2::int[], $3::bigint[]) e(id, version)
                       left join chaos.mart m on m.mart = $1 and m.id = e.id
                       left join chaos.source s on s.mart = $1 and s.id = e.id
                      where case when m.id is not null then m.version < e.version else s.hidden_version <= e.version end
                        and (s.version = e.version or not $4)";
        let stale =
            client.query(stale, &[&mart, &self.ids, &self.versions, &!NOT_BY_CURSOR.contains(&mart)]).await?;
        let ghosts = "select e.id, m.version from unnest($2::int[], $3::bigint[]) e(id, version)
                        join chaos.mart m on m.mart = $1 and m.id = e.id where m.version < e.version";
        let ghosts = client.query(ghosts, &[&mart, &self.ghosts, &self.gone_in]).await?;
        let mut found = Vec::new();
        if let Some(row) = stale.first() {
            let (id, wanted, has): (i32, i64, Option<i64>) = (row.get(0), row.get(1), row.get(2));
            let has = has.map_or("nothing".to_owned(), |version| format!("version {version}"));
            let detail = format!(
                "{} rows, such as {id}: version {wanted} was committed before the pass, the mart has {has}",
                stale.len()
            );
            found.push(Violation::new("the checkpoint is ahead of the mart", mart, detail));
        }
        if let Some(row) = ghosts.first() {
            let detail = format!(
                "{} rows, such as {} in version {}",
                ghosts.len(),
                row.get::<_, i32>(0),
                row.get::<_, i64>(1)
            );
            found.push(Violation::new("a row outlived its source", mart, detail));
        }
        Ok(found)
    }
}

pub(super) async fn torn_or_ahead(client: &Client) -> Result<Vec<Violation>> {
    let sql = "select m.mart, m.id, m.version, s.version, m.image, s.image from chaos.mart m
                 join chaos.source s on s.mart = m.mart and s.id = m.id
                where m.version > s.version or (m.version = s.version and m.image <> s.image)";
    let rows = client.query(sql, &[]).await?;
    let violation = |row: &tokio_postgres::Row| {
        let (id, mart, source): (i32, i64, i64) = (row.get(1), row.get(2), row.get(3));
        let detail = format!(
            "row {id} in version {mart} {:?}, its source in {source} {:?}",
            row.get::<_, &str>(4),
            row.get::<_, &str>(5)
        );
        let rule = if mart > source {
            "a mart is ahead of its source"
        } else {
            "a row is not what its version says"
        };
        Violation::new(rule, row.get(0), detail)
    };
    Ok(rows.iter().map(violation).collect())
}

/// At the end: marts are what their sources make of them, row by row.
pub async fn differences(client: &Client) -> Result<Vec<Violation>> {
    let sql = "with source as (select mart, id, version, image from chaos.source where visible), mart as (table chaos.mart)
               select mart, count(*), min(text) from (
                    select mart, 'in the source only: ' || concat_ws(' ', id, version, image) as text from (table source except all table mart) a
                    union all select mart, 'in the mart only: ' || concat_ws(' ', id, version, image) from (table mart except all table source) b) d
                group by mart";
    let rows = client.query(sql, &[]).await?;
    let violation = |row: &tokio_postgres::Row| {
        let detail = format!("{} rows, such as {}", row.get::<_, i64>(1), row.get::<_, &str>(2));
        Violation::new("in the end the mart differs from its source", row.get(0), detail)
    };
    Ok(rows.iter().map(violation).collect())
}
