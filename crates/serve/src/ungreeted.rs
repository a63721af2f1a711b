//! Connections that have not greeted: there are few of them at a time, and no stranger keeps the others out.
//!
//! Each address has a share of the places, and so has each range of addresses (the first 24 bits of IPv4, the first 48 of IPv6). Who
//! comes when its share, or all of it, is taken has the place of another: of whoever has the most of them, that which has said
//! nothing, for the longest. So who connects and is silent loses its place to the next one, and who greets at once keeps its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jaguar_net::Line;

use crate::places::customer;

/// A connection, as far as the pool has to do with it.
pub(crate) trait Held: Send {
    /// Whether anything came over it.
    fn has_spoken(&self) -> bool;

    /// Cuts it, whatever its thread waits for.
    fn cut(&self);
}

impl Held for Line {
    fn has_spoken(&self) -> bool {
        self.has_spoken()
    }

    fn cut(&self) {
        self.cut();
    }
}

/// All connections that have not greeted.
#[derive(Default)]
pub(crate) struct Ungreeted {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    came: u64,
    /// By the order in which they came.
    there: BTreeMap<u64, One>,
    /// How many have lost their place, and whose threads have not ended yet.
    leaving: usize,
}

struct One {
    from: From,
    line: Box<dyn Held>,
}

/// Where one comes from; none of a Unix socket's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct From {
    address: Option<IpAddr>,
    range: Option<IpAddr>,
}

/// The place of a connection that has not greeted, free again when dropped.
pub(crate) struct Waiting {
    pool: Arc<Ungreeted>,
    number: u64,
}

impl Waiting {
    /// Gives the place back. False: it was lost to another, and the connection is cut.
    pub(crate) fn leave(self) -> bool {
        self.is_there()
    }

    /// Whether it was not lost to another.
    pub(crate) fn is_there(&self) -> bool {
        self.pool.lock().there.contains_key(&self.number)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if state.there.remove(&self.number).is_none() {
            state.leaving -= 1;
        }
    }
}

impl Ungreeted {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection from `ip` greet, as one of `limit`, a quarter of one address and half of one range at most. Another may lose
    /// its place to it. None: too many that did have not ended yet.
    pub(crate) fn enter(
        self: &Arc<Self>,
        ip: Option<IpAddr>,
        line: impl Held + 'static,
        limit: usize,
    ) -> Option<Waiting> {
        let from = From { address: ip.map(customer), range: ip.map(range) };
        let mut state = self.lock();
        let full = state.of(|it| it.address == from.address) >= limit.div_ceil(4)
            || state.of(|it| it.range == from.range) >= limit.div_ceil(2)
            || state.there.len() >= limit;
        if full {
            if state.leaving >= limit {
                return None;
            }
            let within = if state.of(|it| it.address == from.address) >= limit.div_ceil(4) {
                state.worst(|it| it.address == from.address)
            } else if state.of(|it| it.range == from.range) >= limit.div_ceil(2) {
                state.worst(|it| it.range == from.range)
            } else {
                state.worst(|_| true)
            };
            let lost = within.and_then(|number| state.there.remove(&number))?;
            lost.line.cut();
            state.leaving += 1;
        }
        state.came += 1;
        let number = state.came;
        state.there.insert(number, One { from, line: Box::new(line) });
        Some(Waiting { pool: self.clone(), number })
    }
}

impl State {
    /// How many there are of some.
    fn of(&self, some: impl Fn(&From) -> bool) -> usize {
        self.there.values().filter(|one| some(&one.from)).count()
    }

    /// Of some, the one that loses its place first.
    fn worst(&self, some: impl Fn(&From) -> bool) -> Option<u64> {
        let candidates = self.there.iter().filter(|(_, one)| some(&one.from));
        let order = |(number, one): &(&u64, &One)| {
            let of_range = self.of(|it| it.range == one.from.range);
            let of_address = self.of(|it| it.address == one.from.address);
            (usize::MAX - of_range, usize::MAX - of_address, one.line.has_spoken(), **number)
        };
        candidates.min_by_key(order).map(|(number, _)| *number)
    }
}

/// What addresses have in common that one network gives out.
fn range(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() >> 8 << 8)),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Clone, Default)]
    struct Double(Arc<[AtomicBool; 2]>);

    impl Double {
        fn speaks(&self) {
            self.0[0].store(true, Ordering::SeqCst);
        }

        fn is_cut(&self) -> bool {
            self.0[1].load(Ordering::SeqCst)
        }
    }

    impl Held for Double {
        fn has_spoken(&self) -> bool {
            self.0[0].load(Ordering::SeqCst)
        }

        fn cut(&self) {
            self.0[1].store(true, Ordering::SeqCst);
        }
    }

    /// A pool of 8, and who came to it.
    #[derive(Default)]
    struct Site {
        pool: Arc<Ungreeted>,
        came: Vec<(Double, Option<Waiting>)>,
    }

    impl Site {
        fn comes(&mut self, ip: &str) -> usize {
            let (ip, line) = (ip.parse().ok(), Double::default());
            let place = self.pool.enter(ip, line.clone(), 8);
            self.came.push((line, place));
            self.came.len() - 1
        }

        /// Those that lost their place, in the order in which they came.
        fn cut(&self) -> Vec<usize> {
            (0..self.came.len()).filter(|&i| self.came[i].0.is_cut()).collect()
        }
    }

    #[test]
    fn silent_ones_of_many_addresses_keep_nobody_out() {
        let mut it = Site::default();
        // Two of each of four ranges: all places, and no share is used up.
        for i in 0..8 {
            it.comes(&format!("192.0.{}.1", i % 4));
        }
        assert!(it.cut().is_empty());
        for round in 0..20 {
            let honest = it.comes("198.51.100.7");
            assert!(it.came[honest].1.is_some(), "round {round}");
            it.came[honest].0.speaks();
            // Before it has greeted, the strangers come again.
            for i in 0..8 {
                it.comes(&format!("192.0.{}.1", i % 4));
            }
            assert!(!it.came[honest].0.is_cut(), "round {round}");
            assert!(it.came[honest].1.take().expect("a place").leave());
        }
        let first = &it.cut()[..4];
        assert_eq!(first, [0, 1, 2, 3], "the oldest first");
    }

    #[test]
    fn shares_of_addresses_and_ranges() {
        let mut it = Site::default();
        it.comes("192.0.2.1");
        it.comes("::ffff:192.0.2.1");
        it.comes("192.0.2.1");
        assert_eq!(it.cut(), [0], "a quarter of them for one address");
        it.comes("192.0.2.2");
        it.comes("192.0.2.3");
        it.comes("192.0.2.4");
        assert_eq!(it.cut(), [0, 1], "half for a range: of the address that has the most");
        it.comes("192.0.3.1");
        it.comes("2001:db8:1:1::1");
        it.comes("2001:db8:1:1::2");
        it.comes("2001:db8:1:2::1");
        assert_eq!(it.cut(), [0, 1], "eight are there");
        it.comes("2001:db8:1:1::3");
        assert_eq!(it.cut(), [0, 1, 7], "of one network of 64 bits");
        it.came.clear();
        let state = it.pool.lock();
        assert_eq!((state.there.len(), state.leaving), (0, 0), "nothing is remembered of who has gone");
    }

    #[test]
    fn who_has_said_something_stays_longer() {
        let mut it = Site::default();
        let speaks = it.comes("192.0.2.1");
        it.came[speaks].0.speaks();
        it.comes("192.0.2.1");
        it.comes("192.0.2.1");
        assert_eq!(it.cut(), [1]);
        it.comes("192.0.2.1");
        it.came[3].0.speaks();
        it.comes("192.0.2.1");
        assert_eq!(it.cut(), [0, 1, 2], "of those that have, the oldest");
    }

    #[test]
    fn threads_are_bounded_too() {
        let mut it = Site::default();
        for _ in 0..30 {
            it.comes("192.0.2.1");
        }
        // Two are there, and eight were cut whose threads have not ended.
        assert_eq!(it.came.iter().filter(|(_, place)| place.is_some()).count(), 10);
        it.came.drain(..4);
        assert!(it.pool.enter(None, Double::default(), 8).is_some());
        let last = it.comes("192.0.2.1");
        assert!(it.came[last].1.is_some());
    }
}
