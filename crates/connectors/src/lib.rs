//! Sources, transforms and sinks. A new kind is one module and one line in the list of its folder;
//! nothing outside this crate changes for it.

mod arrow_text;
mod connection;
mod delivery;
mod known_tables;
mod parked;
pub mod reconcile;
mod rejects;
pub mod sinks;
pub mod sources;
mod sql;
mod tested;
pub mod transforms;

pub use connection::{Connection, Connections};
pub use tested::Tested;
pub use vitrina_guard::Secret;
