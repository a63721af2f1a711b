//! A book of queries: what the file and the store have in common.

use std::time::{Duration, SystemTime};

use jaguar_engine::bundle::FileError;

use crate::limits::Refusal;

pub(crate) const DAY: u64 = 24 * 3600;

pub(crate) const WHAT: &str = "counting queries in";

pub(crate) fn seconds(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// How many queries each client has had today.
pub(crate) trait Book: Send {
    /// Whether the client has any left.
    fn check_client(&mut self, client: &str, limit: u64, now: SystemTime) -> Result<(), Refusal>;

    /// Counts those of a client to a model, one for each of `images`, within the limits of the client and of the model: all of them or
    /// none. The other value says what could not be written.
    fn count(
        &mut self,
        who: (&str, &str),
        images: u64,
        limits: (Option<u64>, Option<u64>),
        now: SystemTime,
    ) -> Result<Result<(), FileError>, Refusal>;
}
