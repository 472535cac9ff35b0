//! The documentation as a page: written once from the OpenAPI document, without scripts and without other servers.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::Value;
use utoipa::openapi::OpenApi;
use vitrina_store::Role;

use crate::access::{self, Needed};
use crate::app::App;

const STYLE: &str = include_str!("docs.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// `/docs`, for whoever may look at the API.
pub(super) fn page(app: &App, document: &OpenApi) -> Router<App> {
    let document = serde_json::to_value(document).expect("a document of plain values can be written");
    let html: Arc<str> = write(&document).into();
    let show = async move || {
        let headers =
            [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
        (headers, html.to_string()).into_response()
    };
    let guarded =
        get(show).route_layer(from_fn_with_state((app.clone(), Needed::role(Role::Viewer)), access::check));
    Router::new().route("/docs", guarded)
}

fn write(document: &Value) -> String {
    let calls = calls(document);
    let mut body = String::new();
    let about = text(&document["info"]["description"]);
    let version = text(&document["info"]["version"]);
    let _ = write!(
        body,
        "<h1>Vitrina API <small>{version}</small></h1><p>{about} The same as a document: <a href=\"/api/v1/openapi.json\">openapi.json</a>.</p>"
    );
    for tag in tags(&calls) {
        let _ = write!(body, "<h2>{}</h2>", escape(&tag));
        calls.iter().filter(|call| call.tag == tag).for_each(|call| call.write(&mut body));
    }
    let _ = write!(body, "<h2>schemas</h2>");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let _ = write!(
            body,
            "<details id=\"{name}\"><summary><code>{name}</code></summary>{}{}</details>",
            paragraph(&schema["description"]),
            properties(schema)
        );
    }
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Vitrina API</title><style>{STYLE}</style><main>{body}</main></html>"
    )
}

struct Call<'a> {
    tag: String,
    method: String,
    path: &'a str,
    operation: &'a Value,
}

fn calls(document: &Value) -> Vec<Call<'_>> {
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let tag = operation["tags"][0].as_str().unwrap_or("other").to_owned();
            calls.push(Call { tag, method: method.to_uppercase(), path, operation });
        }
    }
    calls
}

/// In the order they first appear.
fn tags(calls: &[Call<'_>]) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    for call in calls {
        if !tags.contains(&call.tag) {
            tags.push(call.tag.clone());
        }
    }
    tags
}

impl Call<'_> {
    fn write(&self, page: &mut String) {
        let Self { method, path, operation, .. } = self;
        let summary = text(&operation["summary"]);
        let _ = write!(
            page,
            "<details><summary><b class=\"{method}\">{method}</b> <code>{}</code> {summary}</summary>",
            escape(path)
        );
        for part in operation["description"].as_str().unwrap_or_default().split("\n\n") {
            let _ = write!(page, "<p>{}</p>", escape(part));
        }
        self.write_parameters(page);
        self.write_body(page);
        self.write_answers(page);
        page.push_str("</details>");
    }

    fn write_parameters(&self, page: &mut String) {
        let parameters = self.operation["parameters"].as_array();
        let Some(parameters) = parameters.filter(|list| !list.is_empty()) else { return };
        page.push_str("<h3>Parameters</h3><table>");
        for parameter in parameters {
            let place = text(&parameter["in"]);
            let _ = write!(
                page,
                "<tr><td><code>{}</code><td>{place}<td>{}<td>{}",
                text(&parameter["name"]),
                kind(&parameter["schema"]),
                text(&parameter["description"])
            );
        }
        page.push_str("</table>");
    }

    fn write_body(&self, page: &mut String) {
        for (media, content) in self.operation["requestBody"]["content"].as_object().into_iter().flatten() {
            let _ = write!(
                page,
                "<h3>Body</h3><p><code>{}</code> {}</p>",
                escape(media),
                kind(&content["schema"])
            );
        }
    }

    fn write_answers(&self, page: &mut String) {
        page.push_str("<h3>Answers</h3><table>");
        for (status, answer) in self.operation["responses"].as_object().into_iter().flatten() {
            let content = answer["content"].as_object().and_then(|content| content.values().next());
            let kind = content.map(|content| kind(&content["schema"])).unwrap_or_default();
            let _ =
                write!(page, "<tr><td><code>{status}</code><td>{kind}<td>{}", text(&answer["description"]));
        }
        page.push_str("</table>");
    }
}

fn properties(schema: &Value) -> String {
    let mut table = String::new();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let _ = write!(table, "<p>with {}</p>{}", kind(part), properties(part));
    }
    let Some(fields) = schema["properties"].as_object() else { return table + &values(schema) };
    table.push_str("<table>");
    for (name, field) in fields {
        let _ = write!(
            table,
            "<tr><td><code>{}</code><td>{}<td>{}",
            escape(name),
            kind(field),
            text(&field["description"])
        );
    }
    table + "</table>"
}

fn values(schema: &Value) -> String {
    let words: Vec<&str> =
        schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("<p>one of <code>{}</code></p>", escape(&words.join(", ")))
    }
}

/// A type in a word, with a link where it has a name.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    if schema["type"] == "array" {
        return format!("list of {}", kind(&schema["items"]));
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(kinds) = schema[choice].as_array() {
            return kinds.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    match &schema["type"] {
        Value::String(name) => escape(name),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(escape).collect::<Vec<_>>().join(" or ")
        }
        _ => String::new(),
    }
}

fn paragraph(value: &Value) -> String {
    value.as_str().map(|text| format!("<p>{}</p>", escape(text))).unwrap_or_default()
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
