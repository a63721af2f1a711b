//! Products of matrices: attention, alone and beside everything that a value may come from or go to.

use jaguar_graph::network::{MatrixProduct, Product};
use jaguar_graph::reference;
use jaguar_mpc::{Elementwise, Nonlinear, SentKeys};
use jaguar_wire::tcp::{Listener, Options, Tcp};

use super::stream::alternate;
use super::*;

/// Three heads over 16 places: scores, weights without a softmax, their products with values; then a product of a value
/// with itself, and one as the output.
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

/// Under each backend alone and all in turn: each layer within its bound of the reference, and the bytes that were
/// planned.
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

/// One round each online, no correlations, and the client's ciphertexts come when all that it promised was drawn;
/// nothing that passes comes again in another query. On one thread and on several.
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

/// Long rows by themselves, and short ones, of which the columns are the values.
fn squares() -> Bundle {
    let mut b = Builder::new([1, 64, 192]);
    let product = |shift, transposed| Op::new(MatrixProduct { transposed, shift });
    let values = b.conv(0, 1, 1, 1, 0, 1);
    let rows = b.add(Op::new(Rearrange::Reshape), &[values], [64, 1, 192]);
    let long = b.add(product(17, [false, true]), &[rows, rows], [64, 1, 1]);
    let columns = b.add(Op::new(Rearrange::Reshape), &[values], [1536, 8, 1]);
    let short = b.add(product(14, [true, false]), &[columns, columns], [1536, 1, 1]);
    let short = b.add(Op::new(Rearrange::Reshape), &[short], [64, 24, 1]);
    let window = Window { kernel: [24, 1], stride: [1; 2], pads: [0; 4] };
    let short = b.add(Op::new(MaxPool { window, ignored: 0 }), &[short], [64, 1, 1]);
    let sum = b.add(Op::new(Add), &[long, short], [64, 1, 1]);
    b.conv(sum, 4, 1, 1, 0, 1);
    b.bundle()
}

/// Sums of squares, by ciphertexts and value by value, of one image and of several: within a rounding and a thousandth, in one
/// round each, and with the bytes that were planned.
#[test]
fn rows_by_themselves_are_summed_and_rounded_once() {
    alternate(squares, &[Kit::JAGUAR], 0, "squares");
    let network = squares().model.network;
    let images: Vec<Vec<i64>> = (0..3).map(|seed| input(seed, 64 * 192)).collect();
    for count in [1, 2] {
        let choices = Choices::standard(&network, Kit::JAGUAR).of_images(count);
        let checks = verify(squares(), choices, Reveal::Logits, &images, HintPlace::Memory).unwrap();
        for (id, node) in network.nodes.iter().enumerate() {
            for layer in checks.iter().map(|check| &check.layers[id]) {
                let most = if node.op.is::<MatrixProduct>() { 1.001 } else { f64::INFINITY };
                assert!(layer.wrong == 0 && layer.max_ulps <= most, "{layer:?} of {count}, {}", node.name);
            }
        }
    }
    let service = service(squares());
    let steps = service.network().nodes.iter().zip(&service.plan().steps);
    let found: Vec<_> = steps
        .filter(|(node, _)| node.op.is::<MatrixProduct>())
        .map(|(_, step)| step.nonlinear.as_ref().unwrap().cost())
        .collect();
    // (Of each value 33 bits are opened, or 30.)
    let opened = [33, 30].map(|bits| 64 * 192 * bits / 8);
    assert_eq!([found[0].up, found[1].up], opened);
    assert!(found[0].prepare_up > 0 && found[0].bits_from_server == 0, "{found:?}");
    assert!(found[1].prepare_up == 0 && found[1].bits_from_server == 30 * 64 * 192, "{found:?}");
    let cache = Scratch::new("squares");
    let reports = queries(&service, &cache, &images[0], 2);
    for report in &reports {
        for ((row, step), node) in report.rows.iter().zip(&service.plan().steps).zip(&network.nodes) {
            if node.op.is::<MatrixProduct>() {
                let cost = step.nonlinear.as_ref().unwrap().cost();
                assert_eq!((row.online.bytes_up, row.online.bytes_down), (cost.up, cost.down));
                assert!(row.online.rounds <= 1);
            }
        }
    }
}

/// Norms' products, of 64 rows of 255: sums of squares, then the rows by numbers that follow from these. Before them the same rows by
/// numbers that do not, and behind them by others that do: one of those opens nothing anew.
fn norms() -> Bundle {
    let mut b = Builder::new([3, 17, 15]);
    let product = |shift, offsets| Op::new(Product { shift, offsets });
    let (rows, wide) = ([64, 255, 1], [64, 1, 255]);
    let values = b.conv(0, 64, 1, 1, 0, 1);
    let by_row = b.add(Op::new(Rearrange::Reshape), &[values], wide);
    let squared = Op::new(MatrixProduct { transposed: [false, true], shift: 17 });
    let sums = b.add(squared, &[by_row, by_row], [64, 1, 1]);
    let whole = |kernel| {
        let window = Window { kernel, stride: [1; 2], pads: [0; 4] };
        Op::new(SumPool { window, count_real_places: None })
    };
    let all = b.add(whole([17, 15]), &[values], [64, 1, 1]);
    // The same as one channel, and again as 64: in batches its numbers stand where they stood.
    let values = b.add(Op::new(Rearrange::Reshape), &[values], [1, 64, 255]);
    let values = b.add(Op::new(Rearrange::Reshape), &[values], rows);
    let others = b.conv_shifted(all, 64, 1, 1, 0, 1, 20);
    let before = b.add(product(12, [0; 2]), &[values, others], rows);
    let numbers = b.conv(sums, 64, 1, 1, 0, 1);
    let again = b.add(Op::new(Rearrange::Reshape), &[by_row], rows);
    let behind = b.add(product(12, [-7, 2048]), &[again, numbers], rows);
    let more = b.conv(sums, 64, 1, 1, 0, 1);
    let last = b.add(product(12, [0; 2]), &[values, more], rows);
    let sum = b.add(Op::new(Add), &[before, behind], rows);
    let sum = b.add(Op::new(Add), &[sum, last], rows);
    let sum = b.conv(sum, 4, 1, 1, 0, 1);
    b.add(whole([255, 1]), &[sum], [4, 1, 1]);
    b.bundle()
}

/// Which steps open a value for another: of the sums of squares and the products that wait for them, in order, the first.
#[test]
fn rows_are_opened_once_for_what_waits_for_their_squares() {
    let network = norms().model.network;
    let plan = Plan::new(&network, Choices::standard(&network, Kit::JAGUAR)).unwrap();
    let products: Vec<_> =
        (0..network.nodes.len()).filter(|&id| network.nodes[id].op.is::<Product>()).collect();
    let sums = network.nodes.iter().position(|node| node.op.is::<MatrixProduct>());
    let behind = products.iter().map(|&id| plan.steps[id].behind);
    assert_eq!(behind.collect::<Vec<_>>(), [None, sums, None]);
    assert_eq!(plan.steps.iter().filter(|step| step.behind.is_some()).count(), 1);
    // Of numbers 28 bits each are opened, of rows by themselves 33. (Without what follows: extensions.)
    let own = |id: usize| plan.steps[id].nonlinear.as_ref().unwrap().cost();
    let opened = products.iter().map(|&id| own(id)).map(|cost| (cost.up, cost.down));
    let [numbers, rows] = [64, 64 * 255].map(|count| count * 28 / 8);
    let [all, numbers] = [numbers + rows, numbers].map(|bytes| (bytes, bytes));
    assert_eq!(opened.collect::<Vec<_>>(), [all, numbers, all]);
    let sums = own(sums.unwrap());
    assert_eq!([sums.prepare_up, sums.prepare_down, sums.up], [0, 0, 64 * 255 * 33 / 8]);
}

/// Under each backend alone and all in turn each layer is within its bound of the reference and takes the bytes that were planned; in
/// batches, too, within a rounding and a thousandth; and nothing that passes comes again in another query, on one thread and on several.
#[test]
fn rows_that_are_opened_once_agree_with_the_reference() {
    let all: Vec<BackendId> = kit().backends().to_vec();
    for &one in &all {
        alternate(norms, &[one], 0, &format!("norms-once-{one}"));
    }
    alternate(norms, &all, 0, "norms-once-all");
    alternate(|| norms().guarded(8).unwrap(), &[Kit::JAGUAR], 0, "norms-once-guarded");
    let network = norms().model.network;
    let images: Vec<Vec<i64>> = (0..3).map(|seed| input(seed, 3 * 17 * 15)).collect();
    for count in [1, 2] {
        let choices = Choices::standard(&network, Kit::JAGUAR).of_images(count);
        let checks = verify(norms(), choices, Reveal::Logits, &images, HintPlace::Memory).unwrap();
        for (id, node) in network.nodes.iter().enumerate() {
            for layer in checks.iter().map(|check| &check.layers[id]) {
                let product = node.op.is::<MatrixProduct>() || node.op.is::<Product>();
                let most = if product { 1.001 } else { f64::INFINITY };
                assert!(layer.wrong == 0 && layer.max_ulps <= most, "{layer:?} of {count}, {}", node.name);
            }
        }
    }
    let service = service(norms());
    let cache = Scratch::new("norms-once");
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for report in pool.install(|| queries(&service, &cache, &images[0], 2)) {
            for (row, step) in report.rows.iter().zip(&service.plan().steps) {
                if step.nonlinear.is_some() {
                    let cost = &step.cost;
                    // (Bits that are made ahead of their use: trees of 13 levels, a block each.)
                    let trees = row.offline.bytes_up.checked_sub(cost.prepare_up).expect("all is counted");
                    assert_eq!((trees % (13 * 16), row.offline.bytes_down), (0, cost.prepare_down));
                    assert_eq!((row.online.bytes_up, row.online.bytes_down), (cost.up, cost.down));
                    assert!(row.online.rounds <= cost.client_rounds);
                }
            }
        }
    }
    nothing_repeats(&service, &cache);
}

/// ViT-Tiny's attention, three heads of 64 over 197 places, over TCP, for a batch of one and of two: every byte of the
/// products is planned, and the answer is the reference's but for roundings.
#[test]
fn attention_over_many_places_over_tcp() {
    let many = || {
        let mut b = Builder::new([3, 197, 1]);
        let product = |shift, transposed| Op::new(MatrixProduct { transposed, shift });
        let heads = [(); 3].map(|()| {
            let x = b.conv(0, 192, 1, 1, 0, 1);
            b.add(Op::new(Rearrange::Reshape), &[x], [3, 64, 197])
        });
        let scores = b.add(product(17, [true, false]), &[heads[0], heads[1]], [3, 197, 197]);
        let weights = b.add(Op::new(Relu { ignored: 0 }), &[scores], [3, 197, 197]);
        let mixed = b.add(product(18, [false, true]), &[weights, heads[2]], [3, 197, 64]);
        let turned = b.add(Op::new(Rearrange::Transpose { perm: [0, 2, 1] }), &[mixed], [3, 64, 197]);
        let turned = b.add(Op::new(Rearrange::Reshape), &[turned], [192, 197, 1]);
        b.conv(turned, 4, 1, 1, 0, 1);
        b.bundle()
    };
    let cache = Scratch::new("matrices-tcp");
    // (How many bits are made ahead of their use, and so in which rows their trees count, goes by the threads that other sessions of this
    // process leave. Of one thread there is always one.)
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let service = service(many()).with_batches(2).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap();
    let images = [0, 1].map(|seed| input(seed, 3 * 197));
    let expected = images.each_ref().map(|x| reference::run(Cpu::detect(), &many().model, x).unwrap());
    for batch in [1, 2] {
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let tcp = listener.accept().unwrap().greet(Options::default()).unwrap();
                service.serve(Channel::new(tcp), &mut |_| ())
            });
            let ask = || {
                let tcp = Tcp::connect(address, Options::default()).unwrap();
                let connected =
                    connect_for(Channel::new(tcp), None, &Limits::default(), batch as u32).unwrap();
                let prepared =
                    connected.prepare_client(&cache.0).unwrap().prepare_query(&mut NoProgress).unwrap();
                let asked = images[..batch].concat();
                let (answers, report, ready) = prepared.run_batch(&asked, &mut NoProgress).unwrap();
                ready.leave().unwrap();
                (answers, report)
            };
            let (answers, report) = one.install(ask);
            server.join().unwrap().unwrap();
            for (answer, expected) in answers.into_iter().zip(&expected) {
                let Prediction::Logits(logits) = answer else { panic!("logits") };
                // Sums of 192 values, each off by little more than one.
                let off = logits.iter().zip(expected.output()).map(|(a, b)| (a - b).abs()).max();
                assert!(off.unwrap() < 400, "{off:?}");
            }
            let plan = service.plans().find(|plan| plan.images() == batch).unwrap();
            let mut keys = SentKeys::default();
            for ((row, step), node) in report.rows.iter().zip(&plan.steps).zip(&service.network().nodes) {
                if node.op.is::<MatrixProduct>() {
                    let layer = step.nonlinear.as_ref().unwrap();
                    let cost = layer.cost();
                    // (The second has the first one's keys.)
                    let up = cost.prepare_up - layer.known(&mut keys);
                    assert_eq!((row.offline.bytes_up, row.offline.bytes_down), (up, cost.prepare_down));
                    // (What is moved behind it is extended first.)
                    let extension =
                        step.extension.map(|params| Elementwise { count: step.values, params }.cost());
                    let online = cost + extension.unwrap_or_default();
                    assert_eq!((row.online.bytes_up, row.online.bytes_down), (online.up, online.down));
                    assert!(row.online.rounds <= 1 + u64::from(extension.is_some()));
                }
            }
        });
    }
}

/// A server's network of products of many tiny matrices: ciphertexts, which a client bounds before it makes one.
#[test]
fn a_client_bounds_what_matrices_would_exchange() {
    let many = |count: usize| {
        let mut b = Builder::new([1, count, 64]);
        let heads = b.conv(0, 1, 1, 1, 0, 1);
        let heads = b.add(Op::new(Rearrange::Reshape), &[heads], [count, 8, 8]);
        // (Several share a ciphertext, so that one product is bounded by its values.)
        for _ in 0..24 {
            b.add(
                Op::new(MatrixProduct { transposed: [false; 2], shift: 14 }),
                &[heads, heads],
                [count, 8, 8],
            );
        }
        b
    };
    let error = greet(many(1 << 15), Kit::JAGUAR).unwrap_err();
    assert!(error.to_string().contains("bytes of ciphertexts"), "{error}");
}

/// A query's material may take half of the memory that is free, and 2 GiB anywhere.
#[test]
fn a_client_gives_half_of_what_is_free() {
    let limit = |free| Limits::default().with_room(free).prepared_bytes;
    assert_eq!([limit(None), limit(Some(1 << 30)), limit(Some(10 << 30))], [2 << 30, 2 << 30, 5 << 30]);
}

/// What products of two values send before the input are no ciphertexts: a client that takes those of the linear layers
/// and no more takes such a network.
#[test]
fn triples_of_values_are_no_ciphertexts() {
    let service = service(super::products::products());
    let linear: u64 = service
        .plan()
        .layers()
        .map(|layer| layer.traffic())
        .flat_map(|t| [t.offline.0, t.offline.1, t.online.0, t.online.1])
        .map(|bytes| bytes as u64)
        .sum();
    let triples = service.plan().nonlinear_cost();
    assert!(triples.prepare_down > 0);
    let limits = Limits { ciphertext_bytes: linear, ..Limits::default() };
    let (refused, _) = session(&service, |channel| connect(channel, &limits).err());
    assert!(refused.is_none(), "{refused:?}");
}
