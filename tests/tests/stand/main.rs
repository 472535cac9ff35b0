//! The stand of `deploy/compose.yaml` outside Docker: the same commands, environment and order.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

mod compose;
mod processes;
mod watched;

use std::time::Duration;

use serde_json::{Value, json};

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

    async fn create_pipelines(&self, file: &str) {
        let path = compose::root().join("examples/cinema/pipelines").join(file);
        let document: Value = serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for pipeline in document["pipelines"].as_array().unwrap() {
            let (status, answer) = self.call("POST", "/pipelines", Some(&self.token), pipeline.clone()).await;
            assert_eq!(status, 201, "{}", json!(answer));
        }
    }
}
