//! All that can be said against a pipeline before it is saved: the rules of `core`, what this
//! server's configuration knows, and the guard's verdict on its SQL.

use vitrina_core::{Mode, Pipeline, TaskKind, Violation};
use vitrina_guard::Finding;

use crate::app::Rules;
use crate::problem::Fault;

const SOURCE_TYPES: [&str; 2] = ["postgres", "python"];

/// `order` lists the tasks' `order_index` as the request has them, so that a fault points there.
pub(super) fn faults(pipeline: &Pipeline, order: &[i32], rules: &Rules) -> Vec<Fault> {
    let mut violations = pipeline.violations(&rules.allowed_targets);
    violations.extend(pipeline.size_violations());
    violations.extend(source_type_violation(pipeline));
    violations.extend(connection_violation(pipeline, rules));
    let mut found = told(&violations, order);
    if let Some(connection) = rules.source_connections.get(&pipeline.source_connection) {
        let refused = guard_faults(pipeline, &connection.allowed_schemas, order);
        found.extend(refused.into_iter().map(|fault| with_setting(fault, &pipeline.source_connection)));
    }
    found
}

/// Which schemas a query may name is set at the server, and its author may not know where.
pub(super) fn with_setting(mut fault: Fault, source: &str) -> Fault {
    if let Some(hint) = fault.hint.as_mut().filter(|hint| hint.contains("allowed schemas: ")) {
        let variable = source.to_uppercase();
        *hint += &format!(
            " (connections.{source}.allowed_schemas of the server, or VITRINA_CONNECTIONS_{variable}_ALLOWED_SCHEMAS; `vitrina doctor` lists what its login may read)"
        );
    }
    fault
}

pub(super) fn number_faults(pipeline: &Pipeline) -> Vec<Fault> {
    told(&pipeline.number_violations(), &[])
}

fn told(violations: &[Violation], order: &[i32]) -> Vec<Fault> {
    let fault = |rule: &Violation| Fault::new(pointer(&rule.field, order), rule.code, &rule.message);
    violations.iter().map(fault).collect()
}

fn source_type_violation(pipeline: &Pipeline) -> Option<Violation> {
    let known = SOURCE_TYPES.contains(&pipeline.source_type.as_str());
    (!known).then(|| {
        let rule =
            format!("unknown source_type {:?}: one of {}", pipeline.source_type, SOURCE_TYPES.join(", "));
        Violation::new("pipeline.source_type", "source_type", rule)
    })
}

fn connection_violation(pipeline: &Pipeline, rules: &Rules) -> Option<Violation> {
    let needed = pipeline.source_type != "python" || pipeline.reader_sql().is_some();
    let known = rules.source_connections.contains_key(&pipeline.source_connection);
    (needed && !known).then(|| {
        let names: Vec<&str> = rules.source_connections.keys().map(String::as_str).collect();
        let known = if names.is_empty() { "none is configured".to_owned() } else { format!("one of {}", names.join(", ")) };
        let rule = format!(
            "unknown source_connection {:?}: {known}\nhint: connections are named in the server's configuration",
            pipeline.source_connection
        );
        Violation::new("pipeline.source_connection", "source_connection", rule)
    })
}

/// Every SQL text, also one that a plan overrides: it is stored, and a plan may go.
fn guard_faults(pipeline: &Pipeline, schemas: &[String], order: &[i32]) -> Vec<Fault> {
    let mut found = query_faults("/source_query", pipeline.source_query.as_deref(), schemas);
    if pipeline.mode == Mode::Incremental && found.is_empty() {
        let unkeyed = filled(pipeline.source_query.as_deref())
            .map(|sql| vitrina_guard::check_keyed(sql, &pipeline.change_key))
            .unwrap_or_default();
        found.extend(unkeyed.into_iter().map(|finding| fault("/source_query", finding)));
    }
    found.extend(table_faults("/source_table", pipeline.source_table.as_deref(), schemas));
    for (place, watch) in pipeline.watch.iter().enumerate() {
        found.extend(table_faults(&format!("/watch/{place}/table"), Some(&watch.table), schemas));
        let keys =
            watch.keys.as_deref().map(|sql| vitrina_guard::check_watch(sql, schemas)).unwrap_or_default();
        found.extend(keys.into_iter().map(|finding| fault(&format!("/watch/{place}/keys"), finding)));
    }
    for task in pipeline.plan.tasks.iter().filter(|task| task.kind() == Some(TaskKind::Sql)) {
        let at = |field| pointer(&format!("tasks[{}].{field}", task.order_index), order);
        found.extend(query_faults(&at("body"), Some(&task.body), schemas));
        found.extend(table_faults(&at("source_table"), task.source_table.as_deref(), schemas));
    }
    found
}

fn query_faults(pointer: &str, sql: Option<&str>, schemas: &[String]) -> Vec<Fault> {
    let findings = filled(sql).map(|sql| vitrina_guard::check(sql, schemas)).unwrap_or_default();
    findings.into_iter().map(|finding| fault(pointer, finding)).collect()
}

fn table_faults(pointer: &str, table: Option<&str>, schemas: &[String]) -> Vec<Fault> {
    let findings = filled(table).map(|table| vitrina_guard::check_table(table, schemas)).unwrap_or_default();
    let quoted = table.and_then(in_quotes);
    let found = findings.into_iter().map(|finding| fault(pointer, finding));
    found.map(|fault| with_quotes(fault, quoted.as_deref())).collect()
}

/// Whoever copies a name from a list of tables may not know that SQL wants some of them in quotes.
fn with_quotes(mut fault: Fault, quoted: Option<&str>) -> Fault {
    if let Some((hint, quoted)) = fault.hint.as_mut().zip(quoted).filter(|_| fault.code == "table.name") {
        *hint += &format!(
            "; a name with capitals, spaces or other signs in double quotes, in YAML within single ones: '{quoted}'"
        );
    }
    fault
}

/// `Web Shop.Films` as SQL writes it, where it could be nothing else.
fn in_quotes(table: &str) -> Option<String> {
    let (schema, name) = table.split_once('.')?;
    let is_bare = |part: &str| !part.is_empty() && !part.contains(['"', '.', '\'', '(', ';']);
    (is_bare(schema) && is_bare(name)).then(|| format!("\"{schema}\".\"{name}\""))
}

pub(super) fn fault(pointer: &str, finding: Finding) -> Fault {
    let fault = Fault::new(pointer, finding.code, &finding.message).at(finding.line, finding.column);
    Fault { hint: finding.hint, ..fault }
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

/// `tasks[<order_index>].body` becomes `/tasks/<place in the request>/body`.
fn pointer(field: &str, order: &[i32]) -> String {
    let task = field.strip_prefix("tasks[").and_then(|rest| rest.split_once("]."));
    let placed = task.and_then(|(index, field)| {
        let place = order.iter().position(|order| order.to_string() == index)?;
        Some(format!("/tasks/{place}/{field}"))
    });
    placed.unwrap_or_else(|| format!("/{}", field.replace("].", "/").replace('[', "/")))
}

#[cfg(test)]
mod tests {
    use super::{in_quotes, pointer, table_faults};

    #[test]
    fn a_table_that_wants_quotes_is_told_with_them() {
        let schemas = ["Web Shop".to_owned()];
        let found = table_faults("/source_table", Some("Web Shop.Films"), &schemas);
        let hint = found[0].hint.as_deref().unwrap_or_default();
        assert!(hint.ends_with("'\"Web Shop\".\"Films\"'"), "{hint}");
        assert!(table_faults("/source_table", Some("\"Web Shop\".\"Films\""), &schemas).is_empty());
        for other in ["films", "a.b.c", "\"a\".b", "content.film; drop table x", "a.b('x')"] {
            assert_eq!(in_quotes(other), None, "{other}");
        }
    }

    #[test]
    fn a_fault_of_a_task_points_to_its_place_in_the_request() {
        assert_eq!(pointer("tasks[10].body", &[20, 10]), "/tasks/1/body");
        assert_eq!(pointer("batch_size", &[]), "/batch_size");
        assert_eq!(pointer("watch[1].key", &[]), "/watch/1/key");
    }
}
