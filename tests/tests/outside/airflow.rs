//! R-ARC-6: `examples/airflow` against the real binary. A task is a process that runs its module; where this machine has no
//! Python, nothing is tried.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::process::{Process, python};
use crate::stand::{Stand, TOKEN, root};

fn has_python() -> bool {
    let asked = std::process::Command::new("python3").arg("--version").output();
    let has = asked.is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("not tried: this machine has no python3");
    }
    has
}

impl Stand {
    /// A task of a DAG run that has just been started.
    fn task(&self, dag_run: &str, settings: &Value) -> Process {
        let mut arguments = json!({"pipeline": "film_dim", "key": dag_run});
        arguments.as_object_mut().unwrap().extend(settings.as_object().cloned().unwrap_or_default());
        let mut command = python("python3");
        command
            .arg(root().join("tests/tests/outside/task.py"))
            .arg(root().join("examples/airflow"))
            .arg(arguments.to_string())
            .env("VITRINA_API_URL", &self.url)
            .env("VITRINA_API_TOKEN", TOKEN)
            .env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        Process::start(&format!("task of {dag_run}"), command)
    }

    async fn rows(&self) -> i64 {
        self.database.value("select count(*) from analytics.film_dim").await
    }

    async fn runs(&self) -> i64 {
        self.database.value("select count(*) from etl.etl_runs").await
    }

    async fn ask(&self, what: &str) {
        let (status, answer) = self.call("POST", &format!("/pipelines/film_dim/{what}"), Value::Null).await;
        assert_eq!(status, 202, "{answer}");
    }
}

/// How a task ended.
async fn end(task: Process) -> Value {
    let (status, said) = task.ends().await;
    assert!(status.success(), "{said}");
    let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no end: {said}"));
    serde_json::from_str(line).unwrap()
}

#[tokio::test]
async fn a_task_succeeds_with_its_run_and_a_retried_one_starts_no_second_run() {
    if !has_python() {
        return;
    }
    let stand = Stand::start_with_films().await;
    let gate = stand.close_gate().await;
    let _runner = stand.runner("r1", "2s").await;
    let (first, second) = (stand.task("monday", &json!({})), stand.task("monday", &json!({})));
    first.says("run ").await;
    second.says("run ").await;
    gate.open().await;
    let (first, second) = (end(first).await, end(second).await);
    assert_eq!((&first["end"], &first["run"]["rows_written"]), (&json!("SUCCESS"), &json!(50)), "{first}");
    assert_eq!((stand.rows().await, stand.runs().await), (50, 1));
    let third = end(stand.task("monday", &json!({}))).await;
    assert_eq!([&second["run"]["id"], &third["run"]["id"]], [&first["run"]["id"]; 2]);
    let trace: String = stand.database.value("select traceparent from etl.etl_runs").await;
    assert!(trace.contains("0af7651916cd43dd8448eb211c80319c"), "{trace}");
    assert_ne!(end(stand.task("tuesday", &json!({}))).await["run"]["id"], first["run"]["id"]);
}

#[tokio::test]
async fn a_task_is_not_content_with_a_run_that_began_before_it_asked() {
    if !has_python() {
        return;
    }
    let stand = Stand::start_with_films().await;
    let gate = stand.close_gate().await;
    let runner = stand.runner("r1", "2s").await;
    stand.ask("run").await;
    runner.says("run started").await;
    let task = stand.task("monday", &json!({}));
    task.says("which goes before").await;
    gate.open().await;
    let ended = end(task).await;
    assert_eq!((&ended["end"], &ended["run"]["trigger"]), (&json!("SUCCESS"), &json!("pending")), "{ended}");
    assert_eq!(stand.runs().await, 2);
}

#[tokio::test]
async fn a_failed_run_fails_its_task_and_only_a_further_try_that_is_told_so_runs_it_again() {
    if !has_python() {
        return;
    }
    let stand = Stand::start_with_films().await;
    let away = "insert into etl.etl_targets (name, key) values ('analytics.film_dim', '{id}');
                alter table analytics.film_dim rename to gone";
    stand.database.execute(away).await;
    let _runner = stand.runner("r1", "2s").await;
    let failed = end(stand.task("monday", &json!({}))).await;
    assert_eq!(failed["end"], "RunFailed", "{failed}");
    let code = failed["run"]["error_code"].as_str().unwrap();
    assert!(failed["message"].as_str().unwrap().contains(code), "{failed}");

    stand.database.execute("alter table analytics.gone rename to film_dim").await;
    assert_eq!(end(stand.task("monday", &json!({}))).await["run"]["id"], failed["run"]["id"]);
    for _ in 0..2 {
        let again = end(stand.task("monday", &json!({"again": true}))).await;
        assert_eq!(again["end"], "SUCCESS", "{again}");
    }
    assert_eq!(stand.runs().await, 2, "one that failed, and one for both further tries");
}

#[tokio::test]
async fn a_paused_run_fails_its_task_or_is_waited_for_as_the_task_says() {
    if !has_python() {
        return;
    }
    let stand = Stand::start_with_films().await;
    let gate = stand.close_gate().await;
    let runner = stand.runner("r1", "2s").await;
    let waiting = stand.task("monday", &json!({"on_paused": "wait"}));
    runner.says("run started").await;
    stand.ask("pause").await;
    gate.open().await;
    waiting.says("waiting for the one that goes on from there").await;
    let failed = end(stand.task("monday", &json!({}))).await;
    assert_eq!(
        (&failed["end"], &failed["run"]["status"]),
        (&json!("RunPaused"), &json!("PAUSED")),
        "{failed}"
    );

    stand.ask("run").await;
    let resumed = end(waiting).await;
    assert_eq!(resumed["end"], "SUCCESS", "{resumed}");
    assert_ne!(resumed["run"]["id"], failed["run"]["id"], "a run that went on from the pause");
    assert_eq!((stand.rows().await, stand.runs().await), (50, 2));
}

#[tokio::test]
async fn a_cancelled_run_and_a_cancelled_pause_fail_their_tasks() {
    if !has_python() {
        return;
    }
    let stand = Stand::start_with_films().await;
    let task = stand.task("monday", &json!({}));
    task.says("is REQUESTED").await;
    stand.ask("cancel").await;
    assert_eq!(end(task).await["end"], "RunCancelled");

    let task = stand.task("tuesday", &json!({"on_paused": "wait"}));
    task.says("is REQUESTED").await;
    stand.ask("pause").await;
    task.says("waiting for the one that goes on from there").await;
    stand.ask("cancel").await;
    assert_eq!(end(task).await["end"], "RunCancelled");
}

#[tokio::test]
async fn a_task_waits_through_a_takeover_of_its_run() {
    if !has_python() {
        return;
    }
    let stand = Stand::start_with_films().await;
    let gate = stand.close_gate().await;
    let doomed = stand.runner("doomed", "2s").await;
    let task = stand.task("monday", &json!({}));
    task.says("run ").await;
    stand.blocked_at_the_gate().await;
    doomed.signal(Signal::SIGKILL);
    let heir = stand.runner("heir", "2s").await;
    heir.says("took over").await;
    gate.open().await;
    let ended = end(task).await;
    assert_eq!(ended["end"], "SUCCESS", "{ended}");
    let attempts = ended["run"]["attempts"].as_array().unwrap();
    let runners: Vec<_> = attempts.iter().map(|attempt| attempt["runner"].as_str().unwrap()).collect();
    assert_eq!(runners, ["doomed", "heir"]);
    assert_eq!((stand.rows().await, stand.runs().await), (50, 1));
}

#[tokio::test]
async fn a_task_waits_through_a_restart_of_the_api() {
    if !has_python() {
        return;
    }
    let mut stand = Stand::start_with_films().await;
    stand.database.execute("select pg_advisory_lock(25)").await;
    let _runner = stand.runner("r1", "2s").await;
    let task = stand.task("monday", &json!({}));
    task.says("run ").await;
    stand.stop_api().await;
    task.says("the API is away").await;
    // Its run goes on meanwhile, and may end before anybody can be asked.
    stand.database.execute("select pg_advisory_unlock(25)").await;
    stand.start_api().await;
    let ended = end(task).await;
    assert_eq!((&ended["end"], stand.runs().await), (&json!("SUCCESS"), 1), "{ended}");
}

#[tokio::test]
async fn a_request_that_the_api_refuses_fails_its_task_at_once() {
    if !has_python() {
        return;
    }
    let stand = Stand::start_with_films().await;
    let unknown = end(stand.task("monday", &json!({"pipeline": "no such/pipeline"}))).await;
    assert_eq!(unknown["end"], "Refused", "{unknown}");
    assert!(unknown["message"].as_str().unwrap().contains("pipeline.not_found"), "{unknown}");
    assert_eq!(stand.runs().await, 0);
}

#[tokio::test]
async fn the_dag_and_its_module_are_python_3_9() {
    if !has_python() {
        return;
    }
    let read = "import ast, sys; [ast.parse(open(path).read(), path, feature_version=(3, 9)) for path in sys.argv[1:]]";
    let files =
        ["vitrina_airflow.py", "vitrina_marts.py"].map(|file| root().join("examples/airflow").join(file));
    let mut command = python("python3");
    command.args(["-c", read]).args(files);
    let (status, said) = Process::start("python3", command).ends().await;
    assert!(status.success(), "{said}");
}

impl Stand {
    /// A runner waits in a load that is under way.
    async fn blocked_at_the_gate(&self) {
        let waits =
            "select exists (select from pg_locks where locktype = 'advisory' and objid = 25 and not granted
                     and database = (select oid from pg_database where datname = current_database()))";
        let blocked = async {
            while !self.database.value::<bool>(waits).await {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), blocked)
            .await
            .expect("a load comes to the gate");
    }
}
