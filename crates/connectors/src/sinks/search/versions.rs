//! Versions of documents: the token, and behind it a number that grows with every batch of this process. So whatever is
//! still on its way from an older batch or an older owner loses, and the same batch sent again changes nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use vitrina_core::{Error, LeaseToken, Result};

static SENT: AtomicU32 = AtomicU32::new(1);
/// Whoever changes a document by hand raises its version by one: what he makes of ours must not be taken for our next.
const STEP: u32 = 16;

/// The version of all documents of the batch that is about to be sent.
pub(super) fn draw(token: LeaseToken) -> Result<i64> {
    if token.0 > i64::from(i32::MAX) {
        let message = format!("lease token {token} is too great for a version of a document");
        return Err(Error::fix("sink.versions", message));
    }
    let number = SENT.fetch_add(STEP, Ordering::Relaxed);
    if number > u32::MAX - STEP {
        // Lower numbers would lose against what is there.
        SENT.store(u32::MAX, Ordering::Relaxed);
        return Err(Error::release(
            "sink.versions",
            "this runner has written as many batches as it can number",
        )
        .hint("restart it"));
    }
    Ok(token.0 << 32 | i64::from(number))
}

/// What a version in the way of ours means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rival {
    /// Ours, as the same was sent before: done.
    Own,
    /// Of a newer owner.
    Newer,
    /// Of nobody who writes as Vitrina does.
    Foreign,
}

pub(super) fn rival(found: Option<i64>, ours: i64) -> Rival {
    let token = |version: i64| version >> 32;
    match found {
        Some(found) if found == ours => Rival::Own,
        Some(found) if token(found) > token(ours) => Rival::Newer,
        _ => Rival::Foreign,
    }
}

/// The token that a version was drawn with; `None` where the server has numbered it itself.
pub(super) fn token(version: i64) -> Option<i64> {
    Some(version >> 32).filter(|token| *token > 0)
}

/// Versions as they are now, and for documents that are gone the one that the server has told.
pub(super) fn found(now: &BTreeMap<String, i64>, id: &str, told: Option<i64>) -> Option<i64> {
    now.get(id).copied().or(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_batches_and_later_owners_have_higher_versions() {
        let (first, second) = (draw(LeaseToken(7)).unwrap(), draw(LeaseToken(7)).unwrap());
        assert!(first + 10 < second, "a document of the first may be changed by hand meanwhile");
        assert!(second < draw(LeaseToken(8)).unwrap());
    }

    #[test]
    fn only_the_version_of_this_batch_is_as_good_as_done() {
        let ours = 7 << 32 | 5;
        assert_eq!(rival(Some(ours), ours), Rival::Own);
        assert_eq!(rival(Some(ours + 1), ours), Rival::Foreign, "nobody has sent a later batch yet");
        assert_eq!(rival(Some(8 << 32), ours), Rival::Newer);
        assert_eq!(rival(Some(3), ours), Rival::Foreign);
        assert_eq!(rival(Some(ours - 1), ours), Rival::Foreign);
        assert_eq!(rival(None, ours), Rival::Foreign);
    }
}
