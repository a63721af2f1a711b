//! Who is let in, and who is told to come back later.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How much a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients that have greeted. A client that keeps prepared queries counts twice: it has two connections.
    pub clients: usize,
    /// Connections that have not greeted, of which one address may have a quarter. They have a few seconds for it; those
    /// beyond it are dropped without a word.
    pub ungreeted: usize,
    /// Of `clients`, those that come from one address.
    pub clients_per_address: usize,
    /// Sessions that one address may begin in an hour, in the long run; after a quiet time, so many at once. (Of IPv6, an
    /// address is the first half of one: the rest is a customer's own.)
    pub sessions_per_address_and_hour: NonZeroU32,
    /// Bytes of a session, both ways together.
    pub session_bytes: u64,
    /// How long a client may ask for nothing.
    pub idle: Duration,
    /// How long no data may come from a client in the middle of what it asked for. (That its process lives is not data.)
    pub stalled: Duration,
}

impl Default for Limits {
    /// 8 clients, all of one address if need be; 64 connections that have not greeted; 3600 sessions an hour and address; any number
    /// of bytes; an hour between requests, five minutes in the middle of one.
    fn default() -> Self {
        Self {
            clients: 8,
            ungreeted: 64,
            clients_per_address: 8,
            sessions_per_address_and_hour: const { NonZeroU32::new(3600).expect("more than none") },
            session_bytes: u64::MAX,
            idle: Duration::from_secs(3600),
            stalled: Duration::from_secs(300),
        }
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
        /// The limit.
        limit: usize,
        /// When it is worth while.
        again: u64,
    },
    /// As many as the limit allows are there from its address.
    #[error(
        "{limit} clients from this address are being served, and no more are at once; try again later, in {again} seconds or more"
    )]
    AddressBusy {
        /// The limit.
        limit: usize,
        /// When it is worth while.
        again: u64,
    },
    /// Its address has begun as many sessions as the limit allows.
    #[error(
        "this address has begun as many sessions as the server takes from one ({an_hour} an hour); come back in {again} seconds"
    )]
    TooOften {
        /// The limit.
        an_hour: u32,
        /// When the next may begin.
        again: u64,
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
        /// When it is worth while.
        again: u64,
    },
    /// The server is ending.
    #[error("the server is shutting down; come back in {again} seconds or more, or ask another one")]
    ShuttingDown {
        /// When another may have taken its place.
        again: u64,
    },
    /// The client asked for nothing for too long.
    #[error("nothing was asked for within {limit:?}; connect again when there is something to ask")]
    Idle {
        /// The limit.
        limit: Duration,
    },
    /// The client stopped in the middle.
    #[error("no data came for {limit:?} in the middle of a request; connect again and ask anew")]
    Stalled {
        /// The limit.
        limit: Duration,
    },
    /// The session has moved too much.
    #[error("the session has moved the {limit} bytes that one may move; connect again for more")]
    Bytes {
        /// The limit.
        limit: u64,
    },
}

/// When a client that found all places taken may try again. Places become free whenever a client leaves.
pub(crate) const SOON: u64 = 10;

/// When another server may have taken the place of one that is shutting down.
pub(crate) const AFTER_RESTART: u64 = 30;

impl Refusal {
    /// A word for it, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::AddressBusy { .. } => "address-busy",
            Self::TooOften { .. } => "too-often",
            Self::NoToken => "no-token",
            Self::UnknownToken => "unknown-token",
            Self::TokensUnreadable { .. } => "tokens-unreadable",
            Self::ShuttingDown { .. } => "shutting-down",
            Self::Idle { .. } => "idle",
            Self::Stalled { .. } => "stalled",
            Self::Bytes { .. } => "bytes",
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// Addresses that are remembered at most. Beyond it, those are forgotten that have been quiet for longest.
const REMEMBERED: usize = 1 << 14;

/// The places that are taken.
pub(crate) struct Places {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    addresses: HashMap<IpAddr, Visits>,
    ungreeted: usize,
    /// Of those, how many each address has.
    ungreeted_of: HashMap<Option<IpAddr>, usize>,
}

/// What is known of an address.
struct Visits {
    taken: usize,
    /// When its sessions would have begun, had they come evenly: an hour's worth of them may come ahead of that.
    due: Instant,
}

/// A client's place, free again when dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    address: Option<IpAddr>,
}

/// The place of a connection that has not greeted, free again when dropped.
pub(crate) struct Waiting {
    places: Arc<Places>,
    address: Option<IpAddr>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.ungreeted -= 1;
        if let Entry::Occupied(mut of) = state.ungreeted_of.entry(self.address) {
            *of.get_mut() -= 1;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Lets a connection from `ip` greet, if not too many are about to.
    pub(crate) fn wait(self: &Arc<Self>, ip: Option<IpAddr>) -> Option<Waiting> {
        let limit = self.limits.ungreeted;
        let mut state = self.lock();
        let address = ip.map(customer);
        let of = state.ungreeted_of.get(&address).copied().unwrap_or(0);
        if state.ungreeted >= limit || of >= limit.div_ceil(4) {
            return None;
        }
        state.ungreeted += 1;
        state.ungreeted_of.insert(address, of + 1);
        Some(Waiting { places: self.clone(), address })
    }

    /// Gives a client from `ip` (none: over a Unix socket) a place at the time `now`, or says when it may come back.
    pub(crate) fn take(self: &Arc<Self>, ip: Option<IpAddr>, now: Instant) -> Result<Place, Refusal> {
        let Limits { clients, clients_per_address, sessions_per_address_and_hour: an_hour, .. } = self.limits;
        let an_hour = an_hour.get();
        let mut state = self.lock();
        if state.taken >= clients {
            return Err(Refusal::Busy { limit: clients, again: SOON });
        }
        let address = ip.map(customer);
        if let Some(address) = address {
            if state.addresses.len() >= REMEMBERED && !state.addresses.contains_key(&address) {
                state.forget_one();
            }
            let visits = state.addresses.entry(address).or_insert(Visits { taken: 0, due: now });
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
        }
        state.taken += 1;
        Ok(Place { places: self.clone(), address })
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
fn customer(ip: IpAddr) -> IpAddr {
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
        drop(first);
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
    fn those_who_have_not_greeted_are_few() {
        let places = Arc::new(Places::new(Limits { ungreeted: 6, ..Limits::default() }));
        let wait = |text: &str| places.wait(ip(text));
        let mut waiting: Vec<_> =
            ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|text| wait(text).expect("free")).into();
        assert!(wait("192.0.2.1").is_none(), "a quarter of them, rounded up");
        waiting.extend(["192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|text| wait(text).expect("free")));
        assert!(wait("192.0.2.5").is_none() && places.wait(None).is_none());
        waiting.clear();
        assert!(wait("192.0.2.5").is_some());
        assert!(places.lock().ungreeted_of.is_empty(), "nothing is remembered of who has gone");
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
