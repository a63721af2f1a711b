//! Convolutions of small integers, against sums by their definition: decrypted values round to the same integers.

use super::*;
use crate::Error;
use crate::convolution::{Convolution, Geometry, Kernel, Term};
use crate::layout::{Grid, Split};
use crate::packing::{Packer, key_specs};

fn packer(party: &Party) -> Packer {
    let mut generator = KeyGenerator::from_prg(&party.secret, Prg::new([7; 32]));
    let mut keys = EvaluationKeys::new();
    for spec in key_specs(&party.context, 0, 1) {
        keys.insert(generator.key(&spec).unwrap());
    }
    Packer::new(&party.context, keys, 0).unwrap()
}

/// Integers in -7..=7.
fn integers(prg: &mut Prg, count: usize) -> Vec<f64> {
    (0..count).map(|_| (prg.next_u64() % 15) as f64 - 7.0).collect()
}

fn geometry(inputs: usize, outputs: usize, [height, width]: [usize; 2], stride: usize) -> Geometry {
    let padding = [height / 2, width / 2, height / 2, width / 2];
    Geometry { outputs, inputs, height, width, stride, padding }
}

fn kernel(prg: &mut Prg, geometry: Geometry) -> Kernel {
    let Geometry { outputs, inputs, height, width, .. } = geometry;
    Kernel::new(geometry, integers(prg, outputs * inputs * height * width)).unwrap()
}

/// A convolution by its definition. `weights` are the kernel's.
fn definition(g: &Geometry, weights: &[f64], tensor: &[f64], [_, rows, columns]: [usize; 3]) -> Vec<f64> {
    let [top, left, bottom, right] = g.padding;
    let height = (rows + top + bottom - g.height) / g.stride + 1;
    let width = (columns + left + right - g.width) / g.stride + 1;
    let mut out = Vec::new();
    for (o, i, j) in
        (0..g.outputs).flat_map(|o| (0..height).flat_map(move |i| (0..width).map(move |j| (o, i, j))))
    {
        let mut sum = 0.0;
        for (c, a, b) in
            (0..g.inputs).flat_map(|c| (0..g.height).flat_map(move |a| (0..g.width).map(move |b| (c, a, b))))
        {
            let (y, x) = (i * g.stride + a, j * g.stride + b);
            if (top..top + rows).contains(&y) && (left..left + columns).contains(&x) {
                sum += weights[((o * g.inputs + c) * g.height + a) * g.width + b]
                    * tensor[(c * rows + y - top) * columns + x - left];
            }
        }
        out.push(sum);
    }
    out
}

fn encrypt(party: &Party, polynomials: &[Vec<f64>], scale: f64, prg: &mut Prg) -> Vec<Ciphertext> {
    let encode = |values: &Vec<f64>| party.context.encode_coefficients(values, 1, scale).unwrap();
    polynomials.iter().map(|values| party.secret.encrypt(&encode(values), prg).0).collect()
}

fn decrypt(party: &Party, ct: &Ciphertext, values: usize) -> Vec<f64> {
    party.secret.decrypt(ct).iter().step_by(N / values).copied().collect()
}

/// Errors of a rescaled and packed sum: rounding, of deviation 7.5, and packing, of 31/sqrt(3), are 19 together, 16
/// times as much over the four merges of a pitch of 16, and eight deviations of that are 2^-20.7 at this scale.
/// Weights, at 2^42 and more, and the input's noise, at 2^36, add less than 2^-24. So rounded values are exact.
const OUTPUT_SCALE: f64 = (1u64 << 32) as f64;

/// What is computed of terms that are a shape, a geometry and an input grid.
fn check(values: usize, pitch: usize, padding: usize, terms: &[([usize; 3], Geometry, usize)]) {
    let (party, mut prg) = (&*PARTY, prg(70 + values as u64 + 3 * pitch as u64));
    let packer = packer(party);
    let case = format!("{values} values, {terms:?}");
    let mut all = Vec::new();
    for &(shape, geometry, spread) in terms {
        let weights = integers(
            &mut prg,
            [geometry.outputs, geometry.inputs, geometry.height, geometry.width].iter().product(),
        );
        let kernel = Kernel::new(geometry, weights.clone()).unwrap();
        let [channels, height, width] = shape;
        let full = [channels, height * spread, width * spread];
        let grid = Grid::new(full, padding, pitch).unwrap().strided(shape, spread).unwrap();
        let tensor = integers(&mut prg, shape.iter().product());
        let expected = definition(&geometry, &weights, &tensor, shape);
        let polynomials = grid.scatter(&tensor, values).unwrap();
        let cts = encrypt(party, &polynomials, SCALE, &mut prg);
        all.push((Term { kernel, grid, split: Split::WHOLE, factor: 1.0 }, polynomials, cts, expected));
    }
    let outputs = terms[0].1.outputs;
    let bias = integers(&mut prg, outputs);
    let convolution =
        Convolution::new(all.iter().map(|term| term.0.clone()).collect(), bias.clone(), values).unwrap();
    let output = convolution.output();
    let mut expected = vec![0.0; all[0].3.len()];
    for (_, _, _, own) in &all {
        expected.iter_mut().zip(own).for_each(|(sum, x)| *sum += x);
    }
    let each = expected.len() / outputs;
    expected
        .chunks_mut(each)
        .zip(&bias)
        .for_each(|(values, bias)| values.iter_mut().for_each(|x| *x += bias));
    let plain: Vec<&[Vec<f64>]> = all.iter().map(|term| &term.1[..]).collect();
    let inputs: Vec<&[Ciphertext]> = all.iter().map(|term| &term.2[..]).collect();
    let mut found = Vec::new();
    for part in 0..output.polynomials() {
        let packed = convolution.packed(&packer, &inputs, part, OUTPUT_SCALE).unwrap();
        assert_eq!((packed.level(), packed.scale()), (0, OUTPUT_SCALE), "{case}");
        let decrypted = decrypt(party, &packed, values);
        let rounded: Vec<f64> = decrypted.iter().map(|x| x.round()).collect();
        let worst = distance(&decrypted, &rounded);
        assert!(worst < 2f64.powi(-20), "{case}: 2^{}", worst.log2());
        // All places, also those of no value.
        assert_eq!(distance(&rounded, &convolution.plain(&plain, part).unwrap()), 0.0, "{case}");
        found.push(rounded);
    }
    assert_eq!(output.gather(&found).unwrap(), expected, "{case}");
}

#[test]
fn products_hold_the_convolution() {
    for (size, stride) in [(1, 1), (3, 1), (3, 2), (5, 1), (7, 1), (5, 4)] {
        check(512, 4, size / 2, &[([2, 6, 6], geometry(2, 3, [size, size], stride), 1)]);
    }
    // In every coefficient, and in few.
    check(1024, 8, 1, &[([8, 8, 8], geometry(8, 8, [3, 3], 1), 1)]);
    check(64, 2, 1, &[([2, 4, 4], geometry(2, 1, [3, 3], 1), 1)]);
}

/// Kernels that are not square, padding on some sides, and none.
#[test]
fn sides_differ() {
    let uneven = Geometry { padding: [0, 1, 2, 0], ..geometry(3, 2, [3, 2], 1) };
    check(512, 4, 2, &[([3, 5, 7], uneven, 1)]);
    check(512, 4, 0, &[([4, 5, 7], Geometry { padding: [0; 4], ..geometry(4, 4, [2, 5], 2) }, 1)]);
    // A fully connected layer.
    check(512, 8, 0, &[([8, 4, 4], Geometry { padding: [0; 4], ..geometry(8, 5, [4, 4], 1) }, 1)]);
}

/// Several polynomials of the input and of the output, the last ones not full.
#[test]
fn channels_take_several_polynomials() {
    check(512, 2, 1, &[([5, 8, 8], geometry(5, 3, [3, 3], 1), 1)]);
    check(512, 2, 1, &[([3, 8, 8], geometry(3, 9, [3, 3], 2), 1)]);
    check(512, 1, 1, &[([2, 9, 9], geometry(2, 2, [3, 3], 1), 1)]);
}

/// A residual connection, and one over a stride: to where two strides have led.
#[test]
fn sums_have_terms() {
    let three = geometry(4, 4, [3, 3], 1);
    check(512, 4, 1, &[([4, 7, 7], three, 1), ([4, 7, 7], geometry(4, 4, [1, 1], 1), 1)]);
    check(512, 4, 1, &[([8, 4, 4], geometry(8, 8, [3, 3], 1), 2), ([4, 8, 8], geometry(4, 8, [1, 1], 2), 1)]);
}

/// A sum has the scale that it is asked for, and threads change no bit.
#[test]
fn sums_are_the_same_on_any_threads() {
    let mut all = Vec::new();
    for threads in [1, 2, 3] {
        let party = Party::new(Cpu::detect(), threads);
        let (packer, mut prg) = (packer(&party), prg(71));
        let grid = Grid::new([8, 6, 6], 1, 8).unwrap();
        let kernel = kernel(&mut prg, geometry(8, 8, [3, 3], 1));
        let convolution = Convolution::new(
            vec![Term { kernel, grid, split: Split::WHOLE, factor: 0.5 }],
            vec![0.0; 8],
            512,
        )
        .unwrap();
        let polynomials = grid.scatter(&integers(&mut prg, 8 * 36), 512).unwrap();
        let cts = encrypt(&party, &polynomials, SCALE, &mut prg);
        let sum = convolution.sum(packer.evaluator(), &[&cts], 7, 2f64.powi(70)).unwrap();
        assert_eq!((sum.level(), sum.scale()), (1, 2f64.powi(70)));
        // Halves.
        let plain = convolution.plain(&[&polynomials], 0).unwrap();
        let decrypted = decrypt(&party, &sum, 512);
        for v in (0..512).step_by(8) {
            assert!((decrypted[v] - plain[v + 7]).abs() < 2f64.powi(-20), "{v}");
        }
        let packed = convolution.packed(&packer, &[&cts], 0, OUTPUT_SCALE).unwrap();
        all.push(packed.halves().map(|half| half.limb(0).to_vec()));
    }
    assert!(all.iter().all(|bits| *bits == all[0]));
}

#[test]
fn kernels_are_checked() {
    let good = geometry(2, 3, [3, 3], 1);
    let refused = |geometry: Geometry, weights: Vec<f64>, part: &str| {
        let error = Kernel::new(geometry, weights).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(Geometry { stride: 0, ..good }, vec![1.0; 54], "stride 0");
    refused(Geometry { stride: 3, ..good }, vec![1.0; 54], "stride 3");
    refused(good, vec![1.0; 53], "53 weights");
    refused(good, [vec![1.0; 53], vec![f64::NAN]].concat(), "weight 53");
    refused(Geometry { padding: [3, 0, 0, 0], ..good }, vec![1.0; 54], "padding 3");
    let large = Geometry { outputs: 1 << 16, inputs: 1 << 16, height: 1 << 16, width: 1 << 16, ..good };
    refused(large, vec![1.0; 54], "at most 2^26");
    let kernel = Kernel::new(good, vec![1.0; 54]).unwrap();
    for shape in [[1, 6, 6], [2, 0, 6], [3, 6, 6]] {
        assert!(kernel.output(shape).is_err(), "{shape:?}");
    }
    assert_eq!(kernel.output([2, 1, 4]).unwrap(), [3, 1, 4]);
}

#[test]
fn convolutions_are_checked() {
    let (party, mut prg) = (&*PARTY, prg(72));
    let grid = Grid::new([2, 6, 6], 1, 4).unwrap();
    let kernel = kernel(&mut prg, geometry(2, 3, [3, 3], 1));
    let term = Term { kernel, grid, split: Split::WHOLE, factor: 1.0 };
    let refused = |terms: Vec<Term>, bias: usize, values: usize, part: &str| {
        let error = Convolution::new(terms, vec![0.0; bias], values).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(vec![], 3, 512, "no term");
    refused(vec![term.clone()], 2, 512, "2 finite numbers of bias");
    refused(vec![term.clone()], 3, 500, "500 values");
    refused(vec![term.clone()], 3, 128, "takes 196 values");
    refused(vec![Term { factor: 0.0, ..term.clone() }], 3, 512, "the factor 0");
    let other = Grid::new([2, 6, 6], 2, 4).unwrap();
    refused(vec![term.clone(), Term { grid: other, ..term.clone() }], 3, 512, "term 1 makes");
    let narrow = Grid::new([2, 6, 6], 0, 4).unwrap();
    refused(vec![Term { grid: narrow, ..term.clone() }], 3, 512, "in a pitch of 6");

    let convolution = Convolution::new(vec![term], vec![0.0; 3], 512).unwrap();
    let packer = packer(party);
    let cts = encrypt(party, &grid.scatter(&[1.0; 72], 512).unwrap(), SCALE, &mut prg);
    let low = [party.evaluator.drop_to(&cts[0], 0).unwrap()];
    let error = |result: Result<Ciphertext, Error>| result.err().unwrap().to_string();
    assert!(error(convolution.packed(&packer, &[&low], 0, SCALE)).contains("level 0"));
    assert!(error(convolution.packed(&packer, &[&cts], 1, SCALE)).contains("1 as the polynomial"));
    assert!(error(convolution.packed(&packer, &[&[]], 0, SCALE)).contains("level 0"));
    assert!(error(convolution.sum(packer.evaluator(), &[&cts, &cts], 0, SCALE)).contains("2 inputs"));
    assert!(error(convolution.sum(packer.evaluator(), &[&cts], 3, SCALE)).contains("3 as the channel"));
    assert!(
        error(convolution.sum(packer.evaluator(), &[&cts], 0, 2f64.powi(99))).contains("does not fit 2^62")
    );
    assert!(convolution.sum(packer.evaluator(), &[&cts], 0, 2f64.powi(110)).is_err());
    assert!(convolution.plain(&[&[vec![0.0; 511]]], 0).is_err() && convolution.plain(&[], 0).is_err());
}

/// Several units of channels in one polynomial: by a stride of 1, whose input has groups and comes in a piece for
/// each; by a stride of 2, with a piece for each phase of the rows, too; a second term. What the pieces' places do
/// not hold is zero, and what stands at the output's places is the definition's.
#[test]
fn groups_share_a_polynomial() {
    gathered(512, [8, 8, 8], 2, (2, [1, 1], 0), geometry(8, 12, [3, 3], 2), ([2, 1], 1));
    gathered(512, [8, 8, 8], 2, (2, [1, 1], 0), geometry(8, 16, [3, 3], 2), ([2, 2], 1));
    gathered(1024, [6, 4, 4], 2, (2, [2, 1], 1), geometry(6, 10, [3, 3], 1), ([2, 2], 1));
    gathered(1024, [6, 4, 4], 2, (4, [2, 1], 2), geometry(6, 7, [5, 5], 1), ([2, 1], 2));
    gathered(1024, [12, 4, 4], 4, (2, [2, 1], 1), geometry(12, 40, [3, 3], 2), ([2, 2], 1));
    gathered(1024, [4, 8, 8], 2, (2, [1, 1], 0), geometry(4, 12, [5, 5], 4), ([3, 1], 1));
    // A kernel without padding spills to one side, and one of 1 × 1 to none.
    let valid = Geometry { padding: [0; 4], ..geometry(6, 8, [3, 3], 1) };
    gathered(1024, [6, 4, 4], 2, (2, [2, 1], 1), valid, ([2, 1], 2));
    gathered(512, [8, 8, 8], 2, (2, [1, 1], 0), geometry(8, 16, [1, 1], 2), ([2, 2], 0));
}

/// An input with a pitch, and with a margin, groups and room between them; a geometry; groups of the output.
fn gathered(
    values: usize,
    shape: [usize; 3],
    pitch: usize,
    (margin, groups, apart): (usize, [usize; 2], usize),
    geometry: Geometry,
    (across, room): ([usize; 2], usize),
) {
    let (party, mut prg) = (&*PARTY, prg(90 + values as u64 + geometry.outputs as u64));
    let case = format!("{values} values, {shape:?}, {geometry:?}");
    let packer = packer(party);
    // As if strides had doubled the pitches.
    let [channels, height, width] = shape;
    let spread = groups[0] * groups[1];
    let full = [channels, spread * height, spread * width];
    let grid = Grid::new(full, margin, pitch).unwrap().strided(shape, spread).unwrap();
    let grid = grid.grouped(groups, apart).unwrap();
    let split = Split { units: grid.groups() > 1, phases: geometry.stride };
    let mut expected = Vec::new();
    let (mut terms, mut wholes, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
    let shortcut = Geometry { height: 1, width: 1, padding: [0; 4], ..geometry };
    let fits = |g: &Geometry| {
        let kernel = kernel(&mut self::prg(1), *g);
        kernel.output(shape).unwrap()
    };
    let geometries =
        if fits(&geometry) == fits(&shortcut) { vec![geometry, shortcut] } else { vec![geometry] };
    for geometry in geometries {
        let count = [geometry.outputs, geometry.inputs, geometry.height, geometry.width].iter().product();
        let weights = integers(&mut prg, count);
        let tensor = integers(&mut prg, shape.iter().product());
        let own = definition(&geometry, &weights, &tensor, shape);
        expected.resize(own.len(), 0.0);
        expected.iter_mut().zip(own).for_each(|(sum, x)| *sum += x);
        let whole = grid.scatter(&tensor, values).unwrap();
        let cut = grid.pieces(split).into_iter().zip(grid.kept(split, values).unwrap());
        let cut: Vec<Vec<f64>> = cut
            .map(|(piece, keep)| whole[piece.polynomial].iter().zip(keep).map(|(x, k)| x * k).collect())
            .collect();
        // They add up.
        for (at, values) in whole.iter().enumerate() {
            let of = grid.pieces(split).into_iter().zip(&cut).filter(|(piece, _)| piece.polynomial == at);
            let mut sum = vec![0.0; values.len()];
            of.for_each(|(_, cut)| sum.iter_mut().zip(cut).for_each(|(sum, x)| *sum += x));
            assert_eq!(&sum, values, "{case}");
        }
        pieces.push(encrypt(party, &cut, SCALE, &mut prg));
        wholes.push(whole);
        terms.push(Term { kernel: Kernel::new(geometry, weights).unwrap(), grid, split, factor: 1.0 });
    }
    let bias = integers(&mut prg, geometry.outputs);
    let plain = Convolution::new(terms.clone(), bias.clone(), values).unwrap();
    let each = expected.len() / geometry.outputs;
    for (values, bias) in expected.chunks_mut(each).zip(&bias) {
        values.iter_mut().for_each(|x| *x += bias);
    }
    // The planted faults: an input that is not cut, and too little room.
    let uncut: Vec<Term> = terms.iter().map(|term| Term { split: Split::WHOLE, ..term.clone() }).collect();
    let whole = Convolution::new(uncut, bias.clone(), values).unwrap();
    if split != Split::WHOLE {
        let error = whole.gathered(across, room).err().unwrap().to_string();
        assert!(error.contains("fills other places"), "{error}");
    }
    let made = plain.gathered(across, room).unwrap();
    if room > 0 {
        let again = Convolution::new(terms, bias, values).unwrap();
        let error = again.gathered(across, room - 1).err().unwrap().to_string();
        assert!(error.contains("spills") || error.contains("apart with padding"), "{error}");
    }
    let output = made.output();
    assert!(output.polynomials() < output.units(), "{case}");
    let wholes: Vec<&[Vec<f64>]> = wholes.iter().map(|whole| &whole[..]).collect();
    let pieces: Vec<&[Ciphertext]> = pieces.iter().map(|pieces| &pieces[..]).collect();
    let mut found = Vec::new();
    for part in 0..output.polynomials() {
        let packed = made.packed(&packer, &pieces, part, OUTPUT_SCALE).unwrap();
        assert_eq!((packed.level(), packed.scale()), (0, OUTPUT_SCALE), "{case}");
        let decrypted = decrypt(party, &packed, values);
        let rounded: Vec<f64> = decrypted.iter().map(|x| x.round()).collect();
        assert!(distance(&decrypted, &rounded) < 2f64.powi(-19), "{case}");
        assert_eq!(distance(&rounded, &made.plain(&wholes, part).unwrap()), 0.0, "{case}");
        found.push(rounded);
    }
    assert_eq!(output.gather(&found).unwrap(), expected, "{case}");
}
