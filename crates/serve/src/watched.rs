//! A client's connection under the server's eyes: bytes are counted, and it ends when a limit is reached or the server does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jaguar_engine::server::QueriesSpent;
use jaguar_wire::framed::Framed;
use jaguar_wire::{Transport, WireError};

use crate::limits::{AFTER_RESTART, Limits, Refusal};
use crate::places::Seat;

/// How often a wait looks whether it should go on.
const LOOK: Duration = Duration::from_millis(100);

/// How long a client has to take its leave when the server is ending, and the server to tell those that it cuts off.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a session's thread and its connection tell each other.
#[derive(Default)]
pub(crate) struct Session {
    /// Nothing is under way: the client has what it asked for.
    pub(crate) between: AtomicBool,
    /// Why the server ended the session, if it did.
    refused: OnceLock<Refusal>,
    /// Which queries the client was last found to have had: no end of the session, if it wanted one prepared ahead.
    spent: Mutex<Option<Refusal>>,
}

impl Session {
    /// Notes why the server ends it, if nothing did before, and gives what the client is told.
    pub(crate) fn refuse(&self, why: Refusal) -> String {
        self.refused.get_or_init(|| why).to_string()
    }

    /// Notes that the client may have no more queries, and gives what it is to be told.
    pub(crate) fn spend(&self, why: Refusal) -> QueriesSpent {
        let told = QueriesSpent(why.to_string());
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        told
    }

    /// The reason that [`spend`](Self::spend) was given last.
    pub(crate) fn spent(&self) -> Option<Refusal> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn refused(&self) -> Option<&Refusal> {
        self.refused.get()
    }
}

/// How far the server's orderly end is.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// It has begun: nobody new is served.
    pub(crate) begun: AtomicBool,
    /// The time is over: what is under way ends at its next message.
    pub(crate) over: AtomicBool,
}

/// Bytes that all connections have moved together.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

/// A client's connection, bounded in time and in bytes.
pub struct Watched {
    inner: Framed,
    limits: Limits,
    session: Arc<Session>,
    seat: Seat,
    moved: Arc<Moved>,
    ending: Arc<Ending>,
    bytes: u64,
    /// The server is ending, and the client has said one thing more: its farewell, or something that comes too late.
    said_last: bool,
}

impl Watched {
    pub(crate) fn new(
        inner: Framed,
        limits: Limits,
        (session, seat): (Arc<Session>, Seat),
        moved: Arc<Moved>,
        ending: Arc<Ending>,
    ) -> Self {
        Self { inner, limits, session, seat, moved, ending, bytes: 0, said_last: false }
    }

    /// Tells the client why, and ends.
    fn refuse(&mut self, why: Refusal) -> WireError {
        self.inner.abort(&why.to_string());
        WireError::Ended(self.session.refuse(why))
    }

    fn is_over(&self) -> bool {
        self.said_last || self.ending.over.load(Ordering::SeqCst)
    }

    fn shutting_down(&mut self) -> WireError {
        self.refuse(Refusal::ShuttingDown { again: AFTER_RESTART })
    }

    fn count(&mut self, bytes: usize, into: fn(&Moved) -> &AtomicU64) -> Result<(), WireError> {
        into(&self.moved).fetch_add(bytes as u64, Ordering::Relaxed);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        match self.limits.session_bytes {
            limit if self.bytes > limit => Err(self.refuse(Refusal::Bytes { limit })),
            _ => Ok(()),
        }
    }

    /// Waits for at most `time`, looking up from time to time. `between` says that nothing is under way.
    fn wait(&mut self, time: Duration, between: bool) -> Result<Option<Vec<u8>>, WireError> {
        let start = Instant::now();
        let limit = if between { self.limits.idle } else { self.limits.stalled };
        loop {
            if self.is_over() {
                return Err(self.shutting_down());
            }
            let ending = between && self.ending.begun.load(Ordering::SeqCst);
            if ending {
                // What the client has asked for reaches it first.
                self.inner.drained(limit);
            }
            let look = if ending { LAST_WORDS } else { LOOK };
            let left = time.min(limit).saturating_sub(start.elapsed());
            if let Some(chunk) = self.inner.recv_within(look.min(left))? {
                self.said_last = ending;
                self.seat.is_busy();
                self.session.between.store(false, Ordering::SeqCst);
                self.count(chunk.len(), |moved| &moved.received)?;
                return Ok(Some(chunk));
            }
            let waited = start.elapsed();
            if ending {
                return Err(self.shutting_down());
            }
            let spared = self.limits.idle_when_full;
            if between && waited >= spared && self.seat.is_to_leave(start) {
                return Err(self.refuse(Refusal::GaveWay { limit: spared }));
            }
            if waited >= limit {
                return Err(self.refuse(match between {
                    true => Refusal::Idle { limit },
                    false => {
                        let what = "in the middle of a request; connect again and ask anew";
                        Refusal::Stalled { told: format!("no data came for {limit:?} {what}") }
                    }
                }));
            }
            if waited >= time {
                return Ok(None);
            }
        }
    }
}

impl Transport for Watched {
    fn send(&mut self, chunk: Vec<u8>) -> Result<(), WireError> {
        if self.is_over() {
            return Err(self.shutting_down());
        }
        self.count(chunk.len(), |moved| &moved.sent)?;
        self.inner.send(chunk)
    }

    /// A session waits without a limit of its own for what its client wants next.
    fn recv(&mut self) -> Result<Vec<u8>, WireError> {
        loop {
            if let Some(chunk) = self.wait(Duration::MAX, true)? {
                return Ok(chunk);
            }
        }
    }

    fn recv_within(&mut self, time: Duration) -> Result<Option<Vec<u8>>, WireError> {
        let between = self.session.between.load(Ordering::SeqCst);
        self.wait(time, between)
    }

    fn abort(&mut self, reason: &str) {
        self.inner.abort(reason);
    }

    fn put_off(&mut self, reason: &str) {
        self.inner.put_off(reason);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use jaguar_wire::framed::Options;

    use super::*;
    use crate::places::{Coming, Place, Places, Turn};

    struct Site {
        watched: Watched,
        place: Place,
        places: Arc<Places>,
        client: Framed,
        session: Arc<Session>,
        moved: Arc<Moved>,
        ending: Arc<Ending>,
    }

    fn site(limits: Limits) -> Site {
        let (a, b) = UnixStream::pair().expect("a pair");
        let accepting =
            thread::spawn(move || Framed::accept(Box::new(b), "client".into(), Options::default()));
        let client = Framed::connect(Box::new(a), "server".into(), Options::default()).expect("greeted");
        let inner = accepting.join().expect("no panic").expect("greeted");
        let (session, moved, ending) = (Arc::<Session>::default(), Arc::<Moved>::default(), Arc::default());
        let places = Arc::new(Places::new(limits));
        let place = places.take(&Coming::new(None, None), Instant::now()).expect("free");
        let own = (session.clone(), place.seat());
        let watched = Watched::new(inner, limits, own, moved.clone(), Arc::clone(&ending));
        Site { watched, place, places, client, session, moved, ending }
    }

    /// What the client is told, having read what was sent before.
    fn told(client: &mut Framed) -> String {
        loop {
            if let Err(e) = client.recv() {
                return e.to_string();
            }
        }
    }

    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn who_lives_and_sends_no_data_is_given_up() {
        // The client's keep-alives come all the time: they are no data.
        for (between, kind) in [(true, "idle"), (false, "stalled")] {
            let limits = Limits { idle: SHORT, stalled: SHORT, ..Limits::default() };
            let mut it = site(limits);
            it.session.between.store(between, Ordering::SeqCst);
            let error = it.watched.recv_within(Duration::from_secs(60)).expect_err("given up");
            assert!(matches!(error, WireError::Ended(_)), "{error}");
            assert_eq!(it.session.refused().map(Refusal::kind), Some(kind));
            assert!(told(&mut it.client).contains("300ms"), "{kind}");
        }
        // A shorter wait is no failure.
        let mut it = site(Limits::default());
        assert_eq!(it.watched.recv_within(SHORT).expect("alive"), None);
        assert_eq!(it.watched.recv_within(Duration::ZERO).expect("alive"), None);
        assert!(it.session.refused().is_none());
    }

    #[test]
    fn who_asks_for_nothing_gives_way_to_who_waits() {
        let limits = Limits { clients: 1, idle_when_full: SHORT, ..Limits::default() };
        let mut it = site(limits);
        it.session.between.store(true, Ordering::SeqCst);
        let some = SHORT * 3;
        assert_eq!(it.watched.recv_within(some).expect("nobody waits"), None);
        let waiting = it.places.line_up(&Coming::new(None, None)).expect("in the line");
        // In the middle of a request nothing changes.
        it.session.between.store(false, Ordering::SeqCst);
        assert_eq!(it.watched.recv_within(some).expect("something is under way"), None);
        it.session.between.store(true, Ordering::SeqCst);
        assert!(it.watched.recv_within(Duration::from_secs(60)).is_err());
        assert_eq!(it.session.refused().map(Refusal::kind), Some("gave-way"));
        assert!(told(&mut it.client).contains("others wait for a place"));
        drop(it.place);
        assert!(matches!(waiting.turn(Duration::ZERO), Ok(Turn::Place(_))));
    }

    #[test]
    fn bytes_are_counted_and_limited_both_ways() {
        let mut it = site(Limits { session_bytes: 1000, ..Limits::default() });
        it.client.send(vec![1; 600]).expect("sent");
        let mut got = 0;
        while got < 600 {
            got += it.watched.recv().expect("within the limit").len();
        }
        it.watched.send(vec![2; 400]).expect("within the limit");
        let error = it.watched.send(vec![2; 1]).expect_err("beyond it");
        assert!(error.to_string().contains("the 1000 bytes"), "{error}");
        assert!(told(&mut it.client).contains("the 1000 bytes"));
        assert_eq!(it.moved.received.load(Ordering::Relaxed), 600);
        assert_eq!(it.moved.sent.load(Ordering::Relaxed), 401);
    }

    #[test]
    fn an_ending_server_lets_what_is_asked_for_through_and_one_word_more() {
        // In the middle of a request nothing changes.
        let mut it = site(Limits::default());
        it.ending.begun.store(true, Ordering::SeqCst);
        it.client.send(vec![3]).expect("sent");
        assert_eq!(it.watched.recv_within(Duration::from_secs(60)).expect("there"), Some(vec![3]));
        it.watched.send(vec![4; 3_000_000]).expect("sent");
        // It is answered: the answer arrives whole, then the client is told, and what it says meanwhile is its last.
        it.session.between.store(true, Ordering::SeqCst);
        let client = thread::spawn(move || {
            let mut got = 0;
            while got < 3_000_000 {
                got += it.client.recv().expect("the answer").len();
            }
            it.client.send(vec![5]).expect("sent");
            told(&mut it.client)
        });
        assert_eq!(it.watched.recv().expect("last words"), [5]);
        assert!(matches!(it.watched.recv_within(SHORT), Err(WireError::Ended(_))));
        assert!(client.join().expect("no panic").contains("shutting down; come back in 30 seconds"));
        assert_eq!(it.session.refused().map(Refusal::kind), Some("shutting-down"));
        // When the time is over, what is under way ends too.
        let mut it = site(Limits::default());
        let over = it.ending.clone();
        let waiting = thread::spawn(move || it.watched.recv_within(Duration::from_secs(60)));
        over.over.store(true, Ordering::SeqCst);
        assert!(matches!(waiting.join().expect("no panic"), Err(WireError::Ended(_))));
        assert!(told(&mut it.client).contains("shutting down"));
        // Who says nothing more is told too.
        let mut it = site(Limits::default());
        it.ending.begun.store(true, Ordering::SeqCst);
        assert!(matches!(it.watched.recv(), Err(WireError::Ended(_))));
        assert!(told(&mut it.client).contains("shutting down"));
    }
}
