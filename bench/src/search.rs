//! Films into a search index, beside posting ready-made lines with curl: over one connection and over two, plain and
//! compressed. The best of these is the limit.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use vitrina_core::{Level, Verdict};
use vitrina_store::RunRecord;
use vitrina_testbed::{Distribution, OwnSearchServer, SearchServer};

use crate::clock::{Clock, Took, steady};
use crate::ground::Ground;
use crate::reconcile::compare;
use crate::report::Measured;
use crate::runner_process::RunnerProcess;

pub(crate) const NAMES: [&str; 4] = ["search-full", "search-hashes", "search-scan", "search-incr"];

const FILMS: f64 = 200_000.0;
/// Of both sides in turn, as their servers are busy with their own affairs at times.
const ROUNDS: i64 = 5;
/// Increments are short, and the first of them meet code of the server that Java has not compiled yet: these do not count,
/// but for finding out which way is curl's best.
const WARM_UPS: i64 = 6;
/// One of them may take a third more than the next, by the machine's own affairs alone.
const INCREMENTS: i64 = 24;
/// Compressed or not, over so many connections.
type Way = (bool, usize);
const WAYS: [Way; 4] = [(false, 1), (false, 2), (true, 1), (true, 2)];
const BATCH: i32 = 10_000;
const INDEX: &str = "films";
/// What both post into: the same fields and settings as the sink's.
const COPY: &str = "curl";
const CHUNK: usize = 5 << 20;
const QUERY: &str =
    "select id, title, description, creation_date, rating, type, created, modified from content.shelf";

/// As long as the sink's, and of any value: the server asks for no more.
const CHECKSUM: &str = "json_build_object('bucket', hashtext(id::text) & 4095,
        'low', hashtextextended(id::text, 1) & 4294967295, 'high', hashtextextended(id::text, 2) & 4294967295) as _vitrina";

/// Other workloads have changed films by now: a stamp behind theirs would be no change to a cursor.
const SHELF: &str = "create table content.shelf as select id, title, description, creation_date, rating, type, created, least(modified, '2026-01-01') as modified
        from content.film_work order by id limit $films;
    alter table content.shelf add primary key (id); alter table content.shelf alter modified set not null;
    create index on content.shelf (modified, id); grant select on content.shelf to public;
    insert into etl.etl_targets (name, connection, key) values ('es:films', 'search', '{id}')";
const TOUCH_A_TENTH: &str = "update content.shelf set title = title || '!', modified = '$stamp'
    where id in (select id from content.shelf order by md5(id::text) limit (select count(*) / 10 from content.shelf))";

pub(crate) async fn measure(names: &[&str], ground: &Ground, scale: f64) -> Result<Vec<Measured>> {
    let bench = Bench::start(ground, scale).await?;
    // Java compiles what it has run for a while: both sides meet a server that is warm.
    bench.run("search-full").await?;
    bench.limits(&WAYS, "true", 1).await?;
    let mut measured = Vec::new();
    if names.contains(&"search-full") {
        measured.push(bench.full().await?);
    }
    for (name, level) in [("search-hashes", Level::Hash), ("search-scan", Level::Rows)] {
        if names.contains(&name) {
            measured.push(bench.compared(name, level).await?);
        }
    }
    if names.contains(&"search-incr") {
        measured.push(bench.incremental().await?);
    }
    Ok(measured)
}

#[derive(Default)]
struct Rounds {
    /// By their way.
    curl: BTreeMap<Way, Vec<Took>>,
    vitrina: Vec<Took>,
    /// Rows and batches of the last run.
    size: (u64, u64),
}

impl Rounds {
    fn add(&mut self, curl: &[(Way, Took)], took: Took, run: &RunRecord) {
        self.vitrina.push(took);
        self.size = (run.rows_read, run.batches);
        curl.iter().for_each(|(way, took)| self.curl.entry(*way).or_default().push(*took));
    }

    /// The way that is the best of them, and what it takes.
    fn limit(&self) -> (Way, Took) {
        let ways = self.curl.iter().map(|(way, all)| (*way, steady(all)));
        ways.min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds)).expect("at least one way was gone")
    }
}

struct Bench<'a> {
    ground: &'a Ground,
    server: OwnSearchServer,
    runner: RunnerProcess,
    films: u64,
}

impl<'a> Bench<'a> {
    async fn start(ground: &'a Ground, scale: f64) -> Result<Self> {
        let films = (FILMS * scale.min(1.0)) as u64;
        ground.sql(&SHELF.replace("$films", &films.to_string()))?;
        ground.sql("vacuum analyze content.shelf")?;
        let distribution = match std::env::var("BENCH_SEARCH").as_deref() {
            Ok("elasticsearch") => Distribution::Elasticsearch,
            _ => Distribution::OpenSearch,
        };
        let server = SearchServer::own_for_work(distribution).await;
        let search = [("VITRINA_CONNECTIONS_SEARCH_URL", server.url())];
        let runner = RunnerProcess::start_with(&ground.url, &ground.url, &search)?;
        let bench = Self { ground, server, runner, films };
        bench.pipeline("search-full", "full").await?;
        Ok(bench)
    }

    async fn full(&self) -> Result<Measured> {
        eprintln!("search-full …");
        let mut rounds = Rounds::default();
        for round in 0..ROUNDS {
            let curl = self.limits(&WAYS, "true", 2 + round).await?;
            let (took, run) = self.run("search-full").await?;
            rounds.add(&curl, took, &run);
        }
        self.judged("search-full", &rounds)
    }

    async fn incremental(&self) -> Result<Measured> {
        eprintln!("search-incr …");
        self.ground.sql("delete from etl.etl_pipelines where name = 'search-full'")?;
        self.pipeline("search-incr", "incremental").await?;
        self.forget().await?;
        self.run("search-incr").await?;
        self.settle_copy().await?;
        let (mut warm, mut step) = (Rounds::default(), 0);
        for round in 0..WARM_UPS {
            self.increment(&WAYS, 1000 + round, &mut step, &mut warm).await?;
            // The server has met curl in all of its ways: as often it meets Vitrina.
            for _ in 1..WAYS.len() {
                self.touch(&mut step)?;
                self.run("search-incr").await?;
            }
        }
        // The least of several medians is less than any of them is worth: the best way is chosen before it is timed.
        let (best, _) = warm.limit();
        let mut rounds = Rounds::default();
        for round in 0..INCREMENTS {
            self.increment(&[best], 1000 + WARM_UPS + round, &mut step, &mut rounds).await?;
        }
        self.judged("search-incr", &rounds)
    }

    async fn increment(&self, ways: &[Way], version: i64, step: &mut u32, rounds: &mut Rounds) -> Result<()> {
        let changed = self.touch(step)?;
        let curl = self.limits(ways, &changed, version).await?;
        let (took, run) = self.run("search-incr").await?;
        ensure!(run.rows_read == self.films / 10, "{} rows were read", run.rows_read);
        rounds.add(&curl, took, &run);
        Ok(())
    }

    /// Changes a tenth of the films; answers what tells them apart.
    fn touch(&self, step: &mut u32) -> Result<String> {
        *step += 1;
        let stamp = format!("2026-06-{:02} {:02}:00", 1 + *step / 24, *step % 24);
        self.ground.sql(&TOUCH_A_TENTH.replace("$stamp", &stamp))?;
        self.ground.sql("vacuum analyze content.shelf")?;
        Ok(format!("modified >= '{stamp}'"))
    }

    /// The index beside its source, by checksums or by its documents; the limit is one look at either side.
    async fn compared(&self, name: &str, level: Level) -> Result<Measured> {
        eprintln!("{name} …");
        let (mut seconds, mut limits, mut rows) = (Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            self.quiet().await?;
            let clock = Clock::start()?;
            let source = self.ground.timed_sql(&format!("copy ({QUERY}) to '/dev/null' (format binary)"))?;
            let limit = clock.stop_with(source + self.looked_at(level).await?)?;
            let (took, verdict, figures) = compare(&self.ground.store, "search-full", level).await?;
            ensure!(verdict == Verdict::Equal && figures.rows_read == 0, "{verdict} {figures:?}");
            eprintln!("  limit: {limit}, compared: {took}");
            limits.push(limit);
            seconds.push(took);
            rows = figures.target.rows;
        }
        Ok(Measured::steady(name, rows, &seconds, steady(&limits)).by(&self.runner.usage()?))
    }

    /// Sums of all documents, or every document once.
    async fn looked_at(&self, level: Level) -> Result<Duration> {
        let started = Instant::now();
        if level == Level::Hash {
            let sum = |part: &str| json!({"sum": {"field": format!("_vitrina.{part}")}});
            let body = json!({"size": 0, "aggs": {"b": {"terms": {"field": "_vitrina.bucket", "size": 4096},
                              "aggs": {"low": sum("low"), "high": sum("high")}}}});
            self.server.search(INDEX, body).await;
            return Ok(started.elapsed());
        }
        let first = json!({"size": 2000, "sort": ["_doc"]});
        let (_, mut page) = self.server.call("POST", &format!("{INDEX}/_search?scroll=1m"), first).await;
        while page["hits"]["hits"].as_array().is_some_and(|hits| !hits.is_empty()) {
            let next = json!({"scroll": "1m", "scroll_id": page["_scroll_id"]});
            (_, page) = self.server.call("POST", "_search/scroll", next).await;
        }
        Ok(started.elapsed())
    }

    async fn pipeline(&self, name: &str, mode: &str) -> Result<()> {
        let cursor = (mode == "incremental").then_some(("modified", "id"));
        let pipeline = json!({
            "name": name, "source_query": QUERY, "target_table": format!("es:{INDEX}"), "mode": mode, "batch_size": BATCH,
            "incremental_key": cursor.map(|cursor| cursor.0), "incremental_id_key": cursor.map(|cursor| cursor.1),
        });
        self.ground.pipeline(&pipeline).await
    }

    async fn run(&self, name: &str) -> Result<(Took, RunRecord)> {
        self.quiet().await?;
        let (took, run) = self.runner.timed_run(&self.ground.store, name).await?;
        eprintln!("  vitrina: {took}");
        let count = self.server.count(INDEX).await;
        ensure!(count > 0, "the index is empty");
        Ok((took, run))
    }

    /// The index is nobody's from now on.
    async fn forget(&self) -> Result<()> {
        let path = format!("vitrina-control/_doc/{INDEX}");
        let (status, _) = self.server.call("DELETE", &path, Value::Null).await;
        ensure!(status == 200, "the control document cannot be deleted");
        Ok(())
    }

    fn judged(&self, name: &str, rounds: &Rounds) -> Result<Measured> {
        let (rows, batches) = rounds.size;
        let (_, limit) = rounds.limit();
        let measured = Measured::steady(name, rows, &rounds.vitrina, limit);
        Ok(Measured { batches: Some(batches), ..measured.by(&self.runner.usage()?) })
    }

    /// How long each of the ways takes to post the documents of these films.
    async fn limits(&self, ways: &[Way], condition: &str, version: i64) -> Result<Vec<(Way, Took)>> {
        let mut all = Vec::new();
        for (place, way) in ways.iter().enumerate() {
            // A version of its own for each: one that is there already would cost the server nothing.
            let folder = self.chunks(condition, version * WAYS.len() as i64 + place as i64)?;
            let took = self.post(&folder, *way, condition == "true").await?;
            require_written(&folder)?;
            std::fs::remove_dir_all(folder)?;
            all.push((*way, took));
        }
        Ok(all)
    }

    /// What was written before is refreshed and merged in the background: nobody is timed meanwhile.
    async fn quiet(&self) -> Result<()> {
        self.server.refresh("_all").await;
        loop {
            let stats = self.server.get("_nodes/stats/indices/merge").await;
            let nodes = stats["nodes"].as_object().context("the nodes")?;
            if nodes.values().all(|node| node["indices"]["merges"]["current"] == 0) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn post(&self, folder: &Path, (gzip, connections): Way, anew: bool) -> Result<Took> {
        if anew {
            self.fresh_copy().await?;
        }
        let (pattern, header) = if gzip { ("*.gz", "-H 'content-encoding: gzip'") } else { ("*.ndjson", "") };
        let answer = "filter_path=errors,items.*.status,items.*.error.type";
        let script = format!(
            "find {} -name '{pattern}' | sort | xargs -P {connections} -I% curl -s -S -f -o %.answer -H 'content-type: application/x-ndjson' {header} \
             --data-binary @% '{}/{COPY}/_bulk?{answer}'",
            folder.display(),
            self.server.url()
        );
        self.quiet().await?;
        let clock = Clock::start()?;
        let status = Command::new("bash").args(["-c", &script]).status()?;
        ensure!(status.success(), "curl failed");
        // As the sink does: a load is refreshed before readers see it, a batch when the server gets to it.
        if anew {
            self.server.refresh(COPY).await;
        }
        let took = clock.stop()?;
        let way = if gzip { "gzip" } else { "plain" };
        eprintln!("  curl, {connections} connections, {way}: {took}");
        self.server.refresh(COPY).await;
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

    /// With the settings that the sink's index has when readers see it.
    async fn settle_copy(&self) -> Result<()> {
        let settings = json!({"index": {"refresh_interval": null}});
        let (status, answer) = self.server.call("PUT", &format!("{COPY}/_settings"), settings).await;
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
               from (select shelf.*, {CHECKSUM} from ({QUERY} where {condition}) shelf) q"
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

/// The server has taken every document.
fn require_written(folder: &Path) -> Result<()> {
    let answers = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let answers = answers.iter().map(std::fs::DirEntry::path);
    let mut answers = answers.filter(|path| path.extension().is_some_and(|end| end == "answer")).peekable();
    ensure!(answers.peek().is_some(), "the server has answered nothing");
    for answer in answers {
        let answer: Value = serde_json::from_slice(&std::fs::read(&answer)?)?;
        ensure!(answer["errors"] == false, "the server has refused documents of curl's");
    }
    Ok(())
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
