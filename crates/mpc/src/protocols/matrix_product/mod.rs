//! \[X·Y / 2^s + ε\] mod 2^out <- MatrixProduct(\[X\], \[Y\] mod 2^(out+s)): matrices n × k and k × m that are both
//! shared, several products side by side (the heads of attention).
//!
//! Let L = out + s. A triple A, B, C = A·B mod 2^L is prepared, all three shared (Beaver, CRYPTO 1991; of matrices:
//! SecureML, IEEE S&P 2017, section 4). Online both open D = X − A and E = Y − B. Then X·Y = D·E + D·B + A·E + C, where
//! only the server adds D·E: **one turn**, L bits each way for each value of both factors. The shares of X·Y are
//! truncated as in `truncate.rs`.
//!
//! *The triple*, offline: A·B = A_c·B_c + A_s·B_s + A_c·B_s + A_s·B_c, and only the last two need both parties. They
//! are made by homomorphic encryption: of A_s·B_c the transposed one, B_cᵀ·A_sᵀ, so that in both the client has the
//! left factor X, and the server the right one, W.
//!
//! 1. S draws its A and B, uniform.
//! 2. C: sends keys of a few secrets, which all products of a query share (`keys.rs`), and encryptions x̂ of A_c and
//!    B_cᵀ under the first, with coefficients as in `tiling.rs` (Cheetah, USENIX Security 2022, section 3.1). A_c and
//!    B_c are uniform, and C may take any: so they are drawn with their ciphertexts, of which a part need not be sent
//!    (`he/rns/drawn.rs`).
//! 3. S: products Σ x̂·ŵ with its own numbers. Each has results at every K-th coefficient only, so R ≤ K of them
//!    become one (*packs*, see below). Where there are many packs, several get one a half, each under a secret of its
//!    own (`he/rns/joint.rs`). It adds an encryption of zero (p1·u + e1, p0_j·u + e_j), and rounds all halves to
//!    powers of two: A = ⌊2^r·a/q⌉, r being 8 bits more than a share has. **A alone is sent.** In the place of
//!    ⌊2^r·b/q⌉ both parties take B, uniform of a seed that S sends. S keeps R = B − ⌊2^r·b/q⌉ mod 2^r: its share is
//!    −(R >> 8).
//! 4. C: its share is (B + A·s mod 2^r) >> 8.
//!
//! *Packs.* With z = x + X^h·y the sum z + σ(x − X^h·y) of x and y, σ: X ↦ X^(N/h + 1), has 2·x at multiples of 2h,
//! and 2·y at odd multiples of h: σ changes the sign of odd multiples of h, and keeps even ones. So with h = K/2,
//! K/4, …, K/R log2 R automorphisms make one ciphertext of R, with all results at multiples of K/R (Chen, Dai, Kim,
//! Song, ACNS 2021, algorithm 2; for products BumbleBee, NDSS 2025). What lies between these means nothing. The
//! factor R is taken away beforehand: ŵ is divided by it modulo the odd q.
//!
//! *Vectors.* Where n or m is one, the products of both cross terms lie alike, and are added up before they are packed.
//!
//! **Error.** Less than one ulp and no bias, as of a truncation, and ε of 2^-10 ulp where s ≥ 12 (4/2^s below). ε is
//! what both cross terms are off by: their shares are made of the upper L − max(0, s − 12) bits, and each is off by
//! less than two of those units: one by the local rounding, one by noise of 8 standard deviations (what `Layout::new`
//! leaves room for; as many bits of ciphertexts stay unsent as it has). So a multiple of 2^s may become a neighbour,
//! which a product of two values (`product.rs`) excludes. The result is wrong by a multiple of 2^out where X·Y / 2^s
//! does not fit into out bits.
//!
//! **Who learns what.** *Functionality*: the client gets z_c mod 2^L, whose upper out + min(s, 12) bits are uniform; the
//! server z_s = X·Y + ε − z_c. Each cuts off s bits of its own. (What lies below the upper bits is no mask: both cut
//! it off.) Semi-honest.
//!
//! - *Online* D and E are masked by A and B of the other party, uniform mod 2^L and used once.
//! - *The server* sees encryptions of A_c and B_cᵀ under a secret of this query alone: RLWE, with parameters of 128
//!   bits on record (`he/params`; keys of automorphisms encrypt images of s_0, the first secret, under itself,
//!   and joint keys s_0 under the others and under itself: the usual circular assumption). A_c and B_c are u − m, u known and m the message of an RLWE sample: as
//!   good as uniform.
//! - *The client*: B comes of a seed that has nothing to do with A_s and B_s: so neither the products nor the noise Σ
//!   e·ŵ show, and no noise is flooded. A is Σ a·ŵ, a known, plus p1·u + e1: RLWE in the server's u, fresh for every
//!   pack that is sent. Without that it were linear equations in the server's numbers; `tiny.rs` solves them, and
//!   fails on what is sent.
//! - *Seeds* make the client's share of C, and of A and B, pseudorandom where the functionality has them uniform: as
//!   with silent OT, a functionality that lets a corrupted party's shares of a triple be what they are, and gives the
//!   other what completes them.
//! - ε depends on both parties' secrets (as Cheetah's one-bit error does). It is in z_s. Once D and E are open, the
//!   client can compute most of it for any X and Y that it supposes: all but noise that the server adds. So ε counts
//!   with the rounding's coin, which the client knows, too. What is opened later moves by 2^-10 of a rounding by ε,
//!   and by one by the coin: `docs/attacks.md`, *Rounding coins*.
//!
//! *Rows by numbers* are such matrices too: `rows.rs`; and rows by themselves: `squares.rs`; and both of the same rows:
//! `twice.rs`.
//!
//! Exact figures: [`Nonlinear::cost`], and by example in `docs/protocols/nonlinear.md`. One round trip offline, after
//! all that draws correlations ([`Block::complete`], [`Block::settle`]), which many layers share; one online.

mod kernel;
mod keys;
pub(crate) mod rows;
pub(crate) mod squares;
mod tiling;
mod tools;
mod triple;
pub(crate) mod twice;

use std::sync::{Arc, Mutex};

use jaguar_ot::{CotSource, Role};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::Prg;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

use self::kernel::add_products;
pub(crate) use self::keys::QueryKeys;
use self::tiling::Layout;
pub use self::tiling::SentKeys;
use self::tools::{Tools, Words};
use self::triple::{Sent, Triple, client, making_bytes, server};
use crate::block::{self, Block, Flights};
use crate::cost::{self, Cost};
use crate::error::{MpcError, check_range};
use crate::nonlinear::{Nonlinear, NonlinearKind};
use crate::party::Party;
use crate::protocols::opening::Opening;
use crate::protocols::product::ProductParams;
use crate::semantics::Matrices;

/// How many bits below a result's last place cross terms are made of, at most.
const SLACK: u32 = 12;

/// What a product of matrices does. It takes the values of the first factor, and behind them those of the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatrixProductParams {
    /// The results are shares mod 2^`out_bits`: 3 to 39.
    pub out_bits: u32,
    /// How many bits of each sum of products are cut off: 1 or more, with `out_bits` at most 58. The factors are shares
    /// mod 2^(`out_bits` + `shift`).
    pub shift: u32,
    /// The matrices' sizes.
    pub matrices: Matrices,
}

impl MatrixProductParams {
    /// L at most: what is encrypted is modulo 2^L.
    pub const WIDEST: u32 = 58;
    /// Values of a factor or of the product, at most.
    pub const MOST_VALUES: usize = 1 << 28;

    /// L: the factors' ring is mod 2^L.
    pub const fn ring_bits(&self) -> u32 {
        self.out_bits + self.shift
    }

    const fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.ring_bits())
    }

    /// Values of both factors and of the product, and how they lie in ciphertexts; `None` where there are none.
    fn sizes(&self) -> Result<([usize; 3], Option<Layout>), MpcError> {
        let most = 39;
        check_range("width of a matrix product", self.out_bits, 3..=most)?;
        check_range("number of bits cut off a matrix product", self.shift, 1..=Self::WIDEST - self.out_bits)?;
        let counts = self.matrices.counts().ok_or_else(|| {
            MpcError::misuse(
                "sizes of matrices",
                format!("{:?}", self.matrices),
                "numbers that do not overflow",
            )
        })?;
        if counts.contains(&0) {
            return Ok((counts, None));
        }
        // (So no sum of what is counted of them overflows.)
        if let Some(found) = counts.into_iter().find(|&count| count > Self::MOST_VALUES) {
            let expected = format!("at most {} in a factor or the product", Self::MOST_VALUES);
            return Err(MpcError::misuse("values of matrices", found.to_string(), expected));
        }
        let made = self.out_bits + self.shift.min(SLACK);
        let layout = Layout::new(&self.matrices, self.ring_bits(), made).ok_or_else(|| {
            let found = format!("{} bits and {:?}", self.ring_bits(), self.matrices);
            MpcError::misuse(
                "sizes of matrices",
                found,
                "noise that a ring of 128 bits of security has room for",
            )
        })?;
        Ok((counts, Some(layout)))
    }

    /// As of a product of two values.
    const fn rounding(&self) -> ProductParams {
        ProductParams { out_bits: self.out_bits, shift: self.shift, offsets: [0; 2] }
    }
}

impl Nonlinear for MatrixProductParams {
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Product
    }

    fn check(&self) -> Result<(), MpcError> {
        self.sizes().map(|_| ())
    }

    fn cost(&self) -> Cost {
        let Ok(([first, second, made], Some(layout))) = self.sizes() else { return Cost::default() };
        let opened = pack::packed_len(first + second, self.ring_bits()) as u64;
        let kept = ((first + second + made) * size_of::<u64>()) as u64;
        cost::in_one_round(
            made,
            Cost { client_memory: kept, server_memory: kept, up: opened, down: opened, ..layout.cost() },
        )
    }

    fn answered(&self) -> u64 {
        self.cost().prepare_down
    }

    fn known(&self, keys: &mut SentKeys) -> u64 {
        self.sizes().ok().and_then(|(_, layout)| layout).map_or(0, |layout| keys.known(&layout))
    }

    fn making_bytes(&self, threads: usize) -> [u64; 2] {
        let Ok((_, Some(layout))) = self.sizes() else { return [0; 2] };
        making_bytes(&layout, &self.matrices, threads)
    }

    /// Rounding, and the cross terms' errors.
    fn error(&self) -> f64 {
        1.0 + 4.0 * 2f64.powi(-(self.shift.min(SLACK) as i32))
    }

    /// All of it is one block: a row of D meets all of E.
    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        _: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        MatrixProduct::blocks(party, *self)
    }
}

/// A prepared product of matrices, for one run.
///
/// ```
/// use jaguar_mpc::semantics::Matrices;
/// use jaguar_mpc::{MatrixProduct, MatrixProductParams, Party, reference};
/// use jaguar_ot::{Role, insecure_test_dealer::InsecureTestDealer};
///
/// let matrices = Matrices { batch: 1, rows: 1, inner: 2, columns: 1, transposed: [false; 2] };
/// let params = MatrixProductParams { out_bits: 16, shift: 12, matrices };
/// let (mut to_server, mut to_client) = jaguar_wire::memory_pair();
/// let one = |role, chan: &mut jaguar_wire::Channel, values: [u64; 4]| {
///     let mut party = Party::new(role, InsecureTestDealer::new(1, role));
///     let product = MatrixProduct::prepare(&mut party, chan, params).unwrap();
///     let y = product.run(chan, &values).unwrap()[0];
///     chan.flush().unwrap();
///     y
/// };
/// // (300, 1) · (3.5, −50.25), where 4096 stands for one in the second factor; the shares wrap mod 2^28.
/// let ring = 1 << 28;
/// let (client, server) = std::thread::scope(|scope| {
///     let server = scope.spawn(|| one(Role::Server, &mut to_client, [307, 1, 14336, ring - 205824 - 9]));
///     (one(Role::Client, &mut to_server, [ring - 7, 0, 0, 9]), server.join().unwrap())
/// });
/// assert!([999, 1000].contains(&reference::open(client, server, 16)));
/// ```
pub struct MatrixProduct {
    blocks: Vec<Block>,
}

/// What `begin` begins, after all that its preparation still says, with keys that are of its own.
fn prepared<S: CotSource + ?Sized>(
    party: &mut Party<S>,
    chan: &mut Channel,
    begin: impl FnOnce(&mut Party<S>, &mut Channel) -> Result<Vec<Block>, MpcError>,
) -> Result<Vec<Block>, MpcError> {
    party.forget_keys();
    let blocks = begin(party, chan)?;
    let blocks = completed(blocks, chan);
    party.forget_keys();
    blocks
}

/// What was begun, after all that its preparation still says.
fn completed(mut blocks: Vec<Block>, chan: &mut Channel) -> Result<Vec<Block>, MpcError> {
    for block in &mut blocks {
        block.complete(chan)?;
        block.settle(chan)?;
    }
    Ok(blocks)
}

impl MatrixProduct {
    /// Prepares a product, with keys of its own.
    ///
    /// # Errors
    /// When a parameter is out of range, the connection fails or the peer breaks the protocol.
    pub fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        params: MatrixProductParams,
    ) -> Result<Self, MpcError> {
        Ok(Self { blocks: prepared(party, chan, |party, _| Self::blocks(party, params))? })
    }

    /// To be completed.
    fn blocks<S: ?Sized + CotSource>(
        party: &Party<S>,
        params: MatrixProductParams,
    ) -> Result<Vec<Block>, MpcError> {
        let Some(run) = Self::planned(party, params)? else { return Ok(Vec::new()) };
        let [first, second, made] = run.counts;
        Ok(vec![Block::new(0..first + second, 0..made, run)])
    }

    /// What makes its triple when it is completed; `None` where there are no values.
    fn planned<S: ?Sized + CotSource>(
        party: &Party<S>,
        params: MatrixProductParams,
    ) -> Result<Option<Run>, MpcError> {
        let (counts, Some(layout)) = params.sizes()? else { return Ok(None) };
        let opening = Opening { role: party.role(), bits: params.ring_bits(), values: Vec::new() };
        let material = Material::planned(party, layout);
        Ok(Some(Run { params, counts, material, opening }))
    }

    /// This party's shares mod 2^out of X·Y / 2^s, rounded up or down, `[batch, n, m]`; `values` are its shares mod
    /// 2^(out + s) of X and behind them of Y (higher bits are ignored). The server's last message may remain in the
    /// channel's buffer.
    ///
    /// 1. C: sends its shares of D = X − A and E = Y − B.
    /// 2. S: sends its own.
    /// 3. Both: D·B + A·E + C, and S adds D·E. Each party shifts by itself.
    ///
    /// # Errors
    /// When the count differs from the prepared one, the connection fails or the peer breaks the protocol.
    pub fn run(self, chan: &mut Channel, values: &[u64]) -> Result<Vec<u64>, MpcError> {
        block::run(self.blocks, chan, values)
    }
}

/// What a party has for its run.
enum Material {
    Planned(Cpu, Box<Layout>, Arc<Mutex<QueryKeys>>),
    /// The client's, until it has the server's answer.
    Sent(Box<Sent>),
    Made(Triple),
}

impl Material {
    /// What was made.
    fn triple(&self) -> Result<&Triple, MpcError> {
        match self {
            Self::Made(triple) => Ok(triple),
            Self::Planned(..) | Self::Sent(_) => {
                Err(MpcError::misuse("block", "one that is not complete", "a complete one"))
            }
        }
    }

    fn planned<S: ?Sized + CotSource>(party: &Party<S>, layout: Layout) -> Self {
        Self::Planned(party.cpu, Box::new(layout), Arc::clone(&party.keys))
    }

    /// The exchange of the triple. The client's is that `of_factors`, of what it encrypts; the server's is what is
    /// `drawn`, with its `factors` of the cross terms. What the client sends is no draw.
    fn complete(
        &mut self,
        role: Role,
        of: &Matrices,
        drawn: impl FnOnce(&mut Prg) -> Triple,
        factors: impl FnOnce(&Triple) -> Vec<Words>,
        of_factors: impl FnOnce(Vec<Words>) -> Triple,
        chan: &mut Channel,
    ) -> Result<(), MpcError> {
        let Self::Planned(cpu, layout, keys) = &self else { return Ok(()) };
        let tools = Tools::new(*cpu, Layout::clone(layout));
        let tools = tools.ok_or_else(|| MpcError::misuse("layout", "a modulus", "one of fewer bits"))?;
        let mut prg = Prg::from_os();
        *self = match role {
            Role::Client => Self::Sent(Box::new(client(tools, of_factors, keys, chan, &mut prg)?)),
            Role::Server => {
                let mut triple = drawn(&mut prg);
                let factors = factors(&triple);
                server(&tools, of, &mut triple, &factors, keys, chan, &mut prg)?;
                Self::Made(triple)
            }
        };
        Ok(())
    }

    fn settle(&mut self, of: &Matrices, chan: &mut Channel) -> Result<(), MpcError> {
        if let Self::Sent(sent) = self {
            *self = Self::Made(sent.receive(of, chan)?);
        }
        Ok(())
    }
}

/// The run of all of it.
struct Run {
    params: MatrixProductParams,
    /// Values of both factors and of the product.
    counts: [usize; 3],
    material: Material,
    /// Of D, and behind it of E.
    opening: Opening,
}

impl Flights for Run {
    fn steps(&self) -> usize {
        Opening::STEPS
    }

    fn complete(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        let (of, role) = (self.params.matrices, self.opening.role);
        let drawn = |prg: &mut Prg| Triple::drawn(&of, self.counts, self.params.ring_bits(), prg);
        let factors = |triple: &Triple| triple.factors(&of);
        let of_factors = |factors: Vec<Words>| Triple::of_factors(&of, factors);
        self.material.complete(role, &of, drawn, factors, of_factors, chan)
    }

    fn settle(&mut self, chan: &mut Channel) -> Result<(), MpcError> {
        self.material.settle(&self.params.matrices, chan)
    }

    fn start(&mut self, values: &[u64]) {
        let (mask, of) = (self.params.mask(), self.params.matrices);
        // (A step without a triple is refused.)
        let Material::Made(Triple { a, b, .. }) = &self.material else { return };
        let (x, y) = values.split_at(self.counts[0]);
        let [x, y] = [Zeroizing::new(of.upright(0, x)), Zeroizing::new(of.upright(1, y))];
        let masked = |(values, masks): (&Zeroizing<Vec<u64>>, &Zeroizing<Vec<u64>>)| -> Vec<u64> {
            values.iter().zip(masks.iter()).map(|(v, mask_word)| v.wrapping_sub(*mask_word) & mask).collect()
        };
        self.opening.values = masked((&x, a));
        self.opening.values.extend(masked((&y, b)));
    }

    fn correct(&mut self, _: &mut Channel, _: Option<&[u64]>) -> Result<(), MpcError> {
        Ok(())
    }

    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        self.material.triple()?;
        self.opening.step(chan, step)
    }

    fn reads(&self, step: usize) -> Option<usize> {
        Some(self.opening.reads(self.counts[0] + self.counts[1], step))
    }

    fn finish(&mut self) -> Vec<u64> {
        let of = Matrices { transposed: [false; 2], ..self.params.matrices };
        let Material::Made(Triple { a, b, c, .. }) = &mut self.material else { return Vec::new() };
        let (d, e) = self.opening.values.split_at(self.counts[0]);
        add_products(&of, a, e, c);
        if self.opening.role == Role::Server {
            b.iter_mut().zip(e).for_each(|(b, e)| *b = b.wrapping_add(*e));
        }
        add_products(&of, d, b, c);
        let rounding = self.params.rounding();
        c.iter().map(|&share| rounding.shifted(self.opening.role, share)).collect()
    }
}

#[cfg(test)]
mod tiny;
