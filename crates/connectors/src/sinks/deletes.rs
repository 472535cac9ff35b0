//! Nothing empties a target.

use std::fmt::Display;

use vitrina_core::{Error, Result};

/// Holds the deletes of a pass, those of this batch included, against the size that the target had before it.
pub(super) fn hold_limit(target: &impl Display, limit: f64, deletes: u64, before: u64) -> Result<()> {
    if deletes == 0 || deletes as f64 <= limit * before as f64 {
        return Ok(());
    }
    let percent = limit * 100.0;
    let message = format!(
        "this pass would delete {deletes} of {before} rows of {target}, over the limit of {percent} %"
    );
    Err(Error::fix("sink.delete_limit", message).hint(
        "nothing was deleted by this batch; if so much has really vanished, raise delete_limit and run again",
    ))
}

/// A source that returns nothing at all is more likely broken than empty.
pub(super) fn source_is_empty(target: &impl Display) -> Error {
    Error::fix("sink.source_empty", format!("the query brings no rows at all, and {target} is not empty"))
        .hint("nothing was deleted; if the source is meant to be empty, empty the target yourself")
}
