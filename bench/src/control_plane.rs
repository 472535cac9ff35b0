//! The API under load, beside a runner at work: how many calls it answers a second, and how long the slowest wait.
//! And the command that people type most: how long it takes them to see how all pipelines stand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use vitrina_store::{NewToken, Role};

use crate::ground::Ground;
use crate::report::Measured;
use crate::runner_process::{RunnerProcess, usage};

pub(crate) const NAMES: [&str; 3] = ["api-list", "api-status", STATUS];

/// `vitrina status`.
const STATUS: &str = "status";
/// What a person does not notice.
const AT_ONCE: f64 = 0.1;
const TRIES: usize = 20;

const PIPELINES: usize = 500;
/// Pipelines that run every second meanwhile.
const BUSY: usize = 10;
/// Calls a second that the API has to answer at least.
const RATE: f64 = 3000.0;
const SECONDS: u32 = 10;
const CONNECTIONS: u32 = 32;
const TOKEN: &str = "bench-token-of-a-viewer";

const MARTS: &str = "create table if not exists analytics.polled (id int primary key, modified timestamptz);
    create table if not exists content.polled (id int primary key, modified timestamptz not null default now());
    insert into content.polled select n from generate_series(1, 10) n on conflict do nothing";

pub(crate) async fn measure(name: &str, ground: &Ground) -> Result<Measured> {
    ground.sql(MARTS)?;
    ground.marts_like("analytics.polled", PIPELINES)?;
    for number in 0..PIPELINES {
        ground.pipeline(&pipeline(number)).await?;
    }
    ground.store.put_token(&NewToken::of("bench", Role::Viewer, TOKEN)).await?;
    let (_runner, api) = (RunnerProcess::start(&ground.url)?, Api::start(&ground.url)?);
    let measured = match name {
        STATUS => command(&api)?,
        name => calls(name, &api, ground)?,
    };
    let used = usage(api.child.id())?;
    drop(api);
    ground.sql("delete from etl.etl_pipelines where name like 'polled-%'; delete from etl.etl_tokens")?;
    Ok(measured.by(&used))
}

fn calls(name: &str, api: &Api, ground: &Ground) -> Result<Measured> {
    let script = ground.file("calls.lua", &script(name))?;
    wrk(api, &script, 2)?;
    let load = wrk(api, &script, SECONDS)?;
    ensure!(load.refused == 0, "{} calls were not answered well", load.refused);
    let seconds = f64::from(SECONDS);
    let measured = Measured::new(name, load.calls, seconds, load.calls as f64 / RATE);
    Ok(Measured { p99_ms: Some(load.p99_ms), ..measured })
}

/// From its start to its end, the best of some: beside what a person does not notice, and the bare call of the API.
fn command(api: &Api) -> Result<Measured> {
    let seconds = best(|| {
        let status = Command::new(binary()?)
            .args(["status"])
            .env("VITRINA_API_URL", format!("http://{}", api.address))
            .env("VITRINA_API_TOKEN", TOKEN)
            .output()?;
        let lines = status.stdout.iter().filter(|byte| **byte == b'\n').count();
        ensure!(lines == PIPELINES + 1, "{lines} lines: {}", String::from_utf8_lossy(&status.stderr));
        Ok(())
    })?;
    let bare = best(|| bare_call(api))?;
    let measured = Measured::new(STATUS, PIPELINES as u64, seconds, AT_ONCE);
    Ok(Measured { server_seconds: Some(bare), ..measured })
}

fn best(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let started = Instant::now();
        work()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn bare_call(api: &Api) -> Result<()> {
    let mut stream = TcpStream::connect(&api.address)?;
    let request = format!(
        "GET /api/v1/pipelines?limit={PIPELINES} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n",
        api.address
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    Ok(())
}

fn binary() -> Result<String> {
    std::env::var("BENCH_BINARY").context("BENCH_BINARY names the release binary: run `make bench`")
}

fn pipeline(number: usize) -> serde_json::Value {
    json!({
        "name": format!("polled-{number}"), "description": "a pipeline whose status many programs ask for",
        "source_query": "select id, modified from content.polled", "target_table": format!("analytics.polled_{number}"),
        "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id",
        "schedule_interval": (number < BUSY).then_some("1s"),
    })
}

/// The first page of the list, or the status of any of them.
fn script(name: &str) -> String {
    let path = match name {
        "api-list" => "'/api/v1/pipelines'".to_owned(),
        _ => format!("'/api/v1/pipelines/polled-' .. math.random(0, {}) .. '/status'", PIPELINES - 1),
    };
    format!(
        "wrk.headers['authorization'] = 'Bearer {TOKEN}'\nrequest = function() return wrk.format('GET', {path}) end\n"
    )
}

struct Api {
    child: Child,
    address: String,
}

impl Api {
    fn start(url: &str) -> Result<Self> {
        let mut child = Command::new(binary()?)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("VITRINA_DATABASE_URL", url)
            .env("VITRINA_CONNECTIONS_CINEMA_URL", url)
            .env("VITRINA_API_RATE_LIMIT", "0")
            .env("VITRINA_LOG_FORMAT", "json")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
        let address = lines.by_ref().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
            line["address"].as_str().map(str::to_owned)
        });
        // Whoever stops reading stops the server.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, address: address.context("the API does not listen")? })
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

struct Load {
    calls: u64,
    p99_ms: f64,
    refused: u64,
}

fn wrk(api: &Api, script: &PathBuf, seconds: u32) -> Result<Load> {
    let output = Command::new("wrk")
        .args(["--latency", "-t1", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s"), "-s"])
        .arg(script)
        .arg(format!("http://{}/", api.address))
        .output()
        .context("cannot start wrk\nhint: apt-get install wrk")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "wrk failed: {text}");
    let after = |mark: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(mark))?;
        line.trim_start().strip_prefix(mark)?.split_whitespace().next().map(str::to_owned)
    };
    let calls = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
    Ok(Load {
        calls: calls.with_context(|| format!("wrk says no number of requests: {text}"))?,
        p99_ms: after("99%")
            .as_deref()
            .and_then(milliseconds)
            .with_context(|| format!("wrk says no 99%: {text}"))?,
        refused: after("Non-2xx or 3xx responses:").and_then(|number| number.parse().ok()).unwrap_or(0),
    })
}

/// `812.00us`, `12.34ms` or `1.02s`.
fn milliseconds(text: &str) -> Option<f64> {
    let of =
        |unit: &str, factor: f64| text.strip_suffix(unit)?.parse::<f64>().ok().map(|number| number * factor);
    of("us", 0.001).or_else(|| of("ms", 1.0)).or_else(|| of("s", 1000.0))
}
