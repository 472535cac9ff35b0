//! Task plans with real Python functions, from request to checkpoint.

mod sources;
mod versions;

use std::time::Duration;

use serde_json::{Value, json};
use vitrina_core::{Mode, RunStatus, Status};
use vitrina_python::PythonSettings;
use vitrina_runner::{RunLog, Runner};

use super::functions::{Functions, plan};
use super::stage::Stage;
pub(crate) use sources::{Counted, from_python};

const FUNCTIONS: &str = r#"
import os, time
from typing import Any, Iterator
import pyarrow, pyarrow.compute as compute
from vitrina import Context, Reject, Retry, source, transform

@transform
def slug(row: dict) -> dict:
    """Titles as they look in an address."""
    return row | {"title": row["title"].lower().replace(" ", "-")}

@transform
def exclaim(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    titles = compute.binary_join_element_wise(rows["title"], "!", "")
    return rows.set_column(rows.schema.get_field_index("title"), "title", titles)

@transform
def without_dull(rows: list[dict]) -> list[dict]:
    return [row for row in rows if row["rating"] is None or row["rating"] >= 1]

@transform
def only_key_and_title(row: dict) -> dict:
    return {"id": row["id"], "title": row["title"]}

@transform
def nothing(rows: list[dict]) -> list[dict]:
    return []

@transform
def beyond_ten(rows: list[dict]) -> list[dict]:
    return [row | {"length": row["id"] * 1.5} for row in rows if row["id"] > 10]

def is_allowed():
    return os.path.exists(os.path.join(os.path.dirname(__file__), "allowed"))

@transform
def up_to_ten(rows: list[dict]) -> list[dict]:
    if rows and rows[0]["id"] > 10 and not is_allowed():
        raise ValueError("not yet")
    return [row for row in rows if row["id"] <= 10]

@transform
def rated_until_allowed(rows: list[dict]) -> list[dict]:
    if not is_allowed():
        return up_to_ten(rows)
    return [{"id": row["id"], "title": row["title"]} for row in rows]

@transform
def as_a_row(row: dict) -> dict:
    return row

@transform
def as_a_frame(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    return rows.take(pyarrow.array(range(len(rows))))

@transform(output={"facts": "jsonb", "price": "numeric", "born": "date"})
def declares(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    texts = [f'{{"id": {number}}}' for number in rows["id"].to_pylist()]
    rows = rows.append_column("facts", pyarrow.array(texts)).append_column("price", pyarrow.array(["1.10"] * len(rows)))
    return rows.append_column("born", rows["modified"].cast(pyarrow.date32()))

@source
def two(context: Context, position) -> Iterator[tuple[list[dict], Any]]:
    if position is None:
        yield [{"id": 1, "title": "One"}, {"id": 2, "title": "Two"}], 2
    if not is_allowed():
        raise ValueError("not yet")

@source
def late(context: Context, position) -> Iterator[tuple[list[dict], Any]]:
    yield [], 0
    yield [], 1
    yield [{"id": 1, "title": "One"}, {"id": 2, "title": "Two"}], 2

@transform
def without_a_rating(row: dict) -> dict:
    return {"id": row["id"], "title": row["title"], "score": None}

@transform
def praised(row: dict) -> dict:
    return row | {"score": "good"}

@transform(output={"score": "bigint"})
def with_a_score_to_come(row: dict) -> dict:
    return without_a_rating(row)

@transform
def in_company(rows: list[dict], context: Context) -> list[dict]:
    """Waits until the batch behind it has begun as well, which another worker has to do."""
    folder = os.path.dirname(__file__)
    open(os.path.join(folder, f"began-{context.batch}"), "w").close()
    while context.batch % 2 == 1 and not os.path.exists(os.path.join(folder, f"began-{context.batch + 1}")):
        time.sleep(0.01)
    return [row | {"title": f"{context.batch} {os.getpid()}"} for row in rows]

@transform
def twice(row: dict) -> list[dict]:
    return [row, row | {"id": row["id"] + 1000}]

@transform
def without_key(row: dict) -> dict:
    return {"title": row["title"]}

@transform
def sometimes_rated(row: dict) -> dict:
    return row if row["id"] < 3 else {"id": row["id"], "title": row["title"]}

@transform
def rated_at_first(rows: list[dict]) -> list[dict]:
    return [row if rows[0]["id"] < 3 else {"id": row["id"], "title": row["title"]} for row in rows]

@transform
def refuses_three(row: dict) -> dict:
    if row["id"] == 3:
        raise Reject("three is a crowd", code="crowd")
    return row

@transform
def breaks_at_three(row: dict) -> dict:
    if row["id"] == 3:
        raise ValueError("I do not like this film")
    return row

@transform
def hangs(rows: list[dict]) -> list[dict]:
    time.sleep(600)

@source
def counted(context: Context, position) -> Iterator[tuple[list[dict], Any]]:
    """Films of a file that grows: one number a line."""
    lines = open(os.environ["COUNTED"]).read().split()
    start = position or 0
    while start < len(lines):
        end = min(start + context.batch_size, len(lines))
        if "!" in lines[start:end]:
            raise Retry("not yet")
        yield [{"id": int(number), "title": "Film " + number} for number in lines[start:end]], end
        start = end

@transform
def talks(rows: list[dict], context: Context) -> list[dict]:
    print("batch", context.batch, "of", context.pipeline)
    return rows
"#;

impl Functions {
    pub(crate) async fn new() -> Self {
        Self::of(FUNCTIONS).await
    }

    async fn with(change: impl FnOnce(&mut PythonSettings)) -> Self {
        Self::changed(FUNCTIONS, change).await
    }
}

pub(crate) fn incremental(functions: &[&str]) -> Value {
    let mut plan = plan(functions);
    plan["mode"] = json!("incremental");
    plan["incremental_key"] = json!("modified");
    plan["incremental_id_key"] = json!("id");
    plan
}

async fn titles(stage: &Stage) -> Vec<String> {
    let rows = stage.db.texts("select title from analytics.film order by id").await;
    rows.into_iter().map(|mut row| row.remove(0).unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_plan_reads_with_sql_goes_through_its_functions_in_order_and_wins_over_the_query() {
    let (stage, functions) = (Stage::with_films(3).await, Functions::new().await);
    let id = stage.pipeline(plan(&["slug", "exclaim"])).await;
    let run = functions.succeed(&stage, id).await;
    assert_eq!(titles(&stage).await, ["film-1!", "film-2!", "film-3!"]);
    assert_eq!((run.rows_read, run.rows_written), (3, 3));
    assert_eq!(stage.count("analytics.film where rating is not null and modified is not null").await, 3);
}

/// R-CFG-3.
#[tokio::test]
async fn the_last_steps_target_gets_the_rows() {
    let (stage, functions) = (Stage::with_films(3).await, Functions::new().await);
    stage.db.execute("create table analytics.slug (like analytics.film including all)").await;
    let mut changes = plan(&["slug", "exclaim"]);
    changes["plan"][2]["target_table"] = json!("analytics.slug");
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.count("analytics.film").await, 0);
    assert_eq!(stage.count("analytics.slug where title like 'film-_!'").await, 3);
}

/// R-META-2.
#[tokio::test]
async fn a_plan_that_names_a_table_and_no_query_reads_all_of_its_columns() {
    let (stage, functions) = (Stage::with_films(3).await, Functions::new().await);
    let mut changes = plan(&["slug"]);
    changes["plan"][0]["body"] = json!("");
    changes["plan"][0]["source_table"] = json!("content.film");
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    assert_eq!(titles(&stage).await, ["film-1", "film-2", "film-3"]);
}

#[tokio::test]
async fn the_checkpoint_comes_from_the_rows_that_were_read_and_not_from_what_became_of_them() {
    let (stage, functions) = (Stage::with_films(25).await, Functions::new().await);
    let mut changes = incremental(&["only_key_and_title"]);
    changes["batch_size"] = json!(10);
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    assert_eq!(
        stage.count("analytics.film where modified is null").await,
        25,
        "the cursor is not among its columns"
    );
    stage.db.execute("update content.film set title = 'New', modified = now() where id = 7").await;
    stage.add_films(26, 27).await;
    let run = functions.succeed(&stage, id).await;
    assert!(run.rows_read < 25, "{}", run.rows_read);
    assert_eq!(stage.count("analytics.film where title = 'New' or id > 25").await, 3);
}

#[tokio::test]
async fn a_key_that_a_function_drops_is_deleted_in_both_modes() {
    for mode in [Mode::Full, Mode::Incremental] {
        let (stage, functions) = (Stage::with_films(20).await, Functions::new().await);
        let mut changes = incremental(&["without_dull"]);
        changes["mode"] = json!(mode.to_string());
        changes["delete_limit"] = json!(1.0);
        let id = stage.pipeline(changes).await;
        functions.succeed(&stage, id).await;
        assert_eq!(stage.count("analytics.film").await, 11, "{mode}: ratings 1.0 to 2.0");
        stage.db.execute("update content.film set rating = 0, modified = now() where id = 15").await;
        functions.succeed(&stage, id).await;
        assert_eq!(stage.count("analytics.film where id = 15").await, 0, "{mode}");
        stage.db.execute("update content.film set rating = 9, modified = now() where id in (1, 15)").await;
        functions.succeed(&stage, id).await;
        assert_eq!(stage.count("analytics.film where id in (1, 15)").await, 2, "{mode}");
        assert_eq!(stage.count("analytics.film").await, 12, "{mode}");
    }
}

#[tokio::test]
async fn batches_of_a_run_are_worked_on_side_by_side_and_written_in_their_order() {
    let stage = Stage::with_films(60).await;
    let functions = Functions::with(|settings| settings.workers_a_run = 2).await;
    let mut changes = incremental(&["in_company"]);
    changes["batch_size"] = json!(10);
    let id = stage.pipeline(changes).await;
    let run = functions.succeed(&stage, id).await;
    assert_eq!((run.rows_read, run.batches), (60, 6));
    let wrong = "analytics.film where split_part(title, ' ', 1)::int <> (id + 9) / 10";
    assert_eq!(stage.count(wrong).await, 0, "every batch knows its number");
    let workers = "select count(distinct split_part(title, ' ', 2)) from analytics.film";
    assert_eq!(stage.db.value::<i64>(workers).await, 2);
}

#[tokio::test]
async fn side_by_side_a_batch_that_fails_leaves_those_before_it_and_none_behind_it() {
    let stage = Stage::with_films(60).await;
    let functions = Functions::with(|settings| settings.workers_a_run = 3).await;
    let mut changes = incremental(&["breaks_at_three"]);
    changes["batch_size"] = json!(1);
    let id = stage.pipeline(changes).await;
    let run = functions.run(&stage, id).await;
    assert_eq!(run.error_code.as_deref(), Some("python.exception"));
    assert_eq!(titles(&stage).await, ["Film 1", "Film 2"]);
    stage.db.execute("update content.film set id = 103 where id = 3").await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.count("analytics.film").await, 60);
}

#[tokio::test]
async fn a_function_may_add_rows_and_an_empty_result_is_fine() {
    let (stage, functions) = (Stage::with_films(4).await, Functions::new().await);
    let id = stage.pipeline(plan(&["twice"])).await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.count("analytics.film").await, 8);
    let other = Stage::with_films(4).await;
    for changes in [plan(&["nothing"]), incremental(&["nothing"])] {
        let mut changes = changes;
        changes["name"] = json!(changes["mode"].as_str().unwrap_or("full"));
        let id = other.pipeline(changes).await;
        let run = functions.succeed(&other, id).await;
        assert_eq!((run.rows_read, run.rows_written), (4, 0));
        other.delete(id).await;
    }
}

#[tokio::test]
async fn a_row_that_a_function_refuses_is_kept_as_a_reject_and_its_document_as_it_was() {
    let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
    stage.db.execute("insert into analytics.film (id, title) values (3, 'as it was')").await;
    let mut changes = plan(&["refuses_three"]);
    changes["reject_limit"] = json!(10);
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.rejects().await, [("python.crowd".to_owned(), r#"["3"]"#.to_owned())]);
    assert_eq!(stage.count("analytics.film").await, 5);
    assert_eq!(stage.count("analytics.film where title = 'as it was'").await, 1);
}

#[tokio::test]
async fn a_batch_of_which_a_function_leaves_nothing_is_no_failure() {
    let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
    stage.db.execute("alter table analytics.film alter title set not null, alter rating set not null").await;
    let mut changes = incremental(&["refuses_three", "exclaim"]);
    changes["reject_limit"] = json!(10);
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    stage.db.execute("update content.film set title = 'New', modified = now() where id = 3").await;
    functions.succeed(&stage, id).await;
    stage.db.execute("delete from analytics.film where id = 4; update content.film set rating = 0, modified = now() where id = 3").await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.rejects().await, [("python.crowd".to_owned(), r#"["3"]"#.to_owned())]);
}

#[tokio::test]
async fn a_load_whose_first_batches_come_out_empty_takes_the_columns_of_the_first_rows() {
    let (stage, functions) = (Stage::with_films(25).await, Functions::new().await);
    stage
        .db
        .execute("alter table analytics.film add length float8; insert into analytics.film (id) values (1)")
        .await;
    let mut changes = plan(&["beyond_ten"]);
    changes["batch_size"] = json!(4);
    changes["delete_limit"] = json!(1.0);
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.count("analytics.film where length = id * 1.5 and title is not null").await, 15);
    assert_eq!(stage.count("analytics.film").await, 15);
}

#[tokio::test]
async fn a_load_that_is_gone_on_with_and_brings_nothing_more_is_merged() {
    for first_load in ["staged", "direct"] {
        let (stage, functions) = (Stage::with_films(25).await, Functions::new().await);
        let mut changes = plan(&["up_to_ten"]);
        changes["batch_size"] = json!(4);
        changes["first_load"] = json!(first_load);
        let id = stage.pipeline(changes).await;
        assert_eq!(functions.run(&stage, id).await.error_code.as_deref(), Some("python.exception"));
        functions.allow();
        functions.succeed(&stage, id).await;
        assert_eq!(stage.count("analytics.film where title is not null and rating is not null").await, 10);
    }
}

#[tokio::test]
async fn a_mart_behind_functions_is_created_with_the_columns_of_the_first_rows() {
    for first_load in ["staged", "direct"] {
        let (stage, functions) = (Stage::with_films(25).await, Functions::new().await);
        stage
            .db
            .execute("insert into etl.etl_targets (name, key, create_if_missing) values ('analytics.made', '{id}', true)")
            .await;
        let mut changes = plan(&["beyond_ten"]);
        changes["batch_size"] = json!(4);
        changes["first_load"] = json!(first_load);
        changes["target_table"] = json!("analytics.made");
        let id = stage.pipeline(changes).await;
        functions.succeed(&stage, id).await;
        assert_eq!(stage.count("analytics.made where length = id * 1.5").await, 15);
        let types =
            "select string_agg(format_type(atttypid, atttypmod), ', ' order by attname) from pg_attribute
                      where attrelid = 'analytics.made'::regclass and attnum > 0";
        let types: String = stage.db.value(types).await;
        assert_eq!(types, "integer, double precision, timestamp with time zone, numeric(3,1), text");
        functions.succeed(&stage, id).await;
    }
}

#[tokio::test]
async fn a_mart_is_not_made_of_a_column_that_only_null_has_come_in() {
    let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
    stage
        .db
        .execute("insert into etl.etl_targets (name, key, create_if_missing) values ('analytics.made', '{id}', true)")
        .await;
    let by = |name: &str| {
        let mut changes = plan(&[name]);
        changes["name"] = json!(name);
        changes["target_table"] = json!("analytics.made");
        changes
    };
    let id = stage.pipeline(by("without_a_rating")).await;
    let run = functions.run(&stage, id).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.no_type"), "{:?}", run.error);
    assert!(run.error.is_some_and(|error| error.contains("score") && error.contains("output=")));
    stage.delete(id).await;
    let mut later = plan(&["without_a_rating", "praised"]);
    later["name"] = json!("later");
    later["target_table"] = json!("analytics.made");
    let later = stage.pipeline(later).await;
    functions.succeed(&stage, later).await;
    assert_eq!(stage.count("analytics.made where score = 'good'").await, 5, "a later function has filled it");
    stage.db.execute("drop table analytics.made").await;
    stage.delete(later).await;
    let declared = stage.pipeline(by("with_a_score_to_come")).await;
    functions.succeed(&stage, declared).await;
    assert_eq!(stage.count("analytics.made where score = 1 or score is null").await, 5);
}

#[tokio::test]
async fn a_load_that_goes_on_with_fewer_columns_is_refused_before_it_is_merged() {
    let (stage, functions) = (Stage::with_films(25).await, Functions::new().await);
    stage.db.execute("insert into analytics.film (id, title) values (1, 'was here')").await;
    let mut changes = plan(&["rated_until_allowed"]);
    changes["batch_size"] = json!(4);
    let id = stage.pipeline(changes).await;
    assert_eq!(functions.run(&stage, id).await.error_code.as_deref(), Some("python.exception"));
    functions.allow();
    let run = stage.request_resume(id).await;
    stage.work_off(functions.settings(&stage)).await;
    let run = stage.run_record(run).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.load_columns"), "{:?}", run.error);
    assert_eq!(titles(&stage).await, ["was here"]);
}

#[tokio::test]
async fn days_that_python_has_no_form_for_and_long_numbers_come_through_as_they_are() {
    let functions = Functions::new().await;
    for function in ["as_a_row", "as_a_frame"] {
        let stage = Stage::with_films(0).await;
        stage
            .db
            .execute(
                r#"create table content.day (id int primary key, day date, at timestamptz, facts jsonb, price numeric);
            create table analytics.day (like content.day including all);
            insert into content.day values
                (1, '12024-01-01', '12024-01-01 00:00:00.123456Z', '{"a": 0.12345678901234567890}', 12345678901234567890.10),
                (2, '0044-03-15 BC', '0044-03-15 12:00:00Z BC', '[123456789012345678901234567890]', 'NaN'),
                (3, 'infinity', '-infinity', '{"a": {"b": 1.5}}', 0.00), (4, null, null, null, null)"#,
            )
            .await;
        let mut changes = plan(&[function]);
        changes["plan"][0]["body"] = json!("select * from content.day");
        changes["target_table"] = json!("analytics.day");
        let id = stage.pipeline(changes).await;
        functions.succeed(&stage, id).await;
        let same = "content.day d join analytics.day m using (id) where row(d.*)::text = row(m.*)::text";
        assert_eq!(stage.count(same).await, 4, "{function}");
    }
}

#[tokio::test]
async fn types_that_a_function_declares_are_those_of_its_mart() {
    let (stage, functions) = (Stage::with_films(3).await, Functions::new().await);
    stage
        .db
        .execute("insert into etl.etl_targets (name, key, create_if_missing) values ('analytics.made', '{id}', true)")
        .await;
    let mut changes = plan(&["declares"]);
    changes["target_table"] = json!("analytics.made");
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    let types = "select string_agg(format_type(atttypid, atttypmod), ', ' order by attname) from pg_attribute
                  where attrelid = 'analytics.made'::regclass and attname in ('facts', 'price', 'born')";
    assert_eq!(stage.db.value::<String>(types).await, "date, jsonb, numeric");
    let right = "analytics.made where facts = jsonb_build_object('id', id) and price::text = '1.10' and born = modified::date";
    assert_eq!(stage.count(right).await, 3);
}

#[tokio::test]
async fn increments_into_a_mart_to_come_pass_by_what_functions_drop() {
    let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
    stage
        .db
        .execute("insert into etl.etl_targets (name, key, create_if_missing) values ('analytics.made', '{id}', true)")
        .await;
    let mut changes = incremental(&["beyond_ten"]);
    changes["target_table"] = json!("analytics.made");
    let id = stage.pipeline(changes).await;
    let run = functions.succeed(&stage, id).await;
    assert_eq!((run.rows_read, run.rows_written), (5, 0));
    stage.add_films(11, 12).await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.count("analytics.made").await, 2);
    stage.db.execute("update content.film set id = 6, modified = now() where id = 11").await;
    functions.succeed(&stage, id).await;
}

#[tokio::test]
async fn in_increments_a_function_that_changes_keys_is_stopped_before_it_deletes_rows_of_others() {
    let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
    for name in ["twice", "without_key"] {
        let mut changes = incremental(&[name]);
        changes["name"] = json!(name);
        let id = stage.pipeline(changes).await;
        let run = functions.run(&stage, id).await;
        assert_eq!(run.error_code.as_deref(), Some("python.contract"), "{name}: {:?}", run.error);
        stage.delete(id).await;
    }
    assert_eq!(stage.count("analytics.film").await, 0);
}

#[tokio::test]
async fn columns_that_come_and_go_are_refused_and_not_left_out() {
    for (name, batch_size) in [("sometimes_rated", 10), ("rated_at_first", 2)] {
        let (stage, functions) = (Stage::with_films(5).await, Functions::new().await);
        stage.db.execute("insert into analytics.film (id, title) values (1, 'was here')").await;
        let mut changes = plan(&[name]);
        changes["batch_size"] = json!(batch_size);
        let id = stage.pipeline(changes).await;
        let run = functions.run(&stage, id).await;
        assert_eq!(run.error_code.as_deref(), Some("python.contract"), "{name}: {:?}", run.error);
        assert_eq!(stage.count("analytics.film").await, 1, "nothing was merged");
    }
}

#[tokio::test]
async fn an_exception_fails_its_run_with_the_line_to_mend_and_leaves_the_checkpoint() {
    let (stage, functions) = (Stage::with_films(6).await, Functions::new().await);
    let mut changes = incremental(&["breaks_at_three"]);
    changes["batch_size"] = json!(2);
    let id = stage.pipeline(changes).await;
    let run = functions.run(&stage, id).await;
    assert_eq!((run.status, run.error_code.as_deref()), (RunStatus::Failed, Some("python.exception")));
    let error = run.error.unwrap();
    let (at, why) = (error.find("functions.py:").unwrap(), error.find("I do not like this film").unwrap());
    assert!(at < why && error.contains("breaks_at_three"), "{error}");
    assert_eq!(stage.count("analytics.film").await, 2, "the batch before it counts");
    stage.db.execute("delete from content.film where id = 3").await;
    functions.succeed(&stage, id).await;
    assert_eq!(stage.count("analytics.film").await, 5);
}

#[tokio::test]
async fn a_function_that_hangs_holds_up_nobody_else() {
    let stage = Stage::with_films(3).await;
    let functions = Functions::with(|settings| settings.deadline = Duration::from_secs(600)).await;
    let mut changes = plan(&["hangs"]);
    changes["name"] = json!("hanging");
    changes["target_table"] = json!("analytics.hanging");
    stage.db.execute("create table analytics.hanging (like analytics.film including all)").await;
    let hanging = stage.pipeline(changes).await;
    let fine = stage.pipeline(plan(&["slug"])).await;
    let (_running, _stop) = stage.start(functions.settings(&stage));
    stage.request(hanging).await;
    stage.reaches(hanging, Status::Running).await;
    let run = stage.request(fine).await;
    stage.reaches(fine, Status::Idle).await;
    assert_eq!(stage.run_record(run).await.status, RunStatus::Success);
    assert_eq!(stage.status(hanging).await, Status::Running);
}

#[tokio::test]
async fn a_deadline_ends_the_worker_and_after_its_retries_the_run() {
    let stage = Stage::with_films(3).await;
    let functions = Functions::with(|settings| settings.deadline = Duration::from_millis(200)).await;
    let id = stage.pipeline(plan(&["hangs"])).await;
    let run = functions.run(&stage, id).await;
    assert_eq!((run.status, run.error_code.as_deref()), (RunStatus::Failed, Some("python.deadline")));
    let attempts: i64 = stage.db.value("select count(*) from etl.etl_attempts").await;
    assert_eq!(attempts, 4, "one attempt and three retries");
}

#[tokio::test]
async fn a_pipeline_of_type_python_is_one_function_over_its_query() {
    let (stage, functions) = (Stage::with_films(3).await, Functions::new().await);
    let id = stage.pipeline(json!({"type": "PYTHON", "python_task": "slug"})).await;
    functions.succeed(&stage, id).await;
    assert_eq!(titles(&stage).await, ["film-1", "film-2", "film-3"]);
}

#[tokio::test]
async fn what_functions_print_is_in_the_log_of_their_run() {
    let (stage, functions) = (Stage::with_films(25).await, Functions::new().await);
    let mut changes = plan(&["talks"]);
    changes["batch_size"] = json!(10);
    let id = stage.pipeline(changes).await;
    let run = stage.request(id).await;
    let log = RunLog::new();
    let _ear = vitrina_testbed::capture_logs(tracing_subscriber::layer::SubscriberExt::with(
        tracing_subscriber::registry(),
        log.layer(),
    ));
    let runner = Runner::new(functions.settings(&stage), stage.store.clone()).with_run_log(log);
    runner.work_off().await.unwrap();
    let sql = format!(
        "select count(*) from etl.etl_logs where run_id = '{run}' and translate(message, chr(64976) || chr(64977), '') like 'python: batch _ of film'"
    );
    assert_eq!(stage.db.value::<i64>(&sql).await, 3);
}

#[tokio::test]
async fn a_name_that_is_no_registered_function_runs_nothing() {
    let (stage, functions) = (Stage::with_films(2).await, Functions::new().await);
    for (place, name) in
        ["os.system", "functions.slug", "../functions", "slug; import os", "SLUG"].iter().enumerate()
    {
        let mut changes = plan(&[name]);
        changes["name"] = json!(format!("film_{place}"));
        changes["target_table"] = json!(format!("analytics.film_{place}"));
        let id = stage.pipeline(changes).await;
        let run = functions.run(&stage, id).await;
        assert_eq!((run.status, run.rows_read), (RunStatus::Requested, 0), "{name}");
    }
    assert_eq!(stage.count("analytics.film").await, 0);
}
