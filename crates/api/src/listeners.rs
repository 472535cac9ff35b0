//! Places for those who listen to events: so many at all, and so many of them for one caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// At a time.
const ALL: usize = 256;
/// A quarter of them: nobody takes the places of all others.
const OF_ONE_CALLER: usize = 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<HashMap<String, usize>>>);

/// Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    listeners: Listeners,
    caller: String,
}

impl Listeners {
    /// `None` where there is none left, or the caller has all that one may have.
    pub(crate) fn place(&self, caller: &str) -> Option<Place> {
        let mut taken = self.taken();
        let own = taken.get(caller).copied().unwrap_or_default();
        if own >= OF_ONE_CALLER || taken.values().sum::<usize>() >= ALL {
            return None;
        }
        taken.insert(caller.to_owned(), own + 1);
        Some(Place { listeners: self.clone(), caller: caller.to_owned() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.listeners.taken();
        match taken.get_mut(&self.caller) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.caller)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_takes_a_quarter_of_the_places_and_gives_them_back() {
        let listeners = Listeners::default();
        let greedy: Vec<Place> = (0..1000).map_while(|_| listeners.place("greedy")).collect();
        assert_eq!(greedy.len(), OF_ONE_CALLER);
        let others: Vec<Place> =
            (0..ALL).map_while(|caller| listeners.place(&format!("caller {caller}"))).collect();
        assert_eq!(others.len(), ALL - OF_ONE_CALLER);
        drop(greedy);
        assert!(listeners.place("greedy").is_some());
        drop(others);
        assert!(listeners.taken().is_empty());
    }
}
