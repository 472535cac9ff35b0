//! The stand of `deploy/compose.yaml` outside Docker: the same commands, environment and order, and a search server of the tests.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

mod compose;
mod processes;
mod watched;

use std::time::Duration;

use serde_json::{Value, json};
use vitrina_cinema::INDEX_PIPELINES;

use processes::Stand;

#[tokio::test]
async fn composes_services_fill_both_marts_and_a_new_mart_without_a_restart() {
    let stand = Stand::start().await;
    assert_eq!(stand.call("GET", "/pipelines", None, Value::Null).await.0, 401, "a token is asked for");
    for pipeline in ["film_dim_full", "film_rating_agg_full"] {
        stand.run_to_success(pipeline).await;
    }
    let checks = vitrina_cinema::verify(&stand.owner_url).await.unwrap();
    assert!(checks.len() == 2 && checks.iter().all(|check| check.is_equal() && check.rows > 0), "{checks:?}");

    // R-MART-5, R-SET-3: configuration alone, applied to running processes.
    stand.create_pipelines("user_features.yaml").await;
    stand.run_to_success("user_features").await;
    let rows = stand.sql("select count(*) > 0 and count(*) = (select count(distinct user_id) from (
        select user_id from ugc.ratings union all select user_id from ugc.likes union all select user_id from ugc.reviews
        union all select user_id from ugc.views) u) from analytics.user_features");
    assert_eq!(rows, "t");
    stand.stop().await;
}

#[tokio::test]
async fn composes_runner_fills_the_cinemas_indexes_at_its_search_server() {
    let stand = Stand::start().await;
    let indexes = stand.search.indexes();
    for (pipeline, text) in INDEX_PIPELINES {
        // On a server that other tests use too, names are this test's own.
        let text = text.replace("es:film", &format!("es:{}", indexes.name("film")));
        stand.apply(&text.replace("es:movies", &format!("es:{}", indexes.name("movies")))).await;
        stand.run_to_success(pipeline).await;
    }
    for (index, rows) in [
        ("film_dim", "select count(*) from content.film_work"),
        ("film_rating_agg", "select count(distinct film_id) from ugc.ratings"),
        ("movies", "select count(*) from content.film_work"),
    ] {
        stand.search.refresh(&indexes.name(index)).await;
        let counted = stand.search.count(&indexes.name(index)).await;
        assert_eq!(counted.to_string(), stand.sql(rows), "{index}");
    }
    stand.stop().await;
}

#[test]
fn composes_search_server_is_limited_watched_kept_and_open_to_this_machine_alone() {
    let service = compose::service("elasticsearch");
    let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
    assert!(text("mem_limit").ends_with('g') && text("restart") == "unless-stopped");
    assert!(service["environment"]["ES_JAVA_OPTS"].as_str().unwrap().contains("-Xmx"));
    assert!(service["healthcheck"]["test"].as_sequence().unwrap().len() > 2);
    assert!(service["ports"][0].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(service["volumes"][0].as_str().unwrap().starts_with("elasticsearch:"));
    let runner = compose::service("etl_runner");
    assert_eq!(runner["environment"]["ELASTICSEARCH_URL"], "http://elasticsearch:9200");
    assert_eq!(runner["depends_on"]["elasticsearch"]["condition"], "service_healthy");
}

impl Stand {
    /// Requests a run with the admin token and follows it to its end, as an orchestrator does.
    async fn run_to_success(&self, pipeline: &str) {
        let (status, answer) =
            self.call("POST", &format!("/pipelines/{pipeline}/run"), Some(&self.token), Value::Null).await;
        assert_eq!(status, 202, "{answer}");
        let run = answer["run_id"].as_str().unwrap().to_owned();
        let ended = async {
            loop {
                let (_, run) =
                    self.call("GET", &format!("/runs/{run}?wait=10"), Some(&self.token), Value::Null).await;
                if !matches!(run["status"].as_str(), Some("REQUESTED" | "RUNNING")) {
                    return run;
                }
            }
        };
        let run = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the run ends");
        assert_eq!(run["status"], "SUCCESS", "{run}");
    }

    /// As `vitrina apply` does.
    async fn apply(&self, file: &str) {
        let configuration: Value = serde_norway::from_str(file).unwrap();
        let (_, plan) = self.call("POST", "/plan", Some(&self.token), configuration.clone()).await;
        assert_eq!(plan["ok"], true, "{plan}");
        let order = json!({"configuration": configuration, "plan_hash": plan["hash"]});
        let (status, applied) = self.call("POST", "/apply", Some(&self.token), order).await;
        assert_eq!(status, 200, "{applied}");
    }

    async fn create_pipelines(&self, file: &str) {
        let path = compose::root().join("examples/cinema/pipelines").join(file);
        let document: Value = serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for pipeline in document["pipelines"].as_array().unwrap() {
            let (status, answer) = self.call("POST", "/pipelines", Some(&self.token), pipeline.clone()).await;
            assert_eq!(status, 201, "{}", json!(answer));
        }
    }
}
