//! The rules of the control plane. No HTTP above the error type, no SQL: what may happen to a
//! pipeline is `Lifecycle`'s to say, and how it is stored the store's.

mod asking;
mod audit;
mod checks;
pub(crate) mod connections;
pub(crate) mod download;
mod estimate;
pub(crate) mod explain;
pub(crate) mod gauges;
pub(crate) mod pipelines;
pub(crate) mod plans;
pub(crate) mod preview;
pub(crate) mod reconciles;
pub(crate) mod rejects;
pub(crate) mod requests;
pub(crate) mod rows;
mod rules;
pub(crate) mod runs;
mod sessions;
pub(crate) mod state;
pub(crate) mod system;
pub(crate) mod targets;
