//! The places for clients: who has one, who waits for one, and who gives one up.
//!
//! A client that finds no place and says that it would wait stands in a line, where it is told its place in it and when its turn may
//! come. The line is fair by client (by what it has shown of who it is, else by its address): whoever has fewer places, and fewer of
//! its own ahead of it in the line, is served first; of two alike, who had a place longer ago or never; then who came first.
//!
//! Memory counts as places do: one is free only where the smallest session fits as well. A client that has just come has as much
//! set aside until it is known what it asks for.
//!
//! While somebody waits, clients that ask for nothing give their places up, the one that is idle for the longest first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jaguar_engine::server::HintBudget;
use jaguar_wire::Queued;

use crate::limits::{Limits, Refusal, SOON};

/// How many places for clients a server has, and who waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceCount {
    /// Those that there are ([`Limits::clients`]).
    pub all: usize,
    /// Those that a client could have that came now.
    pub free: usize,
    /// How many clients wait for one.
    pub waiting: usize,
    /// After how many seconds a client that came now may have one, as estimated; 0 if one is free.
    pub seconds: u64,
}

const HOUR: Duration = Duration::from_secs(3600);

/// Addresses that are remembered at most, and clients. Beyond it, those are forgotten that have been quiet for longest.
const REMEMBERED: usize = 1 << 14;

/// For how long a place is kept in mind for a client that was told to come back.
const RETURNS: Duration = Duration::from_secs(2 * SOON);

/// Who a place is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Coming {
    /// Where it comes from; none over a Unix socket.
    address: Option<IpAddr>,
    /// What it has shown of who it is.
    client: Option<String>,
}

impl Coming {
    /// One that comes from `address`, and has shown who it is: a text that no other has.
    pub(crate) fn new(address: Option<IpAddr>, client: Option<String>) -> Self {
        Self { address: address.map(customer), client }
    }

    /// What is fair is fair between these.
    fn who(&self) -> Who {
        match (&self.client, self.address) {
            (Some(client), _) => Who::Client(client.clone()),
            (None, address) => Who::Address(address),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Client(String),
    Address(Option<IpAddr>),
}

/// The places that are taken, and the line in front of them.
pub(crate) struct Places {
    state: Mutex<State>,
    /// A place may be free, or the line is shorter.
    changed: Condvar,
}

struct State {
    limits: Limits,
    /// By number.
    taken: BTreeMap<u64, Taken>,
    /// Numbers that were given, to places and in the line.
    given: u64,
    /// Who waits, by number: in the order in which they came.
    line: BTreeMap<u64, Coming>,
    /// Of those who waited or had a place when the last place was given: the number of the last one that they had.
    served: HashMap<Who, u64>,
    /// How long sessions last, in the mean of the last ones.
    mean: Option<Duration>,
    /// When a client was last told to come back since all places were taken.
    turned_away: Option<Instant>,
    /// Bytes of memory that sessions may come to take.
    memory: u64,
    /// What the smallest session takes of it.
    least: u64,
    addresses: HashMap<IpAddr, Visits>,
    /// Clients that have shown who they are.
    clients: HashMap<String, Visits>,
}

/// A place that somebody has.
struct Taken {
    coming: Coming,
    since: Instant,
    /// Since when nothing is asked for.
    idle: Option<Instant>,
    /// It was told to give its place up.
    leaving: bool,
    /// Bytes of memory that are its.
    memory: u64,
}

/// What is known of an address, or of a client.
struct Visits {
    taken: usize,
    hints: Arc<HintBudget>,
    /// When its sessions would have begun, had they come evenly: an hour's worth of them may come ahead of that.
    due: Instant,
}

/// A client's place, free again when dropped.
pub(crate) struct Place {
    seat: Seat,
    /// What may be computed for the client, or for its address.
    pub(crate) hints: Option<Arc<HintBudget>>,
}

/// A place, for who looks whether its client is idle.
#[derive(Clone)]
pub(crate) struct Seat {
    places: Arc<Places>,
    number: u64,
}

/// A client's place in the line, free again when dropped.
pub(crate) struct InLine {
    places: Arc<Places>,
    number: u64,
    coming: Coming,
}

/// What comes of waiting in the line for a while.
pub(crate) enum Turn {
    /// It is the client's turn.
    Place(Place),
    /// It waits on.
    Waits(Queued),
}

/// Memory that a session may come to take, free again when dropped.
pub struct Memory(Seat);

impl Drop for Memory {
    fn drop(&mut self) {
        let mut state = self.0.places.lock();
        state.set_memory(self.0.number, 0);
        drop(state);
        self.0.places.changed.notify_all();
    }
}

impl Place {
    pub(crate) fn seat(&self) -> Seat {
        self.seat.clone()
    }

    /// Takes memory for the session at this place, in place of what was set aside for it.
    ///
    /// # Errors
    /// When there is not as much now, or never.
    pub(crate) fn take_memory(&self, bytes: u64) -> Result<Memory, Refusal> {
        let mut state = self.seat.places.lock();
        let limit = state.limits.memory;
        if bytes > limit {
            return Err(Refusal::MemoryNever { need: bytes, limit });
        }
        let own = state.taken.get(&self.seat.number).map_or(0, |taken| taken.memory);
        // (Bounded: what others have, and this, are below a limit each, which may have been lowered.)
        if state.memory.saturating_sub(own).saturating_add(bytes) > limit {
            return Err(Refusal::Memory { need: bytes, limit, again: SOON });
        }
        state.set_memory(self.seat.number, bytes);
        Ok(Memory(self.seat()))
    }
}

impl Seat {
    /// Notes that nothing was asked for since then. Says whether the place is to be given up.
    pub(crate) fn is_to_leave(&self, since: Instant) -> bool {
        self.places.lock().is_to_leave(self.number, since)
    }

    /// Notes that something is asked for again.
    pub(crate) fn is_busy(&self) {
        if let Some(taken) = self.places.lock().taken.get_mut(&self.number) {
            taken.idle = None;
        }
    }
}

impl InLine {
    /// What the client is told when it has waited for as long as it would.
    pub(crate) fn over(&self) -> Refusal {
        let state = self.places.lock();
        let ahead = state.in_order().iter().position(|it| *it == self.number).unwrap_or(0);
        state.busy(ahead)
    }

    /// Waits for at most `time` for the client's turn. Returns early when the line changes.
    ///
    /// # Errors
    /// What the client is told, if it is not served.
    pub(crate) fn turn(&self, time: Duration) -> Result<Turn, Refusal> {
        let mut state = self.places.lock();
        if !state.is_next(self.number) {
            let waited = self.places.changed.wait_timeout(state, time);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !state.is_next(self.number) {
            return Ok(Turn::Waits(state.told(self.number)));
        }
        let now = Instant::now();
        state.may_come(&self.coming, now)?;
        let (number, hints) = state.admit(&self.coming, now);
        Ok(Turn::Place(Place { seat: Seat { places: self.places.clone(), number }, hints }))
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.places.lock().line.remove(&self.number);
        self.places.changed.notify_all();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.seat.places.lock().leaves(self.seat.number, Instant::now());
        self.seat.places.changed.notify_all();
    }
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            limits,
            taken: BTreeMap::new(),
            given: 0,
            line: BTreeMap::new(),
            served: HashMap::new(),
            mean: None,
            turned_away: None,
            memory: 0,
            least: 0,
            addresses: HashMap::new(),
            clients: HashMap::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.lock().limits
    }

    /// Other limits from now on. Who is beyond them stays.
    pub(crate) fn set_limits(&self, limits: Limits) {
        let mut state = self.lock();
        if limits.hints_per_address_and_hour != state.limits.hints_per_address_and_hour {
            state.addresses.values_mut().for_each(|visits| visits.hints = limits.hints_of_address());
            state.clients.values_mut().for_each(|visits| visits.hints = limits.hints_of_address());
        }
        state.limits = limits;
        self.changed.notify_all();
    }

    /// Bytes of memory that sessions may come to take, as estimated.
    pub(crate) fn memory(&self) -> u64 {
        self.lock().memory
    }

    /// The smallest session takes so many bytes of memory from now on.
    pub(crate) fn set_least_memory(&self, bytes: u64) {
        let mut state = self.lock();
        if state.least != bytes {
            state.least = bytes;
            drop(state);
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn taken(&self) -> usize {
        self.lock().taken.len()
    }

    pub(crate) fn count(&self) -> PlaceCount {
        let state = self.lock();
        let (all, free) = (state.limits.clients, state.free_for_others());
        let seconds = if free > 0 { 0 } else { state.estimate(state.line.len()) };
        PlaceCount { all, free, waiting: state.line.len(), seconds }
    }

    /// Gives a client a place at the time `now`, or says when it may come back.
    pub(crate) fn take(self: &Arc<Self>, coming: &Coming, now: Instant) -> Result<Place, Refusal> {
        let mut state = self.lock();
        if state.free_for_others() == 0 {
            state.turned_away = Some(now);
            return Err(state.busy(state.line.len()));
        }
        state.may_come(coming, now)?;
        let (number, hints) = state.admit(coming, now);
        Ok(Place { seat: Seat { places: self.clone(), number }, hints })
    }

    /// Lets a client that would wait stand in the line, at its end as far as it goes by time.
    ///
    /// # Errors
    /// When it is as long as it may be, or has a quarter of that of this client: when to come back.
    pub(crate) fn line_up(self: &Arc<Self>, coming: &Coming) -> Result<InLine, Refusal> {
        let mut state = self.lock();
        let (who, most) = (coming.who(), state.limits.waiting);
        let own = state.line.values().filter(|it| it.who() == who).count();
        if state.line.len() >= most || own >= most.div_ceil(4) {
            return Err(state.busy(state.line.len()));
        }
        let number = state.number();
        state.line.insert(number, coming.clone());
        Ok(InLine { places: self.clone(), number, coming: coming.clone() })
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// The line, with who is served first in front.
    fn in_order(&self) -> Vec<u64> {
        let mut ahead: HashMap<Who, usize> = HashMap::new();
        for taken in self.taken.values() {
            *ahead.entry(taken.coming.who()).or_default() += 1;
        }
        let mut line: Vec<(usize, u64, u64)> = Vec::new();
        for (number, coming) in &self.line {
            let who = coming.who();
            let served = self.served.get(&who).copied().unwrap_or(0);
            let ahead = ahead.entry(who).or_default();
            line.push((*ahead, served, *number));
            *ahead += 1;
        }
        line.sort_unstable();
        line.into_iter().map(|(.., number)| number).collect()
    }

    /// Places that are free, and have the memory of a session.
    fn free(&self) -> usize {
        self.limits.clients.saturating_sub(self.taken.len()).min(self.fit(self.limits.memory, self.memory))
    }

    /// How many of the smallest sessions fit into `limit` bytes beside `taken` of them. A session that never fits waits for nothing.
    fn fit(&self, limit: u64, taken: u64) -> usize {
        match limit.saturating_sub(taken).checked_div(self.least) {
            Some(count) if self.least <= limit => usize::try_from(count).unwrap_or(usize::MAX),
            _ => usize::MAX,
        }
    }

    /// Notes how much memory is that of a place.
    fn set_memory(&mut self, number: u64, bytes: u64) {
        let Some(taken) = self.taken.get_mut(&number) else { return };
        let before = std::mem::replace(&mut taken.memory, bytes);
        self.memory = self.memory.saturating_sub(before).saturating_add(bytes);
    }

    /// Those in the line that would be served if they looked now. (One whose address has as many places as it may have is not.)
    fn next(&self) -> Vec<u64> {
        let mut next = Vec::new();
        let mut of: HashMap<IpAddr, usize> = HashMap::new();
        for number in self.in_order() {
            if next.len() == self.free() {
                break;
            }
            if let Some(address) = self.line[&number].address {
                let more = of.entry(address).or_default();
                let taken = self.addresses.get(&address).map_or(0, |visits| visits.taken);
                if taken + *more >= self.limits.clients_per_address {
                    continue;
                }
                *more += 1;
            }
            next.push(number);
        }
        next
    }

    fn is_next(&self, number: u64) -> bool {
        self.free() > 0 && self.next().contains(&number)
    }

    /// Free places that nobody in the line is about to take.
    fn free_for_others(&self) -> usize {
        self.free() - self.next().len()
    }

    /// What one in the line is told.
    fn told(&self, number: u64) -> Queued {
        let ahead = self.in_order().iter().position(|it| *it == number).unwrap_or(0);
        let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Queued { place: bounded(ahead as u64 + 1), seconds: bounded(self.estimate(ahead)) }
    }

    /// Seconds until the turn of a client with so many ahead of it in the line.
    fn estimate(&self, ahead: usize) -> u64 {
        let mean = self.mean.unwrap_or(Duration::from_secs(SOON)).as_secs_f64();
        let at_once = self.limits.clients.min(self.fit(self.limits.memory, 0)).max(1);
        (mean * (ahead + 1) as f64 / at_once as f64).ceil().max(1.0) as u64
    }

    /// What a client is told that finds no place, with so many ahead of it.
    fn busy(&self, ahead: usize) -> Refusal {
        let again = self.estimate(ahead).max(SOON);
        if self.taken.len() < self.limits.clients && self.fit(self.limits.memory, self.memory) == 0 {
            return Refusal::Memory { need: self.least, limit: self.limits.memory, again };
        }
        Refusal::Busy { limit: self.limits.clients, again }
    }

    /// Whether its address may have another session now.
    fn may_come(&self, coming: &Coming, now: Instant) -> Result<(), Refusal> {
        let Some(visits) = coming.address.and_then(|address| self.addresses.get(&address)) else {
            return Ok(());
        };
        let limit = self.limits.clients_per_address;
        if visits.taken >= limit {
            return Err(Refusal::AddressBusy { limit, again: SOON });
        }
        let an_hour = self.limits.sessions_per_address_and_hour.get();
        let too_early =
            visits.due.max(now).saturating_duration_since(now).saturating_sub(HOUR - HOUR / an_hour);
        if too_early.is_zero() {
            return Ok(());
        }
        let again = too_early.as_secs() + u64::from(too_early.subsec_nanos() > 0);
        Err(Refusal::TooOften { an_hour, again })
    }

    /// Gives a client a free place: its number, and what may be computed for it.
    fn admit(&mut self, coming: &Coming, now: Instant) -> (u64, Option<Arc<HintBudget>>) {
        let limits = self.limits;
        let each = HOUR / limits.sessions_per_address_and_hour.get();
        let mut hints = None;
        if let Some(address) = coming.address {
            hints = Some(visit(&mut self.addresses, &address, &limits, (now, each)));
        }
        // Who is known by more than its address shares nothing with others that come from there.
        if let Some(client) = &coming.client {
            hints = Some(visit(&mut self.clients, client, &limits, (now, each)));
        }
        let number = self.number();
        let taken = Taken { coming: coming.clone(), since: now, idle: None, leaving: false, memory: 0 };
        self.taken.insert(number, taken);
        // What never fits is refused when it is asked for.
        self.set_memory(number, if self.least <= limits.memory { self.least } else { 0 });
        self.served.insert(coming.who(), number);
        let there = self.line.values().chain(self.taken.values().map(|it| &it.coming));
        let there: HashSet<Who> = there.map(Coming::who).collect();
        self.served.retain(|who, _| there.contains(who));
        (number, hints)
    }

    fn leaves(&mut self, number: u64, now: Instant) {
        self.set_memory(number, 0);
        let Some(Taken { coming, since, .. }) = self.taken.remove(&number) else { return };
        let time = now.saturating_duration_since(since);
        self.mean = Some(self.mean.map_or(time, |mean| (mean * 7 + time) / 8));
        let address = coming.address.and_then(|address| self.addresses.get_mut(&address));
        let client = coming.client.and_then(|client| self.clients.get_mut(&client));
        [address, client].into_iter().flatten().for_each(|visits| visits.taken -= 1);
    }

    /// Whether the client at a place, which is idle since then, is to give it up for one that wants it.
    fn is_to_leave(&mut self, number: u64, since: Instant) -> bool {
        match self.taken.get_mut(&number) {
            None => return false,
            Some(taken) => taken.idle = Some(since),
        }
        // Of those that were told to come back, one place is kept in mind.
        let turned_away = self.turned_away.is_some_and(|then| then.elapsed() < RETURNS);
        let wanted = self.line.len() + usize::from(turned_away);
        let leaving = self.taken.values().filter(|taken| taken.leaving).count();
        if wanted <= self.free() + leaving {
            return false;
        }
        let idle = self.taken.iter().filter(|(_, taken)| !taken.leaving);
        let longest = idle.filter_map(|(number, taken)| Some((taken.idle?, *number))).min();
        if longest.is_none_or(|(_, longest)| longest != number) {
            return false;
        }
        if let Some(taken) = self.taken.get_mut(&number) {
            taken.leaving = true;
        }
        true
    }
}

/// Counts a visit of an address or a client, and gives its budget of hints.
fn visit<K: Clone + Eq + Hash>(
    known: &mut HashMap<K, Visits>,
    key: &K,
    limits: &Limits,
    (now, each): (Instant, Duration),
) -> Arc<HintBudget> {
    if known.len() >= REMEMBERED && !known.contains_key(key) {
        // Room for another: the one is forgotten that came last the longest ago, of those that are not there now.
        let quiet = known.iter().filter(|(_, visits)| visits.taken == 0);
        let oldest = quiet.min_by_key(|(_, visits)| visits.due).map(|(key, _)| key.clone());
        oldest.map(|key| known.remove(&key));
    }
    let new = || Visits { taken: 0, hints: limits.hints_of_address(), due: now };
    let visits = known.entry(key.clone()).or_insert_with(new);
    visits.due = visits.due.max(now) + each;
    visits.taken += 1;
    visits.hints.clone()
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
    use std::num::NonZeroU32;

    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    /// A client that has shown nothing.
    fn from(address: Option<IpAddr>) -> Coming {
        Coming { address: address.map(customer), client: None }
    }

    fn at(text: &str) -> Coming {
        from(ip(text))
    }

    fn known(client: &str) -> Coming {
        Coming { client: Some(client.into()), ..at("192.0.2.1") }
    }

    fn kind(result: Result<Place, Refusal>) -> &'static str {
        result.err().expect("refused").kind()
    }

    fn count(places: &Places) -> (usize, usize) {
        let PlaceCount { all, free, .. } = places.count();
        (all, free)
    }

    #[test]
    fn places_are_limited_and_given_back() {
        let limits = Limits { clients: 3, clients_per_address: 2, ..Limits::default() };
        let (places, now) = (Arc::new(Places::new(limits)), Instant::now());
        let take = |text: &str| places.take(&at(text), now);
        let first = take("192.0.2.1").expect("free");
        let second = take("::ffff:192.0.2.1").expect("free");
        assert_eq!(kind(take("192.0.2.1")), "address-busy");
        let third = take("2001:db8:0:1::1").expect("free");
        assert_eq!(kind(take("2001:db8:0:2::1")), "busy");
        assert_eq!(kind(places.take(&from(None), now)), "busy");
        assert_eq!(places.taken(), 3, "who is turned away takes no place");
        assert_eq!(count(&places), (3, 0));
        // A limit that is lowered takes nobody's place away, and leaves none free.
        places.set_limits(Limits { clients: 2, ..limits });
        assert_eq!(count(&places), (2, 0));
        places.set_limits(limits);
        drop(first);
        assert_eq!(count(&places), (3, 1));
        let local = places.take(&from(None), now).expect("free again");
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
            |text: &str, seconds| places.take(&at(text), start + Duration::from_secs(seconds)).map(drop);
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
        let seats = [1, 2, 3].map(|_| places.take(&from(None), Instant::now()).expect("free"));
        let first = seats[0].take_memory(60).expect("free");
        let refused = seats[1].take_memory(41).err().expect("taken");
        assert_eq!(refused, Refusal::Memory { need: 41, limit: 100, again: SOON });
        let _second = seats[1].take_memory(40).expect("free");
        assert_eq!(places.memory(), 100);
        drop(first);
        assert!(seats[2].take_memory(61).is_err() && places.memory() == 40);
        // What would not fit if all others left is no matter of time.
        for never in [101, u64::MAX] {
            let refused = seats[2].take_memory(never).err().expect("never");
            assert_eq!(refused, Refusal::MemoryNever { need: never, limit: 100 });
            assert!(!refused.is_for_now());
        }
        places.set_limits(Limits { memory: 200, ..Limits::default() });
        assert!(seats[2].take_memory(160).is_ok());
        assert_eq!(places.memory(), 40);
        drop(seats);
        assert_eq!(places.memory(), 0);
    }

    #[test]
    fn who_finds_no_memory_waits_in_the_line() {
        let places = Arc::new(Places::new(Limits { memory: 100, waiting: 4, ..Limits::default() }));
        places.set_least_memory(40);
        let now = Instant::now();
        let first = places.take(&from(None), now).expect("free");
        let memory = first.take_memory(60).expect("free");
        let second = places.take(&from(None), now).expect("40 are left");
        // They are set aside for the second, though nobody knows yet what it asks for.
        assert_eq!((places.memory(), places.count().free), (100, 0));
        let refused = places.take(&from(None), now).err().expect("no memory is left");
        assert_eq!(refused, Refusal::Memory { need: 40, limit: 100, again: SOON });
        let third = places.line_up(&from(None)).expect("the line is empty");
        let waits = |line: &InLine| matches!(line.turn(Duration::ZERO), Ok(Turn::Waits(_)));
        assert!(waits(&third) && matches!(third.over(), Refusal::Memory { .. }));
        assert!(
            matches!(second.take_memory(50), Err(Refusal::Memory { need: 50, .. })),
            "60 of 100 are taken"
        );
        assert!(waits(&third));
        drop((memory, first));
        let Ok(Turn::Place(third)) = third.turn(Duration::ZERO) else { panic!("60 are free") };
        assert_eq!(places.count().free, 0, "20 of 100 are no place");
        drop((second, third));
        // A smallest session that never fits is let in, to be told so; it waits for nothing.
        places.set_least_memory(101);
        let never = places.take(&from(None), now).expect("a place is free");
        assert!(matches!(never.take_memory(101), Err(Refusal::MemoryNever { .. })));
    }

    #[test]
    fn an_address_keeps_its_budget_of_hints() {
        let places = Arc::new(Places::new(Limits::default()));
        let now = Instant::now();
        let budget =
            |text: &str| places.take(&at(text), now).expect("free").hints.clone().expect("an address");
        let (one, again) = (budget("192.0.2.1"), budget("192.0.2.1"));
        assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &budget("192.0.2.2")));
        assert!(places.take(&from(None), now).expect("free").hints.is_none());
        places.set_limits(Limits { stalled: Duration::MAX, ..Limits::default() });
        assert!(Arc::ptr_eq(&one, &budget("192.0.2.1")));
    }

    #[test]
    fn a_client_that_shows_who_it_is_keeps_its_own_budget_of_hints() {
        let places = Arc::new(Places::new(Limits::default()));
        let budget = |coming: &Coming| {
            places.take(coming, Instant::now()).expect("free").hints.clone().expect("a budget")
        };
        let (alice, bob, unknown) =
            (budget(&known("alice")), budget(&known("bob")), budget(&at("192.0.2.1")));
        assert!(!Arc::ptr_eq(&alice, &bob) && !Arc::ptr_eq(&alice, &unknown), "of one address");
        let elsewhere = Coming { address: None, client: Some("alice".into()) };
        assert!(Arc::ptr_eq(&alice, &budget(&elsewhere)));
    }

    /// Whose turn it is, of these in the line.
    fn turns(line: &[&InLine]) -> Vec<Option<Queued>> {
        let turn = |it: &&InLine| match it.turn(Duration::ZERO).expect("not refused") {
            Turn::Place(_) => None,
            Turn::Waits(queued) => Some(queued),
        };
        line.iter().map(turn).collect()
    }

    /// Who has waited with several sessions first does not have the only place for all of them before others have it once.
    #[test]
    fn one_place_goes_round() {
        let places = Arc::new(Places::new(Limits { clients: 1, ..Limits::default() }));
        let first = places.take(&known("alice"), Instant::now()).expect("free");
        let mut line: Vec<(&str, InLine)> = ["alice", "alice", "bob", "alice", "carol", "bob"]
            .map(|client| (client, places.line_up(&known(client)).expect("room")))
            .into();
        drop(first);
        let mut order = Vec::new();
        while !line.is_empty() {
            let there =
                line.iter().position(|(_, it)| it.places.lock().is_next(it.number)).expect("one is next");
            let (client, waits) = line.remove(there);
            let Ok(Turn::Place(place)) = waits.turn(Duration::ZERO) else { panic!("the turn of {client}") };
            drop((waits, place));
            order.push(client);
        }
        assert_eq!(order, ["bob", "carol", "alice", "bob", "alice", "alice"]);
        assert_eq!(places.lock().served.len(), 1, "who does not wait is not remembered");
    }

    #[test]
    fn the_line_is_fair_by_client_and_tells_places() {
        let places = Arc::new(Places::new(Limits { clients: 2, ..Limits::default() }));
        let now = Instant::now();
        let [one, two] = [(); 2].map(|()| places.take(&known("alice"), now).expect("free"));
        let wait = |client: &str| places.line_up(&known(client)).expect("room");
        let [alice, again, bob, bobs, carol] = ["alice", "alice", "bob", "bob", "carol"].map(wait);
        let place = |place| Some(Queued { place, seconds: 5 * place });
        let all = [&alice, &again, &bob, &bobs, &carol];
        // Those who have nothing come first, each with one of theirs.
        assert_eq!(turns(&all), [place(4), place(5), place(1), place(3), place(2)]);
        assert_eq!(places.count(), PlaceCount { all: 2, free: 0, waiting: 5, seconds: 30 });
        drop(one);
        assert_eq!(places.count().free, 0, "it is bob's");
        assert_eq!(kind(places.take(&known("dora"), now)), "busy", "nobody comes between");
        assert_eq!(places.line_up(&at("192.0.2.9")).err(), None);
        let Ok(Turn::Place(_bobs_place)) = bob.turn(Duration::ZERO) else { panic!("his turn") };
        drop(bob);
        // Alice has one place now, and so has bob: of the two she came first. Carol has none.
        let places_now: Vec<u32> = turns(&[&alice, &again, &bobs, &carol])
            .into_iter()
            .map(|told| told.expect("no place is free").place)
            .collect();
        assert_eq!(places_now, [2, 4, 3, 1]);
        drop(two);
        // Now she has none either, but has had two, and carol none yet.
        assert!(matches!(alice.turn(Duration::ZERO), Ok(Turn::Waits(Queued { place: 2, .. }))));
        assert!(matches!(carol.turn(Duration::ZERO), Ok(Turn::Place(_))));
    }

    #[test]
    fn the_line_has_an_end_and_a_share_for_each() {
        let places = Arc::new(Places::new(Limits { clients: 1, waiting: 8, ..Limits::default() }));
        let _taken = places.take(&known("alice"), Instant::now()).expect("free");
        let mut line: Vec<InLine> =
            [(); 2].map(|()| places.line_up(&known("bob")).expect("a quarter")).into();
        let busy = |again| Some(Refusal::Busy { limit: 1, again });
        assert_eq!(places.line_up(&known("bob")).err(), busy(30));
        for client in ["c", "d", "e"] {
            line.extend([(); 2].map(|()| places.line_up(&known(client)).expect("room")));
        }
        assert_eq!(places.line_up(&known("f")).err(), busy(90));
        line.pop();
        let last = places.line_up(&known("f")).expect("room again");
        assert_eq!(last.over(), busy(50).expect("after the first of each"));
    }

    #[test]
    fn one_address_holds_up_nobody_else() {
        let limits = Limits { clients: 3, clients_per_address: 1, ..Limits::default() };
        let places = Arc::new(Places::new(limits));
        let now = Instant::now();
        let first = places.take(&at("192.0.2.1"), now).expect("free");
        assert_eq!(kind(places.take(&at("192.0.2.1"), now)), "address-busy");
        let same = places.line_up(&at("192.0.2.1")).expect("room");
        assert!(matches!(same.turn(Duration::ZERO), Ok(Turn::Waits(_))));
        let _other = places.take(&at("192.0.2.2"), now).expect("free");
        drop(first);
        assert!(matches!(same.turn(Duration::ZERO), Ok(Turn::Place(_))));
    }

    #[test]
    fn those_that_are_idle_for_longest_give_way_first_and_no_more_than_are_wanted() {
        let places = Arc::new(Places::new(Limits { clients: 3, ..Limits::default() }));
        let now = Instant::now();
        let take = || places.take(&known("alice"), now).expect("free");
        let [a, b, c] = [take(), take(), take()];
        let since = |seconds| now - Duration::from_secs(seconds);
        let look = || [(&a, 60), (&b, 90), (&c, 30)].map(|(it, seconds)| it.seat.is_to_leave(since(seconds)));
        assert_eq!([look(), look()], [[false; 3]; 2], "nobody waits");
        let waits = places.line_up(&known("bob")).expect("room");
        look();
        assert_eq!([look(), look()], [[false; 3]; 2], "one leaves already");
        let more = places.line_up(&known("carol")).expect("room");
        b.seat.is_busy();
        assert_eq!([look()[2], look()[2]], [false; 2]);
        drop((waits, more));
        // One that was told to come back is kept in mind as well.
        let places = Arc::new(Places::new(Limits { clients: 1, ..Limits::default() }));
        let only = places.take(&known("alice"), now).expect("free");
        assert!(!only.seat.is_to_leave(since(60)));
        assert_eq!(kind(places.take(&known("bob"), Instant::now())), "busy");
        assert!(only.seat.is_to_leave(since(60)));
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let (places, start) = (Arc::new(Places::new(Limits::default())), Instant::now());
        let address = |i: usize| Some(IpAddr::from((0x0a00_0000 + i as u32).to_be_bytes()));
        let stays = places.take(&from(address(0)), start).expect("free");
        for i in 1..REMEMBERED + 10 {
            places.take(&from(address(i)), start + Duration::from_secs(i as u64)).expect("free");
        }
        let state = places.lock();
        assert_eq!(state.addresses.len(), REMEMBERED);
        let known = |i| state.addresses.contains_key(&address(i).expect("an address"));
        assert!(known(0) && !known(1) && known(REMEMBERED + 9), "who is there is not forgotten");
        drop(state);
        drop(stays);
    }
}
