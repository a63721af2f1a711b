//! The client that only looks ([`crate::known_coins`]), against this backend's roundings: it succeeds without guard bits and fails
//! with as many as there are by default.

use std::slice::{from_mut, from_ref};

use jaguar_graph::network::{Bias, Hiding, Linear, Weights};
use jaguar_graph::reference::{linear_exact, relu_ignoring};
use jaguar_mpc::semantics::opened_noise;
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::params::Parameters;
use jaguar_ring::he::power_of_two::{PublicSeed, QuerySecret, Ring, ZeroKey};
use jaguar_ring::prg::Prg;
use jaguar_wire::{memory_pair, pack};

use super::*;
use crate::known_coins::{Attack, beyond_chance, random};

/// A 3 x 3 convolution over one channel of 8 x 8: 64 hidden units in one response.
const SIDE: usize = 8;

/// Bits of activations, guard bits not counted, and of weights.
const BITS: (u32, u32) = (16, 12);

/// Asks about one image so many times; what the client finds, with each hidden value before rounding, in units of the last place
/// without guard bits.
fn ask(queries: u64, guard_bits: u32) -> (Attack<10>, Vec<f64>) {
    let spec = Linear { shift: 12, ..Linear::same(1, 3, 12) };
    let (n, weight_bits) = (BITS.0 + guard_bits, BITS.1);
    let params = Parameters::DEFAULT;
    let layout = Layout::new(params.ring_dim(), &spec, [1, SIDE, SIDE]).unwrap();
    let widths = Widths { activation_bits: n, guard_bits, weight_bits };
    let layer = Layer::with_widths(params, layout, 0, widths, false).unwrap();
    let mut prg = Prg::derive(&[6; 32], "one image", &[]);
    let mut signed = |bits: u32| (prg.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1));
    let weights: Vec<i16> = (0..9).map(|_| signed(weight_bits) as i16).collect();
    let x: Vec<i64> = (0..SIDE * SIDE).map(|_| signed(13) << guard_bits).collect();
    let weights = Weights { weights, exponents: Vec::new(), bias: Bias::PerChannel(vec![0]) };
    let exact = linear_exact(Cpu::detect(), &spec, [1, SIDE, SIDE], &weights, &x);
    let unit = f64::from(1 << guard_bits);
    let values = exact.iter().map(|&m| m as f64 / 4096.0 / unit).collect();

    let ring = Ring::new(Cpu::detect(), params);
    let public = PublicSeed([9; 32]);
    let hint_key = [5; 32];
    let server = ServerLayer::new(Cpu::detect(), layer.clone(), &weights, weight_bits);
    let p1 = public.p1(&params);
    let hint = server.hint(&ring, &public, &ring.prepare_wide(&p1), &hint_key, 0..1);
    let (k, ring_mask) = (params.modulus_bits(), (1u64 << n) - 1);
    let hint_ring = layer.hint_ring(Kernel::of(Cpu::detect()));
    let mut attack = Attack::<10>::new(units());
    let mut server_prg = Prg::derive(&[4; 32], "server", &[]);
    for query in 0..queries {
        let mut secret = QuerySecret::from_prg(&ring, &mut Prg::derive(&[1; 32], "secret", &[query]));
        let p0 = secret.zero_key(&ring, &p1);
        let mask_seed = mask_seed(query);
        let mut x_client = vec![0; x.len()];
        Prg::derive(&[2; 32], "shares", &[query]).fill_words(&mut x_client, layer.input_bits());
        let share = |(&x, &c): (&i64, &u64)| (x as u64).wrapping_sub(c) & ((1 << layer.input_bits()) - 1);
        let x_server: Vec<u64> = x.iter().zip(&x_client).map(share).collect();

        let (mut to_server, mut to_client) = memory_pair();
        let prepared = prepare(&layer, &ring, &public, &hint, from_mut(&mut secret), &mask_seed);
        let client = prepared.run(&layer, &mut to_server, &x_client).unwrap();
        to_server.flush().unwrap();
        let p0 = ZeroKey::new(&ring, &p0, &mut server_prg);
        let prepared = server.prepare(&ring, &hint_key, from_ref(&p0), &mask_seed);
        let upload = server.receive(&mut to_client).unwrap();
        let of_server = server.begin(prepared, upload, &x_server).finish();

        // What the client knows: its phase, of which its share is the upper part and the coin the lower one.
        let masks = layer.masks(&mask_seed);
        let mut response = hint_ring.residues();
        pack::unpack_u32_into(&hint, layer.hint_bits, response.words_mut());
        let mut product = vec![0; params.ring_dim()];
        hint_ring.multiply_received_into(
            &mut response,
            &secret.for_responses(&hint_ring),
            k,
            1,
            &mut product,
        );
        let mut coins = vec![0.0; x.len()];
        for (from, to, len) in layer.layout.exports(&layer.layout.tiles()[0]) {
            for i in 0..len {
                let phase = masks[to + i].wrapping_add(product[from + i]) & params.mask();
                assert_eq!(client[to + i], phase >> (k - n));
                coins[to + i] = (phase & ((1 << (k - n)) - 1)) as f64 / 2f64.powi((k - n) as i32);
            }
        }

        // What follows: ReLU, the second layer, and the server's noise in what is opened.
        let hidden = |i: usize| {
            let sum = client[i].wrapping_add(of_server[i]) & ring_mask;
            relu_ignoring((sum << (64 - n)) as i64 >> (64 - n), 0, client[i]) as f64 / unit
        };
        let y: Vec<f64> = (0..x.len()).map(hidden).collect();
        let mut noise = || {
            opened_noise(random(&mut server_prg), Hiding::by_guard_bits(guard_bits).noise_bits) as f64 / unit
        };
        let opened = attack.logits(&y).map(|logit| logit + noise());
        attack.observe(&coins, opened);
    }
    (attack, values)
}

fn units() -> usize {
    SIDE * SIDE
}

fn mask_seed(query: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    Prg::derive(&[3; 32], "mask seed", &[query]).fill(&mut seed);
    seed
}

/// Units that are active.
fn active(values: &[f64]) -> impl Iterator<Item = usize> {
    (0..values.len()).filter(|&i| values[i] > 2.0)
}

#[test]
fn without_guard_bits_the_client_reads_hidden_values_and_weights() {
    let (attack, values) = ask(2_000, 0);
    let found = attack.found();
    let active: Vec<usize> = active(&values).collect();
    assert!(active.len() > 20);
    let seen = active.iter().filter(|&&i| found[i].statistic > beyond_chance(10)).count();
    assert!(10 * seen >= 9 * active.len(), "{seen} of {} units", active.len());
    let error = |i: usize| {
        let error = (found[i].place - values[i].rem_euclid(1.0)).abs();
        error.min(1.0 - error)
    };
    let near = active.iter().filter(|&&i| error(i) < 0.03 && attack.likeness(i, &found[i]) > 0.9).count();
    assert!(10 * near >= 8 * active.len(), "{near} of {} units to 1/32 and their weights", active.len());
}

#[test]
fn with_guard_bits_it_finds_nothing() {
    let (attack, values) = ask(8_000, jaguar_graph::network::DEFAULT_GUARD_BITS);
    let found = attack.found();
    let active: Vec<usize> = active(&values).collect();
    assert!(active.len() > 20);
    for &i in &active {
        assert!(found[i].statistic < beyond_chance(10), "unit {i}: {}", found[i].statistic);
    }
    let likeness: f64 =
        active.iter().map(|&i| attack.likeness(i, &found[i])).sum::<f64>() / active.len() as f64;
    assert!(likeness.abs() < 0.25, "{likeness}");
}
