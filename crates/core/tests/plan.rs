//! The contract of a task plan (R-CFG-3/4): every rule alone, all of them together, and plans that keep it.

use rstest::rstest;
use serde_json::json;
use vitrina_core::{AllowedTargets, Task, TaskPlan};

const SQL: &str = "SQL";
const PYTHON: &str = "PYTHON";

#[rstest]
#[case::no_steps(vec![])]
#[case::a_reader_alone(vec![step(0, SQL)])]
#[case::a_reader_and_transforms(vec![step(0, SQL), step(1, PYTHON), step(2, PYTHON)])]
#[case::gaps_in_the_order(vec![step(10, SQL), step(20, PYTHON), step(700, PYTHON)])]
#[case::a_driving_table_on_the_reader(vec![Task { source_table: Some("content.film_work".into()), ..step(0, SQL) }])]
#[case::a_target_on_the_last_step(vec![step(0, SQL), writing(step(1, PYTHON), "es:film_dim")])]
#[case::a_target_on_the_only_step(vec![writing(step(0, SQL), "analytics.film_dim")])]
#[case::shuffled(vec![writing(step(5, PYTHON), "es:film_dim"), step(3, PYTHON), step(1, SQL)])]
fn a_plan_that_keeps_the_contract_has_no_violations(#[case] tasks: Vec<Task>) {
    assert_eq!(broken(tasks), []);
}

#[rstest]
#[case("plan.order_negative", "tasks[-1].order_index", vec![step(-1, SQL), step(0, PYTHON)])]
#[case("plan.order_duplicate", "tasks[1].order_index", vec![step(0, SQL), step(1, PYTHON), step(1, PYTHON)])]
#[case("plan.type_empty", "tasks[0].task_type", vec![step(0, "")])]
#[case("plan.type_empty", "tasks[1].task_type", vec![step(0, SQL), step(1, " \t")])]
#[case("plan.type_unknown", "tasks[1].task_type", vec![step(0, SQL), step(1, "SHELL")])]
#[case("plan.type_unknown", "tasks[0].task_type", vec![step(0, "sql")])]
#[case("plan.body_empty", "tasks[0].body", vec![Task { body: String::new(), ..step(0, SQL) }])]
#[case("plan.body_empty", "tasks[1].body", vec![step(0, SQL), Task { body: " \n".into(), ..step(1, PYTHON) }])]
#[case("plan.first_not_sql", "tasks[0].task_type", vec![step(0, PYTHON), step(1, PYTHON)])]
#[case("plan.later_not_python", "tasks[1].task_type", vec![step(0, SQL), step(1, SQL), step(2, PYTHON)])]
#[case("plan.source_not_first", "tasks[1].source_table",
    vec![step(0, SQL), Task { source_table: Some("content.genre".into()), ..step(1, PYTHON) }])]
#[case("plan.target_not_last", "tasks[0].target_table", vec![writing(step(0, SQL), "es:film_dim"), step(1, PYTHON)])]
#[case("plan.target_refused", "tasks[1].target_table", vec![step(0, SQL), writing(step(1, PYTHON), "content.film_work")])]
#[case("plan.target_refused", "tasks[0].target_table", vec![writing(step(0, SQL), "analytics.x; drop table y")])]
#[case("plan.target_refused", "tasks[0].target_table", vec![writing(step(0, SQL), "")])]
fn each_breach_alone_is_the_only_one_reported(
    #[case] code: &str,
    #[case] field: &str,
    #[case] tasks: Vec<Task>,
) {
    assert_eq!(broken(tasks), [(code.to_owned(), field.to_owned())]);
}

#[test]
fn a_plan_that_breaks_many_rules_reports_all_of_them() {
    let found = broken(vec![
        writing(step(4, "SHELL"), "auth.user"),
        Task { body: String::new(), ..step(-2, PYTHON) },
        writing(Task { source_table: Some("content.genre".into()), ..step(4, SQL) }, "es:film_dim"),
        Task { body: "  ".into(), ..step(9, "") },
    ]);
    let expected = [
        ("plan.order_negative", "tasks[-2].order_index"),
        ("plan.order_duplicate", "tasks[4].order_index"),
        ("plan.body_empty", "tasks[-2].body"),
        ("plan.first_not_sql", "tasks[-2].task_type"),
        ("plan.type_unknown", "tasks[4].task_type"),
        ("plan.later_not_python", "tasks[4].task_type"),
        ("plan.source_not_first", "tasks[4].source_table"),
        ("plan.body_empty", "tasks[9].body"),
        ("plan.type_empty", "tasks[9].task_type"),
        ("plan.target_not_last", "tasks[4].target_table"),
        ("plan.target_refused", "tasks[4].target_table"),
        ("plan.target_not_last", "tasks[4].target_table"),
    ];
    assert_eq!(found, expected.map(|(code, field)| (code.to_owned(), field.to_owned())));
}

#[test]
fn an_unknown_type_is_answered_with_the_known_ones() {
    let found = TaskPlan::new(vec![step(0, "SHELL")]).violations(&AllowedTargets::default());
    assert_eq!(found[0].message, "unknown task_type \"SHELL\": one of SQL, PYTHON");
}

#[test]
fn a_refused_target_is_answered_with_a_hint() {
    let found =
        TaskPlan::new(vec![writing(step(0, SQL), "etl.etl_state")]).violations(&AllowedTargets::default());
    assert!(found[0].message.contains("\nhint: allowed_targets"), "{}", found[0].message);
}

#[test]
fn steps_run_in_their_order_however_they_are_given() {
    let plan = TaskPlan::new(vec![step(7, PYTHON), step(2, SQL), step(3, PYTHON)]);
    assert_eq!(plan.reader().map(|task| task.order_index), Some(2));
    assert_eq!(plan.transforms().map(|task| task.order_index).collect::<Vec<_>>(), [3, 7]);
}

#[test]
fn a_parsed_plan_is_put_in_order_too() {
    let second =
        json!({"order_index": 2, "task_type": "PYTHON", "body": "clean", "target_table": "es:film_dim"});
    let first = json!({"order_index": 1, "task_type": "SQL", "body": "select 1"});
    let plan: TaskPlan = serde_json::from_value(json!([second, first])).unwrap();
    assert_eq!(plan.reader().map(|task| task.body.as_str()), Some("select 1"));
    assert_eq!(plan.target_override(), Some("es:film_dim"));
    assert_eq!(plan.violations(&AllowedTargets::default()), []);
}

#[test]
fn a_plan_is_written_as_the_plain_list_of_its_steps() {
    let plan = TaskPlan::new(vec![step(1, PYTHON), step(0, SQL)]);
    let written = serde_json::to_value(&plan).unwrap();
    assert_eq!(written[0]["task_type"], "SQL");
    assert_eq!(serde_json::from_value::<TaskPlan>(written).unwrap(), plan);
}

#[rstest]
#[case::of_no_steps(vec![], None)]
#[case::not_given(vec![step(0, SQL), step(1, PYTHON)], None)]
#[case::blank(vec![writing(step(0, SQL), "  ")], None)]
#[case::of_the_last_step(vec![step(0, SQL), writing(step(1, PYTHON), "es:film_dim")], Some("es:film_dim"))]
#[case::of_the_step_that_is_last_by_order(vec![writing(step(1, PYTHON), "es:film_dim"), step(0, SQL)], Some("es:film_dim"))]
#[case::of_an_earlier_step(vec![writing(step(0, SQL), "es:film_dim"), step(1, PYTHON)], None)]
fn only_the_last_steps_target_overrides(#[case] tasks: Vec<Task>, #[case] target: Option<&str>) {
    assert_eq!(TaskPlan::new(tasks).target_override(), target);
}

fn broken(tasks: Vec<Task>) -> Vec<(String, String)> {
    let found = TaskPlan::new(tasks).violations(&AllowedTargets::default());
    found.into_iter().map(|violation| (violation.code.to_owned(), violation.field)).collect()
}

fn step(order_index: i32, task_type: &str) -> Task {
    let body = if task_type == SQL { "select id from content.film_work" } else { "clean_titles" };
    Task {
        order_index,
        task_type: task_type.into(),
        body: body.into(),
        source_table: None,
        target_table: None,
    }
}

fn writing(task: Task, target: &str) -> Task {
    Task { target_table: Some(target.into()), ..task }
}
