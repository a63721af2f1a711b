//! Who is let in, and who is told to come back later.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jaguar_engine::server::HintBudget;

/// How much a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients that have greeted. A client that keeps prepared queries counts twice: it has two connections.
    pub clients: usize,
    /// Connections that have not greeted, of which one address may have a quarter, and one range of addresses half. They have a few
    /// seconds for it; beyond it, who comes has the place of one that is silent, which is dropped without a word.
    pub ungreeted: usize,
    /// Of `clients`, those that come from one address.
    pub clients_per_address: usize,
    /// Sessions that one address may begin in an hour, in the long run; after a quiet time, so many at once. (Of IPv6, an
    /// address is the first half of one: the rest is a customer's own.)
    pub sessions_per_address_and_hour: NonZeroU32,
    /// Hints an hour that are computed for one address, in the long run, beside the bound for all clients; after a quiet time some
    /// more at once.
    pub hints_per_address_and_hour: NonZeroU32,
    /// Bytes of a session, both ways together.
    pub session_bytes: u64,
    /// Bytes of memory that sessions may take together, as they are estimated.
    pub memory: u64,
    /// How long a client may ask for nothing.
    pub idle: Duration,
    /// How long no data may come from a client in the middle of what it asked for. (That its process lives is not data.)
    pub stalled: Duration,
}

impl Default for Limits {
    /// 8 clients, all of one address if need be; 64 connections that have not greeted; 3600 sessions and 120 hints an hour and address;
    /// any number of bytes, any memory; an hour between requests, five minutes in the middle of one.
    fn default() -> Self {
        Self {
            clients: 8,
            ungreeted: 64,
            clients_per_address: 8,
            sessions_per_address_and_hour: const { NonZeroU32::new(3600).expect("more than none") },
            hints_per_address_and_hour: const { NonZeroU32::new(120).expect("more than none") },
            session_bytes: u64::MAX,
            memory: u64::MAX,
            idle: Duration::from_secs(3600),
            stalled: Duration::from_secs(300),
        }
    }
}

impl Limits {
    /// A budget for one address: a quarter of an hour's hints may come at once.
    fn hints_of_address(&self) -> Arc<HintBudget> {
        let hints_per_hour = self.hints_per_address_and_hour;
        let hints_at_once = NonZeroU32::new(hints_per_hour.get().div_ceil(4)).unwrap_or(NonZeroU32::MIN);
        Arc::new(HintBudget::new(jaguar_engine::server::Limits { hints_at_once, hints_per_hour }))
    }
}

/// Why a client is not served. What it displays is what the client is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many clients as the limit allows are there.
    #[error(
        "the server is busy with as many clients as it takes ({limit}); try again later, in {again} seconds or more"
    )]
    Busy {
        /// How many clients the server takes.
        limit: usize,
        /// After how many seconds to try again.
        again: u64,
    },
    /// As many as the limit allows are there from its address.
    #[error(
        "{limit} clients from this address are being served, and no more are at once; try again later, in {again} seconds or more"
    )]
    AddressBusy {
        /// How many clients it takes from one address.
        limit: usize,
        /// After how many seconds to try again.
        again: u64,
    },
    /// Its address has begun as many sessions as the limit allows.
    #[error(
        "this address has begun as many sessions as the server takes from one ({an_hour} an hour); come back in {again} seconds"
    )]
    TooOften {
        /// How many sessions an address may begin in an hour.
        an_hour: u32,
        /// After how many seconds it may begin another.
        again: u64,
    },
    /// As many sessions as the limit allows are open for it.
    #[error(
        "{limit} sessions of this client are open, and no more are at once; try again later, in {again} seconds or more"
    )]
    ClientBusy {
        /// How many sessions a client may have at once.
        limit: usize,
        /// After how many seconds to try again.
        again: u64,
    },
    /// It has asked as much as it may today.
    #[error(
        "this client has asked the {limit} queries that it may ask in a day (UTC); come back in {again} seconds"
    )]
    QueriesSpent {
        /// How many queries a client may ask in a day.
        limit: u64,
        /// Seconds until the next day begins.
        again: u64,
    },
    /// It has asked a model as much as it may today.
    #[error(
        "this client has asked the {limit} queries that it may ask model '{model}' in a day (UTC); come back in {again} seconds"
    )]
    ModelQueriesSpent {
        /// The name of that model.
        model: String,
        /// How many queries a client may ask the model in a day.
        limit: u64,
        /// Seconds until the next day begins.
        again: u64,
    },
    /// The memory for sessions is taken.
    #[error(
        "the server's memory for sessions is taken ({limit} bytes, of which this one needs {need}); try again later, in {again} seconds \
         or more"
    )]
    Memory {
        /// Bytes of memory that this session would take.
        need: u64,
        /// Bytes of memory that all sessions may take.
        limit: u64,
        /// After how many seconds to try again.
        again: u64,
    },
    /// As many hints have been computed as the limit allows for now.
    #[error("{told}")]
    Hints {
        /// For its address; else for all.
        of_address: bool,
        /// The reason, as the client was told it.
        told: String,
    },
    /// It names no model, and may use several.
    #[error("this server has several models: name one of {names} (--model)")]
    WhichModel {
        /// Those that it may use, with commas between.
        names: String,
    },
    /// It names no model, and may use none.
    #[error("this server has no model for this client; its operator says who may use which")]
    NoModel,
    /// The model that it names is not there, or not for this client.
    #[error("this server has no model '{name}' for this client, which may use {names}")]
    NoSuchModel {
        /// The model that it asked for.
        name: String,
        /// Those that it may use, with commas between.
        names: String,
    },
    /// It shows no token, where one is needed.
    #[error("this server lets nobody in without a token; its operator gives them out")]
    NoToken,
    /// Its token is not known, or not any more.
    #[error("this server does not know the token; ask its operator for another")]
    UnknownToken,
    /// The tokens cannot be looked at.
    #[error("the server cannot tell at present who is let in; try again later, in {again} seconds or more")]
    TokensUnreadable {
        /// After how many seconds to try again.
        again: u64,
    },
    /// The server is ending.
    #[error("the server is shutting down; come back in {again} seconds or more, or ask another one")]
    ShuttingDown {
        /// After how many seconds another may have taken its place.
        again: u64,
    },
    /// The client asked for nothing for too long.
    #[error("nothing was asked for within {limit:?}; connect again when there is something to ask")]
    Idle {
        /// How long a client may ask for nothing.
        limit: Duration,
    },
    /// The client stopped in the middle.
    #[error("{told}")]
    Stalled {
        /// The reason, as the client was told it. How the session ended says at which step, too.
        told: String,
    },
    /// The client keeps prepared queries here, and asked for nothing for too long.
    #[error("{told}")]
    KeptIdle {
        /// The reason, as the client was told it.
        told: String,
    },
    /// It asked for what this server does not do, or cannot do now.
    #[error("{told}")]
    NotDone {
        /// The reason, as the client was told it.
        told: String,
    },
    /// The session has moved too much.
    #[error("the session has moved the {limit} bytes that one may move; connect again for more")]
    Bytes {
        /// How many bytes a session may move.
        limit: u64,
    },
}

/// When a client that found all places taken may try again. Places become free whenever a client leaves.
pub(crate) const SOON: u64 = 10;

/// When another server may have taken the place of one that is shutting down.
pub(crate) const AFTER_RESTART: u64 = 30;

/// The word for connections that are dropped since too many have not greeted.
pub(crate) const NOT_GREETED: &str = "not-greeted";

impl Refusal {
    /// All that [`kind`](Self::kind) can be, and the word for connections that were dropped before they greeted.
    pub(crate) const KINDS: [&str; 22] = [
        "busy",
        "address-busy",
        "too-often",
        "client-busy",
        "queries-spent",
        "model-queries-spent",
        "memory",
        "which-model",
        "hints",
        "address-hints",
        "no-model",
        "no-such-model",
        "no-token",
        "unknown-token",
        "tokens-unreadable",
        "shutting-down",
        "idle",
        "kept-idle",
        "stalled",
        "bytes",
        "not-done",
        NOT_GREETED,
    ];

    /// Whether the client should come back later: the server would do the same for it then. (One that is shutting down would not.)
    pub fn is_for_now(&self) -> bool {
        match self {
            Self::Busy { .. }
            | Self::AddressBusy { .. }
            | Self::TooOften { .. }
            | Self::ClientBusy { .. }
            | Self::QueriesSpent { .. }
            | Self::ModelQueriesSpent { .. }
            | Self::Memory { .. }
            | Self::Hints { .. }
            | Self::TokensUnreadable { .. } => true,
            Self::WhichModel { .. }
            | Self::NoModel
            | Self::NoSuchModel { .. }
            | Self::NoToken
            | Self::UnknownToken
            | Self::ShuttingDown { .. }
            | Self::Idle { .. }
            | Self::KeptIdle { .. }
            | Self::NotDone { .. }
            | Self::Stalled { .. }
            | Self::Bytes { .. } => false,
        }
    }

    /// A word for it, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::AddressBusy { .. } => "address-busy",
            Self::TooOften { .. } => "too-often",
            Self::ClientBusy { .. } => "client-busy",
            Self::QueriesSpent { .. } => "queries-spent",
            Self::ModelQueriesSpent { .. } => "model-queries-spent",
            Self::Memory { .. } => "memory",
            Self::WhichModel { .. } => "which-model",
            Self::Hints { of_address: false, .. } => "hints",
            Self::Hints { of_address: true, .. } => "address-hints",
            Self::NoModel => "no-model",
            Self::NoSuchModel { .. } => "no-such-model",
            Self::NoToken => "no-token",
            Self::UnknownToken => "unknown-token",
            Self::TokensUnreadable { .. } => "tokens-unreadable",
            Self::ShuttingDown { .. } => "shutting-down",
            Self::Idle { .. } => "idle",
            Self::KeptIdle { .. } => "kept-idle",
            Self::NotDone { .. } => "not-done",
            Self::Stalled { .. } => "stalled",
            Self::Bytes { .. } => "bytes",
        }
    }
}

/// How many places for clients a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceCount {
    /// Those that there are ([`Limits::clients`]).
    pub all: usize,
    /// Those that a client could have now.
    pub free: usize,
}

const HOUR: Duration = Duration::from_secs(3600);

/// Addresses that are remembered at most. Beyond it, those are forgotten that have been quiet for longest.
const REMEMBERED: usize = 1 << 14;

/// The places that are taken.
pub(crate) struct Places {
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    taken: usize,
    /// Bytes of memory that sessions may come to take.
    memory: u64,
    addresses: HashMap<IpAddr, Visits>,
}

/// What is known of an address.
struct Visits {
    taken: usize,
    hints: Arc<HintBudget>,
    /// When its sessions would have begun, had they come evenly: an hour's worth of them may come ahead of that.
    due: Instant,
}

/// A client's place, free again when dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    address: Option<IpAddr>,
    /// What may be computed for its address.
    pub(crate) hints: Option<Arc<HintBudget>>,
}

/// Memory that a session may come to take, free again when dropped.
pub struct Memory {
    places: Arc<Places>,
    bytes: u64,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.places.lock().memory -= self.bytes;
    }
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State { limits, taken: 0, memory: 0, addresses: HashMap::new() };
        Self { state: Mutex::new(state) }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.lock().limits
    }

    /// Other limits from now on. Who is beyond them stays.
    pub(crate) fn set_limits(&self, limits: Limits) {
        let mut state = self.lock();
        if limits.hints_per_address_and_hour != state.limits.hints_per_address_and_hour {
            state.addresses.values_mut().for_each(|visits| visits.hints = limits.hints_of_address());
        }
        state.limits = limits;
    }

    /// Bytes of memory that sessions may come to take, as estimated.
    pub(crate) fn memory(&self) -> u64 {
        self.lock().memory
    }

    /// Takes memory for a session, if there is as much.
    pub(crate) fn take_memory(self: &Arc<Self>, bytes: u64) -> Result<Memory, Refusal> {
        let mut state = self.lock();
        let limit = state.limits.memory;
        match state.memory.checked_add(bytes) {
            Some(memory) if memory <= limit => state.memory = memory,
            _ => return Err(Refusal::Memory { need: bytes, limit, again: SOON }),
        }
        Ok(Memory { places: self.clone(), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn taken(&self) -> usize {
        self.lock().taken
    }

    pub(crate) fn count(&self) -> PlaceCount {
        let state = self.lock();
        let all = state.limits.clients;
        PlaceCount { all, free: all.saturating_sub(state.taken) }
    }

    /// Gives a client from `ip` (none: over a Unix socket) a place at the time `now`, or says when it may come back.
    pub(crate) fn take(self: &Arc<Self>, ip: Option<IpAddr>, now: Instant) -> Result<Place, Refusal> {
        let mut state = self.lock();
        let limits = state.limits;
        let Limits { clients, clients_per_address, sessions_per_address_and_hour: an_hour, .. } = limits;
        let an_hour = an_hour.get();
        let mut hints = None;
        if state.taken >= clients {
            return Err(Refusal::Busy { limit: clients, again: SOON });
        }
        let address = ip.map(customer);
        if let Some(address) = address {
            if state.addresses.len() >= REMEMBERED && !state.addresses.contains_key(&address) {
                state.forget_one();
            }
            let new = || Visits { taken: 0, hints: limits.hints_of_address(), due: now };
            let visits = state.addresses.entry(address).or_insert_with(new);
            if visits.taken >= clients_per_address {
                return Err(Refusal::AddressBusy { limit: clients_per_address, again: SOON });
            }
            let (due, each) = (visits.due.max(now), HOUR / an_hour);
            let too_early = due.saturating_duration_since(now).saturating_sub(HOUR - each);
            if !too_early.is_zero() {
                let again = too_early.as_secs() + u64::from(too_early.subsec_nanos() > 0);
                return Err(Refusal::TooOften { an_hour, again });
            }
            visits.due = due + each;
            visits.taken += 1;
            hints = Some(Arc::clone(&visits.hints));
        }
        state.taken += 1;
        Ok(Place { places: self.clone(), address, hints })
    }
}

impl State {
    /// Makes room for another address: the one that is forgotten is that which came last the longest ago, of those that are not
    /// there now.
    fn forget_one(&mut self) {
        let quiet = self.addresses.iter().filter(|(_, visits)| visits.taken == 0);
        let oldest = quiet.min_by_key(|(_, visits)| visits.due).map(|(address, _)| *address);
        oldest.map(|address| self.addresses.remove(&address));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.taken -= 1;
        if let Some(visits) = self.address.and_then(|address| state.addresses.get_mut(&address)) {
            visits.taken -= 1;
        }
    }
}

/// What stands for a customer of the network.
pub(crate) fn customer(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    fn kind(result: Result<Place, Refusal>) -> &'static str {
        result.err().expect("refused").kind()
    }

    #[test]
    fn places_are_limited_and_given_back() {
        let limits = Limits { clients: 3, clients_per_address: 2, ..Limits::default() };
        let (places, now) = (Arc::new(Places::new(limits)), Instant::now());
        let take = |text: &str| places.take(ip(text), now);
        let first = take("192.0.2.1").expect("free");
        let second = take("::ffff:192.0.2.1").expect("free");
        assert_eq!(kind(take("192.0.2.1")), "address-busy");
        let third = take("2001:db8:0:1::1").expect("free");
        assert_eq!(kind(take("2001:db8:0:2::1")), "busy");
        assert_eq!(kind(places.take(None, now)), "busy");
        assert_eq!(places.taken(), 3, "who is turned away takes no place");
        assert_eq!(places.count(), PlaceCount { all: 3, free: 0 });
        // A limit that is lowered takes nobody's place away, and leaves none free.
        places.set_limits(Limits { clients: 2, ..limits });
        assert_eq!(places.count(), PlaceCount { all: 2, free: 0 });
        places.set_limits(limits);
        drop(first);
        assert_eq!(places.count(), PlaceCount { all: 3, free: 1 });
        let local = places.take(None, now).expect("free again");
        drop((second, third, local));
        assert_eq!(places.taken(), 0);
        // Two of one customer, whatever the rest of their addresses.
        let _two = ["2001:db8::1", "2001:db8::2"].map(|text| take(text).expect("free"));
        assert_eq!(kind(take("2001:db8::3")), "address-busy");
        assert!(take("2001:db8:0:1::3").is_ok());
    }

    #[test]
    fn sessions_of_an_address_are_limited_in_time() {
        let limits =
            Limits { sessions_per_address_and_hour: NonZeroU32::new(2).expect("two"), ..Limits::default() };
        let (places, start) = (Arc::new(Places::new(limits)), Instant::now());
        let take =
            |text: &str, seconds| places.take(ip(text), start + Duration::from_secs(seconds)).map(drop);
        assert_eq!([take("192.0.2.1", 0), take("192.0.2.1", 0)], [Ok(()), Ok(())]);
        assert_eq!(take("192.0.2.1", 0), Err(Refusal::TooOften { an_hour: 2, again: 1800 }));
        assert_eq!(take("192.0.2.2", 0), Ok(()), "another address");
        assert_eq!(take("192.0.2.1", 600), Err(Refusal::TooOften { an_hour: 2, again: 1200 }));
        assert_eq!(take("192.0.2.1", 1801), Ok(()));
        assert!(take("192.0.2.1", 1802).is_err());
        // A long quiet time gives no more than the limit.
        assert_eq!([take("192.0.2.1", 90_000), take("192.0.2.1", 90_000)], [Ok(()), Ok(())]);
        assert!(take("192.0.2.1", 90_000).is_err());
    }

    #[test]
    fn memory_is_limited_and_given_back() {
        let places = Arc::new(Places::new(Limits { memory: 100, ..Limits::default() }));
        let first = places.take_memory(60).expect("free");
        let refused = places.take_memory(41).err().expect("taken");
        assert_eq!(refused, Refusal::Memory { need: 41, limit: 100, again: SOON });
        let _second = places.take_memory(40).expect("free");
        assert_eq!(places.memory(), 100);
        drop(first);
        assert!(places.take_memory(61).is_err() && places.take_memory(u64::MAX).is_err());
        places.set_limits(Limits { memory: 200, ..Limits::default() });
        assert!(places.take_memory(160).is_ok());
        assert_eq!(places.memory(), 40);
    }

    #[test]
    fn an_address_keeps_its_budget_of_hints() {
        let places = Arc::new(Places::new(Limits::default()));
        let now = Instant::now();
        let budget =
            |text: &str| places.take(ip(text), now).expect("free").hints.clone().expect("an address");
        let (one, again) = (budget("192.0.2.1"), budget("192.0.2.1"));
        assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &budget("192.0.2.2")));
        assert!(places.take(None, now).expect("free").hints.is_none());
        places.set_limits(Limits { stalled: Duration::MAX, ..Limits::default() });
        assert!(Arc::ptr_eq(&one, &budget("192.0.2.1")));
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let (places, start) = (Arc::new(Places::new(Limits::default())), Instant::now());
        let address = |i: usize| Some(IpAddr::from((0x0a00_0000 + i as u32).to_be_bytes()));
        let stays = places.take(address(0), start).expect("free");
        for i in 1..REMEMBERED + 10 {
            places.take(address(i), start + Duration::from_secs(i as u64)).expect("free");
        }
        let state = places.lock();
        assert_eq!(state.addresses.len(), REMEMBERED);
        let known = |i| state.addresses.contains_key(&address(i).expect("an address"));
        assert!(known(0) && !known(1) && known(REMEMBERED + 9), "who is there is not forgotten");
        drop(state);
        drop(stays);
    }
}
