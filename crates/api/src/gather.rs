//! Many callers, few looks. Two are under way at most; whoever asks meanwhile is served by the next one, together with all
//! who have asked by then. So every answer is as new as its call, however many there are, and the meta-store is asked
//! for all of them at once.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
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
pub(crate) struct Gather<K, V>(mpsc::UnboundedSender<Asked<K, V>>);

impl<K, V> Clone for Gather<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Gather<K, V> {
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
pub(crate) fn gather<K, V, F, L>(look: L) -> (Gather<K, V>, impl Future<Output = ()>)
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
    (Gather(sender), work)
}

/// One look, for all who have asked by now.
async fn serve<K, V, F>(callers: Vec<Asked<K, V>>, look: &impl Fn(Vec<K>) -> F)
where
    K: Eq + Hash + Clone,
    V: Clone,
    F: Future<Output = std::result::Result<HashMap<K, V>, StoreError>>,
{
    let keys: HashSet<K> = callers.iter().map(|asked| asked.key.clone()).collect();
    let found = look(keys.into_iter().collect()).await.map_err(Arc::new);
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
        let (gather, work) = gather(move |keys: Vec<u32>| {
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
            let gather = gather.clone();
            async move { (key, gather.get(key).await.expect("an answer")) }
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
}
