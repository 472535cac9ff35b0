//! Runs that nobody can take: every verb that shows a pipeline says why it waits, until somebody can.

use vitrina_testbed::Database;

use super::{Running, Vitrina, address, text, vitrina};

const SOURCE: &str = "create schema content; create schema analytics;
    create table content.film (id int primary key, title text not null);
    insert into content.film select n, 'Film ' || n from generate_series(1, 3) n";

/// It names no source: there is but one.
const FILMS: &str = "
targets:
  - name: analytics.film
    key: [id]
    create_if_missing: true
pipelines:
  - name: films
    target_table: analytics.film
    source_query: select id, title from content.film
";

struct Alone {
    /// Before the database, so that nothing uses that when it is dropped.
    _serve: Running,
    api: String,
    db: Database,
}

impl Alone {
    /// An API without a runner.
    async fn new() -> Self {
        let db = Database::fresh().await;
        db.execute(SOURCE).await;
        configured(vitrina(&["migrate"]), &db).ends(0);
        let mut serve = configured(vitrina(&["serve", "--listen", "127.0.0.1:0"]), &db).start();
        let said = serve.says_until("the API listens");
        Self { api: format!("http://{}", address(said.last().unwrap())), _serve: serve, db }
    }

    fn ask(&self, arguments: &[&str]) -> Vitrina {
        configured(vitrina(arguments), &self.db)
            .variable("VITRINA_API_URL", &self.api)
            .file("films.yaml", FILMS)
    }

    /// A runner that cannot read the source.
    fn runner(&self, name: &str) -> Vitrina {
        vitrina(&["runner"])
            .variable("VITRINA_DATABASE_URL", self.db.url())
            .variable("VITRINA_RUNNER_NAME", name)
            .variable("VITRINA_RUNNER_POLL_INTERVAL", "200ms")
    }
}

fn configured(command: Vitrina, db: &Database) -> Vitrina {
    with_source(command.variable("VITRINA_DATABASE_URL", db.url()), db)
}

fn with_source(command: Vitrina, db: &Database) -> Vitrina {
    command
        .variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
        .variable("VITRINA_CONNECTIONS_CINEMA_ALLOWED_SCHEMAS", "content")
}

const NO_RUNNER: &str = "no runner is alive\nhint: start one with `vitrina runner`";
const NO_CONNECTION: &str =
    "no live runner has connection \"cinema\"\nhint: start one with VITRINA_CONNECTIONS_CINEMA_URL";

#[tokio::test]
async fn a_run_that_nobody_can_take_says_why_wherever_it_is_shown_until_somebody_takes_it() {
    let alone = Alone::new().await;
    let applied = alone.ask(&["apply", "films.yaml", "--yes"]).output();
    let said = text(&applied.stderr);
    assert!(applied.status.success() && said.contains("its runs would wait: no runner is alive"), "{said}");
    alone.ask(&["run", "films"]).ends(0);

    let listed = alone.ask(&["status"]).ends(0);
    assert!(listed.contains("waits: no runner is alive"), "{listed}");
    let shown = alone.ask(&["status", "films"]).ends(0);
    assert!(shown.contains("\nwaits since 2") && shown.contains(&format!(": {NO_RUNNER}")), "{shown}");
    let logged = text(&alone.ask(&["logs", "films"]).output().stderr);
    assert_eq!(logged, format!("the run waits: {NO_RUNNER}\n"));
    let examined = text(&alone.ask(&["doctor"]).output().stdout);
    assert!(examined.contains("warn  pipeline films: it waits: no runner is alive"), "{examined}");

    let mut watching = alone.ask(&["run", "films", "--watch", "--timeout", "60s"]).start();
    let said = watching.says_until("hint: start one with `vitrina runner`").join("\n");
    assert!(said.contains(&format!("the run waits: {NO_RUNNER}")), "{said}");
    let mut blind = alone.runner("blind").start();
    let said = watching.says_until("hint: start one with VITRINA").join("\n");
    assert!(said.ends_with(&format!("the run waits: {NO_CONNECTION}")), "{said}");
    assert_eq!(said.matches("the run waits").count(), 1, "each reason is told once: {said}");
    let warned = blind.says_until("a run waits that no live runner can take").pop().unwrap();
    let warned: serde_json::Value = serde_json::from_str(&warned).unwrap();
    assert_eq!(
        (&warned["pipeline"], &warned["error_code"]),
        (&"films".into(), &"runner.no_connection".into())
    );
    let shown = alone.ask(&["status", "films"]).ends(0);
    assert!(shown.contains(NO_CONNECTION), "{shown}");

    let _able = with_source(alone.runner("able"), &alone.db).start();
    watching.ends(0);
    let shown = alone.ask(&["status", "films"]).ends(0);
    assert!(!shown.contains("waits") && shown.contains("SUCCESS"), "{shown}");
    let examined = text(&alone.ask(&["doctor"]).output().stdout);
    assert!(examined.contains("ok    pipelines: none waits for a runner"), "{examined}");
}
