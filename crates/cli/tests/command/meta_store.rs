//! What the services say when the meta-store is not as it should be.

use std::net::TcpListener;

use rstest::rstest;
use serde_json::json;
use vitrina_testbed::{Database, Fault, FaultProxy, SearchServer};

use super::{Vitrina, address, text, vitrina};

fn on(db: &Database, arguments: &[&str]) -> Vitrina {
    vitrina(arguments).variable("VITRINA_DATABASE_URL", db.url())
}

#[tokio::test]
async fn migrate_prints_what_is_applied_and_may_be_repeated() {
    let db = Database::fresh().await;
    let first = on(&db, &["migrate", "-o", "json"]).ends(0);
    assert!(first.contains("\"applied\""), "{first}");
    assert_eq!(on(&db, &["migrate", "-o", "json"]).ends(0), first);
    assert!(on(&db, &["migrate"]).ends(0).starts_with("schema etl is up to date: "));
}

/// The login of a source, say, or one that may look at the migrations and at nothing else.
#[rstest]
#[case::nothing("")]
#[case::the_schema("grant usage on schema etl to LOGIN")]
#[case::the_migrations("grant usage on schema etl to LOGIN; grant select on etl.etl_migrations to LOGIN")]
#[tokio::test]
async fn a_login_that_may_not_migrate_is_told_who_may(#[case] grants: &str) {
    let db = Database::fresh().await;
    on(&db, &["migrate"]).ends(0);
    let login = format!("reader_{}", &db.name()[db.name().len() - 8..]);
    let grants = grants.replace("LOGIN", &login);
    db.execute(&format!("create role {login} login password 'read'; {grants}")).await;
    let url = db.url_as(&login, "read");
    let error = vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", url).refuses(4);
    assert!(error.contains("hint: run `vitrina migrate` as the owner of the database"), "{error}");
}

/// What /health says of it.
#[tokio::test]
async fn an_api_without_a_runner_is_said_to_be_degraded() {
    let db = Database::fresh().await;
    on(&db, &["migrate"]).ends(0);
    let away = "postgres://nobody@127.0.0.1:1/none";
    let serve = on(&db, &["serve", "--listen", "127.0.0.1:0"]);
    let mut serve = serve.variable("VITRINA_CONNECTIONS_CONTENT_URL", away).start();
    let api = format!("http://{}", address(&serve.says_until("the API listens").pop().unwrap()));
    let said = vitrina(&["health"]).variable("VITRINA_API_URL", &api).ends(0);
    assert!(said.contains("answers at http"), "{said}");
    assert!(said.contains(", and is degraded; runners alive: 0"), "{said}");
    assert!(said.contains("\nsource content: "), "{said}");
    let report = on(&db, &["doctor"]).variable("VITRINA_API_URL", &api).output();
    let report = text(&report.stdout);
    assert!(report.contains("warn  API: it answers at http"), "{report}");
}

#[rstest]
#[case(&["demo", "seed"])]
#[case(&["demo", "verify"])]
#[case(&["demo", "roles"])]
#[tokio::test]
async fn steps_of_the_demo_come_after_the_migrations(#[case] step: &[&str]) {
    let db = Database::fresh().await;
    let step = on(&db, step).variable("VITRINA_ROLE_PASSWORD", "a").variable("VITRINA_READER_PASSWORD", "b");
    let error = step.refuses(4);
    assert!(error.contains("run `vitrina migrate` and `vitrina demo migrate` first"), "{error}");
}

#[rstest]
#[case("migrate")]
#[case("serve")]
#[case("runner")]
#[case("up")]
fn an_unreachable_database_is_named_without_its_password(#[case] command: &str) {
    let url = "postgres://vitrina:s3cret@127.0.0.1:1/cinema";
    let error = vitrina(&[command]).variable("VITRINA_DATABASE_URL", url).refuses(4);
    assert!(error.contains("Connection refused"), "{error}");
    assert!(error.contains("127.0.0.1:1/cinema") && !error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_by_the_server_and_said_so() {
    let db = Database::fresh().await;
    let url = db.url_as("vitrina_nobody", "s3cret");
    let error = vitrina(&["serve"]).variable("VITRINA_DATABASE_URL", url).refuses(4);
    assert!(error.contains("refuses the login") && !error.contains("s3cret"), "{error}");
}

#[rstest]
#[case("serve")]
#[case("runner")]
#[tokio::test]
async fn a_database_that_was_never_migrated_is_refused(#[case] command: &str) {
    let db = Database::fresh().await;
    assert!(on(&db, &[command]).refuses(4).contains("hint: run `vitrina migrate`"));
}

#[rstest]
#[case("serve")]
#[case("runner")]
#[tokio::test]
async fn an_older_and_a_newer_schema_are_refused(#[case] command: &str) {
    let db = Database::fresh().await;
    on(&db, &["migrate"]).ends(0);
    db.execute(
        "insert into etl.etl_migrations (version, description, success, checksum, execution_time)
         values (9999, 'later', true, '', 0)",
    )
    .await;
    assert!(on(&db, &[command]).refuses(4).contains("newer than this vitrina"));
    db.execute("delete from etl.etl_migrations where version > 3").await;
    assert!(on(&db, &[command]).refuses(4).contains("older than this vitrina"));
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let db = Database::fresh().await;
    on(&db, &["migrate"]).ends(0);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(on(&db, &["serve", "--listen", &address]).refuses(4).contains(&address));
}

#[tokio::test]
async fn an_api_for_other_machines_needs_a_token() {
    let db = Database::fresh().await;
    on(&db, &["migrate"]).ends(0);
    assert!(on(&db, &["serve", "--listen", "0.0.0.0:0"]).refuses(4).contains("VITRINA_ADMIN_TOKEN"));
}

#[tokio::test]
async fn doctor_finds_a_source_login_that_may_write_and_a_missing_schema() {
    let db = Database::fresh().await;
    db.execute("create schema content; create table content.film_work (id int)").await;
    let doctor = || {
        on(&db, &["doctor"])
            .variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
            .variable("VITRINA_API_URL", "http://127.0.0.1:1")
    };
    let report = doctor().ends(4);
    assert!(report.contains("FAIL  schema: the meta-store has no schema etl yet"), "{report}");
    on(&db, &["migrate"]).ends(0);
    let report = doctor().ends(4);
    assert!(report.contains("FAIL  source cinema: its login may write content.film_work"), "{report}");
    assert!(report.contains("warn  source cinema: its login may read etl."), "{report}");
    assert!(report.contains("warn  API: cannot reach the API at http://127.0.0.1:1/"), "{report}");
    assert!(report.contains("warn  runners: none is alive"), "{report}");
    assert!(report.contains("ok    marts: they are in the meta-store's database"), "{report}");
}

#[tokio::test]
async fn who_has_not_said_which_schemas_pipelines_may_read_is_told_the_value_to_set() {
    let db = Database::fresh().await;
    db.execute("create schema shop; create table shop.orders (id int primary key)").await;
    on(&db, &["migrate"]).ends(0);
    let shop = |arguments: &[&str]| {
        on(&db, arguments)
            .variable("VITRINA_CONNECTIONS_SHOP_URL", db.url())
            .variable("VITRINA_ALLOWED_TARGETS", "analytics.*")
    };
    let report = shop(&["doctor"]).variable("VITRINA_API_URL", "http://127.0.0.1:1").ends(4);
    assert!(report.contains("FAIL  source shop: its database has no schema content, ugc"), "{report}");
    assert!(report.contains("set VITRINA_CONNECTIONS_SHOP_ALLOWED_SCHEMAS='shop'"), "{report}");

    let mut up = shop(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = format!("http://{}", up.is_up());
    let file = "pipelines: [{name: orders, source_query: select id from shop.orders, target_table: analytics.orders}]";
    let plan =
        shop(&["plan", "orders.yaml"]).file("orders.yaml", file).variable("VITRINA_API_URL", &api).output();
    let said = text(&plan.stderr);
    assert!(said.contains("table shop.orders is not in an allowed schema"), "{said}");
    assert!(said.contains("VITRINA_CONNECTIONS_SHOP_ALLOWED_SCHEMAS"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_tells_which_search_server_answers_and_what_its_login_lacks() {
    let db = Database::fresh().await;
    on(&db, &["migrate"]).ends(0);
    let doctor = |url: &str| {
        let doctor = on(&db, &["doctor"]).variable("VITRINA_CONNECTIONS_SEARCH_URL", url);
        doctor.variable("VITRINA_API_URL", "http://127.0.0.1:1")
    };
    let server = SearchServer::opensearch().await;
    let proxy = FaultProxy::before(&server).await;
    let report = doctor(proxy.url()).ends(0);
    assert!(report.contains("ok    search server search: OpenSearch 2."), "{report}");
    assert!(report.contains("ok    search server search: its login may make"), "{report}");
    let refusal = json!({"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403});
    proxy.play(1, "PUT /vitrina-trial", Fault::Answer(403, refusal));
    let report = doctor(proxy.url()).ends(4);
    assert!(
        report.contains("FAIL  search server search: its login lacks create_index on vitrina-*"),
        "{report}"
    );
    let report = doctor("http://127.0.0.1:1").ends(4);
    assert!(
        report.contains("FAIL  search server search: the search connection \"search\" is lost"),
        "{report}"
    );
}
