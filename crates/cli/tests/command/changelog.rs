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
}

#[tokio::test]
async fn what_cannot_be_logged_is_told_with_what_to_do() {
    let place = Place::with_films().await;
    let error = place.vitrina(&["changelog", "install", "content.nothing", "--key", "id"]).refuses(4);
    assert!(error.contains("there is no table content.nothing"), "{error}");
    let error = place.vitrina(&["changelog", "status", "--connection", "nobody"]).refuses(2);
    assert!(error.contains("one of content"), "{error}");
}
