//! A table that others change between two runs.

use vitrina_core::{Mode, RunStatus};

use super::{Feed, FeedPlay};

async fn columns_that_come_change_or_go_between_runs_are_followed_or_told<F: Feed>(play: FeedPlay<F>) {
    play.put(1..=5, "Film").await;
    play.equal_after(Mode::Full).await;
    if let Err(reason) = F::ABILITIES.has_table {
        println!("not played: {reason}");
        return;
    }
    let alter =
        async |change: &str| play.stage.db.execute(&format!("alter table content.film {change}")).await;
    alter("add extra int not null default 1").await;
    play.put([1, 6], "Added").await;
    play.equal_after(Mode::Incremental).await;
    alter("drop extra").await;
    play.put([2], "Dropped").await;
    play.equal_after(Mode::Incremental).await;
    alter("alter title type varchar(40)").await;
    play.put([3], "Shorter").await;
    play.equal_after(Mode::Incremental).await;

    let before = play.mart().await;
    alter("rename title to name").await;
    let run = play.run(Mode::Incremental).await;
    assert_eq!(
        (run.status, run.error_code.as_deref()),
        (RunStatus::Failed, Some("sql.refused_by_source")),
        "{:?}",
        run.error
    );
    assert!(run.error.as_ref().is_some_and(|error| error.contains("title")), "{:?}", run.error);
    alter("rename name to title").await;
    assert_eq!(play.mart().await, before, "nothing was written");
    alter("alter title type int using id * 10").await;
    play.put([4], "42").await;
    play.equal_after(Mode::Full).await;

    let mart =
        async |change: &str| play.stage.db.execute(&format!("alter table analytics.film {change}")).await;
    mart("alter title type int using title::int").await;
    alter("alter title type text using 'Text ' || title").await;
    let before = play.mart().await;
    play.put([4], "No number").await;
    let run = play.run(Mode::Incremental).await;
    // A text may be a number: rows are rejected where it is none.
    assert_eq!(
        (run.status, run.error_code.as_deref()),
        (RunStatus::Failed, Some("rejects.limit")),
        "{:?}",
        run.error
    );
    assert_eq!(play.mart().await, before, "nothing was written");
    mart("alter title type text").await;
    play.equal_after(Mode::Full).await;
}

async fn a_table_that_is_truncated_and_filled_again_arrives<F: Feed>(play: FeedPlay<F>) {
    play.put(1..=9, "Film").await;
    play.equal_after(Mode::Full).await;
    if let Err(reason) = F::ABILITIES.has_table {
        println!("not played: {reason}");
        return;
    }
    play.stage
        .db
        .execute("begin; truncate content.film; insert into content.film select n, 'Again', now() from generate_series(3, 12) n; commit")
        .await;
    play.succeed(Mode::Incremental).await;
    let mut expected = play.feed.titles(&play.stage).await;
    if F::ABILITIES.sees_deletes.is_err() {
        expected.extend(["1", "2"].map(|id| (id.to_owned(), "Film".to_owned())));
    }
    assert_eq!(play.mart().await, expected);
    play.equal_after(Mode::Full).await;
}

of_every_feed!(
    columns_that_come_change_or_go_between_runs_are_followed_or_told,
    a_table_that_is_truncated_and_filled_again_arrives,
);
