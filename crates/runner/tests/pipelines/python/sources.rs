//! Rows that come from Python functions, and the positions they go on from.

use serde_json::{Value, json};
use vitrina_core::{Mode, RunStatus};

use super::titles;
use crate::functions::Functions;
use crate::stage::Stage;

/// A file that the source `counted` reads.
pub(crate) struct Counted(std::path::PathBuf);

impl Counted {
    /// The variable is of this process: a test that has it reads its own file.
    pub(crate) async fn new(functions: &mut Option<Functions>, name: &'static str) -> Self {
        let file = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let path = file.clone();
        let wrapper = Functions::with(move |settings| {
            let folder = &settings.path[0];
            let script = format!(
                "#!/bin/sh\nCOUNTED={} exec {} \"$@\"\n",
                path.display(),
                settings.interpreter.display()
            );
            let program = folder.join("python");
            std::fs::write(&program, script).unwrap();
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            settings.interpreter = program;
            settings.batches_a_worker = 5;
        });
        *functions = Some(wrapper.await);
        Self(file)
    }

    pub(crate) fn holds(&self, lines: &str) {
        std::fs::write(&self.0, lines).unwrap();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

pub(crate) fn from_python(mode: Mode) -> Value {
    json!({"type": "PYTHON", "source_type": "python", "python_task": "counted", "source_query": null,
           "source_connection": "content", "mode": mode.to_string(), "batch_size": 2, "delete_limit": 1.0})
}

#[tokio::test]
async fn a_python_source_goes_on_from_its_position() {
    let (stage, mut functions) = (Stage::with_films(0).await, None);
    let file = Counted::new(&mut functions, "going-on").await;
    let functions = functions.unwrap();
    let id = stage.pipeline(from_python(Mode::Incremental)).await;
    file.holds("1 2 3 4 5");
    let run = functions.succeed(&stage, id).await;
    assert_eq!((run.rows_read, stage.count("analytics.film").await), (5, 5));
    let run = functions.succeed(&stage, id).await;
    assert_eq!(run.rows_read, 0, "nothing is new");
    file.holds("1 2 3 4 5 6 7 ! 8");
    let run = functions.run(&stage, id).await;
    assert_eq!((run.status, run.error_code.as_deref()), (RunStatus::Failed, Some("python.retry")));
    assert_eq!(stage.count("analytics.film").await, 7, "what came before counts");
    file.holds("1 2 3 4 5 6 7 8");
    let run = functions.succeed(&stage, id).await;
    assert_eq!((run.rows_read, stage.count("analytics.film").await), (1, 8));
}

#[tokio::test]
async fn a_python_source_in_mode_full_is_read_whole_and_what_it_lacks_is_deleted() {
    let (stage, mut functions) = (Stage::with_films(0).await, None);
    let file = Counted::new(&mut functions, "whole").await;
    let functions = functions.unwrap();
    let id = stage.pipeline(from_python(Mode::Full)).await;
    file.holds("1 2 3 4 5");
    functions.succeed(&stage, id).await;
    file.holds("5 6 7");
    functions.succeed(&stage, id).await;
    assert_eq!(titles(&stage).await, ["Film 5", "Film 6", "Film 7"]);
    file.holds("");
    let run = functions.run(&stage, id).await;
    assert_eq!((run.status, run.error_code.as_deref()), (RunStatus::Failed, Some("python.no_rows")));
    assert_eq!(stage.count("analytics.film").await, 3, "an empty answer empties nothing");
}

#[tokio::test]
async fn a_python_source_that_had_yielded_all_it_has_just_ends() {
    let (stage, functions) = (Stage::with_films(0).await, Functions::new().await);
    for mode in [Mode::Full, Mode::Incremental] {
        let mut changes = from_python(mode);
        changes["python_task"] = json!("two");
        changes["name"] = json!(mode.to_string());
        let id = stage.pipeline(changes).await;
        functions.forbid();
        assert_eq!(functions.run(&stage, id).await.error_code.as_deref(), Some("python.exception"));
        functions.allow();
        functions.succeed(&stage, id).await;
        assert_eq!(titles(&stage).await, ["One", "Two"], "{mode}");
        stage.delete(id).await;
    }
}

#[tokio::test]
async fn a_source_outlives_the_batches_that_its_worker_may_serve() {
    let (stage, mut functions) = (Stage::with_films(0).await, None);
    let file = Counted::new(&mut functions, "outlives").await;
    let functions = functions.unwrap();
    let id = stage.pipeline(from_python(Mode::Incremental)).await;
    let numbers: Vec<String> = (1..=15).map(|number| number.to_string()).collect();
    file.holds(&numbers.join(" "));
    let run = functions.succeed(&stage, id).await;
    assert_eq!((run.rows_read, run.batches), (15, 9), "eight batches, and the end");
}

#[tokio::test]
async fn a_source_whose_first_yields_are_empty_is_read_to_its_end() {
    let (stage, functions) = (Stage::with_films(0).await, Functions::new().await);
    for (mode, first_load) in [("full", "staged"), ("full", "direct"), ("incremental", "staged")] {
        stage.db.execute("truncate analytics.film").await;
        let mut changes = from_python(Mode::Full);
        changes["mode"] = json!(mode);
        changes["first_load"] = json!(first_load);
        changes["python_task"] = json!("late");
        changes["name"] = json!(format!("{mode}_{first_load}"));
        let id = stage.pipeline(changes).await;
        for _ in 0..2 {
            functions.succeed(&stage, id).await;
            assert_eq!(titles(&stage).await, ["One", "Two"], "{mode} {first_load}");
        }
        stage.delete(id).await;
    }
}
