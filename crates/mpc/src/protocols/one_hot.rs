//! \[e\], \[r\] <- OneHot: a random r mod N = 2^k, shared by addition, and N shared bits e of which number r alone is set.
//!
//! With it a **public table is looked up at a shared place** i for the opening of δ = i + r: entry i is the sum of e_v·T\[δ − v\],
//! which each party adds up by itself, and as many tables as there are bits to an entry cost nothing more.
//!
//! r = ρ_c ⊕ ρ_s bit by bit. Up to 32 places are made by moving ([`moved`]), for N·k/2 bits of the server's. More of them are an outer product of a
//! quarter as many with four ([`outer`]): N·(k − 2)/8 bits, and 3·N/4 more from either party.
//!
//! The OTs whose choice is ρ_c,t share the products of ρ_c,t and ρ_s,t mod 2^(k−t−1), too, and so r = Σ 2^t·(ρ_c,t + ρ_s,t − 2·ρ_c,t·ρ_s,t) mod 2^k: as in
//! `bit.rs`.
//!
//! Exact. All offline; the client's messages come last ([`OneHot::complete`]):
//!
//! | N | COTs from the server | from the client | bytes down | up |
//! |---|---|---|---|---|
//! | 16 | 4 | 0 | 4.75 | 0 |
//! | 32 | 5 | 0 | 11.25 | 0 |
//! | 64 | 7 | 3 | 12.25 | 6.125 |
//! | 128 | 8 | 3 | 25 | 12.125 |
//! | 256 | 9 | 3 | 51.875 | 24.125 |
//! | 512 | 10 | 3 | 108.875 | 48.125 |
//!
//! **Who learns what.** Every message of the server's is masked by pads of which the client knows one, so ρ_s is uniform to it; every message of
//! the client's by pads of which the server knows one, or by a choice: ρ_c is uniform to the server, and r to both. Bits of
//! a pad: 16 for the product, one for a product of bits, one (the sum of both pads' bit 127) for ρ_s,t, and a string's from [`halves::FIRST`] on.

use jaguar_ot::CotSource;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use crate::cost::Cost;
use crate::error::MpcError;
use crate::party::Party;
use moved::Moved;
use outer::Rest;

mod halves;
mod moved;
mod outer;

/// Places from 2^`OUTER` on are an outer product. (Of 2^6 it saves 7.5 bytes for four COTs; of 2^5 it would save less than two.)
const OUTER: u32 = 6;

/// How 2^`k` places are made: what is moved, and the outer product, if there is one.
const fn forms(k: u32) -> (moved::Form, Option<outer::Form>) {
    if k < OUTER {
        (moved::Form { k, ring: k }, None)
    } else {
        (moved::Form { k: k - 2, ring: k }, Some(outer::Form { low: k - 2 }))
    }
}

/// Prepared places, element by element.
pub(crate) struct OneHot {
    k: u32,
    /// This party's share of e, in [`words`], lowest place first.
    e: Zeroizing<Vec<u64>>,
    /// And of r.
    r: Zeroizing<Vec<u16>>,
    rest: Option<(outer::Form, Rest)>,
}

/// What a preparation costs.
pub(crate) fn cost(count: usize, k: u32) -> Cost {
    let (moved, outer) = forms(k);
    let kept = count * (words(k) * size_of::<u64>() + size_of::<u16>());
    let alone = Cost {
        bits_from_server: u64::from(moved.k) * count as u64,
        client_memory: kept as u64,
        server_memory: kept as u64,
        prepare_down: moved.sent(count) as u64,
        ..Cost::default()
    };
    let product = outer.map(|outer| {
        let [client, server] = outer.kept(count);
        Cost {
            bits_from_server: 3 * count as u64,
            bits_from_client: 3 * count as u64,
            client_memory: client as u64,
            server_memory: server as u64,
            prepare_up: outer.rest(count) as u64,
            prepare_down: outer.sent(count) as u64,
            ..Cost::default()
        }
    });
    alone + product.unwrap_or_default()
}

impl OneHot {
    /// `count` places among 2^`k`, k from 2 to 9. The server sends; what the client sends is left for [`OneHot::complete`].
    pub(crate) fn new<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        k: u32,
    ) -> Result<Self, MpcError> {
        let (form, outer) = forms(k);
        let mut moved = Moved::new(party, chan, count, form)?;
        let (e, rest) = match outer {
            None => {
                let e = moved.e.iter().map(|[low, high]| low | high << form.width()).collect();
                (Zeroizing::new(e), None)
            }
            Some(form) => {
                let (e, rest) = outer::make(party, chan, &mut moved, form)?;
                (e, Some((form, rest)))
            }
        };
        moved.r.iter_mut().for_each(|r| *r &= (1 << k) - 1);
        // The client waits for this.
        chan.flush()?;
        Ok(Self { k, e, r: moved.r, rest })
    }

    /// Sends or takes what the client has to say. Before the places are used, and when the client may send: after all draws.
    pub(crate) fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.rest.take().map_or(Ok(()), |(form, rest)| rest.exchange(chan, form, &mut self.e))
    }

    /// This party's shares of r mod 2^k.
    ///
    /// # Panics
    /// Before [`OneHot::complete`].
    pub(crate) fn masks(&self) -> &[u16] {
        assert!(self.rest.is_none(), "places are completed before they are used");
        &self.r
    }

    /// This party's share of e of one element, moved so that bit w is that of place w + `by` mod N: of 64 bits a word, the lowest
    /// place first.
    pub(crate) fn moved_into(&self, element: usize, by: u64, out: &mut [u64]) {
        let words = words(self.k);
        let e = &self.e[element * words..][..words];
        if self.k < 6 {
            let (n, mask) = (1 << self.k, (1 << (1 << self.k)) - 1);
            out[0] = (e[0] >> by | e[0] << (n - by)) & mask;
            return;
        }
        let (skip, shift) = ((by / 64) as usize, by % 64);
        for (w, out) in out.iter_mut().enumerate() {
            let [low, high] = [0, 1].map(|next| e[(w + skip + next) % words]);
            // (In two steps: nothing may be moved by all 64 bits.)
            *out = low >> shift | (high << (63 - shift)) << 1;
        }
    }
}

/// Words of 64 bits that [`OneHot::moved_into`] fills.
pub(crate) const fn words(k: u32) -> usize {
    (1usize << k).div_ceil(64)
}

#[cfg(test)]
mod tiny;

#[cfg(test)]
mod tests {
    use jaguar_ot::Role;
    use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
    use jaguar_wire::memory_pair;

    use super::*;

    /// Both parties' places, and what they cost.
    fn places(count: usize, k: u32) -> [OneHot; 2] {
        let (mut a, mut b) = memory_pair();
        let cost = cost(count, k);
        let one = |role: Role, chan: &mut Channel| {
            let mut party = Party::new(role, InsecureTestDealer::new(7, role));
            let mut made = OneHot::new(&mut party, chan, count, k).unwrap();
            let down = if role == Role::Server { cost.prepare_down } else { 0 };
            assert_eq!(chan.total().sent, down);
            made.complete(chan).unwrap();
            chan.flush().unwrap();
            assert_eq!(chan.total().sent - down, if role == Role::Client { cost.prepare_up } else { 0 });
            let (sent, received) = party.used();
            let own = if role == Role::Client { [received, sent] } else { [sent, received] };
            assert_eq!(own, [cost.from_server(), cost.from_client()]);
            made
        };
        std::thread::scope(|scope| {
            let server = scope.spawn(|| one(Role::Server, &mut b));
            [one(Role::Client, &mut a), server.join().unwrap()]
        })
    }

    /// The header's table.
    #[test]
    fn costs_are_as_told() {
        const N: usize = 1 << 16;
        let told = |k| {
            let cost = cost(N, k);
            let cots = [cost.from_server(), cost.from_client()].map(|drawn| drawn.bits / N as u64);
            (cots, [cost.prepare_down, cost.prepare_up].map(|bytes| bytes as f64 / N as f64))
        };
        assert_eq!(told(4), ([4, 0], [4.75, 0.0]));
        assert_eq!(told(5), ([5, 0], [11.25, 0.0]));
        assert_eq!(told(6), ([7, 3], [12.25, 6.125]));
        assert_eq!(told(7), ([8, 3], [25.0, 12.125]));
        assert_eq!(told(8), ([9, 3], [51.875, 24.125]));
        assert_eq!(told(9), ([10, 3], [108.875, 48.125]));
    }

    /// One bit is set, that of the place which the other shares add up to; and moving it moves it.
    #[test]
    fn one_place_is_set() {
        for k in 2..=9 {
            let (count, n) = (1500, 1u64 << k);
            let [client, server] = places(count, k);
            let mut seen = vec![0; n as usize];
            for i in 0..count {
                let r = u64::from(client.masks()[i] + server.masks()[i]) % n;
                seen[r as usize] += 1;
                for by in [0, 1, n - 1, i as u64 % n] {
                    let [mut c, mut s] = [vec![0; words(k)], vec![0; words(k)]];
                    client.moved_into(i, by, &mut c);
                    server.moved_into(i, by, &mut s);
                    for w in 0..n {
                        let bit = (c[w as usize / 64] ^ s[w as usize / 64]) >> (w % 64) & 1;
                        assert_eq!(bit == 1, (w + by) % n == r, "{w} + {by}, {r} of {n}");
                    }
                }
            }
            let mean = count as f64 / n as f64;
            assert!(seen.iter().all(|&s| (f64::from(s) - mean).abs() < 6.0 * mean.sqrt() + 3.0), "{seen:?}");
        }
    }
}
