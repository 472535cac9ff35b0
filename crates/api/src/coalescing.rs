//! Request coalescing: many callers, few queries. Two queries run at most; callers that arrive meanwhile share the next one. So every answer
//! is as new as its call, however many there are, and the meta-store is asked for all of them at once.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::{self, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use vitrina_store::Error as StoreError;

use crate::error::{Error, Result};

type Answer<V> = std::result::Result<Option<V>, Arc<StoreError>>;

#[derive(Debug)]
struct Asked<K, V> {
    key: K,
    answer: oneshot::Sender<Answer<V>>,
}

/// Where to ask; clones ask together.
#[derive(Debug)]
pub(crate) struct Coalescer<K, V>(mpsc::UnboundedSender<Asked<K, V>>);

impl<K, V> Clone for Coalescer<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Coalescer<K, V> {
    /// `None` where the look found nothing under this key.
    pub(crate) async fn get(&self, key: K) -> Result<Option<V>> {
        let (answer, answered) = oneshot::channel();
        let gone = Error::Internal("nobody looks any more");
        if self.0.send(Asked { key, answer }).is_err() {
            return Err(gone);
        }
        answered.await.map_err(|_| gone)?.map_err(Error::Store)
    }
}

/// Looks under way at a time: while one waits for the meta-store's answer, the next can already be asked.
const AT_A_TIME: usize = 2;

/// A place to ask, and the work behind it, which ends with the last clone. `look` answers all it finds of the keys.
pub(crate) fn coalesce<K, V, F, L>(look: L) -> (Coalescer<K, V>, impl Future<Output = ()>)
where
    K: Eq + Hash + Clone,
    V: Clone,
    L: Fn(Vec<K>) -> F,
    F: Future<Output = std::result::Result<HashMap<K, V>, StoreError>>,
{
    let (sender, mut asked) = mpsc::unbounded_channel::<Asked<K, V>>();
    let work = async move {
        let (mut waiting, mut looks) = (Vec::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                count = asked.recv_many(&mut waiting, usize::MAX), if looks.len() < AT_A_TIME => {
                    if count == 0 {
                        return;
                    }
                    looks.push(serve(std::mem::take(&mut waiting), &look));
                }
                Some(()) = looks.next() => {}
            }
        }
    };
    (Coalescer(sender), work)
}

/// What a look has found; none where it panicked.
type Found<K, V> = Option<std::result::Result<HashMap<K, V>, Arc<StoreError>>>;

/// One look, for all who have asked by now. What fails for several keys is looked for once more, each key alone: one of
/// them may be the reason, and the others do not pay for it.
async fn serve<K, V, F>(callers: Vec<Asked<K, V>>, look: &impl Fn(Vec<K>) -> F)
where
    K: Eq + Hash + Clone,
    V: Clone,
    F: Future<Output = std::result::Result<HashMap<K, V>, StoreError>>,
{
    let keys: HashSet<K> = callers.iter().map(|asked| asked.key.clone()).collect();
    let several = keys.len() > 1;
    let found = attempt(keys.into_iter().collect(), look).await;
    if !several || !is_of_one_key(&found) {
        return tell(callers, &found);
    }
    let mut apart: HashMap<K, Vec<Asked<K, V>>> = HashMap::new();
    for asked in callers {
        apart.entry(asked.key.clone()).or_default().push(asked);
    }
    let alone = async |(key, callers)| tell(callers, &attempt(vec![key], look).await);
    stream::iter(apart).for_each_concurrent(AT_A_TIME, alone).await;
}

/// A panic ends this look and not those to come.
async fn attempt<K, V, F>(keys: Vec<K>, look: &impl Fn(Vec<K>) -> F) -> Found<K, V>
where
    F: Future<Output = std::result::Result<HashMap<K, V>, StoreError>>,
{
    let found = AssertUnwindSafe(async { look(keys).await }).catch_unwind().await;
    found.inspect_err(|_| tracing::error!("a shared look panicked")).ok().map(|found| found.map_err(Arc::new))
}

/// What a meta-store that is away or busy has refused, it would refuse for each of them.
fn is_of_one_key<K, V>(found: &Found<K, V>) -> bool {
    match found {
        Some(Ok(_)) => false,
        Some(Err(error)) => !error.is_connection() && !error.is_busy(),
        None => true,
    }
}

fn tell<K: Eq + Hash, V: Clone>(callers: Vec<Asked<K, V>>, found: &Found<K, V>) {
    // Dropped unanswered, they hear that nobody looks.
    let Some(found) = found else { return };
    for Asked { key, answer } in callers {
        let value = found.as_ref().map(|found| found.get(&key).cloned()).map_err(Arc::clone);
        // Whoever has gone away needs no answer.
        let _ = answer.send(value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn callers_that_come_during_a_look_share_the_next_one_and_never_an_older_one() {
        let looks = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let (counted, opened) = (Arc::clone(&looks), Arc::clone(&gate));
        let (lookups, work) = coalesce(move |keys: Vec<u32>| {
            let (looks, gate) = (Arc::clone(&counted), Arc::clone(&opened));
            async move {
                let look = looks.fetch_add(1, Ordering::SeqCst) + 1;
                gate.acquire().await.expect("the gate stays").forget();
                Ok(keys.into_iter().filter(|key| *key < 100).map(|key| (key, look)).collect())
            }
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            work.await;
            (0, None)
        });
        let ask = |key: u32| {
            let lookups = lookups.clone();
            async move { (key, lookups.get(key).await.expect("an answer")) }
        };
        // As many looks as there may be at a time.
        for look in 1..=AT_A_TIME {
            tasks.spawn(ask(1));
            while looks.load(Ordering::SeqCst) < look {
                tokio::task::yield_now().await;
            }
        }
        for key in [1, 2, 2, 3, 100] {
            tasks.spawn(ask(key));
        }
        // All of them have asked while these are under way.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(10);
        let mut answers = Vec::new();
        for _ in 0..7 {
            answers.push(tasks.join_next().await.expect("an answer").expect("no panic"));
        }
        answers.sort_unstable();
        let last = Some(AT_A_TIME + 1);
        assert_eq!(
            answers,
            [(1, Some(1)), (1, Some(2)), (1, last), (2, last), (2, last), (3, last), (100, None)]
        );
        assert_eq!(looks.load(Ordering::SeqCst), AT_A_TIME + 1);
    }

    /// Looks for keys below 100 and finds them; how it looks for 13 is up to the test.
    async fn ask_three<F: Future<Output = StoreError>>(
        unlucky: impl Fn() -> F + Copy,
    ) -> (Vec<Result<Option<u32>>>, usize) {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let (lookups, work) = coalesce(move |keys: Vec<u32>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                if keys.contains(&13) {
                    return Err(unlucky().await);
                }
                Ok(keys.into_iter().map(|key| (key, key)).collect())
            }
        });
        let asked = async {
            // Together: all three have asked before the first look.
            let answers = futures_util::future::join_all([1, 13, 2].map(|key| lookups.get(key))).await;
            let later = lookups.get(3).await;
            answers.into_iter().chain([later]).collect()
        };
        let answers = tokio::select! {
            answers = asked => answers,
            () = work => panic!("it looks for as long as somebody may ask"),
        };
        (answers, looks.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn a_key_that_fails_fails_for_those_who_asked_for_it_alone() {
        let (answers, looks) = ask_three(|| async { StoreError::RunOpen }).await;
        let [Ok(Some(1)), Err(Error::Store(error)), Ok(Some(2)), Ok(Some(3))] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert!(matches!(**error, StoreError::RunOpen), "{error:?}");
        assert_eq!(looks, 1 + 3 + 1, "together, each alone, and the one that came later");
    }

    fn panics() -> StoreError {
        panic!("as the test wants it")
    }

    #[tokio::test]
    async fn a_look_that_panics_ends_neither_the_others_nor_those_to_come() {
        let (answers, _) = ask_three(|| async { panics() }).await;
        let expected = [Ok(Some(1)), Err(()), Ok(Some(2)), Ok(Some(3))];
        let told: Vec<_> = answers.iter().map(|answer| answer.as_ref().map_err(drop).copied()).collect();
        assert_eq!(told, expected);
        assert!(matches!(answers[1], Err(Error::Internal(_))), "{answers:?}");
    }

    #[tokio::test]
    async fn a_meta_store_that_is_away_is_not_asked_again_for_each() {
        let away = || async {
            let store =
                vitrina_store::Store::connect("postgres://nobody@127.0.0.1:1/nothing", "test", 1).await;
            store.expect_err("nobody listens there")
        };
        let (answers, looks) = ask_three(away).await;
        assert!(answers[..3].iter().all(Result::is_err), "{answers:?}");
        assert_eq!(looks, 2);
    }
}
