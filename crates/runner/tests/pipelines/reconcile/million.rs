//! Exactly the planted differences, in many rows.

use vitrina_core::{DifferenceKind, Level, PipelineId, Verdict};

use crate::compared::Compared;
use crate::stage::Stage;

/// A mart that equals its source of so many rows.
async fn equal(rows: i32) -> (Stage, PipelineId) {
    let stage = Stage::with_films(rows).await;
    stage
        .db
        .execute("insert into analytics.film (id, title, rating, modified) select * from content.film; analyze analytics.film")
        .await;
    let id = stage.full(10_000).await;
    (stage, id)
}

/// `n` of each kind, scattered: missing where `id % 97 = 1`, different where it is 2; extra ones lie between.
async fn plant(stage: &Stage, n: usize) {
    stage
        .db
        .execute(&format!(
            "delete from analytics.film where id in (select n * 97 + 1 from generate_series(1, {n}) n);
             update analytics.film set rating = rating + 0.1 where id in (select n * 97 + 2 from generate_series(1, {n}) n);
             delete from content.film where id in (select n * 97 + 3 from generate_series(1, {n}) n)"
        ))
        .await;
}

fn planted(n: usize, offset: usize) -> Vec<String> {
    let mut keys: Vec<String> = (1..=n).map(|n| (n * 97 + offset).to_string()).collect();
    keys.sort_unstable();
    keys
}

fn assert_exact(compared: &Compared, n: usize) {
    assert_eq!(compared.verdict(), Verdict::Differs);
    for (kind, offset) in
        [(DifferenceKind::Missing, 1), (DifferenceKind::Different, 2), (DifferenceKind::Extra, 3)]
    {
        let mut found = compared.keys(kind);
        found.sort_unstable();
        assert_eq!(found, planted(n, offset), "{kind}");
    }
}

/// Finds exactly what is planted, without reading more than a tenth of the rows where little differs.
async fn finds_what_is_planted(rows: i32, counts: &[usize]) {
    let (stage, id) = equal(rows).await;
    let equal = stage.reconcile(id, Level::Hash).await;
    assert_eq!((equal.verdict(), equal.figures().rows_read), (Verdict::Equal, 0));
    assert_eq!(equal.figures().source.rows, u64::from(rows.unsigned_abs()));
    for &n in counts {
        plant(&stage, n).await;
        let compared = stage.reconcile(id, Level::Rows).await;
        assert_exact(&compared, n);
        if n == 100 && rows == 1_000_000 {
            assert!(compared.figures().rows_read <= 100_000, "{:?}", compared.figures());
        }
    }
}

#[tokio::test]
async fn among_many_rows_exactly_the_planted_differences_are_found_and_none_where_there_are_none() {
    finds_what_is_planted(100_000, &[1, 1000]).await;
}

#[tokio::test]
#[ignore = "long: make chaos"]
async fn among_a_million_rows_exactly_the_planted_differences_are_found_and_none_where_there_are_none() {
    finds_what_is_planted(1_000_000, &[1, 100, 10_000]).await;
}

#[tokio::test]
async fn a_mart_that_has_lost_most_of_its_rows_is_read_in_pieces() {
    let (stage, id) = equal(150_000).await;
    stage
        .db
        .execute(
            "delete from analytics.film where id > 30000; update analytics.film set title = 'x' where id = 5",
        )
        .await;
    let compared = stage.reconcile(id, Level::Hash).await;
    assert_eq!(compared.counts(), (120_000, 0, 1));
}
