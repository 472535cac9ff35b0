//! The JSON Schema of configuration files: that of POST /plan, and what files may say beside it.

use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::documents::Configuration;

#[derive(OpenApi)]
#[openapi(components(schemas(Configuration)))]
struct Schemas;

/// Complete in itself, for editors.
pub fn of_files() -> Value {
    let document =
        serde_json::to_value(Schemas::openapi()).expect("a document of plain values can be written");
    let mut schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    schemas.values_mut().for_each(point_to_definitions);
    allow_sql_files(&mut schemas);
    let mut root = schemas.remove("Configuration").unwrap_or_default();
    if let Some(properties) = root["properties"].as_object_mut() {
        properties.remove("prune");
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Vitrina configuration");
    root["description"] = json!("Targets and pipelines, for `vitrina plan` and `vitrina apply`.");
    root["$defs"] = Value::Object(schemas);
    root
}

fn point_to_definitions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if name == "$ref" => {
                        *text = text.replace("#/components/schemas/", "#/$defs/");
                    }
                    value => point_to_definitions(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(point_to_definitions),
        _ => {}
    }
}

/// SQL may stand in a file of its own beside the YAML.
fn allow_sql_files(schemas: &mut Map<String, Value>) {
    for (schema, instead) in [("PipelineConfig", "source_query"), ("Task", "body")] {
        if let Some(schema) = schemas.get_mut(schema) {
            let about = format!("A file with the SQL, beside this one, instead of {instead}.");
            schema["properties"]["sql_file"] = json!({"type": "string", "description": about});
            if let Some(required) = schema["required"].as_array_mut() {
                required.retain(|field| field != instead);
            }
        }
    }
}
