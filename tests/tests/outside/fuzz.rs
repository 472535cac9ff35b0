//! The API under a fuzzer that reads its OpenAPI document: no answer is a 5xx, none differs from the document, what the
//! document forbids is refused, and nothing hangs. `tests/fuzz` says what is left out, and why.
//!
//! The seed is fixed; FUZZ_SEED sets another and FUZZ_SECONDS another limit.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process::Command as Question;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{Process, python};
use crate::stand::{Stand, TOKEN, root};

/// The folder of programs that `scripts/bootstrap` has made.
fn fuzzer() -> Option<PathBuf> {
    let asked = Question::new(root().join("scripts/python")).arg("path").output().unwrap();
    let folder = PathBuf::from(String::from_utf8(asked.stdout).unwrap().trim());
    asked.status.success().then(|| folder.join("schemathesis"))
}

#[tokio::test]
async fn no_call_that_a_fuzzer_makes_of_the_document_is_answered_otherwise_than_it_says() {
    let Some(fuzzer) = fuzzer() else {
        eprintln!("NOT TRIED: the API was not fuzzed, because schemathesis is not installed");
        eprintln!("hint: scripts/python install");
        return;
    };
    let stand = Stand::start().await;
    let _runner = stand.runner("fuzzed", "30s").await;
    let known = stand.seed().await;
    let seconds: u64 = variable("FUZZ_SECONDS", "30").parse().unwrap();
    let mut command = python(fuzzer);
    command
        .arg("--config-file")
        .arg(root().join("tests/fuzz/schemathesis.toml"))
        .args(["run", &format!("{}/api/v1/openapi.json", stand.url), "--no-color"])
        .args(["--seed", &variable("FUZZ_SEED", "20"), "--max-examples", "25", "--workers", "2"])
        .args(["--max-time", &seconds.to_string()])
        .current_dir(stand.directory())
        .env("SCHEMATHESIS_HOOKS", root().join("tests/fuzz/hooks.py"))
        .env("FUZZ_KNOWN", known.to_string())
        .env("FUZZ_SPARED", json!({"drain_runner": ["fuzzed"]}).to_string())
        .env("FUZZ_TOKEN", TOKEN)
        .env("HOME", stand.directory());
    let fuzzing = Process::start("schemathesis", command).patient(Duration::from_secs(seconds + 60));
    let (status, said) = fuzzing.ends().await;
    assert!(status.success(), "{said}\n\nwhat the API said of it:\n{}", stand.complaints());
    assert_reached(&said);
}

/// What is only refused was not tried: calls that look at something have found it, unless time was too short for them.
fn assert_reached(said: &str) {
    let line = said.lines().find_map(|line| line.strip_prefix("answers: ")).expect("the hooks count answers");
    let answers: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(line).unwrap();
    let total: u64 = answers.values().flat_map(BTreeMap::values).sum();
    eprintln!("{total} calls of {} operations: {line}", answers.len());
    let looks = |name: &str| name.starts_with("get_") || name.starts_with("list_");
    let often = |statuses: &BTreeMap<String, u64>| statuses.values().sum::<u64>() >= 20;
    let tried = answers.iter().filter(|(name, statuses)| looks(name) && often(statuses));
    let missed: Vec<_> =
        tried.filter(|(_, statuses)| !statuses.keys().any(|status| status.starts_with('2'))).collect();
    assert!(missed.is_empty() && total > 500, "never answered 2xx: {missed:?}");
}

fn variable(name: &str, default: &str) -> String {
    env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}

impl Stand {
    /// Pipelines with runs of every end, a reject, a target, reconciles; answers what path parameters may name.
    async fn seed(&self) -> Value {
        self.database.execute("alter table analytics.film_dim add check (id <> 7)").await;
        let query = "select id, title, modified from content.film_work";
        self.database
            .execute("create table analytics.film_incremental (like analytics.film_dim including all)")
            .await;
        let doomed: Vec<String> = (0..20).map(|n| format!("doomed_{n}")).collect();
        let kept = ["film_dim", "film_failed", "film_paused", "film_cancelled", "film_incremental"];
        for name in kept.into_iter().chain(doomed.iter().map(String::as_str)) {
            let target = if name == "film_failed" {
                "analytics.nowhere".to_owned()
            } else {
                format!("analytics.{name}")
            };
            let mode = if name == "film_incremental" { "incremental" } else { "full" };
            let pipeline = json!({"name": name, "target_table": target, "source_query": query, "mode": mode, "batch_size": 10,
                                  "incremental_key": "modified", "incremental_id_key": "id", "reject_limit": 5});
            assert_eq!(self.call("POST", "/pipelines", pipeline).await.0, 201, "{name}");
        }
        let mut runs = Vec::new();
        for (name, end) in
            [("film_dim", "SUCCESS"), ("film_failed", "FAILED"), ("film_incremental", "SUCCESS")]
        {
            runs.push(self.run_until(name, end).await);
        }
        for target in ["analytics.film_dim", "analytics.film_doomed"] {
            let (status, answer) =
                self.call("PUT", &format!("/targets/{target}"), json!({"key": ["id"]})).await;
            assert_eq!(status, 201, "{answer}");
        }
        for (name, request) in [("film_paused", "pause"), ("film_cancelled", "disable")] {
            let (status, answer) =
                self.call("POST", &format!("/pipelines/{name}/{request}"), Value::Null).await;
            assert!(status < 300, "{answer}");
        }
        let ids = self.database.texts("select id::text from etl.etl_pipelines where name like 'film%'").await;
        let pipelines: Vec<String> =
            kept.into_iter().map(str::to_owned).chain(ids.into_iter().flatten().flatten()).collect();
        // What is deleted is not asked for.
        let mut known = json!({"p": pipelines, "id": runs, "c": ["source", "marts"], "t": ["analytics.film_dim"],
                               "delete_pipeline.p": doomed, "delete_target.t": ["analytics.film_doomed"]});
        let reconciles = self.seed_reconciles().await;
        for call in ["get_reconcile", "cancel_reconcile", "list_differences", "repair_reconcile"] {
            known[format!("{call}.id")] = json!(reconciles);
        }
        known
    }

    /// One that has found rows that differ, and one that no runner can take.
    async fn seed_reconciles(&self) -> Vec<String> {
        let done = r#"insert into etl.etl_reconciles (id, pipeline_id, level, keep, trigger, status, verdict, figures, finished_at)
            select gen_random_uuid(), id, 'rows', 10, 'manual', 'DONE', 'differs',
                   '{"source": {"rows": 9}, "target": {"rows": 9}, "ranges": 1, "differing_ranges": 1, "missing": 1, "extra": 1,
                     "different": 1, "in_flight": 0, "rejected": 0, "capped": false, "rows_read": 9}', now()
              from etl.etl_pipelines where name = 'film_dim'"#;
        let differences = r#"insert into etl.etl_differences (reconcile_id, n, kind, key, columns)
            select r.id, n, kind, jsonb_build_array(n::text), columns from etl.etl_reconciles r,
                   (values (1, 'missing', '{}'::jsonb), (2, 'extra', '{}'), (3, 'different', '{"title": {"source": "a", "target": null}}'))
                   d (n, kind, columns)"#;
        let waiting = "insert into etl.etl_reconciles (id, pipeline_id, level, keep, trigger, connections_needed)
            select gen_random_uuid(), id, 'hash', 10, 'manual', '{nobody}' from etl.etl_pipelines where name = 'film_failed'";
        for statement in [done, differences, waiting] {
            self.database.execute(statement).await;
        }
        let ids = self.database.texts("select id::text from etl.etl_reconciles").await;
        ids.into_iter().flatten().flatten().collect()
    }

    async fn run_until(&self, name: &str, end: &str) -> String {
        let (status, accepted) = self.call("POST", &format!("/pipelines/{name}/run"), Value::Null).await;
        assert_eq!(status, 202, "{accepted}");
        let id = accepted["run_id"].as_str().unwrap().to_owned();
        let run = self.call("GET", &format!("/runs/{id}?wait=60"), Value::Null).await.1;
        assert_eq!(run["status"], end, "{run}");
        id
    }

    pub(crate) fn complaints(&self) -> String {
        let log = self.api_log();
        let loud = log.lines().filter(|line| line.contains("\"error\"") || line.contains("panicked"));
        loud.collect::<Vec<_>>().join("\n")
    }
}
