//! The change log from the command line: shown to the owner first, applied when asked.

use serde_json::Value;
use vitrina_testbed::Database;

use super::{Vitrina, text, vitrina};

struct Place {
    db: Database,
    reader: String,
}

impl Place {
    async fn with_films() -> Self {
        let db = Database::fresh().await;
        let reader = format!("r_{}", db.name());
        db.execute(&format!(
            "create schema content; create table content.film (id int primary key, title text);
             create role {reader} login password 'read';
             grant usage on schema content to {reader}; grant select on content.film to {reader}"
        ))
        .await;
        Self { db, reader }
    }

    fn vitrina(&self, arguments: &[&str]) -> Vitrina {
        let reader = self.db.url_as(&self.reader, "read");
        vitrina(arguments).variable("VITRINA_CONNECTIONS_CONTENT_URL", reader)
    }
}

#[tokio::test]
async fn a_log_is_shown_applied_by_the_owner_and_removed() {
    let place = Place::with_films().await;
    let install = ["changelog", "install", "content.film", "--key", "id"];
    assert!(place.vitrina(&["changelog", "status"]).ends(0).contains("no changes are logged here"));

    let shown = place.vitrina(&install).output();
    assert_eq!(shown.status.code(), Some(3));
    let sql = text(&shown.stdout);
    for part in [
        "create table if not exists vitrina_log.change_log",
        &format!("to \"{}\"", place.reader),
        "after truncate on content.film",
    ] {
        assert!(sql.contains(part), "{sql}");
    }
    assert_eq!(
        place.db.value::<i64>("select count(*) from pg_trigger where tgname like 'vitrina%'").await,
        0
    );
    let refused = place.vitrina(&[&install[..], &["--apply"]].concat()).output();
    assert_eq!(refused.status.code(), Some(4), "a reader may not: {}", text(&refused.stderr));

    let owner = ["--url", place.db.url()];
    place.vitrina(&[&install[..], &owner, &["--apply"]].concat()).ends(0);
    assert!(place.vitrina(&install).ends(0).contains("changes of content.film are logged by id"));
    place.db.execute("insert into content.film values (1, 'One'), (2, 'Two')").await;
    let status: Value =
        serde_json::from_str(&place.vitrina(&["changelog", "status", "-o", "json"]).ends(0)).unwrap();
    assert_eq!(status["tables"][0]["source"], "content.film(id)");
    assert_eq!(
        (&status["tables"][0]["complete"], &status["tables"][0]["changes"]),
        (&true.into(), &2.into())
    );

    let may = format!(
        "select has_function_privilege('{}', 'vitrina_log.forget_changes(uuid, uuid)', 'execute')",
        place.reader
    );
    assert!(place.db.value::<bool>(&may).await, "the reader tells the log of deleted pipelines");
    let remove = ["changelog", "remove", "content.film", "--key", "id"];
    assert_eq!(place.vitrina(&remove).output().status.code(), Some(3));
    place.vitrina(&[&remove[..], &owner, &["--apply"]].concat()).ends(0);
    assert_eq!(
        place.db.value::<i64>("select count(*) from pg_trigger where tgname like 'vitrina%'").await,
        0
    );
    let removed = place.vitrina(&remove).ends(0);
    assert_eq!(removed.trim(), "content.film is not logged by id");
    let unknown = ["changelog", "remove", "content.film", "--key", "title"];
    assert_eq!(place.vitrina(&unknown).ends(0).trim(), "content.film is not logged by title");
}

const FOLLOWERS: &str = "
targets:
  - {name: analytics.film, key: [id]}
  - {name: analytics.genre, key: [id]}
pipelines:
  - {name: films, source_connection: content, target_table: analytics.film, mode: incremental, capture: changelog,
     source_query: 'select id, title from content.film'}
  - {name: genres, source_connection: content, target_table: analytics.genre, mode: incremental, capture: changelog,
     source_table: content.genre}
";

#[tokio::test]
async fn who_follows_a_log_is_told_by_name_and_before_it_is_removed() {
    let place = Place::with_films().await;
    place
        .db
        .execute(&format!(
            "create table content.genre (id int primary key); grant select on content.genre to {};
             create schema analytics; create table analytics.film (id int primary key, title text);
             create table analytics.genre (id int primary key)",
            place.reader
        ))
        .await;
    let with_meta_store =
        |arguments: &[&str]| place.vitrina(arguments).variable("VITRINA_DATABASE_URL", place.db.url());
    let mut up = with_meta_store(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = format!("http://{}", up.is_up());
    let ask = |arguments: &[&str]| {
        with_meta_store(arguments).variable("VITRINA_API_URL", &api).file("all.yaml", FOLLOWERS)
    };
    for table in ["content.film", "content.genre"] {
        let install = ["changelog", "install", table, "--key", "id", "--url", place.db.url(), "--apply"];
        place.vitrina(&install).ends(0);
    }
    ask(&["apply", "all.yaml", "--yes"]).ends(0);
    ask(&["run", "films", "--watch", "--timeout", "60s"]).ends(0);

    let status = with_meta_store(&["changelog", "status"]).ends(0);
    assert!(status.lines().any(|line| line.starts_with("films ") && line.contains("followed")), "{status}");
    let alone = place.vitrina(&["changelog", "status", "-o", "json"]).ends(0);
    let alone: Value = serde_json::from_str(&alone).unwrap();
    assert!(alone["consumers"][0]["name"].is_null() && alone["consumers"][0]["pipeline"].is_string());

    let output = with_meta_store(&["changelog", "remove", "content.film", "--key", "id"]).output();
    let said = text(&output.stderr);
    assert!(said.contains("content.film is followed by films: ") && !said.contains("genres"), "{said}");
    assert!(text(&output.stdout).contains("drop function"), "{output:?}");
}

#[tokio::test]
async fn a_url_that_is_no_url_is_refused_without_being_shown() {
    let place = Place::with_films().await;
    let url = "postgres://owner:p@s3cret/1%@127.0.0.1:5432/db";
    let error = place.vitrina(&["changelog", "status", "--url", url]).refuses(2);
    assert!(error.contains("--url") && error.contains("%XX") && !error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_logged_is_told_with_what_to_do() {
    let place = Place::with_films().await;
    let error = place.vitrina(&["changelog", "install", "content.nothing", "--key", "id"]).refuses(4);
    assert!(error.contains("there is no table content.nothing"), "{error}");
    let error = place.vitrina(&["changelog", "status", "--connection", "nobody"]).refuses(2);
    assert!(error.contains("one of content"), "{error}");
}
