//! Marts that are created or widened from the query, when asked and not before.

use serde_json::Value;
use vitrina_testbed::Database;

use super::{Running, Vitrina, vitrina};

const FILMS: &str = "
    create schema content; create schema analytics;
    create table content.film (id int primary key, title text not null, rating numeric(3,1), seen int);
    insert into etl.etl_targets (name, key, touch_column) values ('analytics.film', '{id}', 'updated_at');
    insert into etl.etl_pipelines (name, source_connection, source_query, target_table)
    values ('films', 'cinema', 'select id, title, rating from content.film', 'analytics.film')";

struct Place {
    db: Database,
}

impl Place {
    async fn with_films() -> Self {
        let place = Self { db: Database::fresh().await };
        place.vitrina(&["migrate"]).ends(0);
        place.db.execute(FILMS).await;
        place
    }

    fn vitrina(&self, arguments: &[&str]) -> Vitrina {
        let url = self.db.url();
        let all = vitrina(arguments).variable("VITRINA_DATABASE_URL", url);
        all.variable("VITRINA_CONNECTIONS_CINEMA_URL", url).variable("VITRINA_CONNECTIONS_MARTS_URL", url)
    }

    /// API and runner, and the address to ask.
    fn up(&self) -> (Running, String) {
        let mut up = self.vitrina(&["up", "--listen", "127.0.0.1:0"]).start();
        let api = format!("http://{}", up.is_up());
        (up, api)
    }

    async fn columns(&self) -> String {
        let columns = "select coalesce(string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum), '')
                         from pg_attribute where attrelid = to_regclass('analytics.film') and attnum > 0";
        self.db.value(columns).await
    }
}

#[tokio::test]
async fn a_mart_is_shown_first_and_created_and_widened_only_when_asked() {
    let place = Place::with_films().await;
    let shown = place.vitrina(&["mart", "films"]).output();
    assert_eq!(shown.status.code(), Some(3));
    let create = "create table if not exists \"analytics\".\"film\" (";
    assert!(super::text(&shown.stdout).starts_with(create), "{}", super::text(&shown.stdout));
    assert!(super::text(&shown.stderr).contains("`vitrina mart films --apply`"));
    assert_eq!(place.columns().await, "");

    assert!(place.vitrina(&["mart", "films", "--apply"]).ends(0).ends_with("-- executed\n"));
    let columns = "id integer, title text, rating numeric(3,1), updated_at timestamp with time zone";
    assert_eq!(place.columns().await, columns);
    assert!(place.vitrina(&["mart", "films"]).ends(0).contains("can take the rows"));

    place
        .db
        .execute(
            "update etl.etl_pipelines set source_query = 'select id, title, rating, seen from content.film'",
        )
        .await;
    let shown = place.vitrina(&["mart", "films", "-o", "json"]).output();
    let document: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let alter = "alter table analytics.film add column \"seen\" integer";
    assert_eq!(document["statements"], Value::from(vec![alter]));
    assert_eq!(place.columns().await, columns);
    place.vitrina(&["mart", "films", "--apply"]).ends(0);
    assert_eq!(place.columns().await, format!("{columns}, seen integer"));
}

#[tokio::test]
async fn a_pipeline_is_validated_with_the_way_its_changes_will_be_followed_and_what_that_costs() {
    let place = Place::with_films().await;
    let (_up, api) = place.up();
    let validate = || place.vitrina(&["validate", "films"]).variable("VITRINA_API_URL", &api);
    let shown = validate().ends(0);
    assert!(shown.contains("warn  target_table: analytics.film does not exist, or lacks columns"), "{shown}");
    assert!(shown.contains("a load is read in"), "{shown}");
    place.vitrina(&["mart", "films", "--apply"]).ends(0);
    place
        .db
        .execute(
            "alter table content.film add modified timestamptz not null default now();
             update etl.etl_pipelines set mode = 'incremental', incremental_key = 'modified', incremental_id_key = 'id',
                    source_query = 'select id, title, rating, modified from content.film'",
        )
        .await;
    place.vitrina(&["mart", "films", "--apply"]).ends(0);
    let shown = validate().ends(0);
    assert!(
        shown.contains("hint: create index concurrently on content.film (\"modified\", \"id\")"),
        "{shown}"
    );
    place.db.execute("create index on content.film (modified, id)").await;
    let shown = validate().ends(0);
    assert!(shown.contains("ok    rows are read from content.film"), "{shown}");
    place.db.execute("update etl.etl_pipelines set source_query = 'select id, title, rating, greatest(modified, modified) as modified from content.film'").await;
    let shown = validate().ends(0);
    assert!(shown.contains("warn  the rows stand for no single table: the late window, about "), "{shown}");
    place.db.execute("update etl.etl_pipelines set capture = 'changelog'").await;
    let shown = validate().ends(2);
    assert!(shown.contains("FAIL  the source has no change log"), "{shown}");
}

#[tokio::test]
async fn what_no_statement_can_mend_is_told_as_a_run_would_tell_it() {
    let place = Place::with_films().await;
    place.db.execute("create table analytics.film (id int primary key, title int, rating float8, updated_at timestamptz)").await;
    let error = place.vitrina(&["mart", "films"]).refuses(4);
    assert!(error.contains("values would be rounded or changed in silence"), "{error}");
    place.vitrina(&["mart", "no_such_pipeline"]).refuses(2);
    place.db.execute("update etl.etl_pipelines set source_query = 'select id from content.nothing'").await;
    let refused = place.vitrina(&["mart", "films", "--apply"]).output();
    assert_eq!(refused.status.code(), Some(4));
    assert!(super::text(&refused.stderr).contains("content.nothing"), "{}", super::text(&refused.stderr));
}

#[tokio::test]
async fn the_ceiling_of_cost_holds_in_runs_and_in_validation_where_it_is_set() {
    let place = Place::with_films().await;
    place.vitrina(&["mart", "films", "--apply"]).ends(0);
    let ceiling = "VITRINA_RUNNER_MAX_QUERY_COST";
    let mut up = place.vitrina(&["up", "--listen", "127.0.0.1:0"]).variable(ceiling, "1").start();
    let api = format!("http://{}", up.is_up());
    let called = |arguments: &[&str]| place.vitrina(arguments).variable("VITRINA_API_URL", &api);
    let shown = called(&["validate", "films"]).ends(2);
    assert!(shown.contains("raise runner.max_query_cost"), "{shown}");
    let failed = called(&["run", "films", "--watch"]).output();
    assert!(!failed.status.success());
    let error: String = place.db.value("select error from etl.etl_runs").await;
    assert!(error.contains("raise runner.max_query_cost"), "{error}");
}
