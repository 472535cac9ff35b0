//! Why a pipeline waits: what nobody executes says so, in the words of whoever can do something about it.

use std::time::Duration;

use serde_json::json;
use vitrina_core::{Code, Event, Pipeline, PipelineId, RunId};
use vitrina_store::{PipelineRef, PublishedTask, RunnerAbilities, Terms, Waiting};

use crate::stage::{LEASE, Stage, pipeline, runner};

impl Stage {
    /// As everything that shows it shows it.
    async fn waits(&self, id: PipelineId) -> Option<Waiting> {
        let shown = self.record(id).await;
        let listed = self.store.listings_of(&[PipelineRef::Id(id)]).await.unwrap().remove(0);
        let gauges = self.store.gauges().await.unwrap().pipelines;
        let plotted = gauges.into_iter().find(|gauges| gauges.name == shown.config.name).unwrap();
        assert_eq!((&shown.waiting, &shown.waiting), (&listed.waiting, &plotted.waiting));
        shown.waiting
    }

    async fn says(&self, id: PipelineId, code: &str, message: &str) -> Waiting {
        let waiting = self.waits(id).await.unwrap_or_else(|| panic!("it waits for nothing, not {code}"));
        assert_eq!((waiting.code.as_str(), waiting.message.as_str()), (code, message));
        waiting
    }

    async fn announce(&self, runner: &RunnerAbilities) {
        self.store.announce(runner, 1).await.unwrap();
    }

    async fn silence(&self, runner: &str) {
        let sql = format!(
            "update etl.etl_runners set heartbeat_at = now() - interval '31 seconds' where name = '{runner}'"
        );
        self.db.execute(&sql).await;
    }

    /// A pipeline that needs these, and a run of it that is requested.
    async fn requested(&self, name: &str, source: &str, functions: &[&str]) -> PipelineId {
        let tasks: Vec<_> = functions
            .iter()
            .enumerate()
            .map(|(at, body)| json!({"order_index": at + 1, "task_type": "PYTHON", "body": body}))
            .collect();
        let sql = json!({"order_index": 0, "task_type": "SQL", "body": "select 1 as id"});
        let plan = if tasks.is_empty() { json!([]) } else { [vec![sql], tasks].concat().into() };
        let config = Pipeline {
            source_connection: source.to_owned(),
            plan: serde_json::from_value(plan).unwrap(),
            ..pipeline(name)
        };
        let id = self.store.create_pipeline(&config).await.unwrap().config.id;
        self.request(id).await;
        id
    }
}

fn with(name: &str, connections: &[&str], functions: &[&str]) -> RunnerAbilities {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    RunnerAbilities {
        name: name.to_owned(),
        connections: owned(connections),
        python_tasks: owned(functions),
        code: Code::default(),
    }
}

#[tokio::test]
async fn a_requested_run_says_that_no_runner_is_alive() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    assert_eq!(stage.waits(id).await, None, "nothing is asked of it");
    stage.request(id).await;
    let none = "no runner is alive\nhint: start one with `vitrina runner`";
    let waiting = stage.says(id, "runner.none", none).await;
    let requested_at = stage.record(id).await.requested_at;
    assert_eq!((Some(waiting.since), waiting.until, waiting.releases), (requested_at, None, 0));

    stage.announce(&runner("tester")).await;
    assert_eq!(stage.waits(id).await, None, "it is taken in a moment");
    stage.silence("tester").await;
    stage.says(id, "runner.none", none).await;
    stage.announce(&runner("tester")).await;
    stage.store.request_drain("tester").await.unwrap();
    stage.says(id, "runner.none", none).await;
    stage.claim().await.unwrap();
    assert_eq!(stage.waits(id).await, None, "it is executed");
}

#[tokio::test]
async fn a_requested_run_names_the_connections_that_no_live_runner_has() {
    let stage = Stage::new().await;
    let id = stage.requested("reviews", "ugc", &[]).await;
    stage.announce(&with("here", &["cinema", "marts"], &[])).await;
    let message = "no live runner has connection \"ugc\"\nhint: start one with VITRINA_CONNECTIONS_UGC_URL";
    stage.says(id, "runner.no_connection", message).await;
    stage.announce(&with("there", &["ugc"], &[])).await;
    let message = "no live runner has all of the connections \"ugc\", \"marts\"\nhint: start one with \
                   VITRINA_CONNECTIONS_UGC_URL and VITRINA_CONNECTIONS_MARTS_URL";
    stage.says(id, "runner.no_connection", message).await;
    stage.announce(&with("there", &["ugc", "marts"], &[])).await;
    assert_eq!(stage.waits(id).await, None);

    let odd = stage.requested("odd", "ugc-2", &[]).await;
    let message =
        "no live runner has connection \"ugc-2\"\nhint: start one with the setting connections.ugc-2.url";
    stage.says(odd, "runner.no_connection", message).await;
    let untaken = stage.store.untaken_runs().await.unwrap();
    let named: Vec<_> =
        untaken.iter().map(|run| (run.pipeline.as_str(), run.waiting.code.as_str())).collect();
    assert_eq!(named, [("odd", "runner.no_connection")]);
}

#[tokio::test]
async fn a_requested_run_names_the_functions_that_no_live_runner_with_its_connections_has() {
    let stage = Stage::new().await;
    let id = stage.requested("films", "cinema", &["enrich", "rate"]).await;
    stage.announce(&with("here", &["cinema", "marts"], &["enrich"])).await;
    stage.announce(&with("elsewhere", &["marts"], &["rate"])).await;
    let message = "no live runner with the connections \"cinema\", \"marts\" has the Python function \"rate\"\nhint: start one \
                   whose python.modules register what it lacks; `vitrina python` lists who has what";
    stage.says(id, "runner.no_function", message).await;
    assert_eq!(stage.store.untaken_runs().await.unwrap().len(), 1);
    stage.announce(&with("here", &["cinema", "marts"], &["rate", "enrich"])).await;
    assert_eq!(stage.waits(id).await, None);
}

#[tokio::test]
async fn a_requested_run_says_that_all_runners_which_could_take_it_are_busy() {
    let stage = Stage::new().await;
    let first = stage.create("first").await;
    stage.announce(&runner("tester")).await;
    stage.announce(&with("other", &["marts"], &[])).await;
    stage.begin(first).await;
    let second = stage.create("second").await;
    stage.request(second).await;
    let message = "all runners that can take it are busy: tester\nhint: it is taken as soon as one has room; one more `vitrina \
                   runner` or a higher runner.max_concurrent makes room";
    stage.says(second, "runner.busy", message).await;
    stage.store.announce(&runner("tester"), 2).await.unwrap();
    assert_eq!(stage.waits(second).await, None, "there is room for two");

    stage.db.execute("update etl.etl_pipelines set stalls = 2 where name = 'second'").await;
    let message = "its runners fell silent while they executed it: only an idle runner takes it, and none is idle: tester\nhint: it \
                   is taken as soon as one is; one more `vitrina runner` takes it at once";
    stage.says(second, "runner.busy", message).await;
    stage.store.request_change(first, Event::Cancel).await.unwrap();
    stage.expire_leases().await;
    assert_eq!(stage.waits(first).await, None, "whoever comes by may end it");
}

#[tokio::test]
async fn a_runner_that_executes_a_suspect_has_no_room_beside_it() {
    let stage = Stage::new().await;
    stage.store.announce(&runner("tester"), 4).await.unwrap();
    let suspect = stage.create("suspect").await;
    stage.request(suspect).await;
    stage.db.execute("update etl.etl_pipelines set stalls = 2").await;
    stage.claim().await.unwrap();
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    assert_eq!(stage.waits(id).await.map(|waiting| waiting.code), Some("runner.busy".to_owned()));
}

#[tokio::test]
async fn a_run_that_was_given_back_says_why_how_often_and_until_when() {
    let stage = Stage::new().await;
    stage.announce(&runner("tester")).await;
    let id = stage.create("film_dim").await;
    let claim = stage.begin(id).await;
    let (away, minute) = ("the source does not answer\nhint: look there", Duration::from_secs(60));
    stage.store.release(&claim.lease, "source.connection_lost", away, minute).await.unwrap();
    let message = format!("given back: {away}");
    let waiting = stage.says(id, "source.connection_lost", &message).await;
    assert_eq!((waiting.until, waiting.releases), (stage.record(id).await.retry_at, 1));
    assert!(waiting.until.is_some_and(|until| until > waiting.since), "{waiting:?}");

    stage.db.execute("update etl.etl_pipelines set retry_at = now()").await;
    let claim = stage.claim().await.unwrap();
    assert_eq!(stage.waits(id).await, None, "it is tried again");
    stage.store.release(&claim.lease, "source.connection_lost", away, minute).await.unwrap();
    let message = format!("given back 2 times in a row: {away}");
    stage.says(id, "source.connection_lost", &message).await;

    stage.request(id).await;
    let waiting = stage.says(id, "source.connection_lost", &message).await;
    assert_eq!(waiting.until, None, "somebody has asked for it to be tried at once");
    stage.silence("tester").await;
    stage.says(id, "runner.none", "no runner is alive\nhint: start one with `vitrina runner`").await;
}

#[tokio::test]
async fn a_run_whose_runner_died_waits_for_one_that_can_take_it_over() {
    let stage = Stage::new().await;
    stage.announce(&runner("tester")).await;
    let id = stage.create("film_dim").await;
    let RunId(run) = stage.begin(id).await.run;
    stage.silence("tester").await;
    assert_eq!(stage.waits(id).await, None, "its lease is good");
    stage.expire_leases().await;
    let waiting =
        stage.says(id, "runner.none", "no runner is alive\nhint: start one with `vitrina runner`").await;
    assert!(waiting.since < jiff::Timestamp::now(), "{waiting:?} of run {run}");
    stage.announce(&runner("another")).await;
    assert_eq!(stage.waits(id).await, None, "another takes it over");
}

#[tokio::test]
async fn a_run_that_a_free_runner_leaves_alone_for_a_minute_says_so() {
    let stage = Stage::new().await;
    stage.announce(&runner("tester")).await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    stage.db.execute("update etl.etl_pipelines set requested_at = now() - interval '61 seconds'").await;
    let message =
        "runners with room have left it alone for more than a minute: tester\nhint: look at their logs";
    stage.says(id, "runner.not_claiming", message).await;
}

#[tokio::test]
async fn an_idle_pipeline_whose_time_has_passed_says_that_nobody_requests_its_run() {
    let stage = Stage::new().await;
    let id = stage.create_scheduled("film_dim", "1h").await;
    assert_eq!(stage.waits(id).await, None);
    stage.db.execute("update etl.etl_pipelines set updated_at = now() - interval '61 seconds'").await;
    let none = "no runner is alive to request its scheduled run\nhint: start one with `vitrina runner`";
    stage.says(id, "schedule.late", none).await;
    stage.store.request_due().await.unwrap();
    assert_eq!(stage.waits(id).await, None, "its time is known, and to come");
    stage.make_due(id).await;
    let waiting = stage.says(id, "schedule.late", none).await;
    assert_eq!(Some(waiting.since), stage.record(id).await.next_run_at);
    stage.announce(&runner("tester")).await;
    let message = "no runner has requested its scheduled run: tester\nhint: look at their logs";
    stage.says(id, "schedule.late", message).await;

    stage.store.request_change(id, Event::Pause).await.unwrap();
    assert_eq!(stage.waits(id).await, None, "a paused pipeline waits for a person");
    let full = Pipeline { full_schedule: Some("@daily".to_owned()), ..pipeline("nightly") };
    let full = stage.store.create_pipeline(&full).await.unwrap().config.id;
    stage.db.execute("update etl.etl_pipelines set next_full_run_at = now() - interval '61 seconds'").await;
    stage.says(full, "schedule.late", message).await;
    stage.store.request_change(full, Event::Disable).await.unwrap();
    assert_eq!(stage.waits(full).await, None);
}

/// Of every mixture of abilities: a run waits for no runner exactly where one that is alive claims it.
#[tokio::test]
async fn a_run_waits_for_a_runner_exactly_where_none_that_is_alive_claims_it() {
    let stage = Stage::new().await;
    let all: [&[&str]; 4] = [&["marts"], &["cinema"], &["cinema", "marts"], &["cinema", "marts", "ugc"]];
    let runners: Vec<RunnerAbilities> = (all.iter())
        .flat_map(|has| {
            [&[][..], &["enrich"], &["enrich", "rate"]].map(|functions| with("tester", has, functions))
        })
        .collect();
    let mut needs = Vec::new();
    for source in ["cinema", "ugc"] {
        for functions in [&[][..], &["enrich"], &["rate", "enrich"]] {
            let name = format!("{source}_{}", functions.join("_"));
            needs.push(stage.requested(&name, source, functions).await);
        }
    }
    for able in runners {
        stage.announce(&able).await;
        let mut free = Vec::new();
        for id in &needs {
            match stage.waits(*id).await {
                None => free.push(*id),
                Some(waiting) => assert!(waiting.code.starts_with("runner.no_"), "{waiting:?}"),
            }
        }
        let mut claimed = Vec::new();
        while let Some(claim) = stage.store.claim(&able, &Terms::idle(LEASE)).await.unwrap() {
            claimed.push(claim.lease);
        }
        for lease in &claimed {
            stage.store.release(lease, "t", "t", Duration::ZERO).await.unwrap();
        }
        let mut taken: Vec<_> = claimed.iter().map(|lease| lease.pipeline.0).collect();
        let mut free: Vec<_> = free.iter().map(|id| id.0).collect();
        taken.sort_unstable();
        free.sort_unstable();
        assert_eq!(taken, free, "{able:?}");
        stage.db.execute("update etl.etl_pipelines set retry_at = null; delete from etl.etl_attempts").await;
    }
}

#[tokio::test]
async fn a_run_that_continues_from_the_code_of_a_busy_runner_waits_for_that_one() {
    let stage = Stage::new().await;
    let old = with("old", &["cinema", "marts"], &["enrich"]);
    let new = with("new", &["cinema", "marts"], &["enrich"]);
    for (runner, hash) in [(&old, "1"), (&new, "2")] {
        stage.announce(runner).await;
        let task = PublishedTask {
            name: "enrich".to_owned(),
            kind: "transform",
            version_hash: hash.to_owned(),
            doc: String::new(),
        };
        stage.store.publish_tasks(&runner.name, &[task]).await.unwrap();
    }
    let id = stage.requested("films", "cinema", &["enrich"]).await;
    stage.db.execute("update etl.etl_runs set mode = 'incremental'").await;
    stage.db.execute(r#"update etl.etl_state set checkpoint = '{"code": {"enrich": "1"}}'"#).await;
    assert_eq!(stage.waits(id).await, None);
    let other = stage.create("other").await;
    stage
        .db
        .execute(
            "update etl.etl_pipelines set requested_at = now() + interval '1 minute' where name = 'films'",
        )
        .await;
    stage.request(other).await;
    let claim = stage.store.claim(&old, &Terms::idle(LEASE)).await.unwrap().unwrap();
    assert_eq!(claim.lease.pipeline, other);
    assert_eq!(stage.waits(id).await.map(|waiting| waiting.code), Some("runner.busy".to_owned()));
}

#[tokio::test]
async fn what_no_live_runner_could_take_is_known_before_anything_is_saved() {
    let stage = Stage::new().await;
    let needs = ["ugc".to_owned(), "marts".to_owned()];
    let code = async |functions: &[&str]| {
        stage.store.untakeable(&needs, functions).await.unwrap().map(|found| found.code)
    };
    assert_eq!(code(&[]).await.as_deref(), Some("runner.none"));
    stage.announce(&runner("tester")).await;
    assert_eq!(code(&[]).await.as_deref(), Some("runner.no_connection"));
    stage.announce(&with("able", &["ugc", "marts"], &[])).await;
    assert_eq!(code(&[]).await, None);
    assert_eq!(code(&["rate"]).await.as_deref(), Some("runner.no_function"));
}
