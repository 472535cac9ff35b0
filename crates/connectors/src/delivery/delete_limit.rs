//! Nothing empties a target.

use std::fmt::Display;

use vitrina_core::{Commit, Error, ErrorKind, Result, Share};

/// Holds the deletes of a batch, with all that count already, against the size that the target had before them.
pub(crate) fn check(target: &impl Display, commit: &Commit, deleting: u64, before: u64) -> Result<()> {
    let share = commit.share(deleting, before);
    if share.is_within(commit.delete_limit) {
        return Ok(());
    }
    let (Share { deletes, of }, percent) = (share, commit.delete_limit * 100.0);
    let counted = match deletes == deleting {
        true => "this pass",
        false => {
            "this pass, with what attempts since the last success and passes of the last hour have deleted,"
        }
    };
    let message =
        format!("{counted} would delete {deletes} of {of} rows of {target}, over the limit of {percent} %");
    Err(Error::fix("sink.delete_limit", message).of_kind(ErrorKind::PassInvalid).hint(
        "nothing was deleted by this batch, and runs that follow delete no more than what is left of the limit; if so many rows have left the source, raise delete_limit and run again",
    ))
}

/// A source that returns nothing at all is more likely broken than empty.
pub(crate) fn source_is_empty(target: &impl Display) -> Error {
    Error::fix("sink.source_empty", format!("the query brings no rows at all, and {target} is not empty"))
        .of_kind(ErrorKind::PassInvalid)
        .hint("nothing was deleted; if the source is meant to be empty, empty the target yourself")
}
