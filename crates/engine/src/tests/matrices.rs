//! Products of matrices: attention, alone and beside everything that a value may come from or go to.

use jaguar_graph::network::MatrixProduct;

use super::stream::alternate;
use super::*;

/// Three heads over 16 places: scores, weights without a softmax, their products with values; then a product of a value with itself, and one
/// as the output.
pub(super) fn attention() -> Bundle {
    let mut b = Builder::new([3, 17, 15]);
    let product = |shift, transposed| Op::new(MatrixProduct { transposed, shift });
    let places = b.conv(0, 12, 3, 4, 0, 1); // [12, 4, 4]
    let [queries, keys, values] = [(); 3].map(|()| b.conv(places, 12, 1, 1, 0, 1));
    let heads = [queries, keys, values].map(|x| b.add(Op::new(Rearrange::Reshape), &[x], [3, 4, 16]));
    let scores = b.add(product(14, [true, false]), &[heads[0], heads[1]], [3, 16, 16]);
    let weights = b.add(Op::new(Relu { ignored: 0 }), &[scores], [3, 16, 16]);
    let mixed = b.add(product(15, [false, true]), &[weights, heads[2]], [3, 16, 4]);
    let turned = b.add(Op::new(Rearrange::Transpose { perm: [0, 2, 1] }), &[mixed], [3, 4, 16]);
    let turned = b.add(Op::new(Rearrange::Reshape), &[turned], [12, 4, 4]);
    let projected = b.conv(turned, 12, 1, 1, 0, 1);
    let sum = b.add(Op::new(Add), &[projected, places], [12, 4, 4]);
    let sum = b.conv(sum, 4, 1, 1, 0, 1);
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    let pooled = b.add(Op::new(MaxPool { window, ignored: 0 }), &[sum], [4, 2, 2]);
    let alike = b.add(product(13, [false, true]), &[pooled, pooled], [4, 2, 2]);
    let left = b.conv(alike, 4, 1, 1, 0, 1);
    b.add(product(13, [false; 2]), &[left, pooled], [4, 2, 2]);
    b.bundle()
}

fn inputs(count: u8) -> Vec<Vec<i64>> {
    (0..count).map(|seed| input(seed, 3 * 17 * 15)).collect()
}

/// Under each backend alone and all in turn: each layer within its bound of the reference, and the bytes that were planned.
#[test]
fn products_of_matrices_agree_with_the_reference_under_every_backend() {
    let all: Vec<BackendId> = kit().backends().to_vec();
    for &one in &all {
        alternate(attention, &[one], 0, &format!("matrices-{one}"));
    }
    alternate(attention, &all, 0, "matrices-all");
    let guarded = || attention().guarded(8).unwrap();
    alternate(guarded, &[Kit::JAGUAR], 0, "matrices-guarded");
}

/// Several images, of which each has matrices of its own; within a rounding and a thousandth.
#[test]
fn products_of_matrices_in_batches() {
    for images in [1, 2, 4] {
        let network = attention().model.network;
        let choices = Choices::standard(&network, Kit::JAGUAR).of_images(images);
        let checks = verify(attention(), choices, Reveal::Logits, &inputs(3), HintPlace::Memory).unwrap();
        assert_eq!(checks.len(), 3);
        for (id, node) in network.nodes.iter().enumerate().filter(|(_, node)| node.op.is::<MatrixProduct>()) {
            for layer in checks.iter().map(|check| &check.layers[id]) {
                assert!(layer.wrong == 0 && layer.max_ulps <= 1.001, "{layer:?} of {images}, {}", node.name);
            }
        }
        assert!(checks.iter().flat_map(|check| &check.layers).all(|layer| layer.wrong == 0));
    }
}

/// One round each online, no correlations, and the client's ciphertexts come when all that it promised was drawn; nothing that passes
/// comes again in another query. On one thread and on several.
#[test]
fn products_of_matrices_take_the_bytes_of_the_plan_and_repeat_nothing() {
    let service = service(attention());
    let plan = service.plan();
    let found: Vec<_> = service
        .network()
        .nodes
        .iter()
        .zip(&plan.steps)
        .filter(|(node, _)| node.op.is::<MatrixProduct>())
        .map(|(_, step)| step.nonlinear.as_ref().unwrap().cost())
        .collect();
    assert_eq!(found.len(), 4);
    for cost in found {
        assert!(cost.prepare_up > 0 && cost.prepare_down > 0 && cost.client_rounds == 1, "{cost:?}");
        assert_eq!((cost.bits_from_server, cost.bits_from_client), (0, 0));
    }
    let cache = Scratch::new("matrices");
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let reports = pool.install(|| queries(&service, &cache, &inputs(1)[0], 2));
        let planned = plan.nonlinear_cost();
        for report in &reports {
            assert!(
                report.offline.bytes_up >= planned.prepare_up
                    && report.offline.bytes_down >= planned.prepare_down
            );
        }
    }
    nothing_repeats(&service, &cache);
}
