//! Where rows go through functions, what those return is what is compared.

use serde_json::json;
use vitrina_core::{Level, Mode, Verdict};

use crate::functions::{Functions, plan};
use crate::python::{Counted, from_python, incremental};
use crate::stage::Stage;

#[tokio::test]
async fn rows_are_compared_as_functions_leave_them() {
    let (stage, functions) = (Stage::with_films(50).await, Functions::new().await);
    let mut changes = plan(&["slug", "without_dull"]);
    changes["batch_size"] = json!(7);
    let id = stage.pipeline(changes).await;
    functions.succeed(&stage, id).await;
    for level in [Level::Count, Level::Rows] {
        let compared = stage.reconcile_with(functions.settings(&stage), id, level).await;
        assert_eq!(compared.verdict(), Verdict::Equal, "{level}: {:?}", compared.differences);
    }
    stage
        .db
        .execute(
            "update analytics.film set title = 'Film 30' where id = 30; delete from analytics.film where id = 31;
             insert into analytics.film (id, title) values (3, 'dull')",
        )
        .await;
    let compared = stage.reconcile_with(functions.settings(&stage), id, Level::Rows).await;
    assert_eq!(compared.counts(), (1, 1, 1));
    let different = compared.differences.iter().find(|difference| difference.key == json!(["30"])).unwrap();
    assert_eq!(different.columns["title"].source.as_deref(), Some("film-30"));
}

#[tokio::test]
async fn rows_that_functions_have_yet_to_see_are_in_flight() {
    let (stage, functions) = (Stage::with_films(20).await, Functions::new().await);
    let id = stage.pipeline(incremental(&["slug"])).await;
    functions.succeed(&stage, id).await;
    stage.add_films(21, 22).await;
    stage.db.execute("update content.film set title = 'New One', modified = now() where id = 5; update analytics.film set title = '' where id = 6").await;
    let compared = stage.reconcile_with(functions.settings(&stage), id, Level::Rows).await;
    assert_eq!((compared.counts(), compared.figures().in_flight), ((0, 0, 1), 3));
}

#[tokio::test]
async fn a_source_that_is_a_function_is_compared() {
    let (stage, mut functions) = (Stage::with_films(0).await, None);
    let file = Counted::new(&mut functions, "compared").await;
    let functions = functions.unwrap();
    file.holds("1 2 3 4 5 6 7");
    let id = stage.pipeline(from_python(Mode::Full)).await;
    functions.succeed(&stage, id).await;
    let compare = async || stage.reconcile_with(functions.settings(&stage), id, Level::Rows).await;
    assert_eq!(compare().await.verdict(), Verdict::Equal);
    stage
        .db
        .execute("delete from analytics.film where id = 2; insert into analytics.film (id) values (9)")
        .await;
    assert_eq!(compare().await.counts(), (1, 1, 0));
    file.holds("1 2");
    assert_eq!(compare().await.counts(), (1, 6, 0));
}

#[tokio::test]
async fn where_functions_drop_every_row_all_of_the_target_is_extra() {
    let (stage, functions) = (Stage::with_films(3).await, Functions::new().await);
    let id = stage.pipeline(plan(&["nothing"])).await;
    stage.db.execute("insert into analytics.film (id) values (1), (2)").await;
    let compared = stage.reconcile_with(functions.settings(&stage), id, Level::Rows).await;
    assert_eq!(compared.counts(), (0, 2, 0));
}

#[tokio::test]
async fn behind_functions_all_of_many_lost_rows_are_found() {
    let (stage, functions) = (Stage::with_films(40_000).await, Functions::new().await);
    let id = stage.pipeline(plan(&["exclaim"])).await;
    functions.succeed(&stage, id).await;
    stage.db.execute("analyze analytics.film; delete from analytics.film where id % 100 = 7; update analytics.film set title = '' where id % 100 = 8").await;
    let compared = stage.reconcile_with(functions.settings(&stage), id, Level::Rows).await;
    assert_eq!(compared.counts(), (400, 0, 400));
    assert!(compared.figures().differing_ranges > 64, "{:?}", compared.figures());
}
