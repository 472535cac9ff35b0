//! What the real processes tell of a run: lines on stderr, metrics on their pages, spans at a receiver.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::collector::{Collector, hex};
use super::stand::Stand;
use super::{Running, address, place};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn parsed(lines: &[String]) -> Vec<Value> {
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect()
}

fn one<'a>(lines: &'a [Value], message: &str) -> &'a Value {
    lines.iter().find(|line| line["msg"] == message).unwrap_or_else(|| panic!("{message}: {lines:#?}"))
}

async fn page(url: String) -> String {
    let answer = vitrina_testbed::http_client().get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

async fn request_run(api: &str, pipeline: &str) {
    let request = vitrina_testbed::http_client().post(format!("http://{api}/pipelines/{pipeline}/run"));
    let answer = request.header("traceparent", format!("00-{TRACE}-{CALLER}-01")).send().await.unwrap();
    assert_eq!(answer.status(), 202);
}

#[tokio::test]
async fn what_happens_in_a_run_is_told_in_lines_in_metrics_and_in_the_callers_trace() {
    let (_parent, directory) = place();
    let stand = Stand::start(&directory);
    let mut collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let traced = |arguments: &[&str]| {
        let command = stand.vitrina(arguments).variable("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
        command.variable("OTEL_BSP_SCHEDULE_DELAY", "50")
    };
    let mut serve = traced(&["serve", "--listen", "127.0.0.1:0"]).start();
    let api = address(serve.says_until("the API listens").last().unwrap());
    let mut runner = traced(&["runner"]).variable("VITRINA_RUNNER_METRICS_LISTEN", "127.0.0.1:0").start();
    let shows = parsed(&runner.says_until("the runner shows its metrics"));
    let metrics = shows.last().unwrap()["address"].as_str().unwrap().to_owned();
    runner.says_until("the runner is ready");

    request_run(&api, "film_dim_full").await;
    lines_of_a_success(&parsed(&runner.says_until("run ended")));
    spans_of_a_run(&mut collector);
    pages_of_both(&api, &metrics).await;
    lines_of_a_failure(&stand, &api, &mut runner).await;
    for process in [runner, serve] {
        process.signal(Signal::SIGTERM);
        process.ends(0);
    }
    a_dead_receiver_and_a_dead_source_stop_nothing(&stand).await;
}

fn lines_of_a_success(lines: &[Value]) {
    for line in lines {
        for name in ["ts", "level", "msg", "pipeline_id", "run_id", "trace_id"] {
            assert!(line[name].is_string(), "{name}: {line}");
        }
        assert_eq!((&line["pipeline"], &line["trace_id"]), (&"film_dim_full".into(), &TRACE.into()));
    }
    let started = one(lines, "run started");
    assert_eq!((&started["was"], &started["status"]), (&"RUN_REQUESTED".into(), &"RUNNING".into()));
    let batch = one(lines, "batch done");
    assert_eq!(
        (&batch["batch"], &batch["rows_read"], &batch["rows_written"]),
        (&1.into(), &50.into(), &50.into())
    );
    assert!(batch["batch_ms"].is_u64() && batch["run_ms"].is_u64(), "{batch}");
    let changed = one(lines, "status changed");
    assert_eq!((&changed["was"], &changed["status"]), (&"RUNNING".into(), &"IDLE".into()));
    let ended = one(lines, "run ended");
    assert_eq!((&ended["result"], &ended["rows_read"]), (&"SUCCESS".into(), &50.into()));
    assert!(ended["run_ms"].is_u64());
}

/// caller → call of the API → run → batch → read, write.
fn spans_of_a_run(collector: &mut Collector) {
    let call = collector.span(TRACE, "POST /pipelines/{p}/run");
    assert_eq!(hex(&call.parent_span_id), CALLER);
    let run = collector.span(TRACE, "run");
    assert_eq!(run.parent_span_id, call.span_id);
    let read = collector.span(TRACE, "read");
    let write = collector.span(TRACE, "write");
    assert_eq!(read.parent_span_id, write.parent_span_id);
    let batch = collector.span(TRACE, "batch");
    assert_eq!((&write.parent_span_id, &batch.parent_span_id), (&batch.span_id, &run.span_id));
    let pipeline = run.attributes.iter().find(|attribute| attribute.key == "pipeline");
    assert!(format!("{pipeline:?}").contains("film_dim_full"));
}

async fn pages_of_both(api: &str, metrics: &str) {
    let of_runner = page(format!("http://{metrics}/metrics")).await;
    let success = r#"vitrina_runs_total{pipeline="film_dim_full",result="SUCCESS",trigger="api"} 1"#;
    assert!(of_runner.contains(success), "{of_runner}");
    assert_eq!(page(format!("http://{metrics}/health/live")).await, r#"{"status":"ok"}"#);
    let of_api = page(format!("http://{api}/metrics")).await;
    assert!(of_api.contains(r#"vitrina_pipeline_lag_seconds{pipeline="film_dim_full"} "#), "{of_api}");
    assert!(!of_api.contains("vitrina_runs_total"), "runs are counted where they are executed");
}

async fn lines_of_a_failure(stand: &Stand, api: &str, runner: &mut Running) {
    let mut owner = stand.owner_session().await;
    sqlx::raw_sql("revoke select on ugc.ratings from vitrina_reader").execute(&mut owner).await.unwrap();
    request_run(api, "film_rating_agg_full").await;
    let lines = parsed(&runner.says_until("run ended"));
    let failed = one(&lines, "the run failed");
    assert_eq!((&failed["level"], &failed["pipeline"]), (&"error".into(), &"film_rating_agg_full".into()));
    assert!(
        failed["error_code"].is_string() && failed["error"].as_str().unwrap().contains("permission denied")
    );
    assert_eq!(one(&lines, "run ended")["result"], "FAILED");
}

async fn two_pages_of_one_process_tell_nothing_twice(api: &str, metrics: &str) {
    let of_api = page(format!("http://{api}/metrics")).await;
    let of_runner = page(format!("http://{metrics}/metrics")).await;
    for page in [&of_api, &of_runner] {
        let mut families: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let all = families.len();
        families.sort_unstable();
        families.dedup();
        assert!(all > 0 && families.len() == all, "{page}");
    }
    assert!(
        of_runner.contains("vitrina_run_releases_total") && !of_api.contains("vitrina_run_releases_total")
    );
    assert!(of_api.contains("http_server_request_") && !of_runner.contains("http_server_request_"));
    let active = |page: &str| page.lines().any(|line| line.starts_with("vitrina_runner_active_runs{"));
    assert!(active(&of_api) && active(&of_runner), "both tell of the runner");
}

/// Nobody is told a password.
async fn a_dead_receiver_and_a_dead_source_stop_nothing(stand: &Stand) {
    // It takes connections and never answers, which is worse than to refuse them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = "postgres://vitrina_reader:pass-word-of-the-source@127.0.0.1:1/cinema";
    let up =
        stand.vitrina(&["up", "--listen", "127.0.0.1:0"]).variable("VITRINA_CONNECTIONS_CINEMA_URL", source);
    let up = up.variable("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", silent.local_addr().unwrap()));
    let up = up.variable("VITRINA_RUNNER_METRICS_LISTEN", "127.0.0.1:0");
    let mut up = up.variable("OTEL_BSP_SCHEDULE_DELAY", "50").start();
    let marks = ["the API listens", "the runner shows its metrics", "the runner is ready"];
    let mut lines = up.says_all(&marks);
    let listens = |mark: &str| one(&parsed(&lines), mark)["address"].as_str().unwrap().to_owned();
    let (api, metrics) = (listens(marks[0]), listens(marks[1]));
    request_run(&api, "film_dim_full").await;
    lines.extend(up.says_until("run ended"));
    let told = parsed(&lines);
    let given_back = one(&told, "the pipeline is given back");
    assert_eq!(
        (&given_back["level"], &given_back["error_code"]),
        (&"warn".into(), &"source.connection_lost".into())
    );
    assert_eq!(one(&told, "a connection does not work")["connection"], "cinema");
    two_pages_of_one_process_tell_nothing_twice(&api, &metrics).await;
    let started = Instant::now();
    up.signal(Signal::SIGTERM);
    let rest = up.says_until("the last spans could not be sent");
    up.ends(0);
    assert!(started.elapsed() < Duration::from_secs(15));
    for secret in stand.passwords().chain(["pass-word-of-the-source".to_owned()]) {
        assert!(!lines.iter().chain(&rest).any(|line| line.contains(&secret)), "a password is in the log");
    }
}
