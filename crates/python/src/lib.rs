//! Registered Python functions, in worker processes of their own.
//!
//! A worker imports the modules that the runner's configuration names, and nothing else: the meta-store and the API know
//! functions by their names. Batches travel over pipes of their own, so that whatever a function prints is only printed;
//! a function that crashes, hangs or eats memory harms its own batch.

mod account;
mod arrow;
mod fault;
mod frames;
mod output;
mod pool;
mod process;
mod reading;
mod registry;
mod rows;
mod sdk;
mod session;
mod settings;
mod worker;

pub use output::PRINTED;
pub use pool::Python;
pub use process::VARIABLES;
pub use reading::{Reading, Yielded};
pub use registry::{PythonTask, Registry, TaskUse, unknown};
pub use sdk::Sdk;
pub use session::{Context, Refused, Session, Transformed, is_untyped};
pub use settings::PythonSettings;
