//! Nothing empties a target.

use serde_json::json;

use crate::play::{Play, Work};
use crate::targets::Target;

async fn increments_above_the_delete_limit_delete_no_more_until_somebody_consents<T: Target>(play: Play<T>) {
    let id = play.loaded(100, json!({"batch_size": 10})).await;
    play.change("title = 'hidden'", "id <= 35").await;
    for _ in 0..3 {
        assert_eq!(play.fail(id, Work::Increment).await, "sink.delete_limit");
        let left = play.titles().await.len();
        assert_eq!(left, 80, "two batches, and nothing of the third");
    }
    play.configure("delete_limit = 1").await;
    assert_eq!(play.succeed(id, Work::Increment).await.rows_deleted, 15);
}

async fn a_load_above_the_delete_limit_deletes_nothing_until_somebody_consents<T: Target>(play: Play<T>) {
    let id = play.loaded(50, json!({"batch_size": 10})).await;
    play.change("title = 'New'", "id > 40").await;
    play.stage.db.execute("delete from content.film where id <= 20").await;
    for _ in 0..2 {
        assert_eq!(play.fail(id, Work::Load).await, "sink.delete_limit");
        assert_eq!(play.titles().await.len(), 50);
    }
    play.configure("delete_limit = 1").await;
    assert_eq!(play.succeed(id, Work::Load).await.rows_deleted, 20);
}

async fn deletes_of_a_backfill_have_the_same_limit<T: Target>(play: Play<T>) {
    let id = play.loaded(50, json!({"batch_size": 4})).await;
    play.change("title = 'hidden'", "id between 10 and 40").await;
    assert_eq!(play.fail(id, Work::Backfill).await, "sink.delete_limit");
    assert!(play.titles().await.len() >= 40);
    play.configure("delete_limit = 1").await;
    play.succeed(id, Work::Backfill).await;
}

async fn a_source_without_rows_never_empties_the_target<T: Target>(play: Play<T>) {
    let id = play.loaded(12, json!({"delete_limit": 1.0})).await;
    let before = play.titles().await;
    play.stage.db.execute("create table content.away as table content.film; truncate content.film").await;
    assert_eq!(play.fail(id, Work::Load).await, "sink.source_empty");
    assert_eq!(play.titles().await, before);
    assert_eq!(play.run(id, Work::Increment).await.rows_deleted, 0);
    assert_eq!(play.titles().await, before);
    play.stage.db.execute("insert into content.film table content.away").await;
    play.succeed(id, Work::Load).await;
}

of_every_target!(
    increments_above_the_delete_limit_delete_no_more_until_somebody_consents,
    a_load_above_the_delete_limit_deletes_nothing_until_somebody_consents,
    deletes_of_a_backfill_have_the_same_limit,
    a_source_without_rows_never_empties_the_target,
);
