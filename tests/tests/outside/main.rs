//! Programs of others that call the API: what an orchestrator does, what a fuzzer tries, and a browser. The binary runs as an
//! API and runners, each a process of its own.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

mod airflow;
mod browser;
mod fuzz;
mod process;
mod stand;
