//! What there is to write queries with, as a login at a real source sees it.

use vitrina_guard::{Reading, visible};
use vitrina_testbed::Database;

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_told_the_tables_and_columns_that_it_may_read_and_no_others() {
    let database = Database::fresh().await;
    let role = format!("seer_{}", database.name());
    let role = &role[..role.len().min(60)];
    database
        .execute(&format!(
            "create schema content; create schema auth;
             create table content.film (id int primary key, title varchar(80), modified timestamptz);
             create table content.genre (id int, name text);
             create table content.kept_back (id int);
             create view content.titles as select id, title from content.film;
             create table content.event (id int, at date) partition by range (at);
             create table content.event_2024 partition of content.event for values from ('2024-01-01') to ('2025-01-01');
             create table auth.users (id int, secret text);
             create role {role} login password 'seer'; grant usage on schema content, auth to {role};
             grant select on content.film, content.titles, content.event, content.event_2024, auth.users to {role};
             grant select (id) on content.genre to {role}"
        ))
        .await;
    let session = Reading::open(&database.url_as(role, "seer").into(), "test").await.unwrap();
    let seen = visible(&session.client, &["content".to_owned()]).await.unwrap();
    let names: Vec<&str> = seen.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!((names, seen.has_more), (vec!["event", "film", "genre", "titles"], false));
    let columns =
        seen.tables[1].columns.iter().map(|column| (column.name.as_str(), column.type_name.as_str()));
    let expected =
        [("id", "integer"), ("title", "character varying(80)"), ("modified", "timestamp with time zone")];
    assert_eq!(columns.collect::<Vec<_>>(), expected);
    assert_eq!(seen.tables[2].columns.len(), 1, "of genre only the id");
    drop(session);
    database.execute(&format!("drop owned by {role}; drop role {role}")).await;
}
