//! Sessions that wait for their next run: a new one costs the server ten times what an idle pass does.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;
use vitrina_core::Result;

use crate::connection::{Connection, End, Session};
use crate::sql::literal;

const LONGEST: Duration = Duration::from_secs(60);
/// Where a name leads, and what a login may, is asked anew after this.
const OLDEST: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(5);
const MOST: usize = 8;

/// The idle sessions of one connection.
#[derive(Clone, Default)]
pub(crate) struct Parked(Arc<Mutex<Vec<Waiting>>>);

struct Waiting {
    session: Session,
    url: SecretString,
    since: Instant,
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parked")
    }
}

impl Parked {
    fn take(&self, url: &SecretString) -> Option<Session> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|waiting| waiting.since.elapsed() < LONGEST && !waiting.session.client.is_closed());
        let usable = |waiting: &Waiting| waiting.url.expose_secret() == url.expose_secret();
        let place = waiting.iter().rposition(usable)?;
        Some(waiting.swap_remove(place).session)
    }

    fn park(&self, session: Session, url: SecretString) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST {
            waiting.push(Waiting { session, url, since: Instant::now() });
        }
    }

    /// Ends those that have waited for long.
    pub(crate) fn clear(&self) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|waiting| waiting.since.elapsed() < LONGEST);
    }
}

/// A session at work, which is parked when it is done.
#[derive(Debug)]
pub(crate) struct Seat {
    session: Option<Session>,
    connection: Connection,
    /// In the middle of an answer nobody waits for: of no use to the next one.
    busy: AtomicBool,
    /// Not parked: it holds much memory.
    retired: AtomicBool,
}

impl Seat {
    /// A session that waits, or a new one that is then set up by `setup`.
    pub(crate) async fn open(
        connection: &Connection,
        end: End,
        application_name: &str,
        setup: &str,
    ) -> Result<Self> {
        let seated = |session| Self {
            session: Some(session),
            connection: connection.clone(),
            busy: AtomicBool::new(true),
            retired: AtomicBool::new(false),
        };
        while let Some(session) = connection.parked.take(&connection.url.get()) {
            // Whatever the last one left open is over, and the server has not ended it meanwhile.
            let name = format!("rollback; set application_name = {}", literal(application_name));
            if matches!(timeout(PATIENCE, session.run(&name)).await, Ok(Ok(()))) {
                return Ok(seated(session));
            }
        }
        let session = Session::open(connection, end, application_name).await?;
        session.run(setup).await?;
        Ok(seated(session))
    }

    /// Ends when it is done.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Answers whether it was.
    pub(crate) fn set_busy(&self, busy: bool) -> bool {
        self.busy.swap(busy, Ordering::Relaxed)
    }
}

impl Deref for Seat {
    type Target = Session;

    #[allow(clippy::expect_used)] // taken out by `drop` alone
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a seat holds its session")
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let fresh = session.since.elapsed() < OLDEST && !self.retired.load(Ordering::Relaxed);
        if fresh && !self.busy.load(Ordering::Relaxed) && !session.client.is_closed() {
            self.connection.parked.park(session, self.connection.url.get());
        }
    }
}
