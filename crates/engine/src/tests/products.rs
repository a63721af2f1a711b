//! Products of two values: HardSwish, gates by channel, squares, alone and beside everything that a value may come from or go to.

use jaguar_graph::network::Product;
use jaguar_plan::Comparison;

use super::stream::alternate;
use super::*;

/// HardSwish, a gate of squeeze-and-excitation, a sum with a product, a square in front of a max-pool, a product of products,
/// and a product as the output.
pub(super) fn products() -> Bundle {
    let mut b = Builder::new([3, 17, 15]);
    let product = |shift, offsets| Op::new(Product { shift, offsets });
    let moved = b.conv(0, 8, 3, 2, 1, 1); // [8, 9, 8]
    let six = b.add(Op::new(Relu6 { log2_six: 11, ignored: 0 }), &[moved], [8, 9, 8]);
    let swish = b.add(product(11, [-1024, 0]), &[moved, six], [8, 9, 8]);
    let window = Window { kernel: [9, 8], stride: [1, 1], pads: [0; 4] };
    let sum = b.add(Op::new(SumPool { window, count_real_places: None }), &[swish], [8, 1, 1]);
    let squeezed = b.conv_shifted(sum, 4, 1, 1, 0, 1, 18);
    let relu = b.add(Op::new(Relu { ignored: 0 }), &[squeezed], [4, 1, 1]);
    let excited = b.conv(relu, 8, 1, 1, 0, 1);
    let gate = b.add(Op::new(Relu6 { log2_six: 10, ignored: 0 }), &[excited], [8, 1, 1]);
    let gated = b.add(product(10, [0, 0]), &[swish, gate], [8, 9, 8]);
    let depth = b.conv(gated, 8, 3, 1, 1, 8);
    let residual = b.add(Op::new(Add), &[depth, gated], [8, 9, 8]);
    let square = b.add(product(14, [7, 7]), &[residual, residual], [8, 9, 8]);
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    let pooled = b.add(Op::new(MaxPool { window, ignored: 0 }), &[square], [8, 4, 4]);
    let twice = b.add(product(13, [100, -3]), &[pooled, gate], [8, 4, 4]);
    let flat = b.add(Op::new(Rearrange::Reshape), &[twice], [128, 1, 1]);
    let [left, right] = [10, 10].map(|classes| b.conv(flat, classes, 1, 1, 0, 1));
    b.add(product(12, [0, 0]), &[left, right], [10, 1, 1]);
    b.bundle()
}

fn inputs(count: u8) -> Vec<Vec<i64>> {
    (0..count).map(|seed| input(seed, 3 * 17 * 15)).collect()
}

/// Under each backend alone and all in turn: each layer within its bound of the reference, and the bytes that were planned.
#[test]
fn products_agree_with_the_reference_under_every_backend() {
    let all: Vec<BackendId> = kit().backends().to_vec();
    for &one in &all {
        alternate(products, &[one], 0, &format!("products-{one}"));
    }
    alternate(products, &all, 0, "products-all");
}

/// With guard bits every product keeps its bound: a rounding, no noise.
#[test]
fn guarded_products_are_rounded_and_nothing_more() {
    const GUARD_BITS: u32 = 8;
    let guarded = || products().guarded(GUARD_BITS).unwrap();
    alternate(guarded, &[Kit::JAGUAR], 0, "products-guarded");
    // (Products of the widest layer take 40 bits at most.)
    alternate(|| products().guarded(4).unwrap(), &[Kit::CHEETAH], 0, "products-guarded-cheetah");
    let network = guarded().model.network;
    let choices = Choices::standard(&network, Kit::JAGUAR);
    let x: Vec<i64> = inputs(1)[0].iter().map(|v| v << GUARD_BITS).collect();
    let checks = verify(guarded(), choices, Reveal::Logits, &vec![x; ASKED], HintPlace::Memory);
    let checks = checks.unwrap();
    for (id, node) in network.nodes.iter().enumerate() {
        for layer in checks.iter().map(|check| &check.layers[id]) {
            assert_eq!(layer.wrong, 0, "{layer:?}");
            if let Some(&Product { shift, .. }) = node.op.downcast_ref() {
                assert!(shift > GUARD_BITS, "the shift moves with the scales");
                assert!(layer.max_ulps <= 1.0, "{layer:?}");
            }
        }
    }
}

/// Several images, of which each has gates of its own; and a kit's comparisons beside products.
#[test]
fn products_in_batches_and_beside_other_comparisons() {
    for images in [2, 4] {
        let choices = Choices::standard(&products().model.network, Kit::JAGUAR).of_images(images);
        let checks = verify(products(), choices, Reveal::Logits, &inputs(3), HintPlace::Memory).unwrap();
        assert_eq!(checks.len(), 3);
        for layer in checks.iter().flat_map(|check| &check.layers) {
            assert_eq!(layer.wrong, 0, "{layer:?} of {images}");
        }
    }
    let network = products().model.network;
    let choices = said_to_leak(&network, Kit::JAGUAR);
    assert_ne!(choices.comparison, Comparison::Sealed);
    Plan::accepting_leaks(&network, choices.clone()).unwrap();
    let checks = verify(products(), choices, Reveal::Label, &inputs(1), HintPlace::Memory).unwrap();
    assert!(checks[0].layers.iter().all(|layer| layer.wrong == 0), "{checks:?}");
}

/// Nothing of a product goes early, its triples are made by what the server sends, it takes one round; and nothing that passes
/// comes again in another query.
#[test]
fn products_take_the_rounds_of_the_plan_and_repeat_nothing() {
    let service = service(products());
    let plan = service.plan();
    assert!(plan.promise() > 0, "the client sends nothing but its draws before the input");
    let (mut found, mut squares) = (0, 0);
    for (node, step) in service.network().nodes.iter().zip(&plan.steps) {
        if node.op.is::<Product>() {
            found += 1;
            let cost = step.nonlinear.as_ref().unwrap().cost();
            assert!(!step.early && cost.prepare_up == 0 && cost.client_rounds == 1, "{cost:?}");
            // A square opens half of what a product does, and draws half of it.
            let half = 1 + u64::from(!node.inputs_are_same());
            let bits = step.computed.modulus.bits() + node.op.downcast_ref::<Product>().unwrap().shift;
            assert_eq!(cost.bits_from_server, half * step.values as u64 * u64::from(bits));
            squares += 2 - half;
        }
    }
    assert_eq!((found, squares), (5, 1));
    let cache = Scratch::new("products");
    // The extensions of the last two layers, which are multiplied, go alongside each other. The last product but one is extended before it is
    // moved. And the result comes with the last product's.
    let (right, flat) = (plan.steps.len() - 2, plan.steps.len() - 4);
    let alongside = [right, flat].map(|id| plan.steps[id].cost.client_rounds);
    assert_eq!(alongside, [1, 0]);
    let rounds = plan.nonlinear_cost().client_rounds - 1;
    let reports = queries(&service, &cache, &inputs(1)[0], 2);
    for report in &reports {
        let rows = report.rows.iter().zip(&plan.steps);
        let rows: Vec<_> =
            rows.map(|(row, s)| (&row.name, row.online.rounds, s.cost.client_rounds)).collect();
        assert_eq!(report.online.rounds, rounds, "measured and planned: {rows:?}");
    }
    nothing_repeats(&service, &cache);
}
