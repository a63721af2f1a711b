//! How much hint a server computes for those who ask: a bucket that sessions share, of one address or all of them.
//!
//! A client's name is its own choice, and the server keeps nothing of a client. So it cannot tell a new client from an
//! old one that asks again, and counts the work: bytes of hint, whoever they are for. A session books all that its
//! client lacks before the first block, so that no query ends half way; what was not sent is given back at its end.

use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What clients may make a server spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Whole hints that may be asked for at once, after a quiet time.
    pub hints_at_once: NonZeroU32,
    /// Whole hints an hour, in the long run. Parts count as such; so does a hint that is asked for again.
    pub hints_per_hour: NonZeroU32,
}

impl Default for Limits {
    /// 64 hints at once, 240 an hour. (ResNet-50's take some seconds of one core each.)
    fn default() -> Self {
        const fn number(n: u32) -> NonZeroU32 {
            NonZeroU32::new(n).expect("above zero")
        }
        Self { hints_at_once: number(64), hints_per_hour: number(240) }
    }
}

/// The books. Sessions of several models may share them: what counts is the part of a whole hint.
pub struct HintBudget {
    limits: Limits,
    /// Up to when the work that was booked takes, at the pace of the limits: by the sessions' clock.
    until: Mutex<Duration>,
}

/// Work that a session has booked. What is left of it when it is dropped is given back.
pub(crate) struct Booking<'a> {
    budget: &'a HintBudget,
    bytes: u64,
    /// Bytes of a whole hint.
    whole: u64,
}

impl HintBudget {
    /// Nothing booked yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, until: Mutex::default() }
    }

    /// Whether all that was booked up to `now` (of the sessions' clock) is over: then a new one is as good as this one.
    pub fn is_quiet(&self, now: Duration) -> bool {
        *self.until() <= now
    }

    /// The time in which `bytes` of a hint of `whole` may be computed, in the long run.
    fn pace(&self, bytes: u64, whole: u64) -> Duration {
        let hour = Duration::from_secs(3600).as_nanos();
        let nanos =
            hour * u128::from(bytes) / u128::from(whole) / u128::from(self.limits.hints_per_hour.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn until(&self) -> MutexGuard<'_, Duration> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books `bytes` of a hint of `whole` bytes at the time `now`. (Where a plan has no hint there is nothing to book.)
    ///
    /// # Errors
    /// When so many were booked before that this has to wait; it says for how long.
    pub(crate) fn book(&self, (bytes, whole): (u64, u64), now: Duration) -> Result<Booking<'_>, Duration> {
        let whole = whole.max(1);
        let mut until = self.until();
        let booked = (*until).max(now).saturating_add(self.pace(bytes, whole));
        let room = self.pace(whole.saturating_mul(u64::from(self.limits.hints_at_once.get())), whole);
        let wait = booked.saturating_sub(now).saturating_sub(room);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        *until = booked;
        Ok(Booking { budget: self, bytes, whole })
    }
}

impl Booking<'_> {
    /// So many bytes were computed.
    pub(crate) fn used(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Booking<'_> {
    fn drop(&mut self) {
        let mut until = self.budget.until();
        *until = until.saturating_sub(self.budget.pace(self.bytes, self.whole));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const fn number(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).expect("above zero")
    }

    /// Three at once, then one a minute; time is what the test says.
    fn budget() -> HintBudget {
        HintBudget::new(Limits { hints_at_once: number(3), hints_per_hour: number(60) })
    }

    /// Bytes of a whole hint.
    const WHOLE: u64 = 1000;

    fn wait(result: Result<Booking<'_>, Duration>) -> Duration {
        result.err().unwrap_or(Duration::ZERO)
    }

    fn take(budget: &HintBudget, bytes: u64, seconds: u64) -> Duration {
        let result = budget.book((bytes, WHOLE), Duration::from_secs(seconds));
        wait(result.map(|mut booking| {
            booking.used(bytes);
            booking
        }))
    }

    #[test]
    fn some_at_once_then_at_a_pace() {
        let budget = budget();
        let start = 1_000_000;
        for _ in 0..3 {
            assert_eq!(take(&budget, 1000, start), Duration::ZERO);
        }
        // Refused until a minute is over, however often it is asked; a quarter of a hint needs a quarter of that.
        for _ in 0..5 {
            assert_eq!(take(&budget, 1000, start), Duration::from_secs(60));
            assert_eq!(take(&budget, 250, start), Duration::from_secs(15));
        }
        assert_eq!(take(&budget, 0, start), Duration::ZERO);
        assert_eq!(take(&budget, 1000, start + 59), Duration::from_secs(1));
        assert_eq!(take(&budget, 1000, start + 60), Duration::ZERO);
        assert_eq!(take(&budget, 1000, start + 60), Duration::from_secs(60));
        // A quiet day allows no more than three again.
        let later = start + 86_400;
        assert_eq!(take(&budget, 3000, later), Duration::ZERO);
        assert_eq!(take(&budget, 1, later), Duration::from_millis(60));
        // More than fits at once never comes.
        assert!(take(&budget, 3001, later + 86_400) > Duration::ZERO);
    }

    #[test]
    fn what_was_not_sent_is_given_back() {
        let budget = budget();
        let now = Duration::from_secs(5);
        let mut first = budget.book((3000, WHOLE), now).unwrap();
        assert_eq!(wait(budget.book((500, WHOLE), now)), Duration::from_secs(30));
        first.used(1000);
        drop(first);
        assert_eq!(take(&budget, 2000, 5), Duration::ZERO);
        assert_eq!(take(&budget, 1000, 5), Duration::from_secs(60));
    }

    #[test]
    fn models_share_a_budget_by_parts_of_a_hint() {
        let budget = budget();
        let now = Duration::from_secs(5);
        assert!(budget.is_quiet(now));
        for (bytes, whole) in [(1000, 1000), (7, 7), (1 << 40, 1 << 40)] {
            let mut booking = budget.book((bytes, whole), now).expect("three at once");
            booking.used(bytes);
        }
        assert_eq!(wait(budget.book((4, 8), now)), Duration::from_secs(30));
        assert_eq!(wait(budget.book((0, 0), now)), Duration::ZERO, "a plan without a hint");
        assert!(!budget.is_quiet(now) && budget.is_quiet(now + Duration::from_secs(180)));
    }
}
