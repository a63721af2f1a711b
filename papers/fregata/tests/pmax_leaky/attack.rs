//! What the client of the leaky comparison sees is enough to solve for weights; what it sees of the sealed one is not.

use jaguar_fregata::pmax_leaky::{PmaxLeakyParams, PmaxLeakyRelu, with_products_seen};
use jaguar_mpc::reference::{residue, signed};
use jaguar_mpc::{Nonlinear, Party, Relu, ReluParams, run_blocks};
use jaguar_ot::Role;
use jaguar_ot::insecure_test_dealer::InsecureTestDealer;
use jaguar_wire::double::Recorder;
use jaguar_wire::{Channel, memory_pair, memory_transports};

const BITS: u32 = 16;
const FACTOR_BITS: u32 = 8;
const SHIFT: u32 = 12;
const UNITS: usize = 40;
const PIXELS: usize = 6;
/// A bright pixel.
const BRIGHT: i64 = 1 << 14;

/// The server's: weights of 12 bits, and biases.
struct FirstLayer {
    weights: Vec<[i64; PIXELS]>,
    biases: Vec<i64>,
}

/// Numbers that look random.
fn word(i: u64) -> u64 {
    let x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 29
}

impl FirstLayer {
    fn new() -> Self {
        let weight = |unit: usize, pixel: usize| signed(word((unit * PIXELS + pixel) as u64), 12);
        Self {
            weights: (0..UNITS).map(|unit| std::array::from_fn(|pixel| weight(unit, pixel))).collect(),
            biases: (0..UNITS).map(|unit| signed(word(9000 + unit as u64), 20)).collect(),
        }
    }

    /// Both parties' shares of its outputs, mod 2^`bits`.
    fn shares(&self, image: &[i64; PIXELS], bits: u32, seed: u64) -> [Vec<u64>; 2] {
        let output = |(weights, bias): (&[i64; PIXELS], &i64)| -> i64 {
            (weights.iter().zip(image).map(|(w, x)| w * x).sum::<i64>() + bias) >> SHIFT
        };
        let outputs = self.weights.iter().zip(&self.biases).map(output);
        let shares = outputs.enumerate().map(|(i, y)| {
            let client = residue(word(seed << 20 ^ i as u64) as i64, bits);
            (client, residue(y.wrapping_sub(client as i64), bits))
        });
        let (client, server): (Vec<u64>, Vec<u64>) = shares.unzip();
        [client, server]
    }
}

/// A query with the leaky comparison: what the client sees of each unit.
fn leaky_view(layer: &FirstLayer, image: &[i64; PIXELS], seed: u64) -> Vec<i64> {
    let params = PmaxLeakyParams::new(BITS + FACTOR_BITS, FACTOR_BITS);
    let [x_c, x_s] = layer.shares(image, params.bits, seed);
    let (a, b) = memory_pair();
    let run = |role: Role, mut chan: Channel, x: &[u64]| {
        let mut party = Party::new(role, InsecureTestDealer::new(seed, role));
        let blocks = PmaxLeakyRelu { count: UNITS, params }.prepare(&mut party, &mut chan).unwrap();
        run_blocks(blocks, &mut chan, x).unwrap();
        chan.flush().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(move || run(Role::Server, b, &x_s));
        with_products_seen(|| run(Role::Client, a, &x_c)).1
    })
}

/// A query with the sealed comparison: the first words that the client receives, as signed numbers.
fn sealed_view(layer: &FirstLayer, image: &[i64; PIXELS], seed: u64) -> Vec<i64> {
    let params = ReluParams::new(BITS);
    let [x_c, x_s] = layer.shares(image, BITS, seed);
    let (a, b) = memory_transports();
    let (a, transcript) = Recorder::new(a);
    let run = |role: Role, mut chan: Channel, x: &[u64]| {
        let mut party = Party::new(role, InsecureTestDealer::new(seed, role));
        let relu = Relu::prepare(&mut party, &mut chan, UNITS, params).unwrap();
        relu.run(&mut chan, x).unwrap();
        chan.flush().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(move || run(Role::Server, Channel::new(b), &x_s));
        run(Role::Client, Channel::new(a), &x_c);
    });
    let words = transcript.received();
    words.chunks_exact(2).take(UNITS).map(|w| i64::from(i16::from_le_bytes([w[0], w[1]]))).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The attack: asks `repeats` times for the dark image and for each image with one bright pixel. What is common to all products
/// of a unit is its value, and differences of values are weights.
fn weights_found(
    layer: &FirstLayer,
    repeats: u64,
    view: impl Fn(&FirstLayer, &[i64; PIXELS], u64) -> Vec<i64>,
) -> usize {
    let mut queries = 0;
    let mut values = |image: [i64; PIXELS]| -> Vec<i64> {
        let mut common = vec![(0u64, 0i64); UNITS];
        for _ in 0..repeats {
            queries += 1;
            for ((size, sign), product) in common.iter_mut().zip(view(layer, &image, queries)) {
                *size = gcd(*size, product.unsigned_abs());
                *sign += product.signum();
            }
        }
        common.into_iter().map(|(size, sign)| size as i64 * sign.signum()).collect()
    };
    let dark = values([0; PIXELS]);
    let mut found = 0;
    for pixel in 0..PIXELS {
        let mut image = [0; PIXELS];
        image[pixel] = BRIGHT;
        for (unit, value) in values(image).into_iter().enumerate() {
            let weight = ((value - dark[unit]) as f64 * f64::from(1 << SHIFT) / BRIGHT as f64).round();
            found += usize::from(weight as i64 == layer.weights[unit][pixel]);
        }
    }
    found
}

#[test]
fn chosen_images_give_the_weights_away_and_the_sealed_form_does_not() {
    let layer = FirstLayer::new();
    assert_eq!(weights_found(&layer, 20, leaky_view), UNITS * PIXELS);
    // 240 guesses of one of 4096.
    assert!(weights_found(&layer, 20, sealed_view) <= 2);
}

/// One query, and the size of every value but a few bits.
#[test]
fn one_query_gives_sizes_up_to_the_factor() {
    let layer = FirstLayer::new();
    let image = std::array::from_fn(|pixel| 300 * pixel as i64 - 700);
    let [x_c, x_s] = layer.shares(&image, 40, 3);
    let products = leaky_view(&layer, &image, 3);
    for ((c, s), product) in x_c.iter().zip(&x_s).zip(products) {
        let value = signed(c.wrapping_add(*s), 40);
        assert_eq!(product.signum(), value.signum());
        assert!(value == 0 || product % value == 0 && (1..=1 << FACTOR_BITS).contains(&(product / value)));
    }
}
