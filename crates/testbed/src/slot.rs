//! Which server a test uses: the same one for all its databases, and no other test's while there are enough servers. A
//! transaction that stays open delays every session of its server that waits for older transactions, in any database, so
//! tests that share a server wait for each other.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;

use crate::server::Server;

/// A test's place on a server, released with the last database of the test.
#[derive(Debug)]
pub(crate) struct Slot {
    place: usize,
    pub(crate) server: &'static Server,
}

struct Slots {
    servers: Vec<&'static Server>,
    state: Mutex<State>,
}

struct State {
    /// How many tests use each server.
    tests_on: Vec<usize>,
    /// By the names of their threads, which are the names of the tests.
    tests: HashMap<String, Weak<Slot>>,
}

static SLOTS: OnceLock<Slots> = OnceLock::new();

impl Slot {
    pub(crate) async fn of_test() -> Arc<Self> {
        let test = thread::current().name().unwrap_or("unnamed").to_owned();
        let slots = tokio::task::spawn_blocking(|| SLOTS.get_or_init(Slots::find));
        slots.await.expect("a Postgres for the tests").take(test)
    }
}

impl Slots {
    fn find() -> Self {
        let mut servers = Server::found();
        let first = place_of_process() % servers.len();
        servers.rotate_left(first);
        let tests_on = vec![0; servers.len()];
        Self { servers, state: Mutex::new(State { tests_on, tests: HashMap::new() }) }
    }

    fn take(&self, test: String) -> Arc<Slot> {
        let mut state = self.state.lock().expect("no holder panics");
        if let Some(slot) = state.tests.get(&test).and_then(Weak::upgrade) {
            return slot;
        }
        let tests_on = state.tests_on.iter_mut().enumerate();
        let (place, tests_on) = tests_on.min_by_key(|(_, tests_on)| **tests_on).expect("at least one server");
        *tests_on += 1;
        let slot = Arc::new(Slot { place, server: self.servers[place] });
        state.tests.insert(test, Arc::downgrade(&slot));
        slot
    }
}

/// cargo-nextest runs each test in a process of its own and numbers those that run at a time.
fn place_of_process() -> usize {
    env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|place| place.parse().ok()).unwrap_or_default()
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(Ok(mut state)) = SLOTS.get().map(|slots| slots.state.lock()) {
            state.tests_on[self.place] -= 1;
        }
    }
}
