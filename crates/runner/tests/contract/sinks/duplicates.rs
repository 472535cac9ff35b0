//! Several rows of one key, in one batch and over two.

use serde_json::{Value, json};
use vitrina_core::{PipelineId, RunStatus};

use crate::play::{Play, Work};
use crate::targets::Target;

/// Films 1 to 9, of which 4 comes twice, at the border of two batches, and 6 three times; the last one is the newest.
async fn copies<T: Target>(play: &Play<T>, changes: Value) -> PipelineId {
    play.stage
        .db
        .execute(
            "create table if not exists content.copy (id int, title text, note text default '1', modified timestamptz);
             truncate content.copy;
             insert into content.copy (id, title, modified)
             select id, 'Copy ' || n, '2024-01-01'::timestamptz + n * interval '1 minute'
               from unnest(array[6, 1, 2, 3, 4, 6, 5, 4, 7, 6, 8, 9]) with ordinality u(id, n)",
        )
        .await;
    let mut config = json!({"batch_size": 4, "reject_limit": 5, "delete_limit": 1.0,
        "source_query": "select id, title, note, modified from content.copy"});
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    play.pipeline(config).await
}

async fn without_an_order_a_key_that_comes_twice_is_one_reject<T: Target>(play: Play<T>) {
    let id =
        copies(&play, json!({"mode": "full", "incremental_key": null, "incremental_id_key": null})).await;
    for _ in 0..2 {
        let run = play.run(id, Work::Load).await;
        assert_eq!((run.status, run.rows_rejected), (RunStatus::Success, 2), "{:?}", run.error);
        let reject = |id: &str| ("row.duplicate_key".to_owned(), format!("[\"{id}\"]"));
        assert_eq!(play.stage.rejects().await, [reject("4"), reject("6")]);
        let titles = play.titles().await;
        assert_eq!(titles.keys().collect::<Vec<_>>(), ["1", "2", "3", "5", "7", "8", "9"]);
    }
}

async fn with_a_cursor_the_newest_row_of_a_key_counts<T: Target>(play: Play<T>) {
    let id = copies(&play, json!({})).await;
    for work in [Work::Load, Work::Increment, Work::Load] {
        let run = play.run(id, work).await;
        assert_eq!((run.status, run.rows_rejected), (RunStatus::Success, 0), "{:?}", run.error);
        let titles = play.titles().await;
        assert_eq!((titles.len(), titles["4"].as_str(), titles["6"].as_str()), (9, "Copy 8", "Copy 10"));
    }
    play.stage
        .db
        .execute("insert into content.copy values (4, 'Newest', '1', now()), (4, 'Older', '1', now() - interval '1 s')")
        .await;
    play.run(id, Work::Increment).await;
    assert_eq!(play.titles().await["4"], "Newest");
}

/// 4 in two rows of one moment that differ, 6 in two that do not.
async fn of_rows_that_are_as_new_as_each_other_none_counts_unless_they_are_the_same<T: Target>(
    play: Play<T>,
) {
    let id = copies(&play, json!({"batch_size": 3})).await;
    let same = "delete from content.copy where id in (4, 6);
                insert into content.copy select id, title, '1', '2024-05-05'
                  from (values (4, 'One'), (6, 'Same'), (4, 'Other'), (6, 'Same')) v (id, title)";
    play.stage.db.execute(same).await;
    for work in [Work::Increment, Work::Load, Work::Increment] {
        let run = play.run(id, work).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        assert_eq!(play.stage.rejects().await, [("row.duplicate_key".to_owned(), "[\"4\"]".to_owned())]);
        let titles = play.titles().await;
        assert_eq!((titles.len(), titles.get("4"), titles["6"].as_str()), (8, None, "Same"), "{work:?}");
    }
    play.stage.db.execute("update content.copy set modified = '2024-05-06' where title = 'Other'").await;
    play.run(id, Work::Increment).await;
    assert_eq!((play.titles().await["4"].as_str(), play.stage.rejects().await.len()), ("Other", 0));
}

of_every_target!(
    without_an_order_a_key_that_comes_twice_is_one_reject,
    with_a_cursor_the_newest_row_of_a_key_counts,
    of_rows_that_are_as_new_as_each_other_none_counts_unless_they_are_the_same,
);
