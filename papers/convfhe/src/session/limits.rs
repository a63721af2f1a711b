//! What a server holds for clients of one-round sessions at most.

use std::time::Duration;

/// What a server holds of all clients together.
#[derive(Clone, Copy, Debug)]
pub struct DeskLimits {
    /// Inputs that wait, and the one that is computed.
    pub waiting: usize,
    /// Of those, one client's.
    pub waiting_of_one: usize,
    /// Answers that nobody has fetched yet; the oldest make place.
    pub answers: usize,
    /// How long one is kept.
    pub keep: Duration,
    /// How long an input waits.
    pub wait: Duration,
    /// How often its evaluation is begun, if the server ends each time in the middle of it: it may be what takes the machine down.
    pub begin: u32,
}

impl Default for DeskLimits {
    /// 16 inputs, 4 of one client, for a day; 64 answers, for an hour.
    fn default() -> Self {
        let hour = Duration::from_secs(3600);
        Self { waiting: 16, waiting_of_one: 4, answers: 64, keep: hour, wait: 24 * hour, begin: 3 }
    }
}

impl DeskLimits {
    /// Bytes that inputs and answers of so many bytes each take at most, in memory and on the disk.
    pub fn most_bytes(&self, input: usize, answer: usize) -> u64 {
        self.waiting as u64 * input as u64 + self.answers as u64 * answer as u64
    }
}
