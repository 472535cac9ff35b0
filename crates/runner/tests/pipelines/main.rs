//! Pipelines executed by a real runner on a real Postgres, from request to checkpoint.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

mod backfills;
mod changelog;
mod compared;
mod contract;
mod cursors;
mod decisions;
mod failures;
mod full;
mod functions;
mod incremental;
mod interruptions;
mod loads;
mod marts;
mod metrics;
mod python;
mod reconcile;
mod rejects;
mod remote;
mod requests;
mod rows;
mod run_log;
mod runners;
mod sources;
mod stage;
mod standby;
mod storm;
mod toy;
mod watermark;
