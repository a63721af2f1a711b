//! Where a session takes the time from.

use std::sync::LazyLock;
use std::time::Duration;

use crate::time::Instant;

/// A clock that never goes back. A browser, or a test, brings its own.
pub trait Clock: Send + Sync {
    /// The time since a moment of the clock's own choice, the same at every call.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock. Its times count from its first use in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }
}
