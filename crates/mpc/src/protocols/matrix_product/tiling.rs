//! How the cross terms of a matrix triple lie in ciphertexts: public figures, of which bytes and noise follow.
//!
//! The client has X, n × k, in ciphertexts, the server W, k × m. Both are cut into blocks, of `tile_rows` rows, K =
//! 2^`gap_log2` columns of X, and `tile_columns` columns of W, with `tile_rows·tile_columns·K ≤ N` (Cheetah, section
//! 3.1):
//!
//! ```text
//! x̂[i·M·K + j] = X[i, j]      ŵ[l·K − j] = W[j, l], X^N = −1      (x̂·ŵ)[(i·M + l)·K] = Σ_j X[i, j]·W[j, l]
//! ```
//!
//! A *response* is the sum over blocks of k. It has results at multiples of K only; R = 2^`pack_log2` ≤ K responses make
//! one *pack*, the r-th with its results K/R·r behind those multiples ([`super::triple`]). More packs take a short a
//! half each, a larger R keys of more automorphisms: [`Layout::new`] weighs them.
//!
//! *Small matrices of a batch* share a ciphertext: T of them with T·k ≤ K, side by side in its stretches of K. The t-th,
//! X_t, meets the W of its own:
//!
//! ```text
//! x̂[i·M·K + t·k + j] = X_t[i, j]      ŵ_t[l·K − t·k − j] = W_t[j, l]      (x̂·ŵ_t)[(i·M + l)·K] = Σ_j X_t[i, j]·W_t[j, l]
//! ```
//!
//! for what X_u and W_t have in common lies t·k + j − u·k − j' from a multiple of K, which is less than K and zero only
//! where u = t. So rows that are each multiplied by a number (n = k = 1, `rows.rs`) fill ciphertexts.

use jaguar_ring::he::params::RnsParameters;
use jaguar_ring::he::rns::Noise;
use jaguar_wire::pack;

use crate::cost::Cost;
use crate::semantics::Matrices;

/// What a correlation takes beside bytes: about as long as so many on a link of some 20 MB/s.
const COT: u64 = 1;

/// Bits of the a half of a pack beyond those of a share, and of its b half.
pub(super) const A_MORE: u32 = 8;
pub(super) const B_MORE: u32 = 4;

/// Rings that may be taken: N, and how many primes. The first that has room is.
const RINGS: [(usize, usize); 3] = [(4096, 2), (8192, 3), (8192, 4)];
/// Bits of a prime.
const PRIME_BITS: std::ops::RangeInclusive<u32> = 32..=53;
/// A key switch takes as much as so many bytes take on a link of some 20 MB/s.
const SWITCH: u64 = 4096;
/// Bytes of a seed.
pub(super) const SEED: usize = 32;

/// One cross term: the client's matrices, n × k, times the server's, k × m.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tiling {
    pub batch: usize,
    pub rows: usize,
    pub inner: usize,
    pub columns: usize,
    pub tile_rows: usize,
    pub tile_columns: usize,
    pub gap_log2: u32,
    /// R, responses of a pack, as a power of two: K at most.
    pub pack_log2: u32,
    /// T: of the batch, how many share a ciphertext. More than one only where `together·inner` is at most the gap.
    pub together: usize,
}

impl Tiling {
    /// K: columns of a block of X.
    pub fn gap(&self) -> usize {
        1 << self.gap_log2
    }

    /// R: responses of a pack.
    pub fn packed(&self) -> usize {
        1 << self.pack_log2
    }

    /// log2 K/R: how far the results of a pack's neighbours lie apart.
    pub fn apart_log2(&self) -> u32 {
        self.gap_log2 - self.pack_log2
    }

    /// Automorphisms that its packs take, each by log2 h as a bit.
    fn automorphisms(&self) -> u32 {
        (1 << self.gap_log2) - (1 << self.apart_log2())
    }

    pub fn row_blocks(&self) -> usize {
        self.rows.div_ceil(self.tile_rows)
    }

    pub fn inner_blocks(&self) -> usize {
        self.inner.div_ceil(self.gap())
    }

    pub fn column_blocks(&self) -> usize {
        self.columns.div_ceil(self.tile_columns)
    }

    /// Of the client, `[batch / T][row block][inner block]`.
    pub fn ciphertexts(&self) -> usize {
        self.batch.div_ceil(self.together) * self.row_blocks() * self.inner_blocks()
    }

    /// The first ciphertext of a row block of one of the batch; its other inner blocks follow.
    pub fn ciphertext(&self, batch: usize, row: usize) -> usize {
        (batch / self.together * self.row_blocks() + row) * self.inner_blocks()
    }

    /// Where in a stretch of K the numbers of one of the batch begin.
    pub fn lane(&self, batch: usize) -> usize {
        batch % self.together * self.inner
    }

    /// `[batch][column block][row block]`.
    pub fn responses(&self) -> usize {
        self.batch * self.column_blocks() * self.row_blocks()
    }

    pub fn packs(&self) -> usize {
        self.responses().div_ceil(self.packed())
    }

    /// The numbers of a pack's responses.
    pub fn pack(&self, number: usize) -> std::ops::Range<usize> {
        number * self.packed()..((number + 1) * self.packed()).min(self.responses())
    }

    /// Of a response: which of the batch, which columns of W, which rows of X.
    pub fn place(&self, response: usize) -> (usize, usize, usize) {
        let (rows, columns) = (self.row_blocks(), self.column_blocks());
        (response / (rows * columns), response / rows % columns, response % rows)
    }

    /// Of a response: rows and columns of its block that there are.
    pub fn size(&self, response: usize) -> (usize, usize) {
        let (_, column, row) = self.place(response);
        let rows = self.tile_rows.min(self.rows - row * self.tile_rows);
        (rows, self.tile_columns.min(self.columns - column * self.tile_columns))
    }

    /// The results of a pack in the order in which they are sent: the coefficient, and which of `[batch][n][m]`.
    pub fn results(&self, pack: usize) -> impl Iterator<Item = (usize, [usize; 3])> + '_ {
        let first = pack * self.packed();
        self.pack(pack).flat_map(move |response| {
            let (batch, column, row) = self.place(response);
            let (rows, columns) = self.size(response);
            (0..rows).flat_map(move |i| {
                (0..columns).map(move |l| {
                    let behind = (response - first) << self.apart_log2();
                    let coefficient = (i * self.tile_columns + l) * self.gap() + behind;
                    (coefficient, [batch, row * self.tile_rows + i, column * self.tile_columns + l])
                })
            })
        })
    }

    /// How many results a pack has.
    pub fn count(&self, pack: usize) -> usize {
        self.pack(pack).map(|response| self.size(response)).map(|(rows, columns)| rows * columns).sum()
    }

    /// Key switches of all packs: one for each two that are joined, and for each that is alone.
    fn switches(&self) -> u64 {
        let of = |responses: usize| {
            let levels = (0..self.pack_log2).map(|level| responses.min(self.packed() >> (level + 1)));
            levels.sum::<usize>() as u64
        };
        let (whole, rest) = (self.responses() / self.packed(), self.responses() % self.packed());
        whole as u64 * of(self.packed()) + of(rest)
    }

    /// Bytes that its key switches count as.
    pub fn switching(&self) -> u64 {
        self.switches() * SWITCH
    }

    /// All sensible ones: for each K and R the one of the least bytes, with these bytes, key switches counted as such and
    /// keys left out.
    fn sensible([batch, rows, inner, columns]: [usize; 4], n: usize, prices: &Prices) -> Vec<(u64, Self)> {
        let mut all = Vec::new();
        let largest = inner.saturating_mul(batch).min(n).next_power_of_two().min(n).ilog2();
        for gap_log2 in 0..=largest {
            let room = n >> gap_log2;
            // A wider gap than one matrix takes is for several.
            let alone = gap_log2 == 0 || inner > 1 << (gap_log2 - 1);
            let together = ((1 << gap_log2) / inner).min(batch);
            if !alone && together < 2 {
                continue;
            }
            let together = together.max(1);
            let most = rows.min(room);
            let tile_rows = rows.div_ceil(rows.div_ceil(most));
            let widest = (room / tile_rows).min(columns);
            for pack_log2 in 0..=gap_log2 {
                let tilings = (0..=widest.ilog2()).map(|log2| {
                    let tile_columns = columns.div_ceil(columns.div_ceil((widest >> log2).max(1)));
                    let tiling = Self {
                        batch,
                        rows,
                        inner,
                        columns,
                        tile_rows,
                        tile_columns,
                        gap_log2,
                        pack_log2,
                        together,
                    };
                    let price = tiling.ciphertexts() as u64 * prices.ciphertext
                        + tiling.packs() as u64 * prices.a_half
                        + tiling.switching();
                    (price, tiling)
                });
                all.extend(tilings.min_by_key(|(price, _)| *price));
            }
        }
        all
    }

    /// Of all sensible ones of each size those that take the least bytes together: keys are shared.
    fn best(sizes: &[[usize; 4]], n: usize, prices: &Prices) -> Vec<Self> {
        let each: Vec<_> = sizes.iter().map(|&sizes| Self::sensible(sizes, n, prices)).collect();
        let mut best: (u64, Vec<Self>) = (u64::MAX, Vec::new());
        let mut chosen = Vec::new();
        Self::cheaper(&each, prices, (0, 0), &mut chosen, &mut best);
        best.1
    }

    /// Goes through all that go with what is `chosen` and was paid for, bytes and automorphisms.
    fn cheaper(
        each: &[Vec<(u64, Self)>],
        prices: &Prices,
        (bytes, automorphisms): (u64, u32),
        chosen: &mut Vec<Self>,
        best: &mut (u64, Vec<Self>),
    ) {
        let Some((first, others)) = each.split_first() else {
            let price = bytes + u64::from(automorphisms.count_ones()) * prices.key;
            if price < best.0 {
                *best = (price, chosen.clone());
            }
            return;
        };
        for (price, tiling) in first {
            chosen.push(*tiling);
            let paid = (bytes + price, automorphisms | tiling.automorphisms());
            Self::cheaper(others, prices, paid, chosen, best);
            chosen.pop();
        }
    }
}

/// Bytes, roughly.
struct Prices {
    ciphertext: u64,
    a_half: u64,
    key: u64,
}

/// The ring, and the cross terms in it.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub parameters: RnsParameters,
    /// Bits of each prime.
    pub prime_bits: u32,
    /// Bits of a digit of key switches.
    pub digit_bits: u32,
    /// L: what is shared is modulo 2^L.
    pub ring_bits: u32,
    /// r: of shares of the cross terms the upper r of L bits are made, and zeros below.
    pub made_bits: u32,
    /// The client's A times the server's B, and the client's Bᵀ times the server's Aᵀ; of rows by themselves one alone.
    pub terms: Vec<Tiling>,
}

impl Layout {
    /// For matrices in which there is something. `None` where no ring on record has room for the noise.
    pub fn new(of: &Matrices, ring_bits: u32, made_bits: u32) -> Option<Self> {
        let terms = [[of.batch, of.rows, of.inner, of.columns], [of.batch, of.columns, of.inner, of.rows]];
        Self::of_terms(&terms, ring_bits, made_bits)
    }

    /// For cross terms of these sizes: how many side by side, n, k and m. In the first ring on record that has room, the
    /// one of the least bytes.
    pub fn of_terms(terms: &[[usize; 4]], ring_bits: u32, made_bits: u32) -> Option<Self> {
        RINGS.iter().find_map(|&(n, primes)| {
            // Whole primes for a digit, or halves.
            let layouts = [1, 2].into_iter().filter_map(|parts| {
                let poly = |bits: u32| pack::packed_len(n * primes, bits) as u64;
                let ciphertext = poly(2 * ring_bits / primes as u32);
                let prices = Prices {
                    ciphertext,
                    a_half: pack::packed_len(n, made_bits + A_MORE) as u64,
                    key: primes as u64 * parts * ciphertext,
                };
                let terms = Tiling::best(terms, n, &prices);
                // The fewest bits that have room.
                PRIME_BITS.into_iter().find_map(|prime_bits| {
                    let parameters = RnsParameters::search(n, prime_bits, primes).ok()?;
                    let digit_bits = prime_bits.div_ceil(parts as u32);
                    let terms = terms.clone();
                    let layout = Self { parameters, prime_bits, digit_bits, ring_bits, made_bits, terms };
                    (8.0 * layout.deviation() <= 1.0).then_some(layout)
                })
            });
            layouts.min_by_key(Self::price)
        })
    }

    /// What passes before the input.
    pub fn cost(&self) -> Cost {
        let [prepare_up, prepare_down] =
            [self.upload_bytes(), self.response_bytes()].map(|bytes| bytes as u64);
        Cost { prepare_up, prepare_down, ..Cost::default() }
    }

    /// Bytes before the input, and key switches counted as bytes.
    fn price(&self) -> u64 {
        let switching: u64 = self.terms.iter().map(Tiling::switching).sum();
        (self.upload_bytes() + self.response_bytes()) as u64 + switching
    }

    /// Whether it is cheaper than another way, which takes correlations.
    pub fn pays(&self, other: &Cost) -> bool {
        self.price() < other.prepare_up + other.prepare_down + COT * other.bits_from_server
    }

    /// N: coefficients of a polynomial.
    pub fn n(&self) -> usize {
        self.parameters.ring_dim()
    }

    /// How many digits a polynomial has for key switches.
    pub fn digits(&self) -> usize {
        self.parameters.primes().len() * self.prime_bits.div_ceil(self.digit_bits) as usize
    }

    /// Automorphisms that packs take: log2 of the distance h of the two results that one tells apart, and N/h + 1.
    pub fn elements(&self) -> impl Iterator<Item = (u32, usize)> {
        let n = self.n();
        let all = self.terms.iter().fold(0, |all, term| all | term.automorphisms());
        (0..n.ilog2()).filter(move |log2| all >> log2 & 1 == 1).map(move |log2| (log2, (n >> log2) + 1))
    }

    /// The standard deviation of a share's error, but for its own rounding, in units of its last place.
    pub fn deviation(&self) -> f64 {
        let n = self.n();
        let of = |term: &Tiling| {
            // (Of the largest numbers that the server may draw.)
            let squares = (term.inner * term.tile_columns) as f64 * 4f64.powi(self.ring_bits as i32 - 1);
            let levels = (4f64.powi(term.pack_log2 as i32) - 1.0) / 3.0;
            let switched = Noise::of_digits(n, self.digits(), self.digit_bits).multiply(levels);
            let all = Noise::fresh().multiply(squares) + switched + Noise::fresh_public(n);
            let modulus: f64 = self.parameters.primes().iter().map(|&p| (p as f64).log2()).sum();
            all.deviation() * (f64::from(self.made_bits) - modulus).exp2()
        };
        let secret = 2.0 * n as f64 / 3.0;
        let rounded = [(secret, A_MORE), (1.0, B_MORE)]
            .map(|(squares, more)| squares / 12.0 * 4f64.powi(-(more as i32)))
            .iter()
            .sum::<f64>();
        let largest = self.terms.iter().map(of).fold(0.0, f64::max);
        (largest * largest + rounded).sqrt()
    }

    /// How large a b half of the client's is.
    pub fn poly_bytes(&self) -> usize {
        pack::packed_len(self.n() * self.parameters.primes().len(), self.prime_bits)
    }

    /// From the client: its public key, the keys of the automorphisms, and its matrices.
    pub fn upload_bytes(&self) -> usize {
        let keys = self.elements().count() * (SEED + self.digits() * self.poly_bytes());
        let ciphertexts: usize = self.terms.iter().map(Tiling::ciphertexts).sum();
        keys + (1 + ciphertexts) * (SEED + self.poly_bytes())
    }

    /// From the server.
    pub fn response_bytes(&self) -> usize {
        let a = pack::packed_len(self.n(), self.made_bits + A_MORE);
        let b = |count: usize| pack::packed_len(count, self.made_bits + B_MORE);
        let of = |term: &Tiling| (0..term.packs()).map(|pack| a + b(term.count(pack))).sum::<usize>();
        self.terms.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each result is somewhere, once, and no two of a pack at the same place.
    #[test]
    fn all_results_are_sent_once() {
        let rows = [[197, 1, 1, 192], [197, 192, 1, 1], [5, 1, 1, 70], [9, 3, 2, 2]];
        let others = [[3, 5, 7, 2], [1, 1, 1, 1], [2, 197, 64, 3], [1, 64, 197, 70], [2, 300, 3, 1]];
        for sizes in others.into_iter().chain(rows) {
            let [batch, rows, inner, columns] = sizes;
            for n in [64, 4096] {
                let prices = Prices { ciphertext: 50_000, a_half: 20_000, key: 100_000 };
                let tiling = Tiling::best(&[sizes], n, &prices)[0];
                assert!(tiling.pack_log2 <= tiling.gap_log2);
                assert!(tiling.tile_rows * tiling.tile_columns * tiling.gap() <= n, "{tiling:?}");
                assert!(tiling.inner_blocks() * tiling.gap() >= inner);
                assert!(tiling.together == 1 || tiling.together * inner <= tiling.gap(), "{tiling:?}");
                let mut seen = vec![0; batch * rows * columns];
                for pack in 0..tiling.packs() {
                    let mut taken = vec![false; n];
                    let mut count = 0;
                    for (coefficient, [b, row, column]) in tiling.results(pack) {
                        assert!(!std::mem::replace(&mut taken[coefficient], true));
                        seen[(b * rows + row) * columns + column] += 1;
                        count += 1;
                    }
                    assert_eq!(count, tiling.count(pack));
                }
                assert!(seen.iter().all(|&times| times == 1), "{tiling:?}");
            }
        }
    }

    /// Every set is on record with 128 bits, and its noise is below an eighth of a unit.
    #[test]
    fn all_widths_have_a_ring_on_record() {
        let attention = Matrices { batch: 3, rows: 197, inner: 64, columns: 197, transposed: [false; 2] };
        let usual = Layout::new(&attention, 42, 38).unwrap();
        assert_eq!((usual.n(), usual.prime_bits, usual.digit_bits), (4096, 44, 22), "{usual:?}");
        for out in [16, 24, 28, 36] {
            for shift in [1, 8, 12, 20, 22] {
                let (ring, made) = (out + shift, out + shift.min(super::super::SLACK));
                let layout = Layout::new(&attention, ring, made).unwrap_or_else(|| panic!("{out} + {shift}"));
                assert!(layout.parameters.is_secure() && layout.deviation() <= 0.125);
            }
        }
    }
}
