//! What one large value takes in memory.
#![cfg(target_os = "linux")]

use vitrina_testbed::Database;

use super::{Running, vitrina};

const VALUE: u64 = 240 << 20;

const LARGE: &str = r#"
targets:
  - name: analytics.large
    key: [id]
    create_if_missing: true
pipelines:
  - name: large
    source_connection: cinema
    target_table: analytics.large
    mode: full
    source_query: select id, value from content.large
"#;

/// The most that a process has had in memory: `VmHWM:     9292 kB`
fn peak(process: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// As it came, decoded, and encoded: not once more for the line to each server.
#[tokio::test]
async fn a_large_value_is_in_memory_three_times_and_no_more() {
    let db = Database::fresh().await;
    db.execute("create schema content; create table content.large (id int primary key, value text)").await;
    db.execute("alter table content.large alter column value set storage external").await;
    let value = format!("insert into content.large values (1, repeat('0123456789abcdef', {}))", VALUE / 16);
    db.execute(&value).await;
    let with = |arguments: &[&str]| {
        vitrina(arguments)
            .variable("VITRINA_DATABASE_URL", db.url())
            .variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
    };
    let mut up = with(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = format!("http://{}", up.is_up());
    let typed = |arguments: &[&str]| {
        with(arguments).variable("VITRINA_API_URL", &api).file("large.yaml", LARGE).ends(0);
    };
    typed(&["apply", "large.yaml", "--yes"]);
    let before = peak(&up);
    // Straight into an empty mart, then through staging.
    for _ in 0..2 {
        typed(&["run", "large", "--watch"]);
        let taken = peak(&up) - before;
        assert!(taken < VALUE * 7 / 2, "{} MB for a value of {} MB", taken >> 20, VALUE >> 20);
    }
    assert_eq!(db.value::<i32>("select octet_length(value) from analytics.large").await as u64, VALUE);
}
