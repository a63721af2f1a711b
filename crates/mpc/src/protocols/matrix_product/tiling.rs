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
//! (What is computed with is X^(1 − K)·x̂ and X^(K − 1)·ŵ: that begins at 1, and has M·K coefficients.) A *response* is the sum over blocks of k. It has results at multiples of K only; R = 2^`pack_log2` ≤ K responses make
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
//!
//! *The same rows by themselves* (`twice.rs`) need no other ciphertexts than those of rows by numbers, where row t has its
//! numbers at i·K + t: a polynomial with those of W at the negatives of these places has the sum of their products at 0,
//!
//! ```text
//! x̂[i·K + t] = X_t[i]      ŵ_t[−i·K − t] = W_t[i], X^N = −1      (x̂·ŵ_t)[0] = Σ_i X_t[i]·W_t[i]
//! ```
//!
//! for no two places of a ciphertext differ by a multiple of N. Where a row is cut into blocks, their products are added up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use jaguar_ring::he::params::RnsParameters;
use jaguar_ring::he::rns::{DrawnMessages, JointKeys, Noise};
use jaguar_wire::pack;

use crate::cost::Cost;
use crate::semantics::Matrices;

/// What a correlation takes beside bytes: about as long as so many on a link of some 20 MB/s.
const COT: u64 = 1;

/// Bits of a pack beyond those of a share.
pub(super) const MORE: u32 = 8;

/// Rings that may be taken: N, how many primes, and bits of each. All are on record with 128
/// bits. Primes of 51 bits are nearly as fast as smaller ones, those of 53 a third as fast; those of the last are
/// of 42, for offsets are computed below 2^126. Few rings, for keys are shared by all products of a query in one.
pub(super) const RINGS: [(usize, usize, u32); 3] = [(4096, 2, 51), (4096, 2, 53), (8192, 3, 42)];
/// The first ring that has room is taken, and where shares are made of no more than so many bits: of more bits packs have
/// few responses, for noise of key switches.
const MADE: [u32; 3] = [39, 43, u64::BITS];
/// A key switch takes as long as so many bytes take on a link of some 20 MB/s, modulo each prime, for each transform of 8192 words: back,
/// and of each digit; and for two more, which is what all else takes.
const SWITCH: u64 = 256;
/// Digits of a prime for key switches: the whole, or halves.
pub(super) const DIGITS: [u32; 2] = [1, 2];
/// How many packs may share an a half, each under a secret of its own.
pub(super) const SECRETS: [usize; 2] = [1, 4];
/// How many products of a query share a key, when tiles are weighed.
const SHARING: u64 = 8;
/// Most bits of an offset that are rounded off.
const MOST_DROPPED: u32 = 60;
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
    /// Lowest bits of a ciphertext's offsets that are not sent: as many as noise has room for.
    pub dropped: u32,
    /// The client's numbers are modulo 2^`bits`.
    pub bits: u32,
    /// The products are modulo 2^(`bits` − `above`): the server's numbers are multiplied by 2^`above`.
    pub above: u32,
    /// Of rows by themselves that have no ciphertexts of their own: how they lie in those of rows by numbers.
    pub lent: Option<Lent>,
}

/// How rows by numbers lie in the client's ciphertexts ([`Tiling`] of these).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lent {
    pub gap_log2: u32,
    pub tile_rows: usize,
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

    /// How many coefficients a polynomial of W times X^(K − 1) has: M·K, rounded up to a power of two.
    pub fn support(&self) -> usize {
        (self.tile_columns << self.gap_log2).next_power_of_two()
    }

    pub fn row_blocks(&self) -> usize {
        self.rows.div_ceil(self.tile_rows)
    }

    pub fn inner_blocks(&self) -> usize {
        self.inner.div_ceil(self.lent.map_or(self.gap(), |lent| lent.tile_rows))
    }

    /// The products are modulo 2 to this.
    pub fn product_bits(&self) -> u32 {
        self.bits - self.above
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

    /// Whether the client's number at a coefficient must be zero, in a ring of `n`: what stands there would meet
    /// numbers of W at other results. Where it need not be it is drawn, whether it means anything or not.
    pub fn is_zero(&self, n: usize, coefficient: usize) -> bool {
        let block = coefficient >> self.gap_log2;
        !block.is_multiple_of(self.tile_columns) || block + self.tile_columns > n >> self.gap_log2
    }

    /// How many coefficients of a ciphertext must be zero.
    pub fn zeros(&self, n: usize) -> usize {
        n - (((n >> self.gap_log2) / self.tile_columns) << self.gap_log2)
    }

    /// Whether the products of this term and of the transposed `other` lie alike, response by response: so they are
    /// added up before they are packed. Of vectors they may.
    fn joins(&self, other: &Self) -> bool {
        let own = (self.gap_log2, self.pack_log2, self.tile_rows, self.tile_columns);
        let others = (other.gap_log2, other.pack_log2, other.tile_columns, other.tile_rows);
        own == others && (self.rows == 1 || self.columns == 1)
    }
}

/// What [`Layout::of_terms`] and [`Layout::of_rows`] are asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sought {
    /// How many side by side, n, k and m.
    terms: Vec<[usize; 4]>,
    ring_bits: u32,
    made_bits: u32,
    /// Where the second term's rows are taken by themselves too: modulo 2 to this.
    squared: Option<u32>,
}

/// What it found before: a search takes a millisecond, and plans and preparations ask ten times for each of a few.
static FOUND: Mutex<BTreeMap<Sought, Option<Layout>>> = Mutex::new(BTreeMap::new());

/// How many of these are kept, for a peer's networks may have any number.
const MOST_FOUND: usize = 256;

/// The ring, and the cross terms in it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Layout {
    pub parameters: RnsParameters,
    /// Bits of each prime.
    pub prime_bits: u32,
    /// Bits of a digit of key switches.
    pub digit_bits: u32,
    /// How many packs share an a half. If more than one, in the ring without its last prime.
    pub secrets: usize,
    /// r: of shares of the cross terms the upper r of L bits are made, and zeros below.
    pub made_bits: u32,
    /// The client's A times the server's B, and the client's Bᵀ times the server's Aᵀ; of rows by themselves one alone.
    pub terms: Vec<Tiling>,
    /// Rows by themselves, for which the ciphertexts of the second term serve again.
    pub squares: Option<Tiling>,
}

impl Layout {
    /// For matrices in which there is something. `None` where no ring on record has room for the noise.
    pub fn new(of: &Matrices, ring_bits: u32, made_bits: u32) -> Option<Self> {
        let terms = [[of.batch, of.rows, of.inner, of.columns], [of.batch, of.columns, of.inner, of.rows]];
        Self::of_terms(&terms, ring_bits, made_bits)
    }

    /// For cross terms of these sizes, one or two that are each other's transposed: how many side by side, n, k and
    /// m. In the first ring on record that has room ([`MADE`]), the one of the least bytes.
    pub fn of_terms(terms: &[[usize; 4]], ring_bits: u32, made_bits: u32) -> Option<Self> {
        Self::found(Sought { terms: terms.to_vec(), ring_bits, made_bits, squared: None })
    }

    /// For rows by numbers modulo 2^`ring_bits`, and the same rows by themselves modulo 2^`squared`, which is no less.
    pub fn of_rows(
        rows: usize,
        columns: usize,
        ring_bits: u32,
        squared: u32,
        made_bits: u32,
    ) -> Option<Self> {
        let terms = vec![[rows, 1, 1, columns], [rows, columns, 1, 1]];
        Self::found(Sought { terms, ring_bits, made_bits, squared: Some(squared) })
    }

    /// What was found before, or is now.
    fn found(sought: Sought) -> Option<Self> {
        let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found().get(&sought) {
            return known.clone();
        }
        let layout = Self::search(&sought);
        let mut found = found();
        if found.len() == MOST_FOUND {
            found.clear();
        }
        found.insert(sought, layout.clone());
        layout
    }

    /// The same, anew.
    fn search(sought: &Sought) -> Option<Self> {
        let mut rings = RINGS.into_iter().zip(MADE).filter(|&(_, most)| sought.made_bits <= most);
        rings.find_map(|(ring, _)| {
            let kinds = DIGITS.into_iter().flat_map(|digits| SECRETS.map(|secrets| (digits, secrets)));
            let layouts = kinds.filter_map(|kind| Self::of(sought, ring, kind));
            layouts.min_by_key(Self::price)
        })
    }

    /// The same in one ring, with so many digits for a prime and so many secrets.
    #[cfg(test)]
    pub fn of_kind(
        terms: &[[usize; 4]],
        ring_bits: u32,
        made_bits: u32,
        ring: (usize, usize, u32),
        kind: (u32, usize),
    ) -> Option<Self> {
        Self::of(&Sought { terms: terms.to_vec(), ring_bits, made_bits, squared: None }, ring, kind)
    }

    fn of(
        sought: &Sought,
        (n, primes, prime_bits): (usize, usize, u32),
        (digits, secrets): (u32, usize),
    ) -> Option<Self> {
        let parameters = RnsParameters::search(n, prime_bits, primes).ok()?;
        let digit_bits = prime_bits.div_ceil(digits);
        let made_bits = sought.made_bits;
        let empty =
            Self { parameters, prime_bits, digit_bits, secrets, made_bits, terms: Vec::new(), squares: None };
        let (terms, squares) = empty.best(sought)?;
        Some(Self { terms, squares, ..empty })
    }

    /// All sensible tilings of a term: for each K and R the one of the least bytes, with key switches counted as such
    /// and keys left out. Its noise takes no more than one of `parts` of the room.
    fn sensible(
        &self,
        [batch, rows, inner, columns]: [usize; 4],
        (bits, above): (u32, u32),
        parts: usize,
    ) -> Vec<Tiling> {
        let n = self.n();
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
                let tilings = (0..=widest.ilog2()).filter_map(|log2| {
                    let tile_columns = columns.div_ceil(columns.div_ceil((widest >> log2).max(1)));
                    let tiling = Tiling {
                        batch,
                        rows,
                        inner,
                        columns,
                        tile_rows,
                        tile_columns,
                        gap_log2,
                        pack_log2,
                        together,
                        dropped: 0,
                        bits,
                        above,
                        lent: None,
                    };
                    self.with_fewest_bits(tiling, parts)
                });
                all.extend(tilings.min_by_key(|tiling| self.sent(tiling) + self.answered(tiling)));
            }
        }
        all
    }

    /// The tiling, with as many bits dropped as noise has room for; `None` where it has none.
    fn with_fewest_bits(&self, mut tiling: Tiling, parts: usize) -> Option<Tiling> {
        let room = (1.0 / 64.0 - self.rounding()) / parts as f64;
        let fits = |dropped: u32| self.variance(&[Tiling { dropped, ..tiling }]) <= room;
        tiling.dropped = (0..=MOST_DROPPED).take_while(|&dropped| fits(dropped)).last()?;
        self.offset_bits(&tiling).map(|_| tiling)
    }

    /// Of all sensible tilings of the terms those of the least weight together; and of rows by themselves.
    fn best(&self, sought: &Sought) -> Option<(Vec<Tiling>, Option<Tiling>)> {
        let Sought { terms: sizes, ring_bits, squared, .. } = sought;
        let vectors = sizes.iter().any(|&[_, rows, _, columns]| rows.min(columns) == 1);
        let parts = if vectors { sizes.len() } else { 1 };
        let each: Vec<Vec<Tiling>> = sizes
            .iter()
            .enumerate()
            .map(|(term, &sizes)| {
                let bits = squared.filter(|_| term == 1).unwrap_or(*ring_bits);
                self.sensible(sizes, (bits, bits - ring_bits), parts)
            })
            .collect();
        let alone = each[0].iter().map(|&first| vec![first]);
        let all: Vec<Vec<Tiling>> = match each.get(1) {
            None => alone.collect(),
            Some(others) => alone
                .flat_map(|first| others.iter().map(move |&second| [&first[..], &[second]].concat()))
                .collect(),
        };
        if squared.is_none() {
            return all
                .into_iter()
                .map(|terms| (terms, None))
                .min_by_key(|(terms, _)| self.weight(terms, None));
        }
        let together = all.into_iter().filter(|terms| terms[0].joins(&terms[1]));
        let squared = together.flat_map(|terms| {
            (0..=self.n().ilog2()).filter_map(move |pack_log2| {
                let [rows, squares] = self.squared(&terms[1], pack_log2)?;
                Some((vec![terms[0], rows], Some(squares)))
            })
        });
        squared.min_by_key(|(terms, squares)| self.weight(terms, squares.as_ref()))
    }

    /// Rows by themselves, in the ciphertexts of `rows` by numbers: their numbers with as few bits dropped as both take,
    /// and the tiling of what is made. Each row has one response, with its result at the first coefficient.
    fn squared(&self, rows: &Tiling, pack_log2: u32) -> Option<[Tiling; 2]> {
        let lent = Lent { gap_log2: rows.gap_log2, tile_rows: rows.tile_rows };
        let squares = self.with_fewest_bits(
            Tiling {
                rows: 1,
                inner: rows.rows,
                tile_rows: 1,
                gap_log2: self.n().ilog2(),
                pack_log2,
                above: 0,
                lent: Some(lent),
                ..*rows
            },
            1,
        )?;
        let dropped = rows.dropped.min(squares.dropped);
        let rows = Tiling { dropped, ..*rows };
        self.offset_bits(&rows).map(|_| [rows, Tiling { dropped, ..squares }])
    }

    /// Terms whose products are packed together.
    fn groups_of(terms: &[Tiling]) -> std::slice::Chunks<'_, Tiling> {
        let joined = matches!(terms, [first, second] if first.joins(second));
        terms.chunks(if joined { 2 } else { 1 })
    }

    /// The terms whose products are packed together: both, or each by itself. Last come rows by themselves that have no
    /// ciphertexts of their own.
    pub fn groups(&self) -> impl Iterator<Item = &[Tiling]> {
        Self::groups_of(&self.terms).chain(self.squares.as_ref().map(std::slice::from_ref))
    }

    /// Bytes of a term's ciphertexts.
    fn sent(&self, tiling: &Tiling) -> u64 {
        let bits = self.offset_bits(tiling).unwrap_or(u64::BITS);
        let zeros = pack::packed_len(tiling.zeros(self.n()), tiling.bits);
        (tiling.ciphertexts() * (SEED + pack::packed_len(self.n(), bits) + zeros)) as u64
    }

    /// Bytes of a group's packs, and key switches counted as bytes.
    fn answered(&self, first: &Tiling) -> u64 {
        let primes = self.parameters.primes().len();
        let of_switch = SWITCH * ((3 + self.digits()) * primes * self.n() / 8192) as u64;
        // (To be joined takes a pack one more.)
        let joined = if self.secrets > 1 { first.packs() as u64 } else { 0 };
        self.packs_bytes(first) as u64 + (first.switches() + joined) * of_switch
    }

    /// Bytes before the input, key switches counted as bytes, and keys as those of several.
    fn weight(&self, terms: &[Tiling], squares: Option<&Tiling>) -> u64 {
        let levels = Self::automorphisms(terms.iter().chain(squares)).count_ones() as usize;
        let keys = (levels * self.level_bytes() + self.joint_bytes()) as u64;
        let answered = Self::groups_of(terms).map(|group| &group[0]).chain(squares);
        let answered = answered.map(|first| self.answered(first));
        terms.iter().map(|term| self.sent(term)).chain(answered).sum::<u64>() + keys / SHARING
    }

    /// What it is weighed by beside layouts of other products.
    pub fn price(&self) -> u64 {
        self.weight(&self.terms, self.squares.as_ref())
    }

    /// What passes before the input.
    pub fn cost(&self) -> Cost {
        let [prepare_up, prepare_down] =
            [self.upload_bytes(), self.response_bytes()].map(|bytes| bytes as u64);
        Cost { prepare_up, prepare_down, ..Cost::default() }
    }

    /// Whether it is cheaper than another way, which takes correlations: all of its keys are its own, and key
    /// switches count as bytes.
    pub fn pays(&self, other: &Cost) -> bool {
        let answered: u64 = self.groups().map(|group| self.answered(&group[0])).sum();
        let price = self.upload_bytes() as u64 + answered;
        price < other.prepare_up + other.prepare_down + COT * other.bits_from_server
    }

    /// N: coefficients of a polynomial.
    pub fn n(&self) -> usize {
        self.parameters.ring_dim()
    }

    /// Which ring it is in.
    pub fn ring(&self) -> RingId {
        (self.n(), self.prime_bits)
    }

    /// How many digits a polynomial has for key switches, without its last prime.
    pub fn digits(&self) -> usize {
        (self.parameters.primes().len() - 1) * self.prime_bits.div_ceil(self.digit_bits) as usize
    }

    /// Bits of each of a ciphertext's offsets.
    pub fn offset_bits(&self, tiling: &Tiling) -> Option<u32> {
        DrawnMessages::bits(self.parameters.primes(), tiling.bits, tiling.dropped)
    }

    /// Automorphisms that packs take, each by log2 h as a bit.
    fn automorphisms<'t>(tilings: impl Iterator<Item = &'t Tiling>) -> u32 {
        tilings.fold(0, |all, tiling| all | tiling.automorphisms())
    }

    /// Automorphisms that packs take: log2 of the distance h of the two results that one tells apart, and N/h + 1.
    pub fn elements(&self) -> impl Iterator<Item = (u32, usize)> {
        let n = self.n();
        let all = Self::automorphisms(self.terms.iter().chain(&self.squares));
        (0..n.ilog2()).filter(move |log2| all >> log2 & 1 == 1).map(move |log2| (log2, (n >> log2) + 1))
    }

    /// The variance of what rounding an a half and a b half adds to a share's error, in units of its last place.
    fn rounding(&self) -> f64 {
        (2.0 * self.n() as f64 / 3.0 + 1.0) / 12.0 * 4f64.powi(-(MORE as i32))
    }

    /// The variance of the noise of a group's packs in these units.
    fn variance(&self, group: &[Tiling]) -> f64 {
        let n = self.n();
        // (Of the largest numbers that the server may draw.)
        let squares =
            |term: &Tiling| (term.inner * term.tile_columns) as f64 * 4f64.powi(term.bits as i32 - 1);
        let products = group.iter().map(|term| Noise::fresh().rounded(term.dropped).multiply(squares(term)));
        let levels = (4f64.powi(group[0].pack_log2 as i32) - 1.0) / 3.0;
        let primes = self.parameters.primes();
        let switched = Noise::of_digits(n, self.digits(), self.digit_bits)
            + Noise::of_rounded_key(n, primes[primes.len() - 1]);
        let packed = products.fold(switched.multiply(levels), |sum, product| sum + product);
        let modulus = |primes: &[u64]| primes.iter().map(|&p| (p as f64).log2()).sum::<f64>();
        let (noise, modulus) = match primes {
            [others @ .., last] if self.secrets > 1 => {
                let joining = Noise::of_digits(n, self.secrets * others.len(), self.prime_bits);
                let parts = [packed, joining, Noise::fresh_public(n)].map(|noise| noise.divide(n, *last));
                (parts[0] + parts[1] + parts[2], modulus(others))
            }
            _ => (packed + Noise::fresh_public(n), modulus(primes)),
        };
        (noise.deviation() * (f64::from(self.made_bits) - modulus).exp2()).powi(2)
    }

    /// The standard deviation of a share's error, but for its own rounding, in units of its last place.
    #[cfg(test)]
    pub fn deviation(&self) -> f64 {
        let largest = self.groups().map(|group| self.variance(group)).fold(0.0, f64::max);
        (largest + self.rounding()).sqrt()
    }

    /// How large a polynomial of a key is.
    pub fn poly_bytes(&self) -> usize {
        pack::packed_len(self.n() * self.parameters.primes().len(), self.prime_bits)
    }

    /// The keys that it takes, which other products of the query may have sent, and bytes of each.
    pub fn keys(&self) -> impl Iterator<Item = (Part, usize)> {
        let levels = self.elements().map(|(log2, _)| (Part::of_level(self, log2), self.level_bytes()));
        std::iter::once((Part::joint(self), self.joint_bytes())).chain(levels)
    }

    /// Bytes of the key of an automorphism.
    fn level_bytes(&self) -> usize {
        SEED + self.digits() * self.poly_bytes()
    }

    /// How many polynomials the keys have that make packs share an a half.
    pub fn joint_polys(&self) -> usize {
        JointKeys::polys(self.secrets, self.parameters.primes().len() - 1)
    }

    /// Bytes of these.
    fn joint_bytes(&self) -> usize {
        SEED + self.joint_polys() * self.poly_bytes()
    }

    /// From the client: its public keys, the keys of the automorphisms, and its matrices.
    pub fn upload_bytes(&self) -> usize {
        let keys: usize = self.keys().map(|(_, bytes)| bytes).sum();
        keys + self.terms.iter().map(|term| self.sent(term)).sum::<u64>() as usize
    }

    /// Of a group's packs as they are sent: a halves, of which several share one.
    fn packs_bytes(&self, first: &Tiling) -> usize {
        first.packs().div_ceil(self.secrets) * pack::packed_len(self.n(), self.made_bits + MORE)
    }

    /// From the server.
    pub fn response_bytes(&self) -> usize {
        SEED + self.groups().map(|group| self.packs_bytes(&group[0])).sum::<usize>()
    }
}

/// One of the keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Part {
    ring: RingId,
    kind: Kind,
}

/// Which of the [`RINGS`]: N, and bits of its primes.
pub(super) type RingId = (usize, u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// Of so many secrets.
    Joint(usize),
    /// The key of an automorphism.
    Level { digit_bits: u32, log2: u32 },
}

impl Part {
    pub fn joint(layout: &Layout) -> Self {
        Self { ring: layout.ring(), kind: Kind::Joint(layout.secrets) }
    }

    /// Of the automorphism that changes the sign of X^h.
    pub fn of_level(layout: &Layout, log2: u32) -> Self {
        Self { ring: layout.ring(), kind: Kind::Level { digit_bits: layout.digit_bits, log2 } }
    }
}

/// Which keys a query has sent by now, as plans count: what products of matrices share, and none sends twice.
#[derive(Clone, Debug, Default)]
pub struct SentKeys(BTreeSet<Part>);

impl SentKeys {
    /// Adds one; says whether it was not there.
    pub(super) fn add(&mut self, part: Part) -> bool {
        self.0.insert(part)
    }

    /// Bytes of keys of this layout that were sent. All are from now on.
    pub(super) fn known(&mut self, layout: &Layout) -> u64 {
        layout.keys().filter(|&(part, _)| !self.0.insert(part)).map(|(_, bytes)| bytes as u64).sum()
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
            let second = [batch, columns, inner, rows];
            let layout = Layout::of_terms(&[sizes, second], 48, 40).unwrap();
            let n = layout.n();
            for (tiling, [batch, rows, inner, columns]) in layout.terms.iter().zip([sizes, second]) {
                assert!(tiling.pack_log2 <= tiling.gap_log2);
                assert!(tiling.tile_rows * tiling.tile_columns * tiling.gap() <= n, "{tiling:?}");
                assert!(tiling.inner_blocks() * tiling.gap() >= inner);
                assert!(tiling.together == 1 || tiling.together * inner <= tiling.gap(), "{tiling:?}");
                assert_eq!((0..n).filter(|&i| tiling.is_zero(n, i)).count(), tiling.zeros(n));
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

    /// Terms that are added up have each result at the same coefficient of the same pack.
    #[test]
    fn joined_terms_lie_alike() {
        let turned = |[batch, row, column]: [usize; 3]| [batch, column, row];
        for [batch, rows, inner, columns] in [[197, 1, 1, 192], [5, 1, 3, 70], [1, 9, 20, 1], [3, 40, 2, 30]]
        {
            let terms = [[batch, rows, inner, columns], [batch, columns, inner, rows]];
            let layout = Layout::of_terms(&terms, 48, 40).unwrap();
            let joined = layout.groups().count() == 1;
            assert_eq!(joined, rows == 1 || columns == 1, "{layout:?}");
            let [first, second] = &layout.terms[..] else { panic!("two terms") };
            for pack in (0..first.packs()).filter(|_| joined) {
                let others = second.results(pack).map(|(coefficient, place)| (coefficient, turned(place)));
                assert!(first.results(pack).eq(others), "{layout:?}");
            }
        }
    }

    /// Rows by numbers, and by themselves too, of which each row has one result, at a first coefficient; noise is below an
    /// eighth of a unit with the fewest bits that both take.
    #[test]
    fn rows_lie_so_that_both_products_take_them() {
        for (rows, columns, ring, squared, made, own_ring) in [
            (197, 192, 45, 49, 39, (4096, 51)),
            (197, 192, 48, 48, 40, (4096, 53)),
            (40, 768, 50, 58, 40, (8192, 42)),
            (300, 64, 38, 38, 38, (4096, 51)),
            (3, 5000, 40, 44, 36, (4096, 51)),
        ] {
            let layout = Layout::of_rows(rows, columns, ring, squared, made).unwrap();
            let ([numbers, own], Some(squares)) = (&layout.terms[..], &layout.squares) else {
                panic!("{layout:?}")
            };
            assert!(numbers.joins(own) && layout.groups().count() == 2, "{layout:?}");
            assert_eq!(layout.ring(), own_ring, "{layout:?}");
            assert!(layout.parameters.is_secure() && layout.deviation() <= 0.125, "{}", layout.deviation());
            assert_eq!((own.dropped, own.bits, own.product_bits()), (squares.dropped, squared, ring));
            assert_eq!((numbers.product_bits(), squares.product_bits()), (ring, squared));
            let places = (0..squares.packs()).flat_map(|pack| squares.results(pack).map(|(_, place)| place));
            assert!(places.eq((0..rows).map(|row| [row, 0, 0])));
            for row in 0..rows {
                // The same ciphertexts, block by block.
                let blocks = squares.ciphertext(row, 0)..squares.ciphertext(row, 0) + squares.inner_blocks();
                assert!(blocks.eq((0..own.row_blocks()).map(|block| own.ciphertext(row, block))));
            }
        }
    }

    /// What was found before is what a search finds: of other sizes, rings and places, and beyond what is kept.
    #[test]
    fn what_is_found_again_is_what_a_search_finds() {
        let all = || {
            let terms = |rows: usize| [vec![[1, rows, 1, 1], [1, 1, 1, rows]], vec![[1, rows, 1, 1]]];
            let bits = [(48, 40), (48, 39), (47, 39), (10, 70)];
            (1..50).flat_map(terms).flat_map(move |terms| bits.map(|bits| (terms.clone(), bits)))
        };
        assert!(all().count() > MOST_FOUND);
        for (terms, (ring, made)) in all().take(8).chain(all()) {
            let found = Layout::of_terms(&terms, ring, made);
            let sought = Sought { terms: terms.clone(), ring_bits: ring, made_bits: made, squared: None };
            assert_eq!(found, Layout::search(&sought), "{terms:?} {ring} {made}");
            assert!(found.is_some() == (made < 70));
        }
        assert!(FOUND.lock().unwrap().len() <= MOST_FOUND);
    }

    /// Every set is on record with 128 bits, and its noise is below an eighth of a unit.
    #[test]
    fn all_widths_have_a_ring_on_record() {
        // Long sums in a wide ring have noise for which primes of 51 bits have no room.
        let long = Matrices { batch: 3, rows: 197, inner: 197, columns: 64, transposed: [false; 2] };
        for (ring, bits) in [(54, 51), (57, 53)] {
            let layout = Layout::new(&long, ring, 39).unwrap();
            assert!(layout.parameters.is_secure() && layout.deviation() <= 0.125);
            assert_eq!(layout.ring(), (4096, bits), "{layout:?}");
        }
        let attention = Matrices { batch: 3, rows: 197, inner: 64, columns: 197, transposed: [false; 2] };
        for out in [16, 24, 28, 36] {
            for shift in [1, 8, 12, 20, 22] {
                let (ring, made) = (out + shift, out + shift.min(super::super::SLACK));
                let layout = Layout::new(&attention, ring, made).unwrap_or_else(|| panic!("{out} + {shift}"));
                assert!(layout.parameters.is_secure() && layout.deviation() <= 0.125);
                let expected = [(4096, 51), (4096, 53), (8192, 42)];
                assert_eq!(
                    layout.ring(),
                    expected[usize::from(made > 39) + usize::from(made > 43)],
                    "{layout:?}"
                );
            }
        }
    }
}
