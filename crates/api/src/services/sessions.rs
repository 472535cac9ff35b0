//! Sessions at sources for many looks: a few for each source, opened once and not again for every query.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::SourceConnection;
use crate::settings::Seat;

/// Looks under way at a time, at all sources together.
pub(super) const AT_A_TIME: usize = 8;
/// Sessions at one source: fewer than it has places, since others look at it too.
const AT_A_SOURCE: usize = 3;
/// A further session is opened for every so many looks.
const LOOKS_A_SESSION: usize = 10;

/// The sessions of one caller.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// By the name of the source.
    sources: BTreeMap<String, SourceSessions>,
    /// Sources that did not answer: they are not asked for every query.
    away: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct SourceSessions {
    wanted: usize,
    opened: OnceCell<Semaphore>,
    idle: Mutex<Vec<Seat>>,
}

/// Why no session is there.
#[derive(Debug)]
pub(super) enum NoSession {
    /// It did not answer somebody before.
    Away,
    Unopened(String),
}

impl Sessions {
    /// For looks at these sources, each named as often as it is looked at.
    pub(super) fn at<'a>(sources: impl IntoIterator<Item = &'a str>) -> Self {
        let mut looks: BTreeMap<String, usize> = BTreeMap::new();
        for source in sources {
            *looks.entry(source.to_owned()).or_default() += 1;
        }
        let sessions = |looks: usize| SourceSessions {
            wanted: looks.div_ceil(LOOKS_A_SESSION).clamp(1, AT_A_SOURCE),
            opened: OnceCell::new(),
            idle: Mutex::new(Vec::new()),
        };
        let sources = looks.into_iter().map(|(name, looks)| (name, sessions(looks)));
        Self { sources: sources.collect(), away: Mutex::default() }
    }

    /// Waits until one of the source's sessions is free.
    pub(super) async fn take(
        &self,
        source: &str,
        connection: &SourceConnection,
    ) -> Result<Taken<'_>, NoSession> {
        let Some(of) = self.sources.get(source) else { return Err(NoSession::Away) };
        let opened = of.opened.get_or_try_init(|| async {
            if self.is_away(source) {
                return Err(NoSession::Away);
            }
            of.open(connection).await.map_err(|reason| {
                self.note_away(source);
                NoSession::Unopened(reason)
            })
        });
        // Closed when a session was lost.
        let place = opened.await?.acquire().await.map_err(|_| NoSession::Away)?;
        let seat = of.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Taken { seat: Some(seat.ok_or(NoSession::Away)?), of, _place: place })
    }

    /// The source did not answer in this session: it is not asked again.
    pub(super) fn lose(&self, source: &str, mut taken: Taken<'_>) {
        self.note_away(source);
        taken.seat = None;
        if let Some(places) = taken.of.opened.get() {
            places.close();
        }
    }

    fn is_away(&self, source: &str) -> bool {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).contains(source)
    }

    fn note_away(&self, source: &str) {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).insert(source.to_owned());
    }
}

/// A session that nobody else uses meanwhile.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    seat: Option<Seat>,
    of: &'a SourceSessions,
    _place: SemaphorePermit<'a>,
}

impl Deref for Taken<'_> {
    type Target = Seat;

    #[allow(clippy::expect_used)] // taken out by `lose`, which consumes this, and by `drop` alone
    fn deref(&self) -> &Seat {
        self.seat.as_ref().expect("a taken session is there")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.of.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.seat.take());
    }
}

impl SourceSessions {
    /// The first one, for which it may wait, and those that can be had at once.
    async fn open(&self, connection: &SourceConnection) -> Result<Semaphore, String> {
        let mut seats = vec![connection.read("validate").await?];
        while seats.len() < self.wanted
            && let Some(seat) = connection.read_at_once("validate").await
        {
            seats.push(seat);
        }
        let places = Semaphore::new(seats.len());
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = seats;
        Ok(places)
    }
}
