//! What a runner counts, as a scrape shows it.

use vitrina_runner::describe_metrics;
use vitrina_telemetry::Exposition;

use crate::stage::Stage;

/// The value of a series, on the page of this process.
fn value(name: &str, labels: &[&str]) -> Option<f64> {
    let page = Exposition::of_process().render();
    let is_it = |line: &&str| {
        line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label))
    };
    let line = page.lines().find(is_it)?.to_owned();
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn runs_batches_rows_and_bytes_are_counted_by_pipeline_and_never_by_run() {
    Exposition::of_process();
    describe_metrics();
    let stage = Stage::with_films(25).await;
    let good = stage.pipeline(serde_json::json!({"name": "counted", "batch_size": 10})).await;
    let run = stage.succeed(good).await;
    stage.db.execute("create table analytics.bad (like analytics.film including all)").await;
    let bad = stage.pipeline(serde_json::json!({"name": "counted_bad", "source_query": "select id, title, 1 as extra from content.film",
        "target_table": "analytics.bad"}));
    let failed = stage.run(bad.await).await;

    let of = r#"pipeline="counted""#;
    assert_eq!(value("vitrina_runs_total", &[of, r#"result="SUCCESS""#, r#"trigger="api""#]), Some(1.0));
    assert_eq!(value("vitrina_runs_total", &[of, r#"result="FAILED""#]), Some(0.0));
    let of_bad = r#"pipeline="counted_bad""#;
    assert_eq!(value("vitrina_runs_total", &[of_bad, r#"result="FAILED""#]), Some(1.0));
    assert_eq!(value("vitrina_run_duration_seconds_count", &[of]), Some(1.0));
    for (stage, rows) in
        [("read", 25.0), ("written", 25.0), ("unchanged", 0.0), ("deleted", 0.0), ("rejected", 0.0)]
    {
        assert_eq!(value("vitrina_rows_total", &[of, &format!("stage={stage:?}")]), Some(rows), "{stage}");
    }
    for stage in ["read", "transform", "write"] {
        let batches = value("vitrina_batch_duration_seconds_count", &[of, &format!("stage={stage:?}")]);
        assert_eq!(batches, Some(3.0), "{stage}");
    }
    for direction in ["read", "written"] {
        assert!(value("vitrina_bytes_total", &[of, &format!("direction={direction:?}")]).unwrap() > 0.0);
    }
    assert!(
        value("vitrina_sink_request_errors_total", &[r#"sink="marts""#, r#"status="sink.extra_column""#])
            .unwrap()
            >= 1.0
    );
    assert_eq!(value("vitrina_build_info", &[]), Some(1.0));
    let page = Exposition::of_process().render();
    assert!(
        !page.contains(&run.id.to_string()) && !page.contains(&failed.id.to_string()),
        "no run is a label"
    );
}

#[tokio::test]
async fn a_runner_shows_its_heartbeat_and_what_it_has_taken_over() {
    Exposition::of_process();
    let stage = Stage::with_films(5).await;
    let (mut runner, stop) = stage.start_runner("shown");
    let of = r#"runner="shown""#;
    crate::stage::until(async || {
        value("vitrina_runner_heartbeat_timestamp_seconds", &[of]).is_some_and(|at| at > 1_700_000_000.0)
    })
    .await;
    assert_eq!(value("vitrina_runner_active_runs", &[of]), Some(0.0));
    stop.cancel();
    runner.join_next().await.unwrap().unwrap();
}
