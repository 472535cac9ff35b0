//! The steps of the original documents as they stand: a mart and an index by four fields, and a row that SQL has inserted.

use std::process::Command;

use serde_json::{Value, json};
use vitrina_testbed::SearchServer;

use super::stand::Stand;
use super::{place, text, vitrina};

/// What the API answers: its status, and the document.
fn call(api: &str, method: &str, path: &str, body: &Value) -> (String, Value) {
    let (url, body) = (format!("{api}{path}"), body.to_string());
    let mut curl = Command::new("curl");
    let header = "content-type: application/json";
    curl.args(["-s", "-w", "\n%{http_code}", "-X", method, &url, "-H", header, "-d", &body]);
    let said = text(&curl.output().unwrap().stdout);
    let (document, status) = said.rsplit_once('\n').unwrap();
    (status.to_owned(), serde_json::from_str(document).unwrap_or_default())
}

#[tokio::test]
async fn a_mart_and_an_index_are_four_fields_with_the_logins_of_the_stand() {
    let ((_parent, directory), server) = (place(), SearchServer::opensearch().await);
    let stand = Stand::start(&directory);
    let index = server.indexes().name("minimal");
    let up = stand.vitrina(&["up", "--listen", "127.0.0.1:0"]).variable("OPENSEARCH_URL", server.url());
    let mut up = up.start();
    let api = format!("http://{}", up.is_up());
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", &api);
    let films = "select id, title, rating, modified from content.film_work";
    let ratings = "select user_id, count(*) as ratings from ugc.ratings group by user_id";
    let cursor = json!({"incremental_key": "modified", "incremental_id_key": "id"});
    for (name, query, target, mode) in [
        ("films", films, "analytics.minimal_films".to_owned(), "full"),
        ("raters", ratings, "analytics.minimal_raters".to_owned(), "full"),
        ("changes", films, "analytics.minimal_changes".to_owned(), "incremental"),
        ("by_cursor_alone", films, "analytics.minimal_by_cursor".to_owned(), "incremental"),
        ("search", films, format!("es:{index}"), "full"),
    ] {
        let mut body = json!({"name": name, "source_query": query, "target_table": target, "mode": mode, "batch_size": 100});
        match name {
            "changes" => body.as_object_mut().unwrap().extend(cursor.as_object().unwrap().clone()),
            "by_cursor_alone" => body["incremental_key"] = json!("modified"),
            _ => {}
        }
        let (status, answer) = call(&api, "POST", "/pipelines", &body);
        assert_eq!(status, "201", "{answer}");
        let valid = ask(&["validate", name]).ends(0);
        assert!(!valid.contains("warning"), "{valid}");
        let run = ask(&["run", name, "--watch", "--timeout", "60s"]).ends(0);
        assert!(run.contains(" 0 rejected"), "{run}");
        assert!(ask(&["reconcile", name]).ends(0).contains("is equal to its source"), "{name}");
        ask(&["run", name, "--watch", "--timeout", "60s"]).ends(0);
    }
    let (status, edited) = call(&api, "PATCH", "/pipelines/films", &json!({"batch_size": 7}));
    assert_eq!((status.as_str(), &edited["batch_size"]), ("200", &json!(7)));

    a_row_of_sql_runs_or_says_why_not(&stand, &api).await;
}

async fn a_row_of_sql_runs_or_says_why_not(stand: &Stand, api: &str) {
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", api);
    let mut owner = stand.owner_session().await;
    let rows = "insert into etl.etl_pipelines (name, source_query, target_table, mode, batch_size) values
        ('by_sql', 'select id, title from content.film_work', 'analytics.by_sql', 'full', 100),
        ('by_bad_sql', 'select id, titel from content.film_work', 'analytics.by_bad_sql', 'full', 100),
        ('elsewhere', 'select id from content.film_work', 'public.elsewhere', 'full', 100)";
    sqlx::raw_sql(rows).execute(&mut owner).await.unwrap();
    let run = ask(&["run", "by_sql", "--watch", "--timeout", "60s"]).ends(0);
    assert!(run.contains("50 rows read, 50 written"), "{run}");
    for (name, says) in [("by_bad_sql", "titel"), ("elsewhere", "target public.elsewhere is not allowed")] {
        let output = ask(&["run", name, "--watch", "--timeout", "60s"]).output();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{name}: {said}");
    }
}
