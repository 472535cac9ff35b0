//! `/metrics`: pipelines and runners as the meta-store knows them, and calls by their templates.

use reqwest::Method;
use vitrina_core::Level;
use vitrina_store::{NewToken, Role, RunnerAbilities};

use crate::app::App;
use crate::reconciles::{found, three};

impl App {
    async fn page(&self) -> String {
        let answer = self.request(Method::GET, "/metrics").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
        answer.text().await.unwrap()
    }
}

#[track_caller]
fn has(page: &str, line: &str) {
    assert!(page.lines().any(|shown| shown.starts_with(line)), "{line} is not in\n{page}");
}

async fn with_a_pipeline() -> App {
    let app = App::start_with(Some("admin-token-0123456789")).await;
    app.create_pipeline("films").await;
    app
}

#[tokio::test]
async fn the_page_shows_how_pipelines_and_runners_stand() {
    let app = with_a_pipeline().await;
    let runner = RunnerAbilities { name: "r1".to_owned(), ..RunnerAbilities::default() };
    app.store.announce(&runner, 4).await.unwrap();
    let page = app.page().await;
    has(&page, r#"vitrina_pipeline_status{pipeline="films",status="IDLE"} 1"#);
    has(&page, r#"vitrina_pipeline_status{pipeline="films",status="FAILED"} 0"#);
    has(&page, r#"vitrina_pipeline_enabled{pipeline="films"} 1"#);
    has(&page, r#"vitrina_rejected_rows{pipeline="films"} 0"#);
    has(&page, r#"vitrina_runner_active_runs{runner="r1"} 0"#);
    has(&page, r#"vitrina_runner_heartbeat_timestamp_seconds{runner="r1"} 1"#);
    has(&page, "vitrina_build_info{version=");
    assert!(
        !page.contains("vitrina_pipeline_lag_seconds{"),
        "nothing is known of a mart that nobody has filled"
    );

    app.database.execute("update etl.etl_state set as_of = clock_timestamp() - interval '90 seconds'").await;
    let page = app.page().await;
    has(&page, r#"vitrina_pipeline_watermark_timestamp_seconds{pipeline="films"} 1"#);
    let lag = page.lines().find(|line| line.starts_with("vitrina_pipeline_lag_seconds{")).unwrap();
    let lag: f64 = lag.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((90.0..150.0).contains(&lag), "{lag}");
    for family in ["vitrina_pipeline_status", "vitrina_build_info", "http_server_request_duration_seconds"] {
        assert_eq!(page.matches(&format!("# TYPE {family} ")).count(), 1, "{family} is told once");
    }

    app.store.farewell("r1").await.unwrap();
    app.database.execute("delete from etl.etl_pipelines").await;
    let page = app.page().await;
    assert!(!page.contains("films") && !page.contains("r1"), "who is gone is gone: {page}");
}

#[tokio::test]
async fn the_page_shows_the_last_verdict_on_every_target() {
    let app = with_a_pipeline().await;
    app.create_pipeline("genres").await;
    assert!(!app.page().await.contains("vitrina_reconcile_"), "nothing was compared yet");
    app.compare("films", Level::Rows, &three()).await;
    let page = app.page().await;
    for kind in ["missing", "extra", "different"] {
        has(&page, &format!(r#"vitrina_reconcile_differences{{pipeline="films",kind="{kind}"}} 1"#));
    }
    has(&page, r#"vitrina_reconcile_verdict{pipeline="films",verdict="differs"} 1"#);
    has(&page, r#"vitrina_reconcile_verdict{pipeline="films",verdict="equal"} 0"#);
    has(&page, r#"vitrina_reconcile_last_timestamp_seconds{pipeline="films"} 1"#);
    assert!(!page.contains(r#"vitrina_reconcile_verdict{pipeline="genres""#));
    app.compare("films", Level::Hash, &found(vec![])).await;
    let page = app.page().await;
    has(&page, r#"vitrina_reconcile_differences{pipeline="films",kind="missing"} 0"#);
    has(&page, r#"vitrina_reconcile_verdict{pipeline="films",verdict="equal"} 1"#);
}

#[tokio::test]
async fn calls_are_measured_by_the_template_of_their_route() {
    let app = with_a_pipeline().await;
    for path in ["/pipelines/films", "/api/v1/pipelines/films", "/pipelines/films/"] {
        app.get(path).await.assert(200);
    }
    app.get("/pipelines/nobody").await.assert(404);
    app.get("/no/such/path").await.assert(404);
    let invented = Method::from_bytes(b"INVENTED").unwrap();
    app.request(invented, "/pipelines").send().await.unwrap();
    let page = app.page().await;
    let count = "http_server_request_duration_seconds_count";
    has(&page, &format!(r#"{count}{{route="/pipelines/{{p}}",method="GET",status="200"}} 3"#));
    has(&page, &format!(r#"{count}{{route="/pipelines/{{p}}",method="GET",status="404"}} 1"#));
    has(&page, &format!(r#"{count}{{route="none",method="GET",status="404"}} 1"#));
    assert!(page.contains(r#"method="OTHER""#) && !page.contains("INVENTED"));
    assert!(!page.contains("/nobody") && !page.contains("/no/such"), "{page}");
}

#[tokio::test]
async fn metrics_are_for_those_who_may_look() {
    let app = with_a_pipeline().await;
    let anonymous = app.anonymous(Method::GET, "/metrics").send().await.unwrap();
    assert_eq!(anonymous.status(), 401);
    app.store.put_token(&NewToken::of("prometheus", Role::Viewer, "viewer-token")).await.unwrap();
    let viewer = app.anonymous(Method::GET, "/metrics").bearer_auth("viewer-token").send().await.unwrap();
    assert_eq!(viewer.status(), 200);
}

#[tokio::test]
async fn a_run_keeps_the_trace_of_its_caller_and_what_is_no_trace_is_ignored() {
    let app = with_a_pipeline().await;
    let path = "/pipelines/films/run";
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let kept = async || {
        app.database.value::<String>("select coalesce((select traceparent from etl.etl_runs order by requested_at desc limit 1), '')").await
    };
    for (header, expected) in [(trace, trace), ("no trace at all", ""), ("00-zz-zz-01", "")] {
        let answer = app.request(Method::POST, path).header("traceparent", header).send().await.unwrap();
        assert_eq!(answer.status(), 202);
        assert_eq!(kept().await, expected);
        app.post("/pipelines/films/cancel").await;
    }
}
