//! Configuration as code through the binary: validate, plan, diff, apply, export.

use serde_json::Value;
use vitrina_testbed::{Database, SearchServer};

use super::{Running, Vitrina, text, vitrina};

const SOURCE: &str = "create schema content; create schema analytics;
    create table content.film (id int primary key, title text not null, modified timestamptz not null default now());
    create table analytics.film (id int primary key, title text)";

const FILMS: &str = "
targets:
  - name: analytics.film
    key: [id]
pipelines:
  - name: films
    source_connection: cinema
    target_table: analytics.film
    sql_file: films.sql
";
const SQL: &str = "select id, title\n  from content.film\n";

struct Place {
    db: Database,
    api: String,
    _up: Running,
}

impl Place {
    async fn new() -> Self {
        let db = Database::fresh().await;
        db.execute(SOURCE).await;
        let mut up = with_database(vitrina(&["up", "--listen", "127.0.0.1:0"]), &db).start();
        Self { api: format!("http://{}", up.is_up()), db, _up: up }
    }

    /// A command beside the files of these texts.
    fn vitrina(&self, arguments: &[&str], films: &str, sql: &str) -> Vitrina {
        let command = with_database(vitrina(arguments), &self.db).variable("VITRINA_API_URL", &self.api);
        command.file("films.yaml", films).file("films.sql", sql)
    }
}

fn with_database(command: Vitrina, db: &Database) -> Vitrina {
    let url = db.url();
    command.variable("VITRINA_DATABASE_URL", url).variable("VITRINA_CONNECTIONS_CINEMA_URL", url)
}

/// The source is asked about a table that somebody has locked: it gives up after two seconds.
#[tokio::test]
async fn a_plan_that_takes_long_says_what_it_is_doing_where_there_is_no_terminal_either() {
    let place = Place::new().await;
    let quick = text(&place.vitrina(&["plan", "films.yaml"], FILMS, SQL).output().stderr);
    assert!(!quick.contains("plans 1 pipeline"), "{quick}");
    let blocker = place.db.client().await;
    blocker.batch_execute("begin; lock table content.film").await.unwrap();
    let said = text(&place.vitrina(&["plan", "films.yaml"], FILMS, SQL).output().stderr);
    assert!(said.contains("plans 1 pipeline and 1 target: 1 s"), "{said}");
    let said = text(&place.vitrina(&["validate", "films.yaml"], FILMS, SQL).output().stderr);
    assert!(said.contains("validates 1 pipeline: 0 of 1, 1 s"), "{said}");
    let said = text(&place.vitrina(&["apply", "films.yaml", "--yes"], FILMS, SQL).output().stderr);
    assert!(said.contains("checks the plan once more, and applies 2 changes: 1 s"), "{said}");
}

const SOURCES_OF_SHARED_MARTS: &str = "
    create table content.orders (id int primary key, total int, modified timestamptz not null default now());
    create table content.customers (id int primary key, name text, phone text);
    create table content.accounts (customer_id int primary key, points int);
    create table analytics.orders (tenant text, id int, total int, modified timestamptz, primary key (tenant, id));
    create table analytics.customers (id int primary key, name text, phone text, points int)";

#[tokio::test]
async fn the_files_of_the_page_on_shared_marts_are_validated_applied_and_say_what_is_shared() {
    let place = Place::new().await;
    place.db.execute(SOURCES_OF_SHARED_MARTS).await;
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/shared_marts.md");
    let files: Vec<String> = std::fs::read_to_string(page)
        .unwrap()
        .split("```yaml\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap().to_owned())
        .map(|file| {
            ["shop.", "crm.", "loyalty."].iter().fold(file, |file, schema| file.replace(schema, "content."))
        })
        .map(|file| {
            ["ru", "de", "crm", "loyalty"].iter().fold(file, |file, name| {
                file.replace(&format!("source_connection: {name}\n"), "source_connection: cinema\n")
            })
        })
        .collect();
    assert_eq!(files.len(), 2);
    for (file, said) in files.iter().zip([
        "analytics.orders is shared by rows of tenant (de)",
        "analytics.customers is shared by columns",
    ]) {
        let command = |arguments: &[&str]| place.vitrina(arguments, file, SQL);
        let shown = command(&["validate", "films.yaml"]).ends(0);
        assert!(shown.contains(said), "{shown}");
        command(&["apply", "films.yaml", "--yes"]).ends(0);
        assert_eq!(command(&["plan", "films.yaml"]).ends(0), "nothing to change\n");
        let twice = file
            .replace("shared_value: de", "shared_value: ru")
            .replace("shared: {by: columns}", "touch_column: null");
        let refused = command(&["plan", "films.yaml"]).file("films.yaml", &twice).output();
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains("is written by") && told.contains("shared: {by: columns}"), "{told}");
    }
}

#[tokio::test]
async fn files_are_validated_planned_applied_and_then_change_nothing() {
    let place = Place::new().await;
    let films = |arguments: &[&str]| place.vitrina(arguments, FILMS, SQL);
    let shown = films(&["validate", "films.yaml"]).ends(0);
    assert!(
        shown.contains("ok    films.yaml: pipeline films: target_table: analytics.film takes the rows"),
        "{shown}"
    );
    let plan = films(&["plan", "."]).ends(0);
    assert!(plan.starts_with("+ target analytics.film\n+ pipeline films\nplan "), "{plan}");
    films(&["plan", ".", "--exit-code"]).ends(3);
    let error = films(&["apply", "."]).reads("").refuses(2);
    assert!(error.contains("nobody is there to agree"), "{error}");
    let hash = plan.trim().rsplit(' ').next().unwrap().to_owned();
    films(&["apply", ".", "--plan-hash", "0000"]).refuses(5);
    let applied = films(&["apply", ".", "--plan-hash", &hash]).ends(0);
    assert!(applied.ends_with("applied 2 changes\n"), "{applied}");
    assert_eq!(films(&["plan", ".", "--exit-code"]).ends(0), "nothing to change\n");
    assert_eq!(films(&["apply", ".", "--yes"]).ends(0), "nothing to change\n");
    let targets = films(&["targets"]).ends(0);
    assert!(targets.contains("analytics.film  marts       id   -        films"), "{targets}");
    assert!(films(&["delete", "films"]).reads("").refuses(2).contains("`vitrina delete films --yes`"));
    let deleted = films(&["delete", "films", "--yes"]).ends(0);
    assert_eq!(deleted, "films is deleted; analytics.film stays as it is\n");
    films(&["delete", "films", "--yes"]).refuses(2);
}

const FOLLOWED: &str = "    mode: incremental\n    incremental_key: modified\n    incremental_id_key: id\n";

#[tokio::test]
async fn a_changed_query_says_what_becomes_of_its_checkpoint_and_the_next_run_does_it() {
    let place = Place::new().await;
    let film = |number: i32| {
        format!(
            "insert into content.film values ({number}, 'Film', '2026-01-01'); alter table analytics.film add column if not exists modified timestamptz"
        )
    };
    place.db.execute(&film(1)).await;
    let (files, query) = (format!("{FILMS}{FOLLOWED}"), "select id, title, modified from content.film\n");
    place.vitrina(&["apply", ".", "--yes"], &files, query).ends(0);
    place.vitrina(&["run", "films", "--watch"], &files, query).ends(0);
    let louder = "select id, upper(title) as title, modified from content.film\n";
    let edited = |arguments: &[&str]| place.vitrina(arguments, &files, louder);
    let asked = edited(&["plan", "."]).ends(0);
    assert!(asked.contains("! the next incremental run of films asks what becomes of its checkpoint: --checkpoint keep or reset answers here"), "{asked}");
    let unknown = edited(&["apply", ".", "--checkpoint", "forget"]).output();
    assert!(text(&unknown.stderr).contains("one of keep, reset"));
    let planned = edited(&["plan", ".", "--checkpoint", "reset"]).ends(0);
    assert!(planned.contains("! films begins anew: its next run reads everything"), "{planned}");
    edited(&["apply", ".", "--yes", "--checkpoint", "reset"]).ends(0);
    let read = edited(&["run", "films", "--watch"]).ends(0);
    assert!(read.contains("1 rows read, 1 written"), "{read}");
    let standing = files.replace("    mode:", "    on_change: keep\n    mode:");
    let kept = place.vitrina(&["apply", ".", "--yes"], &standing, query).ends(0);
    assert!(kept.contains("! films goes on from its checkpoint"), "{kept}");
    let read = edited(&["run", "films", "--watch"]).ends(0);
    assert!(read.contains("0 rows read, 0 written"), "{read}");
}

#[tokio::test]
async fn an_apply_without_a_decision_is_followed_by_one_that_gives_it() {
    let place = Place::new().await;
    place.db.execute("insert into content.film values (1, 'Film', '2026-01-01'); alter table analytics.film add column modified timestamptz").await;
    let (files, query) = (format!("{FILMS}{FOLLOWED}"), "select id, title, modified from content.film\n");
    place.vitrina(&["apply", ".", "--yes"], &files, query).ends(0);
    place.vitrina(&["run", "films", "--watch"], &files, query).ends(0);
    let louder = "select id, upper(title) as title, modified from content.film\n";
    let edited = |arguments: &[&str]| place.vitrina(arguments, &files, louder);
    edited(&["apply", ".", "--yes"]).ends(0);
    let again = edited(&["apply", ".", "--yes"]).output();
    assert_eq!(text(&again.stdout), "nothing to change\n");
    assert!(
        text(&again.stderr).contains("--checkpoint keep or reset answers here"),
        "{}",
        text(&again.stderr)
    );
    let plan = edited(&["plan", ".", "--checkpoint", "reset"]).ends(0);
    assert!(
        plan.starts_with("~ pipeline films\n    ! films begins anew: its next run reads everything\n"),
        "{plan}"
    );
    let applied = edited(&["apply", ".", "--yes", "--checkpoint", "reset"]).ends(0);
    assert!(applied.ends_with("applied 1 changes\n"), "{applied}");
    edited(&["run", "films", "--watch"]).ends(0);
    assert_eq!(place.db.value::<String>("select title from analytics.film").await, "FILM");
    let done = edited(&["apply", ".", "--yes", "--checkpoint", "reset"]).ends(0);
    assert_eq!(done, "nothing to change\n");
}

#[tokio::test]
async fn what_a_run_is_in_the_way_of_is_applied_when_it_has_ended() {
    let place = Place::new().await;
    place.db.execute("insert into content.film values (1, 'Film', now())").await;
    place.vitrina(&["apply", ".", "--yes"], FILMS, SQL).ends(0);
    let blocker = place.db.client().await;
    blocker.batch_execute("begin; lock table analytics.film").await.unwrap();
    place.vitrina(&["run", "films"], FILMS, SQL).ends(0);
    let edited = |arguments: &[&str]| {
        place.vitrina(arguments, FILMS, "select id, upper(title) as title from content.film\n")
    };
    let refused = edited(&["apply", ".", "--yes"]).refuses(5);
    assert!(refused.contains("`vitrina apply --wait`"), "{refused}");
    let late = edited(&["apply", ".", "--yes", "--wait", "--timeout", "1s"]).refuses(124);
    assert!(late.contains("nothing was applied"), "{late}");
    let impatient = edited(&["apply", ".", "--yes", "--timeout", "1s"]).output();
    assert!(text(&impatient.stderr).contains("--wait"));
    let mut waiting = edited(&["apply", ".", "--yes", "--wait"]).start();
    waiting.says_until("waits for the end of a run");
    blocker.batch_execute("rollback").await.unwrap();
    waiting.prints_until("applied 1 changes");
    waiting.ends(0);
    edited(&["run", "films", "--watch"]).ends(0);
    assert_eq!(place.db.value::<String>("select title from analytics.film").await, "FILM");
}

#[tokio::test]
async fn a_difference_is_told_by_field_and_by_line() {
    let place = Place::new().await;
    place.vitrina(&["apply", ".", "--yes"], FILMS, SQL).ends(0);
    let edited = FILMS.replace("target_table", "batch_size: 7\n    target_table");
    let sql = "select id, title\n  from content.film\n where id > 0\n";
    let plan = place.vitrina(&["plan", "."], &edited, sql).ends(0);
    assert!(
        plan.contains("~ pipeline films\n    batch_size: 1000 -> 7\n    source_query: 2 lines -> 3 lines"),
        "{plan}"
    );
    let diff = place.vitrina(&["diff", "."], &edited, sql).ends(0);
    assert!(diff.contains("  source_query:\n    +  where id > 0"), "{diff}");
    let plan = place.vitrina(&["plan", ".", "-o", "json"], &edited, sql).ends(0);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["changes"][0]["fields"][0]["field"], "batch_size");
}

#[tokio::test]
async fn errors_name_the_file_the_pipeline_the_line_and_what_to_do() {
    let place = Place::new().await;
    let output =
        place.vitrina(&["plan", "films.yaml"], FILMS, "select id,\n titel from content.film\n").output();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("FAIL  films.yaml: pipeline films: source_query, line 2, column 2: column \"titel\" does not exist"), "{said}");
    let shown = place.vitrina(&["validate", "films.yaml"], FILMS, "delete from content.film").ends(2);
    assert!(shown.contains("only SELECT is"), "{shown}");
    let error = place.vitrina(&["plan", "films.yaml"], "pipelines: [{nam: x}]", SQL).refuses(2);
    assert!(error.contains("unknown field `nam`"), "{error}");
    place.vitrina(&["plan", "nowhere"], FILMS, SQL).refuses(2);
}

#[tokio::test]
async fn what_is_exported_is_applied_elsewhere_and_changes_nothing_here() {
    let place = Place::new().await;
    place.vitrina(&["apply", ".", "--yes"], FILMS, SQL).ends(0);
    let exported = place.vitrina(&["export"], FILMS, SQL).ends(0);
    assert!(exported.contains("source_query: |\n"), "{exported}");
    assert!(!exported.contains("batch_size"), "without what is as by default: {exported}");
    assert_eq!(place.vitrina(&["diff", "films.yaml"], &exported, SQL).ends(0), "nothing to change\n");
    let said = place.vitrina(&["export", "films", "--to", "out"], FILMS, SQL).output();
    assert_eq!(text(&said.stderr), "wrote out/films.yaml\n");
    place.vitrina(&["export", "nothing"], FILMS, SQL).refuses(2);
    let empty = place.vitrina(&["apply", "films.yaml", "--prune", "--yes"], "pipelines: []", SQL).refuses(2);
    assert!(empty.contains("the files name nothing") && empty.contains("--plan-hash"), "{empty}");
    let plan = place.vitrina(&["plan", "films.yaml", "--prune"], "pipelines: []", SQL).ends(0);
    assert!(plan.contains("- pipeline films") && plan.contains("- target analytics.film"), "{plan}");
}

#[test]
fn the_schema_of_files_is_the_published_one() {
    let printed = vitrina(&["config", "schema"]).ends(0);
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&golden, &printed).unwrap();
    }
    let published = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(
        published == printed,
        "docs/config.schema.json is not what the code says: write it with UPDATE_SCHEMA=1"
    );
}

#[tokio::test]
async fn a_query_is_previewed_before_it_is_saved_and_a_run_is_read_in_its_log() {
    let place = Place::new().await;
    place
        .db
        .execute("insert into content.film (id, title) select n, 'Film ' || n from generate_series(1, 20) n")
        .await;
    let shown = place.vitrina(&["preview", "films.yaml", "--limit", "2"], FILMS, SQL).ends(0);
    assert_eq!(shown, "id  title\n1   Film 1\n2   Film 2\n");
    place.vitrina(&["apply", ".", "--yes"], FILMS, SQL).ends(0);
    let error = place.vitrina(&["logs", "films"], FILMS, SQL).refuses(2);
    assert!(error.contains("films has never run"), "{error}");
    place.vitrina(&["run", "films", "--watch"], FILMS, SQL).ends(0);
    let told = place.vitrina(&["logs", "films", "--follow"], FILMS, SQL).ends(0);
    assert!(told.contains("rows_read=20") && told.lines().count() >= 3, "{told}");
    let shown = place.vitrina(&["preview", "films"], FILMS, SQL).output();
    assert_eq!(
        (text(&shown.stdout).lines().count(), text(&shown.stderr).as_str()),
        (11, "there are more rows\n")
    );
}

#[tokio::test]
async fn connections_are_listed_without_secrets_and_tested_by_a_runner() {
    let place = Place::new().await;
    let listed = place.vitrina(&["conn", "list"], FILMS, SQL).ends(0);
    assert!(
        listed.lines().any(|line| line.starts_with("cinema ")
            && line.contains(" postgres://")
            && line.contains("content, ugc")),
        "{listed}"
    );
    let tested = place.vitrina(&["conn", "test", "cinema"], FILMS, SQL).ends(0);
    assert!(tested.starts_with("cinema: PostgreSQL ") && tested.contains(", reached by "), "{tested}");
    let error = place.vitrina(&["conn", "test", "nowhere"], FILMS, SQL).refuses(2);
    assert!(error.contains("`vitrina conn list`"), "{error}");
}

#[tokio::test]
async fn a_search_connection_is_tested_by_a_runner_too() {
    let db = Database::fresh().await;
    let server = SearchServer::opensearch().await;
    with_database(vitrina(&["migrate"]), &db).ends(0);
    let up = with_database(vitrina(&["up", "--listen", "127.0.0.1:0"]), &db);
    let mut up = up.variable("OPENSEARCH_URL", server.url()).start();
    let api = format!("http://{}", up.is_up());
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", &api);
    let tested = ask(&["conn", "test", "search"]).ends(0);
    assert!(tested.starts_with("search: OpenSearch 2.") && tested.contains(", reached by "), "{tested}");
    assert!(tested.contains("\nthe server does not tell rights; tried on index vitrina-trial-"), "{tested}");
}

#[tokio::test]
async fn files_that_would_overwrite_each_other_are_not_exported() {
    let place = Place::new().await;
    place.db.execute("create table analytics.other (like analytics.film including all)").await;
    let two = "pipelines:\n  - {name: Films, source_connection: cinema, target_table: analytics.film, source_query: select id from content.film}
  - {name: films, source_connection: cinema, target_table: analytics.other, source_query: select id from content.film}";
    place.vitrina(&["apply", ".", "--yes"], two, SQL).ends(0);
    let error = place.vitrina(&["export", "--to", "out"], two, SQL).refuses(2);
    assert!(error.contains("two files would be called"), "{error}");
    place.vitrina(&["validate", "Films", "films"], two, SQL).ends(0);
}
