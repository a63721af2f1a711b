//! Rows by a number of each: a gate of many channels, as squeeze-and-excitation, norms and softmaxes have it, through
//! triples of rows.

use jaguar_graph::network::Product;

use super::stream::alternate;
use super::*;

/// 64 channels of 255 places by a number of each, which are as many again behind a constant; their sum with what was
/// scaled; and a second gate of channels that are too few for such triples.
pub(super) fn rows() -> Bundle {
    let mut b = Builder::new([3, 17, 15]);
    let product = |shift, offsets| Op::new(Product { shift, offsets });
    let many = b.conv(0, 64, 1, 1, 0, 1);
    let window = Window { kernel: [17, 15], stride: [1, 1], pads: [0; 4] };
    let sum = b.add(Op::new(SumPool { window, count_real_places: None }), &[many], [64, 1, 1]);
    let numbers = b.conv_shifted(sum, 64, 1, 1, 0, 1, 20);
    let scaled = b.add(product(12, [-7, 2048]), &[many, numbers], [64, 17, 15]);
    let residual = b.add(Op::new(Add), &[scaled, many], [64, 17, 15]);
    let few = b.conv(residual, 4, 3, 2, 1, 1); // [4, 9, 8]
    let window = Window { kernel: [9, 8], stride: [1, 1], pads: [0; 4] };
    let sum = b.add(Op::new(SumPool { window, count_real_places: None }), &[few], [4, 1, 1]);
    let gate = b.conv_shifted(sum, 4, 1, 1, 0, 1, 18);
    let gated = b.add(product(12, [0; 2]), &[few, gate], [4, 9, 8]);
    let flat = b.add(Op::new(Rearrange::Reshape), &[gated], [288, 1, 1]);
    b.conv(flat, 10, 1, 1, 0, 1);
    b.bundle()
}

fn inputs(count: u8) -> Vec<Vec<i64>> {
    (0..count).map(|seed| input(seed, 3 * 17 * 15)).collect()
}

/// Under each backend alone and all in turn: each layer within its bound of the reference, and the bytes that were
/// planned.
#[test]
fn rows_agree_with_the_reference_under_every_backend() {
    let all: Vec<BackendId> = kit().backends().to_vec();
    for &one in &all {
        alternate(rows, &[one], 0, &format!("rows-{one}"));
    }
    alternate(|| rows().guarded(8).unwrap(), &[Kit::JAGUAR], 0, "rows-guarded");
}

/// Several images, each of rows and numbers of its own; within a rounding and a thousandth.
#[test]
fn rows_in_batches() {
    for images in [1, 2] {
        let network = rows().model.network;
        let choices = Choices::standard(&network, Kit::JAGUAR).of_images(images);
        let checks = verify(rows(), choices, Reveal::Logits, &inputs(2), HintPlace::Memory).unwrap();
        assert_eq!(checks.len(), 2);
        for (id, node) in network.nodes.iter().enumerate().filter(|(_, node)| node.op.is::<Product>()) {
            for layer in checks.iter().map(|check| &check.layers[id]) {
                assert!(layer.wrong == 0 && layer.max_ulps <= 1.001, "{layer:?} of {images}, {}", node.name);
            }
        }
        assert!(checks.iter().flat_map(|check| &check.layers).all(|layer| layer.wrong == 0));
    }
}

/// Many rows take no correlations and one round, few of them are products value by value; every byte is planned, online
/// each number is opened once; and nothing that passes comes again in another query.
#[test]
fn rows_take_the_bytes_of_the_plan_and_repeat_nothing() {
    let service = service(rows());
    let plan = service.plan();
    let nodes = &service.network().nodes;
    let found: Vec<usize> = (0..nodes.len()).filter(|&id| nodes[id].op.is::<Product>()).collect();
    let [many, few] = found[..] else { panic!("{found:?}") };
    let cost = |id: usize| plan.steps[id].nonlinear.as_ref().unwrap().cost();
    let (by_row, each) = (cost(many), cost(few));
    assert!(by_row.prepare_up > 0 && by_row.bits_from_server == 0 && by_row.client_rounds == 1, "{by_row:?}");
    let ring = u64::from(plan.steps[many].computed.modulus.bits() + 12);
    assert_eq!((by_row.up, by_row.down), ((64 + 64 * 255) * ring / 8, (64 + 64 * 255) * ring / 8));
    assert!(each.prepare_up == 0 && each.bits_from_server > 0, "{each:?}");
    let cache = Scratch::new("rows");
    for report in queries(&service, &cache, &inputs(1)[0], 2) {
        let row = &report.rows[many];
        assert_eq!((row.offline.bytes_up, row.offline.bytes_down), (by_row.prepare_up, by_row.prepare_down));
        assert_eq!((row.online.bytes_up, row.online.bytes_down), (by_row.up, by_row.down));
        assert!(row.online.rounds <= 1);
    }
    nothing_repeats(&service, &cache);
}
