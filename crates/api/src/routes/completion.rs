//! What the handlers' own descriptions cannot say: that what may be left out is not therefore null, the rules of headers, and
//! examples.

use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{OpenApi, RefOr, Schema};

use super::documentation::operations;
use super::examples;

pub(super) fn complete(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter {
                    complete_parameter(parameter);
                }
            }
            complete_body(operation);
        }
    }
}

fn complete_parameter(parameter: &mut Parameter) {
    let Some(schema) = &mut parameter.schema else { return };
    without_null(schema);
    if let RefOr::T(Schema::Object(object)) = schema {
        object.pattern = pattern(&parameter.name).map(str::to_owned).or(object.pattern.take());
        object.examples.extend(examples::parameter(&parameter.name).map(Value::from));
    }
}

/// As `extract` reads them.
fn pattern(header: &str) -> Option<&'static str> {
    match header {
        "if-match" => Some(r#"^(\*|[0-9]{1,18}|"[0-9]{1,18}")$"#),
        "idempotency-key" => Some("^[!-~]([ -~]{0,253}[!-~])?$"),
        _ => None,
    }
}

fn complete_body(operation: &mut Operation) {
    let example = operation.operation_id.as_deref().and_then(examples::body);
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    for content in body.content.values_mut() {
        let RefOr::T(content) = content else { continue };
        if let Some(schema) = &mut content.schema {
            without_null(schema);
        }
        content.example = example.clone();
    }
}

/// `Option` is an `oneOf` with null, or one more type. Of a parameter or a body it means that it may be left out.
fn without_null(schema: &mut RefOr<Schema>) {
    let instead = match schema {
        RefOr::T(Schema::OneOf(choice)) => {
            choice.items.retain(|item| !is_null(item));
            if choice.items.len() == 1 { choice.items.pop() } else { None }
        }
        RefOr::T(Schema::Object(object)) => {
            if let SchemaType::Array(types) = &mut object.schema_type {
                types.retain(|name| *name != Type::Null);
                if let [only] = types.as_slice() {
                    object.schema_type = SchemaType::Type(only.clone());
                }
            }
            None
        }
        _ => None,
    };
    if let Some(instead) = instead {
        *schema = instead;
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}
