//! The meta-store against a real Postgres: migrations, the states it refuses, steps,
//! claims, fences, rejects.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

mod backfills;
mod checkpoints;
mod claims;
mod ledger;
mod migrations;
mod pooled;
mod reconciles;
mod refusals;
mod rejects;
mod retention;
mod schedules;
mod stage;
mod steps;
mod waiting;
