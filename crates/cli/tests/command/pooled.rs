//! Addresses where a pooler answers, as a person meets them.

use vitrina_testbed::{Database, Pooler, PoolerPlan};

use super::vitrina;

#[tokio::test]
async fn doctor_init_and_migrate_say_that_a_pooler_answers_and_what_to_do() {
    let db = Database::fresh().await;
    vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", db.url()).ends(0);
    let plan = PoolerPlan { mode: "transaction", drops_options: true };
    let Some(pooler) = Pooler::before(&db, plan).await else { return };
    let doctor = vitrina(&["doctor"])
        .variable("VITRINA_DATABASE_URL", db.url())
        .variable("VITRINA_CONNECTIONS_CINEMA_URL", pooler.url())
        .output();
    let migrate = vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", pooler.url()).output();
    let init = vitrina(&["init", "--from", pooler.url(), "--to", db.url()]).output();
    for output in [doctor, migrate, init] {
        let said = super::text(&output.stdout) + &super::text(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("pgbouncer") && said.contains("the Postgres server itself"), "{said}");
    }
}
