//! A server on a port: it accepts connections, limits how many and what it takes, serves each client in a thread of its own,
//! and ends in an orderly way.
//!
//! ```text
//! Server::new(Models, Listener, Limits).run(hear) -> Drained       returns once Control::drain was called
//! ```
//!
//! Nothing here prints. What happens is told as an [`Event`], from whichever thread it happens in. [`metrics`] counts events
//! and answers Prometheus, and who asks whether the server lives and is ready.
//!
//! | file | what is in it |
//! |---|---|
//! | `models.rs` | [`Models`]: several of them, by name, which can be replaced meanwhile |
//! | `limits.rs` | [`Limits`], and the [`Refusal`]s that clients are told |
//! | `places.rs` | who has a place, who waits for one, and who gives one up |
//! | `ungreeted.rs` | connections that have not greeted, and which of them loses its place |
//! | `rules.rs` | [`Rules`]: which client may use which model, and how much |
//! | `queries.rs` | the queries of today, in a file |
//! | `watched.rs` | a client's connection: bytes counted, limits of time kept, ended when the server ends |
//! | `metrics.rs`, `http.rs` | figures, and the endpoint that shows them |
//! | `site.rs` | the page for browsers |
//! | `foreign.rs` | readers, as the fuzzer calls them |

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use jaguar_engine::bundle::FileError;
use jaguar_engine::one_round;
use jaguar_engine::server::Notice;
use jaguar_engine::{EngineError, Stock};
use jaguar_net::FileError as TokenFileError;
use jaguar_net::tls;
use jaguar_net::{Arrived, Bound, Greeted, Incoming, Listener, Peer, TokenFile};
use jaguar_wire::framed::{Framed, Options};
use jaguar_wire::{Channel, Queued, Transport, WireError};

mod book;
mod counts;
#[doc(hidden)]
pub mod foreign;
mod hosted;
mod http;
mod limits;
pub mod metrics;
mod models;
mod places;
mod queries;
mod rules;
#[cfg(feature = "redis")]
mod shared_queries;
pub mod site;
mod ungreeted;
mod watched;

pub use counts::Counts;
pub use hosted::{Caller, Hosted, ModelState, Told, Visit};
pub use limits::{Limits, Refusal};
pub use models::{Models, Named};
pub use places::{Memory, PlaceCount};
pub use rules::{ClientRules, ModelRules, Rules};
pub use watched::Watched;

use limits::{AFTER_RESTART, SOON};
use places::{Coming, Place, Places, Turn};
use rules::Register;
use ungreeted::{Ungreeted, Waiting};
use watched::{Ending, Moved, Session};

/// What happens to a server, for its log and its figures.
#[derive(Debug)]
pub enum Event<'a> {
    /// The model of this name is prepared: no client waits for that any more.
    ModelPrepared(&'a str, Duration),
    /// A client has greeted and is served; with the name that rules know it under, if it has shown who it is.
    Connected(Peer, Option<&'a str>),
    /// A client has greeted and finds no place: it waits for one, as it said that it would, with this place in the line.
    Waits(Peer, Option<&'a str>, Queued),
    /// The session is about the model of this name.
    Uses(Peer, &'a str),
    /// What the session says of a client's query to the model of this name.
    Query(Peer, &'a str, &'a Notice),
    /// What a one-round session says.
    OneRound(Peer, &'a one_round::Notice),
    /// A client took its leave.
    Left(Peer),
    /// A connection ended, and the client did not take its leave.
    Ended(Peer, &'a ServeError),
    /// A query could not be written to the file that counts them; it counts until the server ends.
    NotCounted(&'a FileError),
    /// The tokens of clients cannot be looked at.
    NoTokens(&'a TokenFileError),
    /// A connection was dropped that had not greeted: as many as may were there, and another came.
    TooManyUngreeted(Peer),
    /// The system refused a connection; the server goes on.
    NotAccepted(&'a WireError),
    /// The system refused a thread; the connection is dropped.
    NoThread(&'a io::Error),
    /// The server takes nobody any more, and ends when the clients that it has are through, so many of them, or the time is over.
    Draining(usize, Duration),
}

/// Why a connection ended before the client took its leave.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The peer is no client, or gone before it greeted.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The session failed, on either side.
    #[error(transparent)]
    Session(#[from] EngineError),
    /// The client is beyond a limit, not let in, or came too late. It was told so.
    #[error("turned away: {0}")]
    Refused(Refusal),
}

/// What is served, and the place that it is served at.
pub struct Server<S: Hosted = Models> {
    service: Arc<S>,
    listener: Listener,
    bound: Bound,
    options: Options,
    tokens: Option<TokenFile>,
    channel: Arc<MakeChannel>,
    shared: Arc<Shared>,
}

type MakeChannel = dyn Fn(Watched) -> Channel + Send + Sync;
type Hear = dyn Fn(Event<'_>) + Send + Sync;

/// How an orderly end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Clients whose sessions were cut, since they were not through in time.
    pub cut: usize,
}

/// What the parts of a server know of each other.
pub(crate) struct Shared {
    places: Arc<Places>,
    ungreeted: Arc<Ungreeted>,
    register: Arc<Register>,
    moved: Arc<Moved>,
    prepared: AtomicBool,
    ending: Arc<Ending>,
    /// When it ends at the latest, once it does.
    deadline: Mutex<Option<Instant>>,
    left: Condvar,
}

/// A handle on a server that runs.
#[derive(Clone)]
pub struct Control {
    service: Arc<dyn Hosted>,
    shared: Arc<Shared>,
    bound: Bound,
    tls: Option<tls::Server>,
}

impl Control {
    /// Has the server take nobody any more, and end when those that it has are through with what they asked for, or after
    /// `grace`. Returns at once. Later calls may shorten the time. Sessions that are cut off end at their next message:
    /// [`clients`](Self::clients) says how many are still there.
    pub fn drain(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        {
            let mut known = self.shared.deadline.lock().unwrap_or_else(PoisonError::into_inner);
            *known = Some(known.map_or(deadline, |known| known.min(deadline)));
        }
        self.shared.ending.begun.store(true, Ordering::SeqCst);
        self.shared.left.notify_all();
        // If nobody listens any more, nobody needs to be woken.
        let _ = self.bound.knock();
    }

    /// Whether it takes clients: the models are prepared, and the server is not ending. (Its places may be taken.)
    ///
    /// # Errors
    /// What it waits for.
    pub fn accepts(&self) -> Result<(), &'static str> {
        if self.shared.ending.begun.load(Ordering::SeqCst) {
            return Err(ENDING);
        }
        let prepared = self.shared.prepared.load(Ordering::SeqCst) && self.models().iter().all(|m| m.ready);
        prepared.then_some(()).ok_or("the model is being prepared")
    }

    /// Whether a client that comes now is served at once: it is taken, and there is a free place.
    ///
    /// # Errors
    /// What it waits for.
    pub fn ready(&self) -> Result<(), &'static str> {
        self.accepts()?;
        self.free_place()
    }

    /// Whether there is a free place.
    pub(crate) fn free_place(&self) -> Result<(), &'static str> {
        (self.places().free > 0).then_some(()).ok_or(FULL)
    }

    /// How many places for clients there are, and how many of them are free.
    pub fn places(&self) -> PlaceCount {
        self.shared.places.count()
    }

    /// The models that there are, if clients choose.
    pub fn models(&self) -> Vec<ModelState> {
        self.service.models()
    }

    /// Bytes of memory that the sessions may come to take, as estimated.
    pub fn session_memory(&self) -> u64 {
        self.shared.places.memory()
    }

    /// Other limits from now on. Who is beyond them stays; sessions that are there keep their limits of bytes and time.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.places.set_limits(limits);
    }

    /// Other rules from now on, also for sessions that are there. If they bound queries, these are counted in `counts`; the
    /// one that was named first stays. The value says why it is not written, if it cannot be: then they count until the server ends.
    ///
    /// # Errors
    /// When that file is another server's, or holds something else. Then the rules stay as they were.
    pub fn set_rules(&self, rules: Rules, counts: Option<Counts>) -> Result<Option<FileError>, FileError> {
        self.shared.register.put_in_force(rules, counts)
    }

    /// What is spoken with clients, if it is TLS.
    pub fn tls(&self) -> Option<&tls::Server> {
        self.tls.as_ref()
    }

    /// How many clients are being served now.
    pub fn clients(&self) -> usize {
        self.shared.places.taken()
    }

    /// Prepared queries that are kept for all clients.
    pub fn kept(&self) -> Stock {
        self.service.kept()
    }

    /// Bytes that came from clients since the start, and that went to them. (Greetings, frames' heads and TLS are not counted.)
    pub fn moved(&self) -> [u64; 2] {
        [&self.shared.moved.received, &self.shared.moved.sent].map(|bytes| bytes.load(Ordering::Relaxed))
    }
}

impl<S: Hosted> Server<S> {
    /// Serves `service` to who connects to `listener`.
    ///
    /// # Errors
    /// When the system does not tell where the listener is.
    pub fn new(service: S, listener: Listener, limits: Limits) -> Result<Self, WireError> {
        let bound = listener.bound()?;
        let shared = Arc::new(Shared {
            places: Arc::new(Places::new(limits)),
            ungreeted: Arc::default(),
            register: Arc::new(Register::new()),
            moved: Arc::default(),
            prepared: AtomicBool::new(false),
            ending: Arc::default(),
            deadline: Mutex::new(None),
            left: Condvar::new(),
        });
        let channel: Arc<MakeChannel> = Arc::new(Channel::new);
        let (service, options) = (Arc::new(service), Options::default());
        Ok(Self { service, listener, bound, options, tokens: None, channel, shared })
    }

    /// How patient connections are, in other than the default way.
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Makes channels of connections in another way: with a link imitated, say.
    #[must_use]
    pub fn with_channel(mut self, channel: impl Fn(Watched) -> Channel + Send + Sync + 'static) -> Self {
        self.channel = Arc::new(channel);
        self
    }

    /// Serves those only who show a token of the file.
    #[must_use]
    pub fn with_tokens(mut self, tokens: TokenFile) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// The models, or the other protocol, behind the port.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The same, for after the server's end.
    pub fn shared_service(&self) -> Arc<S> {
        self.service.clone()
    }

    /// Where clients connect to, and how.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// The address that it listens on, with the port that the system chose.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// To look at it and to end it, from other threads.
    pub fn control(&self) -> Control {
        Control {
            service: self.service.clone(),
            shared: self.shared.clone(),
            bound: self.bound.clone(),
            tls: self.listener.tls().cloned(),
        }
    }

    /// Serves until [`Control::drain`] is called, and prepares the model meanwhile. `hear` is called from every client's thread.
    ///
    /// # Errors
    /// When no thread can be started for the model. Later failures are a client's own, and told as events.
    pub fn run(self, hear: impl Fn(Event<'_>) + Send + Sync + 'static) -> io::Result<Drained> {
        let Self { service, listener, options, tokens, channel, shared, .. } = self;
        let hear: Arc<Hear> = Arc::new(hear);
        // Clients may come at once: one without a hint gets it layer by layer, and waits no longer than for the layer
        // at hand.
        let (model, told, known) = (service.clone(), hear.clone(), shared.clone());
        Builder::new().name("model".into()).spawn(move || {
            model.prepare(&mut |name, time| told(Event::ModelPrepared(name, time)));
            known.prepared.store(true, Ordering::SeqCst);
        })?;
        let tokens = tokens.map(Arc::new);
        while !shared.ending.begun.load(Ordering::SeqCst) {
            let incoming = match listener.accept() {
                Ok(incoming) => incoming,
                Err(e) => {
                    hear(Event::NotAccepted(&e));
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if shared.ending.begun.load(Ordering::SeqCst) {
                break;
            }
            // Who comes by a balancer has its place once that has said where from: at once.
            let waiting = match incoming.is_balanced() {
                true => None,
                false => match shared.wait_to_greet(&incoming) {
                    None => {
                        hear(Event::TooManyUngreeted(incoming.peer()));
                        continue;
                    }
                    waiting => waiting,
                },
            };
            let one = Connection {
                service: service.clone(),
                channel: channel.clone(),
                options,
                tokens: tokens.clone(),
                shared: shared.clone(),
                hear: hear.clone(),
            };
            let started = Builder::new().name("client".into()).spawn(move || one.serve(incoming, waiting));
            if let Err(e) = started {
                hear(Event::NoThread(&e));
            }
        }
        // Who comes from here on is refused by the system, and finds another server.
        drop(listener);
        Ok(shared.wait_for_clients(&*hear))
    }
}

impl Shared {
    /// A place of those that connect and say nothing: they are few at a time, and gone within seconds.
    fn wait_to_greet(&self, incoming: &Incoming) -> Option<Waiting> {
        self.ungreeted.enter(incoming.peer().ip(), incoming.line(), self.places.limits().ungreeted)
    }

    /// Waits until no client is served, or the time is over.
    fn wait_for_clients(&self, hear: &Hear) -> Drained {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |deadline: &Option<Instant>| {
            deadline.map_or(Duration::ZERO, |d| d.saturating_duration_since(Instant::now()))
        };
        hear(Event::Draining(self.places.taken(), left(&deadline)));
        loop {
            let (clients, time) = (self.places.taken(), left(&deadline));
            // (Who waits for a place is told at once.)
            if clients == 0 && self.places.count().waiting == 0 || time.is_zero() {
                self.ending.over.store(true, Ordering::SeqCst);
                self.wait_for_last_words(deadline);
                return Drained { cut: clients };
            }
            deadline = self.wait_for_one(deadline, time);
        }
    }

    /// Waits for those that are cut off to be told so, but for no computation.
    fn wait_for_last_words(&self, mut deadline: MutexGuard<'_, Option<Instant>>) {
        let start = Instant::now();
        let there = || self.places.taken() > 0 || self.places.count().waiting > 0;
        while there() && start.elapsed() < watched::LAST_WORDS {
            deadline = self.wait_for_one(deadline, PAUSE);
        }
    }

    /// Waits until a client leaves, or a while. (Looks by itself too: a place is given back without this lock.)
    fn wait_for_one<'a>(
        &self,
        deadline: MutexGuard<'a, Option<Instant>>,
        time: Duration,
    ) -> MutexGuard<'a, Option<Instant>> {
        self.left.wait_timeout(deadline, time.min(PAUSE)).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Why a server that is ending is not ready.
const ENDING: &str = "shutting down";

/// Why one whose places are all taken is not.
const FULL: &str = "all places are taken";

/// How long a server waits when the system refuses connections, and between two looks at who is still there.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that was taken, and what its thread serves it with.
struct Connection {
    service: Arc<dyn Hosted>,
    channel: Arc<MakeChannel>,
    options: Options,
    tokens: Option<Arc<TokenFile>>,
    shared: Arc<Shared>,
    hear: Arc<Hear>,
}

impl Connection {
    fn serve(&self, incoming: Incoming, waiting: Option<Waiting>) {
        let balancer = incoming.peer();
        let incoming = match incoming.introduced(self.options) {
            Ok(incoming) => incoming,
            Err(e) => return (self.hear)(Event::Ended(balancer, &ServeError::Wire(e))),
        };
        let peer = incoming.peer();
        let Some(ungreeted) = waiting.or_else(|| self.shared.wait_to_greet(&incoming)) else {
            return (self.hear)(Event::TooManyUngreeted(peer));
        };
        let arrived = incoming.receive(self.options);
        // Only who has greeted counts: one that says nothing must not keep a client out.
        if !ungreeted.leave() {
            return (self.hear)(Event::TooManyUngreeted(peer));
        }
        let greeted = match arrived {
            Ok(Arrived::Client(greeted)) => Ok(greeted),
            Ok(Arrived::Page) => return,
            Err(e) => Err(ServeError::Wire(e)),
        };
        match greeted.and_then(|greeted| self.converse(peer, greeted)) {
            Ok(()) => (self.hear)(Event::Left(peer)),
            Err(e) => (self.hear)(Event::Ended(peer, &e)),
        }
        self.shared.left.notify_all();
    }

    fn converse(&self, peer: Peer, greeted: Greeted) -> Result<(), ServeError> {
        let Greeted { mut connection, token, certificate, subject } = greeted;
        let admitted = self.who(&token).map_err(ServeError::Refused).and_then(|token| {
            let caller = Caller { token, certificate, subject, address: peer.ip() };
            let name = caller.name();
            // (Who waits for a place counts as a session of its client's.)
            let attendance = self.shared.register.enter(name.as_deref()).map_err(ServeError::Refused)?;
            let place = self.place(&connection, peer, (&caller, name.as_deref()))?;
            Ok((place, attendance, caller, name))
        });
        let (place, _attendance, caller, name) = match admitted {
            Ok(admitted) => admitted,
            Err(ServeError::Refused(why)) => {
                match why.is_for_now() {
                    true => connection.put_off(&why.to_string()),
                    false => connection.abort(&why.to_string()),
                }
                return Err(ServeError::Refused(why));
            }
            Err(gone) => return Err(gone),
        };
        (self.hear)(Event::Connected(peer, name.as_deref()));
        let (session, shared) = (Arc::<Session>::default(), &self.shared);
        let watched = Watched::new(
            connection,
            shared.places.limits(),
            (session.clone(), place.seat()),
            shared.moved.clone(),
            shared.ending.clone(),
        );
        let visit = Visit { caller, name, place: &place, session: &session, shared, hear: &*self.hear };
        let mut model = String::new();
        let served = self.service.serve((self.channel)(watched), &visit, &mut |told| {
            // Nothing is under way after a query; what a session is about is told in the middle of its beginning.
            let between = || session.between.store(true, Ordering::SeqCst);
            match told {
                Told::Model(name) => {
                    (self.hear)(Event::Uses(peer, &name));
                    model = name;
                }
                Told::Query(notice) => {
                    between();
                    (self.hear)(Event::Query(peer, &model, &notice));
                }
                Told::OneRound(notice) => {
                    between();
                    (self.hear)(Event::OneRound(peer, &notice));
                }
            }
        });
        let Err(failed) = served else { return Ok(()) };
        let told = failed.to_string();
        let why = match (session.refused(), &failed) {
            (Some(Refusal::Stalled { .. }), _) => Some(Refusal::Stalled { told }),
            (Some(why), _) => Some(why.clone()),
            (None, EngineError::QueriesSpent(_)) => session.spent(),
            (None, EngineError::HintsSpent { .. }) => Some(Refusal::Hints { of_address: false, told }),
            (None, EngineError::AddressHintsSpent { .. }) => Some(Refusal::Hints { of_address: true, told }),
            (None, EngineError::Idle { .. }) => Some(Refusal::KeptIdle { told }),
            (None, EngineError::Refused(_) | EngineError::Later(_)) => Some(Refusal::NotDone { told }),
            (None, _) => None,
        };
        Err(why.map_or_else(|| ServeError::Session(failed), ServeError::Refused))
    }

    /// Whose token it is, if one is needed.
    fn who(&self, token: &[u8]) -> Result<Option<String>, Refusal> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        if token.is_empty() {
            return Err(Refusal::NoToken);
        }
        match tokens.find(token) {
            Ok(Some(name)) => Ok(Some(name)),
            Ok(None) => Err(Refusal::UnknownToken),
            Err(e) => {
                (self.hear)(Event::NoTokens(&e));
                Err(Refusal::TokensUnreadable { again: SOON })
            }
        }
    }

    /// A place for a client; it is told in the line, if it would wait for one.
    fn place(
        &self,
        connection: &Framed,
        peer: Peer,
        (caller, name): (&Caller, Option<&str>),
    ) -> Result<Place, ServeError> {
        let (places, coming) = (&self.shared.places, Coming::new(caller.address, caller.identity()));
        let ending = || match self.shared.ending.begun.load(Ordering::SeqCst) {
            true => Err(ServeError::Refused(Refusal::ShuttingDown { again: AFTER_RESTART })),
            false => Ok(()),
        };
        ending()?;
        let wait = connection.would_wait();
        places.set_least_memory(self.service.least_memory());
        match places.take(&coming, Instant::now()) {
            Ok(place) => {
                connection.tell_place(Queued::SERVED);
                return Ok(place);
            }
            Err(Refusal::Busy { .. } | Refusal::AddressBusy { .. } | Refusal::Memory { .. })
                if !wait.is_zero() => {}
            Err(why) => return Err(ServeError::Refused(why)),
        }
        let line = places.line_up(&coming).map_err(ServeError::Refused)?;
        let (since, mut told) = (Instant::now(), None);
        loop {
            ending()?;
            connection.is_there()?;
            match line.turn(PAUSE).map_err(ServeError::Refused)? {
                Turn::Place(place) => {
                    // It may be free because the server ends.
                    ending()?;
                    connection.tell_place(Queued::SERVED);
                    return Ok(place);
                }
                Turn::Waits(_) if since.elapsed() >= wait => {
                    return Err(ServeError::Refused(line.over()));
                }
                Turn::Waits(now) if told == Some(now) => {}
                Turn::Waits(now) => {
                    if told.is_none() {
                        (self.hear)(Event::Waits(peer, name, now));
                    }
                    connection.tell_place(now);
                    told = Some(now);
                }
            }
        }
    }
}
