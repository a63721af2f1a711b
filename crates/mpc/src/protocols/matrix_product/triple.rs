//! A, B, C = A·B modulo 2^L, all shared, by homomorphic encryption under the client's key. Steps and mathematics:
//! [`super`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jaguar_ot::threads;
use jaguar_ring::he::rns::{Ciphertext, Coefficients, Poly, RoundedSecret, Values};
use jaguar_ring::prg::Prg;
use jaguar_wire::Channel;
use zeroize::Zeroizing;

use super::kernel::add_products;
use super::keys::{OfServer, QueryKeys, keys_bytes};
use super::tiling::{Layout, MORE, SEED, Tiling};
use super::tools::{Tools, Words, words};
use crate::error::MpcError;
use crate::semantics::Matrices;

/// This party's shares of a triple, modulo 2^L; matrices stand as they are not transposed. (Higher bits of C are to be
/// ignored.)
#[derive(Default)]
pub(super) struct Triple {
    pub a: Words,
    pub b: Words,
    pub c: Words,
    /// Of rows that are taken by themselves too (`twice.rs`): the sums of squares of B.
    pub squares: Words,
}

impl Triple {
    /// A and B of this party, uniform, and C = A·B of these alone.
    pub(super) fn drawn(of: &Matrices, counts: [usize; 3], ring_bits: u32, prg: &mut Prg) -> Self {
        let [mut a, mut b, _] = counts.map(words);
        prg.fill_words(&mut a, ring_bits);
        prg.fill_words(&mut b, ring_bits);
        Self::of(of, a, b)
    }

    /// A and B, and C = A·B of these alone.
    pub(super) fn of(of: &Matrices, a: Words, b: Words) -> Self {
        let mut c = words(of.batch * of.rows * of.columns);
        add_products(of, &a, &b, &mut c);
        Self { a, b, c, squares: Words::default() }
    }

    /// The client's, of what it encrypted: A and Bᵀ.
    pub(super) fn of_factors(of: &Matrices, factors: Vec<Words>) -> Self {
        let [a, b] = <[Words; 2]>::try_from(factors).unwrap_or_else(|_| unreachable!("two cross terms"));
        Self::of(of, a, turned(&b, of.columns, of.inner))
    }

    /// The parts of the server that cross terms take: B and Aᵀ.
    pub(super) fn factors(&self, of: &Matrices) -> Vec<Words> {
        vec![self.b.clone(), turned(&self.a, of.rows, of.inner)]
    }

    /// Adds a share of a result of a group to C, or to sums of squares.
    fn add(
        &mut self,
        of: &Matrices,
        (group, tiling): (usize, &Tiling),
        [batch, row, column]: [usize; 3],
        share: u64,
    ) {
        if tiling.lent.is_some() {
            self.squares[batch] = self.squares[batch].wrapping_add(share);
            return;
        }
        let (row, column) = if group == 0 { (row, column) } else { (column, row) };
        let sum = &mut self.c[(batch * of.rows + row) * of.columns + column];
        *sum = sum.wrapping_add(share);
    }
}

/// Matrices of so many rows and columns, transposed.
fn turned(values: &[u64], rows: usize, columns: usize) -> Words {
    let mut turned = words(values.len());
    for (to, from) in turned.chunks_mut(rows * columns).zip(values.chunks(rows * columns)) {
        for (row, values) in from.chunks(columns).enumerate() {
            values.iter().enumerate().for_each(|(column, &value)| to[column * rows + row] = value);
        }
    }
    turned
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
    secrets: Vec<Arc<RoundedSecret>>,
    triple: Triple,
}

/// The keys of a query, for a while.
fn lock(keys: &Mutex<QueryKeys>) -> MutexGuard<'_, QueryKeys> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that the client and the server hold while they make a triple, at most, besides the triple: on so many
/// threads, with keys.
pub(super) fn making_bytes(layout: &Layout, of: &Matrices, threads: usize) -> [u64; 2] {
    let Some([first, second, _]) = of.counts() else { return [u64::MAX; 2] };
    let word = size_of::<u64>() as u64;
    let poly = (layout.n() * layout.parameters.primes().len()) as u64 * word;
    let ahead = (AHEAD * threads.max(1)) as u64;
    // Keys of all products of the query.
    let [secrets, keys] = keys_bytes();
    // Factors as they are multiplied, both; and rows by themselves.
    let again = if layout.squares.is_some() { second } else { 0 };
    let factors = (first + second + again) as u64 * word;
    // A message, a ciphertext, and noise.
    let client = ahead * 4 * poly;
    // (And of one term what was sent: less than two words of each coefficient.)
    let sent = layout.terms.iter().map(|term| 2 * layout.n() as u64 * word * term.ciphertexts() as u64).max();
    let inputs: u64 = layout.terms.iter().map(|term| 2 * poly * term.ciphertexts() as u64).sum();
    let inputs = inputs + sent.unwrap_or(0);
    let of_thread = |group: &[Tiling]| {
        let responses = group[0].packed().min(group[0].responses()) as u64;
        (2 * responses + group.iter().map(|term| term.inner_blocks() as u64).sum::<u64>() + 6) * poly
    };
    let working = layout.groups().map(of_thread).max().unwrap_or(0) * threads.max(1) as u64;
    // All packs of a group, and what is made of some.
    let all = layout.groups().map(|group| group[0].packs() as u64).max().unwrap_or(0) * 2 * poly;
    let packs = all + ahead * (2 + 2 * layout.secrets as u64) * 2 * poly;
    // (Keys that are made and sent.)
    let own = 2 * (layout.joint_polys() + layout.digits()) as u64 * poly;
    [secrets + own + factors + client, keys + factors + inputs + working + packs]
}

/// The client's part, out of `prg`, which is secret. Its triple is that `of_factors`: of each term the X that it drew.
///
/// 1. (The server's.)
/// 2. Sends keys that the query has not sent yet, and encryptions of its A and Bᵀ, which are drawn with them.
/// 3. (The server's.)
/// 4. [`Sent::receive`] adds what it decrypts to its A·B.
pub(super) fn client(
    tools: Tools,
    of_factors: impl FnOnce(Vec<Words>) -> Triple,
    keys: &Mutex<QueryKeys>,
    chan: &mut Channel,
    prg: &mut Prg,
) -> Result<Sent, MpcError> {
    let Tools { layout, ring, .. } = &tools;
    let mut keys = lock(keys);
    let own = keys.send(&tools, chan, prg)?;
    let mut factors = Vec::new();
    for (term, tiling) in layout.terms.iter().enumerate() {
        let mut x = words(tiling.batch * tiling.rows * tiling.inner);
        let noise = seed(prg);
        let encrypted = |number| {
            let mut prg = Prg::derive(&noise, "jaguar matrix ciphertext", &[number as u64]);
            let is_zero = |i| tiling.is_zero(layout.n(), i);
            own.secrets[0].encrypt_drawn(ring, &tools.drawn[term], is_zero, &mut prg)
        };
        all(tiling.ciphertexts(), encrypted, |number, (sent, message)| {
            tools.take_block(tiling, &message, number, &mut x);
            tools.send_ciphertext(chan, term, &sent)
        })?;
        factors.push(x);
    }
    chan.flush()?;
    let secrets = own.rounded[..layout.secrets].to_vec();
    drop(keys);
    Ok(Sent { tools, secrets, triple: of_factors(factors) })
}

impl Sent {
    /// Step 4. Takes the triple out.
    pub(super) fn receive(&mut self, of: &Matrices, chan: &mut Channel) -> Result<Triple, MpcError> {
        let Self { tools, secrets, triple } = self;
        let seed = tools.receive_seed(chan)?;
        let mut phases = words(tools.n());
        for (group, terms) in tools.layout.groups().enumerate() {
            let tiling = &terms[0];
            let mut a = Vec::new();
            for pack in 0..tiling.packs() {
                let own = pack % secrets.len();
                if own == 0 {
                    a = chan.recv_packed(tools.n(), tools.half_bits)?;
                }
                secrets[own].multiply_into(&a, tools.half_bits, &mut phases);
                let shown = tools.shown(&seed, group, tiling, pack);
                for ((coefficient, place), shown) in tiling.results(pack).zip(shown) {
                    let share = client_share(shown, phases[coefficient], tools.half_bits);
                    triple.add(of, (group, tiling), place, tools.share(tiling, share));
                }
            }
        }
        Ok(std::mem::take(triple))
    }
}

/// Packs that share an a half, as it is sent, and what the server keeps of them.
pub(super) struct Packs {
    pub a: Words,
    shares: Vec<Words>,
}

/// The server's part, out of `prg`, which is secret.
///
/// 1. (It has drawn its A and B, of which the `factors` are.)
/// 2. (The client's.)
/// 3. Sends the seed of all b halves, and packs of the products, each with a fresh encryption of zero. Adds its
///    shares to its A·B.
pub(super) fn server(
    tools: &Tools,
    of: &Matrices,
    triple: &mut Triple,
    factors: &[Words],
    keys: &Mutex<QueryKeys>,
    chan: &mut Channel,
    prg: &mut Prg,
) -> Result<(), MpcError> {
    let mut keys = lock(keys);
    let keys = keys.receive(tools, chan)?;
    let mut inputs: Vec<Vec<Ciphertext<Values>>> = Vec::new();
    for (term, tiling) in tools.layout.terms.iter().enumerate() {
        let (turn, mut own) = (tools.turn(tiling), Vec::new());
        let sent = (0..tiling.ciphertexts()).map(|_| tools.receive_ciphertext(chan, term));
        let sent = sent.collect::<Result<Vec<_>, _>>()?;
        let turned = |number: usize| tools.turned(term, &sent[number], &turn);
        all(sent.len(), turned, |_, ciphertext| -> Result<(), MpcError> {
            own.push(ciphertext);
            Ok(())
        })?;
        inputs.push(own);
    }
    let mut shown = [0; SEED];
    prg.fill(&mut shown);
    chan.send(&shown)?;
    let (all_inputs, mut inputs, mut factors) = (&inputs, &inputs[..], factors);
    for (group, terms) in tools.layout.groups().enumerate() {
        let fresh = seed(prg);
        let (own, weights);
        (own, inputs) = match terms[0].lent {
            Some(_) => (&all_inputs[all_inputs.len() - 1..], inputs),
            None => inputs.split_at(terms.len()),
        };
        (weights, factors) = factors.split_at(terms.len());
        let tiling = &terms[0];
        let together = tools.layout.secrets;
        let count = tiling.packs().div_ceil(together);
        // (Each is taken by the thread that joins it.)
        let mut packed: Vec<Mutex<Vec<_>>> = (0..count).map(|_| Mutex::default()).collect();
        let made = |number| tools.leaving(products(tools, terms, keys, own, weights, number));
        all(tiling.packs(), made, |number, pack| -> Result<(), MpcError> {
            packed[number / together].get_mut().unwrap_or_else(PoisonError::into_inner).push(pack);
            Ok(())
        })?;
        let answer = |number: usize| {
            let packs = std::mem::take(&mut *packed[number].lock().unwrap_or_else(PoisonError::into_inner));
            let numbers = (number * together..).take(packs.len());
            let shown: Vec<_> = numbers.map(|number| tools.shown(&shown, group, tiling, number)).collect();
            let mut prg = Prg::derive(&fresh, "jaguar matrix response", &[number as u64]);
            hide(tools, tiling, keys, packs, number * together, &shown, &mut prg)
        };
        all(count, answer, |number, Packs { a, shares }| -> Result<(), MpcError> {
            chan.send_packed(&a, tools.half_bits)?;
            for (pack, shares) in (number * together..).zip(shares) {
                for ((_, place), &share) in tiling.results(pack).zip(shares.iter()) {
                    triple.add(of, (group, tiling), place, share);
                }
            }
            Ok(())
        })?;
    }
    chan.flush()?;
    Ok(())
}

/// The products of a pack, in one ciphertext: of all terms of a group, each with its ciphertexts, which were turned
/// ([`Tools::turn`]), and the server's W.
pub(super) fn products(
    tools: &Tools,
    terms: &[Tiling],
    keys: &OfServer,
    inputs: &[Vec<Ciphertext<Values>>],
    w: &[Words],
    pack: usize,
) -> Ciphertext<Values> {
    let ring = &tools.ring;
    let zero = || Ciphertext { a: ring.zero(), b: ring.zero() };
    let mut responses: Vec<Option<Ciphertext<Values>>> = (0..terms[0].packed()).map(|_| None).collect();
    for ((tiling, inputs), w) in terms.iter().zip(inputs).zip(w) {
        let blocks = tiling.inner_blocks();
        let scalar = ring.inverse_power(tiling.pack_log2);
        let mut weights: Vec<Poly<Values>> = (0..blocks).map(|_| ring.zero()).collect();
        let mut made_for = None;
        for (response, to) in tiling.pack(pack).zip(&mut responses) {
            let (batch, column, row) = tiling.place(response);
            // Neighbours differ in rows alone, mostly.
            if made_for != Some((batch, column)) {
                made_for = Some((batch, column));
                for (block, weights) in weights.iter_mut().enumerate() {
                    tools.weights_into(tiling, w, [batch, column, block], &scalar, weights);
                }
            }
            let own = &inputs[tiling.ciphertext(batch, row)..][..blocks];
            to.get_or_insert_with(zero).add_products(ring, own, &weights);
        }
    }
    keys.pack(tools, &terms[0], responses).unwrap_or_else(zero)
}

/// Packs from number `first` on as they leave the ring: with one a half, under a fresh encryption of zero; and of
/// each b half the server's shares, beside what is `shown`.
pub(super) fn hide(
    tools: &Tools,
    tiling: &Tiling,
    keys: &OfServer,
    packs: Vec<Ciphertext<Coefficients>>,
    first: usize,
    shown: &[Vec<u64>],
    prg: &mut Prg,
) -> Packs {
    let Tools { ring, half, left, layout, .. } = tools;
    let joint = keys.joint(layout);
    let mut zeros = joint.encrypt_zeros(ring, packs.len(), prg).into_coefficients(ring);
    if layout.secrets > 1 {
        zeros = zeros.drop_prime(ring);
    }
    let mut packs = joint.join(ring, packs);
    packs.add_assign(left, &zeros);
    let shares = |((number, b), shown): ((usize, &Poly<Coefficients>), &Vec<u64>)| -> Words {
        let phases = half.round(left, b);
        // (Not by growing, which would leave copies behind.)
        let mut shares = Zeroizing::new(Vec::with_capacity(shown.len()));
        tiling.results(number).for_each(|(coefficient, _)| {
            let shown = shown[shares.len()];
            shares.push(tools.share(tiling, server_share(phases[coefficient], shown, tools.half_bits)));
        });
        shares
    };
    let shares = (first..).zip(&packs.b).zip(shown).map(shares).collect();
    Packs { a: half.round(left, &packs.a), shares }
}

/// The server's share of a b half's coefficient that the client has as `shown`: R = `shown` − `phase`, negative and
/// without its lowest bits.
pub(super) fn server_share(phase: u64, shown: u64, bits: u32) -> u64 {
    ((shown.wrapping_sub(phase) & ((1 << bits) - 1)) >> MORE).wrapping_neg()
}

/// The client's share, of what is `shown` and the coefficient of A·s.
pub(super) fn client_share(shown: u64, product: u64, bits: u32) -> u64 {
    (shown.wrapping_add(product) & ((1 << bits) - 1)) >> MORE
}
