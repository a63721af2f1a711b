use std::collections::BTreeSet;

use super::simulator::{Simulator, decoded, encoded};
use super::*;
use crate::Complex;

/// In [-1, 1), the same each time.
fn random(count: usize) -> Vec<f64> {
    let mut state = 12345u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn complex(count: usize) -> Vec<Complex> {
    random(2 * count).chunks(2).map(|c| Complex::new(c[0], c[1])).collect()
}

/// Moduli that are no powers of two: each differs a little.
fn moduli(logs: &[f64]) -> Vec<f64> {
    logs.iter()
        .enumerate()
        .map(|(i, log)| (log.exp2() * (1.0 + 1e-6 * (i % 7) as f64 - 3e-6)).round())
        .collect()
}

/// The chain that `precision.md` recommends: q0, convolution, StoC, ReLU, sine, CtoS.
fn chain(relu_levels: usize) -> Vec<f64> {
    let mut logs = vec![50.0, 50.0, 40.0, 30.0, 30.0];
    logs.extend(std::iter::repeat_n(40.0, relu_levels));
    logs.extend([50.0; 8 + 4]);
    moduli(&logs)
}

fn plan(values: usize, relu: &str) -> Plan {
    Plan::new(values, Composite::by_name(relu).unwrap())
}

fn largest_difference(a: &[Complex], b: &[Complex]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(&a, &b)| (a - b).abs()).fold(0.0, f64::max)
}

/// All matrices, one after the other, at scale 1.
fn multiplied(simulator: &Simulator, fourier: &Fourier, slots: &[Complex]) -> Vec<Complex> {
    let ct = simulator.encrypted(slots, simulator.top(), 1.0);
    let product = fourier.matrices.iter().fold(ct, |ct, matrix| {
        let prepared = simulator.prepare(matrix, simulator.top(), 1.0).unwrap();
        simulator.transform(&ct, &prepared).unwrap()
    });
    product.values
}

mod transforms {
    use super::*;

    /// Coefficients of 2n values as CtoS leaves them: R·w.
    fn sorted(values: &[f64]) -> Vec<Complex> {
        let n = values.len() / 2;
        let (re, im) = values.split_at(n);
        let w: Vec<_> = re.iter().zip(im).map(|(&re, &im)| Complex::new(re, im)).collect();
        slot_order(&w, n)
    }

    fn cuts(total: usize) -> Vec<Vec<usize>> {
        let mut all = vec![vec![total]];
        all.extend((1..total).map(|first| vec![first, total - first]));
        all.push(vec![1; total]);
        all
    }

    #[test]
    fn are_the_dense_transform_however_they_are_cut() {
        // `decoded` goes by the definition, a sum over powers of a root.
        for (log_n, log_slots) in [(1, 1), (1, 2), (3, 3), (3, 4), (4, 6), (5, 5)] {
            let (n, slots) = (1 << log_n, 1 << log_slots);
            let simulator = Simulator::new(slots, vec![1e9], 0.0);
            let values = random(2 * n);
            let slots_of_values = decoded(&values);
            for layers in cuts(log_n) {
                for (giant_cost, key_cost) in [(0.01, 0.0), (1.0, 1.0), (100.0, 0.0), (1.0, 100.0)] {
                    let layers = layers.clone();
                    let layout = Layout { slots, values: 2 * n, layers, giant_cost, key_cost };
                    let there = multiplied(&simulator, &layout.to_slots(1.0).unwrap(), &slots_of_values);
                    let mut half: Vec<_> = sorted(&values).into_iter().map(|w| w.scaled(0.5)).collect();
                    if !layout.dense() {
                        half.extend(vec![Complex::ZERO; n]);
                    }
                    let expected: Vec<_> = half.iter().copied().cycle().take(slots).collect();
                    assert!(largest_difference(&there, &expected) < 1e-12, "CtoS {layout:?}");

                    let back =
                        multiplied(&simulator, &layout.to_coefficients(3.0).unwrap(), &sorted(&values));
                    let expected: Vec<_> =
                        slots_of_values.iter().map(|z| z.scaled(3.0)).cycle().take(slots).collect();
                    assert!(largest_difference(&back, &expected) < 1e-12, "StoC {layout:?}");
                }
            }
        }
    }

    #[test]
    fn cost_as_much_as_the_shapes_say() {
        // N = 2^16, 2^15 values: 14 layers. A first matrix of CtoS has 2^r diagonals, others 2^(r + 1) - 1.
        let shapes = |key_cost: f64| {
            let layers = vec![4, 4, 3, 3];
            let layout = Layout { slots: 1 << 15, values: 1 << 15, layers, giant_cost: 4.0, key_cost };
            let fourier = layout.to_slots(1.0).unwrap();
            let diagonals: Vec<_> = fourier.matrices.iter().map(Matrix::diagonals).collect();
            assert_eq!(diagonals, [16, 31, 15, 15]);
            let steps = |m: &Matrix| {
                let switches = m.chains().iter().map(Vec::len).sum::<usize>();
                (m.babies().len(), switches, m.babies().union(&m.giant_steps()).count())
            };
            fourier.matrices.iter().map(steps).collect::<Vec<_>>()
        };
        // Baby steps, giant steps, and keys of both.
        assert_eq!(shapes(0.0), [(7, 1, 8), (10, 2, 12), (7, 1, 8), (7, 1, 8)]);
        assert_eq!(shapes(2.5), [(3, 3, 4), (7, 3, 9), (4, 2, 6), (4, 2, 6)]);
        assert_eq!(shapes(5.0), [(3, 3, 4), (3, 7, 5), (2, 4, 4), (2, 4, 4)]);
        assert_eq!(shapes(100.0), [(0, 15, 1), (0, 30, 2), (0, 14, 2), (0, 14, 2)]);
    }

    #[test]
    fn take_giant_steps_from_both_sides_inwards() {
        let giant = |rotation| Giant { rotation, terms: Vec::new() };
        let matrix = Matrix { slots: 64, giants: [0, 5, 10, 59, 49].map(giant).to_vec() };
        let step = |giant, rotation| Step { giant, rotation };
        assert_eq!(matrix.chains(), [vec![step(2, 5), step(1, 5)], vec![step(4, 54), step(3, 59)]]);
        assert_eq!(matrix.giant_steps(), [5, 54, 59].into());
        // All around: one step in place of two.
        let matrix = Matrix { slots: 64, giants: [0, 16, 32, 48].map(giant).to_vec() };
        assert_eq!(matrix.chains(), [vec![step(3, 16), step(2, 16), step(1, 16)], Vec::new()]);
    }

    #[test]
    fn refuse_what_does_not_add_up() {
        let layout = Layout { slots: 16, values: 16, layers: vec![2, 2], giant_cost: 1.0, key_cost: 0.0 };
        assert_eq!(layout.to_slots(1.0).unwrap_err(), LayoutError::Layers { layers: vec![2, 2], needed: 3 });
        for values in [2, 24, 64] {
            let wrong = Layout { values, ..layout.clone() };
            assert_eq!(wrong.to_coefficients(1.0).unwrap_err(), LayoutError::Values { values, slots: 16 });
        }
        let zero = Layout { layers: vec![3, 0], ..layout };
        assert!(zero.to_slots(1.0).is_err());
    }

    #[test]
    fn the_order_of_slots_is_its_own_inverse() {
        let values: Vec<_> = (0..16).collect();
        let sorted = slot_order(&values, 8);
        assert_eq!(sorted, [0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15]);
        assert_eq!(slot_order(&sorted, 8), values);
    }
}

mod polynomials {
    use super::*;

    #[test]
    fn are_those_of_their_monomials() {
        let monomials = random(9);
        let p = Chebyshev::from_monomials(&monomials);
        for x in random(50) {
            let direct: f64 = monomials.iter().rev().fold(0.0, |sum, c| sum * x + c);
            assert!((p.value(x) - direct).abs() < 1e-13);
        }
        // x³ = (3·T_1 + T_3)/4
        assert_eq!(Chebyshev::from_monomials(&[0.0, 0.0, 0.0, 1.0]).coefficients(), [0.0, 0.75, 0.0, 0.25]);
    }

    #[test]
    fn equal_the_function_at_the_nodes() {
        let p = Chebyshev::interpolate(24, f64::exp);
        let even = Chebyshev::interpolate_even(24, |x| (3.0 * x).cos());
        assert_eq!(even.degree(), 24);
        for x in random(100) {
            assert!((p.value(x) - x.exp()).abs() < 1e-14);
            assert!((even.value(x) - (3.0 * x).cos()).abs() < 1e-13);
        }
        assert!(even.coefficients().iter().skip(1).step_by(2).all(|&c| c == 0.0));
    }

    #[test]
    fn take_the_least_depth_and_have_exactly_the_scale_that_is_asked_for() {
        let slots = 64;
        for degree in (1..=40).chain([63, 64, 127]) {
            let all = random(degree + 1);
            let depth = (degree + 1).next_power_of_two().ilog2() as usize;
            let of = |keep: fn(usize) -> bool| -> Vec<f64> {
                all.iter().enumerate().map(|(k, &c)| if keep(k) { c } else { 0.0 }).collect()
            };
            for coefficients in [of(|_| true), of(|k| k % 2 == 0), of(|k| k % 2 == 1)] {
                let p = Chebyshev::new(coefficients);
                if p.degree() == 0 {
                    continue;
                }
                assert!(
                    p.depth() <= depth && p.depth() == (p.degree() + 1).next_power_of_two().ilog2() as usize
                );
                let simulator = Simulator::new(slots, moduli(&[40.0; 9]), 0.0);
                let x = random(slots);
                let inputs: Vec<_> = x.iter().map(|&x| Complex::from(x)).collect();
                let scale = 40f64.exp2();
                let ct = simulator.encrypted(&inputs, 8, scale);
                let wanted = 1.3 * 39f64.exp2();
                let y = p.evaluate(&simulator, &ct, wanted).unwrap();
                assert_eq!((y.shape.level, y.shape.scale), (8 - p.depth(), wanted));
                let expected: Vec<_> = x.iter().map(|&x| Complex::from(p.value(x))).collect();
                let error = largest_difference(&y.values, &expected);
                assert!(error < (degree as f64) * 2e-11, "degree {degree}: {error}");
                assert_eq!(simulator.counts().total().products, p.products(), "degree {degree}");
            }
        }
    }

    #[test]
    fn say_what_they_take() {
        let products = |p: &Chebyshev| (p.depth(), p.products());
        assert_eq!(products(&Chebyshev::new(random(8))), (3, 5));
        assert_eq!(products(&Chebyshev::new(random(32))), (5, 13));
        assert_eq!(products(&Chebyshev::interpolate_even(30, f64::cos)), (5, 9));
        let simulator = Simulator::new(4, moduli(&[40.0; 4]), 0.0);
        let ct = simulator.encrypted(&complex(4), 2, 1e12);
        let error = Chebyshev::new(random(8)).evaluate(&simulator, &ct, 1e12).unwrap_err();
        assert!(matches!(error, Error::Level { needed: 3, found: 2, .. }), "{error}");
        let constant = Chebyshev::new(vec![1.0, 0.0]).evaluate(&simulator, &ct, 1e12).unwrap_err();
        assert!(matches!(constant, Error::Constant), "{constant}");
    }
}

mod sines {
    use super::*;

    fn sine() -> Sine {
        Sine::new(30, 3, 15.25 + 1.0 / 256.0, 256.0 / std::f64::consts::TAU)
    }

    #[test]
    fn are_near_x_modulo_one() {
        let error = sine().error(1.0 / 256.0);
        let of_largest = error * 256.0 / std::f64::consts::TAU;
        // Measured: 2^-24.9 of the largest value, everywhere up to the largest integer part.
        assert!(of_largest < (-24.5f64).exp2() && of_largest > (-25.5f64).exp2(), "2^{}", of_largest.log2());
        for i in -15..=15 {
            for v in [-1.0, -0.3, 0.0, 0.7, 1.0] {
                let left = sine().value(f64::from(i) + v / 256.0);
                assert!((left - v).abs() < 1.1e-4, "{v} at {i}: {left}");
            }
        }
        assert_eq!((sine().depth(), sine().products()), (8, 12));
    }

    #[test]
    fn of_slots_have_the_scale_that_is_asked_for() {
        let sine = sine();
        let simulator = Simulator::new(64, moduli(&[50.0; 9]), 0.0);
        let x: Vec<_> =
            random(64).iter().enumerate().map(|(i, v)| (i % 31) as f64 - 15.0 + v / 256.0).collect();
        let slots: Vec<_> = x.iter().map(|x| Complex::from(x / sine.bound())).collect();
        let ct = simulator.encrypted(&slots, 8, 50f64.exp2());
        let y = sine.evaluate(&simulator, &ct, 36f64.exp2()).unwrap();
        assert_eq!((y.shape.level, y.shape.scale), (0, 36f64.exp2()));
        let expected: Vec<_> = x.iter().map(|&x| Complex::from(sine.value(x))).collect();
        assert!(largest_difference(&y.values, &expected) < 1e-10);
        assert_eq!(simulator.counts().total().products, sine.products());
    }
}

mod relus {
    use super::*;

    #[test]
    fn have_the_stated_error() {
        for composite in COMPOSITES {
            let steps = 1 << 20;
            let at = |i: i32| f64::from(i) / f64::from(steps);
            let error =
                (-steps..=steps).map(|i| (composite.value(at(i)) - at(i).max(0.0)).abs()).fold(0.0, f64::max);
            assert!((error / composite.error - 1.0).abs() < 1e-3, "{}: {error}", composite.name);
        }
        assert_eq!(COMPOSITES.map(Composite::levels), [8, 10, 11]);
        assert_eq!(COMPOSITES.map(Composite::products), [14, 16, 18]);
        assert_eq!(Composite::by_name("9-9"), None);
    }

    #[test]
    fn keep_what_the_mask_keeps() {
        for composite in COMPOSITES {
            let top = composite.levels() + 1;
            let simulator = Simulator::new(256, moduli(&vec![36.0; top + 1]), 0.0);
            let x = random(256);
            let keep: Vec<_> = (0..256).map(|i| f64::from(i % 3 % 2)).collect();
            let slots = |values: &[f64]| values.iter().map(|&v| Complex::from(v)).collect::<Vec<_>>();
            let mask = simulator.encode(&slots(&keep), 3, simulator.modulus(3)).unwrap();
            let ct = simulator.encrypted(&slots(&x), top, 36f64.exp2());
            let y = composite.evaluate(&simulator, &ct, &mask).unwrap();
            assert_eq!((y.shape.level, y.shape.scale), (1, 36f64.exp2()));
            let expected: Vec<_> = x.iter().zip(&keep).map(|(&x, k)| k * composite.value(x)).collect();
            // Constants are rounded at scales of 2^36, and the largest coefficient is 62.
            let error = largest_difference(&y.values, &slots(&expected));
            assert!(error < 1e-8, "{}: {error}", composite.name);
            assert_eq!(simulator.counts().total().products, composite.products());
        }
    }
}

mod bootstraps {
    use super::*;

    fn spread(values: &[f64], n: usize) -> Vec<Complex> {
        let mut coefficients = vec![0.0; n];
        values.iter().enumerate().for_each(|(v, &x)| coefficients[v * n / values.len()] = x);
        decoded(&coefficients)
    }

    fn gathered(slots: &[Complex], values: usize) -> Vec<f64> {
        encoded(slots).into_iter().step_by(2 * slots.len() / values).collect()
    }

    #[test]
    fn rectify_and_mask_coefficients() {
        for (values, n, relu) in [(256, 512, "7-7-13"), (64, 512, "7-15"), (256, 256, "7-7-7")] {
            let plan = plan(values, relu);
            let simulator = Simulator::new(n / 2, chain(plan.relu.levels()), 200.0);
            let bootstrap = Bootstrap::new(&simulator, plan.clone()).unwrap();
            assert_eq!(bootstrap.ciphertexts(), if values == n { 2 } else { 1 });
            let x = random(values);
            let keep: Vec<_> = (0..values).map(|v| (v % 3 % 2) as f64).collect();
            let mask = bootstrap.mask(&keep).unwrap();
            let ct = simulator.encrypted(&spread(&x, n), 0, 42f64.exp2());
            let y = bootstrap.layer(&ct, &mask).unwrap();
            assert_eq!((y.shape.level, y.shape.scale), (1, 40f64.exp2()));
            for ((x, k), y) in x.iter().zip(&keep).zip(gathered(&y.values, values)) {
                let difference = (y - k * plan.relu.value(*x)).abs();
                assert!(difference < 1.5e-4, "{values} of {n}, {relu}: {y} for {k}·ReLU({x})");
            }
            let counts = plan.counts(n / 2, chain(plan.relu.levels())).unwrap();
            assert_eq!(counts, simulator.counts());
            let keys: BTreeSet<_> = counts.rotations.keys().copied().collect();
            assert_eq!(keys, simulator.rotations(), "each rotation that keys are made for is made");
        }
    }

    #[test]
    fn take_so_many_operations_at_full_size() {
        // N = 2^16 with 2^15 values.
        let counts = plan(1 << 15, "7-7-13").counts(1 << 15, chain(11)).unwrap();
        let total = counts.total();
        assert_eq!((total.products, total.transforms, total.raises), (30, 7, 1));
        // The trace's one; a conjugation and a rotation that part real and imaginary halves; one that joins them.
        assert_eq!((total.rotations, total.babies, total.giants), (4, 22, 40));
        assert_eq!((total.plaintexts, total.rescalings, counts.rotations.len()), (204, 42, 31));
        // Keys need not be for all levels: 13 of the rotations are StoC's alone.
        assert_eq!((counts.conjugations, counts.products()), (Some(23), Some(23)));
        assert_eq!(counts.rotations.values().filter(|&&level| level < 5).count(), 13);
        let by_level = |f: fn(&AtLevel) -> usize| counts.levels.iter().map(f).collect::<Vec<_>>();
        let products =
            [&[0; 5][..], &[1, 2, 2, 2, 1, 2, 2, 1, 2, 2, 1], &[1, 1, 1, 2, 2, 3, 1, 1], &[0; 4]].concat();
        assert_eq!(by_level(|level| level.products), products);
        let transforms = [&[0, 0, 1, 1, 1][..], &[0; 11 + 8], &[1; 4]].concat();
        assert_eq!(by_level(|level| level.transforms), transforms);
    }

    #[test]
    fn refuse_wrong_levels_masks_and_numbers_of_ciphertexts() {
        let plan = plan(64, "7-7-13");
        let few = Simulator::new(64, chain(10), 0.0);
        let error = Bootstrap::new(&few, plan.clone()).err().unwrap();
        assert!(matches!(error, Error::Level { needed: 27, found: 26, .. }), "{error}");
        let simulator = Simulator::new(64, chain(11), 0.0);
        let large = Plan { log_raised_scale: 47, ..plan.clone() };
        let error = Bootstrap::new(&simulator, large).err().unwrap();
        assert!(matches!(error, Error::Message { log_scale: 47, .. }), "{error}");
        let bootstrap = Bootstrap::new(&simulator, plan).unwrap();
        let error = bootstrap.mask(&[1.0; 3]).err().unwrap();
        assert_eq!(error.to_string(), "a mask of 3 values for 64");
        let ct = simulator.encrypted(&complex(64), 1, 1e9);
        let error = bootstrap.slots(&ct).unwrap_err();
        assert_eq!(error.to_string(), "ModUp takes level 0, not 1");
        let error = bootstrap.rectify(&[], &[]).unwrap_err();
        assert!(matches!(error, Error::Ciphertexts { needed: 1, found: 0 }), "{error}");
        assert!(bootstrap.coefficients(&[]).is_err());
    }
}

/// A stop ends a layer at the next operation, whichever that is, and a layer without one is as without a watch.
#[test]
fn a_watched_layer_ends_at_any_operation() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let outline = Outline::new(512, chain(11));
    let (asked, most) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let stop = || asked.fetch_add(1, Ordering::Relaxed) >= most.load(Ordering::Relaxed);
    let watched = Watched::new(&outline, &stop);
    let bootstrap = Bootstrap::new(&watched, plan(512, "7-7-13")).unwrap();
    let mask = bootstrap.mask(&vec![1.0; 512]).unwrap();
    let ct = Shape { level: 0, scale: 42f64.exp2() };
    let unwatched = Bootstrap::new(&outline, plan(512, "7-7-13")).unwrap().layer(&ct, &mask).unwrap();

    asked.store(0, Ordering::Relaxed);
    let layer = bootstrap.layer(&ct, &mask).unwrap();
    assert_eq!((layer.level, layer.scale), (unwatched.level, unwatched.scale));
    let operations = asked.load(Ordering::Relaxed);
    // An operation that is not watched is missing here.
    assert_eq!(operations, 209);
    let mut twice = 0;
    for before in 0..operations {
        asked.store(0, Ordering::Relaxed);
        most.store(before, Ordering::Relaxed);
        let error = bootstrap.layer(&ct, &mask).unwrap_err();
        assert!(error.failed().is_none(), "{before}");
        // Each piece of work that is beside another one's asks once more.
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked == before + 1 || asked == before + 2, "{asked} with a stop at {before}");
        twice += asked - before - 1;
    }
    // (Of so many a part of the polynomial is beside another one.)
    assert_eq!(twice, 65);
    // What fails otherwise is the same error.
    most.store(usize::MAX, Ordering::Relaxed);
    let high = Shape { level: 1, scale: 42f64.exp2() };
    let error = bootstrap.slots(&high).unwrap_err().failed().unwrap();
    assert_eq!(error.to_string(), "ModUp takes level 0, not 1");
    let refused = bootstrap.mask(&[1.0]).err().unwrap().failed().unwrap();
    assert_eq!(refused.to_string(), "a mask of 1 values for 512");
}
