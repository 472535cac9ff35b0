//! Batches in the middle of a load, whose BEGIN, rows and COMMIT are sent without waiting for answers: what the
//! commit refuses is not written, and the run ends as the refusal says.

use rstest::rstest;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_postgres::Client;
use vitrina_core::{Mode, PipelineId, RunStatus, Status};

use crate::stage::{Stage, until};

/// Where the rows of a load go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Direct,
    Staged,
}

impl Path {
    async fn prepare(self, stage: &Stage) -> PipelineId {
        let id = stage.full(10).await;
        if self == Self::Staged {
            stage.succeed(id).await;
            // The second batch of the next load waits for whoever holds the lock.
            stage
                .db
                .execute(
                    "create function vitrina.wait() returns trigger language plpgsql as $$ begin
                         if new.rows = 20 then perform pg_advisory_xact_lock(1); end if; return new; end $$;
                     create trigger wait before update on vitrina.loads for each row execute function vitrina.wait();
                     update content.film set title = 'New'",
                )
                .await;
        }
        id
    }

    /// Stops the second batch behind its rows and before its commit.
    async fn block(self, stage: &Stage) -> Client {
        if self == Self::Direct {
            return stage.block_film(15).await;
        }
        let blocker = stage.db.client().await;
        blocker.batch_execute("begin; select pg_advisory_xact_lock(1)").await.unwrap();
        blocker
    }

    /// Films of the load that are there: in the mart, or where it is staged.
    async fn loaded(self, stage: &Stage) -> i64 {
        match self {
            Self::Direct => stage.count("analytics.film").await,
            Self::Staged => {
                assert_eq!(stage.count("analytics.film where title = 'New'").await, 0);
                stage.db.value("select rows from vitrina.loads where load <> pipeline").await
            }
        }
    }
}

#[rstest]
#[case::whose_lease_was_lost(Path::Direct, "update etl.etl_pipelines set lease_token = lease_token + 1")]
#[case::whose_lease_was_lost_staged(
    Path::Staged,
    "update etl.etl_pipelines set lease_token = lease_token + 1"
)]
#[case::whose_checkpoint_was_moved(Path::Direct, "update etl.etl_state set version = version + 1")]
#[case::whose_checkpoint_was_moved_staged(Path::Staged, "update etl.etl_state set version = version + 1")]
#[tokio::test]
async fn a_pipelined_batch_is_not_written_by_a_runner(#[case] path: Path, #[case] change: &str) {
    let stage = Stage::with_films(40).await;
    let id = path.prepare(&stage).await;
    let blocker = path.block(&stage).await;
    let run = stage.request_mode(id, Mode::Full).await;
    let runner = stage.runner();
    let mut late = JoinSet::new();
    late.spawn(async move { runner.work_off().await.unwrap() });
    let waits = "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                                 where not l.granted and a.datname = current_database())";
    until(|| stage.db.value::<bool>(waits)).await;
    stage.db.execute(change).await;
    let before = (stage.checkpoint().await, stage.run_record(run).await.batches);
    assert_eq!((before.0["position"]["pass"]["position"].clone(), before.1), (json!(["10"]), 1));
    blocker.batch_execute("rollback").await.unwrap();
    late.join_all().await;

    assert_eq!(path.loaded(&stage).await, 10, "the first batch and nothing else");
    let record = stage.run_record(run).await;
    assert_eq!((stage.checkpoint().await, record.batches), before);
    assert_eq!(
        (record.status, stage.status(id).await),
        (RunStatus::Running, Status::Running),
        "left to its next owner"
    );
    stage.expire_leases().await;
    stage.runner().work_off().await.unwrap();
    let record = stage.run_record(run).await;
    assert_eq!(record.status, RunStatus::Success, "{:?}", record.error);
    assert_eq!(stage.differences().await, 0);
}

#[rstest]
#[case::direct(Path::Direct)]
#[case::staged(Path::Staged)]
#[tokio::test]
async fn a_pipelined_batch_with_too_many_rejects_is_not_written(#[case] path: Path) {
    let stage = Stage::with_films(40).await;
    let id = path.prepare(&stage).await;
    stage
        .db
        .execute(
            "alter table analytics.film add check (title <> 'refused'); update content.film set title = 'refused' where id = 25",
        )
        .await;
    assert_eq!(stage.fail(id).await.0, "rejects.limit");
    assert_eq!(path.loaded(&stage).await, 20, "the batches before it");
    assert_eq!(stage.checkpoint().await["position"]["pass"]["position"], json!(["20"]));
    assert_eq!(stage.rejects().await, [("row.check".to_owned(), "[\"25\"]".to_owned())]);
    stage.db.execute("update content.film set title = 'fine' where id = 25").await;
    let run = stage.request_resume(id).await;
    stage.runner().work_off().await.unwrap();
    let record = stage.run_record(run).await;
    assert_eq!((record.status, record.rows_read), (RunStatus::Success, 20), "{:?}", record.error);
    assert_eq!(stage.differences().await, 0);
}
