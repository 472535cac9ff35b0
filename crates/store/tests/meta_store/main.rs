//! The meta-store against a real Postgres: migrations, the states it refuses, steps, claims, fences.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

mod claims;
mod migrations;
mod refusals;
mod stage;
mod steps;
