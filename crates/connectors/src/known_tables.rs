//! What the catalog of a source says of its tables, kept for a while: an idle run asks for nothing else as often.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vitrina_guard::ChangeTable;

/// A column that is declared NOT NULL, or an index, may come and go: for so long nobody notices.
const FRESH: Duration = Duration::from_secs(60);
const MOST: usize = 1000;

/// By the question that was asked.
#[derive(Clone, Default)]
pub(crate) struct KnownTables(Arc<Mutex<HashMap<String, (Instant, ChangeTable)>>>);

impl fmt::Debug for KnownTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownTables")
    }
}

impl KnownTables {
    /// The answer of a moment ago, or a new one. A table that is not there is asked for again.
    pub(crate) async fn recall<E>(
        &self,
        question: String,
        ask: impl Future<Output = Result<Result<ChangeTable, String>, E>>,
    ) -> Result<Result<ChangeTable, String>, E> {
        if let Some(table) = self.known(&question) {
            return Ok(Ok(table));
        }
        let answer = ask.await?;
        if let Ok(table) = &answer {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, (asked, _)| asked.elapsed() < FRESH);
            if known.len() < MOST {
                known.insert(question, (Instant::now(), table.clone()));
            }
        }
        Ok(answer)
    }

    fn known(&self, question: &str) -> Option<ChangeTable> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(question).filter(|(asked, _)| asked.elapsed() < FRESH).map(|(_, table)| table.clone())
    }
}
