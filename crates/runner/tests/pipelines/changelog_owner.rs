//! The functions of the change log run with their owner's rights whenever an application writes: nobody else may get at them.

use rstest::rstest;
use serde_json::json;
use tokio::task::JoinSet;
use vitrina_connectors::Connection;
use vitrina_connectors::sources::changelog::Desk;
use vitrina_core::Error;

use crate::changelog;
use crate::stage::Stage;

/// A database whose tables belong to a superuser, as they often do, and two logins that are none.
struct Place {
    stage: Stage,
    /// That of the marts, owner of schema `vitrina`, with all that `vitrina roles` and a careless administrator give it.
    marts: String,
    /// An application's, owner of a table and of types.
    application: String,
}

impl Place {
    async fn new() -> Self {
        let stage = Stage::with_films(3).await;
        let (marts, application) = (format!("marts_{}", stage.db.name()), format!("app_{}", stage.db.name()));
        stage
            .db
            .execute(&format!(
                "create role {marts} login password 'm'; create role {application} login password 'a';
                 create schema if not exists vitrina; alter schema vitrina owner to {marts};
                 grant usage, create on schema content to {application};
                 grant select, insert, update, delete on all tables in schema content to {application};
                 do $$ begin execute format('grant create on database %I to {marts}', current_database()); end $$"
            ))
            .await;
        Self { stage, marts, application }
    }

    /// Executes statements as this login, each by itself; most of them are refused.
    async fn attack(&self, login: &str, statements: &[&str]) {
        let password = if login == self.marts { "m" } else { "a" };
        let url = self.stage.db.url_as(login, password);
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        for statement in statements {
            client.batch_execute(statement).await.ok();
        }
    }

    /// All that the login of the marts could do to the log, so that a write of somebody else runs its code.
    async fn replace_the_log(&self) {
        let payload = payload(&self.marts);
        let statements = [
            payload.as_str(),
            "drop table vitrina_log.change_pruned",
            "alter table vitrina_log.change_log alter column xid set default null",
            "create rule own as on insert to vitrina_log.change_log do also select vitrina.take_over()",
            "drop table vitrina_log.change_log cascade",
            "create table vitrina_log.change_log (source text, key jsonb, kid bigint, op \"char\", xid xid8)",
            "create trigger own after insert on vitrina_log.change_log execute function vitrina.take_over()",
            "grant all on vitrina_log.change_log to public",
            "alter schema vitrina_log rename to mine; drop schema mine",
        ];
        self.attack(&self.marts, &statements).await;
    }

    async fn is_superuser(&self, login: &str) -> bool {
        self.stage.db.value(&format!("select rolsuper from pg_roles where rolname = '{login}'")).await
    }

    async fn desk(&self) -> Desk {
        Desk::open(self.stage.settings("desk").connections.get("content").unwrap()).await.unwrap()
    }

    async fn desk_as(&self, login: &str, password: &str) -> Desk {
        let url = self.stage.db.url_as(login, password);
        Desk::open(&Connection::new("content", url.as_str().into(), Vec::new())).await.unwrap()
    }

    async fn try_install(&self, desk: &Desk) -> Result<(), Error> {
        let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
        desk.apply(&desk.install(&logged, "postgres").await?).await
    }
}

/// What an attacker wants to be run with another's rights.
fn payload(login: &str) -> String {
    format!(
        "create or replace function vitrina.take_over() returns trigger language plpgsql as $$
         begin execute 'alter role {login} superuser'; return null; end $$"
    )
}

#[tokio::test]
async fn the_login_of_the_marts_gains_no_rights_through_the_change_log() {
    let place = Place::new().await;
    changelog::install(&place.stage, "content.film", &["id"]).await;
    place.replace_the_log().await;
    place.stage.db.execute("update content.film set title = 'new'").await;
    assert!(!place.is_superuser(&place.marts).await);
    assert_eq!(place.stage.count("vitrina_log.change_log").await, 3);
    // Where the schema is its own, as it was in older releases, the same attack succeeds.
    place.stage.db.execute(&format!("alter schema vitrina_log owner to {}", place.marts)).await;
    place.replace_the_log().await;
    place.stage.db.execute("update content.film set title = 'newer'").await;
    assert!(place.is_superuser(&place.marts).await);
}

#[rstest]
#[case::a_schema("create schema vitrina_log")]
#[case::a_schema_with_a_table(
    "create schema vitrina_log; create table vitrina_log.change_pruned (only_row boolean primary key default true, below xid8, pruned_at timestamptz)"
)]
#[tokio::test]
async fn a_log_is_not_installed_into_what_another_login_has_prepared(#[case] prepared: &str) {
    let place = Place::new().await;
    place.attack(&place.marts, &[prepared]).await;
    let refused = place.try_install(&place.desk().await).await.unwrap_err();
    assert_eq!(refused.code, "changelog.owner", "{refused}");
    let triggers = "select count(*) from pg_trigger where tgname like 'vitrina%'";
    assert_eq!(place.stage.db.value::<i64>(triggers).await, 0);
    // As an administrator would who pastes it into psql.
    let desk = place.desk().await;
    let logged = desk.logged("content.film", &["id".to_owned()]).await.unwrap();
    let statements = desk.install(&logged, "postgres").await.unwrap();
    let psql = place.stage.db.client().await;
    assert!(psql.batch_execute(&statements[0]).await.unwrap_err().to_string().contains("db error"));
}

#[rstest]
#[case::creating_in_it("grant create on schema vitrina_log to {login}")]
#[case::triggers("grant trigger on vitrina_log.change_log to {login}")]
#[case::writing("grant insert on vitrina_log.change_consumers to public")]
#[case::another_owner("alter table vitrina_log.change_pruned owner to {login}")]
#[case::a_function_of_another("alter function vitrina_log.prune_changes(interval) owner to {login}")]
#[tokio::test]
async fn a_log_that_others_can_change_is_followed_by_no_run_and_extended_by_no_installation(
    #[case] grant: &str,
) {
    let place = Place::new().await;
    changelog::install(&place.stage, "content.film", &["id"]).await;
    let id = place.stage.pipeline(json!({"mode": "incremental", "capture": "changelog"})).await;
    place.stage.succeed(id).await;
    assert_eq!(place.desk().await.fault().await.unwrap(), None);
    place.stage.db.execute(&grant.replace("{login}", &place.marts)).await;
    let (code, message) = place.stage.fail(id).await;
    assert_eq!(code, "changelog.owner", "{message}");
    assert_eq!(place.try_install(&place.desk().await).await.unwrap_err().code, "changelog.owner");
}

/// A trigger function on a table of one's own would write what its owner likes.
#[tokio::test]
async fn nobody_else_puts_the_functions_of_the_log_on_tables() {
    let place = Place::new().await;
    changelog::install(&place.stage, "content.film", &["id"]).await;
    let executable = "select count(*) from pg_proc where pronamespace = 'vitrina_log'::regnamespace and prorettype = 'trigger'::regtype
                         and has_function_privilege($$LOGIN$$, oid, 'execute')";
    for login in [&place.marts, &place.application] {
        assert_eq!(place.stage.db.value::<i64>(&executable.replace("LOGIN", login)).await, 0, "{login}");
    }
    place.attack(&place.application, &["insert into content.film values (4711, 'New')"]).await;
    let logged = "select count(*) from vitrina_log.change_log where key = '[\"4711\"]'";
    assert_eq!(place.stage.db.value::<i64>(logged).await, 1, "whoever writes is logged all the same");
}

#[tokio::test]
async fn whoever_owns_a_type_of_a_key_runs_nothing_with_the_rights_of_the_logs_owner() {
    let place = Place::new().await;
    let evil = format!(
        "create function content.evil(content.state) returns text language plpgsql as $$
         begin execute 'alter role {} superuser'; return 'x'; end $$",
        place.application
    );
    place
        .attack(
            &place.application,
            &[
                "create type content.state as enum ('open', 'closed')",
                "create table content.door (id content.state primary key)",
                "create table content.gate (id text primary key)",
                &evil,
                "create cast (content.state as text) with function content.evil(content.state)",
                "grant all on content.door, content.gate to public",
            ],
        )
        .await;
    changelog::install(&place.stage, "content.door", &["id"]).await;
    changelog::install(&place.stage, "content.gate", &["id"]).await;
    place
        .attack(
            &place.application,
            &[
                "insert into content.door values ('open'); update content.door set id = 'closed'",
                "alter table content.gate alter column id type content.state using id::content.state",
                "insert into content.gate values ('open')",
            ],
        )
        .await;
    assert!(!place.is_superuser(&place.application).await);
    let logged = "select string_agg(distinct key::text, ' ' order by key::text) from vitrina_log.change_log where op <> 'T'";
    assert_eq!(place.stage.db.texts(logged).await[0][0].as_deref(), Some("[\"closed\"] [\"open\"]"));
    assert_eq!(place.stage.count("content.gate").await, 1, "the application's own writes go on");
    place.stage.db.execute("select 'open'::content.state::text").await;
    assert!(place.is_superuser(&place.application).await, "the cast would have done it");
}

#[tokio::test]
async fn another_owner_of_tables_adds_nothing_to_a_log_that_is_not_his() {
    let place = Place::new().await;
    changelog::install(&place.stage, "content.film", &["id"]).await;
    place.attack(&place.application, &["create table content.own (id int primary key)"]).await;
    let grant = format!(
        "grant usage on schema vitrina_log to {0}; grant select on all tables in schema vitrina_log to {0}",
        place.application
    );
    place.stage.db.execute(&grant).await;
    let desk = place.desk_as(&place.application, "a").await;
    let logged = desk.logged("content.own", &["id".to_owned()]).await.unwrap();
    let statements = desk.install(&logged, "postgres").await.unwrap();
    let refused = desk.apply(&statements).await.unwrap_err();
    assert_eq!(refused.code, "changelog.owner", "{refused}");
}

#[tokio::test]
async fn a_log_of_the_schema_of_older_releases_is_refused_and_moved_by_an_installation() {
    let place = Place::new().await;
    let stage = &place.stage;
    changelog::install(stage, "content.film", &["id"]).await;
    let id = stage.pipeline(json!({"mode": "incremental", "capture": "changelog"})).await;
    stage.succeed(id).await;
    // As an older release left it: the same objects in the schema of the marts' login.
    let function: String =
        stage.db.value("select proname::text from pg_proc where proname like 'log\\_%'").await;
    stage
        .db
        .execute(&format!(
            "alter table vitrina_log.change_log set schema vitrina; alter table vitrina_log.change_sources set schema vitrina;
             alter table vitrina_log.change_consumers set schema vitrina; alter table vitrina_log.change_pruned set schema vitrina;
             alter function vitrina_log.{function}() set schema vitrina; alter function vitrina_log.prune_changes set schema vitrina;
             alter function vitrina_log.consume_changes set schema vitrina; alter function vitrina_log.forget_changes set schema vitrina;
             drop schema vitrina_log"
        ))
        .await;
    let (code, message) = stage.fail(id).await;
    assert_eq!(code, "changelog.outdated_schema");
    assert!(message.contains("vitrina changelog install"), "{message}");
    assert!(place.desk().await.is_outdated().await.unwrap());
    changelog::install(stage, "content.film", &["id"]).await;
    assert!(!place.desk().await.is_outdated().await.unwrap());
    stage.db.execute("update content.film set title = 'moved' where id = 2").await;
    stage.succeed(id).await;
    assert_eq!(stage.differences().await, 0);
    assert_eq!(stage.db.value::<i64>("select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'vitrina' and proname like 'log\\_%'").await, 0);
}
