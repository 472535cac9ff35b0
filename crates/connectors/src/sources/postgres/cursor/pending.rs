//! Dirty keys that a page has named and that are still to be read.

use vitrina_core::Result;

use super::checkpoint::{Done, Reached, Way};
use super::track::{Page, Range, Track};
use crate::sources::postgres::reader::Reader;
use crate::sources::postgres::recompute::{Key, Recompute, Recomputed};

#[derive(Default)]
pub(super) struct Pending {
    page: Page,
}

/// Where a table is being read: the pass through it, and what passes before have reached.
pub(super) struct Place<'a> {
    pub(super) track: &'a Track,
    pub(super) way: &'a mut Way,
    pub(super) before: Option<(&'a Done, &'a Reached)>,
    pub(super) since: Option<u64>,
    pub(super) late_window: jiff::SignedDuration,
}

impl Pending {
    /// The rows of the next dirty keys; the way moves behind them. `None` when a page had none.
    pub(super) async fn rows(
        &mut self,
        place: Place<'_>,
        recompute: &mut Recompute,
        reader: &mut Reader,
    ) -> Result<Option<Recomputed>> {
        let Place { track, way, before, since, late_window } = place;
        if self.page.dirty.is_empty() {
            let start = before.and_then(|(done, reached)| track.kind.start(done, reached, late_window));
            let range = Range { way, start, before: before.map(|(_, reached)| reached), since };
            self.page = track.page(reader, &range).await?;
        }
        let keys: Vec<Key> =
            self.page.dirty.iter().take(reader.batch_size).map(|dirty| dirty.key.clone()).collect();
        let recomputed = match keys.as_slice() {
            [] => None,
            keys => Some(recompute.read(keys, reader).await?),
        };
        let read = recomputed.as_ref().map_or(0, |recomputed| recomputed.keys);
        let done = self.page.dirty.drain(..read).filter_map(|dirty| dirty.at).next_back();
        let end = self.page.end.take_if(|_| self.page.dirty.is_empty());
        if let Some(position) = end.or(done) {
            way.position = Some(position);
        }
        way.finished = self.page.dirty.is_empty() && self.page.last;
        Ok(recomputed)
    }
}
