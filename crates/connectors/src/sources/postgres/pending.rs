//! Dirty keys that a page has named and that are still to be read, and the reading of their rows.

use std::collections::VecDeque;

use vitrina_core::Result;

use super::dirty::Page;
use super::reader::Reader;
use super::recompute::{Key, Recompute, Recomputed};

pub(super) struct Pending {
    pub(super) recompute: Recompute,
    page: Page,
    /// Rows of its first keys.
    ready: VecDeque<Recomputed>,
    /// The sink has had nothing yet.
    sink_waits: bool,
}

/// The rows of some dirty keys.
pub(super) struct Next {
    /// `None` when the page had no keys.
    pub(super) recomputed: Option<Recomputed>,
    /// Where the feed has been read to with them.
    pub(super) position: Option<Vec<String>>,
    /// Nothing follows.
    pub(super) last: bool,
}

impl Pending {
    pub(super) fn new(recompute: Recompute) -> Self {
        Self { recompute, page: Page::default(), ready: VecDeque::new(), sink_waits: true }
    }

    /// Keys that make a page: as long as the sink waits for its first rows, no more than those need.
    pub(super) fn page_rows(&self, reader: &Reader) -> usize {
        match self.sink_waits {
            true => reader.first_rows().min(self.recompute.step),
            false => reader.page_rows(),
        }
    }

    /// All keys of the page have been read.
    pub(super) fn is_empty(&self) -> bool {
        self.page.dirty.is_empty()
    }

    pub(super) fn fill(&mut self, page: Page) {
        self.page = page;
    }

    pub(super) async fn next(&mut self, reader: &mut Reader) -> Result<Next> {
        if self.ready.is_empty() && !self.page.dirty.is_empty() {
            let first = if std::mem::take(&mut self.sink_waits) { reader.first_rows() } else { usize::MAX };
            let some = self.page.dirty.iter().take(first.min(self.recompute.step));
            let keys: Vec<Key> = some.map(|dirty| dirty.key.clone()).collect();
            self.ready = self.recompute.read(&keys, reader).await?;
        }
        let recomputed = self.ready.pop_front();
        let read = recomputed.as_ref().map_or(0, |recomputed| recomputed.keys);
        let done = self.page.dirty.drain(..read).filter_map(|dirty| dirty.at).next_back();
        let end = self.page.end.take_if(|_| self.page.dirty.is_empty());
        Ok(Next { recomputed, position: end.or(done), last: self.is_empty() && self.page.last })
    }
}
