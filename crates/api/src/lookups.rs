//! The looks that pollers ask for again and again, each shared by all who ask at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;
use vitrina_store::{
    Error as StoreError, PipelineChoice, PipelineRecord, PipelineRef, Store, TokenInfo, digest,
};

use crate::error::{Error, Result};
use crate::gather::{Gather, gather};
use crate::models::{Page, PipelineSummary};
use crate::query::pipeline_cursor;

/// Different pages that are read at a time.
const PAGES_AT_A_TIME: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Lookups {
    tokens: Gather<Vec<u8>, TokenInfo>,
    pipelines: Gather<PipelineRef, Arc<PipelineRecord>>,
    /// Pages are written once for all who have asked for the same.
    lists: Gather<PipelineChoice, Bytes>,
}

impl Lookups {
    /// The looks themselves are tasks of `background`.
    pub(crate) fn start(store: &Store, background: &mut JoinSet<()>) -> Self {
        let (own, used) = (store.clone(), Arc::new(Used::default()));
        let (tokens, work) = gather(move |digests| owners(own.clone(), Arc::clone(&used), digests));
        background.spawn(work);
        let own = store.clone();
        let (pipelines, work) = gather(move |references| records(own.clone(), references));
        background.spawn(work);
        let own = store.clone();
        let (lists, work) = gather(move |choices| pages(own.clone(), choices));
        background.spawn(work);
        Self { tokens, pipelines, lists }
    }

    pub(crate) async fn token(&self, token: &str) -> Result<Option<TokenInfo>> {
        self.tokens.get(digest(token)).await
    }

    pub(crate) async fn pipeline(&self, reference: &PipelineRef) -> Result<Arc<PipelineRecord>> {
        let found = self.pipelines.get(reference.clone()).await?;
        found.ok_or_else(|| Error::NoSuchPipeline(reference.to_string()))
    }

    /// A page of pipelines, as JSON.
    pub(crate) async fn pipelines(&self, choice: PipelineChoice) -> Result<Bytes> {
        self.lists.get(choice).await?.ok_or(Error::Internal("a page is missing"))
    }
}

/// When the use of a token was noted last: one that is used all the time is not written all the time.
#[derive(Debug, Default)]
struct Used(Mutex<HashMap<Vec<u8>, Instant>>);

const NOTED_EVERY: Duration = Duration::from_secs(60);

impl Used {
    fn unnoted(&self, owners: &[(Vec<u8>, TokenInfo)]) -> Vec<Vec<u8>> {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, at| at.elapsed() < NOTED_EVERY);
        let new = owners.iter().map(|(digest, _)| digest).filter(|digest| !noted.contains_key(*digest));
        let new: Vec<Vec<u8>> = new.cloned().collect();
        noted.extend(new.iter().map(|digest| (digest.clone(), Instant::now())));
        new
    }
}

async fn owners(
    store: Store,
    used: Arc<Used>,
    digests: Vec<Vec<u8>>,
) -> Result<HashMap<Vec<u8>, TokenInfo>, StoreError> {
    let owners = store.token_owners(&digests).await?;
    let unnoted = used.unnoted(&owners);
    if !unnoted.is_empty() {
        store.note_use(&unnoted).await?;
    }
    Ok(owners.into_iter().collect())
}

async fn records(
    store: Store,
    references: Vec<PipelineRef>,
) -> Result<HashMap<PipelineRef, Arc<PipelineRecord>>, StoreError> {
    let mut found = HashMap::new();
    for record in store.pipelines_of(&references).await?.into_iter().map(Arc::new) {
        found.insert(PipelineRef::Name(record.config.name.clone()), Arc::clone(&record));
        found.insert(PipelineRef::Id(record.config.id), record);
    }
    Ok(found)
}

async fn pages(
    store: Store,
    choices: Vec<PipelineChoice>,
) -> Result<HashMap<PipelineChoice, Bytes>, StoreError> {
    let asked = choices.into_iter().map(|choice| {
        let store = store.clone();
        async move { page(&store, &choice).await.map(|page| (choice, page)) }
    });
    futures_util::stream::iter(asked).buffer_unordered(PAGES_AT_A_TIME).try_collect().await
}

/// One more than the page is read, to know whether another one follows.
async fn page(store: &Store, choice: &PipelineChoice) -> Result<Bytes, StoreError> {
    let limit = choice.limit.unwrap_or(i64::MAX - 1);
    let rows = usize::try_from(limit).unwrap_or(usize::MAX);
    let one_more = PipelineChoice { limit: Some(limit + 1), ..choice.clone() };
    let mut listed = store.listings(&one_more).await?;
    let more = listed.len() > rows;
    listed.truncate(rows);
    let last = listed.last().filter(|_| more);
    let next_cursor = last.map(|last| pipeline_cursor(&last.key, &last.name));
    let items = listed.into_iter().map(PipelineSummary::from).collect();
    Ok(Bytes::from(serde_json::to_vec(&Page { items, next_cursor })?))
}
