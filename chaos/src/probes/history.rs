//! What the triggers of the harness wrote down: blame, takeovers, and how runs ended.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use tokio_postgres::Client;

use super::{Prober, Violation};
use crate::fleet::Fleet;

/// Kills leave leases behind; enough of them in a row look like a pipeline that kills its runners.
const EXPLAINED: [&str; 1] = ["run.stalled"];
/// What pipelines of trials are meant to fail with.
const MEANT: [(&str, &str); 5] = [
    ("failed_load", "rejects.limit"),
    ("delete_limit", "sink.delete_limit"),
    ("widened_numeric", "sink.type_mismatch"),
    ("retyped_column", "sink.type_mismatch"),
    ("second_writer", "sink.owned"),
];

impl Prober {
    pub(super) async fn blamed(&mut self, client: &Client) -> Result<Vec<Violation>> {
        let rows = self.blamed.rows(client, "rule, coalesce(pipeline, ''), detail, at::text").await?;
        let violation = |row: &tokio_postgres::Row| {
            let (rule, pipeline, detail, at): (&str, &str, &str, &str) =
                (row.get(1), row.get(2), row.get(3), row.get(4));
            Violation::new(rule, pipeline, format!("{detail}, at {at}"))
        };
        Ok(rows.iter().map(violation).collect())
    }

    /// A runner that nobody has harmed renews its leases.
    pub(super) async fn takeovers(
        &mut self,
        client: &Client,
        fleet: &Mutex<Fleet>,
    ) -> Result<Vec<Violation>> {
        let columns = "pipeline, runner, seconds_late, suspect, extract(epoch from at)::float8, at::text";
        let rows = self.takeovers.rows(client, columns).await?;
        let mut found = Vec::new();
        for row in rows {
            let (pipeline, runner, late): (&str, &str, f64) = (row.get(1), row.get(2), row.get(3));
            self.takeover_count += 1;
            if !row.get::<_, bool>(4) {
                self.longest_takeover = self.longest_takeover.max(late);
            }
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(row.get(5));
            if fleet.lock().expect("no holder panics").has_no_excuse(runner, at) {
                let detail = format!("{runner}, {late:.2} s after its lease, at {}", row.get::<_, &str>(6));
                found.push(Violation::new("a healthy runner lost its lease", pipeline, detail));
            }
        }
        Ok(found)
    }

    pub(super) async fn failures(&mut self, client: &Client) -> Result<Vec<Violation>> {
        let columns = "pipeline, run::text, status, coalesce(error_code, ''), coalesce(error, '')";
        let rows = self.closings.rows(client, columns).await?;
        let mut found = Vec::new();
        for row in rows {
            let (status, code): (&str, &str) = (row.get(3), row.get(4));
            let is_meant = EXPLAINED.contains(&code) || MEANT.contains(&(row.get(1), code));
            if status == "FAILED" && !is_meant {
                let detail = format!("run {}: {code}: {}", row.get::<_, &str>(2), row.get::<_, &str>(5));
                found.push(Violation::new(&format!("a run failed: {code}"), row.get(1), detail));
            }
        }
        Ok(found)
    }
}

/// The latest of what a pipeline went through, oldest first.
pub(super) async fn of(client: &Client, pipeline: &str) -> Result<Vec<String>> {
    let sql = "select to_char(at, 'HH24:MI:SS.MS ') || line from
               (select * from chaos.history where pipeline = $1 order by seq desc limit 25) last order by seq";
    let rows = client.query(sql, &[&pipeline]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
