//! The weights of a first layer, by a client that follows the protocol and asks every image *once*: from T·d, which
//! it sees, and from what every client knows. And the image, by a server that looks at the signs that it is told.
//!
//! **The weights.** d lies within two last places of (b + Σ w·x) / 2^f, with b a unit's bias, w its weights and x the
//! image. The client lights pixels that no unit sees two of. So a unit sees nothing, and T·d leaves some candidates
//! for its b; or it sees one pixel, and T·d leaves some for b + w·x, each of which is one whole number w, or none.
//! The bias must be one and the same number in all of them, and a weight in all that show it: with few candidates
//! each, that leaves the true ones.
//!
//! `cargo test -p jaguar-fregata --features pmax-leaky asked_once -- --nocapture` tells how many were found.

use std::sync::Mutex;
use std::thread;

use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::Reveal;
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_fregata::pmax_leaky::with_products_seen;
use jaguar_graph::network::Bias;
use jaguar_ring::prg::{Prg, with_insecure_fixed_randomness};
use jaguar_wire::memory_pair;

use crate::sessions::{
    HIDDEN, PIXELS, Shares, connected, convolution, first_layer, hidden_layer, leaky_service, pattern,
    sealed_service,
};

/// What both parties have of the hidden units, after one query.
struct Query {
    /// What the client saw as T·d.
    products: Vec<i64>,
    /// The client's shares before and behind the ReLU, as signed numbers.
    client: [Vec<i64>; 2],
    /// The server's behind it.
    server: Vec<u64>,
}

/// The layer before the ReLUs.
const LAYER: usize = 1;

/// Asks about every image once. All randomness follows from `seed`.
fn queries(service: &Service, images: &[Vec<i64>], seed: u8) -> Vec<Query> {
    let (client_end, server_end) = memory_pair();
    let of_server = Mutex::new(Vec::new());
    let domains = [LAYER, HIDDEN].map(|node| service.plan().steps[node].domain.modulus);
    let mut seen = thread::scope(|scope| {
        let server = scope.spawn(|| {
            with_insecure_fixed_randomness([seed; 32], || {
                service.serve_observed(server_end, &mut |_| (), &mut |node, share| {
                    if node == HIDDEN {
                        of_server.lock().unwrap().push(share.to_vec());
                    }
                })
            })
        });
        let seen = with_insecure_fixed_randomness([seed + 1; 32], || {
            let mut ready = connected(client_end).prepare_client(HintPlace::Memory).unwrap();
            let mut seen = Vec::new();
            for image in images {
                let mut shares = Shares::new();
                let prepared = ready.prepare_query(&mut NoProgress).unwrap();
                let observe = &mut |node: usize, share: &[u64]| drop(shares.insert(node, share.to_vec()));
                let run = || prepared.run_observed(image, &mut NoProgress, observe).unwrap().2;
                let (next, products) = with_products_seen(run);
                ready = next;
                let signed = |i: usize| {
                    let (node, modulus) = ([LAYER, HIDDEN][i], domains[i]);
                    shares[&node].iter().map(|&share| modulus.open(share, 0)).collect()
                };
                seen.push(Query { products, client: [signed(0), signed(1)], server: Vec::new() });
            }
            ready.leave().unwrap();
            seen
        });
        server.join().unwrap().unwrap();
        seen
    });
    for (query, share) in seen.iter_mut().zip(of_server.into_inner().unwrap()) {
        query.server = share;
    }
    seen
}

// ---- The attack. ----

/// What every client knows of a layer.
struct Public {
    /// Factors are from 1 to this.
    factors: i64,
    /// d has so many bits, its sign included.
    bits: u32,
    /// f, and g: d is about (b + w·x) · 2^(g − f).
    shift: u32,
    guard_bits: u32,
    /// Weights are at most so large.
    weight: i64,
}

impl Public {
    fn of(service: &Service) -> Self {
        let network = service.network();
        let spec = network.nodes[LAYER].op.linear().expect("a layer");
        let factor_bits = match service.plan().choices.comparison.extra_bits() {
            // What an attacker of the sealed form who knows no better would try.
            0 => 8,
            factor_bits => factor_bits,
        };
        Self {
            factors: 1 << factor_bits,
            bits: network.activation_bits,
            shift: spec.shift,
            guard_bits: network.guard_bits,
            weight: 1 << (network.weight_bits - 1 + spec.max_exponent),
        }
    }

    /// What b + w·x may be, by T·d.
    fn candidates(&self, product: i64) -> Vec<i64> {
        let values = (1..=self.factors).filter(|s| product % s == 0).map(|s| product / s);
        let fitting = values.filter(|d| d.unsigned_abs() < 1 << (self.bits - 1));
        let mut all: Vec<i64> = fitting.map(|d| (d << self.shift) >> self.guard_bits).collect();
        all.dedup();
        all
    }

    /// How far a candidate may lie from it: it was rounded, and with guard bits there is noise of less than one last
    /// place, and of most of one in one of a thousand.
    fn tolerance(&self) -> i64 {
        5 << (self.shift - 2)
    }
}

/// What a unit's product shows: its bias alone, or with the weight of this number times a level.
struct Shown {
    of: Option<(usize, i64)>,
    product: i64,
}

/// What is claimed of one unit, by number of the weight: nothing, unless one bias and some weights explain all that
/// was seen.
fn solve(public: &Public, shown: &[Shown], weights: usize) -> Vec<Option<i64>> {
    // The bias is off by as much as what shows it.
    let close = |a: i64, b: i64| (a - b).abs() <= 2 * public.tolerance();
    let nearest = |candidates: &[i64], value: i64| {
        let near = candidates.iter().copied().filter(|&c| close(c, value));
        near.min_by_key(|c| (c - value).abs())
    };
    let of = |of: Option<usize>| {
        let those = shown.iter().filter(move |s| s.of.map(|(weight, _)| weight) == of);
        those.map(|s| (s.of.map_or(0, |(_, level)| level), public.candidates(s.product))).collect::<Vec<_>>()
    };
    let dark = of(None);
    let lit: Vec<Vec<(i64, Vec<i64>)>> = (0..weights).map(|weight| of(Some(weight))).collect();
    let Some((_, first)) = dark.first() else { return vec![None; weights] };
    // By bias: how badly it explains all, and the weights that do it best.
    let mut best: Option<(i64, Vec<i64>)> = None;
    for &guess in first {
        // It is the mean of those that are near it.
        let near: Option<Vec<i64>> = dark
            .iter()
            .map(|(_, all)| all.iter().copied().min_by_key(|c| (c - guess).abs()))
            .map(|c| c.filter(|&c| close(c, guess)))
            .collect();
        let Some(near) = near else { continue };
        let bias = near.iter().sum::<i64>() / near.len() as i64;
        let explained = |equations: &Vec<(i64, Vec<i64>)>| {
            let (level, candidates) = equations.iter().max_by_key(|(level, _)| level.abs())?;
            let near = |&c: &i64| {
                let around = (c - bias) / level;
                (around - 1..=around + 1).filter(move |w| w.abs() <= public.weight)
            };
            let cost = |w: i64| {
                let off = equations.iter().map(|(level, candidates)| {
                    let value = bias + w * level;
                    nearest(candidates, value).map(|c| (c - value).abs())
                });
                off.sum::<Option<i64>>().map(|off| (off, w))
            };
            candidates.iter().flat_map(near).filter_map(cost).min()
        };
        let Some(found) = lit.iter().map(explained).collect::<Option<Vec<_>>>() else { continue };
        let off: i64 = found.iter().map(|(off, _)| off).sum();
        if best.as_ref().is_none_or(|(least, _)| off < *least) {
            best = Some((off, found.into_iter().map(|(_, w)| w).collect()));
        }
    }
    best.map_or_else(|| vec![None; weights], |(_, found)| found.into_iter().map(Some).collect())
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    right: usize,
    wrong: usize,
    nothing: usize,
}

impl Found {
    fn count(&mut self, claimed: &[Option<i64>], truth: &[i64]) {
        for (claimed, truth) in claimed.iter().zip(truth) {
            match claimed {
                Some(claimed) if claimed == truth => self.right += 1,
                Some(_) => self.wrong += 1,
                None => self.nothing += 1,
            }
        }
    }
}

/// What an attacker may take for T·d: the products, of a sealed session its own shares.
fn readings(query: &Query) -> Vec<&[i64]> {
    match &query.products[..] {
        [] => query.client.iter().map(Vec::as_slice).collect(),
        products => vec![products],
    }
}

// ---- On units that see all pixels. ----

/// Each image lights one pixel, or none; `levels` images a pixel.
fn dense(service: &Service, weights: &[[i16; PIXELS]], levels: &[i64], seed: u8) -> Found {
    let guard_bits = service.network().guard_bits;
    let lit = (0..PIXELS).flat_map(|pixel| levels.iter().map(move |&level| Some((pixel, level))));
    let asked: Vec<Option<(usize, i64)>> = std::iter::once(None).chain(lit).collect();
    let image = |lit: &Option<(usize, i64)>| {
        let mut image = vec![0; PIXELS];
        if let Some((pixel, level)) = *lit {
            image[pixel] = level << guard_bits;
        }
        image
    };
    let seen = queries(service, &asked.iter().map(image).collect::<Vec<_>>(), seed);
    let public = Public::of(service);
    let mut found = Found::default();
    for reading in 0..readings(&seen[0]).len() {
        for (unit, weights) in weights.iter().enumerate() {
            let shown = asked.iter().zip(&seen);
            let shown: Vec<Shown> =
                shown.map(|(&of, query)| Shown { of, product: readings(query)[reading][unit] }).collect();
            found.count(&solve(&public, &shown, PIXELS), &weights.map(i64::from));
        }
    }
    found
}

/// Weights of 12 bits and biases, and the layer; with guard bits or without.
fn dense_layer(units: usize, guard_bits: u32) -> (Vec<[i16; PIXELS]>, Bundle) {
    let mut prg = Prg::new([13; 32]);
    let mut word = |bits: u32| (prg.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1));
    let weights: Vec<[i16; PIXELS]> =
        (0..units).map(|_| std::array::from_fn(|_| word(12).max(-2047) as i16)).collect();
    let biases: Vec<i64> = (0..units).map(|_| word(20)).collect();
    let Bundle { model, .. } = hidden_layer(&weights, &biases);
    (weights, Bundle::with_hiding(model, guard_bits).unwrap())
}

#[test]
fn every_image_asked_once_gives_the_weights_away() {
    let units = 60;
    for guard_bits in [0, 8] {
        for levels in [&[32_000][..], &[32_000, -29_000], &[32_000, -29_000, 25_000]] {
            let (weights, bundle) = dense_layer(units, guard_bits);
            let found = dense(&leaky_service(bundle, Reveal::Label), &weights, levels, 20);
            println!("{guard_bits} guard bits, {} images: {found:?}", 1 + PIXELS * levels.len());
            if levels.len() > 1 {
                assert!(found.right >= units * PIXELS * 3 / 4, "{found:?}");
            }
        }
        // Of a sealed session the same attack finds none, by either of what a client holds.
        let (weights, bundle) = dense_layer(units, guard_bits);
        let found = dense(&sealed_service(bundle), &weights, &[32_000, -29_000, 25_000], 22);
        assert_eq!(found, Found { right: 0, wrong: 0, nothing: 2 * units * PIXELS });
    }
}

// ---- On a convolution, which shows each weight at many places. ----

const CHANNELS: usize = 3;
const FILTERS: usize = 8;
const SIDE: usize = 16;

/// A convolution of 3 × 3 over three channels with 8 filters, ReLUs, and ten logits.
fn filtered(guard_bits: u32) -> Bundle {
    let layer = convolution(&mut Prg::new([42; 32]), CHANNELS, FILTERS, 3);
    let Bundle { model, .. } = first_layer([CHANNELS, SIDE, SIDE], layer);
    Bundle::with_hiding(model, guard_bits).unwrap()
}

/// The weights of the first layer, as the client would write them: by filter.
fn filters(bundle: &Bundle) -> Vec<Vec<i64>> {
    let weights = bundle.model.weights[LAYER].as_ref().unwrap();
    let filters = weights.weights.chunks(CHANNELS * 9).zip(&weights.exponents);
    filters.map(|(filter, &e)| filter.iter().map(|&w| i64::from(w) << e).collect()).collect()
}

/// One image: pixels so far apart that each output sees one of them or none, each with its channel and level.
fn spots() -> Vec<([usize; 3], i64)> {
    let at = (0..SIDE / 4).flat_map(|i| (0..SIDE / 4).map(move |j| (i, j)));
    let spot = |(n, (i, j)): (usize, (usize, usize))| {
        let level = 20_000 + 750 * n as i64;
        ([n % CHANNELS, 4 * i + 1, 4 * j + 1], if n % 2 == 0 { level } else { -level })
    };
    at.enumerate().map(spot).collect()
}

fn convolved(service: &Service, truth: &[Vec<i64>], seed: u8) -> Found {
    let guard_bits = service.network().guard_bits;
    let mut image = vec![0; CHANNELS * SIDE * SIDE];
    // What each output sees: which weight of its filter, and the level.
    let mut sees: Vec<Option<(usize, i64)>> = vec![None; SIDE * SIDE];
    for ([c, y, x], level) in spots() {
        image[(c * SIDE + y) * SIDE + x] = level << guard_bits;
        for ky in 0..3 {
            for kx in 0..3 {
                sees[(y + 1 - ky) * SIDE + x + 1 - kx] = Some((9 * c + 3 * ky + kx, level));
            }
        }
    }
    let seen = &queries(service, &[image], seed)[0];
    let public = Public::of(service);
    let mut found = Found::default();
    for reading in readings(seen) {
        for (outputs, truth) in reading.chunks(SIDE * SIDE).zip(truth) {
            let shown = sees.iter().zip(outputs);
            let shown: Vec<Shown> = shown.map(|(&of, &product)| Shown { of, product }).collect();
            found.count(&solve(&public, &shown, CHANNELS * 9), truth);
        }
    }
    found
}

/// A convolution shows all its weights in one image, and each several times.
#[test]
fn one_query_gives_the_weights_of_a_convolution_away() {
    for guard_bits in [0, 8] {
        let truth = filters(&filtered(guard_bits));
        let all = truth.concat().len();
        let found = convolved(&leaky_service(filtered(guard_bits), Reveal::Label), &truth, 30);
        println!("{guard_bits} guard bits, 1 image: {found:?}");
        assert!(found.right >= all * 3 / 4, "{found:?}");
        let found = convolved(&sealed_service(filtered(guard_bits)), &truth, 32);
        assert_eq!(found, Found { right: 0, wrong: 0, nothing: 2 * all });
    }
}

// ---- The server's side. ----

/// A picture with a light, a shade and an edge, around zero.
fn picture() -> Vec<i64> {
    let value = |c: usize, y: usize, x: usize| {
        let (y, x, c) = (y as f64 / SIDE as f64, x as f64 / SIDE as f64, c as f64);
        let light = 6000.0 * (-((x - 0.3).powi(2) + (y - 0.4).powi(2)) * 20.0).exp();
        let edge = if x + 0.5 * y > 0.9 { 3000.0 - 1500.0 * c } else { -1500.0 };
        (light + edge + 1500.0 * (6.0 * y + c).sin()) as i64
    };
    let places = (0..CHANNELS).flat_map(|c| (0..SIDE * SIDE).map(move |at| (c, at / SIDE, at % SIDE)));
    places.map(|(c, y, x)| value(c, y, x)).collect()
}

/// How alike two images are: the correlation of their values.
fn likeness(a: &[f64], b: &[i64]) -> f64 {
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / a.len() as f64;
    let (of_a, of_b) = (mean(&mut a.iter().copied()), mean(&mut b.iter().map(|&b| b as f64)));
    let pairs = || a.iter().zip(b).map(|(a, &b)| (a - of_a, b as f64 - of_b));
    let [ab, aa, bb] = [
        pairs().map(|(a, b)| a * b).sum::<f64>(),
        pairs().map(|(a, _)| a * a).sum::<f64>(),
        pairs().map(|(_, b)| b * b).sum::<f64>(),
    ];
    if aa == 0.0 { 0.0 } else { ab / (aa * bb).sqrt() }
}

/// Each value becomes the mean of itself and of those next to it.
fn smoothed(image: &[f64]) -> Vec<f64> {
    let at = |c: usize, y: isize, x: isize| {
        let inside = |i: isize| (0..SIDE as isize).contains(&i);
        (inside(y) && inside(x)).then(|| image[(c * SIDE + y as usize) * SIDE + x as usize])
    };
    let mean = |i: usize| {
        let (c, y, x) = (i / SIDE / SIDE, (i / SIDE % SIDE) as isize, (i % SIDE) as isize);
        let near = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)];
        let near: Vec<f64> = near.iter().filter_map(|(dy, dx)| at(c, y + dy, x + dx)).collect();
        near.iter().sum::<f64>() / near.len() as f64
    };
    (0..image.len()).map(mean).collect()
}

/// The server's attack: from the dark image on, each unit whose sign is another one moves what it sees to its
/// threshold. As pictures are smooth, it smooths at first. It knows its weights.
fn image_from_signs(bundle: &Bundle, active: &[bool]) -> Vec<f64> {
    let filters = filters(bundle);
    let Bias::PerChannel(biases) = &bundle.model.weights[LAYER].as_ref().unwrap().bias else {
        unreachable!("so many filters have a bias each")
    };
    // What an output sees: weights' numbers and values' numbers.
    let sees = |at: usize| -> Vec<(usize, usize)> {
        let place = |w: usize| (w / 9, at / SIDE + w % 9 / 3, at % SIDE + w % 3);
        let inside = |&(_, (_, y, x)): &(usize, (usize, usize, usize))| {
            (1..=SIDE).contains(&y) && (1..=SIDE).contains(&x)
        };
        let all = (0..CHANNELS * 9).map(|w| (w, place(w))).filter(inside);
        all.map(|(w, (c, y, x))| (w, (c * SIDE + y - 1) * SIDE + x - 1)).collect()
    };
    let seen: Vec<Vec<(usize, usize)>> = (0..SIDE * SIDE).map(sees).collect();
    let mut image = vec![0.0; CHANNELS * SIDE * SIDE];
    for sweep in 0..40 {
        if sweep < 30 {
            image = smoothed(&image);
        }
        for (unit, &active) in active.iter().enumerate() {
            let (weights, bias) = (&filters[unit / (SIDE * SIDE)], biases[unit / (SIDE * SIDE)]);
            let taps = seen[unit % (SIDE * SIDE)].iter().map(|&(w, value)| (weights[w] as f64, value));
            let value = bias as f64 + taps.clone().map(|(weight, i)| weight * image[i]).sum::<f64>();
            if (value > 0.0) != active {
                let size: f64 = taps.clone().map(|(weight, _)| weight * weight).sum();
                taps.for_each(|(weight, i)| image[i] -= value / size * weight);
            }
        }
    }
    image
}

/// Usual filters, not chosen for it: the signs of one query show the server much of the picture.
#[test]
fn the_servers_signs_show_the_picture() {
    let likeness = |service: &Service| {
        let seen = &queries(service, &[picture()], 40)[0];
        likeness(&image_from_signs(&filtered(0), &pattern(&seen.server)), &picture())
    };
    let leaky = likeness(&leaky_service(filtered(0), Reveal::Label));
    let sealed = likeness(&sealed_service(filtered(0)));
    println!("likeness of the image that the server computes: {leaky:.3}; by a sealed session {sealed:.3}");
    assert!(leaky > 0.75 && sealed.abs() < 0.3, "{leaky} {sealed}");
}
