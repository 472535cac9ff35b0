//! The mapping and settings of an index: as the target says, or derived from the types of the rows, strict in both cases.

use std::collections::BTreeMap;

use arrow_schema::{Field, Schema};
use serde_json::{Map, Value, json};
use vitrina_core::{Error, Result, Target};
use vitrina_pgcopy::{Kind, Scalar};

/// The mapping that an index is created with.
pub(super) fn mapping(target: &Target, schema: &Schema, exact: &[String]) -> Value {
    let mut mapping = target.mapping.clone().unwrap_or_else(|| derived(target, schema, exact));
    if let Some(mapping) = mapping.as_object_mut() {
        mapping.entry("dynamic").or_insert(json!("strict"));
    }
    mapping
}

/// `exact`: columns that documents are found by.
fn derived(target: &Target, schema: &Schema, exact: &[String]) -> Value {
    let field = |column: &std::sync::Arc<Field>| {
        let name = target.document.field(column.name())?;
        let kind = Kind::of_field(column).unwrap_or(Kind::AsText);
        Some((name.to_owned(), field_type(kind, exact.contains(column.name()))))
    };
    let properties: Map<String, Value> = schema.fields().iter().filter_map(field).collect();
    json!({"properties": properties})
}

fn field_type(kind: Kind, exact: bool) -> Value {
    let (Kind::Scalar(scalar) | Kind::Array(scalar)) = kind else { return json!({"type": "keyword"}) };
    let name = match scalar {
        // A number would take values for the same that are only near each other.
        Scalar::Numeric if exact => "keyword",
        Scalar::Bool => "boolean",
        Scalar::Int2 => "short",
        Scalar::Int4 => "integer",
        Scalar::Int8 => "long",
        Scalar::Float4 => "float",
        Scalar::Float8 | Scalar::Numeric => "double",
        Scalar::Date | Scalar::Timestamp | Scalar::Timestamptz => "date",
        Scalar::Bytea => "binary",
        Scalar::Uuid | Scalar::Time | Scalar::Interval => "keyword",
        // Kept and shown, but not searched: nobody has said what is in it.
        Scalar::Json | Scalar::Jsonb => return json!({"type": "object", "enabled": false}),
        Scalar::Text | Scalar::Varchar | Scalar::Bpchar | Scalar::Name if exact => "keyword",
        Scalar::Text | Scalar::Varchar | Scalar::Bpchar | Scalar::Name => {
            return json!({"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}});
        }
    };
    json!({"type": name})
}

/// What the mapping calls the type of a field; a dot leads into an object.
pub(super) fn type_of<'a>(mapping: &'a Value, field: &str) -> Option<&'a str> {
    let properties = mapping.get("properties")?;
    if let Some(found) = properties.get(field) {
        return Some(found.get("type").and_then(Value::as_str).unwrap_or("object"));
    }
    let (object, rest) = field.split_once('.')?;
    type_of(properties.get(object)?, rest)
}

/// The type of a field by which documents can be found; `None` where the mapping has the server search for something else
/// than what is in them.
pub(super) fn searched_type<'a>(mapping: &'a Value, field: &str) -> Option<&'a str> {
    const OTHERWISE: [&str; 4] = ["normalizer", "ignore_above", "null_value", "ignore_malformed"];
    let properties = mapping.get("properties")?;
    if let Some(found) = properties.get(field) {
        let searched = found.get("index").is_none_or(|index| *index != json!(false));
        let as_is = OTHERWISE.iter().all(|option| found.get(option).is_none());
        return found.get("type").and_then(Value::as_str).filter(|_| searched && as_is);
    }
    let (object, rest) = field.split_once('.')?;
    let object = properties.get(object)?;
    // What is nested is no part of its document to a search.
    let plain = object.get("type").is_none_or(|name| *name == json!("object"));
    let enabled = object.get("enabled").is_none_or(|enabled| *enabled != json!(false));
    searched_type(object, rest).filter(|_| plain && enabled)
}

/// Types whose values are text in JSON, whatever they were in the row.
pub(super) fn is_text(name: &str) -> bool {
    matches!(
        name,
        "keyword" | "text" | "constant_keyword" | "wildcard" | "match_only_text" | "search_as_you_type"
    )
}

/// A field of this type finds a value of this kind by its text, and no others that are near it.
pub(super) fn is_exact(name: &str, kind: Kind) -> bool {
    let Kind::Scalar(scalar) = kind else { return name == "keyword" && kind == Kind::AsText };
    match name {
        // Of the others the text in a document is not the one that the database writes.
        "keyword" => !matches!(
            scalar,
            Scalar::Float4
                | Scalar::Float8
                | Scalar::Timestamp
                | Scalar::Timestamptz
                | Scalar::Time
                | Scalar::Interval
                | Scalar::Bytea
                | Scalar::Json
                | Scalar::Jsonb
        ),
        "short" | "integer" | "long" => matches!(scalar, Scalar::Int2 | Scalar::Int4 | Scalar::Int8),
        "boolean" => scalar == Scalar::Bool,
        "date" => scalar == Scalar::Date,
        _ => false,
    }
}

/// Its documents keep all that was written to them. Of others nothing can be copied or updated without losing the rest.
pub(super) fn has_whole_source(mapping: &Value) -> bool {
    let rules = mapping.get("_source").and_then(Value::as_object);
    rules.is_none_or(|rules| rules.iter().all(|(name, value)| name == "enabled" && *value == json!(true)))
}

fn check_source(target: &Target, mapping: &Value) -> Result<()> {
    if !target.document.partial || has_whole_source(mapping) {
        return Ok(());
    }
    let message = format!(
        "the mapping of {} leaves a part of documents out of _source, and several pipelines update them",
        target.name
    );
    Err(Error::fix("sink.source_filtered", message)
        .hint("every update would lose what _source lacks: leave `_source` out of the mapping, or let one pipeline write whole documents"))
}

/// Columns that a strict mapping has no field for: told before the first document is refused.
pub(super) fn check_columns(target: &Target, mapping: &Value, schema: &Schema) -> Result<()> {
    check_source(target, mapping)?;
    check_rules(target, schema)?;
    check_fields(target, schema)?;
    if mapping.get("dynamic").is_some_and(|dynamic| *dynamic != json!("strict")) {
        return Ok(());
    }
    let fields = schema.fields().iter().filter_map(|column| target.document.field(column.name()));
    let unmapped: Vec<&str> = fields.filter(|field| type_of(mapping, field).is_none()).collect();
    if unmapped.is_empty() {
        return Ok(());
    }
    let names = unmapped.join(", ");
    Err(Error::fix("sink.unmapped", format!("the mapping of {} has no field for: {names}", target.name))
        .hint("add them to the mapping's properties, omit the columns in the target's document rules, or leave the mapping out to have it derived"))
}

/// A rule for a column that is not there is a slip of the pen, unless other pipelines bring it.
fn check_rules(target: &Target, schema: &Schema) -> Result<()> {
    let rules = &target.document;
    let named = rules.rename.keys().chain(&rules.omit);
    let strange = named.filter(|column| schema.field_with_name(column).is_err()).map(String::as_str);
    let strange: Vec<&str> = strange.filter(|_| !rules.partial).collect();
    if strange.is_empty() {
        return Ok(());
    }
    let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let (names, columns) = (strange.join(", "), columns.join(", "));
    let message = format!("the document rules of {} name columns that the rows lack: {names}", target.name);
    Err(Error::fix("sink.document_rules", message).hint(format!("the query returns: {columns}")))
}

/// Two columns in one field would be two words of a document with the same name.
fn check_fields(target: &Target, schema: &Schema) -> Result<()> {
    let mut seen = BTreeMap::new();
    for column in schema.fields() {
        let Some(field) = target.document.field(column.name()) else { continue };
        if let Some(first) = seen.insert(field, column.name()) {
            let message = format!(
                "columns {first} and {} of {} both become the field {field}",
                column.name(),
                target.name
            );
            return Err(
                Error::fix("sink.document_rules", message).hint("rename one of them otherwise, or omit it")
            );
        }
    }
    Ok(())
}

/// The settings of a new index, as the target says.
pub(super) fn settings(target: &Target) -> Value {
    let mut settings = target.settings.clone().unwrap_or_else(|| json!({}));
    index_part(&mut settings);
    settings
}

/// What a load has set aside, as the target says or as the server has it by itself.
pub(super) fn settled(target: &Target) -> Value {
    let mut settings = target.settings.clone().unwrap_or_else(|| json!({}));
    let index = index_part(&mut settings);
    let said = |name: &str| index.get(name).cloned().unwrap_or(Value::Null);
    let mut settled = json!({"refresh_interval": said("refresh_interval"), "number_of_replicas": said("number_of_replicas")});
    if let Some(expand) = index.get("auto_expand_replicas") {
        settled["auto_expand_replicas"] = expand.clone();
    }
    json!({"index": settled})
}

/// Servers take `index.x`, `index: {x}` and `x` for the same; here they become one, so that one does not speak against the
/// other.
fn index_part(settings: &mut Value) -> &mut Map<String, Value> {
    let mut index = Map::new();
    if let Value::Object(written) = std::mem::take(settings) {
        for (name, value) in written {
            match (name.as_str(), value) {
                ("index", Value::Object(parts)) => index.extend(parts),
                (name, value) => {
                    index.insert(name.strip_prefix("index.").unwrap_or(name).to_owned(), value);
                }
            }
        }
    }
    *settings = json!({"index": index});
    match &mut settings["index"] {
        Value::Object(index) => index,
        _ => unreachable!("an object was put there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::DataType;
    use vitrina_core::TargetName;

    fn target(mapping: Option<Value>, settings: Option<Value>) -> Target {
        let name: TargetName = "es:films".parse().unwrap();
        Target { mapping, settings, ..Target::undescribed(&name) }
    }

    fn schema() -> Schema {
        let oid = |oid: u32| std::collections::HashMap::from([("pg_oid".to_owned(), oid.to_string())]);
        Schema::new(vec![
            Field::new("id", DataType::Utf8, true),
            Field::new("title", DataType::Utf8, true),
            Field::new("price", DataType::Utf8, true).with_metadata(oid(1700)),
            Field::new("facts", DataType::Utf8, true).with_metadata(oid(3802)),
        ])
    }

    #[test]
    fn a_mapping_is_derived_from_the_types_of_the_rows_and_strict() {
        let mut target = target(None, None);
        target.document.rename.insert("title".to_owned(), "name".to_owned());
        let mapping = mapping(&target, &schema(), &["id".to_owned()]);
        assert_eq!(mapping["dynamic"], "strict");
        assert_eq!(type_of(&mapping, "id"), Some("keyword"));
        assert_eq!(type_of(&mapping, "name"), Some("text"));
        assert_eq!(type_of(&mapping, "price"), Some("double"));
        assert_eq!(mapping["properties"]["facts"]["enabled"], false);
        check_columns(&target, &mapping, &schema()).unwrap();
    }

    #[test]
    fn a_column_without_a_field_is_told_unless_the_mapping_is_open_or_the_column_omitted() {
        let mapping = json!({"properties": {"id": {"type": "keyword"}, "title": {"type": "text"}, "price": {"type": "scaled_float"}}});
        let mut target = target(Some(mapping.clone()), None);
        let error = check_columns(&target, &mapping, &schema()).unwrap_err();
        assert!(error.to_string().contains("no field for: facts"), "{error}");
        target.document.omit.push("facts".to_owned());
        check_columns(&target, &mapping, &schema()).unwrap();
        let open = json!({"dynamic": true});
        check_columns(&target, &open, &schema()).unwrap();
    }

    #[test]
    fn a_rule_for_a_column_that_the_rows_lack_is_told_unless_other_pipelines_may_bring_it() {
        let mut target = target(None, None);
        target.document.omit.push("titel".to_owned());
        let mapping = mapping(&target, &schema(), &[]);
        let error = check_columns(&target, &mapping, &schema()).unwrap_err();
        assert!(
            error.to_string().contains("titel") && error.to_string().contains("id, title, price"),
            "{error}"
        );
        target.document.partial = true;
        check_columns(&target, &mapping, &schema()).unwrap();
    }

    #[test]
    fn a_column_that_is_renamed_to_another_one_is_told() {
        let mut target = target(None, None);
        target.document.rename.insert("title".to_owned(), "price".to_owned());
        let mapping = mapping(&target, &schema(), &[]);
        let error = check_columns(&target, &mapping, &schema()).unwrap_err();
        assert!(error.to_string().contains("title and price"), "{error}");
        target.document.omit.push("price".to_owned());
        check_columns(&target, &mapping, &schema()).unwrap();
    }

    /// A search for what such a field holds would find more documents than were meant, or fewer.
    #[test]
    fn documents_are_not_found_by_a_field_that_the_server_searches_for_something_else() {
        let plain = json!({"properties": {"shelf": {"type": "keyword"}, "of": {"properties": {"shelf": {"type": "long"}}}}});
        assert_eq!(searched_type(&plain, "shelf"), Some("keyword"));
        assert_eq!(searched_type(&plain, "of.shelf"), Some("long"));
        for option in [
            json!({"normalizer": "lowercase"}),
            json!({"ignore_above": 10}),
            json!({"null_value": "none"}),
            json!({"index": false}),
            json!({"ignore_malformed": true}),
        ] {
            let mut mapping = plain.clone();
            let field = mapping["properties"]["shelf"].as_object_mut().unwrap();
            field.extend(option.as_object().unwrap().clone());
            assert_eq!(searched_type(&mapping, "shelf"), None, "{option}");
        }
        let mut nested = plain.clone();
        nested["properties"]["of"]["type"] = json!("nested");
        assert_eq!(searched_type(&nested, "of.shelf"), None);
        let mut disabled = plain;
        disabled["properties"]["of"]["enabled"] = json!(false);
        assert_eq!(searched_type(&disabled, "of.shelf"), None);
    }

    #[test]
    fn a_load_gives_back_what_the_target_says_of_refresh_and_replicas() {
        let written =
            json!({"number_of_replicas": 2, "index.refresh_interval": "5s", "analysis": {"analyzer": {}}});
        let target = target(None, Some(written));
        assert!(settings(&target)["index"]["analysis"].is_object());
        assert_eq!(settled(&target), json!({"index": {"refresh_interval": "5s", "number_of_replicas": 2}}));
    }
}
