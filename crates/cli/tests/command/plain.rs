//! Commands that need neither database nor API.

use std::net::TcpListener;

use rstest::rstest;

use super::vitrina;

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(vitrina(&["--version"]).ends(0).trim(), concat!("vitrina ", env!("CARGO_PKG_VERSION")));
}

#[rstest]
#[case(&["no-such-command"])]
#[case(&["run"])]
#[case(&["run", "film_dim_full", "--mode", "partly"])]
#[case(&["run", "film_dim_full", "--timeout", "5s"])]
#[case(&["run", "film_dim_full", "--watch", "--timeout", "5"])]
#[case(&["reconcile"])]
#[case(&["reconcile", "film_dim_full", "--level", "some"])]
#[case(&["reconcile", "film_dim_full", "--limit", "100001"])]
#[case(&["reconcile", "film_dim_full", "--yes"])]
#[case(&["reconcile", "film_dim_full", "--repair", "--no-wait"])]
#[case(&["reconcile", "film_dim_full", "--repair", "--level", "hash"])]
#[case(&["reconciles", "film_dim_full", "--cancel", "7"])]
#[case(&["differences"])]
#[case(&["differences", "film_dim_full", "--kind", "odd"])]
#[case(&["differences", "film_dim_full", "--download", "csv", "--limit", "5"])]
#[case(&["rejects"])]
#[case(&["rejects", "film_dim_full", "--acknowledge", "--discard"])]
#[case(&["rejects", "film_dim_full", "--id", "1"])]
#[case(&["rejects", "film_dim_full", "--watch"])]
#[case(&["rejects", "film_dim_full", "--discard", "--watch"])]
#[case(&["rejects", "film_dim_full", "--retry", "--limit", "5"])]
#[case(&["rejects", "film_dim_full", "--limit", "501"])]
#[case(&["delete"])]
#[case(&["resume", "film_dim_full", "--timeout", "5s"])]
#[case(&["audit", "--limit", "501"])]
#[case(&["backfill", "film_dim_full"])]
#[case(&["backfill", "film_dim_full", "7", "--keys-file", "keys.txt"])]
#[case(&["backfill", "film_dim_full", "7", "--timeout", "5s"])]
#[case(&["demo", "--once", "migrate"])]
#[case(&["demo", "--once", "-o", "json"])]
#[case(&["demo", "--once", "--config", "vitrina.toml"])]
#[case(&["demo", "--once", "--listen", "0.0.0.0:0"])]
#[case(&["roles", "--schemas", ""])]
#[case(&["roles", "--schemas", "content,auth"])]
#[case(&["roles", "--schemas", "etl"])]
#[case(&["roles"])]
#[case(&["roles", "--schemas", "a", "--marts", "etl"])]
#[case(&["roles", "--schemas", "a", "--marts", "My Marts"])]
#[case(&["roles", "--schemas", "a", "--marts", "a"])]
#[case(&["roles", "--schemas", "a", "--login", "one", "--reader", "one"])]
fn wrong_usage_ends_with_2(#[case] arguments: &[&str]) {
    vitrina(arguments).ends(2);
}

#[rstest]
#[case(&["migrate"])]
#[case(&["serve"])]
#[case(&["runner"])]
#[case(&["up"])]
#[case(&["demo", "migrate"])]
fn a_command_that_needs_a_database_says_how_to_name_one(#[case] arguments: &[&str]) {
    assert!(vitrina(arguments).refuses(2).contains("VITRINA_DATABASE_URL"));
}

#[test]
fn an_unknown_key_in_the_configuration_is_an_error_with_its_line() {
    let error = vitrina(&["status"]).file("vitrina.toml", "[api]\nlisen = '127.0.0.1:1'\n").refuses(2);
    assert!(
        error.starts_with("error: vitrina.toml:2: api.lisen: unknown key\nhint: did you mean api.listen?"),
        "{error}"
    );
}

#[rstest]
#[case("table")]
#[case("json")]
fn config_show_masks_secrets_and_names_origins(#[case] format: &str) {
    let shown = vitrina(&["config", "show", "--origin", "-o", format])
        .variable("VITRINA_DATABASE_URL", "postgres://vitrina:s3cret@db/cinema")
        .variable("VITRINA_ADMIN_TOKEN", "s3cret")
        .ends(0);
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("postgres://vitrina:***@db/cinema"), "{shown}");
    assert!(shown.contains("environment VITRINA_DATABASE_URL"), "{shown}");
}

#[test]
fn the_reference_lists_every_setting() {
    assert!(vitrina(&["config", "reference"]).ends(0).contains("| `api.listen` | `VITRINA_API_LISTEN` |"));
}

#[test]
fn roles_prints_sql_for_the_named_schemas_without_a_password() {
    let sql = vitrina(&["roles", "--database", "Films", "--schemas", "a,b", "--marts", "m"]).ends(0);
    for statement in [
        "\\set ON_ERROR_STOP on\n\\set ON_ERROR_ROLLBACK off\nbegin;\nset local search_path = pg_catalog, pg_temp;\n",
        "if current_database() <> e'Films' then",
        "alter role vitrina with login password :'vitrina_password';",
        "alter role vitrina_reader with login password :'vitrina_reader_password';",
        "alter role vitrina_reader set default_transaction_read_only = on;",
        "alter role vitrina_reader connection limit 50;",
        "alter role vitrina_reader set search_path = pg_catalog;",
        "execute format('grant select on %s to %I', found.name, e'vitrina_reader');",
        "relnamespace = e'a'::regnamespace",
        "s.nspname not in (e'a', e'b')",
        "if to_regnamespace(e'm') is null then execute format('create schema %I', e'm'); end if;",
        "execute format('grant usage, create on schema %I to %I', e'm', e'vitrina');",
        "grant execute on all functions in schema etl to vitrina;",
    ] {
        assert!(sql.contains(statement), "{statement} is not in\n{sql}");
    }
    assert!(sql.ends_with("commit;\n") && !sql.contains("from public"), "{sql}");
    let public = vitrina(&["roles", "--schemas", "a", "--revoke-public"]).ends(0);
    assert!(
        public.contains("execute format('revoke temporary on database %I from public', current_database());")
    );
    for line in sql.lines().filter(|line| line.contains("vitrina_reader")) {
        assert!(!line.contains("etl") && !line.contains("auth"), "{line}");
    }
}

#[rstest]
#[case(".")]
#[case("..")]
#[case("")]
fn what_cannot_be_a_name_in_a_url_is_an_unknown_pipeline(#[case] name: &str) {
    let error = vitrina(&["status", name]).variable("VITRINA_API_URL", "http://127.0.0.1:1").refuses(2);
    assert!(
        error.contains("there is no pipeline") && error.contains("`vitrina status` lists them"),
        "{error}"
    );
}

#[test]
fn completions_are_a_script_of_the_shell() {
    let script = vitrina(&["completions", "bash"]).ends(0);
    assert!(script.contains("_vitrina") && script.contains("vitrina__subcmd__reconcile"), "{script}");
}

#[test]
fn the_help_of_reconcile_shows_what_to_type() {
    let help = vitrina(&["reconcile", "--help"]).ends(0);
    let (_, examples) = help.split_once("Examples:").expect(&help);
    for command in ["vitrina reconcile film_dim ", "--level rows ", "--repair --yes ", "--exit-code || "] {
        assert!(examples.contains(command), "{command}: {help}");
    }
}

#[rstest]
#[case(&["status"])]
#[case(&["run", "film_dim_full", "--watch"])]
#[case(&["rejects", "film_dim_full"])]
#[case(&["reconcile", "film_dim_full"])]
#[case(&["reconciles"])]
#[case(&["differences", "film_dim_full"])]
#[case(&["backfill", "film_dim_full", "7"])]
#[case(&["health"])]
fn an_api_that_is_not_there_is_named_with_its_address(#[case] arguments: &[&str]) {
    let error = vitrina(arguments).variable("VITRINA_API_URL", "http://127.0.0.1:1").refuses(4);
    assert!(
        error.starts_with("error: cannot reach the API at http://127.0.0.1:1/: Connection refused"),
        "{error}"
    );
}

#[test]
fn a_server_that_is_not_vitrina_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stranger = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut call, _) = listener.accept().unwrap();
        let _ = call.read(&mut [0; 4096]).unwrap();
        call.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello").unwrap();
    });
    let error = vitrina(&["status"]).variable("VITRINA_API_URL", url).refuses(4);
    assert!(error.contains("answers 200 OK, but not as Vitrina's API does"), "{error}");
    stranger.join().unwrap();
}
