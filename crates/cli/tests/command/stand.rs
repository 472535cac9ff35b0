//! A stand put together step by step, as `make up` does it, and the commands that operate it.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};

use super::{Running, Vitrina, address, forget_settings, place, stand_variables, vitrina};

pub(super) struct Stand {
    variables: Vec<(String, String)>,
}

impl Stand {
    pub(super) fn start(directory: &Path) -> Self {
        vitrina(&["demo", "postgres", "start", "--dir", directory.to_str().unwrap()]).ends(0);
        let stand = Self { variables: stand_variables(directory) };
        for step in
            [&["migrate"][..], &["demo", "migrate"], &["demo", "roles"], &["demo", "seed", "--films", "50"]]
        {
            stand.as_owner(step).ends(0);
        }
        stand
    }

    pub(super) fn vitrina(&self, arguments: &[&str]) -> Vitrina {
        vitrina(arguments).variables(&self.variables)
    }

    fn as_owner(&self, arguments: &[&str]) -> Vitrina {
        self.vitrina(arguments).variable("VITRINA_DATABASE_URL", self.owner())
    }

    fn owner(&self) -> &str {
        self.value("CINEMA_ADMIN_URL")
    }

    pub(super) fn value(&self, variable: &str) -> &str {
        &self.variables.iter().find(|(name, _)| name == variable).unwrap().1
    }

    /// Of every login in its variables.
    pub(super) fn passwords(&self) -> impl Iterator<Item = String> {
        let urls = self.variables.iter().filter_map(|(_, value)| url::Url::parse(value).ok());
        urls.filter_map(|url| url.password().map(str::to_owned))
    }

    pub(super) async fn owner_session(&self) -> PgConnection {
        PgConnection::connect(self.owner()).await.unwrap()
    }
}

#[tokio::test]
async fn a_stand_of_single_steps_is_operated_from_the_command_line() {
    let (_parent, directory) = place();
    let stand = Stand::start(&directory);
    let mut up = stand.vitrina(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = address(up.says_until("the API listens").last().unwrap());
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", format!("http://{api}"));

    // The login of the services may write marts and nothing else; the runs below are its proof.
    stand.as_owner(&["demo", "verify"]).ends(3);
    ask(&["health"]).ends(0);
    for pipeline in ["film_dim_full", "film_rating_agg_full"] {
        assert!(ask(&["run", pipeline, "--watch", "--timeout", "60s"]).ends(0).contains("is SUCCESS: "));
    }
    assert!(stand.as_owner(&["demo", "verify"]).ends(0).contains("film_dim: 50 rows, equal to its source"));
    let status: serde_json::Value =
        serde_json::from_str(&ask(&["status", "film_dim_full", "-o", "json"]).ends(0)).unwrap();
    assert_eq!((&status["status"], &status["last_run"]["rows_read"]), (&"IDLE".into(), &50.into()));
    assert!(ask(&["runs", "film_dim_full"]).ends(0).lines().count() == 2);
    one_list_has_four_forms(ask);

    ask(&["cancel", "film_dim_full"]).refuses(5);
    assert!(ask(&["disable", "film_dim_full"]).ends(0).contains("film_dim_full: IDLE, disabled"));
    assert!(ask(&["run", "film_dim_full"]).refuses(5).contains("disabled"));
    ask(&["enable", "film_dim_full"]).ends(0);
    assert!(
        ask(&["resume", "film_dim_full"])
            .refuses(5)
            .contains("film_dim_full is IDLE, neither paused nor failed")
    );
    assert!(ask(&["pause", "film_dim_full"]).ends(0).contains("film_dim_full: PAUSED"));
    let resumed = ask(&["resume", "film_dim_full", "--watch", "--timeout", "60s"]).ends(0);
    assert!(resumed.contains("is SUCCESS: "), "{resumed}");
    ask(&["pause", "film_dim_full"]).ends(0);
    let audit = ask(&["audit", "--limit", "3"]).ends(0);
    assert!(audit.lines().nth(1).unwrap().contains("pipeline.pause"), "{audit}");
    for unknown in ["no_such_pipeline", "a/b"] {
        assert!(ask(&["status", unknown]).refuses(2).contains("hint: `vitrina status` lists them"));
    }

    the_login_of_the_services_migrates_only_what_needs_nothing(&stand).await;
    a_watched_run_can_be_left(&stand, ask).await;
    a_status_is_watched(&stand, ask).await;
    a_list_fits_its_terminal(&api);
    a_status_is_drawn_in_place(ask, &api);
    a_failed_run_ends_with_its_reason(&stand, ask).await;
    a_schedule_is_shown_and_kept(&stand, ask).await;
    a_runner_is_drained(&stand, ask);
    the_runner_of_up_drains_and_the_api_stays(ask);

    up.signal(Signal::SIGINT);
    up.ends(0);
    let path = directory.to_str().unwrap();
    vitrina(&["demo", "postgres", "stop", "--dir", path]).ends(0);
    assert!(directory.exists());
    vitrina(&["demo", "postgres", "stop", "--clean", "--dir", path]).ends(0);
    assert!(!directory.exists());
}

fn one_list_has_four_forms(ask: impl Fn(&[&str]) -> Vitrina) {
    let json: serde_json::Value = serde_json::from_str(&ask(&["status", "-o", "json"]).ends(0)).unwrap();
    let names = |items: &serde_json::Value| {
        items.as_array().unwrap().iter().map(|item| item["name"].clone()).collect::<Vec<_>>()
    };
    let lines = ask(&["status", "-o", "ndjson"]).ends(0);
    let lines: serde_json::Value =
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect();
    assert_eq!(names(&lines), names(&json["items"]));
    let yaml: serde_json::Value = serde_norway::from_str(&ask(&["status", "-o", "yaml"]).ends(0)).unwrap();
    assert_eq!(names(&yaml["items"]), names(&json["items"]));
    let logged = ask(&["logs", "film_dim_full", "-o", "yaml"]).ends(0);
    let logged: Vec<serde_json::Value> = serde_norway::from_str(&logged).unwrap();
    assert!(logged.iter().any(|line| line["fields"]["rows_read"] == 50), "{logged:?}");
}

async fn the_login_of_the_services_migrates_only_what_needs_nothing(stand: &Stand) {
    stand.vitrina(&["migrate"]).ends(0);
    let mut owner = stand.owner_session().await;
    let forget = "create table forgotten as table etl.etl_migrations; \
                  delete from etl.etl_migrations where version = (select max(version) from etl.etl_migrations)";
    sqlx::raw_sql(forget).execute(&mut owner).await.unwrap();
    let error = stand.vitrina(&["migrate"]).refuses(4);
    assert!(error.contains("(SQLSTATE 42501)") && !error.contains("at line"), "{error}");
    assert!(error.contains("as the owner of the database, then `vitrina roles`"), "{error}");
    let remember =
        "insert into etl.etl_migrations select * from forgotten on conflict do nothing; drop table forgotten";
    sqlx::raw_sql(remember).execute(&mut owner).await.unwrap();
    owner.close().await.unwrap();
}

/// A lock on the source holds the run, and nothing else, until the test lets go.
async fn a_watched_run_can_be_left(stand: &Stand, ask: impl Fn(&[&str]) -> Vitrina) {
    let mut owner = stand.owner_session().await;
    sqlx::raw_sql("begin; lock table content.film_work").execute(&mut owner).await.unwrap();
    let watch = ["run", "film_dim_full", "--watch"];
    let mut watching = ask(&watch).start();
    watching.says_until("RUNNING");
    watching.signal(Signal::SIGINT);
    watching.ends(130);
    assert!(ask(&[&watch[..], &["--timeout", "1ms"]].concat()).refuses(124).contains("the run goes on"));
    ask(&["run", "film_dim_full", "--on-active", "reject"]).refuses(5);
    owner.close().await.unwrap();
    ask(&watch).ends(0);
}

async fn a_schedule_is_shown_and_kept(stand: &Stand, ask: impl Fn(&[&str]) -> Vitrina) {
    let mut owner = stand.owner_session().await;
    let schedule = |text: &str| {
        format!("update etl.etl_pipelines set schedule_interval = '{text}' where name = 'film_dim_full'")
    };
    sqlx::raw_sql(sqlx::AssertSqlSafe(schedule("0 3 1 1 *"))).execute(&mut owner).await.unwrap();
    comes_to_show(&ask, "next run: ");
    assert!(ask(&["status"]).ends(0).contains("-01-01 03:00"));
    sqlx::raw_sql(sqlx::AssertSqlSafe(schedule("now and then"))).execute(&mut owner).await.unwrap();
    comes_to_show(&ask, "no next run: \"now and then\" is no length of time");
    assert!(ask(&["status"]).ends(0).contains("bad schedule"));
    owner.close().await.unwrap();
}

/// Elsewhere than on a terminal: the whole list once, then a line for every change.
async fn a_status_is_watched(stand: &Stand, ask: impl Fn(&[&str]) -> Vitrina) {
    let mut watching = ask(&["status", "--watch"]).start();
    watching.prints_until("film_rating_agg_full");
    let mut owner = stand.owner_session().await;
    sqlx::raw_sql("begin; lock table content.film_work").execute(&mut owner).await.unwrap();
    ask(&["run", "film_dim_full"]).ends(0);
    let line = watching.prints_until("RUNNING").pop().unwrap();
    assert!(line.contains("Z  film_dim_full  RUNNING"), "{line}");
    owner.close().await.unwrap();
    let line = watching.prints_until("film_dim_full  IDLE").pop().unwrap();
    assert!(line.contains("SUCCESS") && !line.contains("film_rating_agg_full"), "{line}");
    watching.signal(Signal::SIGINT);
    watching.ends(130);
    let mut watching = ask(&["status", "film_dim_full", "--watch", "-o", "ndjson"]).start();
    let line = watching.prints_until("film_dim_full").pop().unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["status"], "IDLE");
    watching.signal(Signal::SIGTERM);
    watching.ends(130);
}

/// `script` of bsdutils gives it one of sixty columns.
fn on_terminal(command: &str, api: &str) -> Command {
    let binary = assert_cmd::cargo::cargo_bin!("vitrina").display().to_string();
    let typed = format!("stty cols 60 rows 20; VITRINA_API_URL=http://{api} {binary} {command}");
    let mut script = Command::new("script");
    forget_settings(&mut script);
    script.args(["-qec", &typed, "/dev/null"]).stdin(Stdio::null());
    script
}

fn a_status_is_drawn_in_place(ask: impl Fn(&[&str]) -> Vitrina, api: &str) {
    let mut watching = Running::of(on_terminal("status --watch", api));
    watching.prints_until("film_rating_agg_full");
    ask(&["disable", "film_dim_full"]).ends(0);
    // Three lines up: the header and two pipelines are written over.
    watching.prints_until("\u{1b}[3A");
    ask(&["enable", "film_dim_full"]).ends(0);
}

fn a_list_fits_its_terminal(api: &str) {
    let on_terminal = |command: &str| {
        let output = on_terminal(command, api).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let list = on_terminal("status");
    assert!(list.lines().all(|line| line.trim_end().chars().count() <= 60), "{list}");
    assert!(list.contains("film_dim_full") && list.contains('…'), "{list}");
    let run = on_terminal("run film_dim_full --watch");
    assert!(run.contains("is SUCCESS"), "{run}");
}

#[tokio::test]
async fn a_killed_runner_is_replaced_and_its_heir_says_how_many_pipelines_it_took_over() {
    let (_parent, directory) = place();
    let stand = Stand::start(&directory);
    let mut serve = stand.vitrina(&["serve", "--listen", "127.0.0.1:0"]).start();
    let api = address(serve.says_until("the API listens").last().unwrap());
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", format!("http://{api}"));
    let runner = |name: &str| {
        let runner = stand.vitrina(&["runner"]).variable("VITRINA_RUNNER_LEASE", "1s");
        let mut runner = runner.variable("VITRINA_RUNNER_NAME", name).start();
        runner.says_until("the runner is ready");
        runner
    };
    let mut owner = stand.owner_session().await;
    sqlx::raw_sql("begin; lock table analytics.film_dim in share mode").execute(&mut owner).await.unwrap();
    let mut doomed = runner("doomed");
    ask(&["run", "film_dim_full"]).ends(0);
    doomed.says_until("run started");
    doomed.signal(Signal::SIGKILL);
    let mut heir = runner("heir");
    let told = heir.says_until("took over pipelines that another runner left behind");
    let told: serde_json::Value = serde_json::from_str(told.last().unwrap()).unwrap();
    assert_eq!((&told["pipelines"], &told["level"]), (&1.into(), &"warn".into()));
    owner.close().await.unwrap();
    let watched = ask(&["run", "film_dim_full", "--watch", "--timeout", "60s"]).ends(0);
    assert!(watched.contains("is SUCCESS: 50 rows read"), "the same run: {watched}");
    let taken_over = || {
        let runners: serde_json::Value =
            serde_json::from_str(&ask(&["runners", "-o", "json"]).ends(0)).unwrap();
        let heir = runners["items"].as_array().unwrap().iter().find(|runner| runner["name"] == "heir");
        heir.unwrap()["taken_over"] == 1
    };
    assert!((0..500).any(|_| taken_over()), "its next heartbeat counts it");
}

/// The runner looks at a new schedule when it hears of it.
fn comes_to_show(ask: &impl Fn(&[&str]) -> Vitrina, text: &str) {
    let shows = || ask(&["status", "film_dim_full"]).ends(0).contains(text);
    assert!((0..500).any(|_| shows()), "the status never shows {text:?}");
}

fn the_runner_of_up_drains_and_the_api_stays(ask: impl Fn(&[&str]) -> Vitrina) {
    let runners: serde_json::Value = serde_json::from_str(&ask(&["runners", "-o", "json"]).ends(0)).unwrap();
    let ready = runners["items"].as_array().unwrap().iter().find(|runner| runner["status"] == "READY");
    let name = ready.expect("the runner of `up`")["name"].as_str().unwrap();
    ask(&["drain", name, "--watch", "--timeout", "60s"]).ends(0);
    ask(&["health"]).ends(0);
}

fn a_runner_is_drained(stand: &Stand, ask: impl Fn(&[&str]) -> Vitrina) {
    let mut runner = stand.vitrina(&["runner"]).variable("VITRINA_RUNNER_NAME", "second").start();
    runner.says_until("the runner is ready");
    let listed = ask(&["runners"]).ends(0);
    assert!(listed.lines().any(|line| line.starts_with("second ") && line.contains("READY")), "{listed}");
    let drained = ask(&["drain", "second", "--watch", "--timeout", "60s"]).ends(0);
    assert!(drained.contains("second is STOPPED"), "{drained}");
    runner.ends(0);
    assert!(ask(&["drain", "second"]).refuses(5).contains("has stopped or is silent"));
    assert!(ask(&["drain", "nobody"]).refuses(2).contains("there is no runner \"nobody\""));
}

async fn a_failed_run_ends_with_its_reason(stand: &Stand, ask: impl Fn(&[&str]) -> Vitrina) {
    let mut owner = stand.owner_session().await;
    let revoke = "revoke select on ugc.ratings from vitrina_reader";
    sqlx::raw_sql(revoke).execute(&mut owner).await.unwrap();
    let error = ask(&["run", "film_rating_agg_full", "--watch"]).refuses(1);
    assert!(error.contains("permission denied for table ratings"), "{error}");
    owner.close().await.unwrap();
}
