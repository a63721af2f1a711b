//! Clients' keys, as a server keeps them from one session to the next: under the client's name, which nobody else
//! knows, in memory, within a bound. Where there is no room those go that were not asked for the longest; their client
//! sends them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jaguar_linear::backend::ClientKeys;

/// A client's name, and which backend of the plan.
pub(crate) type Name = ([u8; 32], usize);

/// Which service's keys: those of another are of no use to it.
type OfService = (u64, Name);

/// All clients' keys of a server, for all services that share it.
pub(crate) struct KeyShelf {
    /// How many bytes all keys together may take.
    limit: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    kept: HashMap<OfService, Entry>,
    bytes: u64,
    /// How many services have asked for room, which numbers them.
    services: u64,
    /// Grows with every access: the least recent goes first.
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

    /// A part for a service of its own.
    pub fn part(self: &Arc<Self>) -> KeyPart {
        let inner = &mut *self.inner();
        inner.services += 1;
        KeyPart { shelf: Arc::clone(self), service: inner.services }
    }

    fn find(&self, name: &OfService) -> Option<ClientKeys> {
        let inner = &mut *self.inner();
        inner.time += 1;
        let entry = inner.kept.get_mut(name)?;
        entry.used = inner.time;
        Some(entry.keys.clone())
    }

    fn keep(&self, name: OfService, keys: ClientKeys, bytes: u64) {
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

/// One service's part. What it holds goes with it.
pub(crate) struct KeyPart {
    shelf: Arc<KeyShelf>,
    service: u64,
}

impl KeyPart {
    /// What is kept under this name.
    pub fn find(&self, name: &Name) -> Option<ClientKeys> {
        self.shelf.find(&(self.service, *name))
    }

    /// Keeps `keys`, of so many bytes, if the bound allows it. What is kept under this name already stays.
    pub fn keep(&self, name: Name, keys: ClientKeys, bytes: u64) {
        self.shelf.keep((self.service, name), keys, bytes);
    }

    /// How many clients' keys there are, and their bytes, in all parts.
    pub fn stock(&self) -> (usize, u64) {
        self.shelf.stock()
    }
}

impl Drop for KeyPart {
    fn drop(&mut self) {
        let inner = &mut *self.shelf.inner();
        let bytes = &mut inner.bytes;
        inner.kept.retain(|(service, _), entry| {
            let stays = *service != self.service;
            *bytes -= if stays { 0 } else { entry.bytes };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(i: u8) -> Name {
        ([i; 32], 0)
    }

    fn found(shelf: &KeyPart, i: u8) -> Option<u8> {
        shelf.find(&name(i)).map(|keys| *keys.downcast::<u8>().unwrap())
    }

    #[test]
    fn who_asked_last_stays() {
        let shelf = Arc::new(KeyShelf::new(10)).part();
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

    #[test]
    fn services_share_a_bound_and_no_keys() {
        let shelf = Arc::new(KeyShelf::new(10));
        let (one, other) = (shelf.part(), shelf.part());
        one.keep(name(1), Arc::new(1u8), 4);
        assert_eq!((found(&one, 1), found(&other, 1)), (Some(1), None));
        other.keep(name(1), Arc::new(2u8), 5);
        assert_eq!((found(&one, 1), found(&other, 1), one.stock()), (Some(1), Some(2), (2, 9)));
        other.keep(name(2), Arc::new(3u8), 5);
        assert_eq!((found(&one, 1), found(&other, 1), one.stock()), (None, Some(2), (2, 10)));
        drop(other);
        assert_eq!(one.stock(), (0, 0));
    }
}
