//! Tokens that nobody knows: logged, counted, and after some of them tried no faster than once a second and address.
//! Whose token was good within the last day is not slowed: many people may share an address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use vitrina_telemetry::Exposition;

use crate::error::{Error, Result};

/// So many mistakes are anybody's.
const FREE: u32 = 10;
const PACE: Duration = Duration::from_secs(1);
/// An address that has tried nothing for so long begins anew.
const FORGET: Duration = Duration::from_secs(300);
/// Beyond so many addresses the one that was silent longest is forgotten.
const MOST: usize = 10_000;

/// Where a call comes from, as far as the connection tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<HashMap<IpAddr, Tries>>);

#[derive(Debug, Clone, Copy)]
struct Tries {
    failed: u32,
    last: Instant,
}

impl Logins {
    /// Before a token is looked for that was not good lately.
    pub(crate) fn check(&self, peer: Option<Peer>) -> Result<()> {
        let Some(Peer(address)) = peer else { return Ok(()) };
        let tries = self.lock().get(&network(address.ip())).copied();
        match tries.filter(|tries| tries.failed >= FREE && tries.last.elapsed() < PACE) {
            Some(tries) => Err(Error::LoginsSlowed(PACE.saturating_sub(tries.last.elapsed()))),
            None => Ok(()),
        }
    }

    pub(crate) fn failed(&self, peer: Option<Peer>, exposition: &Exposition) {
        let address = peer.map(|Peer(address)| address.ip().to_canonical().to_string()).unwrap_or_default();
        tracing::warn!(address, "a call was made with a token that is not valid");
        exposition.record(|| metrics::counter!("vitrina_api_failed_logins_total").increment(1));
        if let Some(Peer(address)) = peer {
            self.count(network(address.ip()));
        }
    }

    fn count(&self, network: IpAddr) {
        let (mut known, now) = (self.lock(), Instant::now());
        if known.len() >= MOST && !known.contains_key(&network) {
            known.retain(|_, tries| tries.last.elapsed() < FORGET);
        }
        if known.len() >= MOST && !known.contains_key(&network) {
            let oldest = known.iter().min_by_key(|(_, tries)| tries.last).map(|(oldest, _)| *oldest);
            oldest.map(|oldest| known.remove(&oldest));
        }
        let tries = known.entry(network).or_insert(Tries { failed: 0, last: now });
        let before = if tries.last.elapsed() < FORGET { tries.failed } else { 0 };
        *tries = Tries { failed: before.saturating_add(1), last: now };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, Tries>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has one address of IPv6 has as many as they like of the same network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<Peer> {
        Some(Peer(SocketAddr::new(address.parse().unwrap(), 1)))
    }

    #[test]
    fn an_address_is_slowed_after_some_mistakes_and_no_other_is() {
        let (logins, exposition) = (Logins::default(), Exposition::new());
        for _ in 0..FREE {
            assert!(logins.check(peer("2001:db8::1")).is_ok());
            logins.failed(peer("2001:db8::1"), &exposition);
        }
        assert!(logins.check(peer("2001:db8::2")).is_err(), "the same network");
        assert!(logins.check(peer("2001:db8:1::1")).is_ok());
        assert!(logins.check(None).is_ok());
    }

    #[test]
    fn however_many_addresses_try_only_so_many_are_remembered() {
        let (logins, exposition) = (Logins::default(), Exposition::new());
        for number in 0..u32::try_from(MOST).unwrap() + 50 {
            logins.failed(Some(Peer(SocketAddr::new(IpAddr::V4(number.into()), 1))), &exposition);
        }
        assert_eq!(logins.lock().len(), MOST);
    }
}
