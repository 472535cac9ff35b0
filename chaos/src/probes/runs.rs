//! Runs, attempts, batches and leases: how many are open, what they add up to, and whether any is left behind.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::Client;

use super::Violation;

/// Beyond the end of its lease nobody waits longer than this for a new owner.
const TAKEOVER: Duration = Duration::from_secs(5);
/// A run of a fraction of a second, with all that can happen to it, and with waits for an idle runner.
const LONGEST_RUN_SECONDS: f64 = 90.0;

/// At the end, over all that has happened.
pub async fn whole_history(client: &Client) -> Result<Vec<Violation>> {
    let mut found = compare_figures(client, "true").await?;
    found.extend(compare_with_batches(client, "").await?);
    Ok(found)
}

/// A run's figures are the sum of its batches.
pub(super) async fn wrong_figures(client: &Client) -> Result<Vec<Violation>> {
    let which =
        "r.finished_at is null or r.id in (select run from chaos.closings order by seq desc limit 20)";
    compare_figures(client, which).await
}

async fn compare_figures(client: &Client, which: &str) -> Result<Vec<Violation>> {
    let sql = format!(
        "select p.name, r.id::text, concat_ws(' ', r.rows_read, r.rows_written, r.rows_unchanged, r.rows_deleted, r.bytes, r.batches),
                      concat_ws(' ', b.read, b.written, b.unchanged, b.deleted, b.bytes, b.batches)
                 from etl.etl_runs r join etl.etl_pipelines p on p.id = r.pipeline_id,
                      lateral (select coalesce(sum(rows_read), 0) as read, coalesce(sum(rows_inserted + rows_updated), 0) as written,
                                      coalesce(sum(rows_unchanged), 0) as unchanged, coalesce(sum(rows_deleted), 0) as deleted,
                                      coalesce(sum(bytes), 0) as bytes, count(*) as batches from etl.etl_batches b where b.run_id = r.id) b
                where ({which}) and (r.rows_read, r.rows_written, r.rows_unchanged, r.rows_deleted, r.bytes, r.batches)
                      <> (b.read, b.written, b.unchanged, b.deleted, b.bytes, b.batches)"
    );
    let rows = client.query(&sql, &[]).await?;
    let violation = |row: &tokio_postgres::Row| {
        let detail = format!(
            "run {} says {}, its batches {}",
            row.get::<_, &str>(1),
            row.get::<_, &str>(2),
            row.get::<_, &str>(3)
        );
        Violation::new("a run's figures are not the sum of its batches", row.get(0), detail)
    };
    Ok(rows.iter().map(violation).collect())
}

/// One open run a pipeline and one open attempt of it, and both only while the pipeline says so.
pub(super) async fn too_many_open(client: &Client) -> Result<Vec<Violation>> {
    let sql = "select p.name, p.status, r.runs, a.attempts, (p.owner is not null)::int from etl.etl_pipelines p,
                      lateral (select count(*) as runs from etl.etl_runs r where r.pipeline_id = p.id and r.status in ('REQUESTED', 'RUNNING')) r,
                      lateral (select count(*) as attempts from etl.etl_attempts a where a.pipeline_id = p.id and a.ended_at is null) a
                where r.runs <> (p.run_id is not null)::int or a.attempts <> (p.owner is not null)::int";
    let rows = client.query(sql, &[]).await?;
    let violation = |row: &tokio_postgres::Row| {
        let (status, runs, attempts, owners): (&str, i64, i64, i32) =
            (row.get(1), row.get(2), row.get(3), row.get(4));
        let detail = format!("{status} with {runs} open runs, {attempts} open attempts and {owners} owners");
        Violation::new("open runs, open attempts and owner do not agree", row.get(0), detail)
    };
    Ok(rows.iter().map(violation).collect())
}

/// Every transaction that wrote to a mart entered a batch of just these rows.
pub(super) async fn apart_from_their_batch(client: &Client) -> Result<Vec<Violation>> {
    compare_with_batches(client, "where seq > (select coalesce(max(seq), 0) - 1000 from chaos.mart_log)")
        .await
}

async fn compare_with_batches(client: &Client, which: &str) -> Result<Vec<Violation>> {
    let sql = format!(
        "select w.mart, w.xid::text, w.rows, coalesce(concat_ws(' ', b.inserted, b.updated, b.deleted), 'no batch') from (
                select mart, xid, concat_ws(' ', count(*) filter (where op = 'I'), count(*) filter (where op = 'U'), count(*) filter (where op = 'D')) as rows
                  from chaos.mart_log where xid in (select xid from chaos.mart_log {which}) group by mart, xid) w
           left join chaos.batch_log b on b.xid = w.xid and b.pipeline = w.mart
          where w.rows is distinct from concat_ws(' ', b.inserted, b.updated, b.deleted)"
    );
    let rows = client.query(&sql, &[]).await?;
    let violation = |row: &tokio_postgres::Row| {
        let detail = format!(
            "transaction {} inserted, updated, deleted {}, its batch says {}",
            row.get::<_, &str>(1),
            row.get::<_, &str>(2),
            row.get::<_, &str>(3)
        );
        Violation::new("rows were committed apart from their batch", row.get(0), detail)
    };
    Ok(rows.iter().map(violation).collect())
}

/// No lease is left behind while somebody healthy could take it. A pipeline that has stalled twice waits for an
/// idle runner, which may take a while.
/// `slowness` is that of the machine.
pub async fn left_behind(
    client: &Client,
    healthy: Option<Duration>,
    slowness: f64,
) -> Result<Vec<Violation>> {
    let limit = TAKEOVER.mul_f64(slowness);
    if healthy.is_none_or(|healthy| healthy < limit + Duration::from_secs(1)) {
        return Ok(Vec::new());
    }
    let sql = "select name, status, lease_token::text, extract(epoch from now() - lease_until)::float8
                 from etl.etl_pipelines where lease_until < now() - $1 * interval '1 second'
                  and (stalls < 1 or status = 'PAUSE_REQUESTED')";
    let rows = client.query(sql, &[&limit.as_secs_f64()]).await?;
    let violation = |row: &tokio_postgres::Row| {
        let (status, token, late): (&str, &str, f64) = (row.get(1), row.get(2), row.get(3));
        Violation::new(
            "nobody took over",
            row.get(0),
            format!(
                "{status}, token {token} is over for {late:.1} s, on a machine that is {slowness:.1} times slower than at best"
            ),
        )
    };
    Ok(rows.iter().map(violation).collect())
}

pub(super) async fn stuck(client: &Client) -> Result<Vec<Violation>> {
    let sql = "select p.name, p.status, r.id::text, extract(epoch from now() - r.requested_at)::float8
                 from etl.etl_pipelines p join etl.etl_runs r on r.id = p.run_id
                where r.requested_at < now() - $1 * interval '1 second' and coalesce(p.retry_at, '-infinity') < now()";
    let rows = client.query(sql, &[&LONGEST_RUN_SECONDS]).await?;
    let violation = |row: &tokio_postgres::Row| {
        let (status, run, seconds): (&str, &str, f64) = (row.get(1), row.get(2), row.get(3));
        Violation::new(
            "a run is stuck",
            row.get(0),
            format!("run {run}, {status}, was asked for {seconds:.0} s ago"),
        )
    };
    Ok(rows.iter().map(violation).collect())
}
