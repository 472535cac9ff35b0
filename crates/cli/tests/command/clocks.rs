//! A runner whose clock is wrong, and jumps: time is the database's.

use std::fs;
use std::path::Path;

use sqlx::PgConnection;

use super::stand::Stand;
use super::{place, vitrina};

const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

#[tokio::test]
async fn a_runner_whose_clock_jumps_by_days_keeps_its_lease_and_its_schedule() {
    let Some(library) = LIBRARIES.into_iter().find(|path| Path::new(path).exists()) else {
        eprintln!("not tried: this machine has no libfaketime");
        return;
    };
    let (parent, directory) = place();
    let stand = Stand::start(&directory);
    let clock = parent.path().join("clock");
    let set_clock = |offset: &str| fs::write(&clock, offset).unwrap();
    set_clock("+40d");
    let mut up = stand
        .vitrina(&["up", "--listen", "127.0.0.1:0"])
        .variable("LD_PRELOAD", library)
        .variable("FAKETIME_TIMESTAMP_FILE", &clock)
        .variable("FAKETIME_NO_CACHE", "1")
        // A monotonic clock does not jump.
        .variable("DONT_FAKE_MONOTONIC", "1")
        .variable("VITRINA_RUNNER_LEASE", "2s")
        .start();
    let api = up.is_up();
    let mut owner = stand.owner_session().await;
    let mut holder = stand.owner_session().await;

    sqlx::raw_sql("begin; lock table analytics.film_dim in share mode").execute(&mut holder).await.unwrap();
    vitrina(&["run", "film_dim_full"]).variable("VITRINA_API_URL", format!("http://{api}")).ends(0);
    for offset in ["-40d", "+3d", "+0"] {
        renewed(&mut owner).await;
        set_clock(offset);
        renewed(&mut owner).await;
    }
    sqlx::raw_sql("commit").execute(&mut holder).await.unwrap();
    reaches(&mut owner, "select exists (select from etl.etl_runs where status = 'SUCCESS')").await;
    let attempts: Vec<Option<String>> =
        sqlx::query_scalar("select error from etl.etl_attempts").fetch_all(&mut owner).await.unwrap();
    assert_eq!(attempts, [None], "the lease was never lost");

    set_clock("-40d");
    sqlx::raw_sql("update etl.etl_pipelines set schedule_interval = '1s' where name = 'film_dim_full'")
        .execute(&mut owner)
        .await
        .unwrap();
    reaches(&mut owner, "select count(*) > 1 from etl.etl_runs where trigger = 'schedule'").await;
    let soon = "select coalesce(max(abs(extract(epoch from next_run_at - clock_timestamp()))) < 60, false) from etl.etl_pipelines";
    reaches(&mut owner, soon).await;
}

/// The lease has been renewed once more, by the database's clock.
async fn renewed(owner: &mut PgConnection) {
    let lease = "select coalesce(max(lease_until)::text, '') from etl.etl_pipelines";
    let before: String = sqlx::query_scalar(lease).fetch_one(&mut *owner).await.unwrap();
    reaches(owner, &format!("select max(lease_until)::text <> '{before}' from etl.etl_pipelines")).await;
}

async fn reaches(owner: &mut PgConnection, question: &str) {
    let asked = async {
        loop {
            let answer: Option<bool> =
                sqlx::query_scalar(sqlx::AssertSqlSafe(question)).fetch_one(&mut *owner).await.unwrap();
            if answer == Some(true) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.expect("it never came true");
}
