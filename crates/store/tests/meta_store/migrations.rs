use std::borrow::Cow;
use std::path::Path;

use sqlx::migrate::Migrator;
use vitrina_store::{Error, PipelineChoice, RejectChoice, Store};
use vitrina_testbed::Database;

/// The migrations that bring the checkpoint of every pipeline, and rejects.
const CHECKPOINTS: usize = 4;
const REJECTS: usize = 5;

async fn connect(db: &Database) -> Store {
    Store::connect(db.url(), "vitrina-test", 4).await.unwrap()
}

#[tokio::test]
async fn an_empty_database_is_migrated_and_a_second_time_changes_nothing() {
    let db = Database::fresh().await;
    let store = connect(&db).await;
    assert!(matches!(store.check_schema().await, Err(Error::NotMigrated)));
    let first = store.migrate().await.unwrap();
    assert_eq!(first.applied, first.known);
    assert_eq!(store.migrate().await.unwrap(), first);
    for table in [
        "pipelines",
        "pipeline_tasks",
        "state",
        "runs",
        "targets",
        "attempts",
        "batches",
        "rejects",
        "requests",
        "reconciles",
        "audit",
        "tokens",
        "runners",
        "python_tasks",
    ] {
        let there: bool = db.value(&format!("select to_regclass('etl.etl_{table}') is not null")).await;
        assert!(there, "etl.etl_{table}");
    }
}

#[tokio::test]
async fn processes_that_start_together_migrate_once() {
    let db = Database::fresh().await;
    let mut starters = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = connect(&db).await;
        starters.spawn(async move { store.migrate().await });
    }
    while let Some(outcome) = starters.join_next().await {
        outcome.unwrap().unwrap();
    }
    assert_eq!(db.value::<i64>("select count(*) from etl.etl_installation").await, 1);
}

#[tokio::test]
async fn a_filled_database_keeps_its_rows_through_every_migration() {
    let known = Migrator::new(Path::new("migrations")).await.unwrap().migrations.len();
    for applied in CHECKPOINTS..known {
        let db = Database::fresh().await;
        migrate_only(&db, applied).await;
        db.execute("insert into etl.etl_pipelines (name, target_table, source_query) values ('kept', 'analytics.kept', 'select 1')").await;
        if applied >= REJECTS {
            db.execute("insert into etl.etl_rejects (pipeline_id, key, run_id, code, message, row) select id, '[\"7\"]', id, 'row.bad', 'bad', '{}' from etl.etl_pipelines").await;
        }
        let store = connect(&db).await;
        assert!(matches!(store.check_schema().await, Err(Error::SchemaOlder { .. })));
        store.migrate().await.unwrap();
        let kept = store.pipelines(&PipelineChoice::default()).await.unwrap();
        assert_eq!(kept.len(), 1, "after the first {applied}");
        let kept = &kept[0];
        assert_eq!(kept.config.name, "kept");
        let rejects = store.rejects(kept.config.id, &RejectChoice::default(), None, 9).await.unwrap();
        assert_eq!(rejects.len(), usize::from(applied >= REJECTS), "after the first {applied}");
    }
}

async fn migrate_only(db: &Database, count: usize) {
    let mut migrator = Migrator::new(Path::new("migrations")).await.unwrap();
    migrator.migrations = Cow::Owned(migrator.migrations[..count].to_vec());
    migrator.create_schema("etl");
    migrator.dangerous_set_table_name("etl.etl_migrations");
    let pool = sqlx::PgPool::connect(db.url()).await.unwrap();
    migrator.run(&pool).await.unwrap();
    pool.close().await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_what_to_do() {
    let db = Database::fresh().await;
    let store = connect(&db).await;
    store.migrate().await.unwrap();
    db.execute(
        "insert into etl.etl_migrations (version, description, success, checksum, execution_time) values (9999, 'later', true, '', 0)",
    )
    .await;
    for refused in [store.migrate().await, store.check_schema().await] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::SchemaNewer { version: 9999 }));
        assert!(error.to_string().contains("hint: use the newer vitrina"));
    }
}

#[tokio::test]
async fn a_migration_that_differs_from_the_one_applied_is_refused_though_none_is_missing() {
    let db = Database::fresh().await;
    let store = connect(&db).await;
    store.migrate().await.unwrap();
    db.execute("update etl.etl_migrations set checksum = '\\x00' where version = 2").await;
    for refused in [store.migrate().await, store.check_schema().await] {
        assert!(matches!(refused.unwrap_err(), Error::SchemaChanged { version: 2 }));
    }
}

/// As a vitrina from before the squash left it: its schema is the same, its history is another.
async fn migrated_before_the_squash(db: &Database) {
    connect(db).await.migrate().await.unwrap();
    db.execute(include_str!("squashed_history.sql")).await;
    db.execute("insert into etl.etl_pipelines (name, target_table, source_query) values ('kept', 'analytics.kept', 'select 1')").await;
}

async fn history(db: &Database) -> Vec<Vec<Option<String>>> {
    db.texts("select version::text, description, success::text, checksum::text from etl.etl_migrations order by version")
        .await
}

#[tokio::test]
async fn a_squashed_history_is_replaced_once_and_nothing_else_changes() {
    let db = Database::fresh().await;
    connect(&db).await.migrate().await.unwrap();
    let of_this_release = history(&db).await;
    migrated_before_the_squash(&db).await;
    let installation: String = db.value("select id::text from etl.etl_installation").await;
    let refused = connect(&db).await.check_schema().await.unwrap_err();
    assert!(matches!(refused, Error::SchemaSquashed), "{refused}");
    assert!(refused.to_string().contains("hint: run `vitrina migrate`"));

    let mut starters = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = connect(&db).await;
        starters.spawn(async move { store.migrate().await });
    }
    while let Some(outcome) = starters.join_next().await {
        outcome.unwrap().unwrap();
    }
    assert_eq!(history(&db).await, of_this_release);
    assert_eq!(db.value::<String>("select id::text from etl.etl_installation").await, installation);
    let kept = connect(&db).await.pipelines(&PipelineChoice::default()).await.unwrap();
    assert_eq!(kept.len(), 1);
}

#[tokio::test]
async fn a_part_of_the_squashed_history_is_refused_and_nothing_changes() {
    let db = Database::fresh().await;
    migrated_before_the_squash(&db).await;
    let store = connect(&db).await;
    for applied in [24, 1] {
        db.execute(&format!("delete from etl.etl_migrations where version > {applied}")).await;
        let before = history(&db).await;
        for refused in [store.migrate().await, store.check_schema().await] {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::SchemaIncomplete { known: 25, .. }), "{error}");
            assert!(error.to_string().contains(&format!("{applied} of the 25 migrations")), "{error}");
            assert!(
                error.to_string().contains("hint: run `vitrina migrate` of the last vitrina that has all 25")
            );
        }
        assert_eq!(history(&db).await, before);
    }
}

#[tokio::test]
async fn a_squashed_history_with_another_migration_is_refused() {
    let db = Database::fresh().await;
    migrated_before_the_squash(&db).await;
    db.execute("update etl.etl_migrations set checksum = '\\x00' where version = 7").await;
    let before = history(&db).await;
    assert!(matches!(
        connect(&db).await.migrate().await.unwrap_err(),
        Error::SchemaChanged { .. } | Error::SchemaNewer { .. }
    ));
    assert_eq!(history(&db).await, before);
}

#[tokio::test]
async fn an_unreachable_meta_store_and_a_wrong_password_are_told_apart() {
    let db = Database::fresh().await;
    let wrong = Store::connect(&db.url_as("nobody_here", "wrong"), "vitrina-test", 1).await.unwrap_err();
    assert!(matches!(wrong, Error::Refused { .. }), "{wrong}");
    let nowhere = Store::connect("postgres://a:b@127.0.0.1:1/x", "vitrina-test", 1).await.unwrap_err();
    assert!(matches!(nowhere, Error::Unreachable { .. }), "{nowhere}");
    assert!(!nowhere.to_string().contains("a:b"), "no credentials in errors");
}
