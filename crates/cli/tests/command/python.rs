//! Python functions through the binary: configured, listed, validated, run; and the cinema's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use vitrina_testbed::Database;

use super::{Running, Vitrina, vitrina};

const FILM_SEARCH: &str = include_str!("../../../../examples/cinema/pipelines/python/film_search.yaml");

fn functions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cinema/functions")
}

/// A command that knows this database, and the cinema's functions.
fn with_python(command: Vitrina, db: &Database) -> Vitrina {
    let (url, folder) = (db.url(), functions().display().to_string());
    command
        .variable("VITRINA_DATABASE_URL", url)
        .variable("VITRINA_CONNECTIONS_CINEMA_URL", url)
        .variable("VITRINA_PYTHON_INTERPRETER", vitrina_testbed::python().display().to_string())
        .variable("VITRINA_PYTHON_MODULES", "cinema_functions")
        .variable("VITRINA_PYTHON_PATH", folder)
}

struct Cinema {
    db: Database,
    api: String,
    _up: Running,
}

impl Cinema {
    async fn new() -> Self {
        let db = Database::fresh().await;
        vitrina_cinema::migrate(db.url()).await.unwrap();
        vitrina_cinema::seed(db.url(), 300, 1000).await.unwrap();
        let mut up = with_python(vitrina(&["up", "--listen", "127.0.0.1:0"]), &db).start();
        Self { api: format!("http://{}", up.is_up()), db, _up: up }
    }

    fn vitrina(&self, arguments: &[&str]) -> Vitrina {
        let command = with_python(vitrina(arguments), &self.db).variable("VITRINA_API_URL", &self.api);
        command.file("film_search.yaml", FILM_SEARCH)
    }
}

#[tokio::test]
async fn the_cinemas_function_is_listed_validated_applied_and_run() {
    let cinema = Cinema::new().await;
    let listed = cinema.vitrina(&["python"]).ends(0);
    assert!(
        listed.contains("film_search") && listed.contains("transform") && listed.contains("A slug"),
        "{listed}"
    );
    let said = cinema.vitrina(&["validate", "film_search.yaml"]).ends(0);
    assert!(!said.contains("FAIL") && !said.contains("unknown_task"), "{said}");
    cinema.vitrina(&["apply", "film_search.yaml", "--yes"]).ends(0);
    let run = ["run", "film_search", "--on-active", "after", "--watch"];
    cinema.vitrina(&run).ends(0);
    let films: i64 = cinema.db.value("select count(*) from content.film_work").await;
    let searched = "select count(*) from analytics.film_search where slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$' and search_text <> ''";
    assert_eq!(cinema.db.value::<i64>(searched).await, films);
    cinema
        .db
        .execute("update content.film_work set title = 'Весёлые ребята' where title = 'Star Trek'")
        .await;
    cinema.vitrina(&run).ends(0);
    let slugs = "select count(*) from analytics.film_search where slug = 'vesyolye-rebyata'";
    assert_eq!(cinema.db.value::<i64>(slugs).await, 1);
    let exported = cinema.vitrina(&["export"]).ends(0);
    assert!(exported.contains("task_type: PYTHON") && exported.contains("body: film_search"), "{exported}");
}

/// It holds the interpreter: no thread of the worker could end it.
const HANGS: &str = r#"
import os, re
from vitrina import transform

@transform
def hangs(row: dict) -> dict:
    print("pid", os.getpid(), flush=True)
    re.match("(a*)*b", "a" * 64)
    return row
"#;

const HANGING: &str = r#"
pipelines:
  - name: hanging
    source_connection: cinema
    target_table: analytics.film_search
    mode: full
    tasks:
      - { order_index: 1, task_type: SQL, body: "select id, title from content.film_work" }
      - { order_index: 2, task_type: PYTHON, body: hangs }
"#;

#[tokio::test]
async fn a_function_that_hangs_does_not_outlive_a_runner_that_was_killed() {
    let db = Database::fresh().await;
    vitrina_cinema::migrate(db.url()).await.unwrap();
    vitrina_cinema::seed(db.url(), 3, 0).await.unwrap();
    let module = tempfile::tempdir().unwrap();
    std::fs::write(module.path().join("hanging.py"), HANGS).unwrap();
    let with_hanging = |command: Vitrina| {
        with_python(command, &db)
            .variable("VITRINA_PYTHON_MODULES", "hanging")
            .variable("VITRINA_PYTHON_PATH", module.path().display().to_string())
            .variable("VITRINA_PYTHON_DEADLINE", "1h")
    };
    let mut up = with_hanging(vitrina(&["up", "--listen", "127.0.0.1:0"])).start();
    let api = format!("http://{}", up.is_up());
    let typed = |arguments: &[&str]| {
        let command = with_hanging(vitrina(arguments)).variable("VITRINA_API_URL", &api);
        command.file("hanging.yaml", HANGING).ends(0)
    };
    typed(&["apply", "hanging.yaml", "--yes"]);
    typed(&["run", "hanging"]);
    let said = up.says_until("python: pid ").pop().unwrap();
    let pid = said.split("python: pid ").nth(1).unwrap();
    let pid: i32 = pid.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
    up.signal(nix::sys::signal::Signal::SIGKILL);
    let is_gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    let killed = std::time::Instant::now();
    while !is_gone() {
        assert!(killed.elapsed() < std::time::Duration::from_secs(20), "the worker lives on");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_runner_whose_modules_cannot_be_imported_says_why_and_does_not_start() {
    let db = Database::fresh().await;
    vitrina_cinema::migrate(db.url()).await.unwrap();
    vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", db.url()).ends(0);
    let error = with_python(vitrina(&["runner"]), &db)
        .variable("VITRINA_PYTHON_MODULES", "no_such_module")
        .refuses(1);
    assert!(error.contains("no_such_module") && error.contains("ModuleNotFoundError"), "{error}");
    let error =
        with_python(vitrina(&["runner"]), &db).variable("VITRINA_PYTHON_MODULES", "../evil").refuses(2);
    assert!(error.contains("is no module"), "{error}");
}

#[test]
fn the_tests_of_the_cinemas_functions_pass() {
    let sdk = functions().join("../../../python/src").display().to_string();
    let tested = Command::new(vitrina_testbed::python())
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .env("PYTHONPATH", format!("{sdk}:."))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(functions())
        .output()
        .unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
}
