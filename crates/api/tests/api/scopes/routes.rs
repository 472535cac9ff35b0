//! Each route of the document, asked by a token of another team.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ADMIN, OTHERS, OWNER, Planted, THEIR_TARGET, THEIRS};

/// What a token for films is answered where a route is about the pipeline of others.
#[derive(Debug, Clone, Copy)]
enum Told {
    /// The same as of one that there is not: status and code.
    Alike(u16, &'static str),
    /// It names none: so much, and nothing of others in it.
    Shown(u16),
    /// A test of its own.
    Apart,
}
use Told::{Alike, Apart, Shown};

const NO_PIPELINE: Told = Alike(404, "pipeline.not_found");
const NO_RUN: Told = Alike(404, "run.not_found");
const NO_RECONCILE: Told = Alike(404, "reconcile.not_found");
const NO_TARGET: Told = Alike(404, "target.not_found");
const NOT_FOR_IT: Told = Alike(403, "access.scope");

#[rustfmt::skip] // A table.
const ROUTES: [(&str, Told); 65] = [
    ("list_pipelines",           Shown(200)),
    ("create_pipeline",          Shown(201)),
    ("get_pipeline",             NO_PIPELINE),
    ("edit_pipeline",            NO_PIPELINE),
    ("delete_pipeline",          NO_PIPELINE),
    ("update_pipeline_config",   NO_PIPELINE),
    ("reload_pipeline_config",   NO_PIPELINE),
    ("validate_pipeline",        NO_PIPELINE),
    ("validate",                 Shown(200)),
    ("preview_pipeline",         NO_PIPELINE),
    ("preview",                  Shown(200)),
    ("explain_pipeline",         NO_PIPELINE),
    ("explain",                  Shown(200)),
    ("find_row",                 NO_PIPELINE),
    ("enable_pipeline",          NO_PIPELINE),
    ("disable_pipeline",         NO_PIPELINE),
    ("run_pipeline",             NO_PIPELINE),
    ("pause_pipeline",           NO_PIPELINE),
    ("cancel_pipeline",          NO_PIPELINE),
    ("get_pipeline_status",      NO_PIPELINE),
    ("get_pipeline_state",       NO_PIPELINE),
    ("list_pipeline_states",     NO_PIPELINE),
    ("edit_pipeline_state",      NO_PIPELINE),
    ("reset_pipeline_state",     NO_PIPELINE),
    ("get_pipeline_metrics",     NO_PIPELINE),
    ("list_pipeline_runs",       NO_PIPELINE),
    ("list_rejects",             NO_PIPELINE),
    ("acknowledge_rejects",      NO_PIPELINE),
    ("discard_rejects",          NO_PIPELINE),
    ("retry_rejects",            NO_PIPELINE),
    ("reconcile_pipeline",       NO_PIPELINE),
    ("get_pipeline_reconcile",   NO_PIPELINE),
    ("list_pipeline_reconciles", NO_PIPELINE),
    ("list_reconciles",          Shown(200)),
    ("get_reconcile",            NO_RECONCILE),
    ("cancel_reconcile",         NO_RECONCILE),
    ("list_differences",         NO_RECONCILE),
    ("repair_reconcile",         NO_RECONCILE),
    ("list_runs",                Shown(200)),
    ("get_run",                  NO_RUN),
    ("list_run_batches",         NO_RUN),
    ("list_run_logs",            NO_RUN),
    ("listen",                   Apart),
    ("list_targets",             Shown(200)),
    ("get_target",               NO_TARGET),
    ("get_target_standing",      NO_TARGET),
    ("put_target",               NOT_FOR_IT),
    ("delete_target",            NO_TARGET),
    ("list_connections",         Shown(200)),
    ("test_connection",          Shown(503)),
    ("get_connection_schema",    Shown(200)),
    ("list_runners",             Shown(200)),
    ("list_python_tasks",        Shown(200)),
    ("drain_runner",             NOT_FOR_IT),
    ("plan",                     Shown(200)),
    ("apply",                    Shown(409)),
    ("export",                   Shown(200)),
    ("config_schema",            Shown(200)),
    ("list_audit",               Shown(200)),
    ("whoami",                   Shown(200)),
    ("metrics",                  Shown(200)),
    ("openapi",                  Shown(200)),
    ("health",                   Shown(200)),
    ("health_live",              Shown(200)),
    ("health_ready",             Shown(200)),
];
/// Beside them one that is answered without a token and says nothing.
const VERSION: &str = "version";

impl Planted {
    /// Everything of others as it is stored.
    async fn stored(&self) -> String {
        let tables = [
            "pipelines",
            "runs",
            "attempts",
            "rejects",
            "reconciles",
            "differences",
            "logs",
            "state",
            "targets",
            "runners",
        ];
        let rows = tables.map(|table| {
            format!("(select string_agg(t::text, ',' order by t::text) from etl.etl_{table} t where t::text like '%{OTHERS}%' or t::text like '%{}%')", self.id)
        });
        self.app.database.value(&format!("select concat_ws(';', {})", rows.join(", "))).await
    }

    /// What is there, and what is not, in place of the parameters of a path.
    fn spelled(&self, path: &str) -> Vec<(String, String)> {
        let nothing = Uuid::new_v4().to_string();
        let path = match path.rsplit('/').next() {
            Some("row") => format!("{path}?key=1"),
            _ => path.to_owned(),
        };
        let pairs: Vec<(&str, &str, &str)> = if path.contains("{p}") {
            vec![("{p}", THEIRS, "nobody_s_pipeline"), ("{p}", &self.id, &nothing)]
        } else if path.contains("/runs/") {
            vec![("{id}", &self.run, &nothing)]
        } else if path.contains("/reconciles/") {
            vec![("{id}", &self.reconcile, &nothing)]
        } else if path.contains("{t}") {
            vec![("{t}", THEIR_TARGET, "analytics.nobody_s_mart")]
        } else if path.contains("{name}") {
            vec![("{name}", "r1", "nobody_s_runner")]
        } else {
            vec![("{c}", "source", "source")]
        };
        let both = pairs.into_iter().map(|(parameter, theirs, nobody_s)| {
            (path.replace(parameter, theirs), path.replace(parameter, nobody_s))
        });
        let more = |path: &String| match path {
            path if path.ends_with("/differences") => vec!["", "?format=csv", "?format=ndjson"],
            path if path.ends_with("/repair") || path.ends_with("/state") || path.ends_with("/reset") => {
                vec!["", "?dry_run=true"]
            }
            path if path.ends_with("/status") || path.ends_with("/logs") => vec!["", "?wait=1"],
            path if path.ends_with("/standing") => vec!["", "?pipeline=topsecret_payroll"],
            _ => vec![""],
        };
        let queried = both.flat_map(|(theirs, nobody_s)| {
            let queries = more(&theirs).into_iter();
            queries
                .map(|query| (format!("{theirs}{query}"), format!("{nobody_s}{query}")))
                .collect::<Vec<_>>()
        });
        queried.flat_map(|(a, b)| [(a.replace("/api/v1", ""), b.replace("/api/v1", "")), (a, b)]).collect()
    }

    async fn text(
        &self,
        token: &str,
        route: &Route<'_>,
        path: &str,
        header: Option<(&str, &str)>,
    ) -> (u16, String) {
        let mut call = self.app.by(token, &route.method, path);
        call = header.into_iter().fold(call, |call, (name, value)| call.header(name, value));
        if let Some(body) = &route.body {
            call = call.json(body);
        }
        let response = call.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

struct Route<'a> {
    id: &'a str,
    method: Method,
    path: &'a str,
    body: Option<Value>,
}

fn routes(document: &Value) -> Vec<Route<'_>> {
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let content = operation["requestBody"]["content"].as_object();
            let example =
                content.and_then(|content| content.values().next()).map(|content| &content["example"]);
            let body = match id {
                "plan" => Some(json!({"prune": true})),
                "validate_pipeline" => Some(json!({})),
                _ => example.filter(|body| !body.is_null()).cloned(),
            };
            routes.push(Route { id, method: method.to_uppercase().parse().unwrap(), path, body });
        }
    }
    routes
}

/// Without what differs between two calls for two names.
fn without_names(text: &str, path: &str) -> String {
    let mut document: Value = serde_json::from_str(text).unwrap();
    document["request_id"] = Value::Null;
    let text = document.to_string();
    let names = path
        .split(['/', '?'])
        .filter(|part| part.contains("payroll") || part.contains("nobody_s") || part.len() == 36);
    names.fold(text, |text, name| text.replace(name, "NAME"))
}

#[tokio::test]
async fn who_has_a_scope_meets_no_trace_of_other_pipelines_on_any_route() {
    let planted = Planted::new().await;
    let document = planted.app.get("/openapi.json").await.assert(200).body;
    let (before, mut known) = (planted.stored().await, 0);
    for route in routes(&document) {
        if route.id == VERSION {
            continue;
        }
        let told = ROUTES.iter().find(|(id, _)| *id == route.id);
        let (_, told) =
            told.unwrap_or_else(|| panic!("{} is not in the table: what does it tell a team?", route.id));
        known += 1;
        let headers =
            [Some(("if-match", "\"1\"")), Some(("if-match", "*")), Some(("idempotency-key", "k")), None];
        match *told {
            Alike(status, code) => {
                for (theirs, nobody_s) in planted.spelled(route.path) {
                    for header in headers {
                        let name = format!("{} {} {theirs} {header:?}", route.id, route.method);
                        let (found, text) = planted.text(OWNER, &route, &theirs, header).await;
                        let (missing, other) = planted.text(OWNER, &route, &nobody_s, header).await;
                        assert_eq!((found, found), (missing, found), "{name}: {text}");
                        let told = without_names(&text, &theirs);
                        assert_eq!(told, without_names(&other, &nobody_s), "{name}");
                        planted.assert_no_trace(&name, &told.replace("NAME", ""));
                        // A version that is not named is asked for first, of a pipeline that there is not as well.
                        if found != 428 && found != 422 {
                            assert!(found == status && text.contains(code), "{name}: {found} {text}");
                        }
                    }
                }
            }
            Shown(status) => {
                let paths = planted.spelled(route.path).into_iter().map(|(path, _)| path);
                for path in paths {
                    let (found, text) = planted.text(OWNER, &route, &path, None).await;
                    // The second call creates what is there by then.
                    assert!(found == status || found == 409, "{path}: {found} {text}");
                    planted.assert_no_trace(&path, &text);
                }
            }
            Apart => {}
        }
    }
    assert_eq!(known, ROUTES.len(), "the table has routes that there are not");
    assert_eq!(planted.stored().await, before, "what others have is as it was");
}

#[tokio::test]
async fn what_one_scope_hides_is_on_the_same_routes_for_others_and_its_own_for_it() {
    let planted = Planted::new().await;
    for path in ["/pipelines", "/runs", "/reconciles", "/targets", "/export", "/audit", "/metrics"] {
        for (token, theirs, own) in [(ADMIN, true, true), (OWNER, false, true)] {
            let text = planted.app.by(token, &Method::GET, path).send().await.unwrap().text().await.unwrap();
            assert_eq!(text.contains("payroll"), theirs, "{path} by {token}: {text}");
            assert_eq!(text.contains("film"), own, "{path} by {token}: {text}");
        }
    }
    let page = planted.app.by("viewer", &Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("vitrina_pipeline_status{pipeline=\"films\""), "{page}");
    assert!(!page.contains("http_server_request") && !page.contains("vitrina_runner_"), "{page}");
}
