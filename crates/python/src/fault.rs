//! What went wrong in a worker, by what happens next.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Deserialize;
use vitrina_core::values::value;
use vitrina_core::{Error, Remedy};

use crate::output::PRINTED;

/// An error as the worker tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    kind: String,
    #[serde(rename = "type")]
    error_type: String,
    message: String,
    #[serde(default)]
    line: Option<String>,
    #[serde(default)]
    traceback: String,
}

impl Told {
    /// The user's own line first: it is what has to be looked at.
    pub(crate) fn into_error(self, task: &str) -> Error {
        let at = self.place();
        if !self.traceback.is_empty() {
            tracing::warn!(target: PRINTED, task, "{}", self.traceback.trim_end());
        }
        // What a function says of itself may quote the row it was given.
        let said = format!("python task {task:?}{at}: {}: {}", self.error_type, value(&self.message));
        match self.kind.as_str() {
            "retry" => Error::retry("python.retry", said),
            "contract" => Error::fix("python.contract", said),
            _ => Error::fix("python.exception", said)
                .hint("raise vitrina.Reject to refuse a row, or vitrina.Retry for what may pass by itself"),
        }
    }

    /// Where there is no line of the user's there is nothing to name.
    fn place(&self) -> String {
        let line = self.line.as_deref().filter(|line| !line.is_empty());
        line.map(|line| format!(" at {line}")).unwrap_or_default()
    }

    pub(crate) fn at_start(self) -> Error {
        let at = self.place();
        let said = format!("Python modules cannot be registered{at}: {}: {}", self.error_type, self.message);
        let said = match self.traceback.is_empty() {
            true => said,
            false => format!("{said}\n{}", self.traceback.trim_end()),
        };
        Error::fix("python.modules", said).hint(
            "python.modules, python.path and python.interpreter tell where modules and what they need are; python.user, where it is set, has to be able to read them",
        )
    }
}

/// The worker has ended by itself, or by the system's hand.
pub(crate) fn crashed(task: &str, status: Option<ExitStatus>) -> Error {
    let how = match status.map(|status| (status.signal(), status.code())) {
        Some((Some(9), _)) => "was killed (signal 9), as a system does that is out of memory".to_owned(),
        Some((Some(signal), _)) => format!("was ended by signal {signal}"),
        Some((None, Some(code))) => format!("has ended with exit code {code}"),
        _ => "has ended".to_owned(),
    };
    Error::retry("python.crashed", format!("the worker of python task {task:?} {how}"))
}

pub(crate) fn too_slow(task: &str, deadline: Duration) -> Error {
    let message = format!("python task {task:?} has worked on one batch for {} s", deadline.as_secs_f64());
    Error::new(Remedy::Retry, "python.deadline", message)
        .hint("raise python.deadline, or lower the pipeline's batch_size")
}

pub(crate) fn too_much_memory(task: &str, held: u64, limit: u64) -> Error {
    let message =
        format!("python task {task:?} holds {} MB of memory, its limit is {} MB", held >> 20, limit >> 20);
    Error::fix("python.memory", message).hint("raise python.memory_limit, or lower the pipeline's batch_size")
}
