//! How far a pipeline has come, and from where it goes on, from the command line.

use nix::sys::signal::Signal;
use vitrina_testbed::Database;

use super::{address, text, vitrina};

const FILMS: &str = "
    create schema content;
    create table content.film (id int primary key, title text, modified timestamptz not null);
    insert into content.film select n, 'Film ' || n, '2024-01-01'::timestamptz + n * interval '1 hour' from generate_series(1, 200) n;
    analyze content.film;
    create schema analytics;
    create table analytics.film (id int primary key, title text, modified timestamptz);
    insert into etl.etl_pipelines (name, source_connection, source_query, target_table, mode, incremental_key, incremental_id_key)
    values ('films', 'cinema', 'select id, title, modified from content.film', 'analytics.film', 'incremental', 'modified', 'id')";

#[tokio::test]
async fn a_checkpoint_is_seen_and_changed_only_when_asked() {
    let db = Database::fresh().await;
    let on = |arguments: &[&str]| {
        let all = vitrina(arguments).variable("VITRINA_DATABASE_URL", db.url());
        all.variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
    };
    on(&["migrate"]).ends(0);
    db.execute(FILMS).await;
    let mut up = on(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = address(up.says_until("the API listens").last().unwrap());
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", format!("http://{api}"));

    let fresh = ask(&["state", "films"]).ends(0);
    assert!(
        fresh.starts_with("films: version 0, ") && fresh.contains("last processed: nothing yet"),
        "{fresh}"
    );
    assert!(ask(&["state", "films", "--history"]).ends(0).contains("has completed no pass"));
    ask(&["run", "films", "--watch", "--timeout", "60s"]).ends(0);
    let reached = ask(&["state", "films"]).ends(0);
    assert!(reached.contains("last processed: 2024-01-09 08:00:00+00, 200"), "{reached}");

    let asked = ask(&["state", "films", "--reset"]).output();
    let said = text(&asked.stderr);
    assert_eq!(asked.status.code(), Some(3), "{said}");
    assert!(said.contains("the next run reads about 200 rows"), "{said}");
    assert!(said.contains("nothing was changed; `vitrina state films --reset --yes` does it"), "{said}");
    assert_eq!(ask(&["state", "films"]).ends(0), reached);
    let anew = ask(&["state", "films", "--reset", "--yes"]).ends(0);
    assert!(anew.contains("last processed: nothing yet"), "{anew}");

    let history = ask(&["state", "films", "--history"]).ends(0);
    let lines: Vec<&str> = history.lines().collect();
    assert!(lines[1].contains("  reset  ") && lines[2].contains("  pass  "), "{history}");
    let version = lines[2].split_whitespace().next().unwrap();
    let restored = ask(&["state", "films", "--restore", version, "--yes"]).ends(0);
    assert!(restored.contains("last processed: 2024-01-09 08:00:00+00, 200"), "{restored}");
    assert!(ask(&["state", "films", "--restore", "77"]).refuses(2).contains("no version 77"));
    ask(&["state", "films", "--yes"]).ends(2);

    db.execute("update etl.etl_pipelines set source_query = source_query || ' where true'").await;
    let refused = ask(&["run", "films"]).refuses(5);
    assert!(["keep", "reset", "full"].iter().all(|choice| refused.contains(choice)), "{refused}");
    ask(&["run", "films", "--checkpoint", "keep", "--watch", "--timeout", "60s"]).ends(0);

    up.signal(Signal::SIGINT);
    up.ends(0);
}
