//! All that is committed arrives, and nothing twice.

use vitrina_core::Mode;

use super::{Feed, FeedPlay};

async fn all_committed_rows_arrive_by_loads_and_increments<F: Feed>(play: FeedPlay<F>) {
    play.put(1..=10, "Film").await;
    assert_eq!(play.equal_after(Mode::Full).await.rows_written, 10);
    assert_eq!(play.equal_after(Mode::Full).await.rows_written, 0, "twice is once");
    // Other tests share the server, and a cursor waits for their transactions.
    play.stage.outlasts_others().await;
    play.equal_after(Mode::Incremental).await;
    play.put([2, 9, 11, 12, 13, 14], "New").await;
    assert_eq!(play.equal_after(Mode::Incremental).await.rows_written, 6);
    play.put([2], "Newer").await;
    play.put([2], "Newest").await;
    assert_eq!(play.equal_after(Mode::Incremental).await.rows_written, 1);
    play.stage.outlasts_others().await;
    play.succeed(Mode::Incremental).await;
    assert_eq!(play.succeed(Mode::Incremental).await.rows_read, 0, "nothing is new");
}

async fn rows_of_one_moment_arrive_over_many_pages<F: Feed>(play: FeedPlay<F>) {
    play.put(1..=5, "Film").await;
    play.equal_after(Mode::Full).await;
    play.put(3..=40, "At once").await;
    let run = play.equal_after(Mode::Incremental).await;
    assert!(run.rows_written == 38 && run.batches > 10, "{run:?}");
}

async fn deletes_and_moved_keys_arrive_where_the_feed_sees_them_and_by_a_load_elsewhere<F: Feed>(
    play: FeedPlay<F>,
) {
    play.put(1..=8, "Film").await;
    play.equal_after(Mode::Full).await;
    play.feed.delete(&play.stage, 3).await;
    // A key that moves.
    play.feed.delete(&play.stage, 7).await;
    play.put([70], "Film").await;
    play.succeed(Mode::Incremental).await;
    let mut expected = play.feed.titles(&play.stage).await;
    if F::ABILITIES.sees_deletes.is_err() {
        expected.extend(["3", "7"].map(|id| (id.to_owned(), "Film".to_owned())));
    }
    assert_eq!(play.mart().await, expected);
    play.equal_after(Mode::Full).await;
    // One that comes back.
    play.put([3], "Back").await;
    play.equal_after(Mode::Incremental).await;
}

async fn a_source_without_rows_empties_nothing<F: Feed>(play: FeedPlay<F>) {
    play.put(1..=4, "Film").await;
    play.equal_after(Mode::Full).await;
    for id in 1..=4 {
        play.feed.delete(&play.stage, id).await;
    }
    let run = play.run(Mode::Full).await;
    assert_eq!(run.error_code.as_deref(), Some("sink.source_empty"), "{:?}", run.error);
    assert_eq!(play.mart().await.len(), 4);
    play.put([5], "New").await;
    play.equal_after(Mode::Full).await;
}

async fn a_row_that_is_committed_late_behind_newer_ones_arrives<F: Feed>(play: FeedPlay<F>) {
    play.put(1..=5, "Film").await;
    play.equal_after(Mode::Full).await;
    if let Err(reason) = F::ABILITIES.has_transactions {
        println!("not played: {reason}");
        return;
    }
    let late = play.stage.db.client().await;
    late.batch_execute("begin; insert into content.film values (50, 'Late', now()); update content.film set title = 'Late', modified = now() where id = 2")
        .await
        .unwrap();
    for pass in 0..3 {
        play.put([3, 60 + pass], &format!("Soon {pass}")).await;
        play.succeed(Mode::Incremental).await;
        assert_eq!(play.mart().await["3"], format!("Soon {pass}"), "it is not waited for");
    }
    late.batch_execute("commit").await.unwrap();
    play.equal_after(Mode::Incremental).await;
    let undone = play.stage.db.client().await;
    undone
        .batch_execute("begin; update content.film set title = 'Never', modified = now(); rollback")
        .await
        .unwrap();
    play.equal_after(Mode::Incremental).await;
}

of_every_feed!(
    all_committed_rows_arrive_by_loads_and_increments,
    rows_of_one_moment_arrive_over_many_pages,
    deletes_and_moved_keys_arrive_where_the_feed_sees_them_and_by_a_load_elsewhere,
    a_source_without_rows_empties_nothing,
    a_row_that_is_committed_late_behind_newer_ones_arrives,
);
