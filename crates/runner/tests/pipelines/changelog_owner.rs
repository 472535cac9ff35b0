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

    /// What an administrator is shown.
    async fn steps(&self, table: &str, key: &str) -> Vec<String> {
        let desk = self.desk().await;
        let logged = desk.logged(table, &[key.to_owned()]).await.unwrap();
        desk.install(&logged, "postgres").await.unwrap()
    }

    /// Into psql, as a superuser; answers what it says.
    async fn paste(&self, steps: &[String]) -> String {
        self.paste_with(steps, "").await
    }

    async fn paste_with(&self, steps: &[String], before: &str) -> String {
        let text = steps
            .iter()
            .map(|step| format!("{step};\n\n"))
            .fold(before.to_owned(), |text, step| text + &step);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut psql = tokio::process::Command::new("psql");
        let output =
            psql.arg("-Xq").arg(self.stage.db.url()).arg("-f").arg(file.path()).output().await.unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
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
    // As an administrator would who pastes it into psql, which goes on behind an error, and some in the same transaction.
    for rollback in ["off", "on"] {
        let steps = place.steps("content.film", "id").await;
        let said = place.paste_with(&steps, &format!("\\set ON_ERROR_ROLLBACK {rollback}\n")).await;
        assert!(said.contains("schema vitrina_log belongs to another role than postgres"), "{said}");
        assert_eq!(place.stage.db.value::<i64>(triggers).await, 0);
        let functions = "select count(*) from pg_proc where pronamespace = 'vitrina_log'::regnamespace";
        assert_eq!(place.stage.db.value::<i64>(functions).await, 0);
    }
}

/// The schema is made while the installation waits for whoever makes it, and is that one's by then.
#[tokio::test]
async fn a_schema_that_another_login_makes_meanwhile_is_not_taken_for_an_own_one() {
    let place = Place::new().await;
    let other = place.stage.db.client().await;
    other
        .batch_execute(&format!("set role {}; begin; create schema vitrina_log", place.marts))
        .await
        .unwrap();
    let desk = place.desk().await;
    let committing = async {
        vitrina_testbed::eventually("the installation waits", async || {
            let waits = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                            and query like '%create schema vitrina_log%')";
            place.stage.db.value::<bool>(waits).await.then_some(())
        })
        .await;
        other.batch_execute("commit").await.unwrap();
    };
    let (installed, ()) = tokio::join!(place.try_install(&desk), committing);
    let refused = installed.unwrap_err();
    assert_eq!(refused.code, "changelog.owner", "{refused}");
    let made = "select (select count(*) from pg_trigger where tgname like 'vitrina%')
                     + (select count(*) from pg_class where relnamespace = 'vitrina_log'::regnamespace)";
    assert_eq!(place.stage.db.value::<i64>(made).await, 0);
}

/// The names of types, columns and tables are those of whoever owns them.
#[tokio::test]
async fn a_name_ends_no_quotes_of_the_sql_that_an_administrator_pastes() {
    let place = Place::new().await;
    let evil = |name: &str| {
        format!("\"{name} $$; alter role {} superuser; select $$ $body0$ '\"", place.application)
    };
    let (domain, column, table) = (evil("type"), evil("column"), evil("table"));
    // Names have 63 bytes.
    let short = "\"x$$; reset all; select $$\"";
    for name in [domain.as_str(), short] {
        place.attack(&place.application, &[&format!("create domain content.{name} as text")]).await;
    }
    let tables = [
        format!("create table content.typed (code content.{short} primary key)"),
        format!("create table content.wide (code content.{domain} primary key)"),
        format!("create table content.{table} ({column} text primary key)"),
    ];
    place.attack(&place.application, &tables.each_ref().map(String::as_str)).await;
    let made = "select format('%I.%I', n.nspname, c.relname), a.attname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  join pg_attribute a on a.attrelid = c.oid and a.attnum = 1 where n.nspname = 'content' and c.relowner = 'ROLE'::regrole and c.relkind = 'r'";
    let made = place.stage.db.texts(&made.replace("ROLE", &place.application)).await;
    assert_eq!(made.len(), 3, "{made:?}");
    for row in &made {
        let (table, key) = (row[0].as_deref().unwrap(), row[1].as_deref().unwrap());
        let said = place.paste(&place.steps(table, key).await).await;
        assert!(!said.contains("ERROR"), "{table}: {said}");
        assert_eq!(place.steps(table, key).await, Vec::<String>::new(), "{table} is logged");
        place.stage.db.execute(&format!("insert into {table} values ('a')")).await;
    }
    assert!(!place.is_superuser(&place.application).await);
    assert_eq!(place.stage.count("vitrina_log.change_log where key = '[\"a\"]'").await, 3);
}

/// A domain has no casts of its own, and is one only as long as nobody puts something else in its place.
#[rstest]
#[case::of_the_same_name(
    "alter table content.item alter column code type text using null; drop domain content.code"
)]
#[case::renamed(
    "alter domain content.code rename to gone; alter table content.item alter column code type text"
)]
#[tokio::test]
async fn a_type_that_takes_the_name_of_a_keys_domain_runs_nothing(#[case] replaced: &str) {
    let place = Place::new().await;
    let own = ["create domain content.code as text", "create table content.item (code content.code, n int)"];
    place.attack(&place.application, &own).await;
    changelog::install(&place.stage, "content.item", &["code"]).await;
    let function = format!(
        "create function content.code_text(content.code) returns text language plpgsql as $f$ begin
           execute 'alter role {} superuser'; return ($1).x; end $f$",
        place.application
    );
    place
        .attack(
            &place.application,
            &[
                "insert into content.item values ('x', 1)",
                "delete from content.item",
                replaced,
                "create type content.code as (x text)",
                &function,
                "create cast (content.code as text) with function content.code_text(content.code)",
                "alter table content.item alter column code type content.code using row(code)::content.code",
                "insert into content.item values (row('y'), 2)",
            ],
        )
        .await;
    assert!(!place.is_superuser(&place.application).await);
    assert_eq!(place.stage.count("content.item").await, 1, "the application's own writes go on");
    let logged = "select string_agg(distinct key::text, ' ' order by key::text) from vitrina_log.change_log where op <> 'T'";
    assert_eq!(place.stage.db.texts(logged).await[0][0].as_deref(), Some("[\"(y)\"] [\"x\"]"));
    place.stage.db.execute("select (row('z')::content.code)::text").await;
    assert!(place.is_superuser(&place.application).await, "the cast would have done it");
}

#[tokio::test]
async fn a_function_of_the_log_that_is_written_otherwise_by_now_is_replaced_by_an_installation() {
    let place = Place::new().await;
    changelog::install(&place.stage, "content.film", &["id"]).await;
    assert_eq!(place.steps("content.film", "id").await, Vec::<String>::new());
    let function: String = place
        .stage
        .db
        .value("select proname::text from pg_proc where proname like 'log\\_%' and pronamespace = 'vitrina_log'::regnamespace")
        .await;
    let old = format!(
        "create or replace function vitrina_log.{function}() returns trigger language plpgsql as 'begin return null; end'"
    );
    place.stage.db.execute(&old).await;
    let steps = place.steps("content.film", "id").await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    place.paste(&steps).await;
    place.stage.db.execute("update content.film set title = 'new'").await;
    assert_eq!(place.stage.count("vitrina_log.change_log").await, 3);
}

#[rstest]
#[case::creating_in_it("grant create on schema vitrina_log to {login}")]
#[case::triggers("grant trigger on vitrina_log.change_log to {login}")]
#[case::writing("grant insert on vitrina_log.change_consumers to public")]
#[case::writing_a_column("grant update (key) on vitrina_log.change_log to {login}")]
#[case::executing(
    "do $$ begin execute format('grant execute on function %s to {login}', (select oid::regprocedure from pg_proc where proname like 'log\\_%' limit 1)); end $$"
)]
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

/// Settings of whoever writes decide how a text in a function is read, unless the function has its own.
#[tokio::test]
async fn a_writer_does_not_choose_how_the_functions_of_the_log_are_read() {
    let place = Place::new().await;
    place.stage.db.execute(r#"create table content."fi\lm" (id int primary key)"#).await;
    changelog::install(&place.stage, r#"content."fi\lm""#, &["id"]).await;
    let writer = place.stage.db.client().await;
    writer
        .batch_execute(r#"set standard_conforming_strings = off; set escape_string_warning = off; insert into content."fi\lm" values (1)"#)
        .await
        .unwrap();
    let logged = place.stage.db.texts("select source from vitrina_log.change_log").await;
    assert_eq!(logged, [[Some(r#"content."fi\lm"(id)"#.to_owned())]]);
}

/// Whoever may read the log may say how far they are: nobody else is held up or left behind by it.
#[tokio::test]
async fn a_reader_of_the_log_stops_no_other_follower() {
    let place = Place::new().await;
    changelog::install(&place.stage, "content.film", &["id"]).await;
    let id = place.stage.pipeline(json!({"mode": "incremental", "capture": "changelog"})).await;
    place.stage.succeed(id).await;
    let client = place.stage.db.client().await;
    let consume = |snapshot: &str, age: &str| {
        format!(
            "select vitrina_log.consume_changes(gen_random_uuid(), gen_random_uuid(), {snapshot}, '{age}')"
        )
    };
    client.batch_execute(&consume("'junk'", "1 week")).await.unwrap_err();
    place
        .stage
        .db
        .execute("update vitrina_log.change_pruned set pruned_at = pruned_at - interval '1 hour'")
        .await;
    client.batch_execute(&consume("pg_current_snapshot()::text", "-1 year")).await.unwrap();
    assert_eq!(place.stage.count("vitrina_log.change_consumers where dropped").await, 0);
    place.stage.db.execute("update content.film set title = 'new' where id = 2").await;
    assert_eq!(place.stage.succeed(id).await.rows_read, 1, "no load");
    assert_eq!(place.stage.differences().await, 0);
}

/// A reader that claimed to have seen what is yet to come had the log emptied, and another follower's changes with it.
#[tokio::test]
async fn a_reader_of_the_log_has_not_seen_what_is_yet_to_come() {
    let place = Place::new().await;
    let logged = changelog::install(&place.stage, "content.film", &["id"]).await;
    let db = &place.stage.db;
    let id = place.stage.pipeline(json!({"mode": "incremental", "capture": "changelog"})).await;
    place.stage.succeed(id).await;
    db.execute("update content.film set title = 'new' where id = 2").await;
    let claim = "select vitrina_log.consume_changes(installation, pipeline, '999999999:999999999:', '1 week') from vitrina_log.change_consumers";
    let client = db.client().await;
    let aged = "update vitrina_log.change_pruned set pruned_at = pruned_at - interval '1 hour'";
    db.execute(aged).await;
    let refused = client.batch_execute(claim).await.unwrap_err();
    assert!(
        refused.as_db_error().unwrap().message().contains("of times to come"),
        "{refused:?} of {}",
        logged.table
    );
    assert_eq!(place.stage.count("vitrina_log.change_log").await, 1);
    assert_eq!(place.stage.succeed(id).await.rows_read, 1, "no load");
    assert_eq!(place.stage.differences().await, 0);

    // As an older release has installed it: the next installation replaces it.
    let old = "create or replace function vitrina_log.consume_changes(
            p_installation uuid, p_pipeline uuid, p_snapshot text, p_max_age interval) returns bigint language sql as 'select 1::bigint'";
    db.execute(old).await;
    let steps = place.steps("content.film", "id").await;
    assert!(!steps.is_empty());
    place.paste(&steps).await;
    client.batch_execute(claim).await.unwrap_err();
    assert_eq!(place.steps("content.film", "id").await, Vec::<String>::new());
}

/// The planner looks into a cast that is written in SQL even where no row reaches it.
#[rstest]
#[case::of_a_text("text")]
#[case::of_a_padded_text("char(9)")]
#[case::of_a_domain("content.code")]
#[tokio::test]
async fn a_cast_that_is_planned_and_not_called_runs_nothing_either(#[case] key: &str) {
    let place = Place::new().await;
    let own =
        ["create domain content.code as char(9)", &format!("create table content.item (code {key}, n int)")];
    place.attack(&place.application, &own).await;
    changelog::install(&place.stage, "content.item", &["code"]).await;
    let volatile = format!(
        "create function content.vol(text) returns text language plpgsql volatile as $f$ begin execute 'alter role {} superuser'; return 'k'; end $f$",
        place.application
    );
    place
        .attack(
            &place.application,
            &[
                "insert into content.item values ('x', 1)",
                &volatile,
                "create function content.evil(text) returns text language plpgsql immutable as $f$ begin perform content.vol('x'); return 'k'; end $f$",
                "create type content.row as (x text)",
                "create function content.shown(content.row) returns text language sql immutable as $f$ select content.evil('const') $f$",
                "create cast (content.row as text) with function content.shown(content.row)",
                "create cast (content.row as bpchar) with function content.shown(content.row)",
                "alter table content.item alter column code type content.row using row(code)::content.row",
                "insert into content.item values (row('y'), 2)",
                "update content.item set n = 3",
            ],
        )
        .await;
    assert!(!place.is_superuser(&place.application).await);
    assert_eq!(place.stage.count("content.item").await, 2, "the application's own writes go on");
    let logged = "select string_agg(distinct key::text, ' ' order by key::text) from vitrina_log.change_log where op = 'I'";
    assert_eq!(place.stage.db.texts(logged).await[0][0].as_deref(), Some("[\"(y)\"] [\"x\"]"));
}

/// A schema of the administrator's name is the first in the search path of his sessions.
#[tokio::test]
async fn the_sql_that_an_administrator_pastes_calls_functions_of_the_catalogue_only() {
    let place = Place::new().await;
    let volatile = format!(
        "create function postgres.vol(text) returns text language plpgsql volatile as $f$ begin execute 'alter role {} superuser'; return 'k'; end $f$",
        place.marts
    );
    place
        .attack(
            &place.marts,
            &[
                "create schema postgres",
                "grant usage on schema postgres to public",
                &volatile,
                "create function postgres.evil(text) returns text language plpgsql immutable as $f$ begin perform postgres.vol('x'); return 'k'; end $f$",
                "create function postgres.format(text, name, regrole, regrole) returns text language sql immutable as $f$ select postgres.evil('const') $f$",
                "create function postgres.same(oid, integer) returns boolean language sql immutable as $f$ select postgres.evil('const') = 'k' $f$",
                "create operator postgres.= (leftarg = oid, rightarg = integer, function = postgres.same)",
            ],
        )
        .await;
    let said = place.paste(&place.steps("content.film", "id").await).await;
    assert!(!said.contains("ERROR"), "{said}");
    assert!(!place.is_superuser(&place.marts).await);
    place.stage.db.execute("update content.film set title = 'new'").await;
    assert_eq!(place.stage.count("vitrina_log.change_log").await, 3);
    place.stage.db.execute("select format('%s'::text, 'a'::name, 0::regrole, 0::regrole)").await;
    assert!(place.is_superuser(&place.marts).await, "an unpinned session would have called it");
}

/// Whatever the key is, its log finds the row: changed, deleted and moved.
#[rstest]
#[case::flag("boolean", "true", "false")]
#[case::padded("char(9)", "'a'", "'b'")]
#[case::address("inet", "'10.0.0.1'", "'10.0.0.2/24'")]
#[case::network("cidr", "'10.0.0.0/24'", "'10.0.1.0/24'")]
#[case::letter("\"char\"", "'a'", "'b'")]
#[case::domain("content.padded", "'a'", "'b'")]
#[case::bytes("bytea", "'\\x00ff'", "'\\x01'")]
#[case::moment("timestamptz", "'2024-01-01 00:00+03'", "'2024-01-02'")]
#[case::state("content.state", "'open'", "'closed'")]
#[case::text_of_any_case("public.citext", "'a'", "'b'")]
#[case::path("public.ltree", "'a.b'", "'a.c'")]
#[case::labels("public.hstore", "'a=>1'", "'a=>2'")]
#[tokio::test]
async fn keys_of_every_kind_of_type_are_followed_as_texts_and_as_they_are(
    #[case] key: &str,
    #[case] one: &str,
    #[case] other: &str,
    #[values("", "::text")] cast: &str,
) {
    let place = Place::new().await;
    let db = &place.stage.db;
    let mart_key = if cast.is_empty() { key } else { "text" };
    db.execute(&format!(
        "create extension if not exists citext schema public; create extension ltree schema public; create extension hstore schema public;
         create domain content.padded as char(9); create type content.state as enum ('open', 'closed');
         create table content.item (k {key} primary key, n int); insert into content.item values ({one}, 1);
         create table analytics.item (k {mart_key} primary key, n int)"
    ))
    .await;
    changelog::install(&place.stage, "content.item", &["k"]).await;
    let config = json!({
        "mode": "incremental", "capture": "changelog", "source_table": "content.item", "target_table": "analytics.item",
        "source_query": format!("select k{cast} as k, n from content.item"), "delete_limit": 1,
    });
    let id = place.stage.pipeline(config).await;
    place.stage.succeed(id).await;
    for change in [
        "update content.item set n = 2".to_owned(),
        format!("update content.item set k = {other}"),
        format!("insert into content.item values ({one}, 5)"),
        format!("delete from content.item where k = {other}"),
    ] {
        db.execute(&change).await;
        place.stage.succeed(id).await;
        let differing = "select count(*) from (select k::text, n from content.item except select k::text, n from analytics.item) a";
        let extra = "select count(*) from (select k::text, n from analytics.item except select k::text, n from content.item) a";
        let found = (db.value::<i64>(differing).await, db.value::<i64>(extra).await);
        assert_eq!(found, (0, 0), "{key}{cast}: {change}");
    }
}
