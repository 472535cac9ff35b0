//! Descriptors: callers of the API cannot take those that the runner of the same process needs.

use std::net::TcpStream;
use std::process::Command;

use vitrina_core::OnActive;
use vitrina_store::{PipelineRef, RunRequest, Store};
use vitrina_testbed::{Database, eventually};

use super::{Running, forget_settings, vitrina};

const FILMS: &str = r#"
targets:
  - name: analytics.names
    key: [id]
    create_if_missing: true
pipelines:
  - name: names
    source_connection: cinema
    target_table: analytics.names
    mode: full
    source_query: select id, title from content.film_work
"#;

/// `vitrina up` with these limits of open files.
fn up(db: &Database, soft: u32, hard: u32) -> Running {
    let mut shell = Command::new("sh");
    forget_settings(&mut shell);
    let limits = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" up --listen 127.0.0.1:0");
    shell.args(["-c", &limits]).arg(assert_cmd::cargo::cargo_bin!("vitrina"));
    shell.env("VITRINA_DATABASE_URL", db.url()).env("VITRINA_CONNECTIONS_CINEMA_URL", db.url());
    Running::of(shell)
}

#[tokio::test]
async fn callers_of_the_api_leave_descriptors_to_the_runner_beside_it() {
    let db = Database::fresh().await;
    vitrina_cinema::migrate(db.url()).await.unwrap();
    vitrina_cinema::seed(db.url(), 3, 0).await.unwrap();
    let mut up = up(&db, 160, 160);
    let address = up.is_up();
    let api = format!("http://{address}");
    let apply = vitrina(&["apply", "names.yaml", "--yes"]).variable("VITRINA_API_URL", &api);
    apply.file("names.yaml", FILMS).ends(0);

    let callers: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(&address).unwrap()).collect();
    up.says_until("all connections are taken");
    let store = Store::connect(db.url(), "vitrina-test", 2).await.unwrap();
    let pipeline = store.pipeline(&PipelineRef::Name("names".to_owned())).await.unwrap();
    let request = RunRequest::default();
    store.request_run(pipeline.config.id, OnActive::Join, &request).await.unwrap();
    eventually("the run succeeds", async || {
        let status: String = db.value("select status from etl.etl_runs").await;
        assert_ne!(status, "FAILED");
        (status == "SUCCESS").then_some(())
    })
    .await;
    assert!(up.child.try_wait().unwrap().is_none(), "it lives");
    drop(callers);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    let db = Database::fresh().await;
    let mut up = up(&db, 100, 700);
    up.is_up();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", up.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["700", "700"], "{files}");
}
