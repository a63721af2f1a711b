//! \[Σ_j x_ij² / 2^s + ε\] mod 2^out <- RowsTwice(\[x\] mod 2^(out+s)), and behind it \[x_ij·n_i / 2^t + ε\] mod 2^out <-
//! \[n\] mod 2^(out+t): rows by themselves, and the same rows by a number of each, as a norm takes its values. They are
//! masked and opened once.
//!
//! Let L = out + s and M = out + t ≤ L. A random row α_i mod 2^L is prepared, γ_i = Σ_j α_ij² mod 2^L, a random number
//! ν_i mod 2^M and δ_ij = ν_i·α_ij mod 2^M, all shared.
//!
//! 1. *The squares* (`squares.rs`): both open D = X − α, L bits each way a value. Σ x² = Σ d² + 2·Σ d·α + γ.
//! 2. *The products* (`rows.rs`): both open E = N − ν, M bits each way a row. x·n = d·e + d·ν + e·α + δ mod 2^M, of the
//!    same D: nothing more of X is opened.
//!
//! *The preparation* sends α_c once, mod 2^L, as rows by numbers lie (`tiling.rs`): of it S makes α_c·ν_s, where 2^(L −
//! M)·ν_s in the place of ν_s makes products mod 2^M; and Σ α_c·(2·α_s), for which it takes its row at the negatives of the
//! places. It is the products' preparation, and theirs alone: the squares' layer prepares nothing, and takes what was made.
//!
//! *Beside both by themselves* this spares the squares' ciphertexts and the opening of rows. The ciphertexts of rows have
//! some bits more. Layers are joined where they come to fewer bytes ([`opened_once`]); the shares of both must be made
//! of as many bits.
//!
//! **Error**, of each as by itself.
//!
//! **Who learns what.** *Functionality*: as of both by themselves: of X the client gets a uniform share of Σ x² mod 2^L, and
//! then, of N, one of x·n mod 2^M; the server what completes them. Nothing else is opened: D is masked by the peer's half of α,
//! uniform mod 2^L and used for D alone, so a view of both products has D once and is as uniform as a view of the first. (A
//! second opening *by the same* α of another X would show the difference; there is none, for the second layer takes the first
//! one's D, and both take their material up.) In the preparation the server sees one encryption of α_c where it saw two; the
//! client sees packs of three products, each with an encryption of zero of its own, and b halves of one seed. `tiny.rs`
//! counts all views of both layers, and finds a mask that two values share. Semi-honest.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jaguar_ot::{CotSource, Role};
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use super::kernel::add_products;
use super::rows::RowProductParams;
use super::squares::{SquaredRowsParams, doubled, summed};
use super::tiling::Layout;
use super::tools::Words;
use super::triple::{Triple, making_bytes};
use super::{Material, MatrixProductParams, SLACK, SentKeys, completed};
use crate::block::{self, Block, Flights};
use crate::cost::{self, Cost};
use crate::error::MpcError;
use crate::nonlinear::{Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::opening::Opening;

/// What rows by themselves and the same rows by numbers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowsTwiceParams {
    /// The rows by themselves. L is 58 bits at most.
    pub squares: SquaredRowsParams,
    /// The same rows by a number of each, mod 2^M with M ≤ L: as many rows, of as many values; `out_bits` + min(`shift`, 12)
    /// is that of the squares.
    pub product: RowProductParams,
}

impl RowsTwiceParams {
    /// How the rows lie in ciphertexts; none where there are no values.
    fn layout(&self) -> Result<Option<Layout>, MpcError> {
        let Self { squares, product: RowProductParams { product, rows, columns } } = *self;
        squares.check()?;
        self.product.check()?;
        let ring = squares.rounding().ring_bits();
        let made = |out: u32, shift: u32| out + shift.min(SLACK);
        let bits = made(squares.out_bits, squares.shift);
        let fits = (squares.rows, squares.columns) == (rows, columns)
            && product.ring_bits() <= ring
            && ring <= MatrixProductParams::WIDEST
            && bits == made(product.out_bits, product.shift);
        if !fits {
            let expected = "the same rows, in a ring no wider, with shares made of as many bits";
            return Err(MpcError::misuse(
                "rows by numbers",
                format!("{product:?} for {squares:?}"),
                expected,
            ));
        }
        if rows == 0 {
            return Ok(None);
        }
        let layout = Layout::of_rows(rows, columns, product.ring_bits(), ring, bits);
        layout.map(Some).ok_or_else(|| {
            let expected = "noise that a ring of 128 bits of security has room for";
            MpcError::misuse("sizes of rows", format!("{rows} of {columns}, {ring} bits"), expected)
        })
    }

    /// Whether both layers are made by ciphertexts, and are cheaper so than each by itself: in bytes of preparation, with key
    /// switches counted as bytes, and in what is opened.
    pub fn pays(&self) -> bool {
        let by_numbers = self.product.matrices().sizes();
        let (Some(first), Ok((_, Some(second))), Ok(Some(both))) =
            (self.squares.encrypted(), by_numbers, self.layout())
        else {
            return false;
        };
        let opened = 2 * pack::packed_len(self.count(), self.product.product.ring_bits()) as u64;
        self.product.pays() && both.price() < first.price() + second.price() + opened
    }

    /// The layers: rows by themselves, then by numbers. The second one's blocks are made of the first one's
    /// ([`Nonlinear::prepare_behind`]).
    pub fn layers(self) -> [Arc<dyn Nonlinear>; 2] {
        [Arc::new(SquaredFirst(self)), Arc::new(MultipliedBehind(self))]
    }

    const fn count(&self) -> usize {
        self.squares.rows * self.squares.columns
    }

    fn blocks_of_squares<S: CotSource + ?Sized>(&self, party: &Party<S>) -> Result<Vec<Block>, MpcError> {
        if self.layout()?.is_none() {
            return Ok(Vec::new());
        }
        let bits = self.squares.rounding().ring_bits();
        let opening = Opening { role: party.role(), bits, values: Vec::new() };
        let common = Common::default();
        let run = Squares { params: *self, opening, common: Arc::clone(&common) };
        Ok(vec![Block::new(0..self.count(), 0..self.squares.rows, run).leaving(common)])
    }

    fn blocks_behind<S: CotSource + ?Sized>(
        &self,
        before: &mut [Block],
        party: &Party<S>,
    ) -> Result<Vec<Block>, MpcError> {
        let Some(layout) = self.layout()? else { return Ok(Vec::new()) };
        let common: Option<Common> = before.first_mut().and_then(Block::take_left);
        let common = common.ok_or_else(|| alone("blocks before it that left nothing"))?;
        let bits = self.product.product.ring_bits();
        let opening = Opening { role: party.role(), bits, values: Vec::new() };
        let material = Material::planned(party, layout);
        let run = Products { params: *self, material, opening, common };
        Ok(vec![Block::new(0..2 * self.count(), 0..self.count(), run)])
    }
}

/// A layer that was prepared without the one that opens its rows.
fn alone(found: &str) -> MpcError {
    MpcError::misuse("rows by numbers", found, "blocks of the same rows by themselves")
}

/// Rows by themselves, that are opened for their product with numbers too ([`RowsTwiceParams::layers`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SquaredFirst(RowsTwiceParams);

/// Rows by numbers, that were opened before. It takes pairs as [`RowProductParams`] do; of the values it reads nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MultipliedBehind(RowsTwiceParams);

/// What passes and is kept, with an opening of so many values.
fn opened(count: usize, bits: u32, kept: usize, prepared: Cost) -> Cost {
    let opened = pack::packed_len(count, bits) as u64;
    let kept = (kept * size_of::<u64>()) as u64;
    let own = Cost { client_memory: kept, server_memory: kept, up: opened, down: opened, ..prepared };
    cost::in_one_round(count, own)
}

impl Nonlinear for SquaredFirst {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    fn check(&self) -> Result<(), MpcError> {
        self.0.layout().map(drop)
    }

    /// (α is kept for the products, which count it.)
    fn cost(&self) -> Cost {
        let Ok(Some(_)) = self.0.layout() else { return Cost::default() };
        let squares = &self.0.squares;
        opened(self.0.count(), squares.rounding().ring_bits(), squares.rows, Cost::default())
    }

    fn error(&self) -> f64 {
        self.0.squares.error_of(true)
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        _: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        self.0.blocks_of_squares(party)
    }
}

impl Nonlinear for MultipliedBehind {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    fn check(&self) -> Result<(), MpcError> {
        self.0.layout().map(drop)
    }

    fn cost(&self) -> Cost {
        let Ok(Some(layout)) = self.0.layout() else { return Cost::default() };
        let RowProductParams { product, rows, .. } = self.0.product;
        opened(rows, product.ring_bits(), rows + 2 * self.0.count(), layout.cost())
    }

    fn answered(&self) -> u64 {
        self.cost().prepare_down
    }

    fn known(&self, keys: &mut SentKeys) -> u64 {
        self.0.layout().ok().flatten().map_or(0, |layout| keys.known(&layout))
    }

    fn making_bytes(&self, threads: usize) -> [u64; 2] {
        let Ok(Some(layout)) = self.0.layout() else { return [0; 2] };
        making_bytes(&layout, &self.0.product.matrices().matrices, threads)
    }

    fn error(&self) -> f64 {
        self.0.product.error()
    }

    fn prepare(&self, _: &mut Party<dyn CotSource + '_>, _: &mut Channel) -> Result<Vec<Block>, MpcError> {
        Err(alone("no blocks before it"))
    }

    fn prepare_behind(
        &self,
        before: &mut [Block],
        party: &mut Party<dyn CotSource + '_>,
        _: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        self.0.blocks_behind(before, party)
    }
}

/// Where `first` is rows by themselves, and `second` the same rows by numbers, which are made of what it makes: both as layers
/// that open the rows once, if they can and it pays. The second one's blocks are made of the first one's
/// ([`Nonlinear::prepare_behind`]).
pub fn opened_once(first: &dyn Nonlinear, second: &dyn Nonlinear) -> Option<[Arc<dyn Nonlinear>; 2]> {
    let squares = *(first as &dyn Any).downcast_ref::<SquaredRowsParams>()?;
    let product = *(second as &dyn Any).downcast_ref::<RowProductParams>()?;
    let both = RowsTwiceParams { squares, product };
    both.pays().then(|| both.layers())
}

/// Prepared rows by themselves, and by numbers behind that, for one run.
///
/// ```
/// use jaguar_mpc::{Party, ProductParams, RowProductParams, RowsTwice, RowsTwiceParams, SquaredRowsParams, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let squares = SquaredRowsParams { out_bits: 16, shift: 12, rows: 1, columns: 2 };
/// let product = ProductParams { out_bits: 16, shift: 12, offsets: [0; 2] };
/// let params = RowsTwiceParams { squares, product: RowProductParams { product, rows: 1, columns: 2 } };
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, values: [u64; 2], number: u64| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let rows = RowsTwice::prepare(&mut party, chan, params).unwrap();
///     let (squares, opened) = rows.squares(chan, &values).unwrap();
///     let y = opened.multiply(chan, &[values[0], number, values[1], number]).unwrap();
///     chan.flush().unwrap();
///     [squares[0], y[0], y[1]]
/// };
/// // (300, 1000): its squares' sum over 4096; and times 3.5, where 4096 stands for one.
/// let ring = 1 << 28;
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, [307, 1009], 14336 - 9));
///     (one(Role::Client, &mut to_server, [ring - 7, ring - 9], 9), server.join().unwrap())
/// });
/// let y: Vec<i64> = client.iter().zip(&server).map(|(c, s)| reference::open(*c, *s, 16)).collect();
/// assert!([266, 267].contains(&y[0]) && (y[1] - 1050).abs() <= 1 && (y[2] - 3500).abs() <= 1);
/// ```
pub struct RowsTwice {
    squares: Vec<Block>,
    product: Vec<Block>,
}

/// Rows that were opened, to be multiplied by numbers once.
pub struct OpenedRows {
    product: Vec<Block>,
}

impl RowsTwice {
    /// Prepares both, with keys of their own.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        params: RowsTwiceParams,
    ) -> Result<Self, MpcError> {
        party.forget_keys();
        let mut squares = params.blocks_of_squares(party)?;
        let product = params.blocks_behind(&mut squares, party)?;
        let made = completed(squares, chan).and_then(|squares| Ok((squares, completed(product, chan)?)));
        party.forget_keys();
        let (squares, product) = made?;
        Ok(Self { squares, product })
    }

    /// This party's shares mod 2^out of the rows' sums of squares / 2^s, rounded up or down; `values` are its shares mod 2^L
    /// (higher bits are ignored). The server's last message may remain in the channel's buffer.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn squares(self, chan: &mut Channel, values: &[u64]) -> Result<(Vec<u64>, OpenedRows), MpcError> {
        Ok((block::run(self.squares, chan, values)?, OpenedRows { product: self.product }))
    }
}

impl OpenedRows {
    /// This party's shares mod 2^out of the rows by their numbers / 2^t, rounded up or down. `pairs` are values, of which
    /// nothing is read, and its shares mod 2^M of their row's number. The server's last message may remain in the channel's
    /// buffer.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn multiply(self, chan: &mut Channel, pairs: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.product, chan, pairs)
    }
}

/// What both blocks have: one after the other takes it up.
pub(super) type Common = Arc<Mutex<State>>;

/// How far it is.
#[derive(Default)]
pub(super) enum State {
    #[default]
    Nothing,
    /// Shares of α and of γ.
    Made { alpha: Words, squares: Words },
    /// Behind the squares: a share of α, and D. (Higher bits of D are to be ignored.)
    Opened { alpha: Words, d: Vec<u64> },
}

fn lock(common: &Common) -> MutexGuard<'_, State> {
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The run of the squares.
pub(super) struct Squares {
    pub params: RowsTwiceParams,
    /// Of D.
    pub opening: Opening,
    pub common: Common,
}

impl Flights for Squares {
    fn steps(&self) -> usize {
        Opening::STEPS
    }

    fn start(&mut self, values: &[u64]) {
        // (A step without a mask is refused.)
        let State::Made { alpha, .. } = &*lock(&self.common) else { return };
        self.opening.mask(values.iter().copied(), alpha);
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        if !matches!(&*lock(&self.common), State::Made { .. }) {
            return Err(MpcError::misuse("block", "one that is not complete", "a complete one"));
        }
        self.opening.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        Some(self.opening.reads(self.params.count(), step))
    }

    fn finish(&mut self) -> Vec<u64> {
        let mut state = lock(&self.common);
        let State::Made { alpha, squares } = std::mem::take(&mut *state) else { return Vec::new() };
        let made = summed(&self.params.squares, &self.opening, alpha.clone(), squares);
        *state = State::Opened { alpha, d: std::mem::take(&mut self.opening.values) };
        made
    }
}

/// The run of the products. Of its triple A is ν, and C is δ; B is α, which the squares have first.
pub(super) struct Products {
    pub params: RowsTwiceParams,
    pub material: Material,
    /// Of E.
    pub opening: Opening,
    pub common: Common,
}

impl Products {
    /// Leaves α and γ to the squares, once they are made.
    fn hand_over(&mut self) {
        if let Material::Made(triple) = &mut self.material {
            let [alpha, squares] = [&mut triple.b, &mut triple.squares].map(std::mem::take);
            *lock(&self.common) = State::Made { alpha, squares };
        }
    }

    /// A triple with γ of this party's α alone.
    fn with_squares(&self, mut triple: Triple) -> Triple {
        triple.squares = Zeroizing::new(vec![0; self.params.squares.rows]);
        add_products(&self.params.squares.matrices(), &triple.b, &triple.b, &mut triple.squares);
        triple
    }
}

impl Flights for Products {
    fn steps(&self) -> usize {
        Opening::STEPS
    }

    fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        let RowsTwiceParams { squares, product } = self.params;
        let (of, role) = (product.matrices().matrices, self.opening.role);
        let (ring, bits) = (squares.rounding().ring_bits(), product.product.ring_bits());
        let mut material = std::mem::replace(&mut self.material, Material::Made(Triple::default()));
        let drawn = |prg: &mut Prg| {
            let [mut numbers, mut rows] =
                [product.rows, self.params.count()].map(|count| Zeroizing::new(vec![0; count]));
            prg.fill_words(&mut numbers, bits);
            prg.fill_words(&mut rows, ring);
            self.with_squares(Triple::of(&of, numbers, rows))
        };
        let factors = |triple: &Triple| {
            let mut factors = triple.factors(&of);
            factors.push(doubled(&triple.b, ring));
            factors
        };
        let of_factors = |factors: Vec<Words>| self.with_squares(Triple::of_factors(&of, factors));
        let done = material.complete(role, &of, drawn, factors, of_factors, chan);
        self.material = material;
        done?;
        self.hand_over();
        Ok(())
    }

    fn settle(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        if matches!(self.material, Material::Sent(_)) {
            self.material.settle(&self.params.product.matrices().matrices, chan)?;
            self.hand_over();
        }
        Ok(())
    }

    fn start(&mut self, pairs: &[u64]) {
        let RowProductParams { product, columns, .. } = self.params.product;
        // (A constant is the server's to add.)
        let offset = if self.opening.role == Role::Server { product.offsets[1] as u64 } else { 0 };
        // (A step without a triple is refused.)
        let Material::Made(Triple { a, .. }) = &self.material else { return };
        let numbers = pairs.chunks_exact(2 * columns).map(|row| row[1].wrapping_add(offset));
        self.opening.mask(numbers, a);
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        self.material.triple()?;
        if !matches!(&*lock(&self.common), State::Opened { .. }) {
            return Err(alone("rows that were not opened"));
        }
        self.opening.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        Some(self.opening.reads(self.params.product.rows, step))
    }

    fn finish(&mut self) -> Vec<u64> {
        let RowProductParams { product, .. } = self.params.product;
        let of = self.params.product.matrices().matrices;
        let state = std::mem::take(&mut *lock(&self.common));
        let (Material::Made(Triple { a, c, .. }), State::Opened { mut alpha, mut d }) =
            (&mut self.material, state)
        else {
            return Vec::new();
        };
        // (D is known to both: a constant that X has besides, each adds.)
        let offset = product.offsets[0] as u64;
        d.iter_mut().for_each(|d| *d = d.wrapping_add(offset));
        add_products(&of, a, &d, c);
        if self.opening.role == Role::Server {
            alpha.iter_mut().zip(&d).for_each(|(alpha, d)| *alpha = alpha.wrapping_add(*d));
        }
        add_products(&of, &self.opening.values, &alpha, c);
        c.iter().map(|&share| product.shifted(self.opening.role, share)).collect()
    }
}
