//! The dashboard, the alert rules and the page of metrics, against what the running binary exposes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::compose::root;
use crate::processes::Stand;

/// Labels of every series on the pages, by its name.
type Exposed = BTreeMap<String, BTreeSet<String>>;

fn exposed(pages: &str) -> Exposed {
    let mut all = Exposed::new();
    for line in pages.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        all.entry(name.to_owned()).or_default().extend(label_names(labels.trim_end_matches('}')));
    }
    all
}

/// `a` and `b` of `a="x, y",b=~"z"`.
fn label_names(labels: &str) -> Vec<String> {
    let outside = labels.split('"').step_by(2).collect::<String>();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words = outside.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn families(pages: &str) -> BTreeSet<String> {
    let types = pages.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Our metrics in an expression, each with the labels that it is selected by.
fn used(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        if word.starts_with("vitrina_") || word.starts_with("http_") {
            let selector = behind.strip_prefix('{').and_then(|behind| behind.split('}').next());
            found.push((word.to_owned(), label_names(selector.unwrap_or_default())));
        }
        rest = behind;
    }
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What the panels of the dashboard ask for.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/vitrina.json")).unwrap();
    assert!(dashboard["uid"].is_string() && dashboard["title"].is_string());
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "every panel has an id of its own");
    let mut asked = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(panel["description"].is_string() && panel["gridPos"]["w"].is_u64(), "{title}");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title} asks whoever is chosen");
            asked.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    asked.extend(
        variables.iter().filter_map(|variable| variable["query"]["query"].as_str()).map(str::to_owned),
    );
    asked
}

fn alerts() -> Vec<String> {
    let document: serde_norway::Value =
        serde_norway::from_str(&read("deploy/prometheus/alerts.yaml")).unwrap();
    let groups = document["groups"].as_sequence().unwrap();
    let rules: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_sequence().unwrap()).collect();
    let names: BTreeSet<_> = rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert_eq!(names.len(), rules.len(), "every alert has a name of its own");
    for rule in &rules {
        assert!(rule["labels"]["severity"].is_string(), "{rule:?}");
        for text in ["summary", "description", "action"] {
            assert!(rule["annotations"][text].is_string(), "{text} of {rule:?}");
        }
    }
    rules.iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect()
}

/// The names in the tables of the document.
fn documented() -> BTreeSet<String> {
    let page = read("docs/observability.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split('`').next()).map(|name| name.split('{').next().unwrap());
    names
        .filter(|name| name.starts_with("vitrina_") || name.starts_with("http_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn every_metric_of_dashboard_and_alerts_is_one_that_the_binary_exposes() {
    let stand = Stand::start().await;
    // A mart that may be so old, a run that succeeds, a verdict, a run whose target refuses it, and one that nobody can take.
    stand.sql("alter table etl.etl_pipelines add column if not exists freshness_limit_seconds bigint");
    stand.sql("update etl.etl_pipelines set freshness_limit_seconds = 3600");
    stand.run_to_success("film_dim_full").await;
    stand.sql(
        "insert into etl.etl_reconciles (id, pipeline_id, level, keep, trigger, status, verdict, figures, finished_at)
         select gen_random_uuid(), id, 'hash', 0, 'schedule', 'DONE', 'equal',
                '{\"source\": {\"rows\": 1}, \"target\": {\"rows\": 1}, \"ranges\": 1, \"differing_ranges\": 0, \"missing\": 0, \"extra\": 0,
                  \"different\": 0, \"in_flight\": 0, \"rejected\": 0, \"capped\": false, \"rows_read\": 0}', now()
           from etl.etl_pipelines where name = 'film_dim_full'",
    );
    stand.sql("alter table analytics.film_rating_agg rename to gone");
    let run =
        stand.call("POST", "/pipelines/film_rating_agg_full/run", Some(&stand.token), Value::Null).await.1;
    let path = format!("/runs/{}?wait=30", run["run_id"].as_str().unwrap());
    assert_eq!(stand.call("GET", &path, Some(&stand.token), Value::Null).await.1["status"], "FAILED");
    stand.sql(
        "with run as (insert into etl.etl_runs (id, pipeline_id, trigger, mode, snapshot)
                      select gen_random_uuid(), id, 'api', 'full', '{}' from etl.etl_pipelines where name = 'film_dim_full'
                      returning id, pipeline_id)
         update etl.etl_pipelines p
            set status = 'RUN_REQUESTED', run_id = run.id, requested_at = now(), connections_needed = '{nowhere}'
           from run where p.id = run.pipeline_id",
    );

    let pages = stand.pages().await;
    let exposed = exposed(&pages);
    for expression in dashboard().into_iter().chain(alerts()) {
        let used = used(&expression);
        assert!(!used.is_empty(), "{expression} asks for nothing of ours");
        for (name, labels) in used {
            let known =
                exposed.get(&name).unwrap_or_else(|| panic!("nobody exposes {name}: {expression}\n{pages}"));
            let strange: Vec<_> = labels.iter().filter(|label| !known.contains(*label)).collect();
            assert!(strange.is_empty(), "{name} has no labels {strange:?}: {expression}");
        }
    }
    let documented = documented();
    let forgotten: Vec<_> = families(&pages).into_iter().filter(|name| !documented.contains(name)).collect();
    assert!(forgotten.is_empty(), "docs/observability.md lacks {forgotten:?}");
    stand.stop().await;
}

#[test]
fn metrics_are_found_in_expressions_with_their_labels() {
    let expression =
        r#"sum by (le) (rate(http_x_bucket{route="/a,b",status=~"5.."}[5m])) / vitrina_y > time()"#;
    let labels = vec!["route".to_owned(), "status".to_owned()];
    assert_eq!(
        used(expression),
        [("http_x_bucket".to_owned(), labels), ("vitrina_y".to_owned(), Vec::new())]
    );
}
