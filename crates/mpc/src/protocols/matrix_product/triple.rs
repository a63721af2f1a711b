//! A, B, C = A·B modulo 2^L, all shared, by homomorphic encryption under the client's key. Steps and mathematics:
//! [`super`].

use std::array;

use jaguar_ot::threads;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::{
    Ciphertext, GaloisKey, JointKeys, PlainModulus, Poly, Ring, RoundedSecret, SecretKey, SeededCiphertext,
    SwitchingKey, Values,
};
use jaguar_ring::prg::Prg;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use super::kernel::add_products;
use super::tiling::{A_MORE, B_MORE, Layout, SEED, Tiling};
use crate::error::MpcError;
use crate::semantics::Matrices;

/// Numbers that are wiped.
pub(super) type Words = Zeroizing<Vec<u64>>;

fn words(count: usize) -> Words {
    Zeroizing::new(vec![0; count])
}

/// This party's shares of a triple, modulo 2^L; matrices stand as they are not transposed. (Higher bits of C are to be
/// ignored.)
pub(super) struct Triple {
    pub a: Words,
    pub b: Words,
    pub c: Words,
}

impl Triple {
    /// A and B of this party, uniform, and C = A·B of these alone.
    pub(super) fn drawn(of: &Matrices, counts: [usize; 3], ring_bits: u32, prg: &mut Prg) -> Self {
        let [mut a, mut b, mut c] = counts.map(words);
        prg.fill_words(&mut a, ring_bits);
        prg.fill_words(&mut b, ring_bits);
        add_products(of, &a, &b, &mut c);
        Self { a, b, c }
    }

    /// The parts of this party that cross terms take: A and Bᵀ of the client, B and Aᵀ of the server.
    pub(super) fn factors(&self, of: &Matrices, client: bool) -> Vec<Words> {
        let (own, other, height) =
            if client { (&self.a, &self.b, of.inner) } else { (&self.b, &self.a, of.rows) };
        let width = other.len() / of.batch / height;
        let mut turned = words(other.len());
        for (to, from) in turned.chunks_mut(height * width).zip(other.chunks(height * width)) {
            for (row, values) in from.chunks(width).enumerate() {
                values.iter().enumerate().for_each(|(column, &value)| to[column * height + row] = value);
            }
        }
        vec![own.clone(), turned]
    }

    /// Adds a share of a result of cross term `term` to C.
    fn add(&mut self, of: &Matrices, term: usize, [batch, row, column]: [usize; 3], share: u64) {
        let (row, column) = if term == 0 { (row, column) } else { (column, row) };
        let sum = &mut self.c[(batch * of.rows + row) * of.columns + column];
        *sum = sum.wrapping_add(share);
    }
}

/// What both parties compute with, of public figures alone.
pub(super) struct Tools {
    pub layout: Layout,
    pub ring: Ring,
    /// Modulo 2^L, and what leaves the ring.
    plain: PlainModulus,
    halves: [PlainModulus; 2],
    a_bits: u32,
    b_bits: u32,
}

impl Tools {
    /// `None` where a plaintext modulus is too large.
    pub(super) fn new(cpu: Cpu, layout: Layout) -> Option<Self> {
        let ring = Ring::new(cpu, layout.parameters.clone());
        let plain = |bits: u32| PlainModulus::new(&ring, 1 << bits).ok();
        let (a_bits, b_bits) = (layout.made_bits + A_MORE, layout.made_bits + B_MORE);
        let (of_shares, a, b) = (plain(layout.ring_bits)?, plain(a_bits)?, plain(b_bits)?);
        Some(Self { plain: of_shares, halves: [a, b], a_bits, b_bits, ring, layout })
    }

    fn n(&self) -> usize {
        self.ring.n()
    }

    fn send(&self, chan: &mut Channel, seed: &[u8; SEED], b: &[&Poly<Values>]) -> Result<(), MpcError> {
        chan.send(seed)?;
        for b in b {
            chan.send_packed(b.residues(), self.layout.prime_bits)?;
        }
        Ok(())
    }

    fn receive_seed(&self, chan: &mut Channel) -> Result<[u8; SEED], MpcError> {
        let mut seed = [0; SEED];
        chan.recv_into(&mut seed)?;
        Ok(seed)
    }

    /// Any words stand for a polynomial.
    fn receive_poly(&self, chan: &mut Channel) -> Result<Poly<Values>, MpcError> {
        Ok(self.ring.from_residues(&chan.recv_packed(self.ring.words(), self.layout.prime_bits)?))
    }

    /// The a half as it is sent.
    #[cfg(test)]
    pub(super) fn rounded_a(&self, ciphertext: Ciphertext<Values>) -> Words {
        self.halves[0].round(&self.ring, &self.ring.to_coefficients(ciphertext.a))
    }

    /// A share of the upper bits of what is modulo 2^L, as one of all of it.
    fn share(&self, upper: u64) -> u64 {
        upper << (self.layout.ring_bits - self.layout.made_bits)
    }

    /// The client's block of X, of the right rows and columns.
    fn block(&self, tiling: &Tiling, x: &[u64], number: usize) -> Words {
        let (blocks, gap) = (tiling.inner_blocks(), tiling.gap());
        let (group, row, block) =
            (number / blocks / tiling.row_blocks(), number / blocks % tiling.row_blocks(), number % blocks);
        let mut message = words(self.n());
        let rows = tiling.tile_rows.min(tiling.rows - row * tiling.tile_rows);
        let taken = gap.min(tiling.inner - block * gap);
        let first = group * tiling.together;
        for batch in first..(first + tiling.together).min(tiling.batch) {
            for i in 0..rows {
                let from = (batch * tiling.rows + row * tiling.tile_rows + i) * tiling.inner + block * gap;
                let to = i * tiling.tile_columns * gap + tiling.lane(batch);
                message[to..to + taken].copy_from_slice(&x[from..from + taken]);
            }
        }
        message
    }

    /// The server's block of W, over 2^pack_log2: its numbers modulo 2^L of least absolute value.
    fn weights(&self, tiling: &Tiling, w: &[u64], batch: usize, column: usize, block: usize) -> Poly<Values> {
        let (n, gap, columns) = (self.n(), tiling.gap(), tiling.columns);
        let mut coefficients = Zeroizing::new(vec![0i64; n]);
        let (first, lane) = (column * tiling.tile_columns, tiling.lane(batch));
        let above = u64::BITS - self.layout.ring_bits;
        for j in 0..gap.min(tiling.inner - block * gap) {
            let row = &w[(batch * tiling.inner + block * gap + j) * columns..][..columns];
            for (l, &value) in row[first..].iter().take(tiling.tile_columns).enumerate() {
                let value = (value << above) as i64 >> above;
                // (Only of the first column does it wrap: a lane ends within the gap.)
                let back = lane + j;
                if l * gap >= back {
                    coefficients[l * gap - back] = value;
                } else {
                    coefficients[n - back] = -value;
                }
            }
        }
        let mut poly = self.ring.from_signed(&coefficients);
        self.ring.divide_by_power(&mut poly, tiling.pack_log2);
        self.ring.to_values(poly)
    }
}

/// What is made before it is sent, for each thread.
const AHEAD: usize = 4;

/// Makes what belongs to each number below `count` on all threads of the session, and hands it to `take` in order. No
/// more than [`AHEAD`] for each thread are there at once.
pub(super) fn all<T: Send, E>(
    count: usize,
    make: impl Fn(usize) -> T + Sync + Send,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let ahead = AHEAD * threads::share();
    for begin in (0..count).step_by(ahead) {
        let numbers = begin..(begin + ahead).min(count);
        let mut made: Vec<Option<T>> = numbers.clone().map(|_| None).collect();
        let slots: Vec<(usize, &mut Option<T>)> = numbers.clone().zip(&mut made).collect();
        threads::each(slots, |(number, slot)| *slot = Some(make(number)));
        for (number, made) in numbers.zip(made.into_iter().flatten()) {
            take(number, made)?;
        }
    }
    Ok(())
}

fn seed(prg: &mut Prg) -> Zeroizing<[u8; SEED]> {
    let mut seed = Zeroizing::new([0; SEED]);
    prg.fill(&mut seed[..]);
    seed
}

/// What the client keeps until it has the server's answer.
pub(super) struct Sent {
    tools: Tools,
    secret: RoundedSecret,
    triple: Triple,
}

/// Bytes that the client and the server hold while they make a triple, at most, besides the triple: on so many threads.
pub(super) fn making_bytes(layout: &Layout, of: &Matrices, threads: usize) -> [u64; 2] {
    let Some([first, second, _]) = of.counts() else { return [u64::MAX; 2] };
    let word = size_of::<u64>() as u64;
    let poly = (layout.n() * layout.parameters.primes().len()) as u64 * word;
    let ahead = (AHEAD * threads.max(1)) as u64;
    let keys = layout.elements().count() as u64 * 2 * layout.digits() as u64 * poly;
    // Factors as they are multiplied, both.
    let factors = (first + second) as u64 * word;
    // A message, a ciphertext, and noise.
    let client = ahead * 4 * poly;
    let inputs: u64 = layout.terms.iter().map(|term| 2 * poly * term.ciphertexts() as u64).sum();
    let of_thread = |term: &Tiling| {
        let responses = term.packed().min(term.responses()) as u64;
        (2 * responses + term.inner_blocks() as u64 + 6) * poly
    };
    let working = layout.terms.iter().map(of_thread).max().unwrap_or(0) * threads.max(1) as u64;
    let packs = ahead * 3 * layout.n() as u64 * word;
    [keys + factors + client, keys + factors + inputs + working + packs]
}

/// The client's part, out of `prg`, which is secret.
///
/// 1. (It has drawn its A and B.)
/// 2. A fresh secret; sends a public key, keys of automorphisms, and encryptions of its `factors`, A and Bᵀ.
/// 3. (The server's.)
/// 4. [`Sent::receive`] adds what it decrypts to its A·B.
pub(super) fn client(
    tools: Tools,
    triple: Triple,
    factors: &[Words],
    chan: &mut Channel,
    prg: &mut Prg,
) -> Result<Sent, MpcError> {
    let Tools { layout, ring, .. } = &tools;
    let secret = SecretKey::from_prg(ring, prg);
    let key = JointKeys::public(ring, &secret, prg);
    let (own, p0) = key.parts();
    tools.send(chan, own, &p0.collect::<Vec<_>>())?;
    for (_, element) in layout.elements() {
        let key = GaloisKey::new(&secret, element, layout.digit_bits, prg);
        let (own, parts) = key.switching_key().parts();
        tools.send(chan, own, &parts.collect::<Vec<_>>())?;
    }
    for (tiling, x) in layout.terms.iter().zip(factors) {
        let noise = seed(prg);
        let encrypted = |number| {
            let message = tools.plain.scale(ring, &tools.block(tiling, x, number));
            let mut prg = Prg::derive(&noise, "jaguar matrix ciphertext", &[number as u64]);
            secret.encrypt(ring, &message, &mut prg)
        };
        all(tiling.ciphertexts(), encrypted, |_, SeededCiphertext { seed, b }| {
            tools.send(chan, &seed, &[&b])
        })?;
    }
    chan.flush()?;
    let secret = secret.rounded();
    Ok(Sent { tools, secret, triple })
}

impl Sent {
    /// Step 4. Takes the triple out.
    pub(super) fn receive(&mut self, of: &Matrices, chan: &mut Channel) -> Result<Triple, MpcError> {
        let Self { tools, secret, triple } = self;
        for (term, tiling) in tools.layout.terms.iter().enumerate() {
            for pack in 0..tiling.packs() {
                let a = chan.recv_packed(tools.n(), tools.a_bits)?;
                let b = chan.recv_packed(tiling.count(pack), tools.b_bits)?;
                let shares = decrypt(tools, tiling, pack, secret, &a, &b);
                for ((_, place), &share) in tiling.results(pack).zip(shares.iter()) {
                    triple.add(of, term, place, share);
                }
            }
        }
        let Triple { a, b, c } = triple;
        Ok(Triple { a: std::mem::take(a), b: std::mem::take(b), c: std::mem::take(c) })
    }
}

/// The client's shares of a pack's results.
fn decrypt(
    tools: &Tools,
    tiling: &Tiling,
    pack: usize,
    secret: &RoundedSecret,
    a: &[u64],
    b: &[u64],
) -> Words {
    let mut phases = words(tools.n());
    secret.multiply_into(a, tools.a_bits, &mut phases);
    let one = |((coefficient, _), &b): ((usize, [usize; 3]), &u64)| {
        tools.share(unmasked(b, phases[coefficient], tools.a_bits))
    };
    Zeroizing::new(tiling.results(pack).zip(b).map(one).collect())
}

/// What the server has of the client's key.
pub(super) struct Keys {
    public: JointKeys,
    /// By the logarithm of h, of those that packs take: the automorphism that changes the sign of X^h, and X^h.
    levels: Vec<(u32, GaloisKey, Poly<Values>)>,
}

impl Keys {
    fn receive(tools: &Tools, chan: &mut Channel) -> Result<Self, MpcError> {
        let Tools { layout, ring, .. } = tools;
        let seed = tools.receive_seed(chan)?;
        let public = JointKeys::from_parts(ring, 1, layout.digit_bits, seed, vec![tools.receive_poly(chan)?]);
        let level = |(log2, element): (u32, usize)| {
            let seed = tools.receive_seed(chan)?;
            let parts: Result<Vec<_>, MpcError> =
                (0..layout.digits()).map(|_| tools.receive_poly(chan)).collect();
            let key = SwitchingKey::from_parts(ring, layout.digit_bits, seed, parts?);
            let mut moved = vec![0i8; tools.n()];
            moved[1 << log2] = 1;
            let moved = ring.to_values(ring.from_signed(&moved));
            Ok((log2, GaloisKey::from_parts(ring, element, key), moved))
        };
        let levels: Result<_, MpcError> = layout.elements().map(level).collect();
        Ok(Self { public, levels: levels? })
    }

    /// A key without automorphisms.
    #[cfg(test)]
    pub(super) fn of(public: JointKeys) -> Self {
        Self { public, levels: Vec::new() }
    }

    /// One ciphertext with the coefficients at multiples of K of all: of the t-th at K·i + K/R·t, times R. (What is between these
    /// means nothing.)
    fn pack(
        &self,
        ring: &Ring,
        tiling: &Tiling,
        mut of: Vec<Option<Ciphertext<Values>>>,
    ) -> Option<Ciphertext<Values>> {
        for level in (0..tiling.pack_log2).rev() {
            let own = |(log2, ..): &&(u32, GaloisKey, Poly<Values>)| *log2 == level + tiling.apart_log2();
            let (_, key, moved) = self.levels.iter().find(own).expect("a key for each level of a pack");
            for t in 0..1 << level {
                let Some(mut sum) = of[t].take() else { continue };
                let mut difference = sum.duplicate();
                if let Some(mut other) = of[t + (1 << level)].take() {
                    other.multiply_assign(ring, moved);
                    sum.add_assign(ring, &other);
                    ring.sub_assign(&mut difference.a, &other.a);
                    ring.sub_assign(&mut difference.b, &other.b);
                }
                sum.add_assign(ring, &difference.apply(ring, key));
                of[t] = Some(sum);
            }
        }
        of.into_iter().next().flatten()
    }
}

/// A pack as it is sent, and what the server keeps of it.
pub(super) struct Pack {
    pub a: Words,
    b: Vec<u64>,
    shares: Words,
}

/// The server's part, out of `prg`, which is secret.
///
/// 1. (It has drawn its A and B, of which the `factors` are.)
/// 2. (The client's.)
/// 3. Sends packs of the products, each with a fresh encryption of zero and a uniform mask R, and adds −R to its A·B.
pub(super) fn server(
    tools: &Tools,
    of: &Matrices,
    triple: &mut Triple,
    factors: &[Words],
    chan: &mut Channel,
    prg: &mut Prg,
) -> Result<(), MpcError> {
    let Tools { layout, ring, .. } = tools;
    let keys = Keys::receive(tools, chan)?;
    let mut inputs: Vec<Vec<Ciphertext<Values>>> = Vec::new();
    for tiling in &layout.terms {
        let mut own = Vec::new();
        for _ in 0..tiling.ciphertexts() {
            let seed = tools.receive_seed(chan)?;
            let b = tools.receive_poly(chan)?;
            own.push(SeededCiphertext { seed, b }.expand(ring));
        }
        inputs.push(own);
    }
    for (term, tiling) in layout.terms.iter().enumerate() {
        let fresh = seed(prg);
        // (Not kept while the next term is made.)
        let inputs = std::mem::take(&mut inputs[term]);
        let answer = |number| {
            let packed = products(tools, tiling, &keys, &inputs, &factors[term], number);
            let mut prg = Prg::derive(&fresh, "jaguar matrix response", &[number as u64]);
            hide(tools, tiling, &keys, packed, number, &mut prg)
        };
        all(tiling.packs(), answer, |number, Pack { a, b, shares }| -> Result<(), MpcError> {
            chan.send_packed(&a, tools.a_bits)?;
            chan.send_packed(&b, tools.b_bits)?;
            for ((_, place), &share) in tiling.results(number).zip(shares.iter()) {
                triple.add(of, term, place, share);
            }
            Ok(())
        })?;
    }
    chan.flush()?;
    Ok(())
}

/// The products of a pack, in one ciphertext.
pub(super) fn products(
    tools: &Tools,
    tiling: &Tiling,
    keys: &Keys,
    inputs: &[Ciphertext<Values>],
    w: &[u64],
    pack: usize,
) -> Ciphertext<Values> {
    let Tools { ring, .. } = tools;
    let blocks = tiling.inner_blocks();
    let (mut made_for, mut weights): (_, Vec<Poly<Values>>) = (None, Vec::new());
    let mut responses: Vec<Option<Ciphertext<Values>>> = (0..tiling.packed()).map(|_| None).collect();
    for (response, to) in tiling.pack(pack).zip(&mut responses) {
        let (batch, column, row) = tiling.place(response);
        // Neighbours differ in rows alone, mostly.
        if made_for != Some((batch, column)) {
            made_for = Some((batch, column));
            weights = (0..blocks).map(|block| tools.weights(tiling, w, batch, column, block)).collect();
        }
        let mut sum = Ciphertext { a: ring.zero(), b: ring.zero() };
        let own = &inputs[tiling.ciphertext(batch, row)..][..blocks];
        for (x, w) in own.iter().zip(&weights) {
            sum.multiply_add(ring, x, w);
        }
        *to = Some(sum);
    }
    let empty = || Ciphertext { a: ring.zero(), b: ring.zero() };
    keys.pack(ring, tiling, responses).unwrap_or_else(empty)
}

/// Both halves as they leave the ring: the a half under a fresh encryption of zero, the b half under a uniform mask.
pub(super) fn hide(
    tools: &Tools,
    tiling: &Tiling,
    keys: &Keys,
    mut packed: Ciphertext<Values>,
    number: usize,
    prg: &mut Prg,
) -> Pack {
    let Tools { ring, .. } = tools;
    packed.add_assign(ring, &keys.public.encrypt_zero(ring, prg));
    let Ciphertext { a, b } = packed.into_coefficients(ring);
    let [a, phases] = array::from_fn(|half| tools.halves[half].round(ring, [&a, &b][half]));
    let mut masks = words(tiling.count(number));
    prg.fill_words(&mut masks, tools.b_bits);
    let mut b = Vec::with_capacity(masks.len());
    for ((coefficient, _), r) in tiling.results(number).zip(masks.iter_mut()) {
        let (sent, share) = masked(phases[coefficient], *r, tools.b_bits);
        b.push(sent);
        *r = tools.share(share);
    }
    Pack { a, b, shares: masks }
}

/// What is sent of a b half's coefficient under the mask `r`, and the server's share.
pub(super) fn masked(phase: u64, r: u64, b_bits: u32) -> (u64, u64) {
    (phase.wrapping_add(r) & ((1 << b_bits) - 1), (r >> B_MORE).wrapping_neg())
}

/// The client's share, of what was sent and the coefficient of A·s.
pub(super) fn unmasked(sent: u64, product: u64, a_bits: u32) -> u64 {
    let below = A_MORE - B_MORE;
    let phase = (sent << below).wrapping_add(1 << (below - 1)).wrapping_add(product);
    (phase & ((1 << a_bits) - 1)) >> A_MORE
}
