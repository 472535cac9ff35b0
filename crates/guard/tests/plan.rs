//! The second layer alone: what queries reach, by the catalogue and the plan of a real source. None of these goes through
//! `check` first.

use rstest::rstest;
use tokio_postgres::Client;
use vitrina_guard::{Finding, check_plan};
use vitrina_testbed::Database;

fn schemas() -> Vec<String> {
    vec!["content".to_owned(), "ugc".to_owned()]
}

const CINEMA: &str = "
    create schema content; create schema ugc; create schema auth;
    create table content.film (id int primary key, title text, rating numeric(3, 1), kind text);
    create table ugc.likes (film_id int, user_id int);
    create table auth.users (id int primary key, email text);
    create sequence auth.ids;
    create view content.people as select id, email from auth.users;
    create view content.peoples_films as select f.id, p.email from content.film f left join content.people p using (id);
    create view content.never as select id from content.film where false union all select id from auth.users where false;
    create view content.films as select id, upper(title) as title from content.film;
    create view content.slow as select id, pg_sleep(10)::text as slept from content.film;
    create view content.limited as select id from content.film limit (random() * 5)::int;
    create view content.valued as select * from (values (1, random()), (2, random())) v (id, x);
    create view content.numbered as select id, nextval('auth.ids') from content.film;
    create view content.settings as select name, setting from pg_settings;
    create view content.roles as select rolname from pg_authid;
    create view content.locked as select id from content.film for update;
    create function content.danger(int) returns int language plpgsql security definer as 'begin return (select count(*) from auth.users); end';
    create view content.endangered as select content.danger(id) from content.film;
    create view content.sorted as select id from content.film order by content.danger(id);
    create operator content.!!! (function = content.danger, rightarg = int);
    create view content.operated as select operator(content.!!!) id as x from content.film;
    create type content.card as (number int);
    create function content.exposed(content.card) returns text language sql as 'select email from auth.users limit 1';
    create cast (content.card as text) with function content.exposed(content.card) as implicit;
    create table content.wallet (id int, card content.card);
    create view content.lengths as select length(card) from content.wallet;
    create domain content.checked as int check (content.danger(value) >= 0);
    create table content.checks (id content.checked);
    create table content.check_lists (ids content.checked[]);
    create type content.pair as (one content.checked, other int);
    create table content.pairs (pair content.pair);
    create type content.span as range (subtype = content.checked);
    create table content.spans (span content.span, spans content.span_multirange, plain int4multirange);
    create table content.event (id int, at date) partition by range (at);
    create schema parts;
    create table parts.event_2024 partition of content.event for values from ('2024-01-01') to ('2025-01-01');
    create view content.part as select * from parts.event_2024;
    create materialized view content.kept as select id from auth.users";

async fn cinema() -> (Database, Client) {
    let database = Database::fresh().await;
    database.execute(CINEMA).await;
    let client = database.client().await;
    (database, client)
}

async fn refused(client: &Client, sql: &str) -> Vec<Finding> {
    check_plan(client, sql, &schemas(), None).await.expect("the source answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relation_outside_the_allowed_schemas_is_named() {
    let (_database, client) = cinema().await;
    for (sql, message, column) in [
        ("select * from auth.users", "auth.users is not in an allowed schema", 15),
        ("select id, email from content.people", "view content.people reads auth.users", 23),
        (
            "select 1, x.id from ugc.likes l, content.peoples_films x",
            "view content.people reads auth.users",
            34,
        ),
        ("select id from content.never", "view content.never reads auth.users", 16),
        ("select id from content.part", "view content.part reads parts.event_2024", 16),
        ("select name from content.settings", "view content.settings reads pg_catalog.pg_settings", 18),
        ("select rolname from content.roles", "the query reads pg_catalog.pg_authid", 21),
        ("select id from content.numbered", "view content.numbered reads auth.ids", 16),
    ] {
        let findings = refused(&client, sql).await;
        assert!(findings[0].message.contains(message), "{sql}: {findings:?}");
        let told = (findings[0].code, findings[0].line, findings[0].column);
        assert_eq!(told, ("sql.schema_not_allowed", 1, column), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_is_not_allowed_is_found_wherever_it_hides() {
    let (_database, client) = cinema().await;
    for (sql, message) in [
        ("select * from content.slow", "view content.slow calls pg_sleep"),
        ("select content.danger(1) as x", "calls content.danger"),
        ("select content.danger(id) as x from content.film", "calls content.danger"),
        ("select (t).pg_sleep from (values (10.0::float8)) v(t)", "calls pg_sleep"),
        ("select f.record_out from content.film f", "calls record_out"),
        ("select * from pg_ls_dir('.')", "calls pg_ls_dir"),
        ("select * from rows from (generate_series(1, 2), pg_ls_dir('.'))", "calls pg_ls_dir"),
        ("select id from content.film where pg_sleep(1) is null", "calls pg_sleep"),
        ("select id from content.film order by pg_sleep(id)::text", "calls pg_sleep"),
        (
            "select 1 as x from ugc.likes l join ugc.likes r on pg_try_advisory_lock(l.film_id)",
            "calls pg_try_advisory_lock",
        ),
        ("select max(random()) as x from content.film", "calls random"),
        ("select rank() over (order by random()) as x from content.film", "calls random"),
        ("select id from content.film limit (random() * 5)::int", "calls random"),
        ("select * from (values (1, random()), (2, 3.0)) v (id, x)", "calls random"),
        ("select id from content.limited", "view content.limited calls random"),
        ("select id from content.valued", "view content.valued calls random"),
        ("select * from content.endangered", "view content.endangered calls content.danger"),
        ("select * from content.sorted", "view content.sorted calls content.danger"),
        ("select operator(content.!!!) id as x from content.film", "calls content.!!!"),
        ("select * from content.operated", "view content.operated calls content.!!!"),
        ("select length(card) as x from content.wallet", "cast content.card to text calls content.exposed"),
        ("select row(1)::content.card::text as x", "cast content.card to text calls content.exposed"),
        ("select * from content.lengths", "calls content.exposed"),
        ("select 1::content.checked as x", "type content.checked calls content.danger"),
        (
            "select jsonb_populate_record(c, '{}') as x from content.checks c",
            "type content.checked calls content.danger",
        ),
    ] {
        let findings = refused(&client, sql).await;
        let told = |finding: &Finding| {
            finding.code == "sql.function_not_allowed" && finding.message.contains(message)
        };
        assert!(findings.iter().any(told), "{sql}: {findings:?}");
    }
}

#[rstest]
#[case::written("select * from content.film for update")]
#[case::in_a_view("select * from content.locked")]
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_locks_rows_is_refused(#[case] sql: &str) {
    let (_database, client) = cinema().await;
    assert_eq!(refused(&client, sql).await[0].code, "sql.locking");
}

#[rstest]
#[case::stacked("select 1; drop table content.film")]
#[case::closing_the_parenthesis("select 1) q; drop table content.film; select * from (select 1")]
#[case::in_with("with d as (delete from content.film returning id) select * from d")]
#[case::into("select id into content.copy from content.film")]
#[case::unknown_column("select titel from content.film")]
#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_does_not_plan_is_a_finding_and_changes_nothing(#[case] sql: &str) {
    let (database, client) = cinema().await;
    database.execute("insert into content.film (id) values (1)").await;
    let findings = refused(&client, sql).await;
    assert!(["sql.refused_by_source", "sql.unchecked"].contains(&findings[0].code), "{findings:?}");
    assert_eq!(database.value::<i64>("select count(*) from content.film").await, 1);
    assert_eq!(refused(&client, "select id from content.film").await, [], "the session goes on");
}

#[rstest]
#[case("select * from content.films")]
#[case(
    "select * from content.film f left join ugc.likes l on l.film_id = f.id where f.id in (select film_id from ugc.likes)"
)]
#[case("select * from content.event where at < current_date")]
#[case("select id from content.kept")]
#[case("select id, card from content.wallet where id::text = '1'")]
#[case("select id from content.checks")]
#[case("select film_id from ugc.likes where user_id = any($1)")]
#[case("with recursive n as (select 1 as i union all select i + 1 from n where i < 5) select i from n")]
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_stays_inside_passes(#[case] sql: &str) {
    let (database, client) = cinema().await;
    let wallet = sql.contains("wallet");
    if wallet {
        database.execute("drop cast (content.card as text)").await;
    }
    assert_eq!(refused(&client, sql).await, []);
    let left: i64 = client
        .query_one("select count(*) from pg_prepared_statements where name = 'vitrina_guard'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn immutable_functions_of_extensions_may_stand_in_views() {
    let (database, client) = cinema().await;
    if !available(&database, "citext").await || !available(&database, "tablefunc").await {
        return;
    }
    database
        .execute(
            "create extension citext; create extension tablefunc;
             create table content.account (id int, name citext);
             create view content.named as select id, name from content.account where name = 'Ann'::citext and regexp_match(name, 'a'::citext) is not null;
             create view content.crossed as select * from crosstab('select 1, 2, 3') as c(a int, b int)",
        )
        .await;
    assert_eq!(refused(&client, "select id, name from content.account where name = 'ann'").await, []);
    assert_eq!(refused(&client, "select id, name from content.named").await, []);
    assert!(refused(&client, "select a from content.crossed").await[0].message.contains("public.crosstab"));
}

async fn available(database: &Database, extension: &str) -> bool {
    let sql = format!("select exists (select from pg_available_extensions where name = '{extension}')");
    let available = database.value::<bool>(&sql).await;
    if !available {
        eprintln!("extension {extension} is not installed: not tried");
    }
    available
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_of_cost_holds_only_where_one_is_set() {
    let (_database, client) = cinema().await;
    let sql = "select a.id, b.id as other from content.film a, content.film b, content.film c";
    assert_eq!(refused(&client, sql).await, []);
    let findings = check_plan(&client, sql, &schemas(), Some(1000.0)).await.unwrap();
    assert_eq!(findings[0].code, "sql.too_costly");
    assert!(findings[0].to_string().contains("raise runner.max_query_cost"), "{}", findings[0]);
    assert_eq!(
        check_plan(&client, "select id from content.film", &schemas(), Some(1000.0)).await.unwrap(),
        []
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_does_not_answer_is_not_the_query_s_fault() {
    let (database, client) = cinema().await;
    let migration = database.client().await;
    migration.batch_execute("begin; lock table content.film in access exclusive mode").await.unwrap();
    assert!(check_plan(&client, "select id from content.film", &schemas(), None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_planner_points_into_the_query() {
    let (_database, client) = cinema().await;
    let findings = refused(&client, "select 'жанр' as genre,\n  titel from content.film").await;
    let told = (findings[0].code, findings[0].line, findings[0].column);
    assert_eq!(told, ("sql.refused_by_source", 2, 3), "{findings:?}");
}

/// A literal beside a column takes the type of what the column holds, and a domain checks it while the query is parsed.
#[tokio::test(flavor = "multi_thread")]
async fn a_literal_that_takes_the_type_of_a_domain_calls_nothing_before_it_is_refused() {
    let (database, client) = cinema().await;
    database
        .execute(
            "create sequence content.calls; create or replace function content.danger(int) returns int language plpgsql
               as 'begin return nextval(''content.calls''); end'",
        )
        .await;
    for sql in [
        "select array_position(ids, '1') from content.check_lists",
        "select ids || '1' from content.check_lists",
        "select span @> '1' from content.spans",
        "select spans @> '1' from content.spans",
        "select spans from content.spans where spans && '{[1,2)}'",
        "select coalesce(pair, '(1,2)') from content.pairs",
        "select '1'::content.checked",
        "select '{[1,2)}'::content.span_multirange",
        "select content.checked '1'",
    ] {
        let findings = refused(&client, sql).await;
        assert_eq!(
            findings.first().map(|finding| finding.code),
            Some("sql.function_not_allowed"),
            "{sql}: {findings:?}"
        );
    }
    let called: bool = database.value("select is_called from content.calls").await;
    assert!(!called);
    assert!(refused(&client, "select id from content.checks").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sorts_or_groups_by_a_type_calls_its_default_operator_class() {
    let (database, client) = cinema().await;
    database
        .execute(
            "create type content.label as (name text);
             create function content.less(content.label, content.label) returns boolean language sql immutable as 'select true';
             create function content.order(content.label, content.label) returns int language plpgsql as 'begin return 0; end';
             create operator content.<<< (leftarg = content.label, rightarg = content.label, function = content.less);
             create operator class content.by_label default for type content.label using btree as
                operator 1 content.<<<, function 1 content.order(content.label, content.label);
             create table content.labels (id int, label content.label)",
        )
        .await;
    for sql in ["select id from content.labels order by label", "select distinct label from content.labels"] {
        let findings = refused(&client, sql).await;
        assert_eq!(
            findings.first().map(|finding| finding.code),
            Some("sql.function_not_allowed"),
            "{sql}: {findings:?}"
        );
    }
}
