//! The control plane through HTTP: a real server on a free port, a real Postgres, and the store in
//! the place of a runner.

#![expect(clippy::unwrap_used, reason = "set-up that fails is a failed test")]

mod access;
mod app;
mod backfills;
mod connections;
mod editing;
mod errors;
mod events;
mod explain;
mod listing;
mod metrics;
mod openapi;
mod parameters;
mod pipelines;
mod plans;
mod preview;
mod reconciles;
mod rejects;
mod requests;
mod rows;
mod runs;
mod schema;
mod scopes;
mod sight;
mod start;
mod state;
mod system;
mod targets;
mod tls;
mod ui;
mod waiting;
