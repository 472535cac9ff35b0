//! How a process is watched: its metrics and where they are shown, its part in a trace, and what it tells as JSON. Control plane and data
//! plane both use it; what they count and trace is theirs.

mod exposition;
mod fields;
mod listener;
mod traces;

pub use exposition::{CONTENT_TYPE, Exposition};
pub use fields::Fields;
pub use listener::Listener;
pub use traces::{TraceParent, Traces, continue_trace, trace_id};
