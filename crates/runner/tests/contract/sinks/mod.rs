//! The contract of sinks.

mod arrivals;
mod duplicates;
mod fences;
mod limits;
mod lost_replies;
mod rejects;
mod repairs;
mod resumed;
mod types;
