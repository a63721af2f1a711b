//! client: index of the largest <- Argmax(\[x\] mod 2^n), E logits, |x| < 2^(n−2). The server learns nothing,
//! and the client nothing else, not even the values.
//!
//! A tournament of ⌈log2 E⌉ levels over neighbours. Each comparison a ≥ b multiplies the difference of the
//! values and that of their positions, as in `mux.rs`, with one pair of COTs; the last level needs positions
//! only. At the end the server sends its share of the winner's position. Neighbours are compared in order and
//! a tie goes to the former, so **of equal largest logits the first wins**.
//!
//! Exact in the stated range. See [`crate::cost::argmax`].

use jaguar_ot::{CotSource, Role};
use jaguar_wire::{Channel, WireError, pack};
use zeroize::Zeroizing;

use crate::error::{check_count, check_range};
use crate::formula::Formula;
use crate::party::Party;
use crate::relu::ReluParams;
use crate::select::{Select, Shape};
use crate::{MpcError, ring_mask};

/// Bits of a position among `count`.
fn index_bits(count: usize) -> u32 {
    (usize::BITS - count.saturating_sub(1).leading_zeros()).max(1)
}

/// Bytes of the server's last message.
pub(crate) fn index_bytes(count: usize) -> usize {
    pack::packed_len(1, index_bits(count))
}

/// Comparisons of every level, and the widths of what is multiplied.
pub(crate) fn levels(count: usize, bits: u32) -> Vec<(usize, Vec<u32>)> {
    let index = index_bits(count);
    let mut left = count;
    let mut levels = Vec::new();
    while left > 1 {
        let parts = if left == 2 { vec![index] } else { vec![index, bits] };
        levels.push((left / 2, parts));
        left = left.div_ceil(2);
    }
    levels
}

/// A prepared argmax, for one run.
pub struct Argmax {
    role: Role,
    count: usize,
    bits: u32,
    levels: Vec<Select>,
}

impl Argmax {
    /// Prepares an argmax over `count` logits (1..=2^31) mod 2^`bits` (3 to [`crate::WIDEST`]) in
    /// digits of `digit` bits (1..=4).
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        bits: u32,
        digit: u32,
    ) -> Result<Self, MpcError> {
        ReluParams { digit, ..ReluParams::new(bits) }.check()?;
        check_range("number of logits", u32::try_from(count).unwrap_or(u32::MAX), 1..=1 << 31)?;
        let mut prepared = Vec::new();
        for (count, parts) in levels(count, bits) {
            let shape = Shape { parts, out_bits: None, second: None };
            prepared.push(Select::prepare(party, chan, count, Formula::sign(bits, digit, 0), &shape)?);
        }
        Ok(Self { role: party.role(), count, bits, levels: prepared })
    }

    /// The position of the largest logit at the client, `None` at the server; `x` are this party's shares mod
    /// 2^bits.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, x: &[u64]) -> Result<Option<usize>, MpcError> {
        check_count("logits", x.len(), self.count)?;
        let width = index_bits(self.count);
        let mut values = ring_mask(x, self.bits);
        // Positions are public at first: the server's shares are they, the client's are zero.
        let own = u64::from(self.role == Role::Server);
        let mut positions = Zeroizing::new((0..self.count as u64).map(|i| i * own).collect::<Vec<_>>());
        for select in self.levels {
            let last = values.len() == 2;
            let pairs = |v: &[u64], bits| {
                let differences: Vec<u64> =
                    v.chunks_exact(2).map(|pair| pair[0].wrapping_sub(pair[1])).collect();
                ring_mask(&differences, bits)
            };
            let (x, p) = (pairs(&values, self.bits), pairs(&positions, width));
            let parts: &[&[u64]] = if last { &[&p] } else { &[&p, &x] };
            let mut chosen = select.run(chan, &x, parts)?.values.into_iter();
            positions = advance(&positions, &chosen.next().expect("positions"), width);
            values = match chosen.next() {
                Some(chosen) => advance(&values, &chosen, self.bits),
                None => Zeroizing::default(),
            };
        }
        if self.count == 1 {
            return Ok((self.role == Role::Client).then_some(0));
        }
        match self.role {
            Role::Server => {
                chan.send_packed(&positions, width)?;
                chan.flush()?;
                Ok(None)
            }
            Role::Client => {
                let theirs = chan.recv_packed(1, width)?[0];
                let index = (theirs.wrapping_add(positions[0]) & (u64::MAX >> (64 - width))) as usize;
                if index >= self.count {
                    let expected = format!("less than {}", self.count);
                    return Err(
                        WireError::misbehaved("position of the largest logit", index, expected).into()
                    );
                }
                Ok(Some(index))
            }
        }
    }
}

/// The next level's values: the second of each pair plus what was chosen of the difference, then the odd one.
fn advance(values: &[u64], chosen: &[u64], bits: u32) -> Zeroizing<Vec<u64>> {
    let pairs = values.chunks_exact(2);
    let odd = pairs.remainder();
    let next: Vec<u64> =
        pairs.zip(chosen).map(|(pair, c)| pair[1].wrapping_add(*c)).chain(odd.iter().copied()).collect();
    ring_mask(&next, bits)
}
