//! What every kind of sink and every kind of source owes a runner, played on each of them. A behaviour is told by rows
//! of the target, figures of the run, codes of errors and the checkpoint, never by what is inside a connector.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may
#![allow(clippy::print_stdout)] // a kind that cannot do something says why it was not played

#[path = "../pipelines/compared.rs"]
#[allow(dead_code)] // the verbs of other tests
mod compared;
#[path = "../pipelines/functions.rs"]
#[allow(dead_code)] // the verbs of other tests
mod functions;
#[path = "../pipelines/stage.rs"]
#[allow(dead_code)] // the verbs of other tests
mod stage;

mod feeds;
mod play;
#[macro_use]
mod targets;
mod sinks;
mod toy;
mod toy_source;
