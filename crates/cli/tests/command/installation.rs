//! Which of several copies of a meta-store counts: shown, reported and decided at the meta-store.

use serde_json::Value;
use vitrina_testbed::Database;

use super::{Vitrina, vitrina};

/// A pipeline whose last run was stopped because another copy of the meta-store has written to its mart.
const STOPPED: &str = "
    insert into etl.etl_pipelines (id, name, type, source_type, source_connection, source_query, target_table, mode, batch_size)
    values ('11111111-1111-1111-1111-111111111111', 'film_dim', 'SQL', 'postgres', 'cinema', 'select 1', 'analytics.film_dim', 'full', 10);
    insert into etl.etl_runs (id, pipeline_id, status, trigger, mode, snapshot, finished_at, error_code, error)
    select gen_random_uuid(), id, 'FAILED', 'api', 'full', '{}', now(), 'installation.copied', 'stopped' from etl.etl_pipelines;
    alter table etl.etl_pipelines disable trigger check_transition;
    update etl.etl_pipelines set status = 'FAILED'";

async fn place() -> Database {
    let db = Database::fresh().await;
    at(&db, &["migrate"]).ends(0);
    db.execute(STOPPED).await;
    db
}

fn at(db: &Database, arguments: &[&str]) -> Vitrina {
    vitrina(arguments).variable("VITRINA_DATABASE_URL", db.url())
}

async fn id(db: &Database) -> String {
    db.value("select id::text from etl.etl_installation").await
}

#[tokio::test]
async fn an_installation_shows_what_another_copy_has_stopped_and_is_adopted_when_somebody_agrees() {
    let db = place().await;
    let shown = at(&db, &["installation"]).ends(0);
    assert!(shown.contains(&id(&db).await) && shown.contains("film_dim"), "{shown}");
    let doctor = at(&db, &["doctor"]).ends(4);
    assert!(doctor.contains("FAIL  installation: another copy of the meta-store"), "{doctor}");
    let refused = at(&db, &["installation", "adopt"]).refuses(2);
    assert!(refused.contains("vitrina installation adopt --yes"), "{refused}");
    let adopts = "select count(*) from etl.etl_lease_owners where adopts";
    assert_eq!(db.value::<i64>(adopts).await, 0);
    let told = at(&db, &["installation", "adopt", "--yes"]).ends(0);
    assert!(told.contains("film_dim") && told.contains("run it again"), "{told}");
    assert_eq!(db.value::<i64>(adopts).await, 1);
    let audited: String = db.value("select action || ' ' || actor from etl.etl_audit").await;
    assert_eq!(audited, "installation.adopt command line");
}

#[tokio::test]
async fn a_copy_gets_an_installation_of_its_own_when_somebody_agrees() {
    let db = place().await;
    let before = id(&db).await;
    at(&db, &["installation", "new"]).refuses(2);
    assert_eq!(id(&db).await, before);
    let told = at(&db, &["installation", "new", "--yes", "-o", "json"]).ends(0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (told["before"].as_str(), told["installation"].as_str()),
        (Some(&*before), Some(&*id(&db).await))
    );
    assert_ne!(id(&db).await, before);
    let audited: String = db.value("select action || ' ' || (before ->> 'id') from etl.etl_audit").await;
    assert_eq!(audited, format!("installation.new {before}"));
}

#[tokio::test]
async fn doctor_reports_a_schema_of_the_meta_store_that_was_left_beside_the_marts() {
    let mut before = place().await;
    let moved = before.copy().await;
    let doctor = at(&moved, &["doctor"]).variable("VITRINA_CONNECTIONS_MARTS_URL", before.url()).ends(4);
    assert!(
        doctor.contains("FAIL  marts: their database holds a schema etl of this installation"),
        "{doctor}"
    );
    let doctor = at(&moved, &["doctor"]).variable("VITRINA_CONNECTIONS_MARTS_URL", moved.url()).ends(4);
    assert!(doctor.contains("ok    marts: they are in the meta-store's database"), "{doctor}");
}
