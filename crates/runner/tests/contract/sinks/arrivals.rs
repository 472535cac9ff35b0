//! Twice is once.

use serde_json::json;

use crate::play::{Play, Work, figures};
use crate::targets::Target;

async fn loads_increments_and_backfills_arrive_are_counted_and_are_not_written_twice<T: Target>(
    play: Play<T>,
) {
    play.add_films(1, 100).await;
    let id = play.pipeline(json!({"batch_size": 30})).await;
    let load = play.succeed(id, Work::Load).await;
    assert_eq!((load.rows_read, figures(&load)), (100, (100, 0, 0)));
    let again = figures(&play.succeed(id, Work::Load).await);
    let differences = T::ABILITIES.writes_differences.is_ok();
    assert_eq!(again, if differences { (0, 100, 0) } else { (100, 0, 0) });

    play.stage.outlasts_others().await;
    play.change("title = 'New'", "id = 7").await;
    play.add_films(101, 103).await;
    play.change("title = 'hidden'", "id in (1, 50)").await;
    let pass = play.succeed(id, Work::Increment).await;
    assert_eq!((pass.rows_written, pass.rows_deleted), (4, 2));
    play.stage.db.execute("delete from content.film where id = 49").await;
    let again = figures(&play.succeed(id, Work::Load).await);
    assert_eq!(again, if differences { (0, 100, 1) } else { (100, 0, 1) });

    let checkpoint = play.stage.checkpoint().await;
    play.target.put(&play.stage, 9, "damaged").await;
    play.stage.db.execute("delete from content.film where id = 60").await;
    let run = play.stage.request_keys(id, json!([["9"], ["60"], ["12"]])).await;
    play.work_off("tester").await;
    let backfill = play.stage.run_record(run).await;
    play.require_success(&backfill).await;
    assert_eq!(figures(&backfill), if differences { (1, 1, 1) } else { (2, 0, 1) });
    assert_eq!(play.stage.checkpoint().await, checkpoint);
}

async fn a_key_that_a_backfill_names_twice_is_written_once<T: Target>(play: Play<T>) {
    let id = play.loaded(6, json!({"batch_size": 2, "delete_limit": 1.0})).await;
    play.stage
        .db
        .execute("update content.film set title = 'New' where id <= 2; delete from content.film where id = 6")
        .await;
    let run = play.stage.request_keys(id, json!([["1"], ["2"], ["01"], [" 2"], ["6"], ["2"]])).await;
    play.work_off("tester").await;
    let backfill = play.stage.run_record(run).await;
    play.require_success(&backfill).await;
    assert_eq!(figures(&backfill), (2, 0, 1));
}

of_every_target!(
    loads_increments_and_backfills_arrive_are_counted_and_are_not_written_twice,
    a_key_that_a_backfill_names_twice_is_written_once,
);
