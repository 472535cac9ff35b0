//! Workers that are real Python processes, and functions that do what they should not.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_array::{Array, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;
use vitrina_core::{Error, Remedy};
use vitrina_python::{Context, Python, PythonSettings, Session, TaskUse, Transformed};
use vitrina_testbed::{capture_logs, python};

/// A module, and the Python that has registered it.
struct Stage {
    folder: TempDir,
    settings: PythonSettings,
}

const HEAD: &str = "
import os, signal, subprocess, sys, time
import pyarrow
from vitrina import Context, Reject, Retry, transform
";

impl Stage {
    fn new(code: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("films.py"), format!("{HEAD}{code}")).unwrap();
        let settings = PythonSettings {
            interpreter: python(),
            modules: vec!["films".to_owned()],
            path: vec![folder.path().to_owned()],
            variables: Vec::new(),
            user: None,
            warm: 1,
            workers_a_run: 1,
            deadline: Duration::from_secs(30),
            memory_limit: 1 << 30,
            batches_a_worker: 1000,
        };
        Self { folder, settings }
    }

    async fn start(&self) -> Result<Arc<Python>, Error> {
        Python::start(self.settings.clone()).await
    }

    async fn session(&self) -> (Arc<Python>, Session) {
        let python = self.start().await.unwrap();
        let session = python.session();
        (python, session)
    }
}

/// Keeps what is logged.
#[derive(Clone)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn films(count: i32) -> RecordBatch {
    let schema =
        Schema::new(vec![Field::new("id", DataType::Int32, true), Field::new("title", DataType::Utf8, true)]);
    let titles: StringArray = (0..count).map(|id| Some(format!("Film {id}"))).collect();
    RecordBatch::try_new(
        Arc::new(schema),
        vec![Arc::new(Int32Array::from_iter_values(0..count)), Arc::new(titles)],
    )
    .unwrap()
}

async fn call(
    python: &Python,
    session: &mut Session,
    name: &str,
    rows: &RecordBatch,
) -> Result<Transformed, Error> {
    let task = python.registry().find(name, TaskUse::Transform)?.clone();
    let context = Context {
        pipeline: "films".into(),
        run_id: "1".into(),
        mode: "full".into(),
        batch: 1,
        batch_size: 1000,
    };
    session.transform(&task, rows, &context).await
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<String> {
    let column = rows.column_by_name(column).unwrap();
    let texts = column.as_any().downcast_ref::<StringArray>().unwrap();
    texts.iter().map(|text| text.unwrap().to_owned()).collect()
}

#[tokio::test]
async fn functions_of_every_batch_type_see_the_rows_and_change_them() {
    let stage = Stage::new(
        r#"
import pandas, polars, pyarrow.compute as compute

@transform
def by_arrow(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    return rows.append_column("slug", compute.utf8_lower(rows["title"]))

@transform
def by_polars(rows: polars.DataFrame) -> polars.DataFrame:
    return rows.with_columns(slug=polars.col("title").str.to_lowercase())

@transform
def by_pandas(rows: pandas.DataFrame) -> pandas.DataFrame:
    rows["slug"] = rows["title"].str.lower()
    return rows

@transform
def by_rows(rows: list[dict]) -> list[dict]:
    return [row | {"slug": row["title"].lower()} for row in rows]

@transform
def by_row(row: dict) -> dict:
    return row | {"slug": row["title"].lower()}
"#,
    );
    let (python, mut session) = stage.session().await;
    for name in ["by_arrow", "by_polars", "by_pandas", "by_rows", "by_row"] {
        let Transformed { rows, refused } = call(&python, &mut session, name, &films(3)).await.unwrap();
        assert_eq!(texts(&rows, "slug"), ["film 0", "film 1", "film 2"], "{name}");
        assert_eq!(rows.schema().field(0), films(1).schema().field(0), "{name}: as it was");
        assert!(refused.is_empty());
        let none = call(&python, &mut session, name, &films(0)).await.unwrap();
        assert_eq!((none.rows.num_rows(), none.rows.schema()), (0, rows.schema()), "{name}");
    }
}

#[tokio::test]
async fn a_column_keeps_its_type_where_a_batch_has_nothing_but_null_in_it() {
    let stage = Stage::new(
        r#"
@transform
def rated(row: dict):
    return {"id": row["id"], "rating": 8.5 if row["title"] else None, "never": None}
"#,
    );
    let (python, mut session) = stage.session().await;
    let rated = call(&python, &mut session, "rated", &films(2)).await.unwrap().rows;
    assert_eq!(rated.schema().field(1).data_type(), &DataType::Float64);
    assert_eq!(rated.schema().field(2).data_type(), &DataType::Utf8);
    let nameless = StringArray::from(vec![None::<&str>; 2]);
    let nameless =
        RecordBatch::try_new(films(2).schema(), vec![films(2).column(0).clone(), Arc::new(nameless)])
            .unwrap();
    let unrated = call(&python, &mut session, "rated", &nameless).await.unwrap().rows;
    assert_eq!((unrated.schema(), unrated.column(1).null_count()), (rated.schema(), 2));
}

#[tokio::test]
async fn rows_that_are_refused_are_told_by_their_place_and_reason() {
    let stage = Stage::new(
        r#"
@transform
def odd(row: dict):
    if row["id"] % 2 == 0:
        raise Reject("even", code="even")
    return row
"#,
    );
    let (python, mut session) = stage.session().await;
    let Transformed { rows, refused } = call(&python, &mut session, "odd", &films(4)).await.unwrap();
    assert_eq!(rows.num_rows(), 2);
    let told: Vec<_> = refused.iter().map(|refused| (refused.row, refused.message.as_str())).collect();
    assert_eq!(told, [(0, "even"), (2, "even")]);
}

const HARM: &str = r#"
@transform
def raises(row: dict):
    return row["nothing"]

@transform
def retries(row: dict):
    raise Retry("the service is away")

@transform
def exits(rows: list[dict]):
    os._exit(3)

@transform
def crashes(rows: list[dict]):
    os.kill(os.getpid(), signal.SIGSEGV)

@transform
def hangs(rows: list[dict]):
    while True:
        time.sleep(1)

@transform
def eats(rows: list[dict]):
    kept = []
    while True:
        kept.append(bytearray(10_000_000))

@transform
def lets_a_child_eat(rows: list[dict]):
    subprocess.run([sys.executable, "-c", "kept = []\nwhile True: kept.append(bytearray(10_000_000))"])

@transform
def lies(rows: list[dict]):
    return 7

@transform
def invents(rows: pyarrow.RecordBatch):
    return rows.append_column("span", pyarrow.array([[[1]]] * len(rows)))

@transform
def leaves(rows: list[dict]):
    sys.exit(0)

@transform
def prints_without_end(rows: list[dict]):
    subprocess.run(["yes"])

@transform
def fine(row: dict):
    return row
"#;

#[tokio::test]
async fn whatever_a_function_does_is_an_error_of_its_own_batch() {
    let mut stage = Stage::new(HARM);
    stage.settings.deadline = Duration::from_secs(2);
    stage.settings.memory_limit = 300 << 20;
    let (python, mut session) = stage.session().await;
    for (name, code, remedy, said) in [
        ("raises", "python.exception", Remedy::FixConfiguration, "films.py:"),
        ("retries", "python.retry", Remedy::Retry, "the service is away"),
        ("exits", "python.crashed", Remedy::Retry, "exit code 3"),
        ("crashes", "python.crashed", Remedy::Retry, "signal 11"),
        ("hangs", "python.deadline", Remedy::Retry, "python.deadline"),
        ("eats", "python.memory", Remedy::FixConfiguration, "python.memory_limit"),
        ("lets_a_child_eat", "python.memory", Remedy::FixConfiguration, "300 MB"),
        ("prints_without_end", "python.deadline", Remedy::Retry, "python.deadline"),
        ("lies", "python.contract", Remedy::FixConfiguration, "lies"),
        ("invents", "python.contract", Remedy::FixConfiguration, "span"),
        ("leaves", "python.exception", Remedy::FixConfiguration, "SystemExit"),
    ] {
        let error = call(&python, &mut session, name, &films(2)).await.unwrap_err();
        assert_eq!((error.code, error.remedy), (code, remedy), "{name}: {error}");
        assert!(error.with_values().contains(said), "{name}: {error}");
        assert_eq!(
            call(&python, &mut session, "fine", &films(2)).await.unwrap().rows.num_rows(),
            2,
            "after {name}"
        );
    }
}

#[tokio::test]
async fn what_is_printed_is_logged_and_does_not_disturb_the_rows() {
    let stage = Stage::new(
        r#"
@transform
def talks(rows: list[dict]):
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.write(1, b"past the interpreter\n")
    subprocess.run(["echo", "from a child"])
    print("x" * 100_000)
    for number in range(2000):
        print("line", number)
    if os.fork() == 0:
        print("from a fork")
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    return rows

@transform
def is_silent(rows: list[dict]):
    for stream in (1, 2):
        try:
            os.close(stream)
        except OSError:
            pass
    return rows
"#,
    );
    let (python, mut session) = stage.session().await;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let listening = capture_logs(tracing_subscriber::fmt().with_writer(Lines(Arc::clone(&lines))).finish());
    call(&python, &mut session, "talks", &films(2)).await.unwrap();
    drop(listening);
    let told = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    for line in ["to stdout", "to stderr", "past the interpreter", "from a child", "line 7", "left out"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(told.len() < 500_000, "lines and their number are limited");
    for _ in 0..2 {
        call(&python, &mut session, "is_silent", &films(2)).await.unwrap();
    }
}

#[tokio::test]
async fn a_forked_child_that_stays_is_ended_with_its_worker() {
    let stage = Stage::new(
        r#"
@transform
def leaves_a_child(rows: list[dict]):
    child = os.fork()
    if child == 0:
        time.sleep(600)
    return [{"id": child}]

@transform
def exits(rows: list[dict]):
    os._exit(1)
"#,
    );
    let (python, mut session) = stage.session().await;
    let Transformed { rows, .. } = call(&python, &mut session, "leaves_a_child", &films(1)).await.unwrap();
    let child = rows.column(0).as_any().downcast_ref::<Int32Array>().unwrap().value(0);
    call(&python, &mut session, "exits", &films(1)).await.unwrap_err();
    let started = Instant::now();
    while !is_gone(child) {
        assert!(started.elapsed() < Duration::from_secs(10), "the child lives on");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

// As in a container without an init: whoever loses its parent becomes a child of this process.
#[tokio::test]
async fn a_runner_that_is_the_first_process_leaves_no_dead_behind() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let stage = Stage::new(
        r#"
@transform
def group(rows: list[dict]):
    if os.fork() == 0:
        time.sleep(600)
    def of_group(pid):
        try:
            return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[2] == str(os.getpgrp())
        except OSError:
            return False  # another process of the machine, which has ended meanwhile
    return [{"id": int(pid)} for pid in os.listdir("/proc") if pid.isdigit() and of_group(pid)]

@transform
def exits(rows: list[dict]):
    os._exit(1)
"#,
    );
    for ended_by in ["itself", "the runner"] {
        let (python, mut session) = stage.session().await;
        let rows = call(&python, &mut session, "group", &films(1)).await.unwrap().rows;
        let group = rows.column(0).as_any().downcast_ref::<Int32Array>().unwrap().values().to_vec();
        assert!(group.len() >= 3, "the worker, its guardian and its child: {group:?}");
        if ended_by == "itself" {
            call(&python, &mut session, "exits", &films(1)).await.unwrap_err();
        }
        drop((session, python));
        let started = Instant::now();
        while group.iter().any(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "some of {group:?} are left, ended by {ended_by}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_worker_that_has_served_its_batches_is_replaced() {
    let mut stage = Stage::new("\n@transform\ndef who(row: dict):\n    return {\"id\": os.getpid()}\n");
    stage.settings.batches_a_worker = 2;
    let (python, mut session) = stage.session().await;
    let mut pids = Vec::new();
    for _ in 0..4 {
        let rows = call(&python, &mut session, "who", &films(1)).await.unwrap().rows;
        pids.push(rows.column(0).as_any().downcast_ref::<Int32Array>().unwrap().value(0));
    }
    assert!(pids[0] == pids[1] && pids[2] == pids[3] && pids[1] != pids[2], "{pids:?}");
}

#[tokio::test]
async fn functions_see_the_variables_that_they_are_given_and_no_others() {
    let mut stage = Stage::new(
        "\n@transform\ndef sees(row: dict):\n    return {\"title\": \",\".join(sorted(os.environ))}\n",
    );
    stage.settings.variables = vec!["CARGO_MANIFEST_DIR".to_owned()];
    let (python, mut session) = stage.session().await;
    let rows = call(&python, &mut session, "sees", &films(1)).await.unwrap().rows;
    let seen = &texts(&rows, "title")[0];
    assert!(seen.contains("CARGO_MANIFEST_DIR") && seen.contains("PATH"), "{seen}");
    assert!(!seen.contains("CARGO_PKG_NAME") && !seen.contains("VITRINA"), "{seen}");
}

#[tokio::test]
async fn modules_that_cannot_be_registered_are_told_with_the_line_to_mend() {
    for (code, said) in [
        ("\nimport nothing_like_that\n", "nothing_like_that"),
        ("\n1 / 0\n", "films.py:6"),
        ("\n@transform\ndef untyped(rows):\n    return rows\n", "untyped"),
        (
            "\n@transform\ndef same(row: dict): ...\n@transform(name=\"same\")\ndef other(row: dict): ...\n",
            "same",
        ),
    ] {
        let error = Stage::new(code).start().await.unwrap_err();
        assert_eq!((error.code, error.remedy), ("python.modules", Remedy::FixConfiguration));
        assert!(error.to_string().contains(said), "{said}: {error}");
    }
    let mut stage = Stage::new("");
    stage.settings.interpreter = "/nowhere/python".into();
    assert_eq!(stage.start().await.unwrap_err().code, "python.interpreter");
}

#[tokio::test]
async fn code_that_has_changed_under_a_running_runner_is_not_run() {
    let stage = Stage::new(HARM);
    let (python, mut session) = stage.session().await;
    let module = stage.folder.path().join("films.py");
    // The one that was kept warm has the old code; it serves, and dies.
    std::fs::write(&module, format!("{HEAD}{HARM}\n# changed\n")).unwrap();
    let error = loop {
        match call(&python, &mut session, "exits", &films(1)).await {
            Err(error) if error.code == "python.crashed" => {}
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(error.code, "python.changed");
}

#[tokio::test]
async fn a_name_that_is_not_registered_is_never_looked_for() {
    let (python, mut session) = Stage::new(HARM).session().await;
    for name in ["os.system", "films.raises", "../films", "eval", "__import__('os')", ""] {
        assert_eq!(
            call(&python, &mut session, name, &films(1)).await.unwrap_err().code,
            "python.unknown_task"
        );
    }
}

/// A process that is gone, or waits to be reaped by one that has other things to do.
fn is_gone(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    status.map_or(true, |stat| stat.contains(") Z "))
}

async fn number(python: &Python, session: &mut Session, name: &str) -> i32 {
    let rows = call(python, session, name, &films(1)).await.unwrap().rows;
    rows.column(0).as_any().downcast_ref::<Int32Array>().unwrap().value(0)
}

#[tokio::test]
async fn memory_that_earlier_batches_have_left_fails_no_later_one() {
    let mut stage = Stage::new(
        r#"
kept = []

@transform
def leaks(row: dict):
    kept.append(bytearray(b"x" * 80_000_000))
    time.sleep(0.2)
    return {"id": os.getpid()}

@transform
def who(row: dict):
    return {"id": os.getpid()}
"#,
    );
    stage.settings.memory_limit = 300 << 20;
    let (python, mut session) = stage.session().await;
    let mut pids = std::collections::BTreeSet::new();
    for _ in 0..8 {
        pids.insert(number(&python, &mut session, "leaks").await);
    }
    assert!(pids.len() > 1, "{pids:?}");
    for _ in 0..2 {
        number(&python, &mut session, "leaks").await;
    }
    let heavy = number(&python, &mut session, "who").await;
    drop(session);
    assert_ne!(number(&python, &mut python.session(), "who").await, heavy, "nobody gets what it holds");
}

#[tokio::test]
async fn a_worker_is_measured_with_what_its_threads_have_started() {
    let mut stage = Stage::new(
        r#"
import threading

@transform
def lets_a_thread_eat(rows: list[dict]):
    eat = [sys.executable, "-c", "kept = []\nwhile True: kept.append(bytearray(b'x' * 10_000_000))"]
    thread = threading.Thread(target=subprocess.run, args=(eat,))
    thread.start()
    thread.join()
"#,
    );
    stage.settings.memory_limit = 300 << 20;
    let (python, mut session) = stage.session().await;
    let error = call(&python, &mut session, "lets_a_thread_eat", &films(1)).await.unwrap_err();
    assert_eq!(error.code, "python.memory");
}

#[tokio::test]
async fn a_module_beside_the_runner_is_nobodys_and_one_of_the_path_is_found() {
    let stage =
        Stage::new("\n@transform\ndef sees(row: dict):\n    return {\"title\": \",\".join(sys.path)}\n");
    let (python, mut session) = stage.session().await;
    let rows = call(&python, &mut session, "sees", &films(1)).await.unwrap().rows;
    let seen = &texts(&rows, "title")[0];
    let here = std::env::current_dir().unwrap();
    assert!(seen.contains(stage.folder.path().to_str().unwrap()), "{seen}");
    assert!(
        seen.split(',').all(|folder| !folder.is_empty() && std::path::Path::new(folder) != here),
        "{seen}"
    );
}
