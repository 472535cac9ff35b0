//! Programs of others that call the API, in Python: what an orchestrator does, and what a fuzzer tries. The binary runs
//! as an API and runners, each a process of its own.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

mod airflow;
mod fuzz;
mod process;
mod stand;
