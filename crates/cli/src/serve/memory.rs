//! How much memory sessions may take where nobody has said: what a limit of this process, or of its control group, leaves.

use std::sync::atomic::{AtomicU64, Ordering};

use jaguar::machine::memory::room;
use jaguar::plan::memory::{Bound, Room};

/// What this process may still take below a limit of its own or of its control group. None without one: what the machine has left
/// depends on others, and may be more a minute later.
pub fn room_of_own() -> Option<Room> {
    room().filter(|room| room.bound != Bound::Machine)
}

/// The part of `all` for what is kept for clients, where nobody has said how much: `default`, or what is less.
pub fn part_for_kept(default: u64, all: Option<Room>, share: u64) -> u64 {
    all.map_or(default, |room| default.min(room.bytes / share))
}

/// The bound for all sessions.
pub struct ForSessions {
    /// What somebody has said.
    said: Option<u64>,
    /// What is kept for clients beside.
    kept: u64,
    /// What the largest session takes: less makes no sense.
    least: AtomicU64,
    bytes: AtomicU64,
}

impl ForSessions {
    /// Nothing is loaded yet, and `kept` bytes at most will be kept for clients.
    pub fn new(said: Option<u64>, kept: u64) -> Self {
        Self { said, kept, least: AtomicU64::new(0), bytes: AtomicU64::new(u64::MAX) }
    }

    /// What somebody has said, or any.
    pub fn said(&self) -> u64 {
        self.said.unwrap_or(u64::MAX)
    }

    /// What counts.
    pub fn bytes(&self) -> u64 {
        let own = self.bytes.load(Ordering::SeqCst).max(self.least.load(Ordering::SeqCst));
        self.said.unwrap_or(own)
    }

    /// Looks how much there is, where nobody has said: `models` bytes of it models will take when they are prepared, and a session
    /// `least`.
    pub fn look(&self, room: Option<Room>, models: u64, least: u64) {
        let beside = self.kept.saturating_add(models);
        let left = room.map_or(u64::MAX, |room| room.bytes.saturating_sub(beside));
        self.least.store(least, Ordering::SeqCst);
        self.bytes.store(left, Ordering::SeqCst);
    }

    /// What to warn of: not even one session fits beside what is kept.
    pub fn is_too_little(&self) -> bool {
        self.said.is_none() && self.bytes.load(Ordering::SeqCst) < self.least.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(bytes: u64) -> Option<Room> {
        Some(Room { bytes, bound: Bound::ControlGroup })
    }

    #[test]
    fn sessions_have_what_a_limit_leaves() {
        let own = ForSessions::new(None, 300);
        own.look(room(1000), 0, 50);
        assert_eq!((own.bytes(), own.said(), own.is_too_little()), (700, u64::MAX, false));
        own.look(room(1000), 100, 50);
        assert_eq!(own.bytes(), 600);
        // One is always tried.
        own.look(room(310), 0, 50);
        assert_eq!((own.bytes(), own.is_too_little()), (50, true));
        own.look(None, 0, 50);
        assert_eq!((own.bytes(), own.is_too_little()), (u64::MAX, false));
        let said = ForSessions::new(Some(80), 300);
        said.look(room(1000), 0, 50);
        assert_eq!((said.bytes(), said.said()), (80, 80));
    }

    #[test]
    fn what_is_kept_is_a_part_of_what_there_is() {
        assert_eq!([part_for_kept(100, None, 4), part_for_kept(100, room(1000), 4)], [100, 100]);
        assert_eq!(part_for_kept(100, room(80), 4), 20);
    }
}
