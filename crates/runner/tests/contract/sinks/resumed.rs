//! A load that was paused continues; one that failed begins anew.

use serde_json::json;
use vitrina_core::{PipelineId, Status};

use crate::play::{Play, Work};
use crate::targets::Target;

/// The runner waits for the source, and is told to pause before it has written anything.
async fn pause_behind_the_first_batch<T: Target>(play: &Play<T>, id: PipelineId) {
    let source = play.stage.db.client().await;
    source.batch_execute("begin; lock table content.film in access exclusive mode").await.unwrap();
    play.request(id, Work::Load).await;
    let runner = play.start("pausing");
    play.stage.someone_waits_for("content.film").await;
    play.stage.pause_unheard(id).await;
    source.batch_execute("commit").await.unwrap();
    runner.join_all().await;
    assert_eq!(play.stage.status(id).await, Status::Paused);
}

async fn a_paused_load_continues_behind_its_last_batch<T: Target>(play: Play<T>) {
    play.add_films(1, 30).await;
    let id = play.pipeline(json!({"batch_size": 10})).await;
    for _ in 0..2 {
        play.change("title = title || '!'", "true").await;
        pause_behind_the_first_batch(&play, id).await;
        play.change("title = 'New'", "id > 25").await;
        let resumed = play.succeed(id, Work::Load).await;
        assert_eq!(resumed.rows_read, 20, "into an empty target, and into a filled one");
    }
}

async fn a_failed_load_begins_anew_and_is_equal_to_the_source_of_its_end<T: Target>(play: Play<T>) {
    let id = play.loaded(30, json!({"batch_size": 10})).await;
    play.change("title = 'Newer', note = case id when 25 then 'x' else '1' end", "id > 3").await;
    assert_eq!(play.fail(id, Work::Load).await, "rejects.limit");
    play.change("title = 'Newest', note = '1'", "id in (3, 25)").await;
    play.stage
        .db
        .execute("delete from content.film where id = 5; insert into content.film values (0, 'Early')")
        .await;
    assert_eq!(play.succeed(id, Work::Load).await.rows_read, 30);
}

of_every_target!(
    a_paused_load_continues_behind_its_last_batch,
    a_failed_load_begins_anew_and_is_equal_to_the_source_of_its_end,
);
