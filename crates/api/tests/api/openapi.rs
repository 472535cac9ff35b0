//! The documentation is the code's: a change of the interface shows as a change of `openapi.json`.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{App, QUERY, send};

/// One call of the document.
struct Call<'a> {
    method: &'a str,
    path: &'a str,
    description: &'a Value,
}

impl Call<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), self.path)
    }

    fn answers(&self) -> BTreeSet<&str> {
        self.description["responses"].as_object().unwrap().keys().map(String::as_str).collect()
    }

    fn takes(&self, place: &str) -> bool {
        let parameters = self.description["parameters"].as_array();
        parameters.is_some_and(|all| all.iter().any(|parameter| parameter["in"] == place))
    }

    fn is_guarded(&self) -> bool {
        self.description["security"].is_array()
    }
}

fn calls(document: &Value) -> Vec<Call<'_>> {
    let paths = document["paths"].as_object().unwrap().iter();
    let calls = paths.flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, description)| Call { method, path, description })
    });
    calls.collect()
}

async fn document() -> Value {
    App::start().await.get("/openapi.json").await.assert(200).body
}

#[tokio::test]
async fn the_interface_is_the_documented_one() {
    let app = App::start().await;
    let answer = app.get("/api/v1/openapi.json").await.assert(200);
    let now = format!("{:#}\n", answer.body);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(&golden, &now).unwrap();
    }
    let documented = fs::read_to_string(&golden).unwrap_or_default();
    assert!(documented == now, "openapi.json is not what the code says: write it with UPDATE_OPENAPI=1");
}

#[tokio::test]
async fn every_call_documents_its_answers() {
    let document = document().await;
    assert_eq!(document["openapi"], "3.1.0");
    for call in calls(&document) {
        let (name, answers) = (call.name(), call.answers());
        assert!(answers.iter().any(|status| status.starts_with('2')), "{name}");
        assert_eq!(call.is_guarded(), answers.contains("401"), "{name}");
        let about_a_pipeline = call.path.contains("{p}");
        assert_eq!(about_a_pipeline, answers.contains("404") && call.path.contains("/pipelines/"), "{name}");
    }
}

#[tokio::test]
async fn every_call_has_a_name_a_summary_and_a_tag() {
    let document = document().await;
    let mut ids = BTreeSet::new();
    for call in calls(&document) {
        let said = |field: &str| call.description[field].as_str().is_some_and(|text| !text.is_empty());
        assert!(said("summary") && said("operationId"), "{}", call.name());
        assert!(call.description["tags"].as_array().is_some_and(|tags| tags.len() == 1), "{}", call.name());
        assert!(ids.insert(call.description["operationId"].as_str().unwrap()), "{}", call.name());
    }
}

#[tokio::test]
async fn every_call_documents_how_it_refuses_what_it_cannot_read() {
    let document = document().await;
    for call in calls(&document) {
        let (name, answers) = (call.name(), call.answers());
        let mut needed = Vec::new();
        // Unknown parameters are refused by all calls that need a role.
        needed.extend(call.is_guarded().then_some("422"));
        needed.extend(call.takes("path").then_some("404"));
        let has_version = call.description["parameters"].to_string().contains("\"if-match\"");
        needed.extend(has_version.then_some(["400", "412"]).into_iter().flatten());
        let has_body = call.description["requestBody"].is_object();
        needed.extend(has_body.then_some(["400", "413", "415", "422"]).into_iter().flatten());
        for status in needed {
            assert!(answers.contains(status), "{name} does not document {status}");
        }
    }
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    let document = document().await;
    let text = document.to_string();
    let references = text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next());
    let astray: Vec<&str> = references.filter(|reference| document.pointer(reference).is_none()).collect();
    assert!(astray.is_empty(), "{astray:?}");
}

#[tokio::test]
async fn every_property_and_parameter_has_a_type() {
    let document = document().await;
    let mut untyped = Vec::new();
    look_for_untyped(&document, "", &mut untyped);
    assert!(untyped.is_empty(), "{untyped:#?}");
}

fn look_for_untyped(value: &Value, place: &str, untyped: &mut Vec<String>) {
    let has_type = |schema: &Value| {
        ["type", "$ref", "oneOf", "allOf", "anyOf"].iter().any(|word| schema.get(word).is_some())
    };
    let properties = value.get("properties").and_then(Value::as_object).into_iter().flatten();
    let named = properties.map(|(name, schema)| (name.as_str(), schema));
    for (name, schema) in named.chain(value.get("schema").map(|schema| ("schema", schema))) {
        if !has_type(schema) {
            untyped.push(format!("{place}/{name}"));
        }
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| *name != "example" && *name != "examples") {
                look_for_untyped(value, &format!("{place}/{name}"), untyped);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                look_for_untyped(value, &format!("{place}/{index}"), untyped);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn what_may_be_left_out_of_a_request_is_not_documented_as_null() {
    let document = document().await;
    for call in calls(&document) {
        for parameter in call.description["parameters"].as_array().into_iter().flatten() {
            assert!(!parameter["schema"].to_string().contains("\"null\""), "{}: {parameter}", call.name());
        }
        let body = &call.description["requestBody"]["content"];
        for content in body.as_object().into_iter().flat_map(|content| content.values()) {
            let choices = content["schema"]["oneOf"].as_array().into_iter().flatten();
            assert!(choices.into_iter().all(|choice| choice["type"] != "null"), "{}", call.name());
        }
    }
}

#[tokio::test]
async fn a_planned_change_may_be_of_any_type_and_a_checkpoint_is_an_object() {
    let document = document().await;
    let schemas = &document["components"]["schemas"];
    for side in ["before", "after"] {
        let change = &schemas["FieldChange"]["properties"][side]["$ref"];
        assert_eq!(change, "#/components/schemas/Anything");
    }
    assert_eq!(
        schemas["Anything"]["type"],
        json!(["null", "boolean", "number", "string", "array", "object"])
    );
    for holder in ["PipelineState", "CheckpointVersion", "StateForecast"] {
        assert_eq!(schemas[holder]["properties"]["checkpoint"]["type"], "object", "{holder}");
    }
}

#[tokio::test]
async fn every_documented_bound_of_a_pipeline_is_one_of_its_rules() {
    let app = App::start().await;
    let document = app.get("/openapi.json").await.assert(200).body;
    let properties = &document["components"]["schemas"]["PipelineConfig"]["properties"];
    let mut bounds = 0;
    for (name, schema) in properties.as_object().unwrap() {
        for beyond in beyond_bounds(schema) {
            let mut pipeline =
                json!({"name": "films", "target_table": "analytics.film_dim", "source_query": QUERY});
            pipeline[name] = beyond;
            let answer = app.post_json("/pipelines", &pipeline).await.assert_problem(422, "pipeline.invalid");
            assert!(answer.faults()[0].0.starts_with(&format!("/{name}")), "{pipeline}: {}", answer.body);
            bounds += 1;
        }
    }
    assert!(bounds >= 8, "only {bounds} bounds are documented");
}

fn beyond_bounds(schema: &Value) -> Vec<Value> {
    let number = |word: &str, step: f64| schema[word].as_f64().map(|bound| bound + step);
    let whole = schema["type"].to_string().contains("integer");
    let numbers = [number("minimum", -1.0), number("maximum", 1.0)].into_iter().flatten();
    #[expect(clippy::cast_possible_truncation, reason = "bounds are small")]
    let numbers = numbers.map(|value| if whole { json!(value as i64) } else { json!(value) });
    let length = |word: &str| schema[word].as_u64().and_then(|length| usize::try_from(length).ok());
    let short = length("minLength").map(|length| json!("a".repeat(length - 1)));
    let long = length("maxLength").map(|length| json!("a".repeat(length + 1)));
    numbers.chain(short).chain(long).collect()
}

#[tokio::test]
async fn every_example_of_a_body_is_one_that_the_server_reads() {
    let app = App::start().await;
    let pipeline = json!({"name": "film_dim", "target_table": "analytics.film_dim", "source_query": QUERY,
                          "mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"});
    app.post_json("/pipelines", &pipeline).await.assert(201);
    let document = app.get("/openapi.json").await.assert(200).body;
    let mut sent = 0;
    for call in calls(&document).iter().filter(|call| call.description["requestBody"].is_object()) {
        let content = call.description["requestBody"]["content"].as_object().unwrap();
        for (media_type, content) in content {
            let example = content.get("example").unwrap_or_else(|| panic!("{} has no example", call.name()));
            let path = call.path.replace("{p}", "film_dim").replace("{t}", "analytics.film_titles");
            let request = app.request(call.method.to_uppercase().parse::<Method>().unwrap(), &path);
            let request = request.header("content-type", media_type).body(example.to_string());
            let answer = send(if_match(&app, call, request).await).await;
            let refused =
                [400, 415, 422, 428].contains(&answer.status.as_u16()) || answer.status.as_u16() >= 500;
            assert!(!refused, "{}: {} {}", call.name(), answer.status, answer.body);
            sent += 1;
        }
    }
    assert!(sent >= 15, "only {sent} examples were sent");
}

/// The version that is there, where the call has to name one.
async fn if_match(app: &App, call: &Call<'_>, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
    match call.path.ends_with("/state") {
        true => request.header(
            "if-match",
            app.get("/pipelines/film_dim/state").await.assert(200).header("etag").to_owned(),
        ),
        false if call.method == "patch" => request.header("if-match", "*"),
        false => request,
    }
}
