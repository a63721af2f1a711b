//! Networks in floating point: over the places of ciphertexts as by the definition, and what calibration says.

use jaguar_ckks::layout::Grid;
use jaguar_ckks::{Literal, Parameters};

use super::plan::{MOST_CHECKS, shape_of};
use super::*;
use crate::description::{Description, Floats, Layer, Polynomial, Term};
use crate::model::{Calibration, Inputs};

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    /// Between -1 and 1.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    }

    fn term(
        &mut self,
        from: usize,
        channels: usize,
        out: usize,
        side: usize,
        stride: usize,
        pad: usize,
    ) -> Term {
        let count = out * channels * side * side;
        let scale = 1.7 / ((channels * side * side) as f32).sqrt();
        Term {
            from,
            out,
            channels,
            height: side,
            width: side,
            stride,
            padding: [pad; 4],
            weights: Floats((0..count).map(|_| scale * self.next()).collect()),
        }
    }

    fn layer(&mut self, name: &str, terms: Vec<Term>) -> Layer {
        let bias = (0..terms[0].out).map(|_| self.next() / 4.0).collect();
        Layer { name: name.into(), terms, bias: Floats(bias), bound: None }
    }
}

/// A kernel of one that passes channel c on as channel c + `first`.
fn shortcut(from: usize, channels: usize, out: usize, stride: usize, first: usize) -> Term {
    let mut weights = vec![0.0; out * channels];
    (0..channels).for_each(|c| weights[(c + first) * channels + c] = 1.0);
    Term { from, out, channels, height: 1, width: 1, stride, padding: [0; 4], weights: Floats(weights) }
}

fn described(name: &str, input: [usize; 3], layers: Vec<Layer>, output: Layer) -> Description {
    Description {
        name: name.into(),
        input,
        input_bound: 1.0,
        relu: Polynomial::default(),
        images: 1,
        layers,
        output,
    }
}

/// What ResNet-20 has: a first layer, a residual block, a block with stride and a shortcut without weights, a pool with a fully connected
/// layer; and a 5 × 5 kernel, and fewer channels than a power of two.
pub(crate) fn small() -> Description {
    let mut draw = Numbers(3);
    let terms = [
        vec![draw.term(0, 2, 3, 5, 1, 2)],
        vec![draw.term(1, 3, 3, 3, 1, 1), shortcut(1, 3, 3, 1, 0)],
        vec![draw.term(2, 3, 8, 3, 2, 1)],
        vec![draw.term(3, 8, 8, 3, 1, 1), shortcut(2, 3, 8, 2, 2)],
    ];
    let names = ["first", "residual", "strided", "option A"];
    let layers = names.iter().zip(terms).map(|(name, terms)| draw.layer(name, terms)).collect();
    let last = vec![draw.term(4, 8, 5, 3, 1, 0)];
    described("small", [2, 6, 6], layers, draw.layer("fc", last))
}

/// An input and values of several ciphertexts of 512 values, and later ones of one.
pub(crate) fn wide() -> Description {
    let mut draw = Numbers(6);
    let terms = [
        vec![draw.term(0, 10, 12, 3, 1, 1)],
        vec![draw.term(1, 12, 12, 3, 1, 1), shortcut(1, 12, 12, 1, 0)],
        vec![draw.term(2, 12, 14, 3, 2, 1)],
    ];
    let names = ["first", "residual", "strided"];
    let layers = names.iter().zip(terms).map(|(name, terms)| draw.layer(name, terms)).collect();
    let last = vec![draw.term(3, 14, 3, 3, 1, 0)];
    described("wide", [10, 6, 6], layers, draw.layer("fc", last))
}

/// Strides that leave room for groups of channels in 512 values: a layer with a stride gathers pieces of rows, one of
/// stride 1 pieces of channels, and residual connections take values in other pieces than the layers beside them.
pub(crate) fn narrowing() -> Description {
    let mut draw = Numbers(11);
    let terms = [
        vec![draw.term(0, 4, 12, 3, 1, 1)],
        vec![draw.term(1, 12, 24, 3, 2, 1)],
        vec![draw.term(2, 24, 24, 3, 1, 1), shortcut(1, 12, 24, 2, 6)],
        vec![draw.term(3, 24, 40, 3, 2, 1)],
        vec![draw.term(4, 40, 40, 3, 1, 1), shortcut(2, 24, 40, 2, 8)],
    ];
    let names = ["first", "strided", "option A", "strided again", "option A again"];
    let layers = names.iter().zip(terms).map(|(name, terms)| draw.layer(name, terms)).collect();
    let last = vec![draw.term(5, 40, 3, 2, 1, 0), draw.term(4, 40, 3, 2, 1, 0)];
    described("narrowing", [4, 8, 8], layers, draw.layer("fc", last))
}

pub(crate) fn inputs(network: &Description, count: usize) -> Vec<Vec<f32>> {
    let mut draw = Numbers(9);
    let size = network.input.iter().product();
    (0..count).map(|_| (0..size).map(|_| draw.next()).collect()).collect()
}

/// The network by the definition of a convolution, on tensors.
pub(crate) fn direct(network: &Description, input: &[f32]) -> Vec<f64> {
    let mut shapes = vec![network.input];
    let mut values = vec![input.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()];
    for (index, layer) in network.all().enumerate() {
        let [out, height, width] = shape_of(layer, &shapes).expect("sound");
        let mut sums = vec![0.0; out * height * width];
        for (at, sum) in sums.iter_mut().enumerate() {
            let (o, i, j) = (at / (height * width), at / width % height, at % width);
            *sum = f64::from(layer.bias.0[o]);
            for term in &layer.terms {
                let [_, rows, columns] = shapes[term.from];
                let area = term.height * term.width;
                for (w, weight) in
                    term.weights.0[o * term.channels * area..][..term.channels * area].iter().enumerate()
                {
                    let (c, a, b) = (w / area, w % area / term.width, w % term.width);
                    let place = (i * term.stride + a).checked_sub(term.padding[0]);
                    let place = place.zip((j * term.stride + b).checked_sub(term.padding[1]));
                    if let Some((y, x)) = place.filter(|&(y, x)| y < rows && x < columns) {
                        *sum += f64::from(*weight) * values[term.from][(c * rows + y) * columns + x];
                    }
                }
            }
            if index < network.layers.len() {
                *sum = sum.max(0.0);
            }
        }
        shapes.push([out, height, width]);
        values.push(sums);
    }
    values.pop().expect("an output")
}

fn calibrated(plan: &mut Plan, samples: &[Vec<f32>], margin: f64) -> Calibration {
    plan.calibrate(Inputs { samples, margin, stress: &[], stress_margin: 1.0 }).expect("sound samples")
}

#[test]
fn places_give_the_convolutions_of_tensors() {
    let network = small();
    let samples = inputs(&network, 3);
    let polynomials =
        [(64, [2, 3, 3, 2, 2]), (128, [1, 2, 2, 1, 1]), (256, [1, 1, 1, 1, 1]), (1024, [1, 1, 1, 1, 1])];
    for (values, polynomials) in polynomials {
        let mut plan = Plan::new(network.clone(), values).expect("sound");
        assert_eq!(
            plan.grids().iter().map(Grid::polynomials).collect::<Vec<_>>(),
            polynomials,
            "{values} values"
        );
        calibrated(&mut plan, &samples, 1.25);
        for (input, found) in samples.iter().zip(plan.simulate(&samples).expect("calibrated")) {
            let bound = plan.description().output.bound.expect("calibrated");
            let by_polynomial = found.logits.expect("within the bounds");
            // (The polynomial adds its error.)
            assert!(found.reach <= 1.0 / 1.25 + 0.01, "{}", found.reach);
            for ((want, got), polynomial) in
                direct(&network, input).iter().zip(&found.exact).zip(&by_polynomial)
            {
                assert!((want - got).abs() < 1e-9, "{values} values: {got}, not {want}");
                assert!(
                    (want - polynomial).abs() < bound / 16.0,
                    "{values} values: {polynomial}, not {want}"
                );
            }
        }
    }
}

/// Groups of channels, in places and in pieces: the same numbers as by the definition.
#[test]
fn groups_give_the_convolutions_of_tensors() {
    let network = narrowing();
    let samples = inputs(&network, 2);
    for (values, expected) in [(512, [1, 3, 2, 2, 1, 1]), (1024, [1, 1, 1, 1, 1, 1])] {
        let mut plan = Plan::new(network.clone(), values).expect("sound");
        let polynomials: Vec<usize> = plan.grids().iter().map(Grid::polynomials).collect();
        let groups: Vec<usize> = plan.grids().iter().map(Grid::groups).collect();
        let pieces: Vec<usize> =
            plan.grids.iter().zip(&plan.splits).map(|(grid, split)| grid.pieces(*split).len()).collect();
        println!("{values} values: {polynomials:?}, groups {groups:?}, pieces {pieces:?}");
        assert_eq!(polynomials, expected, "{values} values");
        assert!(groups[0] == 1 && groups[2] > 1 && groups[4] > 1, "{groups:?}");
        assert!(pieces.iter().zip(&polynomials).any(|(pieces, whole)| pieces > whole), "{pieces:?}");
        calibrated(&mut plan, &samples, 1.25);
        for (input, found) in samples.iter().zip(plan.simulate(&samples).expect("calibrated")) {
            for (want, got) in direct(&network, input).iter().zip(&found.exact) {
                assert!((want - got).abs() < 1e-9, "{values} values: {got}, not {want}");
            }
        }
    }
}

#[test]
fn the_networks_of_the_paper_fit() {
    let plain = |kernel: usize, per_block: usize, width: usize| {
        let sizes =
            [(16, 1, 1), (16 * width, 1, per_block), (32 * width, 2, per_block), (64 * width, 2, per_block)];
        chain([3, 32, 32], kernel, &sizes)
    };
    let tail = |kernel| chain([128, 28, 28], kernel, &[(256, 2, 4), (512, 2, 4)]);
    // The pitch, ciphertexts of the input, bootstraps, pieces and products. Without groups bootstraps were 19, 19,
    // 19, 13, 37, 55, 37 and 32. (The tails have ten outputs here; with kernels of 5 there is no room for groups.)
    for (name, network, log_values, expected) in [
        ("k3-d20-w1", plain(3, 6, 1), 15, [16, 1, 19, 19, 698]),
        ("k7-d20-w1", plain(7, 6, 1), 15, [16, 1, 19, 19, 698]),
        ("k5-d8-w3", plain(5, 2, 3), 15, [8, 1, 9, 45, 5594]),
        ("k5-d8-w3", plain(5, 2, 3), 16, [16, 1, 7, 23, 2810]),
        ("k3-d14-w3", plain(3, 4, 3), 15, [16, 1, 21, 41, 4826]),
        ("k3-d20-w3", plain(3, 6, 3), 15, [16, 1, 31, 59, 6842]),
        ("k3-d20-w3", plain(3, 6, 3), 16, [16, 1, 19, 59, 6842]),
        ("tail, k3", tail(3), 15, [32, 4, 14, 33, 14346]),
        ("tail, k5", tail(5), 15, [32, 4, 32, 32, 12328]),
    ] {
        let plan = Plan::new(network, 1 << log_values).unwrap_or_else(|e| panic!("{name}: {e}"));
        let first = plan.grids().first().expect("an input");
        let [bootstraps, pieces, products] = [plan.bootstraps(), plan.pieces(), plan.products()];
        let found = [first.column_pitch(), first.polynomials(), bootstraps, pieces, products];
        assert_eq!(found, expected, "{name} in 2^{log_values} values");
        assert_eq!(plan.cost(), 3500 * bootstraps + 350 * pieces + products, "{name}");
    }
    // ResNet-20's kernels, for so many images in a ciphertext.
    for (side, log_values, room, apart) in
        [(32, 15, 1, None), (32, 16, 3, Some(19712)), (28, 15, 2, Some(15488))]
    {
        let sizes = [(16, 1, 7), (32, 2, 6), (64, 2, 6)];
        let several = |images| {
            let network = Description { images, ..chain([3, side, side], 3, &sizes) };
            Plan::new(network, 1 << log_values)
        };
        let fits = several(room).unwrap_or_else(|e| panic!("{side}: {e}"));
        assert!(apart.is_none_or(|apart| fits.apart == apart), "{side}: {}", fits.apart);
        let refusal = several(room + 1).err().expect("too many").to_string();
        assert!(refusal.contains(&format!("has room for {room}")), "{refusal}");
    }
    let error =
        Plan::new(chain([3, 224, 224], 3, &[(8, 2, 1)]), 1 << 15).err().expect("too large").to_string();
    assert!(error.contains("a ciphertext has 32768"), "{error}");
}

/// Blocks of layers without weights, the first of each with a stride: channels, stride, layers.
fn chain(input: [usize; 3], side: usize, blocks: &[(usize, usize, usize)]) -> Description {
    let empty = |from, out, channels, side: usize, stride, padding| {
        let weights = Floats(vec![0.0; out * channels * side * side]);
        let term =
            Term { from, out, channels, height: side, width: side, stride, padding: [padding; 4], weights };
        Layer { name: format!("layer {from}"), terms: vec![term], bias: Floats(vec![0.0; out]), bound: None }
    };
    let (mut layers, [mut channels, mut height, _]) = (Vec::new(), input);
    for &(out, stride, count) in blocks {
        for index in 0..count {
            let stride = if index == 0 { stride } else { 1 };
            layers.push(empty(layers.len(), out, channels, side, stride, side / 2));
            (channels, height) = (out, height / stride);
        }
    }
    let output = empty(layers.len(), 10, channels, height, 1, 0);
    described("chain", input, layers, output)
}

#[test]
fn descriptions_survive_json() {
    let mut network = small();
    network.layers[0].bound = Some(2.5);
    let text = serde_json::to_string(&network).expect("plain");
    assert_eq!(serde_json::from_str::<Description>(&text).expect("the same"), network);
    assert_eq!(text.matches("bound\":2.5").count(), 1);
    assert!(serde_json::from_str::<Description>(&text.replace("7-7-13", "9-9")).is_err());
}

/// What a network is spoilt by.
type Spoil = fn(&mut Description);

#[test]
fn bad_descriptions_are_refused() {
    let cases: [(&str, Spoil); 18] = [
        ("takes value 2 of 2", |n| n.layers[1].terms[0].from = 2),
        ("under a kernel of 3 channels", |n| n.layers[1].terms[0].from = 0),
        ("149 weights", |n| n.layers[0].terms[0].weights.0.truncate(149)),
        ("0 numbers of bias", |n| n.layers[0].bias = Floats(vec![])),
        ("no terms", |n| n.output.terms.clear()),
        ("not one number a channel", |n| n.output.terms[0].padding = [1; 4]),
        ("a bound 0 of the input", |n| n.input_bound = 0.0),
        ("a bound inf of the input", |n| n.input_bound = f64::INFINITY),
        ("a bound of -1", |n| n.layers[2].bound = Some(-1.0)),
        ("the terms before it", |n| n.layers[3].terms[1].stride = 1),
        ("sizes are 1 to 2^16", |n| n.layers[0].terms[0].stride = 0),
        ("strides powers of two", |n| n.layers[0].terms[0].stride = 3),
        ("an input [2, 0, 6]", |n| n.input[1] = 0),
        ("an input [2, 6, 8192]", |n| n.input[2] = 8192),
        ("under a kernel of 2 channels of 5 × 5", |n| {
            n.input[1] = 1;
            n.layers[0].terms[0].padding = [0; 4];
        }),
        ("at most 2^26", |n| {
            let term = &mut n.layers[0].terms[0];
            (term.out, term.channels, term.height, term.width) = (1 << 16, 1 << 16, 1 << 16, 1 << 16);
            term.weights = Floats(vec![]);
        }),
        ("padding 9 9 9 9 of", |n| n.layers[0].terms[0].padding = [9; 4]),
        ("1001 layers", |n| n.layers = vec![n.layers[0].clone(); 1001]),
    ];
    for (why, spoil) in cases {
        let mut network = small();
        spoil(&mut network);
        let error = Plan::new(network, 512).err().unwrap_or_else(|| panic!("{why}: taken")).to_string();
        assert!(error.contains(why), "{error:?} is not {why:?}");
    }
    let error = Plan::new(small(), 32).err().expect("too few values").to_string();
    assert!(error.contains("a ciphertext has 32"), "{error}");
    let plan = Plan::new(small(), 512).expect("sound");
    assert!(matches!(plan.calibrated(), Err(NetworkError::Uncalibrated { index: 0, .. })));
    assert!(plan.simulate(&inputs(&small(), 1)).is_err());
    let other = Parameters::new(&Literal::n16().insecure(11)).expect("a set");
    assert!(plan.check(&other).is_err_and(|e| e.to_string().contains("1024 values a ciphertext")));
}

#[test]
fn calibration_tells_what_it_found() {
    let network = small();
    let mut plan = Plan::new(network.clone(), 512).expect("sound");
    let mut calibrate = |samples: &[Vec<f32>], stress: &[Vec<f32>]| {
        let found =
            plan.calibrate(Inputs { samples, margin: 1.5, stress, stress_margin: 1.25 }).expect("sound");
        (found, plan.description().all().map(|layer| layer.bound.expect("found")).collect::<Vec<_>>())
    };
    let mut various = inputs(&network, 12);
    let (found, _) = calibrate(&various, &[]);
    assert!(found.warnings.is_empty() && found.distinct == 12, "{found:?}");
    assert!(found.left_out < 1.0 && found.left_out > 0.5, "{found:?}");
    // One picture, hardly changed.
    let mut frames = vec![various[0].clone(); 12];
    frames.iter_mut().enumerate().for_each(|(i, frame)| frame[i] /= 2.0);
    let (found, _) = calibrate(&frames, &[]);
    assert!(found.distinct == 1 && found.warnings.len() == 2, "{found:?}");
    assert!(found.warnings[0].contains("too alike: of 12 only 1 differ"), "{found:?}");
    // Small ones, and one that is not.
    various[1..].iter_mut().flatten().for_each(|x| *x /= 5.0);
    let (found, _) = calibrate(&various, &[]);
    assert!(found.warnings.len() == 1 && found.warnings[0].contains("sample 0 would leave"), "{found:?}");
    // Made-up inputs set bounds where they reach farther.
    let (_, before) = calibrate(&various[1..], &[]);
    let (found, after) = calibrate(&various[1..], &inputs(&network, 3));
    assert!(found.stressed == before.len() && found.stretch > 2.0, "{found:?}");
    assert!(before.iter().zip(&after).all(|(before, after)| after > before));

    let mut beyond = various[0].clone();
    beyond[3] = 1.5;
    let simulated = plan.simulate(&[beyond.clone()]).expect("a simulation").remove(0);
    assert!(
        simulated.reach >= 1.5 && simulated.logits.is_none() && simulated.exact.len() == 5,
        "{simulated:?}"
    );
    let mut refused = |samples: &[Vec<f32>], margin: f64, why: &str| {
        let given = Inputs { samples, margin, stress: &[], stress_margin: 1.0 };
        let error = plan.calibrate(given).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&[], 1.5, "0 samples");
    refused(&various, 0.5, "the margins 0.5");
    refused(&various, f64::NAN, "the margins NaN");
    refused(&[beyond], 1.5, "sample 0: it has the value 1.5");
    refused(&[vec![0.0; 3]], 1.5, "sample 0: 3 values, where 72 are needed");
    let mut none = various[0].clone();
    none[0] = f32::NAN;
    refused(&[various[1].clone(), none], 1.5, "sample 1: value 0 is no number");
}

/// An input among others is what it is alone, at all of its places, those that mean nothing too: so bounds of inputs alone hold.
#[test]
fn inputs_in_one_ciphertext_do_not_meet() {
    let several = |images| Plan::new(Description { images, ..small() }, 2048);
    let plan = several(6).expect("there is room");
    assert!(plan.grids.iter().all(|grid| plan.apart.is_multiple_of(grid.column_pitch())));
    // All that a layer makes of one input, wherever it is.
    let made = |index: usize, number: Option<usize>| {
        let layer = plan.convolution(index, false).expect("sound");
        let terms = &plan.description.layers[index].terms;
        let value = |term: &Term| {
            let mut draw = Numbers(20 + term.from as u64);
            let places = plan.grids[term.from].masks(plan.apart).expect("it fits").remove(0);
            let mut value = vec![0.0; plan.values];
            if let Some(number) = number {
                let own = value[number * plan.apart..].iter_mut().zip(places);
                own.for_each(|(x, keep)| *x = keep * f64::from(draw.next()));
            }
            [value]
        };
        let taken: Vec<[Vec<f64>; 1]> = terms.iter().map(value).collect();
        let taken: Vec<&[Vec<f64>]> = taken.iter().map(|value| &value[..]).collect();
        layer.plain(&taken, 0).expect("sound")
    };
    for index in 0..plan.description.layers.len() {
        let none = made(index, None);
        let (mut owner, mut own) = (vec![None; plan.values], Vec::new());
        for number in 0..6 {
            let sums = made(index, Some(number));
            for (place, x) in
                sums.iter().zip(&none).map(|(x, none)| x - none).enumerate().filter(|(_, x)| *x != 0.0)
            {
                assert_eq!(owner[place].replace(number), None, "layer {index}, place {place}");
                // The same as of the first, but for the sign of what wraps around.
                own.push((place + plan.values - number * plan.apart, number, x.abs()));
            }
        }
        let of_first: Vec<_> =
            own.iter().filter(|one| one.1 == 0).map(|one| (one.0 % plan.values, one.2)).collect();
        for (place, _, x) in &own {
            let same = |(other, y): &(usize, f64)| *other == place % plan.values && (y - x).abs() < 1e-9;
            assert!(of_first.iter().any(same), "layer {index}, place {place}");
        }
    }
    let refusal = several(7).err().expect("too many").to_string();
    assert!(refusal.contains("7 inputs in a ciphertext, which has room for 6"), "{refusal}");
    // What a layer takes in several ciphertexts has no room beside it, nor what has channels beside each other.
    for (wide, size) in [(wide(), 512), (narrowing(), 512)] {
        let refusal = Plan::new(Description { images: 2, ..wide }, size).err().expect("no room").to_string();
        assert!(refusal.contains("2 inputs in a ciphertext, which has room for"), "{refusal}");
    }
    for images in [0, 513, usize::MAX] {
        let refusal = Plan::new(Description { images, ..small() }, 512).err().expect("none").to_string();
        assert!(refusal.contains(&format!("{images} inputs in a ciphertext")), "{refusal}");
    }
}

#[test]
fn what_a_client_is_told_is_checked() {
    let params = Parameters::new(&Literal::n16().insecure(10)).expect("a set");
    let mut plan = Plan::new(wide(), params.values()).expect("sound");
    assert!(plan.public(&params).is_err(), "not calibrated");
    calibrated(&mut plan, &inputs(&wide(), 2), 1.25);
    let public = plan.public(&params).expect("calibrated");
    assert_eq!((public.ciphertexts().expect("sound"), public.outputs, public.checks), (2, 3, MOST_CHECKS));
    assert_eq!(public.grid().expect("sound"), plan.grids()[0]);
    let text = serde_json::to_string(&public).expect("plain");
    let read = Public::parse(&text, &params).expect("sound");
    // (JSON is read to within a last place.)
    assert!((read.output_bound / public.output_bound - 1.0).abs() < 1e-15);
    assert_eq!(Public { output_bound: public.output_bound, ..read }, public);
    type Change = fn(&mut Public);
    let spoilt: [(&str, Change); 17] = [
        ("parameter set", |p| p.set = "n16".into()),
        ("0 outputs", |p| p.outputs = 0),
        ("513 outputs", |p| p.outputs = 513),
        ("5 checks", |p| p.checks = 5),
        ("bounds 0 and", |p| p.input_bound = 0.0),
        ("bounds 1 and -1", |p| p.output_bound = -1.0),
        ("sizes are 1 to 2^16", |p| p.input[0] = 0),
        ("no grid", |p| p.pitches = [0, 0]),
        ("no power of two", |p| p.pitches = [3, 24]),
        ("no grid", |p| p.pitches[1] += 1),
        ("a ciphertext has 512", |p| p.input[1] = 1 << 16),
        ("0 inputs in a ciphertext", |p| p.images = 0),
        ("0 values apart", |p| [p.images, p.apart] = [usize::MAX, 0]),
        ("2 inputs in a ciphertext, 512 values apart", |p| p.images = 2),
        ("values apart", |p| [p.images, p.apart] = [2, usize::MAX]),
        ("a ciphertext has 256", |p| [p.images, p.apart] = [2, 256]),
        ("inputs in 2 ciphertexts", |p| (p.input[1], p.images, p.apart) = (1, 2, 256)),
    ];
    for (why, spoil) in spoilt {
        let mut public = public.clone();
        spoil(&mut public);
        let text = serde_json::to_string(&public).expect("plain");
        let error = Public::parse(&text, &params).expect_err(why).to_string();
        assert!(error.contains(why), "{error:?} is not {why:?}");
    }
}
