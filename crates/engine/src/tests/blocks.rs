//! Networks whose weights are in circulant blocks: a session takes them for what they are.

use jaguar_graph::network::{BlockKind, Blocks, Network, Op, Relu, SumPool, block_size};
use jaguar_graph::reference;
use jaguar_plan::block_sizes::block_sizes;
use jaguar_wire::tcp::{Listener, Options, Tcp};

use super::*;

impl Builder {
    /// A convolution with weights in blocks.
    fn conv_in_blocks(
        &mut self,
        input: usize,
        out: usize,
        kernel: usize,
        stride: usize,
        blocks: Blocks,
    ) -> usize {
        let id = self.conv(input, out, kernel, stride, kernel / 2, 1);
        let channels = self.network.nodes[input].shape[0];
        let Some(spec) = self.network.nodes[id].op.linear_mut() else { unreachable!("a convolution") };
        spec.blocks = Some(blocks);
        let weights = self.weights[id].as_mut().unwrap();
        blocks.repeat(&mut weights.weights, channels, [kernel; 2]);
        weights.exponents = (0..out).map(|d| (d / blocks.size % 3) as u8).collect();
        id
    }
}

/// Blocks of every size and both kinds: over a map of several tiles, strided, by place, fully connected, beside a dense layer.
fn in_blocks() -> Bundle {
    let mut b = Builder::new([8, 34, 34]);
    let relu = |b: &mut Builder, from: usize| {
        let shape = b.network.nodes[from].shape;
        b.add(Op::new(Relu { ignored: 0 }), &[from], shape)
    };
    let wide = b.conv_in_blocks(0, 16, 3, 1, Blocks::skew(8));
    let wide = relu(&mut b, wide);
    let strided = b.conv_in_blocks(wide, 16, 3, 2, Blocks::skew(4));
    let strided = relu(&mut b, strided);
    let dense = b.conv(strided, 16, 1, 2, 0, 1);
    let dense = relu(&mut b, dense);
    let circulant = b.conv_in_blocks(dense, 16, 3, 1, Blocks { size: 16, kind: BlockKind::Circulant });
    let circulant = relu(&mut b, circulant);
    let pairs = b.conv_in_blocks(circulant, 32, 1, 1, Blocks::skew(2));
    let pairs = relu(&mut b, pairs);
    let window = Window { kernel: [9; 2], stride: [9; 2], pads: [0; 4] };
    let pooled = b.add(Op::new(SumPool { window, count_real_places: None }), &[pairs], [32, 1, 1]);
    b.conv_in_blocks(pooled, 16, 1, 1, Blocks::skew(16));
    b.bundle()
}

fn as_dense(bundle: Bundle) -> Bundle {
    let mut model = bundle.model;
    for node in &mut model.network.nodes {
        if let Some(spec) = node.op.linear_mut() {
            spec.blocks = None;
        }
    }
    Bundle::with_hiding(model, 0).unwrap()
}

fn plan(network: &Network) -> Plan {
    Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap()
}

#[test]
fn every_backend_computes_what_the_reference_reads_as_dense() {
    let cache = Scratch::new("blocks-verify");
    let inputs = vec![input(3, 8 * 34 * 34), input(4, 8 * 34 * 34)];
    for backend in [Kit::JAGUAR, Kit::CHEETAH, backend("fregata-hme")] {
        for bundle in [in_blocks(), as_dense(in_blocks())] {
            let choices = Choices::standard(&bundle.model.network, backend);
            let checks = verify(bundle, choices, Reveal::Logits, &inputs, &cache.0).unwrap();
            assert!(checks.iter().flat_map(|c| &c.layers).all(|l| l.wrong == 0), "{backend}: {checks:?}");
        }
    }
    // And in plaintext they are the same, bit for bit.
    let [blocks, dense] = [in_blocks(), as_dense(in_blocks())]
        .map(|bundle| reference::run(jaguar_ring::cpu::Cpu::detect(), &bundle.model, &inputs[0]));
    assert_eq!(blocks, dense);
}

/// Hint, responses, keys and bytes are what the blocks leave of those of the dense network.
#[test]
fn a_plan_counts_blocks() {
    let network = in_blocks().model.network;
    let dense = as_dense(in_blocks()).model.network;
    let (blocks, plain) = (plan(&network), plan(&dense));
    assert_ne!(blocks.digest(), plain.digest());
    assert_ne!(blocks.hint_digest(), plain.hint_digest());
    let mut tiles = 1;
    for ((node, step), other) in network.nodes.iter().zip(&blocks.steps).zip(&plain.steps) {
        let (Some(spec), Some(layer), Some(other)) = (node.op.linear(), &step.layer, &other.layer) else {
            continue;
        };
        let size = match spec.blocks {
            Some(Blocks { kind: BlockKind::Skew, size }) => size,
            _ => 1,
        };
        // Blocks of a divisor, where that takes less time.
        let parts = layer.block_size();
        assert!(size.is_multiple_of(parts) && (size == 1 || parts > 1), "{}: {parts} of {size}", node.name);
        // Tiles share hints, in parts.
        let shared = if parts > 1 { other.geometry().tiles } else { 1 };
        assert_eq!(layer.traffic().hint * parts * shared, other.traffic().hint, "{}", node.name);
        assert_eq!(layer.noise_ulps(), other.noise_ulps());
        if size > 1 {
            tiles = tiles.max(layer.geometry().tiles);
        }
    }
    assert!(tiles > 1);
    let key = 2048 * 48 / 8;
    assert_eq!(
        (blocks.backends[0].query_bytes(), plain.backends[0].query_bytes()),
        ((tiles * key, 32), (key, 32))
    );

    // What the planner says of the dense network is what it says of this one.
    let costs = block_sizes(&dense, &plain, None);
    assert_eq!(costs.len(), 6);
    assert_eq!(
        costs,
        block_sizes(&network, &blocks, None).into_iter().map(|s| block_sizes_own(s, 1)).collect::<Vec<_>>()
    );
    for sizes in &costs {
        let Some(spec) = network.nodes[sizes.node].op.linear() else { unreachable!("linear layers") };
        let sound: Vec<usize> = sizes.costs.iter().map(|cost| cost.b).collect();
        let first = sizes.node == 1;
        assert_eq!(sound, if first { vec![1, 2, 4, 8] } else { vec![1, 2, 4, 8, 16] });
        let own = sizes.costs.iter().find(|cost| cost.b == block_size(spec)).unwrap();
        if spec.blocks.is_none_or(|blocks| blocks.kind == BlockKind::Skew) {
            let layer = blocks.steps[sizes.node].layer.as_ref().unwrap();
            assert_eq!(own.figures.hint_bytes, layer.traffic().hint as u64);
            assert_eq!(own.figures.responses, layer.geometry().responses);
            assert_eq!(own.effective, layer.block_size());
        }
    }
}

fn block_sizes_own(sizes: jaguar_plan::block_sizes::Sizes, own: usize) -> jaguar_plan::block_sizes::Sizes {
    jaguar_plan::block_sizes::Sizes { own, ..sizes }
}

/// What passes is what the plan says, over TCP, and a second query needs no hint.
#[test]
fn a_session_over_tcp() {
    let cache = Scratch::new("blocks-tcp");
    let service = service(in_blocks());
    let x = input(5, 8 * 34 * 34);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap();
    let expected = reference::run(jaguar_ring::cpu::Cpu::detect(), &in_blocks().model, &x);
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let tcp = listener.accept().unwrap().greet(Options::default()).unwrap();
            service.serve(Channel::new(tcp), &mut |_| ())
        });
        let tcp = Tcp::connect(address, Options::default()).unwrap();
        let mut ready =
            connect(Channel::new(tcp), &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        for query in 0..2 {
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            let (prediction, report, next) = prepared.run(&x, &mut NoProgress).unwrap();
            let Prediction::Logits(logits) = prediction else { panic!("logits") };
            // Every layer rounds to a neighbour; the last one adds up 32 values that are off by a few units.
            let reference = expected.as_ref().unwrap().output();
            assert!(
                logits.iter().zip(reference).all(|(a, b)| (a - b).abs() < 200),
                "{logits:?} {reference:?}"
            );
            let hint: u64 = report.rows.iter().map(|row| row.hint.bytes_down).sum();
            let blocks = crate::hint::blocks(service.plan());
            let whole: u64 = blocks.iter().map(|b| b.bytes as u64 + 32).sum();
            assert_eq!(hint, if query == 0 { whole } else { 0 });
            for (row, step) in report.rows.iter().zip(&service.plan().steps) {
                if let (Some(layer), false) = (&step.layer, step.extension.is_some()) {
                    assert_eq!(row.online.bytes_up, layer.traffic().online.0 as u64, "{}", row.name);
                    assert_eq!((row.online.bytes_down, row.online.rounds), (0, 0), "{}", row.name);
                }
            }
            ready = next;
        }
        ready.leave().unwrap();
        server.join().unwrap().unwrap();
    });
}
