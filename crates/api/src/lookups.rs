//! The looks that pollers ask for again and again, each shared by all who ask at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;
use vitrina_core::PipelineId;
use vitrina_store::{
    Error as StoreError, PipelineChoice, PipelineListing, PipelineRef, Scope, Store, TokenInfo,
};

use crate::coalescing::{Coalescer, coalesce};
use crate::documents::{Page, PipelineSummary};
use crate::error::{Error, Result};
use crate::query::pipeline_cursor;

/// Different pages that are read at a time.
const PAGES_AT_A_TIME: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Lookups {
    tokens: Coalescer<Vec<u8>, TokenInfo>,
    recent: Arc<Recent>,
    /// Callers share a look only with those of the same scope, here and below.
    pipelines: Coalescer<(Scope, PipelineRef), Arc<PipelineListing>>,
    seen: Coalescer<(Scope, PipelineId), ()>,
    /// Pages are written once for all who have asked for the same.
    lists: Coalescer<(Scope, PipelineChoice), Bytes>,
}

impl Lookups {
    /// The looks themselves are tasks of `background`.
    pub(crate) fn start(store: &Store, background: &mut JoinSet<()>) -> Self {
        let (own, recent) = (store.clone(), Arc::new(Recent::default()));
        let seen = Arc::clone(&recent);
        let (tokens, work) = coalesce(move |digests| owners(own.clone(), Arc::clone(&seen), digests));
        background.spawn(work);
        let own = store.clone();
        let (pipelines, work) = coalesce(move |references| listed(own.clone(), references));
        background.spawn(work);
        let own = store.clone();
        let (seen, work) = coalesce(move |pipelines| within(own.clone(), pipelines));
        background.spawn(work);
        let own = store.clone();
        let (lists, work) = coalesce(move |choices| pages(own.clone(), choices));
        background.spawn(work);
        Self { tokens, recent, pipelines, seen, lists }
    }

    /// Whose token this is, by its digest.
    pub(crate) async fn token(&self, digest: Vec<u8>) -> Result<Option<TokenInfo>> {
        self.tokens.get(digest).await
    }

    /// Whose it was a moment ago: nothing to rely on.
    pub(crate) fn remembered(&self, digest: &[u8]) -> Option<TokenInfo> {
        self.recent.owner(digest)
    }

    /// It was good within the last day: whoever sends it guesses nothing.
    pub(crate) fn is_familiar(&self, digest: &[u8]) -> bool {
        self.recent.lock().contains_key(digest)
    }

    pub(crate) async fn pipeline(
        &self,
        scope: &Scope,
        reference: &PipelineRef,
    ) -> Result<Arc<PipelineListing>> {
        let found = self.pipelines.get((scope.clone(), reference.clone())).await?;
        found.ok_or_else(|| Error::NoSuchPipeline(reference.to_string()))
    }

    /// Whether a pipeline is within a scope now.
    pub(crate) async fn sees(&self, scope: &Scope, pipeline: PipelineId) -> Result<bool> {
        Ok(scope.is_everything() || self.seen.get((scope.clone(), pipeline)).await?.is_some())
    }

    /// A page of pipelines, as JSON.
    pub(crate) async fn pipelines(&self, scope: &Scope, choice: PipelineChoice) -> Result<Bytes> {
        self.lists.get((scope.clone(), choice)).await?.ok_or(Error::Internal("a page is missing"))
    }
}

/// Tokens that were good when they were last looked for, and when their use was noted: one that is used all the time is not
/// written all the time.
#[derive(Debug, Default)]
struct Recent(Mutex<HashMap<Vec<u8>, (TokenInfo, Instant)>>);

const NOTED_EVERY: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_secs(120);
const A_DAY: Duration = Duration::from_hours(24);

impl Recent {
    fn owner(&self, digest: &[u8]) -> Option<TokenInfo> {
        let recent = self.lock();
        let (owner, _) = recent.get(digest).filter(|(_, noted)| noted.elapsed() < A_MOMENT)?;
        Some(owner.clone())
    }

    /// What a look has found of the tokens that were asked for; answers those whose use is to be noted.
    fn found(&self, digests: &[Vec<u8>], owners: &[(Vec<u8>, TokenInfo)]) -> Vec<Vec<u8>> {
        let mut recent = self.lock();
        let noted: HashMap<&Vec<u8>, Instant> =
            digests.iter().filter_map(|digest| Some((digest, recent.remove(digest)?.1))).collect();
        recent.retain(|_, (_, noted)| noted.elapsed() < A_DAY);
        let noted = |digest| noted.get(digest).copied().filter(|noted| noted.elapsed() < NOTED_EVERY);
        let (now, mut unnoted) = (Instant::now(), Vec::new());
        for (digest, owner) in owners {
            let at = noted(digest).unwrap_or(now);
            if at == now {
                unnoted.push(digest.clone());
            }
            recent.insert(digest.clone(), (owner.clone(), at));
        }
        unnoted
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, (TokenInfo, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn owners(
    store: Store,
    recent: Arc<Recent>,
    digests: Vec<Vec<u8>>,
) -> Result<HashMap<Vec<u8>, TokenInfo>, StoreError> {
    let owners = store.token_owners(&digests).await?;
    let unnoted = recent.found(&digests, &owners);
    if !unnoted.is_empty() {
        store.note_use(&unnoted).await?;
    }
    Ok(owners.into_iter().collect())
}

fn by_scope<T>(asked: Vec<(Scope, T)>) -> HashMap<Scope, Vec<T>> {
    let mut scopes: HashMap<Scope, Vec<T>> = HashMap::new();
    for (scope, one) in asked {
        scopes.entry(scope).or_default().push(one);
    }
    scopes
}

async fn listed(
    store: Store,
    asked: Vec<(Scope, PipelineRef)>,
) -> Result<HashMap<(Scope, PipelineRef), Arc<PipelineListing>>, StoreError> {
    let mut found = HashMap::new();
    for (scope, references) in by_scope(asked) {
        let listed = store.within(scope.clone()).listings_of(&references).await?;
        for listed in listed.into_iter().map(Arc::new) {
            found.insert((scope.clone(), PipelineRef::Name(listed.name.clone())), Arc::clone(&listed));
            found.insert((scope.clone(), PipelineRef::Id(listed.id)), listed);
        }
    }
    Ok(found)
}

async fn within(
    store: Store,
    asked: Vec<(Scope, PipelineId)>,
) -> Result<HashMap<(Scope, PipelineId), ()>, StoreError> {
    let mut found = HashMap::new();
    for (scope, pipelines) in by_scope(asked) {
        let seen = store.within(scope.clone()).seen(&pipelines).await?;
        found.extend(seen.into_iter().map(|pipeline| ((scope.clone(), pipeline), ())));
    }
    Ok(found)
}

async fn pages(
    store: Store,
    asked: Vec<(Scope, PipelineChoice)>,
) -> Result<HashMap<(Scope, PipelineChoice), Bytes>, StoreError> {
    let asked = asked.into_iter().map(|(scope, choice)| {
        let store = store.within(scope.clone());
        async move { page(&store, &choice).await.map(|page| ((scope, choice), page)) }
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
