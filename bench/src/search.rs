//! Films into a search index, beside posting ready-made lines with curl: over one connection and over two, plain and
//! compressed. The best of these is the limit.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use vitrina_store::RunRecord;
use vitrina_testbed::{Distribution, OwnSearchServer, SearchServer};

use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;

pub(crate) const NAMES: [&str; 2] = ["search-full", "search-incr"];

const FILMS: f64 = 200_000.0;
const BATCH: i32 = 10_000;
const INDEX: &str = "films";
/// What both post into: the same fields and settings as the sink's.
const COPY: &str = "curl";
const CHUNK: usize = 5 << 20;
const QUERY: &str =
    "select id, title, description, creation_date, rating, type, created, modified from content.shelf";

const SHELF: &str = "create table content.shelf as select id, title, description, creation_date, rating, type, created, modified
        from content.film_work order by id limit $films;
    alter table content.shelf add primary key (id); alter table content.shelf alter modified set not null;
    create index on content.shelf (modified, id); grant select on content.shelf to public;
    insert into etl.etl_targets (name, connection, key) values ('es:films', 'search', '{id}')";
const TOUCH_A_TENTH: &str = "update content.shelf set title = title || '!', modified = '2026-06-01'
    where id in (select id from content.shelf order by md5(id::text) limit (select count(*) / 10 from content.shelf))";
const CHANGED: &str = "modified > '2026-01-01'";

pub(crate) async fn measure(names: &[&str], ground: &Ground, scale: f64) -> Result<Vec<Measured>> {
    let bench = Bench::start(ground, scale).await?;
    // Java compiles what it has run for a while: both sides meet a server that is warm.
    bench.run("search-full").await?;
    bench.limit("true", 1).await?;
    let mut measured = Vec::new();
    if names.contains(&"search-full") {
        eprintln!("search-full …");
        let limit = bench.limit("true", 2).await?;
        let run = bench.run("search-full").await?;
        measured.push(bench.judged("search-full", &run, limit)?);
    }
    if names.contains(&"search-incr") {
        eprintln!("search-incr …");
        bench.ground.sql("delete from etl.etl_pipelines where name = 'search-full'")?;
        bench.pipeline("search-incr", "incremental").await?;
        bench.forget().await?;
        bench.run("search-incr").await?;
        bench.ground.sql(TOUCH_A_TENTH)?;
        bench.ground.sql("vacuum analyze content.shelf")?;
        let limit = bench.limit(CHANGED, 1000).await?;
        let run = bench.run("search-incr").await?;
        measured.push(bench.judged("search-incr", &run, limit)?);
    }
    Ok(measured)
}

struct Bench<'a> {
    ground: &'a Ground,
    server: OwnSearchServer,
    runner: RunnerProcess,
}

impl<'a> Bench<'a> {
    async fn start(ground: &'a Ground, scale: f64) -> Result<Self> {
        let films = (FILMS * scale.min(1.0)) as u32;
        ground.sql(&SHELF.replace("$films", &films.to_string()))?;
        ground.sql("vacuum analyze content.shelf")?;
        let distribution = match std::env::var("BENCH_SEARCH").as_deref() {
            Ok("elasticsearch") => Distribution::Elasticsearch,
            _ => Distribution::OpenSearch,
        };
        let server = SearchServer::own_for_work(distribution).await;
        let search = [("VITRINA_CONNECTIONS_SEARCH_URL", server.url())];
        let runner = RunnerProcess::start_with(&ground.url, &ground.url, &search)?;
        let bench = Self { ground, server, runner };
        bench.pipeline("search-full", "full").await?;
        Ok(bench)
    }

    async fn pipeline(&self, name: &str, mode: &str) -> Result<()> {
        let cursor = (mode == "incremental").then_some(("modified", "id"));
        let pipeline = json!({
            "name": name, "source_query": QUERY, "target_table": format!("es:{INDEX}"), "mode": mode, "batch_size": BATCH,
            "incremental_key": cursor.map(|cursor| cursor.0), "incremental_id_key": cursor.map(|cursor| cursor.1),
        });
        self.ground.pipeline(&pipeline).await
    }

    async fn run(&self, name: &str) -> Result<RunRecord> {
        let run = self.runner.run(&self.ground.store, name).await?;
        let count = self.server.count(INDEX).await;
        ensure!(count > 0, "the index is empty");
        Ok(run)
    }

    /// The index is nobody's from now on.
    async fn forget(&self) -> Result<()> {
        let path = format!("vitrina-control/_doc/{INDEX}");
        let (status, _) = self.server.call("DELETE", &path, Value::Null).await;
        ensure!(status == 200, "the control document cannot be deleted");
        Ok(())
    }

    fn judged(&self, name: &str, run: &RunRecord, limit: Duration) -> Result<Measured> {
        let (Some(started), Some(finished)) = (run.started_at, run.finished_at) else {
            anyhow::bail!("the run has no times")
        };
        let seconds = finished.duration_since(started).as_secs_f64();
        let measured =
            Measured::new(name, run.rows_read, seconds, limit.as_secs_f64()).by(&self.runner.usage()?);
        Ok(Measured { batches: Some(run.batches), ..measured })
    }

    /// The best of four ways to post the documents of these films.
    async fn limit(&self, condition: &str, version: i64) -> Result<Duration> {
        let folder = self.chunks(condition, version)?;
        let mut best = Duration::MAX;
        for (gzip, connections) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
            let took = self.post(&folder, gzip, connections, condition == "true").await?;
            let way = if gzip { "gzip" } else { "plain" };
            eprintln!("  curl, {connections} connections, {way}: {:.2} s", took.as_secs_f64());
            best = best.min(took);
        }
        std::fs::remove_dir_all(folder)?;
        Ok(best)
    }

    async fn post(&self, folder: &Path, gzip: bool, connections: usize, anew: bool) -> Result<Duration> {
        if anew {
            self.fresh_copy().await?;
        }
        let (pattern, header) = if gzip { ("*.gz", "-H 'content-encoding: gzip'") } else { ("*.ndjson", "") };
        let answer = "filter_path=errors,items.*.status,items.*.error.type";
        let script = format!(
            "find {} -name '{pattern}' | sort | xargs -P {connections} -I% curl -s -S -f -o /dev/null -H 'content-type: application/x-ndjson' {header} \
             --data-binary @% '{}/{COPY}/_bulk?{answer}'",
            folder.display(),
            self.server.url()
        );
        let started = Instant::now();
        let status = Command::new("bash").args(["-c", &script]).status()?;
        ensure!(status.success(), "curl failed");
        self.server.refresh(COPY).await;
        let took = started.elapsed();
        ensure!(self.server.count(COPY).await >= 1, "nothing was posted");
        Ok(took)
    }

    /// With the mapping of the sink's index, and its settings while it is loaded.
    async fn fresh_copy(&self) -> Result<()> {
        self.server.call("DELETE", COPY, Value::Null).await;
        let mapping = self.server.get(&format!("{INDEX}/_mapping")).await;
        let mapping = mapping.as_object().and_then(|indexes| indexes.values().next()).context("a mapping")?;
        let settings =
            json!({"index": {"refresh_interval": "-1", "number_of_replicas": 0, "gc_deletes": "24h"}});
        let body = json!({"settings": settings, "mappings": mapping["mappings"]});
        let (status, answer) = self.server.call("PUT", COPY, body).await;
        ensure!(status == 200, "{answer}");
        Ok(())
    }

    /// The lines as the sink would send them, in files of a few megabytes, plain and compressed.
    fn chunks(&self, condition: &str, version: i64) -> Result<PathBuf> {
        let folder = self.ground.file("chunks", "")?.with_extension("d");
        std::fs::create_dir_all(&folder)?;
        let lines = folder.join("all");
        let select = format!(
            "select json_build_object('index', json_build_object('_id', id, 'version', {version}, 'version_type', 'external'))::text || chr(10) || to_json(q)::text
               from ({QUERY} where {condition}) q"
        );
        self.ground.dump(&select, &lines)?;
        let text = std::fs::read(&lines)?;
        std::fs::remove_file(&lines)?;
        for (number, chunk) in split(&text).into_iter().enumerate() {
            std::fs::write(folder.join(format!("{number:04}.ndjson")), chunk)?;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(chunk)?;
            std::fs::write(folder.join(format!("{number:04}.gz")), encoder.finish()?)?;
        }
        Ok(folder)
    }
}

/// Behind whole documents: an action and its document are two lines.
fn split(text: &[u8]) -> Vec<&[u8]> {
    let ends: Vec<usize> =
        text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let (mut chunks, mut start) = (Vec::new(), 0);
    for end in ends.iter().skip(1).step_by(2) {
        if end - start >= CHUNK || end == ends.last().unwrap_or(&0) {
            chunks.push(&text[start..*end]);
            start = *end;
        }
    }
    chunks
}
