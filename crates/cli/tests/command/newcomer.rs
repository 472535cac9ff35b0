//! What goes wrong at first: each is told in words, with what to do, the documented exit code, and no secret.

use std::process::Stdio;

use nix::sys::signal::Signal;
use rstest::rstest;
use vitrina_testbed::Database;

use super::{Running, Vitrina, text, vitrina};

#[rstest]
#[case::an_unknown_key(
    "databse_url = 'postgres://u:s3cret@h/d'",
    "vitrina.toml:1: databse_url: unknown key",
    "did you mean database_url?"
)]
#[case::no_toml(
    "database_url = 'postgres://u:s3cret@h/d",
    "vitrina.toml:1: invalid TOML at column ",
    "texts stand in quotes"
)]
#[case::a_wrong_type(
    "[runner]\nmax_concurrent = 'many'",
    "vitrina.toml:2: runner.max_concurrent: \"many\" is no count",
    "a whole number"
)]
#[case::a_list(
    "database_url = ['postgres://u:s3cret@h/d']",
    "vitrina.toml:1: database_url: the value is a list",
    "write one text"
)]
fn a_slip_in_the_configuration_is_told_with_its_line(
    #[case] file: &str,
    #[case] told: &str,
    #[case] hint: &str,
) {
    let error = vitrina(&["config", "show"]).file("vitrina.toml", file).refuses(2);
    assert!(error.contains(told) && error.contains(hint) && !error.contains("s3cret"), "{error}");
}

#[rstest]
#[case::no_yaml("pipelines:\n  - name: a\n   x: [", "line 3 column 4")]
#[case::an_unknown_list("pipelnes: []", "unknown field `pipelnes`, expected `targets` or `pipelines`")]
fn a_slip_in_a_file_of_pipelines_is_told_with_its_place(#[case] file: &str, #[case] told: &str) {
    let error = vitrina(&["plan", "bad.yaml"]).file("bad.yaml", file).refuses(2);
    assert!(error.contains("bad.yaml: ") && error.contains(told), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    assert!(
        vitrina(&["config", "show", "--config", "no.toml"])
            .refuses(2)
            .contains("--config: no.toml cannot be read")
    );
    assert!(vitrina(&["plan", "no.yaml"]).refuses(2).contains("no.yaml: "));
}

#[test]
fn without_arguments_it_shows_its_verbs_and_an_unknown_verb_is_an_error() {
    let alone = vitrina(&[]).output();
    assert_eq!(alone.status.code(), Some(2));
    let asked = vitrina(&["help"]).ends(0);
    assert_eq!(text(&alone.stderr).trim(), asked.trim());
    let slip = vitrina(&["stauts"]).output();
    assert_eq!(slip.status.code(), Some(2));
    let said = text(&slip.stderr);
    assert!(said.contains("unrecognized subcommand 'stauts'") && said.contains("'status'"), "{said}");
}

/// Nobody listens at port 1.
#[test]
fn a_server_that_is_not_there_is_named_with_the_setting_that_says_where() {
    let url = "postgres://u:s3cret@127.0.0.1:1/x";
    for verb in ["migrate", "up", "serve", "runner"] {
        let error = vitrina(&[verb]).variable("VITRINA_DATABASE_URL", url).refuses(4);
        assert!(error.contains("127.0.0.1:1/x") && error.contains("VITRINA_DATABASE_URL"), "{verb}: {error}");
        assert!(!error.contains("s3cret"), "{verb}: {error}");
    }
    let error = vitrina(&["status"]).variable("VITRINA_API_URL", "http://127.0.0.1:1").refuses(4);
    assert!(error.contains("http://127.0.0.1:1/") && error.contains("VITRINA_API_URL"), "{error}");
}

const FILMS: &str = "
targets: [{name: analytics.film, key: [id], create_if_missing: true}]
pipelines:
  - {name: films, source_connection: cinema, target_table: analytics.film, source_query: select id from content.film}
";

/// An API that wants a token, and a runner.
struct Stand {
    db: Database,
    address: String,
    _up: Running,
}

const TOKEN: &str = "vt_of_a_newcomer_0123456789abcdef";

impl Stand {
    async fn start() -> Self {
        let db = Database::fresh().await;
        db.execute("create schema content; create table content.film (id int primary key); insert into content.film values (1)")
            .await;
        let up = vitrina(&["up", "--listen", "127.0.0.1:0"]).variable("VITRINA_DATABASE_URL", db.url());
        let up = up.variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url());
        let mut up = up.variable("VITRINA_ADMIN_TOKEN", TOKEN).start();
        Self { address: up.is_up(), _up: up, db }
    }

    fn ask(&self, arguments: &[&str]) -> Vitrina {
        let command = vitrina(arguments).variable("VITRINA_API_URL", format!("http://{}", self.address));
        command.variable("VITRINA_API_TOKEN", TOKEN).file("films.yaml", FILMS)
    }
}

#[tokio::test]
async fn what_a_newcomer_does_wrong_at_a_running_stand_is_told_with_what_to_do() {
    let stand = Stand::start().await;
    stand.ask(&["apply", "films.yaml", "--yes"]).ends(0);
    a_login_or_a_token_that_is_wrong_is_refused(&stand).await;
    a_port_that_is_taken_is_named(&stand);
    a_name_that_is_nearly_right_is_understood(&stand);
    a_reader_that_goes_away_is_no_error(&stand);
    a_load_is_left_by_an_interrupt_and_goes_on(&stand).await;
}

async fn a_login_or_a_token_that_is_wrong_is_refused(stand: &Stand) {
    let login = format!("newcomer_{}", &stand.db.name()[stand.db.name().len() - 8..]);
    stand.db.execute(&format!("create role {login} login password 'right'")).await;
    let error =
        vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", stand.db.url_as(&login, "wr0ng")).refuses(4);
    assert!(error.contains("refuses the login") && !error.contains("wr0ng"), "{error}");
    for token in ["", "vt_wr0ng"] {
        let error = stand.ask(&["status"]).variable("VITRINA_API_TOKEN", token).refuses(4);
        assert!(error.contains("needs a valid token") && error.contains("VITRINA_API_TOKEN"), "{error}");
        assert!(!error.contains("wr0ng"), "{error}");
    }
}

fn a_port_that_is_taken_is_named(stand: &Stand) {
    let second =
        vitrina(&["serve", "--listen", &stand.address]).variable("VITRINA_DATABASE_URL", stand.db.url());
    let error = second.refuses(4);
    assert!(error.contains(&format!("{} is in use", stand.address)) && error.contains("--listen"), "{error}");
}

fn a_name_that_is_nearly_right_is_understood(stand: &Stand) {
    for verb in ["status", "run", "runs", "state", "validate", "logs", "reconcile", "pause"] {
        let error = stand.ask(&[verb, "flims"]).refuses(2);
        assert!(error.contains("there is no pipeline"), "{verb}: {error}");
        assert!(error.contains("hint: did you mean films? `vitrina status` lists them"), "{verb}: {error}");
    }
    let error = stand.ask(&["status", "another"]).refuses(2);
    assert!(error.contains("hint: `vitrina status` lists them"), "{error}");
}

/// `| head` closes the pipe as soon as it has enough.
fn a_reader_that_goes_away_is_no_error(stand: &Stand) {
    for arguments in
        [&["completions", "bash"][..], &["config", "reference"], &["--help"], &["status", "-o", "json"]]
    {
        let mut asked = stand.ask(arguments);
        let mut child = asked.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)), "{arguments:?}");
    }
}

async fn a_load_is_left_by_an_interrupt_and_goes_on(stand: &Stand) {
    let owner = stand.db.client().await;
    owner.batch_execute("begin; lock table content.film").await.unwrap();
    let mut watching = stand.ask(&["run", "films", "--watch"]).start();
    watching.says_until("RUNNING");
    watching.signal(Signal::SIGINT);
    let said = watching.says_until("hint: ").join("\n");
    assert!(
        said.contains("error: interrupted; the run goes on") && said.contains("vitrina cancel films"),
        "{said}"
    );
    watching.ends(130);
    owner.batch_execute("commit").await.unwrap();
    let ended = stand.ask(&["run", "films", "--watch", "--timeout", "60s"]).ends(0);
    assert!(ended.contains("is SUCCESS"), "{ended}");
}
