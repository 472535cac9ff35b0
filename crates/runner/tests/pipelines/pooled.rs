//! Connections that lead to a pooler: refused, before anything is set in a session that other applications get next.

use rstest::rstest;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use vitrina_connectors::Secret;
use vitrina_core::Status;
use vitrina_testbed::{Pooler, PoolerPlan};

use crate::stage::Stage;

/// What an application finds in a session that it gets from the pooler, and whether it can write.
async fn found_by_an_application(url: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let found = "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings
                  where source = 'session' or name in ('default_transaction_read_only', 'search_path')";
    let found = client.simple_query(found).await.unwrap();
    let found = found.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    let written = client.simple_query("create table if not exists content.written ()").await;
    assert!(written.is_ok(), "{written:?}");
    drop(client);
    driver.join_next().await.unwrap().unwrap().unwrap();
    found.unwrap()
}

#[rstest]
#[case("content", "source.pooled")]
#[case("marts", "sink.pooled")]
#[tokio::test]
async fn a_pooler_is_refused_with_what_to_do_and_leaves_other_applications_as_they_were(
    #[case] connection: &str,
    #[case] code: &str,
    #[values("transaction", "statement", "session")] mode: &'static str,
    #[values(true, false)] drops_options: bool,
) {
    let stage = Stage::with_films(20).await;
    let plan = PoolerPlan { mode, drops_options };
    let Some(pooler) = Pooler::before(&stage.db, plan).await else { return };
    let before = found_by_an_application(pooler.url()).await;
    assert!(before.contains("default_transaction_read_only=off"), "{before}");

    let id = stage.full(5).await;
    let run = stage.request(id).await;
    let mut settings = stage.settings("tester");
    settings.connections.0.get_mut(connection).unwrap().url = pooler.url().to_owned().into();
    stage.work_off(settings).await;

    let run = stage.run_record(run).await;
    assert_eq!((stage.status(id).await, run.error_code.as_deref()), (Status::Failed, Some(code)));
    let error = run.error.unwrap();
    assert!(error.contains("pgbouncer") && error.contains("the Postgres server itself"), "{error}");
    assert_eq!(found_by_an_application(pooler.url()).await, before);
}

#[tokio::test]
async fn settings_that_a_url_asks_for_itself_are_kept() {
    let stage = Stage::with_films(20).await;
    let id = stage.full(5).await;
    stage.request(id).await;
    let mut settings = stage.settings("tester");
    for name in ["content", "marts"] {
        let url = format!("{}?options=-c%20work_mem%3D9MB%20-c%20search_path%3Dugc", stage.db.url());
        settings.connections.0.get_mut(name).unwrap().url = Secret::from(url);
    }
    stage.work_off(settings).await;
    assert_eq!((stage.status(id).await, stage.differences().await), (Status::Idle, 0));
}
