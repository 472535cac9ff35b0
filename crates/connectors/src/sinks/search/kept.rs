//! Documents of rows that were refused: a load takes them over from the index before, as they are.

use serde_json::value::RawValue;
use vitrina_core::{Outcome, Result};

use super::bulk::Bulk;
use super::fault::Judgement;
use super::made::Made;
use super::operations::Operations;
use super::{SearchSink, checksum, indexes};

/// Their version, below any that a load writes.
const KEPT: i64 = 1;

impl SearchSink {
    /// Rows that were refused keep the document they had; answers how many such documents there are.
    pub(super) async fn keep_refused(&self, index: &str, door: &str, outcome: &Outcome) -> Result<u64> {
        let (Some(live), refused) = (&self.live, self.spared_ids(outcome)) else { return Ok(0) };
        if refused.is_empty() {
            return Ok(0);
        }
        // Copied from a source that lacks a part of it, a document would be another one.
        if Made::look(&self.client, live).await?.is_some_and(|made| !made.has_whole_source()) {
            tracing::warn!(
                documents = refused.len(),
                "documents of rows that were refused are not carried over, as their _source is not whole: the new index is without them"
            );
            return Ok(0);
        }
        let operations = self.copies(live, &refused).await?;
        if operations.len() > 0 {
            // A version in the way is one that the load has written, or this very copy.
            let (_, sent) = Bulk { client: &self.client, door }.send(operations).await?;
            if let Some((_, fault)) = sent.refused.iter().find(|(_, fault)| fault.judge() != Judgement::Row) {
                return Err(self.client.stop(fault.clone()));
            }
            if !sent.refused.is_empty() {
                tracing::warn!(
                    documents = sent.refused.len(),
                    "documents of rows that were refused do not fit the mapping of the new index: it is without them"
                );
            }
        }
        let there = indexes::versions(&self.client, index, &refused).await?;
        Ok(there.values().filter(|version| **version == KEPT).count() as u64)
    }

    /// Documents as they are, below any version that a load writes.
    async fn copies(&self, live: &str, ids: &[String]) -> Result<Operations> {
        // A strict mapping without checksums has no place for one.
        let columns_alone = match checksum::is_wanted(&self.target) {
            true => String::new(),
            false => format!("?_source_excludes={}", checksum::FIELD),
        };
        let mut operations = Operations::default();
        let there = indexes::of_ids::<Box<RawValue>>(&self.client, live, &columns_alone, ids).await?;
        for (place, document) in there.into_iter().enumerate() {
            let Some(source) = document.source else { continue };
            let copy = |out: &mut Vec<u8>| {
                out.extend_from_slice(source.get().replace(['\n', '\r'], " ").as_bytes());
                Ok(())
            };
            // A row, as it were: one that the index refuses stops nothing.
            let _ = operations.index(document.id, KEPT, Some(place), copy);
        }
        Ok(operations)
    }
}
