//! A pipeline's configuration: what can be said against it, what it reads with, and which changes
//! of it make a checkpoint meaningless.

use rstest::rstest;
use uuid::Uuid;
use vitrina_core::{
    AllowedTargets, Capture, FirstLoad, Locked, Mode, OnChange, Pipeline, PipelineId, PipelineKind, ReadBy,
    Shared, Status, Target, Task, TaskPlan,
};

type Edit = fn(&mut Pipeline);

#[rstest]
#[case::by_query(|_: &mut Pipeline| {})]
#[case::by_table(|p: &mut Pipeline| { p.source_query = None; p.source_table = Some("content.film_work".into()) })]
#[case::by_plan(|p: &mut Pipeline| { p.source_query = None; p.plan = plan("select 1") })]
#[case::by_python_task(|p: &mut Pipeline| { p.kind = PipelineKind::Python; p.source_query = None; p.python_task = Some("films".into()) })]
#[case::by_python_plan(|p: &mut Pipeline| { p.kind = PipelineKind::Python; p.plan = plan("select 1") })]
#[case::incremental(|p: &mut Pipeline| { p.mode = Mode::Incremental; p.incremental_key = Some("modified".into()) })]
#[case::incremental_by_change_log(|p: &mut Pipeline| { p.mode = Mode::Incremental; p.capture = Capture::Changelog })]
#[case::the_smallest_numbers(|p: &mut Pipeline| { p.batch_size = 1; p.delete_limit = 0.0; p.late_window_seconds = 0 })]
#[case::the_greatest_numbers(|p: &mut Pipeline| { p.batch_size = 100_000; p.delete_limit = 1.0 })]
#[case::a_name_in_another_script(|p: &mut Pipeline| p.name = "фильмы-2.полные_".into())]
#[case::a_long_name(|p: &mut Pipeline| p.name = "ф".repeat(100))]
fn a_sound_pipeline_has_no_violations(#[case] edit: Edit) {
    assert_eq!(broken(edit), []);
}

#[rstest]
#[case("pipeline.name", "name", |p: &mut Pipeline| p.name = String::new())]
#[case("pipeline.name", "name", |p: &mut Pipeline| p.name = "films and genres".into())]
#[case("pipeline.name", "name", |p: &mut Pipeline| p.name = "films/run".into())]
#[case("pipeline.name", "name", |p: &mut Pipeline| p.name = "ф".repeat(101))]
#[case("pipeline.name", "name", |p: &mut Pipeline| p.name = "11111111-1111-1111-1111-111111111111".into())]
#[case("pipeline.source", "source_query", |p: &mut Pipeline| p.source_query = None)]
#[case("pipeline.source", "source_query", |p: &mut Pipeline| p.source_query = Some(" \n".into()))]
#[case("pipeline.source", "source_query", |p: &mut Pipeline| { p.source_query = None; p.source_table = Some(" ".into()) })]
#[case("pipeline.python_task", "python_task", |p: &mut Pipeline| p.kind = PipelineKind::Python)]
#[case("pipeline.python_task", "python_task", |p: &mut Pipeline| { p.kind = PipelineKind::Python; p.python_task = Some(" ".into()) })]
#[case("pipeline.python", "python_task", |p: &mut Pipeline| p.python_task = Some("films".into()))]
#[case("pipeline.python", "python_task", |p: &mut Pipeline| { p.kind = PipelineKind::Python; p.plan = plan("select 1"); p.python_task = Some("films".into()) })]
#[case("pipeline.python", "source_type", |p: &mut Pipeline| { p.kind = PipelineKind::Python; p.plan = plan("select 1"); p.source_type = "python".into() })]
#[case("pipeline.python", "source_type", |p: &mut Pipeline| p.source_type = "python".into())]
#[case("target.name", "target_table", |p: &mut Pipeline| p.target_table = "film_dim".into())]
#[case("target.not_allowed", "target_table", |p: &mut Pipeline| p.target_table = "content.film_work".into())]
#[case("pipeline.batch_size", "batch_size", |p: &mut Pipeline| p.batch_size = 0)]
#[case("pipeline.batch_size", "batch_size", |p: &mut Pipeline| p.batch_size = 100_001)]
#[case("pipeline.delete_limit", "delete_limit", |p: &mut Pipeline| p.delete_limit = -0.1)]
#[case("pipeline.delete_limit", "delete_limit", |p: &mut Pipeline| p.delete_limit = 1.1)]
#[case("pipeline.delete_limit", "delete_limit", |p: &mut Pipeline| p.delete_limit = f64::NAN)]
#[case("pipeline.reject_limit", "reject_limit", |p: &mut Pipeline| p.reject_limit = -1)]
#[case("pipeline.freshness_limit", "freshness_limit_seconds", |p: &mut Pipeline| p.freshness_limit_seconds = Some(0))]
#[case("pipeline.schedule", "schedule_interval", |p: &mut Pipeline| p.schedule_interval = Some("often".into()))]
#[case("pipeline.full_schedule", "full_schedule", |p: &mut Pipeline| p.full_schedule = Some("often".into()))]
#[case("pipeline.reconcile_schedule", "reconcile_schedule", |p: &mut Pipeline| p.reconcile_schedule = Some("often".into()))]
#[case("pipeline.late_window", "late_window_seconds", |p: &mut Pipeline| p.late_window_seconds = -1)]
#[case("pipeline.late_window", "late_window_seconds", |p: &mut Pipeline| p.late_window_seconds = i64::MAX)]
#[case("pipeline.incremental_key", "incremental_key", |p: &mut Pipeline| p.mode = Mode::Incremental)]
#[case("pipeline.incremental_key", "incremental_key", |p: &mut Pipeline| { p.mode = Mode::Incremental; p.incremental_key = Some(" ".into()) })]
#[case("plan.target_refused", "tasks[1].target_table", |p: &mut Pipeline| {
    p.plan = plan("select 1");
    p.plan.tasks[1].target_table = Some("auth.user".into());
})]
fn each_breach_alone_is_the_only_one_reported(#[case] code: &str, #[case] field: &str, #[case] edit: Edit) {
    assert_eq!(broken(edit), [(code.to_owned(), field.to_owned())]);
}

/// R-CFG-5.
#[rstest]
#[case::name(true, "name", |p: &mut Pipeline| p.name = "movies".into())]
#[case::description(true, "description", |p: &mut Pipeline| p.description = "all".into())]
#[case::tags(true, "tags", |p: &mut Pipeline| p.tags = vec!["nightly".into()])]
#[case::enabled(true, "enabled", |p: &mut Pipeline| p.enabled = false)]
#[case::schedule(true, "schedule_interval", |p: &mut Pipeline| p.schedule_interval = Some("5m".into()))]
#[case::batch_size(true, "batch_size", |p: &mut Pipeline| p.batch_size = 7)]
#[case::delete_limit(true, "delete_limit", |p: &mut Pipeline| p.delete_limit = 0.9)]
#[case::reject_limit(true, "reject_limit", |p: &mut Pipeline| p.reject_limit = 9)]
#[case::freshness_limit(true, "freshness_limit_seconds", |p: &mut Pipeline| p.freshness_limit_seconds = Some(60))]
#[case::full_schedule(true, "full_schedule", |p: &mut Pipeline| p.full_schedule = Some("1d".into()))]
#[case::reconcile_schedule(true, "reconcile_schedule", |p: &mut Pipeline| p.reconcile_schedule = Some("1d".into()))]
#[case::query(false, "source_query", |p: &mut Pipeline| p.source_query = Some("select 2".into()))]
#[case::table(false, "source_table", |p: &mut Pipeline| p.source_table = Some("content.genre".into()))]
#[case::connection(false, "source_connection", |p: &mut Pipeline| p.source_connection = "other".into())]
#[case::target(false, "target_table", |p: &mut Pipeline| p.target_table = "analytics.other".into())]
#[case::mode(false, "mode", |p: &mut Pipeline| p.mode = Mode::Incremental)]
#[case::plan(false, "tasks", |p: &mut Pipeline| p.plan = plan("select 1"))]
#[case::cursor(false, "incremental_key", |p: &mut Pipeline| p.incremental_key = Some("modified".into()))]
#[case::capture(false, "capture", |p: &mut Pipeline| p.capture = Capture::Changelog)]
#[case::on_change(true, "on_change", |p: &mut Pipeline| p.on_change = OnChange::Keep)]
#[case::late_window(false, "late_window_seconds", |p: &mut Pipeline| p.late_window_seconds = 1)]
fn under_a_run_only_what_sets_its_pace_and_limits_may_change(
    #[case] anytime: bool,
    #[case] field: &str,
    #[case] edit: Edit,
) {
    let before = films();
    let mut after = before.clone();
    edit(&mut after);
    for status in Status::ALL.iter().copied() {
        let edited = before.edit(&after, status);
        if anytime || !status.is_active() {
            assert_eq!(edited, Ok(vec![field.to_owned()]), "{status}");
        } else {
            assert_eq!(edited, Err(Locked { status, fields: vec![field.to_owned()] }), "{status}");
        }
    }
}

#[test]
fn all_breaches_are_reported_at_once() {
    let found = broken(|p| {
        p.name = " ".into();
        p.kind = PipelineKind::Python;
        p.target_table = "analytics".into();
        p.batch_size = -1;
        p.delete_limit = 2.0;
        p.late_window_seconds = -5;
        p.mode = Mode::Incremental;
    });
    let codes: Vec<&str> = found.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(
        codes,
        [
            "pipeline.name",
            "pipeline.python_task",
            "target.name",
            "pipeline.batch_size",
            "pipeline.delete_limit",
            "pipeline.late_window",
            "pipeline.incremental_key"
        ]
    );
}

#[test]
fn a_broken_plan_is_reported_together_with_its_pipeline() {
    let found = broken(|p| {
        p.batch_size = 0;
        p.plan = plan("");
    });
    let codes: Vec<&str> = found.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(codes, ["plan.body_empty", "pipeline.batch_size"]);
}

#[rstest]
#[case::the_plan_wins(Some("select 2"), Some("content.genre"), Some("select 1"), Some("select 1"))]
#[case::then_the_query(Some("select 2"), Some("content.genre"), None, Some("select 2"))]
#[case::then_the_table(None, Some("content.genre"), None, Some("select * from content.genre"))]
#[case::a_blank_query_is_none(Some("  "), Some("content.genre"), None, Some("select * from content.genre"))]
#[case::a_blank_table_is_none(None, Some("  "), None, None)]
#[case::nothing(None, None, None, None)]
fn a_pipeline_reads_with(
    #[case] query: Option<&str>,
    #[case] table: Option<&str>,
    #[case] reader: Option<&str>,
    #[case] sql: Option<&str>,
) {
    let mut pipeline = films();
    pipeline.source_query = query.map(str::to_owned);
    pipeline.source_table = table.map(str::to_owned);
    pipeline.plan = reader.map(plan).unwrap_or_default();
    assert_eq!(pipeline.reader_sql().as_deref(), sql);
}

/// R-META-2.
#[test]
fn a_reader_with_a_table_alone_reads_all_of_its_columns_and_beside_sql_it_names_the_driving_table() {
    let mut pipeline = films();
    pipeline.plan = plan("select 1");
    pipeline.plan.tasks[0].source_table = Some("content.genre".into());
    assert_eq!(
        (pipeline.reader_sql().as_deref(), pipeline.driving_table()),
        (Some("select 1"), Some("content.genre"))
    );
    pipeline.plan.tasks[0].body = " ".into();
    assert_eq!(
        (pipeline.reader_sql().as_deref(), pipeline.driving_table()),
        (Some("select * from content.genre"), None)
    );
    assert_eq!(pipeline.violations(&AllowedTargets::default()), []);
}

#[test]
fn the_last_tasks_target_wins_over_the_pipelines() {
    let mut pipeline = films();
    assert_eq!(pipeline.effective_target(), "analytics.film_dim");
    pipeline.plan = plan("select 1");
    assert_eq!(pipeline.effective_target(), "analytics.film_dim");
    pipeline.plan.tasks[1].target_table = Some("es:film_dim".into());
    assert_eq!(pipeline.effective_target(), "es:film_dim");
    assert_eq!(pipeline.target_name(&AllowedTargets::default()).unwrap().to_string(), "es:film_dim");
}

#[test]
fn a_runner_needs_the_tasks_of_the_plan_and_of_the_pipeline() {
    let mut pipeline = films();
    pipeline.python_task = Some(" ".into());
    assert!(pipeline.python_tasks().is_empty());
    pipeline.plan = plan("select 1");
    pipeline.python_task = Some("films".into());
    assert_eq!(pipeline.python_tasks(), ["clean_titles", "films"]);
}

#[rstest]
#[case::type_(|p: &mut Pipeline| p.kind = PipelineKind::Python)]
#[case::source_type(|p: &mut Pipeline| p.source_type = "python".into())]
#[case::source_connection(|p: &mut Pipeline| p.source_connection = "ugc".into())]
#[case::source_query(|p: &mut Pipeline| p.source_query = Some("select 2".into()))]
#[case::source_table(|p: &mut Pipeline| p.source_table = Some("content.genre".into()))]
#[case::plan(|p: &mut Pipeline| p.plan = plan("select 2"))]
#[case::python_task(|p: &mut Pipeline| p.python_task = Some("films".into()))]
#[case::target_table(|p: &mut Pipeline| p.target_table = "analytics.film_dim_2".into())]
#[case::incremental_key(|p: &mut Pipeline| p.incremental_key = Some("modified".into()))]
#[case::incremental_id_key(|p: &mut Pipeline| p.incremental_id_key = Some("id".into()))]
#[case::capture(|p: &mut Pipeline| p.capture = Capture::Changelog)]
fn a_change_of_meaning_changes_the_hash(#[case] edit: Edit) {
    assert_ne!(hash_after(edit), hash_after(|_| {}));
}

#[rstest]
#[case::reader(|p: &mut Pipeline| p.plan.tasks[0].body = "select 2".into())]
#[case::driving_table(|p: &mut Pipeline| p.plan.tasks[0].source_table = Some("content.genre".into()))]
#[case::transform(|p: &mut Pipeline| p.plan.tasks[1].body = "clean_genres".into())]
#[case::one_transform_less(|p: &mut Pipeline| { p.plan.tasks.pop(); })]
#[case::target(|p: &mut Pipeline| p.plan.tasks[1].target_table = Some("es:film_dim".into()))]
fn so_does_a_change_of_the_plan(#[case] edit: Edit) {
    let mut planned = films();
    planned.plan = plan("select 1");
    let before = planned.config_hash(&mart());
    edit(&mut planned);
    assert_ne!(planned.config_hash(&mart()), before);
}

#[rstest]
#[case::connection(|target: &mut Target| target.connection = "other_marts".into())]
#[case::key(|target: &mut Target| target.key = vec!["film_id".into(), "genre_id".into()])]
fn so_does_a_change_of_the_target(#[case] edit: fn(&mut Target)) {
    let mut target = mart();
    edit(&mut target);
    assert_ne!(films().config_hash(&target), films().config_hash(&mart()));
}

/// A full load ends where an increment begins (S0), so the mode does not count either.
#[rstest]
#[case::name(|p: &mut Pipeline| p.name = "films".into())]
#[case::description(|p: &mut Pipeline| p.description = "all films".into())]
#[case::tags(|p: &mut Pipeline| p.tags = vec!["cinema".into()])]
#[case::enabled(|p: &mut Pipeline| p.enabled = false)]
#[case::schedule(|p: &mut Pipeline| p.schedule_interval = Some("5m".into()))]
#[case::batch_size(|p: &mut Pipeline| p.batch_size = 7)]
#[case::delete_limit(|p: &mut Pipeline| p.delete_limit = 0.5)]
#[case::reject_limit(|p: &mut Pipeline| p.reject_limit = 5)]
#[case::full_schedule(|p: &mut Pipeline| p.full_schedule = Some("1d".into()))]
#[case::reconcile_schedule(|p: &mut Pipeline| p.reconcile_schedule = Some("1d".into()))]
#[case::read(|p: &mut Pipeline| p.read = ReadBy::Keyset)]
#[case::first_load(|p: &mut Pipeline| p.first_load = FirstLoad::Staged)]
#[case::on_change(|p: &mut Pipeline| p.on_change = OnChange::Keep)]
#[case::late_window(|p: &mut Pipeline| p.late_window_seconds = 5)]
#[case::mode(|p: &mut Pipeline| p.mode = Mode::Incremental)]
fn a_change_of_pace_does_not(#[case] edit: Edit) {
    assert_eq!(hash_after(edit), hash_after(|_| {}));
}

#[test]
fn nor_does_a_query_that_the_plan_overrules_or_the_numbers_of_its_steps() {
    let planned = hash_after(|p| p.plan = plan("select 1"));
    let edited = hash_after(|p| {
        p.plan = plan("select 1");
        p.plan.tasks[1].order_index = 40;
        p.source_query = Some("select 2".into());
    });
    assert_eq!(edited, planned);
}

fn broken(edit: Edit) -> Vec<(String, String)> {
    let mut pipeline = films();
    edit(&mut pipeline);
    let found = pipeline.violations(&AllowedTargets::default());
    found.into_iter().map(|violation| (violation.code.to_owned(), violation.field)).collect()
}

#[test]
fn what_a_mart_is_shared_by_decides_what_a_position_means() {
    let by_rows = Target { shared: Some(Shared::Rows { column: "tenant".to_owned() }), ..mart() };
    let by_columns = Target { shared: Some(Shared::Columns), ..mart() };
    let of = |value: &str| Pipeline { shared_value: Some(value.to_owned()), ..films() };
    let hashes = [
        films().config_hash(&mart()),
        films().config_hash(&by_columns),
        of("ru").config_hash(&by_rows),
        of("de").config_hash(&by_rows),
    ];
    assert_eq!(std::collections::BTreeSet::from(hashes).len(), 4);
}

#[test]
fn a_shared_value_goes_with_a_mart_that_is_shared_by_rows_and_with_no_other() {
    let by_rows = Target { shared: Some(Shared::Rows { column: "tenant".to_owned() }), ..mart() };
    let by_columns = Target { shared: Some(Shared::Columns), ..mart() };
    let of = |value: &str| Pipeline { shared_value: Some(value.to_owned()), ..films() };
    for (pipeline, target, is_sound) in [
        (films(), mart(), true),
        (films(), by_columns.clone(), true),
        (of("ru"), by_rows.clone(), true),
        (films(), by_rows.clone(), false),
        (of(" "), by_rows, false),
        (of("ru"), by_columns, false),
        (of("ru"), mart(), false),
    ] {
        let violation = pipeline.shared_violation(&target);
        assert_eq!(violation.is_none(), is_sound, "{:?} {violation:?}", target.shared);
    }
}

fn hash_after(edit: Edit) -> String {
    let mut pipeline = films();
    edit(&mut pipeline);
    pipeline.config_hash(&mart())
}

fn mart() -> Target {
    Target::undescribed(&"analytics.film_dim".parse().expect("a plain name"))
}

fn plan(reader: &str) -> TaskPlan {
    let step = |order_index, task_type: &str, body: &str| Task {
        order_index,
        task_type: task_type.into(),
        body: body.into(),
        source_table: None,
        target_table: None,
    };
    TaskPlan::new(vec![step(0, "SQL", reader), step(1, "PYTHON", "clean_titles")])
}

fn films() -> Pipeline {
    Pipeline {
        id: PipelineId(Uuid::nil()),
        name: "film_dim_full".into(),
        description: String::new(),
        tags: Vec::new(),
        kind: PipelineKind::Sql,
        source_type: "postgres".into(),
        source_connection: "content".into(),
        source_table: None,
        source_query: Some("select id as film_id, title from content.film_work".into()),
        target_table: "analytics.film_dim".into(),
        shared_value: None,
        mode: Mode::Full,
        batch_size: 1000,
        enabled: true,
        schedule_interval: None,
        full_schedule: None,
        incremental_key: None,
        incremental_id_key: None,
        capture: Capture::Cursor,
        change_key: Vec::new(),
        watch: Vec::new(),
        late_window_seconds: 600,
        delete_limit: 0.2,
        reject_limit: 0,
        freshness_limit_seconds: None,
        reconcile_schedule: None,
        read: ReadBy::Auto,
        first_load: FirstLoad::Direct,
        on_change: OnChange::Ask,
        python_task: None,
        plan: TaskPlan::default(),
    }
}

/// A token is for tags: one that no token can name would be for none.
#[rstest]
#[case::comma("a,b")]
#[case::space_before(" a")]
#[case::space_behind("a ")]
#[case::no_break_space("a\u{a0}")]
#[case::line_break("a\nb")]
#[case::tab("a\tb")]
#[case::nul("a\0b")]
#[case::empty("")]
fn a_tag_that_no_token_can_name_is_refused_when_it_is_saved_and_runs_all_the_same(#[case] tag: &str) {
    let tagged = Pipeline { tags: vec!["films".into(), tag.into()], ..films() };
    let found = tagged.size_violations();
    let [violation] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((violation.code, violation.field.as_str()), ("pipeline.tags", "tags"));
    assert!(violation.message.contains("no comma"), "{}", violation.message);
    assert!(tagged.violations(&AllowedTargets::default()).is_empty(), "saved ones are still run");
}

#[test]
fn tags_may_have_spaces_and_signs_within() {
    let tags = ["nightly load", "team:films", "käse", "a/b", "x"].map(str::to_owned).to_vec();
    assert!(Pipeline { tags, ..films() }.size_violations().is_empty());
}
