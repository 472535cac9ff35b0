//! The storm in short: the binary as it was built for the tests, and no violation.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

use std::path::PathBuf;

use vitrina_chaos::{FaultSchedule, storm};

/// The binary that this build made, beside the tests.
fn binary() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    let binary = folder.join("vitrina");
    assert!(binary.exists(), "build the binary first: make build, or cargo test --workspace");
    binary
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_kills_zombies_and_crashes_breaks_no_promise() {
    let folder = tempfile::tempdir().unwrap();
    // A longer lease than in the whole storm, and no trials: other tests want the machine as well.
    let calmer = FaultSchedule {
        lease: std::time::Duration::from_secs(3),
        kills: 12,
        zombies: 2,
        min_probes: 21,
        trials: Vec::new(),
        ..FaultSchedule::of(1, 15)
    };
    let stormed = storm(&binary(), folder.path(), &calmer).await.unwrap();
    if !stormed.violations.is_empty() {
        panic!("{}\nlogs are kept in {}", stormed.summary(), folder.keep().display());
    }
    assert!(stormed.kills > 0 && stormed.zombies > 0 && stormed.restarts > 0, "{}", stormed.summary());
    assert!(stormed.probes > 20, "{}", stormed.summary());
}
