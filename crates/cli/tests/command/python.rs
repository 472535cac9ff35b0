//! Python functions through the binary: configured, listed, validated, run; and the cinema's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use vitrina_testbed::Database;

use super::{Running, Vitrina, text, vitrina};

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
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
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

#[tokio::test]
async fn a_function_is_written_with_its_test_registered_by_the_lines_it_says_and_run() {
    let db = Database::fresh().await;
    db.execute("create schema content; create table content.film (id int primary key, title text); insert into content.film values (1, ' Solo ')").await;
    let project = tempfile::tempdir().unwrap();
    let typed = |arguments: &[&str]| {
        let command = vitrina(arguments).within(project.path()).variable("VITRINA_DATABASE_URL", db.url());
        command
            .variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
            .variable("VITRINA_PYTHON_INTERPRETER", vitrina_testbed::python().display().to_string())
    };
    assert!(typed(&["transform", "test"]).refuses(2).contains("`vitrina transform new NAME`"));
    let output = typed(&["transform", "new", "film_title"]).output();
    let (wrote, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(wrote.lines().count(), 3, "{wrote}{said}");
    assert!(typed(&["transform", "new", "film_title"]).refuses(2).contains("film_title.py is there already"));
    for name in ["Film", "class", "../evil", "json", "golden"] {
        typed(&["transform", "new", name]).ends(2);
    }
    let tested = typed(&["transform", "test"]).ends(0);
    assert!(tested.contains("3 passed"), "{tested}");
    let spy = "import os, sys\n\ndef test_it_sees_what_workers_see():\n    assert 'VITRINA_DATABASE_URL' not in os.environ and '' not in sys.path\n";
    std::fs::write(project.path().join("functions/tests/spy_test.py"), spy).unwrap();
    typed(&["transform", "test"]).ends(0);
    let tested =
        typed(&["transform", "test", "functions/tests/film_title_test.py", "--", "-k", "trimmed"]).ends(0);
    assert!(tested.contains("1 passed"), "{tested}");

    let lines: Vec<&str> = said.lines().skip_while(|line| !line.contains("[python]")).take(3).collect();
    std::fs::write(project.path().join("vitrina.toml"), lines.join("\n")).unwrap();
    let task = said.lines().find(|line| line.contains("task_type")).unwrap();
    let pipeline = format!(
        "targets: [{{name: analytics.film, key: [id], create_if_missing: true}}]\npipelines:\n- name: films\n  source_connection: cinema\n  target_table: analytics.film\n  tasks:\n  - {{ order_index: 1, task_type: SQL, body: \"select id, title from content.film\" }}\n{task}\n"
    );
    std::fs::write(project.path().join("films.yaml"), pipeline).unwrap();
    let mut up = typed(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = format!("http://{}", up.is_up());
    let ask = |arguments: &[&str]| typed(arguments).variable("VITRINA_API_URL", &api);
    ask(&["apply", "films.yaml", "--yes"]).ends(0);
    ask(&["run", "films", "--watch", "--timeout", "60s"]).ends(0);
    assert_eq!(db.value::<String>("select title from analytics.film").await, "Solo");
    let test = project.path().join("functions/tests/film_title_test.py");
    std::fs::write(test, "def test_fails():\n    assert False\n").unwrap();
    assert!(typed(&["transform", "test"]).ends(1).contains("1 failed"));
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
