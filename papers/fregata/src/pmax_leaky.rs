//! **Leaks, and says so.** \[max(x, 0)\] mod M <- PMax(\[x\] mod 2^k), and its clipped form; Fregata, Protocol 2.
//!
//! The comparison of Fregata (section IV-B, "PMax"), to measure beside the sealed one, which is the default; built with
//! the feature `pmax-leaky` only, which nothing that ships has. For E − F = d the server draws T, uniform in 1..=2^t,
//! for each value and query. The client sees T·d and tells the server its sign. Both then select by themselves: E where
//! d > 0, F elsewhere.
//!
//! **Who learns what.** The client learns T·d of *every* comparison: its sign, whether it is zero, and |d| but for a
//! few possible ones. Not 2^t: T is an integer that divides T·d, and few do. t = 5 leaves 7.5 on average, and t = 8
//! 15. A second product of the same value (ReLU6) leaves one in more than 98 of 100 cases. `told.rs` in
//! `tests/pmax_leaky` counts them. The server learns the signs. From these a client solves for weights, and a server
//! for much of the image: `attack.rs`, `sessions.rs` and `asked_once.rs` there do it, the latter from images that are
//! asked about once. So larger t hides nothing.
//!
//! **Offline**, for each comparison: shares of T·M, M uniform in Z_{2^k} and known to the client, from t COTs that the
//! client sends (Gilboa, CRYPTO 1999; the paper multiplies homomorphically). The choice bits r_i, random, are the
//! server's T = 1 + Σ 2^i·r_i. The pads p_i, q_i of bit i give M = q_0 − p_0, so bit 0 needs no message. For i > 0 the
//! client sends e_i = p_i − q_i + M, k − i bits. Then M − Σ 2^i·p_i at the client and Σ 2^i·(r_i ? q_i + e_i : p_i) at
//! the server add up to T·M.
//!
//! **Online**, with d = d_c + d_s:
//!
//! | flight | from | carries |
//! |---|---|---|
//! | 1 | client | V = d_c − M; the extension's e. Offline, where d_c is known by then ([`Block::correct`]) |
//! | 2 | server | U = T·(V + d_s) + its share of T·M; the extension's choices |
//! | 3 | client | the sign of U + its share of T·M = T·d: one bit, not the paper's random G of k bits |
//!
//! *Extension.* Where M is not 2^k, the wrap of x's shares, m_c ∨ m_s as in `extend.rs` of `jaguar_mpc`, takes one more
//! COT. Its product m_c·m_s is made for a random bit r in the server's place before the sign is known: e = m_c + p − q
//! goes with flight 1. Then δ = m_s ⊕ r, in flight 2, makes it one for m_s at both parties. Nothing of it waits for the
//! sign: where x is not positive, the result is thrown away.
//!
//! *Exact*, if |d| < 2^(k−1−t), or d = −2^(k−1−t): then T·d does not wrap. Outside of that the sign is wrong for some T. So
//! values of n bits must come in shares mod 2^(n+t), t bits more than the sealed form takes; a plan sees to it.
//!
//! *Clipped* (ReLU6): a second comparison beside the first, of x − 2^j. It may wrap for x < 0, where the first
//! decides.
//!
//! Per ReLU with k = 28, t = 8, to 40 bits: 9 COTs; offline 21 bytes, and 5 bytes of flight 1 if it is early; online
//! 3.75 bytes. One round, where the sealed one has two. Exact figures: [`Nonlinear::cost`].

use std::any::Any;
use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use jaguar_mpc::parts::{Correlations, Flights, Pads, Rings, Room, level_counts, tournaments};
use jaguar_mpc::{
    Block, Comparisons, Cost, Elementwise, Modulus, MpcError, Nonlinear, NonlinearKind, Party, PoolShape,
    Pooling, Relu6Params, ReluParams,
};
use jaguar_ot::{CotSource, Role, Width};
use jaguar_ring::cpu::secret::BitMasks;
use jaguar_wire::{Channel, pack};
use zeroize::Zeroizing;

/// Pads that are made at once.
const GROUP: usize = 512;

/// The widest shares that it takes, in bits: there is nothing in it that a word does not hold.
const WIDEST: i64 = 56;

/// t is at most this.
const MOST_FACTOR_BITS: u32 = 16;

/// ReLUs, ReLU6s and max-pools by PMax, of which t are the extra bits: for a kit that is to have it.
#[derive(Debug)]
pub(crate) struct PmaxLeaky;

impl Comparisons for PmaxLeaky {
    fn name(&self) -> &'static str {
        "pmax-leaky"
    }

    /// More bits make every share wider, and hide no more from who asks again.
    fn most_extra_bits(&self) -> u32 {
        8
    }

    fn caveat(&self, factor_bits: u32) -> Option<String> {
        Some(format!(
            "comparisons leak (PMax): the client sees every value that a ReLU or a max-pool compares, its sign and \
             its size times a random whole number of 1 to {}, so that few sizes are possible, and can compute the \
             weights by asking each image once, with guard bits too; the server sees all signs, which tell much \
             about the image",
            1u64 << factor_bits
        ))
    }

    /// The sign is exact, whatever the layer's may leave out.
    fn instead(&self, layer: &dyn Nonlinear, factor_bits: u32) -> Option<Arc<dyn Nonlinear>> {
        let layer: &dyn Any = layer;
        let each = |count, bits, output, log2_six| -> Option<Arc<dyn Nonlinear>> {
            let params = PmaxLeakyParams { bits, factor_bits, output, log2_six };
            Some(Arc::new(PmaxLeakyRelu { count, params }))
        };
        if let Some(&Elementwise { count, params: ReluParams { bits, output, .. } }) = layer.downcast_ref() {
            return each(count, bits, output, None);
        }
        if let Some(&Elementwise { count, params }) = layer.downcast_ref() {
            let Relu6Params { bits, output, log2_six, .. } = params;
            return each(count, bits, output, Some(log2_six));
        }
        let &Pooling { shape, params } = layer.downcast_ref()?;
        Some(Arc::new(PmaxLeakyPooling { shape, bits: params.bits, factor_bits }))
    }
}

/// What a ReLU or ReLU6 does whose comparison **leaks** T·x to the client and the sign of x to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmaxLeakyParams {
    /// k: the shares come mod 2^`bits`, 3 to 56.
    pub bits: u32,
    /// t: factors are from 1 to 2^`factor_bits`, and |x| < 2^(`bits` − 1 − `factor_bits`). 1 to 16, and at most `bits`
    /// − 2.
    pub factor_bits: u32,
    /// The shares leave modulo this: 2^`bits` or a larger power of two, or any odd number.
    pub output: Modulus,
    /// j: values are clipped to \[0, 2^j\], j < `bits` − 1 − `factor_bits`. Without it, a ReLU.
    pub log2_six: Option<u32>,
}

impl PmaxLeakyParams {
    /// A ReLU from and to shares mod 2^`bits`.
    pub const fn new(bits: u32, factor_bits: u32) -> Self {
        Self { bits, factor_bits, output: Modulus::power_of_two(bits), log2_six: None }
    }

    /// Whether the protocol takes these parameters.
    ///
    /// # Errors
    /// When one is out of its range.
    pub fn check(&self) -> Result<(), MpcError> {
        let bits = i64::from(self.bits);
        within("width of shares", self.bits, 3..=WIDEST)?;
        within("width of factors", self.factor_bits, 1..=(bits - 2).min(MOST_FACTOR_BITS.into()))?;
        if let Some(output) = self.output.log2() {
            within("width of a ReLU's result", output, bits..=bits + 32)?;
        }
        // (In the fewest bits there is no clip: the range is empty.)
        let most = bits - i64::from(self.factor_bits) - 2;
        self.log2_six.map_or(Ok(()), |six| within("position of six", six, 0..=most))
    }

    /// Comparisons of each value.
    fn comparisons(&self) -> usize {
        1 + usize::from(self.log2_six.is_some())
    }

    /// Where the shares change their ring.
    fn rings(&self) -> Option<Rings> {
        (self.output != Modulus::power_of_two(self.bits)).then(|| Rings::new(self.bits, self.output))
    }

    /// COTs of each value.
    fn cots(&self) -> usize {
        self.comparisons() * self.factor_bits as usize + usize::from(self.rings().is_some())
    }

    /// Bytes of flight 1.
    fn first_bytes(&self, count: usize) -> usize {
        pack::packed_len(self.comparisons() * count, self.bits)
            + self.rings().map_or(0, |rings| pack::packed_len(count, rings.wrap().bits()))
    }
}

/// `found` must lie in `range`.
fn within(what: &'static str, found: u32, range: RangeInclusive<i64>) -> Result<(), MpcError> {
    if range.contains(&found.into()) {
        return Ok(());
    }
    let expected = format!("{} to {}", range.start(), range.end());
    Err(MpcError::Misuse { what, found: found.to_string(), expected })
}

/// What `count` values cost.
fn cost(count: usize, params: &PmaxLeakyParams) -> Cost {
    let (comparisons, extended) = (params.comparisons(), params.rings().is_some());
    let shares: usize = (1..params.factor_bits).map(|i| pack::packed_len(count, params.bits - i)).sum();
    let opened = pack::packed_len(comparisons * count, 1) as u64;
    let choices = if extended { pack::packed_len(count, 1) as u64 } else { 0 };
    Cost {
        bits_from_client: (count * params.cots()) as u64,
        client_memory: (count * (16 * comparisons + if extended { 16 } else { 0 })) as u64,
        server_memory: (count * (12 * comparisons + if extended { 9 } else { 0 })) as u64,
        prepare_up: (comparisons * shares) as u64,
        up: params.first_bytes(count) as u64 + opened,
        down: pack::packed_len(comparisons * count, params.bits) as u64 + choices,
        client_rounds: u64::from(count > 0),
        server_rounds: if count > 0 { 2 } else { 0 },
        ..Cost::default()
    }
}

/// ReLUs or ReLU6s that **leak**, as a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmaxLeakyRelu {
    /// How many values it takes and makes.
    pub count: usize,
    /// What it does to each.
    pub params: PmaxLeakyParams,
}

impl Nonlinear for PmaxLeakyRelu {
    /// No machine's figures are of PMax. A ReLU's are within a quarter: 46 ns a COT beside 51 to 65, and 3.3 to 4 ns a
    /// byte online beside 3.6 to 4.5 (`docs/figures/relu.json`).
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Relu
    }

    fn error(&self) -> f64 {
        0.0
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params.check()
    }

    fn cost(&self) -> Cost {
        cost(self.count, &self.params)
    }

    /// The client sends in preparation.
    fn promise(&self) -> u64 {
        0
    }

    fn correction_bytes(&self) -> u64 {
        self.params.first_bytes(self.count) as u64
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        self.check()?;
        Block::each(self.count, |count| Pmax::prepare(party, chan, count, self.params))
    }
}

/// A max-pool whose comparisons **leak** T·(a − b) to the client and their outcome to the server: as a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmaxLeakyPooling {
    /// The windows, and the tensor `[C, H, W]` that they lie in.
    pub shape: PoolShape,
    /// k: the shares come and leave mod 2^`bits`.
    pub bits: u32,
    /// t, as in [`PmaxLeakyParams`]: differences lie below 2^(`bits` − 1 − `factor_bits`) in absolute value.
    pub factor_bits: u32,
}

impl PmaxLeakyPooling {
    fn params(&self) -> PmaxLeakyParams {
        PmaxLeakyParams::new(self.bits, self.factor_bits)
    }
}

impl Nonlinear for PmaxLeakyPooling {
    /// As of a ReLU.
    fn kind(&self) -> NonlinearKind {
        NonlinearKind::Relu
    }

    fn error(&self) -> f64 {
        0.0
    }

    fn check(&self) -> Result<(), MpcError> {
        self.params().check()?;
        self.shape.output().map(drop)
    }

    fn cost(&self) -> Cost {
        let params = self.params();
        let block = |levels: Vec<usize>| {
            levels.into_iter().filter(|&count| count > 0).fold(Cost::default(), |all, count| {
                // The client's last message of one level comes along with its first of the next.
                let between = u64::from(all.server_rounds > 0);
                let mut sum = all + cost(count, &params);
                sum.server_rounds -= between;
                sum
            })
        };
        // The blocks of channels share their rounds.
        level_counts(&self.shape).into_iter().map(block).fold(Cost::default(), Cost::alongside)
    }

    /// The client sends in preparation.
    fn promise(&self) -> u64 {
        0
    }

    /// The first level's.
    fn correction_bytes(&self) -> u64 {
        let first =
            |block: Vec<usize>| block.first().map_or(0, |&count| self.params().first_bytes(count) as u64);
        level_counts(&self.shape).into_iter().map(first).sum()
    }

    fn prepare(
        &self,
        party: &mut Party<dyn CotSource + '_>,
        chan: &mut Channel,
    ) -> Result<Vec<Block>, MpcError> {
        self.check()?;
        tournaments(party, chan, &self.shape, self.bits, |party, chan, count| {
            Pmax::prepare(party, chan, count, self.params())
        })
    }
}

type Words = Zeroizing<Vec<u64>>;

/// The comparisons of one block, prepared and then run; of a value's two, all first ones come before all second ones.
/// (The client sends in preparation: it may promise none of its COTs, see [`Nonlinear::promise`].)
struct Pmax {
    count: usize,
    params: PmaxLeakyParams,
    side: Side,
}

enum Side {
    Client(Client),
    Server(Server),
}

struct Client {
    /// M, until flight 1 is made of it.
    masks: Words,
    /// Its share of T·M.
    shares: Words,
    /// p, and what e is made of: p − q. Until flight 1.
    pads: Option<[Words; 2]>,
    /// Its shares of the values, until flight 1.
    x: Words,
    /// Its shares of the value in the larger ring for δ = 0 and for δ = 1; one and the same where the ring stays.
    extended: Vec<Words>,
    /// Flight 1 has been made and sent.
    sent: bool,
    out: Words,
}

struct Server {
    /// T.
    factors: Zeroizing<Vec<u32>>,
    /// Its share of T·M; with V, of T·d_c.
    shares: Words,
    /// r, and its pad; with e, its share of r·m_c.
    pads: Option<(Zeroizing<Vec<u8>>, Words)>,
    /// Flight 1 is here.
    received: bool,
    x: Words,
    /// Its shares of the value, in the larger ring.
    extended: Words,
    out: Words,
}

impl Pmax {
    fn prepare<S: CotSource + ?Sized>(
        party: &mut Party<S>,
        chan: &mut Channel,
        count: usize,
        params: PmaxLeakyParams,
    ) -> Result<Self, MpcError> {
        let drawn = party.draw(chan, Role::Client, Width::Bit, count * params.cots())?;
        let mut cots = Cots { drawn: &drawn, count, room: Room::default() };
        let side = match party.role() {
            Role::Client => Side::Client(Client::prepare(&mut cots, chan, &params)?),
            Role::Server => Side::Server(Server::prepare(&mut cots, chan, &params)?),
        };
        Ok(Self { count, params, side })
    }
}

/// The correlations of a block, and room for their pads.
struct Cots<'a> {
    drawn: &'a Correlations,
    count: usize,
    room: Room,
}

impl Cots<'_> {
    /// The pads of the `row`-th `count` correlations, a group at a time: which elements, and their pads.
    fn row(&mut self, row: usize, mut each: impl FnMut(Range<usize>, Pads<'_>)) {
        for at in (0..self.count).step_by(GROUP) {
            let len = GROUP.min(self.count - at);
            each(at..at + len, self.drawn.pads(row * self.count + at, len, &mut self.room));
        }
    }

    /// The sender's pads, both of each.
    fn sent(&mut self, row: usize, mut each: impl FnMut(usize, u128, u128)) {
        self.row(row, |range, pads| {
            let Pads::Sender(zeros, ones) = pads else { unreachable!("the client sends") };
            range.zip(zeros.iter().zip(ones)).for_each(|(e, (zero, one))| each(e, zero.0, one.0));
        });
    }

    /// The receiver's choices and pads.
    fn received(&mut self, row: usize, mut each: impl FnMut(usize, bool, u128)) {
        self.row(row, |range, pads| {
            let Pads::Receiver(pads, choices) = pads else { unreachable!("the server receives") };
            range.zip(pads.iter().zip(choices)).for_each(|(e, (pad, &choice))| each(e, choice, pad.0));
        });
    }
}

fn zeros(count: usize) -> Words {
    Zeroizing::new(vec![0; count])
}

/// The low `bits` bits.
fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

impl Client {
    /// 1. M and its share of T·M from the first pads. 2. For every further bit of T, a correction.
    fn prepare(cots: &mut Cots<'_>, chan: &mut Channel, params: &PmaxLeakyParams) -> Result<Self, MpcError> {
        let (count, ring) = (cots.count, mask(params.bits));
        let (mut masks, mut shares) =
            (zeros(params.comparisons() * count), zeros(params.comparisons() * count));
        let mut row = 0;
        for (masks, shares) in masks.chunks_mut(count.max(1)).zip(shares.chunks_mut(count.max(1))) {
            for i in 0..params.factor_bits {
                let mut corrections = zeros(if i == 0 { 0 } else { count });
                cots.sent(row, |e, zero, one| {
                    let (zero, one) = (zero as u64, one as u64);
                    if i == 0 {
                        // 1.
                        masks[e] = one.wrapping_sub(zero) & ring;
                        shares[e] = masks[e];
                    } else {
                        // 2.
                        corrections[e] = zero.wrapping_sub(one).wrapping_add(masks[e]);
                    }
                    shares[e] = shares[e].wrapping_sub(zero << i) & ring;
                });
                if i > 0 {
                    chan.send_packed(&corrections, params.bits - i)?;
                }
                row += 1;
            }
        }
        let pads = params.rings().map(|rings| {
            let (mut zero_pads, mut differences) = (zeros(count), zeros(count));
            let wrap = rings.wrap();
            cots.sent(row, |e, zero, one| {
                zero_pads[e] = wrap.reduce_wide(zero);
                differences[e] = wrap.sub(zero_pads[e], wrap.reduce_wide(one));
            });
            [zero_pads, differences]
        });
        let [x, out] = Default::default();
        Ok(Self { masks, shares, pads, x, extended: Vec::new(), sent: false, out })
    }

    /// Flight 1, of its shares `x`; and its shares in the larger ring, for either δ.
    fn send(&mut self, chan: &mut Channel, x: &[u64], params: &PmaxLeakyParams) -> Result<(), MpcError> {
        let ring = mask(params.bits);
        // V of every comparison: constants are the server's.
        let mut v = std::mem::take(&mut self.masks);
        for masks in v.chunks_mut(x.len().max(1)) {
            masks.iter_mut().zip(x).for_each(|(m, x)| *m = x.wrapping_sub(*m) & ring);
        }
        chan.send_packed(&v, params.bits)?;
        match (params.rings(), self.pads.take()) {
            (Some(rings), Some([zero_pads, mut differences])) => {
                let wrap = rings.wrap();
                let mut extended = [zeros(x.len()), zeros(x.len())];
                for (e, (&x, &zero)) in x.iter().zip(zero_pads.iter()).enumerate() {
                    let top = rings.weighed(rings.top(x));
                    differences[e] = wrap.add(differences[e], top);
                    // m_c ∨ m_s, less the server's part: m_c + p for δ = 0, and m_c − m_c − p for δ = 1.
                    extended[0][e] = rings.without(x & ring, wrap.add(top, zero));
                    extended[1][e] = rings.without(x & ring, wrap.neg(zero));
                }
                chan.send_packed(&differences, wrap.bits())?;
                self.extended = extended.into();
            }
            _ => self.extended = vec![Zeroizing::new(x.iter().map(|x| x & ring).collect())],
        }
        self.sent = true;
        Ok(())
    }

    /// Reads flight 2's U: T·d of every comparison. **This is what leaks.**
    fn products(
        &mut self,
        chan: &mut Channel,
        params: &PmaxLeakyParams,
    ) -> Result<Zeroizing<Vec<i64>>, MpcError> {
        let shares = std::mem::take(&mut self.shares);
        let answers = chan.recv_packed(shares.len(), params.bits)?;
        let (shift, pairs) = (64 - params.bits, answers.iter().zip(shares.iter()));
        let products: Zeroizing<Vec<i64>> = Zeroizing::new(
            pairs.map(|(u, share)| (u.wrapping_add(*share) << shift) as i64 >> shift).collect(),
        );
        SEEN.with_borrow_mut(|seen| {
            if let Some(seen) = seen {
                seen.extend_from_slice(&products);
            }
        });
        Ok(products)
    }

    /// Flights 2 and 3: opens the products, tells their signs, selects.
    fn finish(&mut self, chan: &mut Channel, count: usize, params: &PmaxLeakyParams) -> Result<(), MpcError> {
        let signs: Vec<u64> = self.products(chan, params)?.iter().map(|&p| u64::from(p > 0)).collect();
        if let [zero, one] = &mut self.extended[..] {
            let (delta, masks) = (chan.recv_packed(count, 1)?, BitMasks::new());
            for ((zero, one), delta) in zero.iter_mut().zip(one.iter()).zip(delta) {
                *zero ^= (*zero ^ one) & masks.of(delta);
            }
        }
        chan.send_packed(&signs, 1)?;
        let values = std::mem::take(&mut self.extended).swap_remove(0);
        self.out = select(values, &signs, 0);
        Ok(())
    }
}

impl Server {
    /// 1. T from its choices, and its share of T·M from its pads; 2. and from the client's corrections.
    fn prepare(cots: &mut Cots<'_>, chan: &mut Channel, params: &PmaxLeakyParams) -> Result<Self, MpcError> {
        let (count, ring, masks) = (cots.count, mask(params.bits), BitMasks::new());
        let mut factors = Zeroizing::new(vec![1u32; params.comparisons() * count]);
        let mut shares = zeros(params.comparisons() * count);
        let mut row = 0;
        for (factors, shares) in factors.chunks_mut(count.max(1)).zip(shares.chunks_mut(count.max(1))) {
            for i in 0..params.factor_bits {
                let corrections = match i {
                    0 => vec![0; count],
                    // 2.
                    _ => chan.recv_packed(count, params.bits - i)?,
                };
                let corrections = Zeroizing::new(corrections);
                cots.received(row, |e, choice, pad| {
                    // 1.
                    factors[e] += u32::from(choice) << i;
                    let term = (pad as u64).wrapping_add(corrections[e] & masks.of(u64::from(choice)));
                    shares[e] = shares[e].wrapping_add(term << i) & ring;
                });
                row += 1;
            }
        }
        let pads = params.rings().map(|rings| {
            let (mut choices, mut pads) = (Zeroizing::new(vec![0; count]), zeros(count));
            cots.received(row, |e, choice, pad| {
                choices[e] = u8::from(choice);
                pads[e] = rings.wrap().reduce_wide(pad);
            });
            (choices, pads)
        });
        let [x, extended, out] = Default::default();
        Ok(Self { factors, shares, pads, received: false, x, extended, out })
    }

    /// Takes flight 1 into its shares.
    fn receive(
        &mut self,
        chan: &mut Channel,
        count: usize,
        params: &PmaxLeakyParams,
    ) -> Result<(), MpcError> {
        let v = chan.recv_packed(self.shares.len(), params.bits)?;
        for ((share, &factor), v) in self.shares.iter_mut().zip(self.factors.iter()).zip(v) {
            *share = share.wrapping_add(u64::from(factor).wrapping_mul(v));
        }
        if let (Some(rings), Some((choices, pads))) = (params.rings(), &mut self.pads) {
            let (wrap, masks) = (rings.wrap(), BitMasks::new());
            let corrections = chan.recv_packed(count, wrap.bits())?;
            for ((pad, &choice), e) in pads.iter_mut().zip(choices.iter()).zip(corrections) {
                *pad = wrap.add(*pad, wrap.reduce(e) & masks.of(u64::from(choice)));
            }
        }
        self.received = true;
        Ok(())
    }

    /// Flight 2; and its shares in the larger ring.
    fn answer(&mut self, chan: &mut Channel, params: &PmaxLeakyParams) -> Result<(), MpcError> {
        let x = std::mem::take(&mut self.x);
        let mut answers = std::mem::take(&mut self.shares);
        let thresholds = [0, params.log2_six.map_or(0, |six| 1 << six)];
        let comparisons = answers.chunks_mut(x.len().max(1)).zip(self.factors.chunks(x.len().max(1)));
        for ((answers, factors), threshold) in comparisons.zip(thresholds) {
            for ((answer, &factor), x) in answers.iter_mut().zip(factors).zip(x.iter()) {
                let product = u64::from(factor).wrapping_mul(x.wrapping_sub(threshold));
                *answer = answer.wrapping_add(product);
            }
        }
        chan.send_packed(&answers, params.bits)?;
        self.extended = match (params.rings(), self.pads.take()) {
            (Some(rings), Some((choices, pads))) => {
                let (wrap, masks) = (rings.wrap(), BitMasks::new());
                let (mut delta, mut extended) = (zeros(x.len()), zeros(x.len()));
                for (e, &x) in x.iter().enumerate() {
                    let top = rings.top(x);
                    delta[e] = top ^ u64::from(choices[e]);
                    // Its share of m_c·m_s: that of r·m_c for δ = 0, and the negative of it for δ = 1.
                    let (pad, other) = (pads[e], wrap.neg(pads[e]));
                    let product = pad ^ ((pad ^ other) & masks.of(delta[e]));
                    extended[e] = rings.without(x, wrap.sub(rings.weighed(top), product));
                }
                chan.send_packed(&delta, 1)?;
                extended
            }
            _ => x,
        };
        Ok(chan.flush()?)
    }

    /// Flight 3: selects by the signs.
    fn finish(&mut self, chan: &mut Channel, count: usize, params: &PmaxLeakyParams) -> Result<(), MpcError> {
        let signs = chan.recv_packed(params.comparisons() * count, 1)?;
        let six = params.log2_six.map_or(0, |six| params.output.power(six));
        self.out = select(std::mem::take(&mut self.extended), &signs, six);
        Ok(())
    }
}

/// Zero where the first sign is not set, `six` where the second one is, too; by masks.
fn select(mut values: Words, signs: &[u64], six: u64) -> Words {
    let (masks, (positive, above)) = (BitMasks::new(), signs.split_at(values.len()));
    for (value, above) in values.iter_mut().zip(above) {
        *value ^= (*value ^ six) & masks.of(*above);
    }
    values.iter_mut().zip(positive).for_each(|(value, positive)| *value &= masks.of(*positive));
    values
}

impl Flights for Pmax {
    fn steps(&self) -> usize {
        2
    }

    fn correct(&mut self, chan: &mut Channel, x: Option<&[u64]>) -> Result<(), MpcError> {
        match (&mut self.side, x) {
            (Side::Client(client), Some(x)) => client.send(chan, x, &self.params),
            (Side::Server(server), None) => server.receive(chan, self.count, &self.params),
            _ => unreachable!("the client gives its shares"),
        }
    }

    fn start(&mut self, x: &[u64]) {
        let ring = mask(self.params.bits);
        let x = || Zeroizing::new(x.iter().map(|x| x & ring).collect());
        match &mut self.side {
            Side::Client(client) if client.sent => {}
            Side::Client(client) => client.x = x(),
            Side::Server(server) => server.x = x(),
        }
    }

    /// 1. The client sends flight 1 (unless it has); the server answers. 2. The client tells the signs; both select.
    fn step(&mut self, chan: &mut Channel, step: usize) -> Result<(), MpcError> {
        match (&mut self.side, step) {
            // 1.
            (Side::Client(client), 0) if client.sent => Ok(()),
            (Side::Client(client), 0) => {
                let x = std::mem::take(&mut client.x);
                client.send(chan, &x, &self.params)
            }
            (Side::Server(server), 0) => {
                if !server.received {
                    server.receive(chan, self.count, &self.params)?;
                }
                server.answer(chan, &self.params)
            }
            // 2.
            (Side::Client(client), _) => client.finish(chan, self.count, &self.params),
            (Side::Server(server), _) => server.finish(chan, self.count, &self.params),
        }
    }

    fn reads(&self, _: usize) -> Option<usize> {
        None
    }

    fn finish(&mut self) -> Vec<u64> {
        match &mut self.side {
            Side::Client(client) => std::mem::take(&mut client.out),
            Side::Server(server) => std::mem::take(&mut server.out),
        }
    }
}

thread_local! {
    /// What a curious client keeps.
    static SEEN: RefCell<Option<Vec<i64>>> = const { RefCell::new(None) };
}

/// Plays a curious client: runs `f` and returns what this thread saw in it, T·d of all comparisons, in the order in
/// which they came; those of a block's values first, then its values' second ones (ReLU6).
pub fn with_products_seen<T>(f: impl FnOnce() -> T) -> (T, Vec<i64>) {
    SEEN.set(Some(Vec::new()));
    let result = f();
    (result, SEEN.take().unwrap_or_default())
}
