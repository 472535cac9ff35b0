//! The rules of the configuration, one sentence each, on inputs of their own.

use std::path::PathBuf;
use std::time::Duration;

use rstest::rstest;
use secrecy::ExposeSecret;
use tempfile::TempDir;
use vitrina_core::AllowedTargets;

use super::known::SETTINGS;
use super::*;

/// A working directory with its files, variables and flags.
struct Place {
    directory: TempDir,
    inputs: Inputs,
}

fn nothing() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let inputs =
        Inputs { directory: directory.path().to_owned(), runner_name: "host-1".into(), ..Inputs::default() };
    Place { directory, inputs }
}

impl Place {
    fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.directory.path().join(name), text).unwrap();
        self
    }

    fn toml(self, text: &str) -> Self {
        self.file("vitrina.toml", text)
    }

    fn dot_env(self, text: &str) -> Self {
        self.file(".env", text)
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.inputs.environment.insert(name.into(), value.into());
        self
    }

    fn flag(mut self, key: &str, name: &'static str, value: &str) -> Self {
        self.inputs.flags.push(Flag { key: key.into(), name, value: value.into() });
        self
    }

    fn config_flag(mut self, path: &str) -> Self {
        self.inputs.file = Some(PathBuf::from(path));
        self
    }

    fn load(&self) -> Config {
        Config::load(&self.inputs).unwrap()
    }

    fn error(&self) -> String {
        Config::load(&self.inputs).unwrap_err().to_string()
    }

    fn shown(&self, key: &str) -> (Option<String>, String) {
        let config = self.load();
        let shown = config.show().iter().find(|shown| shown.key == key).unwrap();
        (shown.value.clone(), shown.origin.to_string())
    }

    fn database_url(&self) -> String {
        self.load().settings.database_url.unwrap().expose_secret().to_owned()
    }

    fn connection(&self, name: &str) -> String {
        self.load().settings.connections[name].url.expose_secret().to_owned()
    }

    fn warnings(&self) -> Vec<String> {
        self.load().warnings.iter().map(ToString::to_string).collect()
    }
}

fn is(value: &str, origin: &str) -> (Option<String>, String) {
    (Some(value.to_owned()), origin.to_owned())
}

// Precedence and origins

#[test]
fn without_any_input_the_defaults_hold() {
    let settings = nothing().load().settings;
    assert!(settings.database_url.is_none() && settings.connections.is_empty());
    assert_eq!(settings.allowed_targets, AllowedTargets::default());
    assert_eq!(settings.api.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.api.url.as_str(), "http://127.0.0.1:8080/");
    assert_eq!(settings.runner.name, "host-1");
    assert_eq!(settings.runner.max_concurrent.get(), 4);
    assert_eq!(settings.runner.poll_interval, Duration::from_secs(1));
    assert_eq!(settings.runner.lease, Duration::from_secs(30));
    assert_eq!(settings.runner.shutdown_timeout, Duration::from_secs(30));
    assert_eq!(settings.log.format, LogFormat::Auto);
    assert_eq!(settings.log.level, tracing::Level::INFO);
}

#[test]
fn a_flag_beats_the_environment_which_beats_dot_env_which_beats_the_file_which_beats_the_default() {
    let place = nothing();
    assert_eq!(place.shown("log.level"), is("info", "default"));
    let place = place.toml("[log]\n\nlevel = 'error'\n");
    assert_eq!(place.shown("log.level"), is("error", "vitrina.toml:3"));
    let place = place.dot_env("# logs\nVITRINA_LOG_LEVEL=warn\n");
    assert_eq!(place.shown("log.level"), is("warn", ".env:2"));
    let place = place.variable("VITRINA_LOG_LEVEL", "debug");
    assert_eq!(place.shown("log.level"), is("debug", "environment VITRINA_LOG_LEVEL"));
    let place = place.flag("log.level", "--log-level", "trace");
    assert_eq!(place.shown("log.level"), is("trace", "flag --log-level"));
}

#[test]
fn the_file_is_named_by_flag_then_environment_then_dot_env_and_else_is_vitrina_toml() {
    let name = |place: &Place| place.load().settings.runner.name;
    let file = |place: Place, path: &str, name: &str| place.file(path, &format!("runner.name = '{name}'"));
    let place = file(nothing(), "vitrina.toml", "usual");
    assert_eq!(name(&place), "usual");
    let place = file(place, "c.toml", "from .env").dot_env("VITRINA_CONFIG=c.toml");
    assert_eq!(name(&place), "from .env");
    let place = file(place, "b.toml", "from environment").variable("VITRINA_CONFIG", "b.toml");
    assert_eq!(name(&place), "from environment");
    let place = file(place, "a.toml", "from flag").config_flag("a.toml");
    assert_eq!(name(&place), "from flag");
    assert_eq!(place.shown("runner.name").1, "a.toml:1");
}

#[test]
fn a_file_that_was_named_must_exist() {
    assert!(nothing().config_flag("no.toml").error().starts_with("flag --config: no.toml cannot be read: "));
    let error = nothing().variable("VITRINA_CONFIG", "no.toml").error();
    assert!(error.starts_with("environment VITRINA_CONFIG: no.toml cannot be read: "), "{error}");
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let place =
        nothing().toml("log.level = 'warn'").variable("VITRINA_LOG_LEVEL", "").variable("OPENSEARCH_URL", "");
    assert_eq!(place.shown("log.level"), is("warn", "vitrina.toml:1"));
    assert!(place.load().settings.connections.is_empty());
}

#[test]
fn an_empty_variable_of_the_process_hides_that_of_dot_env() {
    let place = nothing().file(".env", "VITRINA_API_TOKEN=s3cret");
    assert!(place.load().settings.api.token.is_some());
    assert!(place.variable("VITRINA_API_TOKEN", "").load().settings.api.token.is_none());
}

#[test]
fn every_setting_can_be_given_by_its_variable_and_by_its_key() {
    for setting in SETTINGS {
        let key = setting.key.replace("<name>", "ugc_db");
        let variable = setting.variable.replace("<NAME>", "UGC_DB");
        assert_eq!(known::key_of(&variable), Some(key.clone()));
        assert_eq!(known::find(&key).map(|found| found.key), Some(setting.key));
        let by_rule = format!("VITRINA_{}", key.to_uppercase().replace('.', "_"));
        assert!(variable == by_rule || variable == "VITRINA_ADMIN_TOKEN", "{variable}");
    }
}

// .env

#[test]
fn dot_env_knows_quotes_comments_and_export_and_takes_the_last_of_two() {
    let text =
        "VITRINA_RUNNER_NAME=first\nexport VITRINA_RUNNER_NAME='one two' # why\r\nVITRINA_LOG_LEVEL=warn \n";
    let place = nothing().dot_env(text);
    assert_eq!(place.shown("runner.name"), is("one two", ".env:2"));
    assert_eq!(place.shown("log.level"), is("warn", ".env:3"));
}

#[rstest]
#[case("VITRINA_API_TOKEN=pa$word", "pa$word")]
#[case("VITRINA_API_TOKEN=\"pa$word\"", "pa$word")]
#[case("VITRINA_API_TOKEN='pa$word'", "pa$word")]
#[case("VITRINA_API_TOKEN=pa\\$word", "pa$word")]
#[case("VITRINA_API_TOKEN=pa\\\\$word", "pa\\$word")]
#[case("VITRINA_API_TOKEN=$PATH", "$PATH")]
#[case("OTHER=x\nVITRINA_API_TOKEN=a${env:OTHER}b", "axb")]
fn a_dollar_in_dot_env_stands_for_itself(#[case] text: &str, #[case] token: &str) {
    let settings = nothing().dot_env(text).load().settings;
    assert_eq!(settings.api.token.unwrap().expose_secret(), token);
}

#[test]
fn a_syntax_error_in_dot_env_shows_its_line_and_not_its_text() {
    let error = nothing().dot_env("A=1\nVITRINA_API_TOKEN='s3cret\n").error();
    assert!(error.starts_with(".env:2: cannot be parsed\nhint: "), "{error}");
    assert!(!error.contains("s3cret"));
}

// The file

#[test]
fn an_unknown_key_in_the_file_is_an_error_with_line_and_nearest_key() {
    let error = nothing().toml("[api]\nlisten = '127.0.0.1:1'\nlisen = 'x'\n").error();
    assert_eq!(error, "vitrina.toml:3: api.lisen: unknown key\nhint: did you mean api.listen?");
    let error = nothing().toml("[connections.content]\nulr = 'x'").error();
    assert!(error.ends_with("did you mean connections.content.url?"), "{error}");
}

#[test]
fn an_unknown_key_with_nothing_near_lists_the_known_ones() {
    let error = nothing().toml("colour = 'red'").error();
    assert!(error.contains("hint: known keys: database_url, allowed_targets, api.listen, "), "{error}");
}

#[rstest]
#[case("[sections]")]
#[case("api = 3")]
#[case("api.listen.port = 3")]
#[case("[[connections]]\nurl = 'x'")]
#[case("connections.a.b.url = 'x'")]
fn a_table_in_the_wrong_place_is_an_unknown_key(#[case] text: &str) {
    assert!(nothing().toml(text).error().contains("unknown key"));
}

#[test]
fn an_empty_section_is_no_mistake() {
    nothing().toml("[api]\n[runner]\n[connections]\n[connections.content]\n").load();
}

#[test]
fn a_syntax_error_in_the_file_shows_line_and_column_and_not_its_text() {
    let error = nothing().toml("# first\ndatabase_url = postgres://u:s3cret@h/db\n").error();
    assert!(error.starts_with("vitrina.toml:2: invalid TOML at column 16: "), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn lists_are_lists_in_the_file_and_comma_separated_elsewhere() {
    let allowed = |place: Place| place.load().settings.allowed_targets.0;
    let expected = ["analytics.film_dim", "es:*"];
    assert_eq!(allowed(nothing().toml("allowed_targets = ['analytics.film_dim', 'es:*']")), expected);
    assert_eq!(allowed(nothing().variable("VITRINA_ALLOWED_TARGETS", "analytics.film_dim, es:*")), expected);
    let error = nothing().toml("api.listen = ['a', 'b']").error();
    assert_eq!(error, "vitrina.toml:1: api.listen: \"a,b\" is a list\nhint: write one text");
    assert!(nothing().toml("allowed_targets = [['a']]").error().contains("nested list"));
}

// Values

#[rstest]
#[case("500ms", Duration::from_millis(500))]
#[case("1s", Duration::from_secs(1))]
#[case("5m", Duration::from_secs(300))]
#[case("1h", Duration::from_secs(3600))]
#[case("1h 30m", Duration::from_secs(5400))]
fn durations_carry_their_unit(#[case] text: &str, #[case] expected: Duration) {
    let settings = nothing().variable("VITRINA_RUNNER_LEASE", text).load().settings;
    assert_eq!(settings.runner.lease, expected);
}

#[rstest]
#[case("runner.lease", "30", "no duration")]
#[case("runner.lease", "-1s", "no duration")]
#[case("runner.poll_interval", "0s", "no duration")]
#[case("runner.lease", "99999999999999h", "too long")]
#[case("runner.lease", "25h", "too long")]
#[case("runner.pause_timeout", "8760h", "too long")]
#[case("runner.keep_history", "87601h", "too long")]
#[case("python.deadline", "8760h", "too long")]
#[case("runner.max_concurrent", "0", "no count")]
#[case("api.max_connections", "0", "no count")]
#[case("runner.max_query_cost", "0", "no cost")]
#[case("runner.max_query_cost", "much", "no cost")]
#[case("runner.max_query_cost", "inf", "no cost")]
#[case("runner.name", " ", "no name")]
#[case("log.format", "xml", "no log format")]
#[case("log.level", "loud", "no log level")]
#[case("api.listen", "localhost", "no address")]
#[case("api.url", "ftp://h", "no URL of the kind")]
#[case("api.url", "http://user:pw@h", "holds credentials")]
#[case("allowed_targets", "analytics.*,*", "no list of targets")]
#[case("allowed_targets", "analytics.f*m", "no list of targets")]
#[case("connections.search.url", "postgres://h/db", "no URL of the kind")]
#[case("connections.marts.url", "http://h", "no URL of the kind")]
#[case("database_url", "host=h dbname=d", "no URL: ")]
#[case("api.token", "two words", "no token")]
fn a_bad_value_is_refused_with_key_origin_and_hint(
    #[case] key: &str,
    #[case] value: &str,
    #[case] why: &str,
) {
    let error = Config::load(&nothing().flag(key, "--flag", value).inputs).unwrap_err();
    let [problem] = error.problems.as_slice() else { panic!("{error}") };
    assert_eq!(problem.key.as_deref(), Some(key));
    assert_eq!(problem.origin, Some(Origin::Flag("--flag")));
    assert!(problem.message.contains(why), "{problem}");
    assert!(problem.hint.is_some());
}

#[test]
fn all_problems_are_reported_at_once() {
    let place = nothing()
        .toml("colour = 1\n[runner]\nlease = '30'")
        .dot_env("?\n")
        .variable("VITRINA_API_LISTEN", "x");
    let error = place.error();
    assert!(error.starts_with("the configuration has 4 problems\n"), "{error}");
    for origin in [
        ".env:1: ",
        "vitrina.toml:1: colour: ",
        "vitrina.toml:3: runner.lease: ",
        "environment VITRINA_API_LISTEN: ",
    ] {
        assert!(error.contains(&format!("\n{origin}")), "{error}");
    }
}

#[test]
fn the_api_is_found_where_it_listens_and_on_loopback_if_it_listens_everywhere() {
    let place = nothing().variable("VITRINA_API_LISTEN", "0.0.0.0:9000");
    assert_eq!(place.shown("api.url"), is("http://127.0.0.1:9000", "default, from api.listen"));
    let place = place.variable("VITRINA_API_URL", "https://vitrina.example");
    assert_eq!(place.shown("api.url"), is("https://vitrina.example", "environment VITRINA_API_URL"));
}

// Connections

#[test]
fn connections_come_from_the_file_and_from_variables_and_may_be_mixed() {
    let place = nothing()
        .toml("[connections.content]\nallowed_schemas = ['a', 'b']\n")
        .variable("VITRINA_CONNECTIONS_CONTENT_URL", "postgres://h/content")
        .variable("VITRINA_CONNECTIONS_UGC_DB_URL", "postgres://h/ugc")
        .variable("VITRINA_CONNECTIONS_UGC_DB_ALLOWED_SCHEMAS", "ugc");
    let connections = place.load().settings.connections;
    assert_eq!(connections["content"].url.expose_secret(), "postgres://h/content");
    assert_eq!(connections["content"].allowed_schemas, ["a", "b"]);
    assert_eq!(connections["ugc_db"].allowed_schemas, ["ugc"]);
}

#[test]
fn a_connection_reads_content_and_ugc_unless_told_otherwise() {
    let place = nothing().variable("VITRINA_CONNECTIONS_ALL_URL", "postgres://h/db");
    assert_eq!(place.shown("connections.all.allowed_schemas"), is("content,ugc", "default"));
    assert_eq!(place.load().settings.connections["all"].allowed_schemas, ["content", "ugc"]);
}

#[test]
fn a_connection_without_url_is_refused() {
    let error = nothing().toml("connections.content.allowed_schemas = ['content']").error();
    let expected = "vitrina.toml:1: connections.content.allowed_schemas: connection content has no url\n\
                    hint: set connections.content.url";
    assert_eq!(error, expected);
}

#[test]
fn a_connection_whose_url_has_a_broken_reference_is_one_problem() {
    let error = nothing().toml("[connections.a]\nurl = '${env:NO}'\nallowed_schemas = ['x']").error();
    assert!(error.starts_with("vitrina.toml:2: connections.a.url: refers to NO, "), "{error}");
}

#[test]
fn a_connection_has_a_plain_lower_case_name() {
    let error = nothing().toml("connections.Content-1.url = 'postgres://h/db'").error();
    assert!(error.contains("\"Content-1\" is no name of a connection\nhint: "), "{error}");
}

#[test]
fn the_marts_are_in_the_meta_store_unless_told_otherwise() {
    let place = nothing().variable("VITRINA_DATABASE_URL", "postgres://h/meta");
    assert_eq!(place.connection("marts"), "postgres://h/meta");
    assert_eq!(place.shown("connections.marts.url"), is("postgres://h/meta", "default, from database_url"));
    let place = place.variable("VITRINA_CONNECTIONS_MARTS_URL", "postgres://h/marts");
    assert_eq!(place.connection("marts"), "postgres://h/marts");
}

#[test]
fn a_bad_database_url_is_one_problem_although_the_marts_share_it() {
    assert!(
        nothing()
            .variable("VITRINA_DATABASE_URL", "x")
            .error()
            .starts_with("environment VITRINA_DATABASE_URL: ")
    );
}

#[rstest]
#[case("ELASTICSEARCH_URL")]
#[case("OPENSEARCH_URL")]
fn the_search_servers_own_variables_give_the_connection_search(#[case] name: &str) {
    let place = nothing().variable(name, "http://h:9200");
    assert_eq!(place.connection("search"), "http://h:9200");
    assert_eq!(place.shown("connections.search.url").1, format!("environment {name}"));
}

#[test]
fn our_own_variable_beats_that_of_the_search_server_unless_it_is_weaker() {
    let place =
        nothing().dot_env("VITRINA_CONNECTIONS_SEARCH_URL=http://ours\nELASTICSEARCH_URL=http://theirs\n");
    assert_eq!(place.connection("search"), "http://ours");
    assert_eq!(
        place.variable("ELASTICSEARCH_URL", "http://environment").connection("search"),
        "http://environment"
    );
}

#[test]
fn two_search_servers_are_refused_even_if_one_is_in_dot_env() {
    let place = nothing().dot_env("OPENSEARCH_URL=http://a").variable("ELASTICSEARCH_URL", "http://b");
    let expected = ".env:1: connections.search.url: ELASTICSEARCH_URL and OPENSEARCH_URL are both set\n\
                    hint: unset the one you do not use";
    assert_eq!(place.error(), expected);
}

// Secrets

#[test]
fn references_are_replaced_also_within_a_larger_text() {
    let place = nothing()
        .toml("database_url = 'postgres://${env:PGUSER}:${file:secrets}@h/db'")
        .dot_env("PGUSER=weak\n")
        .variable("PGUSER", "strong")
        .file("secrets", "pw\n");
    assert_eq!(place.database_url(), "postgres://strong:pw@h/db");
}

#[test]
fn a_reference_to_the_environment_falls_back_to_dot_env() {
    let place = nothing().toml("database_url = '${env:OTHER_URL}'").dot_env("OTHER_URL=postgres://h/db\n");
    assert_eq!(place.database_url(), "postgres://h/db");
}

#[test]
fn a_file_reference_starts_at_the_file_that_holds_it() {
    let place = nothing();
    std::fs::create_dir(place.directory.path().join("etc")).unwrap();
    let place = place.file("etc/secret", "abc\r\n").file("etc/v.toml", "api.token = '${file:secret}'");
    let settings = place.config_flag("etc/v.toml").load().settings;
    assert_eq!(settings.api.token.unwrap().expose_secret(), "abc");
}

#[rstest]
#[case::of_a_named_file(nothing().file("v.toml", "api.token = 'v-${command:printf \"%s\\n\" abc}'").config_flag("v.toml"))]
#[case::of_the_environment(nothing().variable("VITRINA_API_TOKEN", "v-${command:echo abc}"))]
fn a_command_says_a_secret(#[case] place: Place) {
    assert_eq!(place.load().settings.api.token.unwrap().expose_secret(), "v-abc");
}

#[rstest]
#[case::the_file_there(nothing().toml("api.token = '${command:touch executed}'"))]
#[case::the_dot_env_there(nothing().dot_env("VITRINA_API_TOKEN='${command:touch executed}'\n"))]
#[case::a_file_that_the_dot_env_names(
    nothing().file("v.toml", "api.token = '${command:touch executed}'").dot_env("VITRINA_CONFIG=v.toml\n")
)]
fn whoever_stands_in_a_folder_executes_nothing_that_its_files_say(#[case] place: Place) {
    let error = place.error();
    assert!(error.contains("refers to a command") && error.contains("--config"), "{error}");
    assert!(!place.directory.path().join("executed").exists() && !std::path::Path::new("executed").exists());
}

#[rstest]
#[case::by_its_dot_env(nothing().dot_env("VITRINA_API_URL=https://elsewhere.example\n"))]
#[case::by_its_file(nothing().toml("api.url = 'https://elsewhere.example'"))]
#[case::by_where_its_api_listens(nothing().toml("api.listen = '203.0.113.7:80'"))]
fn a_folder_does_not_send_the_token_of_a_person_elsewhere(#[case] place: Place) {
    assert!(place.load().settings.api.token.is_none(), "without a token there is nothing to send");
    let error = place.variable("VITRINA_API_TOKEN", "s3cret").error();
    assert!(error.contains("api.url: ") && error.contains("environment VITRINA_API_TOKEN"), "{error}");
    assert!(error.contains("--config") && !error.contains("s3cret"), "{error}");
}

#[rstest]
#[case::both_of_the_folder(nothing().dot_env("VITRINA_API_URL=https://a.example\nVITRINA_API_TOKEN=t\n"))]
#[case::on_this_machine(nothing().dot_env("VITRINA_API_URL=http://127.0.0.1:8080\n").variable("VITRINA_API_TOKEN", "t"))]
#[case::the_folder_has_the_token_alone(nothing().dot_env("VITRINA_API_TOKEN=t\n").variable("VITRINA_API_URL", "https://a.example"))]
#[case::a_file_that_was_named(nothing().file("v.toml", "api.url = 'https://a.example'").config_flag("v.toml").variable("VITRINA_API_TOKEN", "t"))]
fn a_token_goes_where_its_owner_sends_it(#[case] place: Place) {
    assert!(place.load().settings.api.token.is_some());
}

#[rstest]
#[case("echo s3cret; exit 7", "api.token: refers to a command that fails with exit status: 7")]
#[case("printf '\\377'", "api.token: refers to a command that prints what is no text")]
fn a_command_that_fails_is_told_without_what_it_said(#[case] command: &str, #[case] message: &str) {
    let error = nothing().variable("VITRINA_API_TOKEN", &format!("${{command:{command}}}")).error();
    assert!(error.contains(message) && !error.contains("s3cret"), "{error}");
}

#[test]
fn a_doubled_dollar_is_a_literal_one() {
    let settings = nothing().variable("VITRINA_API_TOKEN", "a$${env:B}$c").load().settings;
    assert_eq!(settings.api.token.unwrap().expose_secret(), "a${env:B}$c");
}

#[rstest]
#[case("${env:NO}", "api.token: refers to NO, which neither the environment nor .env sets\nhint: set NO")]
#[case("${file:no}", "api.token: refers to file no, which cannot be read: ")]
#[case("s3cret${env:NO", "api.token: holds a reference without its `}`\nhint: ")]
#[case("${s3cret}", "api.token: holds a `${` that begins no reference\nhint: ")]
fn a_broken_reference_is_an_error_that_names_key_and_origin(#[case] value: &str, #[case] message: &str) {
    let error = nothing().toml(&format!("api.token = '{value}'")).error();
    assert!(error.starts_with(&format!("vitrina.toml:1: {message}")), "{error}");
    assert!(!error.contains("s3cret"));
}

#[rstest]
#[case("postgres://user:s3cret@host/db", "postgres://user:***@host/db")]
#[case("postgres://user@host:5432/db", "postgres://user@host:5432/db")]
#[case("postgres:///db?host=/run&user=u&password=s3cret", "postgres:///db?host=%2Frun&user=u&password=***")]
fn urls_are_shown_without_their_passwords(#[case] url: &str, #[case] shown: &str) {
    let place = nothing().variable("VITRINA_DATABASE_URL", url);
    assert_eq!(place.shown("database_url"), is(shown, "environment VITRINA_DATABASE_URL"));
    assert_eq!(place.database_url(), url);
}

#[test]
fn other_secrets_are_shown_as_stars_and_missing_ones_as_nothing() {
    let place = nothing().variable("VITRINA_ADMIN_TOKEN", "scheme:s3cret");
    assert_eq!(place.shown("api.admin_token"), is("***", "environment VITRINA_ADMIN_TOKEN"));
    assert_eq!(place.shown("api.token"), (None, "default".to_owned()));
}

#[test]
fn a_reference_in_a_setting_that_is_no_secret_is_shown_as_written() {
    let place = nothing().toml("runner.name = 'r-${env:SUFFIX}'").variable("SUFFIX", "s3cret");
    assert_eq!(place.load().settings.runner.name, "r-s3cret");
    assert_eq!(place.shown("runner.name"), is("r-${env:SUFFIX}", "vitrina.toml:1"));
}

#[test]
fn no_secret_is_in_debug_output() {
    let place = nothing()
        .variable("VITRINA_DATABASE_URL", "postgres://u:s3cret@h/db")
        .variable("ELASTICSEARCH_URL", "http://u:s3cret@h")
        .variable("VITRINA_ADMIN_TOKEN", "s3cret")
        .flag("api.token", "--token", "s3cret");
    let printed = format!("{:?} {:?}", place.inputs, place.load());
    assert!(!printed.contains("s3cret"), "{printed}");
}

#[rstest]
#[case("database_url", "postgres://u:s3cret@h:port/db")]
#[case("connections.content.url", "s3cret")]
#[case("api.token", "s3cret with spaces")]
#[case("api.url", "http://u:s3cret@h")]
#[case("api.url", "http://u:s3cret@h:port")]
// Each would take a piece of the password for a host, or for a database.
#[case("database_url", "postgres://u:p@s3cret/1%@h:5432/db")]
#[case("database_url", "postgres://u:p@s3cret@h/db")]
#[case("database_url", "postgres://u:1/s3cret@h/db")]
#[case("database_url", "postgres://u:1#s3cret@h/db")]
#[case("database_url", "postgres://u:1?s3cret@h/db")]
#[case("connections.marts.url", "postgres://u:p@h/s3cret@h/db")]
#[case("connections.content.url", "postgresql://s3cret/1@h/db")]
#[case("connections.search.url", "https://u:p@s3cret/1@h:9200")]
#[case("connections.search.url", "https://one:9200,https://u:1/s3cret@two:9200")]
#[case("connections.search.url", "https://u:1\\s3cret@h:9200")]
fn no_secret_is_in_an_error(#[case] key: &str, #[case] value: &str) {
    let error = Config::load(&nothing().flag(key, "--flag", value).inputs).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
}

#[test]
fn a_secret_that_stands_in_the_file_earns_a_warning() {
    let place = nothing().toml("database_url = 'postgres://u:s3cret@h/db'");
    let expected = "vitrina.toml:1: database_url: a secret stands in the file\n\
                    hint: write ${env:NAME} or ${file:path} in its place";
    assert_eq!(place.warnings(), [expected]);
    let place = nothing().toml("database_url = 'postgres://u:${env:PW}@h/db'").variable("PW", "s3cret");
    assert!(place.warnings().is_empty());
    assert!(nothing().toml("database_url = 'postgres://u@h/db'").warnings().is_empty());
}

// Unknown variables, output and reference

#[test]
fn an_unknown_variable_is_a_warning() {
    let place = nothing().dot_env("VITRINA_COLOUR=red\n").variable("VITRINA_API_LISEN", "x");
    let expected = [
        ".env:1: VITRINA_COLOUR is no variable of Vitrina and changes nothing",
        "environment VITRINA_API_LISEN: VITRINA_API_LISEN is no variable of Vitrina and changes nothing\n\
         hint: did you mean VITRINA_API_LISTEN?",
    ];
    assert_eq!(place.warnings(), expected);
}

#[rstest]
#[case("VITRINA_TEST_KEEP")]
#[case("VITRINA_PG_BINDIR")]
#[case("PATH")]
fn variables_with_another_use_earn_no_warning(#[case] name: &str) {
    assert!(nothing().variable(name, "x").warnings().is_empty());
}

#[test]
fn show_lists_settings_in_the_order_of_the_reference_then_connections_by_name() {
    let place =
        nothing().variable("OPENSEARCH_URL", "http://h").variable("VITRINA_DATABASE_URL", "postgres://h/db");
    let config = place.load();
    let keys: Vec<&str> = config.show().iter().map(|shown| shown.key.as_str()).collect();
    let plain: Vec<&str> =
        SETTINGS.iter().map(|setting| setting.key).filter(|key| !key.contains('<')).collect();
    assert_eq!(keys[..plain.len()], plain);
    let rest = ["marts.allowed_schemas", "marts.url", "search.allowed_schemas", "search.url"];
    assert_eq!(keys[plain.len()..], rest.map(|key| format!("connections.{key}")));
}

#[test]
fn a_shown_setting_serialises_with_its_origin_as_text() {
    let shown = nothing().load().show()[0].clone();
    let expected = serde_json::json!({"key": "database_url", "value": null, "origin": "default"});
    assert_eq!(serde_json::to_value(shown).unwrap(), expected);
}

#[test]
fn the_reference_has_a_row_for_every_setting() {
    let reference = reference();
    assert_eq!(reference.lines().count(), SETTINGS.len() + 2);
    let row =
        "| `runner.lease` | `VITRINA_RUNNER_LEASE` | `30s` | how long a silent runner keeps its pipelines; ";
    assert!(reference.contains(row), "{reference}");
    assert!(reference.contains(
        "| `api.admin_token` | `VITRINA_ADMIN_TOKEN` |  | becomes the first admin token of the API (secret) |"
    ));
}

#[test]
fn the_process_gives_its_own_inputs() {
    let inputs = Inputs::of_process(Vec::new(), None).unwrap();
    assert!(inputs.runner_name.ends_with(&format!("-{}", std::process::id())));
    assert!(inputs.directory.is_absolute());
}
