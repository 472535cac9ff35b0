//! Deletes are counted with the checkpoint before the server is asked for them: a runner that dies before it has entered
//! its batch leaves no deletes behind that the limit does not know. A call of the meta-store more for a batch that deletes.

use std::hash::{DefaultHasher, Hash, Hasher};

use vitrina_core::{Checkpoint, Commit, Result, RowChange, State};

use super::SearchSink;

#[derive(Debug, Clone, Copy)]
pub(super) struct Announced {
    /// Of the state, with the announcement in it.
    pub(super) version: i64,
    /// How many documents an attempt before was about to delete by this very batch.
    pub(super) before: Option<u64>,
}

impl SearchSink {
    /// `rows` documents are about to be deleted, of an index that had `rows_before`.
    pub(super) async fn announce(
        &mut self,
        commit: &Commit,
        rows: u64,
        digest: u64,
        rows_before: u64,
    ) -> Result<()> {
        let before = commit.from.deletes.announced(digest);
        let mut version = commit.from_version;
        if rows > 0 && before.is_none() {
            version += 1;
            let deletes = commit.from.deletes.announce(rows, digest, rows_before);
            let checkpoint = Checkpoint { deletes, ..commit.from.clone() };
            self.ledger.adopt(&commit.lease, &State { checkpoint, version }).await?;
        }
        self.announced = Some(Announced { version, before });
        Ok(())
    }

    /// What the checkpoint behind a batch counts: deletes that an attempt before has announced as the batch's own.
    pub(super) fn counted(&self, commit: &Commit, change: RowChange) -> (Commit, RowChange) {
        match self.announced.and_then(|announced| announced.before) {
            Some(before) => (settled(commit), RowChange { deleted: change.deleted.max(before), ..change }),
            None => (commit.clone(), change),
        }
    }
}

/// What the limit is held against: deletes that were announced by an attempt before count once.
pub(super) fn held(commit: &Commit, digest: u64) -> Commit {
    match commit.from.deletes.announced(digest) {
        Some(_) => settled(commit),
        None => commit.clone(),
    }
}

/// What was announced before is counted by the batch itself.
fn settled(commit: &Commit) -> Commit {
    let from = Checkpoint { deletes: commit.from.deletes.settled(), ..commit.from.clone() };
    Commit { from, ..commit.clone() }
}

/// Whole in every JSON number.
pub(super) fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() >> 11
}
