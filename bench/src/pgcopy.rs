//! The codec alone: a COPY BINARY stream of wide rows, held in memory, decoded to Arrow and encoded
//! again, beside the time in which the server itself writes that stream to nowhere.

use std::fs;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use vitrina_pgcopy::{Column, Decoder, Encoder, select_list};

use crate::ground::Ground;
use crate::report::Measured;

pub(crate) const NAME: &str = "pgcopy";

const ROWS: f64 = 200_000.0;
/// As a source cuts its batches.
const BATCH_ROWS: usize = 10_000;
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// Of which the best counts, on both sides.
const RUNS: usize = 3;

/// Every kind of value, in proportions that marts have.
const WIDE: &str = "
    select i::int8 as id, (i % 7)::int2 as grade, i % 1000 as bucket, i % 2 = 0 as flag, random() as score,
           random()::real as weight, (i * 1.37)::numeric(12, 2) as price, random()::numeric as share,
           'film number ' || i as title, repeat('words ', 1 + i % 40) as description,
           nullif('genre ' || i % 20, 'genre 0')::varchar as genre, decode(md5(i::text), 'hex') as digest,
           date '2000-01-01' + i % 9000 as born, time '00:00' + make_interval(secs => i % 86400) as starts,
           timestamp '2020-01-01' + make_interval(secs => i) as local,
           timestamptz '2020-01-01' + make_interval(secs => i) as seen,
           make_interval(months => i % 5, days => i % 31, secs => i % 60) as length, md5(i::text)::uuid as key,
           json_build_object('id', i) as raw, jsonb_build_object('id', i, 'tags', array['a', 'b']) as facts,
           array['drama', 'жанр', 'x' || i] as tags, array[i, null, 2 * i] as counts,
           array[i / 3.0, 1.50] as prices
      from generate_series(1, $rows) i";

pub(crate) async fn measure(ground: &Ground, scale: f64) -> Result<Measured> {
    let mut connections = JoinSet::new();
    let (client, connection) = tokio_postgres::connect(&ground.url, NoTls).await?;
    connections.spawn(async move { drop(connection.await) });
    create_rows(&client, scale).await?;
    let limit_seconds = server_time(&client).await?.as_secs_f64();
    let columns = describe(&client).await?;
    let stream = read(&client, &columns).await?;
    client.batch_execute("drop table bench.wide").await?;

    let codec = best_run(&columns, &stream)?;
    codec.print();
    let seconds = codec.time().as_secs_f64();
    let measured = Measured::new(NAME, codec.rows, seconds, limit_seconds);
    Ok(Measured { cpu_seconds: codec.cpu.as_secs_f64(), peak_rss_mb: peak_rss_mb()?, ..measured })
}

async fn create_rows(client: &Client, scale: f64) -> Result<()> {
    let query = WIDE.replace("$rows", &(ROWS * scale).round().to_string());
    let create = format!(
        "create schema if not exists bench; drop table if exists bench.wide; create table bench.wide as {query}"
    );
    client.batch_execute(&create).await?;
    client.batch_execute("vacuum analyze bench.wide").await.context("the rows of the workload")
}

/// The first run also reads the table into the server's memory.
async fn server_time(client: &Client) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let started = Instant::now();
        client
            .batch_execute("copy (select * from bench.wide) to '/dev/null' (format binary)")
            .await
            .context("COPY to a file of the server")?;
        best = best.min(started.elapsed());
    }
    Ok(best)
}

async fn describe(client: &Client) -> Result<Vec<Column>> {
    let statement = client.prepare("select * from bench.wide").await?;
    Ok(statement.columns().iter().map(|column| Column::new(column.name(), column.type_().oid())).collect())
}

async fn read(client: &Client, columns: &[Column]) -> Result<Vec<Bytes>> {
    let copy = format!("copy (select {} from bench.wide) to stdout (format binary)", select_list(columns));
    let stream = pin!(client.copy_out(&copy).await?);
    Ok(stream.try_collect().await?)
}

/// What decoding and encoding one stream took.
#[derive(Default)]
struct Codec {
    rows: u64,
    bytes: usize,
    decoding: Duration,
    encoding: Duration,
    cpu: Duration,
}

fn best_run(columns: &[Column], stream: &[Bytes]) -> Result<Codec> {
    let mut best = run(columns, stream)?;
    for _ in 1..RUNS {
        let again = run(columns, stream)?;
        best = if again.time() < best.time() { again } else { best };
    }
    Ok(best)
}

fn run(columns: &[Column], stream: &[Bytes]) -> Result<Codec> {
    let mut decoder = Decoder::new(columns);
    let encoder = Encoder::new(decoder.schema().clone())?;
    let bytes = stream.iter().map(Bytes::len).sum();
    let mut codec = Codec { bytes, ..Codec::default() };
    let mut out = BytesMut::new();
    let (started, cpu) = (Instant::now(), cpu_time()?);
    for chunk in stream {
        let mut chunk = chunk.clone();
        while decoder.push_until(&mut chunk, BATCH_ROWS, BATCH_BYTES)? {
            codec.encode(&encoder, &mut decoder, &mut out)?;
        }
    }
    ensure!(decoder.is_finished(), "the stream is cut off");
    codec.encode(&encoder, &mut decoder, &mut out)?;
    codec.decoding = started.elapsed() - codec.encoding;
    codec.cpu = cpu_time()? - cpu;
    Ok(codec)
}

impl Codec {
    fn encode(&mut self, encoder: &Encoder, decoder: &mut Decoder, out: &mut BytesMut) -> Result<()> {
        let decoded = decoder.take()?;
        ensure!(decoded.flawed.is_empty(), "the rows have flaws");
        let started = Instant::now();
        out.clear();
        encoder.encode(&decoded.rows, out)?;
        self.encoding += started.elapsed();
        self.rows += decoded.rows.num_rows() as u64;
        Ok(())
    }

    fn time(&self) -> Duration {
        self.decoding + self.encoding
    }

    fn print(&self) {
        let megabytes = self.bytes as f64 / 1e6;
        let rate = |time: Duration| megabytes / time.as_secs_f64();
        eprintln!(
            "{megabytes:.0} MB: decoded at {:.0} MB/s, encoded at {:.0} MB/s, both at {:.0} MB/s",
            rate(self.decoding),
            rate(self.encoding),
            rate(self.time()),
        );
    }
}

/// Of this thread, so far: other programs on the machine do not count.
fn cpu_time() -> Result<Duration> {
    let times = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = times.split_whitespace().next().context("the time on the processor")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Of this process, which holds the whole stream.
fn peak_rss_mb() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(peak.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
}
