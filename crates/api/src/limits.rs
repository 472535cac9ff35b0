//! How much one caller may ask for: a bucket of calls for each name, refilled all the time. A change weighs as much as
//! ten looks.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::Method;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::error::{Error, Result};

const WEIGHT_OF_A_CHANGE: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");
const ONE: NonZeroU32 = NonZeroU32::MIN;

#[derive(Debug)]
pub(crate) struct Limits(Option<DefaultKeyedRateLimiter<String>>);

impl Limits {
    /// So many calls a second and caller, and as many at once; 0 is no limit.
    pub(crate) fn new(calls: u32) -> Self {
        let quota = NonZeroU32::new(calls).map(|calls| Quota::per_second(calls.max(WEIGHT_OF_A_CHANGE)));
        Self(quota.map(RateLimiter::keyed))
    }

    pub(crate) fn check(&self, caller: &str, method: &Method) -> Result<()> {
        let Some(limiter) = &self.0 else { return Ok(()) };
        let weight = if method.is_safe() { ONE } else { WEIGHT_OF_A_CHANGE };
        match limiter.check_key_n(&caller.to_owned(), weight) {
            Ok(Err(busy)) => Err(Error::TooMany(busy.wait_time_from(DefaultClock::default().now()))),
            // The bucket holds every weight.
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

/// Whole seconds, at least one: what `retry-after` can say.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0).max(u64::from(wait.is_zero()))
}
