//! How a process is watched: its metrics and where they are shown, and its part in a trace. Control plane and data
//! plane both use it; what they count and trace is theirs.

mod exposition;
mod listener;
mod traces;

pub use exposition::{CONTENT_TYPE, Exposition};
pub use listener::Listener;
pub use traces::{TraceParent, Traces, continue_trace, trace_id};
