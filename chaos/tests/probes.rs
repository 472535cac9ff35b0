//! No probe is one that cannot fail: each reports what is planted for it.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tokio_postgres::Client;
use vitrina_chaos::fixture::Fixture;
use vitrina_chaos::fleet::Fleet;
use vitrina_chaos::probes::{Prober, Violation, differences, left_behind};
use vitrina_chaos::{FaultSchedule, fill_marts};

/// A run that somebody executes, of pipeline `film`.
const RUNNING: &str = "
    insert into etl.etl_runs (id, pipeline_id, trigger, mode, snapshot) select '00000000-0000-0000-0000-000000000001', id, 'api', 'full', '{}' from etl.etl_pipelines where name = 'film';
    update etl.etl_pipelines set status = 'RUN_REQUESTED', run_id = '00000000-0000-0000-0000-000000000001' where name = 'film';
    update etl.etl_pipelines set status = 'RUNNING', owner = gen_random_uuid(), lease_token = lease_token + 1, lease_until = now() + interval '1 hour' where name = 'film';
    insert into etl.etl_attempts (run_id, pipeline_id, runner, token) select run_id, id, 'somebody', lease_token from etl.etl_pipelines where name = 'film';";
/// And as if it had never been.
const NOT_RUNNING: &str = "
    alter table etl.etl_pipelines disable trigger chaos;
    update etl.etl_pipelines set status = 'IDLE', owner = null, lease_until = null, run_id = null where name = 'film';
    alter table etl.etl_pipelines enable trigger chaos;
    delete from etl.etl_runs where id = '00000000-0000-0000-0000-000000000001';";
const AHEAD: &str = "update etl.etl_state set checkpoint = jsonb_set(checkpoint, '{position,done,opened_at}', to_jsonb(clock_timestamp())) where pipeline_id = (select id from etl.etl_pipelines where name = '$1')";

struct Plant {
    rule: &'static str,
    /// Before the first probe, which takes it as it is.
    before: String,
    plant: String,
    after: &'static str,
}

fn plant(rule: &'static str, plant: &str) -> Plant {
    Plant { rule, before: String::new(), plant: plant.to_owned(), after: "" }
}

fn while_running(rule: &'static str, plant: &str) -> Plant {
    Plant { rule, before: RUNNING.to_owned(), plant: plant.to_owned(), after: NOT_RUNNING }
}

fn after(rule: &'static str, before: &str, plant: &str) -> Plant {
    Plant { rule, before: before.to_owned(), plant: plant.to_owned(), after: "" }
}

fn plants() -> Vec<Plant> {
    let ahead = |mart: &str| AHEAD.replace("$1", mart);
    vec![
        plant("a row went back", "update analytics.film set version = version - 1 where id = 1"),
        plant(
            "rows were committed apart from their batch",
            "update analytics.film_rating set score = score where film_id = 2",
        ),
        plant("a row vanished that its source still has", "delete from analytics.actor where id = 3"),
        plant(
            "a mart is ahead of its source",
            "update analytics.film set version = version + 9 where id = 4",
        ),
        plant(
            "a row is not what its version says",
            "update analytics.actor_full set name = 'nobody' where id = 5",
        ),
        plant("a lease token went back", "update etl.etl_pipelines set lease_token = lease_token - 1"),
        plant(
            "a closed run changed",
            "update etl.etl_runs set finished_at = finished_at + interval '1 second'",
        ),
        plant(
            "a run's figures are not the sum of its batches",
            "update etl.etl_runs set rows_read = rows_read + 1",
        ),
        plant(
            "a healthy runner lost its lease",
            "insert into chaos.takeovers (pipeline, runner, seconds_late, suspect) values ('film', 'somebody', 0.1, false)",
        ),
        plant("a mart was emptied", "truncate analytics.actor_full"),
        after(
            "a mart was emptied",
            "",
            "alter table analytics.actor disable trigger chaos; delete from analytics.actor",
        ),
        plant(
            "a batch was committed by someone who is not the owner",
            "insert into etl.etl_batches (run_id, pipeline_id, token, rows_read, rows_inserted, rows_updated, rows_unchanged, rows_deleted, rows_rejected, bytes, read_ms, transform_ms, write_ms) select id, pipeline_id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 from etl.etl_runs limit 1",
        ),
        plant(
            "a batch came after one with a newer token",
            "insert into etl.etl_batches (run_id, pipeline_id, token, rows_read, rows_inserted, rows_updated, rows_unchanged, rows_deleted, rows_rejected, bytes, read_ms, transform_ms, write_ms) select id, pipeline_id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 from etl.etl_runs limit 1",
        ),
        while_running(
            "a live lease was taken",
            "update etl.etl_pipelines set owner = gen_random_uuid(), lease_token = lease_token + 1 where name = 'film'",
        ),
        while_running(
            "the owner changed without a new token",
            "update etl.etl_pipelines set owner = gen_random_uuid() where name = 'film'",
        ),
        while_running(
            "a run was ended by someone who is not its owner",
            "set chaos.runner = 'somebody else'; update etl.etl_runs set status = 'SUCCESS', finished_at = now() where finished_at is null; update etl.etl_pipelines set status = 'IDLE', owner = null, lease_until = null, run_id = null where name = 'film'; reset chaos.runner",
        ),
        while_running(
            "open runs, open attempts and owner do not agree",
            "update etl.etl_attempts set ended_at = now() where runner = 'somebody'",
        ),
        while_running(
            "a run is stuck",
            "update etl.etl_runs set requested_at = now() - interval '1 hour' where finished_at is null",
        ),
        while_running(
            "a run failed: sink.refused",
            "update etl.etl_runs set status = 'FAILED', finished_at = now(), error_code = 'sink.refused', error = 'no' where finished_at is null",
        ),
        while_running(
            "a run succeeded in the middle of its pass",
            "update etl.etl_state set checkpoint = jsonb_set(checkpoint, '{position,pass}', '{}') where pipeline_id = (select id from etl.etl_pipelines where name = 'film'); update etl.etl_runs set status = 'SUCCESS', finished_at = now() where finished_at is null",
        ),
        after(
            "the checkpoint is ahead of the mart",
            "update content.film set title = 'Newer', version = version + 1 where id = 6",
            &ahead("film"),
        ),
        after(
            "a row outlived its source",
            "alter table analytics.film disable trigger chaos; insert into analytics.film values (100000, 'Ghost', 1, now())",
            &ahead("film"),
        ),
    ]
}

async fn fixture() -> (tempfile::TempDir, Fixture) {
    let binary: PathBuf =
        std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("vitrina");
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::prepare(&binary, folder.path(), &FaultSchedule::of(1, 1)).await.unwrap();
    fill_marts(&fixture).await.unwrap();
    (folder, fixture)
}

async fn execute(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

fn rules(found: &[Violation]) -> Vec<&str> {
    found.iter().map(|violation| violation.rule.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_probe_reports_what_is_planted_for_it() {
    let (_folder, fixture) = fixture().await;
    let session = fixture.session().await.unwrap();
    let fleet =
        Mutex::new(Fleet::start(&fixture, &FaultSchedule { runners: 0, ..FaultSchedule::of(1, 1) }).unwrap());
    assert_eq!(Prober::new(&fixture).probe(&fleet).await.unwrap(), []);
    assert_eq!(differences(&session.client).await.unwrap(), []);

    for Plant { rule, before, plant, after } in plants() {
        execute(&session.client, &before).await;
        let mut prober = Prober::new(&fixture);
        prober.probe(&fleet).await.unwrap();
        execute(&session.client, &plant).await;
        let found = prober.probe(&fleet).await.unwrap();
        assert!(rules(&found).contains(&rule), "{rule}: {found:?}");
        execute(&session.client, after).await;
        execute(&session.client, "truncate chaos.violations, chaos.takeovers").await;
    }
    assert_ne!(differences(&session.client).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_takes_is_noticed_once_somebody_healthy_could_have() {
    let (_folder, fixture) = fixture().await;
    let session = fixture.session().await.unwrap();
    let client = &session.client;
    execute(client, RUNNING).await;
    execute(
        client,
        "update etl.etl_pipelines set lease_until = now() - interval '6 seconds' where name = 'film'",
    )
    .await;
    assert_eq!(left_behind(client, None, 1.0).await.unwrap(), []);
    assert_eq!(left_behind(client, Some(Duration::from_secs(3)), 1.0).await.unwrap(), []);
    assert_eq!(
        rules(&left_behind(client, Some(Duration::from_secs(7)), 1.0).await.unwrap()),
        ["nobody took over"]
    );
    assert_eq!(
        left_behind(client, Some(Duration::from_secs(20)), 1.5).await.unwrap(),
        [],
        "the machine is slow"
    );
}
