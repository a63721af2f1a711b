//! What a server keeps for its clients: prepared queries by number, within bounds, each handed out once.
//!
//! A shelf belongs to the session that prepares. It lives in memory only and goes when that session ends, whatever
//! ended it; other connections of the client reach it by its ticket, to run what is there. So nothing outlives the
//! process, and nothing the session.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jaguar_ring::prg::os_random;

use crate::error::EngineError;
use crate::kept::stock::{NoRoom, Stock};
use crate::message::Secret;

/// How much a server keeps for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    /// Prepared queries of one client.
    pub queries: u32,
    /// Bytes of all clients' prepared queries together.
    pub bytes: u64,
    /// A client that holds something here and asks for nothing for so long loses it, and its session. So does one that
    /// stops in the middle of a query.
    pub idle: Duration,
    /// Bytes of all clients' keys together, which stay from one session to the next. Where there is no room, those go
    /// that were not used for the longest.
    pub keys: u64,
}

impl Default for KeepLimits {
    /// 4 queries a client, 2 GiB in all, an hour; 4 GiB of keys. (A query of ResNet-50 holds about 0.4 GiB.)
    fn default() -> Self {
        Self { queries: 4, bytes: 2 << 30, idle: Duration::from_secs(3600), keys: 4 << 30 }
    }
}

/// All shelves of a service. `T` is a prepared query.
pub(crate) struct Shelves<T> {
    pub limits: KeepLimits,
    open: Mutex<HashMap<[u8; 16], Arc<Shelf<T>>>>,
    /// What all of them hold, and what is being prepared for them.
    all: Arc<Mutex<Stock>>,
}

/// One client's prepared queries.
pub(crate) struct Shelf<T> {
    inner: Mutex<Inner<T>>,
    /// Who the client has shown to be.
    client: Option<String>,
}

struct Inner<T> {
    /// The number of the next query.
    next: u64,
    kept: BTreeMap<u64, Kept<T>>,
    /// When the client last asked for something.
    touched: Instant,
}

/// A query with its place in the books.
struct Kept<T> {
    query: T,
    place: Place,
}

/// A place for one query, given back when dropped.
pub(crate) struct Place {
    all: Arc<Mutex<Stock>>,
    bytes: u64,
}

/// The shelf of a session. What it holds goes with it.
pub(crate) struct Own<'a, T> {
    shelves: &'a Shelves<T>,
    ticket: Secret,
    shelf: Arc<Shelf<T>>,
}

/// Every change is made in one piece, so that a panic in another thread leaves it sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Shelves<T> {
    /// Empty ones, whose places are counted in `all` too.
    pub fn new(limits: KeepLimits, all: Arc<Mutex<Stock>>) -> Self {
        Self { limits, open: Mutex::default(), all }
    }

    /// What is kept and under way for all clients.
    pub fn all(&self) -> Stock {
        *lock(&self.all)
    }

    /// An empty shelf of a client, under a ticket that nobody can guess.
    pub fn open(&self, client: Option<&str>) -> Own<'_, T> {
        let secret: [u8; 32] = os_random();
        let ticket = Secret(secret[..16].try_into().expect("half of it"));
        let inner = Inner { next: 0, kept: BTreeMap::new(), touched: Instant::now() };
        let shelf = Arc::new(Shelf { inner: Mutex::new(inner), client: client.map(str::to_owned) });
        lock(&self.open).insert(ticket.0, Arc::clone(&shelf));
        Own { shelves: self, ticket, shelf }
    }

    /// The shelf of an open session of the same client.
    ///
    /// # Errors
    /// When the ticket is none, or was given to a client that has shown to be somebody else.
    pub fn find(&self, ticket: &Secret, client: Option<&str>) -> Result<Arc<Shelf<T>>, EngineError> {
        let misbehaved = |what: &str| EngineError::PeerMisbehaved(what.into());
        let found = lock(&self.open).get(&ticket.0).cloned();
        let shelf = found.ok_or_else(|| misbehaved("no session is open under this ticket"))?;
        match shelf.client.as_deref() == client {
            true => Ok(shelf),
            false => Err(misbehaved(
                "this ticket was given to another client: it works with the token or certificate of that one only",
            )),
        }
    }
}

impl<T> Own<'_, T> {
    pub fn ticket(&self) -> &Secret {
        &self.ticket
    }

    pub fn shelf(&self) -> &Shelf<T> {
        &self.shelf
    }

    /// Books a place for query number `id` of `bytes` bytes, before it is prepared.
    ///
    /// # Errors
    /// When it is not the number's turn: the client counts otherwise.
    pub fn book(&self, id: u64, bytes: u64) -> Result<Result<Place, NoRoom>, EngineError> {
        let Self { shelves: Shelves { limits, all, .. }, shelf, .. } = self;
        let mut inner = lock(&shelf.inner);
        if id != inner.next {
            return Err(EngineError::PeerMisbehaved(format!(
                "query {id} is to be prepared; the next one is {}",
                inner.next
            )));
        }
        if inner.kept.len() >= limits.queries as usize {
            return Ok(Err(NoRoom::Client { most: limits.queries }));
        }
        let mut held = lock(all);
        if held.bytes.saturating_add(bytes) > limits.bytes {
            return Ok(Err(NoRoom::All { most: limits.bytes }));
        }
        *held = Stock { queries: held.queries + 1, bytes: held.bytes + bytes };
        inner.next += 1;
        Ok(Ok(Place { all: Arc::clone(all), bytes }))
    }

    /// Gives back the place that was booked last, and its number: nothing was prepared.
    pub fn unbook(&self, place: Place) {
        lock(&self.shelf.inner).next -= 1;
        drop(place);
    }

    /// Keeps the query that `place` was booked for.
    pub fn keep(&self, id: u64, query: T, place: Place) {
        lock(&self.shelf.inner).kept.insert(id, Kept { query, place });
    }
}

impl<T> Drop for Own<'_, T> {
    /// Nobody finds it any more, and what it holds is gone.
    fn drop(&mut self) {
        lock(&self.shelves.open).remove(&self.ticket.0);
        let kept = std::mem::take(&mut lock(&self.shelf.inner).kept);
        drop(kept);
    }
}

impl<T> Shelf<T> {
    /// What is there.
    pub fn stock(&self) -> Stock {
        let inner = lock(&self.inner);
        Stock {
            queries: inner.kept.len() as u32,
            bytes: inner.kept.values().map(|kept| kept.place.bytes).sum(),
        }
    }

    /// Takes query number `id` away. Its place is free: what runs is bounded by how many clients there are.
    ///
    /// # Errors
    /// When it is not there: it was never prepared, or has been used.
    pub fn take(&self, id: u64) -> Result<T, EngineError> {
        let mut inner = lock(&self.inner);
        let next = inner.next;
        let kept = inner.kept.remove(&id).ok_or_else(|| {
            EngineError::PeerMisbehaved(match id < next {
                true => format!("query {id} is not there: it was used before, or dropped"),
                false => format!("query {id} was never prepared"),
            })
        })?;
        Ok(kept.query)
    }

    /// The client asks for something.
    pub fn touch(&self) {
        lock(&self.inner).touched = Instant::now();
    }

    /// For how long it has asked for nothing.
    pub fn idle(&self) -> Duration {
        lock(&self.inner).touched.elapsed()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = lock(&self.all);
        held.queries -= 1;
        held.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelves(queries: u32, bytes: u64) -> Shelves<&'static str> {
        Shelves::new(KeepLimits { queries, bytes, ..KeepLimits::default() }, Arc::default())
    }

    #[test]
    fn each_query_is_handed_out_once() {
        let shelves = shelves(2, 100);
        let own = shelves.open(None);
        let other = shelves.find(own.ticket(), None).expect("open");
        for id in 0..2 {
            own.keep(id, "query", own.book(id, 10).unwrap().unwrap());
        }
        assert_eq!(other.stock(), Stock { queries: 2, bytes: 20 });
        assert_eq!(other.take(1).unwrap(), "query");
        for (id, what) in [(1, "used before"), (2, "never prepared"), (u64::MAX, "never prepared")] {
            let error = other.take(id).expect_err("refused").to_string();
            assert!(error.contains(what), "{error}");
        }
        // A number that was used before, and one that is too high.
        for id in [0, 1, 3] {
            assert!(matches!(own.book(id, 10), Err(EngineError::PeerMisbehaved(_))));
        }
        own.keep(2, "third", own.book(2, 10).unwrap().unwrap());
        assert_eq!(other.take(2).unwrap(), "third");
        assert!(other.take(0).is_ok() && other.take(0).is_err());
    }

    #[test]
    fn bounds_hold_for_a_client_and_for_all() {
        let shelves = shelves(2, 30);
        let (one, two) = (shelves.open(None), shelves.open(None));
        let first = one.book(0, 10).unwrap().unwrap();
        one.keep(0, "a", first);
        one.keep(1, "b", one.book(1, 10).unwrap().unwrap());
        assert_eq!(one.book(2, 10).unwrap().err(), Some(NoRoom::Client { most: 2 }));
        // What is under way counts.
        let under_way = two.book(0, 10).unwrap().unwrap();
        assert_eq!(two.book(1, 10).unwrap().err(), Some(NoRoom::All { most: 30 }));
        assert_eq!(shelves.all(), Stock { queries: 3, bytes: 30 });
        // What breaks off, what is used and what is dropped with its session makes room.
        drop(under_way);
        two.keep(1, "c", two.book(1, 10).unwrap().unwrap());
        two.shelf().take(1).unwrap();
        let ticket = Secret(one.ticket().0);
        let joined = shelves.find(&ticket, None).unwrap();
        drop(one);
        assert_eq!(shelves.all(), Stock::default());
        assert!(shelves.find(&ticket, None).is_err());
        assert!(joined.take(0).is_err(), "also for who had found it before");
        // A refusal takes no number, and neither does what is given back.
        assert!(two.book(2, 31).unwrap().is_err());
        two.unbook(two.book(2, 30).unwrap().unwrap());
        assert_eq!(shelves.all(), Stock::default());
        assert!(two.book(2, 30).unwrap().is_ok());
    }

    #[test]
    fn a_ticket_works_for_its_client_only() {
        let shelves = shelves(1, 10);
        let (alices, nobodys) = (shelves.open(Some("token alice")), shelves.open(None));
        let find = |own: &Own<'_, _>, client| shelves.find(own.ticket(), client).map(drop);
        assert!(find(&alices, Some("token alice")).is_ok() && find(&nobodys, None).is_ok());
        for (own, client) in [
            (&alices, Some("token bob")),
            (&alices, Some("certificate alice")),
            (&alices, None),
            (&nobodys, Some("token alice")),
        ] {
            let error = find(own, client).expect_err("another client").to_string();
            assert!(error.contains("given to another client"), "{error}");
        }
    }
}
