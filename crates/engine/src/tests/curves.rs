//! Curves: SiLU, GELU, a sigmoid as a gate, tanh, alone and beside everything that a value may come from or go to.

use jaguar_graph::float::{self, Decay, Function, Known, Primitive};
use jaguar_graph::network::{Curve, Difference, Level, MatrixProduct, Narrow, Product, Straight};

use super::stream::alternate;
use super::*;

/// A value of 1 in the middle of the network, in units.
const ONE: f64 = 512.0;

fn curve(function: &Function) -> Op {
    Op::new(Curve::fitted(function, [ONE; 2], 16).0)
}

fn of(primitive: Primitive) -> Function {
    Function::Of(primitive, Box::new(Function::Value))
}

/// SiLU behind a layer, in front of a sum and of a gate that a sigmoid makes; GELU behind a sum, and what it takes away,
/// in front of a max-pool; tanh behind that, in front of a concatenation; and softplus as the output.
pub(super) fn curves() -> Bundle {
    let mut b = Builder::new([3, 17, 15]);
    let first = b.conv(0, 8, 3, 2, 1, 1); // [8, 9, 8]
    let silu = b.add(curve(&Function::swish(1.0)), &[first], [8, 9, 8]);
    let window = Window { kernel: [9, 8], stride: [1, 1], pads: [0; 4] };
    let sum = b.add(Op::new(SumPool { window, count_real_places: None }), &[silu], [8, 1, 1]);
    let squeezed = b.conv_shifted(sum, 8, 1, 1, 0, 1, 18);
    let gate = b.add(curve(&of(Primitive::Sigmoid)), &[squeezed], [8, 1, 1]);
    let gated = b.add(Op::new(Product { shift: 9, offsets: [0; 2] }), &[silu, gate], [8, 9, 8]);
    let depth = b.conv(gated, 8, 3, 1, 1, 8);
    let residual = b.add(Op::new(Add), &[depth, silu], [8, 9, 8]);
    let gelu = b.add(curve(&Function::gelu(false)), &[residual], [8, 9, 8]);
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    let less = b.add(Op::new(Difference), &[residual, gelu], [8, 9, 8]);
    let pooled = b.add(Op::new(MaxPool { window, ignored: 0 }), &[less], [8, 4, 4]);
    let tanh = b.add(curve(&of(Primitive::Tanh)), &[pooled], [8, 4, 4]);
    let both = b.add(Op::new(Concat), &[tanh, pooled], [16, 4, 4]);
    let flat = b.add(Op::new(Rearrange::Reshape), &[both], [256, 1, 1]);
    let logits = b.conv(flat, 10, 1, 1, 0, 1);
    b.add(curve(&of(Primitive::Softplus)), &[logits], [10, 1, 1]);
    b.bundle()
}

fn inputs(count: u8) -> Vec<Vec<i64>> {
    (0..count).map(|seed| input(seed, 3 * 17 * 15)).collect()
}

/// Under each backend alone and all in turn: each layer within its bound of the reference, and the bytes that were planned.
#[test]
fn curves_agree_with_the_reference_under_every_backend() {
    let all: Vec<BackendId> = kit().backends().to_vec();
    for &one in &all {
        alternate(curves, &[one], 0, &format!("curves-{one}"));
    }
    alternate(curves, &all, 0, "curves-all");
}

/// With guard bits a curve is rounded in the last of these, and in no other place: which piece a value is in does not depend on
/// how its shares fall.
#[test]
fn guarded_curves_are_rounded_in_their_last_place() {
    const GUARD_BITS: u32 = 8;
    let guarded = || curves().guarded(GUARD_BITS).unwrap();
    alternate(guarded, &[Kit::JAGUAR], 0, "curves-guarded");
    let network = guarded().model.network;
    let choices = Choices::standard(&network, Kit::JAGUAR);
    let x: Vec<i64> = inputs(1)[0].iter().map(|v| v << GUARD_BITS).collect();
    let checks = verify(guarded(), choices, Reveal::Logits, &vec![x; ASKED], HintPlace::Memory).unwrap();
    for (id, node) in network.nodes.iter().enumerate() {
        for layer in checks.iter().map(|check| &check.layers[id]) {
            assert_eq!(layer.wrong, 0, "{layer:?}");
            assert!(!node.op.is::<Curve>() || layer.max_ulps <= 1.0, "{layer:?}");
        }
    }
}

/// Curves with straight ends, of which the values go far beyond the pieces on both sides: with a slope above, and level. With guard bits and
/// without.
#[test]
fn straight_ends_agree_with_the_reference() {
    let straight = || {
        let mut b = Builder::new([3, 17, 15]);
        let first = b.conv(0, 8, 3, 2, 1, 1);
        let ends = |function: &Function, scales| Op::new(Straight::fitted(function, scales, 16).unwrap().0);
        let silu = b.add(ends(&Function::swish(1.0), [16.0, 32.0]), &[first], [8, 9, 8]);
        let gate = b.add(ends(&of(Primitive::Sigmoid), [16.0, 4096.0]), &[first], [8, 9, 8]);
        let gated = b.add(Op::new(Product { shift: 12, offsets: [0; 2] }), &[silu, gate], [8, 9, 8]);
        b.conv(gated, 10, 3, 1, 1, 1);
        b.bundle()
    };
    agree_with_the_reference("straight", straight, |op| op.is::<Straight>());
}

/// Private runs of what is made, with guard bits and without: no value is wrong, and none of the curves' is off by more than a unit.
fn agree_with_the_reference(name: &str, made: impl Fn() -> Bundle, is_curve: fn(&Op) -> bool) {
    for guard_bits in [0, 8] {
        let bundle = || if guard_bits == 0 { made() } else { made().guarded(guard_bits).unwrap() };
        alternate(bundle, &[Kit::JAGUAR], 0, &format!("{name}-{guard_bits}"));
        let network = bundle().model.network;
        let choices = Choices::standard(&network, Kit::JAGUAR);
        let x: Vec<i64> = inputs(1)[0].iter().map(|v| v << guard_bits).collect();
        let checks = verify(bundle(), choices, Reveal::Logits, &vec![x; ASKED], HintPlace::Memory).unwrap();
        let layers = || checks.iter().flat_map(|check| &check.layers);
        assert!(layers().all(|layer| layer.wrong == 0), "{checks:?}");
        let curves = network.nodes.iter().zip(&checks[0].layers).filter(|(node, _)| is_curve(&node.op));
        assert!(curves.map(|(_, layer)| layer.max_ulps).all(|ulps| ulps <= 1.0), "{checks:?}");
    }
}

/// A curve whose pieces begin at −70, and is level on both sides of them, where many values are. With guard bits and without.
#[test]
fn curves_that_are_level_outside_agree_with_the_reference() {
    let level = || {
        let mut b = Builder::new([3, 17, 15]);
        let first = b.conv(0, 8, 3, 2, 1, 1);
        let offsets = [9, 9].into_iter().chain((2..16).map(|j| 400 - 27 * j)).collect();
        let slopes = [0, 0].into_iter().chain([-27; 14]).collect();
        let lines = Curve { low: 4, offset_shift: 4, shift: 2, offsets, slopes };
        let falls = b.add(Op::new(Level { begin: -70, lines }), &[first], [8, 9, 8]);
        b.conv(falls, 10, 3, 1, 1, 1);
        b.bundle()
    };
    agree_with_the_reference("level", level, |op| op.is::<Level>());
}

/// A layer and a product of matrices whose values have three bits fewer than others, in front of a max-pool, a sum, curves with straight ends, of which one
/// grows by eight, and one that is level outside: all of these take as much narrower rings.
#[test]
fn narrow_values_agree_with_the_reference() {
    const FEWER: u32 = 3;
    let curve = |function: float::Op, one: f64, own: f64| {
        let scales = [one];
        let known =
            Known { bits: 16, coarse: 3, fewer: FEWER, scales: Some((&scales, own)), ..Known::default() };
        function.integer(&known).unwrap()
    };
    let narrow = || {
        let mut b = Builder::new([3, 17, 15]);
        let layer = |b: &mut Builder| {
            let id = b.conv(0, 8, 3, 2, 1, 1);
            let linear = b.network.nodes[id].op.linear().unwrap().clone();
            let of = Linear { shift: linear.shift + FEWER, ..linear };
            b.network.nodes[id].op = Op::new(Narrow { of, fewer: FEWER });
            id
        };
        let [first, left, right] = [(); 3].map(|()| layer(&mut b));
        let silu = b.add(curve(Function::swish(1.0).into(), 16.0, 128.0), &[first], [8, 9, 8]);
        let product = MatrixProduct { shift: 10, transposed: [false, true] };
        let scores = b.add(Op::new(Narrow { of: product, fewer: FEWER }), &[left, right], [8, 9, 9]);
        let window = Window { kernel: [1, 9], stride: [1, 1], pads: [0; 4] };
        let largest = b.add(Op::new(MaxPool { window, ignored: 0 }), &[scores], [8, 9, 1]);
        let repeated = Rearrange::Select { axes: [vec![], vec![], vec![Some(0); 9]] };
        let repeated = b.add(Op::new(repeated), &[largest], [8, 9, 9]);
        let sum = b.add(Op::new(Narrow { of: Add, fewer: FEWER }), &[scores, repeated], [8, 9, 9]);
        let below = Narrow { of: Difference, fewer: FEWER };
        let below = b.add(Op::new(below), &[repeated, scores], [8, 9, 9]);
        let weights = b.add(curve(of(Primitive::Sigmoid).into(), 64.0, 4096.0), &[sum], [8, 9, 9]);
        let falls = b.add(curve(Decay.into(), 64.0, 4096.0), &[below], [8, 9, 9]);
        let both = b.add(Op::new(Product { shift: 12, offsets: [0; 2] }), &[weights, falls], [8, 9, 9]);
        let mixed = Op::new(MatrixProduct { shift: 13, transposed: [false; 2] });
        let mixed = b.add(mixed, &[both, silu], [8, 9, 8]);
        b.conv(mixed, 10, 3, 1, 1, 1);
        b.bundle()
    };
    for guard_bits in [0, 8] {
        let bundle = || if guard_bits == 0 { narrow() } else { narrow().guarded(guard_bits).unwrap() };
        let network = bundle().model.network;
        let bits = network.activation_bits;
        let is_curve = |op: &Op| op.is::<Straight>() || op.is::<Level>();
        assert!([4, 10].iter().all(|&id| network.nodes[id].op.is::<Straight>()), "lines that go on");
        assert!(network.nodes[11].op.is::<Level>(), "level outside");
        // No value leaves its own range, and what is compared has a bit to spare.
        let x: Vec<i64> = inputs(1)[0].iter().map(|v| v << guard_bits).collect();
        let run = jaguar_graph::reference::run(Cpu::detect(), &bundle().model, &x).unwrap();
        assert_eq!(
            (run.total_overflows(), run.tight.iter().sum::<usize>()),
            (0, 0),
            "{:?} {:?}",
            run.overflows,
            run.tight
        );
        let largest = |id: usize| run.values[id].iter().map(|v| v.abs()).max().unwrap();
        let quarter = 1 << (bits - FEWER - 2);
        assert!([1, 5, 8, 9].iter().all(|&id| largest(id) > quarter / 8), "{:?}", [1, 5, 8, 9].map(largest));
        let choices = Choices::standard(&network, Kit::JAGUAR);
        let plan = Plan::new(&network, choices.clone()).unwrap();
        // The scores, the largest of them, their sum and their difference.
        let rings = [5, 6, 8, 9].map(|id| plan.steps[id].computed.modulus.bits());
        assert_eq!(rings, [bits - FEWER; 4], "{rings:?}");
        alternate(bundle, &[Kit::JAGUAR], 0, &format!("narrow-{guard_bits}"));
        let checks = verify(bundle(), choices, Reveal::Logits, &vec![x; ASKED], HintPlace::Memory).unwrap();
        let layers = || checks.iter().flat_map(|check| &check.layers);
        assert!(layers().all(|layer| layer.wrong == 0), "{checks:?}");
        let curves = network.nodes.iter().zip(&checks[0].layers).filter(|(node, _)| is_curve(&node.op));
        assert!(curves.map(|(_, layer)| layer.max_ulps).all(|ulps| ulps <= 1.0), "{checks:?}");
    }
}

/// Where a curve's last block begins, most of its bits have been made ahead, but not all: on one thread two blocks take 2 · 14 · 2^14 of the
/// first 2^19, and of the last block's 69,048 there are 3,512 missing, so few that no more are made ahead; and what it takes first are
/// others. More threads make more ahead, and have a larger picture. (On three threads none of this shape is like that.)
#[test]
fn curves_of_many_blocks_come_to_their_end() {
    let [height, width] = match rayon::current_num_threads() {
        1 => [130, 145],
        2 | 3 => [183, 205],
        _ => [274, 274],
    };
    let many = || {
        let mut b = Builder::new([3, height, width]);
        let first = b.conv(0, 2, 1, 1, 0, 1);
        let silu = b.add(curve(&Function::swish(1.0)), &[first], [2, height, width]);
        let window = Window { kernel: [height, width], stride: [1, 1], pads: [0; 4] };
        b.add(Op::new(SumPool { window, count_real_places: None }), &[silu], [2, 1, 1]);
        b.bundle()
    };
    assert_eq!(
        service(many()).plan().promise(),
        15 * 2 * (height * width) as u64,
        "14 bits of the client's for the curve, and one behind it"
    );
    let choices = Choices::standard(&many().model.network, Kit::JAGUAR);
    let x = input(0, 3 * height * width);
    let checks = verify(many(), choices, Reveal::Logits, &[x], HintPlace::Memory).unwrap();
    assert!(checks[0].layers.iter().all(|layer| layer.wrong == 0), "{checks:?}");
}

/// Several images; and a kit's comparisons beside curves, whose own stay as they are.
#[test]
fn curves_in_batches_and_beside_other_comparisons() {
    for images in [2, 4] {
        let choices = Choices::standard(&curves().model.network, Kit::JAGUAR).of_images(images);
        let checks = verify(curves(), choices, Reveal::Logits, &inputs(3), HintPlace::Memory).unwrap();
        for layer in checks.iter().flat_map(|check| &check.layers) {
            assert_eq!(layer.wrong, 0, "{layer:?} of {images}");
        }
    }
    let network = curves().model.network;
    let choices = said_to_leak(&network, Kit::JAGUAR);
    let checks = verify(curves(), choices, Reveal::Label, &inputs(1), HintPlace::Memory).unwrap();
    assert!(checks[0].layers.iter().all(|layer| layer.wrong == 0), "{checks:?}");
}

/// The client's first message of a curve behind a layer goes early, and nothing that passes comes again in another query.
#[test]
fn curves_begin_early_and_repeat_nothing() {
    let service = service(curves());
    let plan = service.plan();
    assert!(plan.promise() > 0, "the client sends nothing but its draws before the input");
    let nodes = service.network().nodes.iter().zip(&plan.steps);
    let early: Vec<bool> = nodes.filter(|(node, _)| node.op.is::<Curve>()).map(|(_, s)| s.early).collect();
    assert_eq!(early, [true, true, false, false, true]);
    let cache = Scratch::new("curves");
    queries(&service, &cache, &inputs(1)[0], 2);
    nothing_repeats(&service, &cache);
}
