//! Clients' keys, as a server keeps them from one session to the next: under the client's name, which nobody else
//! knows, in memory, within a bound. Where there is no room those go that were not asked for the longest; their client
//! sends them again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jaguar_linear::backend::ClientKeys;

/// A client's name, and which backend of the plan.
pub(crate) type Name = ([u8; 32], usize);

/// All clients' keys of one service.
pub(crate) struct KeyShelf {
    /// Bytes, at most.
    limit: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    kept: HashMap<Name, Entry>,
    bytes: u64,
    /// Grows with every access.
    time: u64,
}

struct Entry {
    keys: ClientKeys,
    bytes: u64,
    used: u64,
}

impl KeyShelf {
    pub fn new(limit: u64) -> Self {
        Self { limit, inner: Mutex::default() }
    }

    /// Every change is made in one piece, so that a panic in another thread leaves it sound.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept under this name.
    pub fn find(&self, name: &Name) -> Option<ClientKeys> {
        let inner = &mut *self.inner();
        inner.time += 1;
        let entry = inner.kept.get_mut(name)?;
        entry.used = inner.time;
        Some(entry.keys.clone())
    }

    /// Keeps `keys`, of so many bytes, if the bound allows it. What is kept under this name already stays.
    pub fn keep(&self, name: Name, keys: ClientKeys, bytes: u64) {
        let inner = &mut *self.inner();
        if bytes > self.limit || inner.kept.contains_key(&name) {
            return;
        }
        while inner.bytes > self.limit - bytes {
            let oldest = inner.kept.iter().min_by_key(|(_, entry)| entry.used).map(|(&name, _)| name);
            let gone = oldest.and_then(|name| inner.kept.remove(&name));
            inner.bytes -= gone.expect("bytes are of something").bytes;
        }
        inner.time += 1;
        inner.bytes += bytes;
        inner.kept.insert(name, Entry { keys, bytes, used: inner.time });
    }

    /// How many clients' keys there are, and their bytes.
    pub fn stock(&self) -> (usize, u64) {
        let inner = self.inner();
        (inner.kept.len(), inner.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn name(i: u8) -> Name {
        ([i; 32], 0)
    }

    fn found(shelf: &KeyShelf, i: u8) -> Option<u8> {
        shelf.find(&name(i)).map(|keys| *keys.downcast::<u8>().unwrap())
    }

    #[test]
    fn who_asked_last_stays() {
        let shelf = KeyShelf::new(10);
        for i in 0..3 {
            shelf.keep(name(i), Arc::new(i), 3);
        }
        assert_eq!(shelf.stock(), (3, 9));
        assert_eq!(found(&shelf, 0), Some(0));
        // There is room for one more if the second goes.
        shelf.keep(name(3), Arc::new(3u8), 4);
        assert_eq!(shelf.stock(), (3, 10));
        assert_eq!([0, 1, 2, 3].map(|i| found(&shelf, i)), [Some(0), None, Some(2), Some(3)]);
        // Nothing is replaced, and nothing goes for what has no room at all.
        shelf.keep(name(0), Arc::new(9u8), 3);
        shelf.keep(name(4), Arc::new(4u8), 11);
        assert_eq!((found(&shelf, 0), found(&shelf, 4), shelf.stock()), (Some(0), None, (3, 10)));
        shelf.keep(name(5), Arc::new(5u8), 10);
        assert_eq!((shelf.stock(), found(&shelf, 5)), ((1, 10), Some(5)));
        // Backends do not share names.
        assert!(shelf.find(&([5; 32], 1)).is_none());
    }
}
