//! A refused row is one reject, wherever in its batch it is and however large that is. One database plays all cases of
//! a test, because a fresh one for each of them would take most of the time.

use rstest::rstest;
use serde_json::{Value, json};
use vitrina_core::{Mode, PipelineId, RunStatus};
use vitrina_store::RunRecord;

use crate::stage::Stage;

/// Around the sizes at which a batch is sent by one COPY more, and in one COPY again.
const SIZES: [i64; 15] = [1, 2, 249, 250, 251, 499, 500, 501, 999, 1000, 1001, 3999, 4000, 4001, 10_000];

/// Where in its batch a row is refused.
#[derive(Debug, Clone, Copy)]
enum Place {
    First,
    Middle,
    Last,
}

impl Place {
    const ALL: [Self; 3] = [Self::First, Self::Middle, Self::Last];

    /// Of the batch behind `before` rows.
    fn id(self, before: i64, size: i64) -> i64 {
        before
            + match self {
                Self::First => 1,
                Self::Middle => size / 2 + 1,
                Self::Last => size,
            }
    }
}

/// Films of batches of one size, one refused row in some of them.
struct Case {
    films: i64,
    bad: Vec<i64>,
}

impl Case {
    /// Small batches: refused rows in the first, in those in the middle, and in the last but one.
    /// Large ones: in the middle one only, at a place that depends on the size.
    fn of(size: i64) -> Self {
        use Place::{First, Last, Middle};
        let places = match size {
            ..3000 => vec![Some(First), None, Some(Middle), Some(Last), Some(First), None],
            _ => vec![None, Some(Place::ALL[usize::try_from(size % 3).unwrap()])],
        };
        let films = size * i64::try_from(places.len()).unwrap() + 1;
        let bad = (0..).zip(places).filter_map(|(batch, place)| Some(place?.id(batch * size, size)));
        Self { films, bad: bad.collect() }
    }

    /// One batch.
    fn whole(size: i64, place: Place) -> Self {
        Self { films: size + 1, bad: vec![place.id(0, size)] }
    }

    async fn prepare(&self, stage: &Stage, is_filled: bool) {
        let (films, bad) = (self.films, json!(self.bad));
        stage
            .db
            .execute(&format!(
                "truncate content.film, analytics.film, etl.etl_rejects;
                 insert into content.film (id, title, modified)
                 select n, case when '{bad}' @> to_jsonb(n) then null else 'Film ' || n end, '2024-01-01'::timestamptz + n * interval '1 ms'
                   from generate_series(1, {films}) n"
            ))
            .await;
        if is_filled {
            stage
                .db
                .execute("insert into analytics.film (id, title) select id, 'old' from content.film")
                .await;
        }
    }

    /// The run has written all the others, at once, and an old row stays.
    async fn require(&self, stage: &Stage, run: &RunRecord, is_filled: bool, which: &str) {
        let (films, bad) = (self.films, self.bad.len());
        assert_eq!(run.status, RunStatus::Success, "{which}: {:?}", run.error);
        let (read, rejected) =
            (i64::try_from(run.rows_read).unwrap(), usize::try_from(run.rows_rejected).unwrap());
        assert_eq!((read, rejected), (films, bad), "{which}");
        let mut keys: Vec<_> = self.bad.iter().map(|id| format!("[\"{id}\"]")).collect();
        keys.sort();
        let expected: Vec<_> = keys.into_iter().map(|key| ("row.not_null".to_owned(), key)).collect();
        assert_eq!(stage.rejects().await, expected, "{which}");
        let good = "analytics.film m join content.film f using (id) where m.title = f.title";
        assert_eq!(stage.count(good).await, films - i64::try_from(bad).unwrap(), "{which}");
        let old = if is_filled { bad } else { 0 };
        assert_eq!(
            stage.count("analytics.film where title = 'old'").await,
            i64::try_from(old).unwrap(),
            "{which}"
        );
        assert_eq!(stage.store.attempts(run.id).await.unwrap().len(), 1, "{which}");
    }
}

async fn stage() -> Stage {
    let stage = Stage::with_films(0).await;
    stage.db.execute("alter table analytics.film alter title set not null").await;
    stage
}

async fn pipeline(stage: &Stage, which: &str, size: i64, changes: &Value) -> PipelineId {
    let mut config = json!({"name": which, "batch_size": size, "reject_limit": 10});
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    stage.pipeline(config).await
}

#[rstest]
#[case::direct(json!({}), false)]
#[case::staged_into_an_empty_mart(json!({"first_load": "staged"}), false)]
#[case::staged_into_a_filled_mart(json!({}), true)]
#[tokio::test]
async fn a_refused_row_of_a_load_is_one_reject_at_every_batch_size_and_place(
    #[case] changes: Value,
    #[case] is_filled: bool,
) {
    let stage = stage().await;
    for size in SIZES {
        let (case, which) = (Case::of(size), format!("load{size}"));
        case.prepare(&stage, is_filled).await;
        let id = pipeline(&stage, &which, size, &changes).await;
        let run = stage.run(id).await;
        case.require(&stage, &run, is_filled, &which).await;
        stage.delete(id).await;
    }
}

#[tokio::test]
async fn a_refused_row_of_a_load_of_one_batch_is_one_reject_at_every_batch_size_and_place() {
    let stage = stage().await;
    for (size, place) in SIZES.into_iter().zip(Place::ALL.into_iter().cycle()) {
        let (case, which) = (Case::whole(size, place), format!("whole{size}{place:?}"));
        case.prepare(&stage, true).await;
        let id = pipeline(&stage, &which, size + 2, &json!({})).await;
        let run = stage.run(id).await;
        case.require(&stage, &run, true, &which).await;
        stage.delete(id).await;
    }
}

#[rstest]
#[case::into_an_empty_mart(false)]
#[case::into_a_filled_mart(true)]
#[tokio::test]
async fn a_refused_row_of_an_increment_or_a_backfill_is_one_reject_at_every_batch_size_and_place(
    #[case] is_filled: bool,
) {
    let stage = stage().await;
    let incremental =
        json!({"mode": "incremental", "incremental_key": "modified", "incremental_id_key": "id"});
    for size in [1, 250, 501, 1000, 4000] {
        let (case, which) = (Case::of(size), format!("increment{size}"));
        case.prepare(&stage, is_filled).await;
        let id = pipeline(&stage, &which, size, &incremental).await;
        let run = stage.request_mode(id, Mode::Incremental).await;
        stage.runner().work_off().await.unwrap();
        case.require(&stage, &stage.run_record(run).await, is_filled, &which).await;
        if is_filled {
            stage.db.execute("update analytics.film set title = 'old'").await;
        }
        let run = stage.request_range(id, None, None).await;
        stage.runner().work_off().await.unwrap();
        case.require(&stage, &stage.run_record(run).await, is_filled, &format!("backfill{size}")).await;
        stage.delete(id).await;
    }
}
