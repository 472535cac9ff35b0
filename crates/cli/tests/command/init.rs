//! A project made of a source that is looked at, and used as it was written.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use url::Url;
use vitrina_testbed::{Database, SearchServer};

use super::{Running, Vitrina, text, vitrina};

/// Names that need quotes, keys of several columns and of none, partitions, views, and types of every kind.
const SHOP: &str = r#"
    create schema shop; create schema auth; create schema "Odd One";
    create table "Odd One".t (id int primary key);
    create table auth.users (id int primary key, password text);
    create type shop.state as enum ('new', 'paid');
    create table shop."Order" (id bigint generated always as identity primary key, "user" text, "sum total" numeric(10, 2),
        state shop.state, tags text[], doc json, place point, period tstzrange, took interval, photo bytea, note xml,
        words tsvector generated always as (to_tsvector('simple', "user")) stored, "Modified" timestamptz not null default now());
    create index on shop."Order" ("Modified", id);
    create table shop.order_line (order_id bigint, line int, what text, modified timestamptz not null default now(), primary key (order_id, line));
    create table shop."order-line" (id uuid primary key default gen_random_uuid(), what text);
    create table shop.customer (code text not null unique, name text, updated_at timestamptz not null default now(), deleted_at timestamptz);
    create table shop.visit (id bigint, day date, updated_at timestamptz not null default now(), primary key (id, day)) partition by range (day);
    create table shop.visit_2024 partition of shop.visit for values from ('2024-01-01') to ('2025-01-01');
    create table shop.visit_2025 partition of shop.visit for values from ('2025-01-01') to ('2026-01-01');
    create table shop."Заказы" (id int primary key);
    create table shop.log (at timestamptz, message text);
    create view shop.totals as select "user", sum("sum total") from shop."Order" group by 1;
    create materialized view shop.best as select code from shop.customer;
    insert into shop."Order" ("user", "sum total", state, tags, doc, place, period, took, photo, note)
    select 'user ' || n, n * 1.5, 'paid', array['a', 'b'], '{"a": [1]}', point(n, n), tstzrange(now(), null), '1 day', '\x00ff', '<a/>' from generate_series(1, 20) n;
    insert into shop.order_line select n, 1, 'thing' from generate_series(1, 20) n;
    insert into shop."order-line" (what) values ('old');
    insert into shop.customer select 'c' || n, 'Customer ' || n, now(), case when n > 8 then now() end from generate_series(1, 10) n;
    insert into shop.visit select n, '2024-12-20'::date + n from generate_series(1, 20) n;
    insert into shop."Заказы" values (1); insert into "Odd One".t values (1)"#;

/// What `init` writes, used by a process that has nothing but the passwords.
struct Project {
    directory: TempDir,
    passwords: Vec<(String, String)>,
}

impl Project {
    fn init(arguments: &[&str], source: &str, target: &str) -> (Self, String) {
        let directory = tempfile::tempdir().unwrap();
        let ends = ["init", "--from", source, "--to", target];
        let written = vitrina(&[&ends, arguments].concat()).within(directory.path()).ends(0);
        let password = |url: &str| Url::parse(url).unwrap().password().unwrap_or_default().to_owned();
        let file = std::fs::read_to_string(directory.path().join("vitrina.toml")).unwrap();
        let variables = file.split("${env:").skip(1).map(|rest| rest.split('}').next().unwrap());
        let passwords = variables.map(|name| {
            let of = if name == "MARTS_PASSWORD" { target } else { source };
            (name.to_owned(), password(of))
        });
        (Self { passwords: passwords.collect(), directory }, written)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn vitrina(&self, arguments: &[&str]) -> Vitrina {
        vitrina(arguments).within(self.path()).variables(&self.passwords)
    }

    fn up(&self) -> (Running, String) {
        let mut up = self.vitrina(&["up", "--listen", "127.0.0.1:0"]).start();
        let api = format!("http://{}", up.is_up());
        (up, api)
    }

    /// Unedited: validated, applied, and every pipeline run.
    fn works(&self, ask: impl Fn(&[&str]) -> Vitrina) {
        let said = ask(&["validate", "pipelines"]).ends(0);
        assert!(!said.contains("FAIL"), "{said}");
        ask(&["apply", "pipelines", "--yes"]).ends(0);
        let status: Value = serde_json::from_str(&ask(&["status", "-o", "json"]).ends(0)).unwrap();
        for pipeline in status["items"].as_array().unwrap() {
            let name = pipeline["name"].as_str().unwrap();
            let run = ask(&["run", name, "--watch", "--timeout", "60s"]).ends(0);
            assert!(run.contains(" 0 rejected"), "{name}: {run}");
        }
    }
}

#[tokio::test]
async fn a_cinema_becomes_files_that_are_validated_applied_and_run_unedited() {
    let (source, marts) = (Database::fresh().await, Database::fresh().await);
    vitrina_cinema::migrate(source.url()).await.unwrap();
    vitrina_cinema::seed(source.url(), 50, 100).await.unwrap();
    let (project, written) = Project::init(&["--schema", "content,ugc"], source.url(), marts.url());
    let film = "content.film_work -> analytics.film_work, incremental\n  key (id): its primary key\n  \
                cursor modified, which every change of a row must move, with an index\n";
    assert!(written.contains(film), "{written}");
    let (_up, api) = project.up();
    let ask = |arguments: &[&str]| project.vitrina(arguments).variable("VITRINA_API_URL", &api);
    project.works(ask);
    for table in ["content.film_work", "content.genre_film_work", "ugc.ratings"] {
        let mart = format!("analytics.{}", table.split('.').nth(1).unwrap());
        let count = |table: &str| format!("select count(*) from {table}");
        assert_eq!(
            marts.value::<i64>(&count(&mart)).await,
            source.value::<i64>(&count(table)).await,
            "{table}"
        );
    }
    source.execute("update content.film_work set title = 'Renamed' where title = 'Star Trek'").await;
    ask(&["run", "film_work", "--watch", "--timeout", "60s"]).ends(0);
    assert!(marts.value::<i64>("select count(*) from analytics.film_work where title = 'Renamed'").await > 0);
}

#[tokio::test]
async fn awkward_names_keys_types_partitions_and_views_are_proposed_or_left_out_with_the_reason() {
    let db = Database::fresh().await;
    db.execute(SHOP).await;
    let (project, written) = Project::init(&[], db.url(), db.url());
    for told in [
        "shop.Order -> analytics.order, incremental\n  key (id): its primary key\n  cursor Modified, which every change of a row must move, with an index",
        "shop.order_line -> analytics.order_line, full\n  key (order_id, line): its primary key\n  every run reads all rows: there is modified, but the key has several columns",
        "shop.order-line -> analytics.shop_order_line, full\n",
        "shop.customer -> analytics.customer, incremental\n  key (code): unique, and never null\n  cursor updated_at, which every change of a row must move, without an index: `create index on shop.customer (updated_at, code)`",
        "rows whose deleted_at is set are left out of the target",
        "shop.visit -> analytics.visit, full\n",
        "shop.Заказы -> analytics.table, full\n",
        "shop.log is left out: it has neither a primary key",
        "shop.totals is left out: a view has no key",
        "shop.best is left out: ",
        "auth.users is left out: pipelines do not read schema auth",
        "Odd One.t -> analytics.t, full",
    ] {
        assert!(written.contains(told), "{told:?} is not in\n{written}");
    }
    assert!(!written.contains("visit_2024"), "partitions come with their table: {written}");
    let (_up, api) = project.up();
    let ask = |arguments: &[&str]| project.vitrina(arguments).variable("VITRINA_API_URL", &api);
    project.works(ask);
    for (mart, rows) in [
        ("\"order\"", 20),
        ("order_line", 20),
        ("shop_order_line", 1),
        ("customer", 8),
        ("visit", 20),
        ("\"table\"", 1),
        ("t", 1),
    ] {
        assert_eq!(db.value::<i64>(&format!("select count(*) from analytics.{mart}")).await, rows, "{mart}");
    }
    let equal = r#"select count(*) from shop."Order" s join analytics."order" m using (id)
                    where s."Modified" = m."Modified" and s."sum total" = m."sum total" and s.state::text = m.state
                      and s.doc::text = m.doc::text and s.place ~= m.place::point and s.period = m.period and s.photo = m.photo"#;
    assert_eq!(db.value::<i64>(equal).await, 20);
}

#[tokio::test]
async fn tables_become_indexes_where_the_target_is_a_search_server() {
    let (db, server) = (Database::fresh().await, SearchServer::opensearch().await);
    let indexes = server.indexes();
    let index = format!("g_{}", &indexes.prefix()[indexes.prefix().len() - 12..]);
    db.execute(&format!(
        "create schema shop; create table shop.{index} (id int primary key, name text, modified timestamptz not null default now());
         insert into shop.{index} select n, 'Thing ' || n from generate_series(1, 30) n"
    ))
    .await;
    let (project, written) = Project::init(&["--tables", &format!("shop.{index}")], db.url(), server.url());
    assert!(written.contains(&format!("shop.{index} -> es:{index}, incremental")), "{written}");
    let with_store = |command: Vitrina| command.variable("VITRINA_DATABASE_URL", db.url());
    let mut up = with_store(project.vitrina(&["up", "--listen", "127.0.0.1:0"])).start();
    let api = format!("http://{}", up.is_up());
    project.works(|arguments| with_store(project.vitrina(arguments)).variable("VITRINA_API_URL", &api));
    server.refresh(&index).await;
    assert_eq!(server.count(&index).await, 30);
}

#[tokio::test]
async fn a_key_of_several_columns_becomes_one_document_a_row_of_an_index() {
    let (db, server) = (Database::fresh().await, SearchServer::opensearch().await);
    let indexes = server.indexes();
    let index = format!("c_{}", &indexes.prefix()[indexes.prefix().len() - 9..].trim_matches('_'));
    db.execute(&format!(
        "create schema shop; create table shop.{index} (order_id int, line text, what text, primary key (order_id, line));
         insert into shop.{index} select n / 2, 'line ' || n % 2, 'Thing ' || n from generate_series(0, 19) n"
    ))
    .await;
    let (project, written) = Project::init(&["--tables", &format!("shop.{index}")], db.url(), server.url());
    assert!(
        written.contains(&format!("shop.{index} -> es:{index}, full\n  key (order_id, line): ")),
        "{written}"
    );
    let with_store = |command: Vitrina| command.variable("VITRINA_DATABASE_URL", db.url());
    let mut up = with_store(project.vitrina(&["up", "--listen", "127.0.0.1:0"])).start();
    let api = format!("http://{}", up.is_up());
    let ask = |arguments: &[&str]| with_store(project.vitrina(arguments)).variable("VITRINA_API_URL", &api);
    project.works(ask);
    db.execute(&format!(
        "update shop.{index} set what = 'Changed' where order_id = 3 and line = 'line 1'; delete from shop.{index} where order_id = 4 and line = 'line 0'"
    ))
    .await;
    ask(&["run", &index, "--watch", "--timeout", "60s"]).ends(0);
    server.refresh(&index).await;
    assert_eq!(server.count(&index).await, 19);
    let found = server.search(&index, serde_json::json!({"query": {"match": {"what": "Changed"}}})).await;
    let source = &found["hits"]["hits"][0]["_source"];
    assert_eq!((&source["order_id"], &source["line"]), (&3.into(), &"line 1".into()), "{found}");
    assert!(ask(&["reconcile", &index]).ends(0).contains("is equal to its source"));
}

#[tokio::test]
async fn rows_that_refer_to_a_table_are_told_as_the_watch_of_a_query_that_joins_them() {
    let db = Database::fresh().await;
    let shop = "create schema shop;
        create table shop.film (id int primary key, title text, updated_at timestamptz not null default now());
        create table shop.rating (id int primary key, film_id int not null references shop.film, score int, modified timestamptz not null default now());
        create table shop.note (id int primary key, film_id int references shop.film);
        insert into shop.film values (1, 'Solaris'), (2, 'Stalker'); insert into shop.rating values (1, 1, 8)";
    db.execute(shop).await;
    let (project, written) = Project::init(&["--schema", "shop"], db.url(), db.url());
    let watch = "watch: [{ table: shop.rating, key: [film_id], incremental_key: modified }]";
    assert!(
        written
            .contains(&format!("shop.rating refers to it by (film_id): a query that joins it has `{watch}`")),
        "{written}"
    );
    assert!(!written.contains("shop.note refers"), "nothing tells when a note has changed: {written}");
    let file = std::fs::read_to_string(project.path().join("pipelines/film.yaml")).unwrap();
    assert!(file.contains(watch), "{file}");

    // The file's own query with a join, and the line as it stands.
    let query = "select id, title, updated_at\n      from shop.film";
    assert!(file.contains("source_query"), "{file}");
    let joined = "select f.id, f.title, f.updated_at, max(r.score) as best from shop.film f left join shop.rating r on r.film_id = f.id group by f.id";
    let file = file.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let file = file.replace(query, joined);
    assert!(file.contains("max(r.score)"), "{file}");
    let file =
        file.replace("  target_table:", &format!("  source_table: shop.film\n  {watch}\n  target_table:"));
    std::fs::write(project.path().join("pipelines/film.yaml"), file).unwrap();
    let (_up, api) = project.up();
    let ask = |arguments: &[&str]| project.vitrina(arguments).variable("VITRINA_API_URL", &api);
    project.works(ask);
    db.execute("insert into shop.rating values (2, 2, 10)").await;
    ask(&["run", "film", "--watch", "--timeout", "60s"]).ends(0);
    assert_eq!(db.value::<i32>("select best from analytics.film where id = 2").await, 10);
}

#[tokio::test]
async fn a_configuration_of_another_name_is_written_there_and_nowhere_else() {
    let db = Database::fresh().await;
    db.execute("create schema shop; create table shop.goods (id int primary key)").await;
    let project = tempfile::tempdir().unwrap();
    let init = || {
        let ends = ["init", "--from", "${env:SHOP}", "--to", "${env:SHOP}", "--dir", "etl"];
        let command = vitrina(&[&["--config", "settings/shop.toml"], &ends[..]].concat());
        command.within(project.path()).variable("SHOP", db.url())
    };
    let output = init().output();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for told in [
        "vitrina --config settings/shop.toml up ",
        "vitrina --config settings/shop.toml apply etl/pipelines ",
    ] {
        assert!(said.contains(told), "{said}");
    }
    assert!(project.path().join("etl/pipelines/goods.yaml").exists());
    assert!(!project.path().join("etl/vitrina.toml").exists());
    let shown = vitrina(&["--config", "settings/shop.toml", "config", "show"]).within(project.path());
    let shown = shown.variable("SHOP", db.url()).ends(0);
    assert!(shown.contains("allowed_schemas") && shown.contains("shop"), "{shown}");
    assert!(init().refuses(2).contains("settings/shop.toml is there already"));
}

#[tokio::test]
async fn nothing_that_is_there_is_overwritten_and_no_password_is_written_or_told() {
    let db = Database::fresh().await;
    db.execute("create schema shop; create table shop.goods (id int primary key)").await;
    let role = format!("init_{}", &db.name()[db.name().len() - 8..]);
    db.execute(&format!("create role {role} login superuser password 'pass-word'")).await;
    let url = db.url_as(&role, "pass-word");
    let project = tempfile::tempdir().unwrap();
    let init = |directory: &Path| vitrina(&["init", "--from", &url, "--to", &url]).within(directory);
    let output = init(project.path()).output();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for command in ["vitrina up ", "vitrina apply pipelines ", "vitrina run goods --watch"] {
        assert!(said.contains(command), "{said}");
    }
    assert!(said.contains("set MARTS_PASSWORD first"), "{said}");
    let files = ["vitrina.toml", "pipelines/goods.yaml"].map(|name| project.path().join(name));
    let texts = files.map(|file| std::fs::read_to_string(file).unwrap());
    for text in texts.iter().chain([&said, &text(&output.stdout)]) {
        assert!(!text.contains("pass-word"), "{text}");
    }
    assert!(init(project.path()).refuses(2).contains("vitrina.toml is there already"));
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir(other.path().join("pipelines")).unwrap();
    std::fs::write(other.path().join("pipelines/goods.yaml"), "mine").unwrap();
    assert!(init(other.path()).refuses(2).contains("goods.yaml is there already"));
    assert!(!other.path().join("vitrina.toml").exists());
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_said_with_what_to_do() {
    let db = Database::fresh().await;
    db.execute(
        "create schema shop; create table shop.goods (id int primary key); create table shop.log (at date)",
    )
    .await;
    let init = |arguments: &[&str]| {
        let ends = ["init", "--from", db.url(), "--to", db.url()];
        vitrina(&[&ends, arguments].concat())
    };
    assert!(init(&["--schema", "shpo"]).refuses(2).contains("did you mean shop?"));
    assert!(init(&["--tables", "shop.godos"]).refuses(2).contains("did you mean shop.goods?"));
    assert!(init(&["--tables", "log"]).refuses(2).contains("shop.log: it has neither a primary key"));
    let away = ["init", "--from", "postgres://a:pass-word@127.0.0.1:1/x", "--to", db.url()];
    let error = vitrina(&away).refuses(4);
    assert!(error.contains("--from cannot be reached") && !error.contains("pass-word"), "{error}");
    let unset = ["init", "--from", "${env:NOBODY_SETS_THIS}", "--to", db.url()];
    assert!(vitrina(&unset).refuses(2).contains("set NOBODY_SETS_THIS"));
    let search = ["init", "--from", "http://127.0.0.1:1", "--to", db.url()];
    assert!(vitrina(&search).refuses(2).contains("--from is a search server"));
}
