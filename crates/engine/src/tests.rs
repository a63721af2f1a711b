//! Sessions between two parties, over memory, checked layer by layer against the plaintext reference.

mod cheetah;
mod stream;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use jaguar_graph::network::{
    Bias, ImageSpec, InputSpec, Linear, Model, Network, Node, Op, OutputSpec, Rearrange, Shape, Weights,
    Window,
};
use jaguar_linear::layout::Packing;
use jaguar_plan::{BackendId, Choices, PROTOCOL_VERSION, Plan};
use jaguar_ring::prg::Prg;
use jaguar_wire::double::{Fault, Faulty, Recorder, Transcript};
use jaguar_wire::{Channel, WireError, memory_pair, memory_transports};

use crate::EngineError;
use crate::ahead::{Ahead, Next};
use crate::bundle::{Bundle, BundleError};
use crate::client::{Limits, Prediction, Ready, Reveal, connect};
use crate::hint::{Hint, Place};
use crate::message::{MAX_PROBE, Request};
use crate::report::{NoProgress, Report};
use crate::server::Service;
use crate::verify::verify;

/// A folder that is removed at the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jaguar-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Builder {
    network: Network,
    weights: Vec<Option<Weights>>,
    prg: Prg,
}

impl Builder {
    fn new(shape: Shape) -> Self {
        let network = Network {
            name: "test".into(),
            activation_bits: 16,
            weight_bits: 12,
            nodes: vec![Node { name: "input".into(), op: Op::Input, inputs: vec![], shape }],
            input: InputSpec {
                scale: 1.0,
                image: ImageSpec::default(),
                affine: vec![],
                channels_last: false,
                layout_dims: vec![],
                seen: None,
            },
            output: OutputSpec { scale: 1.0, parts: vec![], labels: vec![] },
        };
        Self { network, weights: vec![None], prg: Prg::new([42; 32]) }
    }

    fn add(&mut self, op: Op, inputs: &[usize], shape: Shape) -> usize {
        let id = self.network.nodes.len();
        self.network.nodes.push(Node { name: format!("node{id}"), op, inputs: inputs.to_vec(), shape });
        self.weights.push(None);
        id
    }

    /// Random weights of a size that keeps the output as large as the input.
    fn conv(
        &mut self,
        input: usize,
        out: usize,
        kernel: usize,
        stride: usize,
        pad: usize,
        groups: usize,
    ) -> usize {
        self.conv_shifted(input, out, kernel, stride, pad, groups, 12)
    }

    #[allow(clippy::too_many_arguments)]
    fn conv_shifted(
        &mut self,
        input: usize,
        out: usize,
        kernel: usize,
        stride: usize,
        pad: usize,
        groups: usize,
        shift: u32,
    ) -> usize {
        let [c, h, w] = self.network.nodes[input].shape;
        let spec = Linear {
            out_channels: out,
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1, 1],
            pads: [pad; 4],
            groups,
            shift,
            max_exponent: 2,
        };
        let size = |n: usize| (n + 2 * pad - kernel) / stride + 1;
        let terms = c / groups * kernel * kernel;
        let limit = (2f64.powi(shift as i32) * 1.5 / (terms as f64).sqrt()).min(2047.0);
        let shape = [out, size(h), size(w)];
        let mut random = |bound: f64| {
            let unit = (self.prg.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            ((2.0 * unit - 1.0) * bound) as i64
        };
        let exponents: Vec<u8> = (0..out).map(|d| (d % 3) as u8).collect();
        let weights = exponents.iter().flat_map(|&e| std::iter::repeat_n(e, terms));
        let weights = weights.map(|e| random(limit / f64::from(e).exp2()) as i16).collect();
        let bias = if out.is_multiple_of(2) {
            Bias::PerChannel((0..out).map(|_| random(1e6)).collect())
        } else {
            Bias::PerElement((0..shape.iter().product()).map(|_| random(1e6)).collect())
        };
        let id = self.add(Op::Linear(spec), &[input], shape);
        self.weights[id] = Some(Weights { weights, exponents, bias });
        id
    }

    fn bundle(self) -> Bundle {
        let mut scales: Vec<f64> = Vec::new();
        for node in &self.network.nodes {
            scales.push(match &node.op {
                Op::Input | Op::Linear(_) => 1.0,
                op => scales[node.inputs[0]] * op.scale_gain() as f64,
            });
        }
        Bundle::new(Model { network: self.network, weights: self.weights, scales }).unwrap()
    }
}

/// What a plan follows by default.
fn standard(bundle: &Bundle) -> Choices {
    Choices::standard(&bundle.model.network, BackendId::JAGUAR)
}

fn service(bundle: Bundle) -> Service {
    let choices = standard(&bundle);
    Service::new(bundle, choices, Reveal::Logits).unwrap()
}

/// Every operation, in the combinations that real networks have: residuals, bottlenecks without activation, pools in both places,
/// concatenation, channel padding, average at the end.
fn everything() -> Bundle {
    let mut b = Builder::new([3, 17, 15]);
    let window = |k: usize, s: usize, pads| Window { kernel: [k; 2], stride: [s; 2], pads };
    let stem = b.conv(0, 8, 3, 2, 1, 1); // [8, 9, 8]
    let pooled = b.add(Op::MaxPool { window: window(3, 2, [1, 1, 0, 1]), ignored: 0 }, &[stem], [8, 4, 4]);
    let relu = b.add(Op::Relu { ignored: 0 }, &[pooled], [8, 4, 4]);
    let depth = b.conv(relu, 8, 3, 1, 1, 8);
    let six = b.add(Op::Relu6 { log2_six: 11, ignored: 0 }, &[depth], [8, 4, 4]);
    let project = b.conv(six, 8, 1, 1, 0, 1);
    let residual = b.add(Op::Add, &[project, relu], [8, 4, 4]);
    let expand = b.conv(residual, 12, 1, 1, 0, 2); // linear after linear: an extension
    let relu2 = b.add(Op::Relu { ignored: 0 }, &[expand], [12, 4, 4]);
    let sum = b.add(
        Op::SumPool { window: window(2, 2, [1, 1, 1, 1]), count_real_places: Some(4) },
        &[relu2],
        [12, 3, 3],
    );
    let a = b.conv(sum, 5, 3, 1, 1, 1);
    let relu3 = b.add(Op::Relu { ignored: 0 }, &[a], [5, 3, 3]);
    let padded =
        b.add(Op::Rearrange(Rearrange::Pad { before: [1, 0, 1], after: [2, 1, 0] }), &[relu3], [8, 4, 4]);
    let sliced =
        b.add(Op::Rearrange(Rearrange::Slice { start: [0, 0, 1], step: [1, 2, 2] }), &[padded], [8, 2, 2]);
    let turned = b.add(Op::Rearrange(Rearrange::Transpose { perm: [0, 2, 1] }), &[sliced], [8, 2, 2]);
    let other = b.conv(sum, 4, 2, 1, 0, 1); // [4, 2, 2]
    let relu4 = b.add(Op::Relu { ignored: 0 }, &[other], [4, 2, 2]);
    let axes = [vec![Some(3), None, Some(0), Some(3)], vec![Some(0), None, Some(1)], vec![Some(1), Some(1)]];
    let spread = b.add(Op::Rearrange(Rearrange::Select { axes }), &[relu4], [4, 3, 2]);
    let taken = b.conv(spread, 4, 3, 1, 1, 1);
    let relu5 = b.add(Op::Relu { ignored: 0 }, &[taken], [4, 3, 2]);
    let axes = [vec![], vec![Some(2), Some(0)], vec![]];
    let picked = b.add(Op::Rearrange(Rearrange::Select { axes }), &[relu5], [4, 2, 2]);
    let concat = b.add(Op::Concat, &[turned, picked], [12, 2, 2]);
    let flat = b.add(Op::Rearrange(Rearrange::Reshape), &[concat], [48, 1, 1]);
    let logits = b.conv(flat, 10, 1, 1, 0, 1);
    let last = b.add(Op::Relu { ignored: 0 }, &[logits], [10, 1, 1]);
    b.add(Op::SumPool { window: window(1, 1, [0; 4]), count_real_places: None }, &[last], [10, 1, 1]);
    b.bundle()
}

fn input(seed: u8, count: usize) -> Vec<i64> {
    let mut prg = Prg::new([seed; 32]);
    (0..count).map(|_| (prg.next_u64() >> 51) as i64 - 4096).collect()
}

#[test]
fn every_operation_agrees_with_the_reference_layer_by_layer() {
    let cache = Scratch::new("verify");
    let inputs: Vec<Vec<i64>> = (0..3).map(|s| input(s, 3 * 17 * 15)).collect();
    let checks = verify(everything(), standard(&everything()), Reveal::Logits, &inputs, &cache.0).unwrap();
    assert_eq!(checks.len(), 3);
    for check in &checks {
        for layer in &check.layers {
            assert_eq!(layer.wrong, 0, "{layer:?}");
        }
    }
    // Linear layers round: if nothing ever differs, nothing was compared.
    assert!(checks[0].layers.iter().any(|l| l.max_ulps > 0.5));
}

/// Signs of reduced precision in every activation and max-pool, ten bits left out: `verify` knows what each activation must make of
/// its shares and what a max-pool may make of its values, and what they made is not what exact signs would.
#[test]
fn signs_of_reduced_precision_agree_with_their_shares() {
    let reduced = || {
        let mut model = everything().model;
        model.network.nodes.iter_mut().filter_map(|n| n.op.ignored_mut()).for_each(|ignored| *ignored = 10);
        Bundle::new(model).unwrap()
    };
    let cache = Scratch::new("verify-reduced");
    let inputs: Vec<Vec<i64>> = (0..3).map(|s| input(s, 3 * 17 * 15)).collect();
    for protocol in [BackendId::JAGUAR, BackendId::CHEETAH] {
        let run = |bundle: Bundle| {
            let choices = Choices::standard(&bundle.model.network, protocol);
            verify(bundle, choices, Reveal::Logits, &inputs, &cache.0).unwrap()
        };
        let checks = run(reduced());
        assert!(checks.iter().flat_map(|c| &c.layers).all(|l| l.wrong == 0), "{checks:?}");
        let lost = |of: fn(&Op) -> bool| -> usize {
            let nodes = reduced().model.network.nodes;
            let layers = checks.iter().flat_map(|c| c.layers.iter().zip(&nodes));
            layers.filter(|(_, node)| of(&node.op)).map(|(layer, _)| layer.reduced).sum()
        };
        assert!(lost(|op| matches!(op, Op::Relu { .. } | Op::Relu6 { .. })) > 10, "{checks:?}");
        assert!(lost(|op| matches!(op, Op::MaxPool { .. })) > 10, "{checks:?}");
        // The same layers with exact signs have nothing to forgive.
        assert!(run(everything()).iter().flat_map(|c| &c.layers).all(|l| l.wrong == 0 && l.reduced == 0));
    }
}

#[test]
fn the_label_alone_is_revealed_on_request() {
    let cache = Scratch::new("label");
    let inputs = vec![input(1, 3 * 17 * 15)];
    let bundle = everything();
    let scale_of = |p: &Prediction| match p {
        Prediction::Logits(l) => {
            let top = *l.iter().max().unwrap();
            (0..l.len()).filter(|&i| l[i] >= top - 8).collect::<Vec<_>>()
        }
        Prediction::Label(i) => vec![*i],
    };
    let choices = standard(&bundle);
    let logits = verify(bundle, choices, Reveal::Logits, &inputs, &cache.0).unwrap();
    let label = verify(everything(), standard(&everything()), Reveal::Label, &inputs, &cache.0).unwrap();
    assert!(matches!(label[0].prediction, Prediction::Label(_)));
    // Two runs round differently: the label is one of those within a few ulps of the top.
    assert!(scale_of(&logits[0].prediction).contains(&scale_of(&label[0].prediction)[0]));
}

/// Runs a server in a thread and `client` in this one.
fn session<T>(service: &Service, client: impl FnOnce(Channel) -> T) -> (T, Result<(), EngineError>) {
    let (client_end, server_end) = memory_pair();
    thread::scope(|scope| {
        let server = scope.spawn(|| service.serve(server_end, &mut |_| ()));
        let result = client(client_end);
        (result, server.join().unwrap())
    })
}

/// One connection that asks about `x` so many times; what it reports of each query.
fn queries(service: &Service, cache: &Scratch, x: &[i64], count: usize) -> Vec<Report> {
    let (reports, served) = session(service, |channel| {
        let mut ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        let mut reports = Vec::new();
        for _ in 0..count {
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            let (_, report, next) = prepared.run(x, &mut NoProgress).unwrap();
            reports.push(report);
            ready = next;
        }
        ready.leave().unwrap();
        reports
    });
    served.unwrap();
    reports
}

/// The hint and the base OTs serve every query of a connection, the hint every connection.
#[test]
fn what_is_reused_and_what_is_not() {
    let cache = Scratch::new("reuse");
    let service = service(everything());
    let blocks = crate::hint::blocks(service.plan());
    let hint: u64 = blocks.iter().map(|b| b.bytes as u64 + 32).sum();
    let mut fetched = Vec::new();
    let x = input(5, 3 * 17 * 15);
    for _connection in 0..2 {
        let reports = queries(&service, &cache, &x, 2);
        fetched.push(reports[0].client.bytes_down);
        assert_eq!(reports[1].client.bytes_down, 0, "the second query needs nothing of the client phase");
        // Online bytes are what the plan says.
        for report in &reports {
            for (row, step) in report.rows.iter().zip(&service.plan().steps) {
                if step.layer.is_none() {
                    let bytes = (row.online.bytes_up, row.online.bytes_down);
                    assert_eq!(bytes, (step.cost.up, step.cost.down), "{}", row.name);
                }
                if let (Some(layer), false) = (&step.layer, step.extension.is_some()) {
                    assert_eq!(row.online.bytes_up, layer.traffic().online.0 as u64, "{}", row.name);
                    assert_eq!((row.online.bytes_down, row.online.rounds), (0, 0), "{}", row.name);
                }
            }
        }
    }
    assert_eq!(fetched[0] - fetched[1], hint, "the second connection needs no hint");
}

/// Of the network with every operation, the first pool and five activations work on what the client knows in preparation, and
/// the last but one activation does not wait for the one beside it.
#[test]
fn corrections_go_early_and_branches_share_their_rounds() {
    let cache = Scratch::new("rounds");
    let service = service(everything());
    let steps = &service.plan().steps;
    let names = &service.network().nodes;
    let early: Vec<&str> =
        names.iter().zip(steps).filter(|(_, s)| s.early).map(|(n, _)| n.name.as_str()).collect();
    assert_eq!(early, ["node2", "node5", "node9", "node12", "node17", "node20", "node25"]);
    let reports = queries(&service, &cache, &input(5, 3 * 17 * 15), 2);
    // One more for the result; the shorter of the branches' activations goes alongside.
    let beside = steps[12].cost.client_rounds.min(steps[17].cost.client_rounds);
    let want = service.plan().nonlinear_cost().client_rounds - beside + 1;
    assert!(reports.iter().all(|report| report.online.rounds == want), "{want}");
}

/// Secrets, masks and correlations serve one query: of four queries with one input, on two connections, no 16 bytes that either
/// party sends come twice (but for the greeting, and the hint, which the second connection does not fetch).
#[test]
fn no_message_repeats() {
    nothing_repeats(&service(everything()), &Scratch::new("repeat"));
}

/// `service` is one of `everything()`.
fn nothing_repeats(service: &Service, cache: &Scratch) {
    let x = input(5, 3 * 17 * 15);
    let mut seen = HashSet::new();
    for _connection in 0..2 {
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::new(a);
        let mut start = (0, 0);
        thread::scope(|scope| {
            let server = scope.spawn(|| service.serve(Channel::new(b), &mut |_| ()));
            let connected = connect(Channel::new(recorder), &Limits::default()).unwrap();
            start = transcript.lengths();
            let mut ready = connected.prepare_client(&cache.0).unwrap();
            for _query in 0..2 {
                let prepared = ready.prepare_query(&mut NoProgress).unwrap();
                ready = prepared.run(&x, &mut NoProgress).unwrap().2;
            }
            ready.leave().unwrap();
            server.join().unwrap().unwrap();
        });
        nothing_in_common(&mut seen, &transcript, start);
    }
}

/// Looks at what went over a connection after its first `start` bytes each way, which tell what both know.
fn nothing_in_common(seen: &mut HashSet<Vec<u8>>, transcript: &Transcript, start: (u64, u64)) {
    // The client's answer to the offer names the plan and itself, in less than 80 bytes.
    for (bytes, start) in [(transcript.sent(), start.0 + 80), (transcript.received(), start.1)] {
        for (i, chunk) in bytes[start as usize..].chunks_exact(16).enumerate() {
            // Runs of one byte are padding, and the report's small numbers.
            let plain = chunk.iter().filter(|&&b| b == chunk[0]).count() > 4;
            assert!(
                plain || seen.insert(chunk.to_vec()),
                "16 bytes come again after {} bytes",
                start + 16 * i as u64
            );
        }
    }
}

/// Opens a session with a server thread of its own, and records it.
fn recorded_session(
    service: &Arc<Service>,
    cache: &std::path::Path,
) -> Result<(Ready, Transcript, (u64, u64)), EngineError> {
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::new(a);
    let service = Arc::clone(service);
    thread::spawn(move || service.serve(Channel::new(b), &mut |_| ()));
    let connected = connect(Channel::new(recorder), &Limits::default())?;
    let start = transcript.lengths();
    Ok((connected.prepare_client(cache)?, transcript, start))
}

/// Two sessions of one client prepare for each other: every answer is right, and nothing secret serves both.
#[test]
fn queries_are_prepared_ahead() {
    const QUERIES: usize = 5;
    let cache = Scratch::new("ahead");
    let service = Arc::new(service(everything()));
    let (first, transcript, start) = recorded_session(&service, &cache.0).unwrap();
    let first = first.fetch_hint(&mut NoProgress).unwrap();
    let mut seen = HashSet::new();
    let (tell, told) = std::sync::mpsc::channel();
    let mut ahead = Ahead::new(QUERIES);
    let (other, folder) = (Arc::clone(&service), cache.0.clone());
    ahead.open(7, move || {
        let (ready, transcript, start) = recorded_session(&other, &folder)?;
        tell.send((transcript, start)).unwrap();
        Ok(ready)
    });
    ahead.add(3, first);
    let mut served = [0, 0];
    let mut outputs: Vec<Vec<i64>> = Vec::new();
    for query in 0..QUERIES {
        let Next { prepared, session } = ahead.take().unwrap().unwrap();
        // The same input every other time.
        let x = input((query % 2) as u8, 3 * 17 * 15);
        let (prediction, _, ready) = prepared.run(&x, &mut NoProgress).unwrap();
        let Prediction::Logits(logits) = prediction else { panic!("logits were asked for") };
        outputs.push(logits);
        served[usize::from(session == 7)] += 1;
        assert!(session == 7 || session == 3);
        ahead.add(session, ready);
    }
    assert!(ahead.take().unwrap().is_none() && ahead.not_opened().is_none());
    ahead.leave().unwrap();
    // Each session had begun a query before the first was taken.
    assert!(served.iter().all(|&n| n > 0) && served.iter().sum::<usize>() == QUERIES, "{served:?}");
    let apart = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).max().unwrap();
    for (i, output) in outputs.iter().enumerate() {
        assert!(apart(output, &outputs[i % 2]) < 64);
    }
    assert!(apart(&outputs[0], &outputs[1]) > 64, "two inputs, two answers");
    nothing_in_common(&mut seen, &transcript, start);
    let (transcript, start) = told.recv().unwrap();
    nothing_in_common(&mut seen, &transcript, start);
}

/// A session that cannot be opened is done without, one that breaks is named, and what is left goes on.
#[test]
fn preparing_ahead_survives_its_sessions() {
    let cache = Scratch::new("ahead-fails");
    let service = Arc::new(service(everything()));
    let ready = recorded_session(&service, &cache.0).unwrap().0.fetch_hint(&mut NoProgress).unwrap();
    let x = input(1, 3 * 17 * 15);
    let mut ahead = Ahead::new(2);
    ahead.open(1, || Err(EngineError::Input("no place".into())));
    ahead.open(2, || panic!("a thread that breaks off"));
    // Nothing is left to be begun: this one waits for what the others leave undone.
    ahead.add(0, ready);
    let mut broken = 0;
    for _ in 0..2 {
        let next = loop {
            match ahead.take() {
                Ok(next) => break next.unwrap(),
                Err(e) => {
                    assert!(e.to_string().contains("broke off"), "{e}");
                    broken += 1;
                }
            }
        };
        assert_eq!(next.session, 0);
        ahead.add(0, next.prepared.run(&x, &mut NoProgress).unwrap().2);
    }
    assert_eq!(broken, 1);
    assert!(ahead.not_opened().unwrap().to_string().contains("no place"));
    assert!(ahead.take().unwrap().is_none());
    ahead.leave().unwrap();
    // Without any session there is nothing to wait for.
    assert!(Ahead::new(3).take().unwrap().is_none());
}

/// The hint of the only model in `cache`.
fn hint_in(cache: &Scratch) -> std::path::PathBuf {
    std::fs::read_dir(cache.0.join("hints")).unwrap().next().unwrap().unwrap().path()
}

/// Hears of the hint only.
struct HintProgress(Vec<(u64, u64)>);

impl crate::report::Progress for HintProgress {
    fn step(&mut self, _: jaguar_wire::Phase, _: usize, _: usize, _: &str) {}
    fn hint(&mut self, done: u64, total: u64) {
        self.0.push((done, total));
    }
}

/// A download that was cut off goes on where it ended, whether a query takes the hint on its way or it is fetched alone.
#[test]
fn the_hint_is_resumed() {
    let cache = Scratch::new("resume");
    let service = service(everything());
    let x = input(6, 3 * 17 * 15);
    let fetch = |with_query: bool| {
        let mut progress = HintProgress(Vec::new());
        let (there, served) = session(&service, |channel| {
            let mut ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
            let there = ready.hint();
            if with_query {
                ready = ready.prepare_query(&mut progress).unwrap().run(&x, &mut NoProgress).unwrap().2;
            } else {
                ready = ready.fetch_hint(&mut progress).unwrap();
            }
            assert_eq!(ready.hint(), (there.1, there.1));
            // Nothing is missing now: asking again brings nothing.
            let steps = progress.0.len();
            ready.fetch_hint(&mut progress).unwrap().leave().unwrap();
            assert_eq!(progress.0.len(), steps);
            there
        });
        served.unwrap();
        (there, progress.0)
    };
    let ((done, total), heard) = fetch(true);
    assert_eq!((done, total), (0, service.plan().hint_bytes() as u64));
    assert_eq!(heard.len(), crate::hint::blocks(service.plan()).len());
    assert!(heard.is_sorted() && heard.last() == Some(&(total, total)));
    let file = hint_in(&cache);
    let whole = std::fs::read(&file).unwrap();
    // Cut in the middle of a block, and then with a damaged byte: what is sound stays.
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle] ^= 1;
    for (broken, with_query) in [
        (&whole[..middle], true),
        (&whole[..middle], false),
        (&damaged, true),
        (&damaged, false),
        (&[], false),
    ] {
        std::fs::write(&file, broken).unwrap();
        let ((done, total), heard) = fetch(with_query);
        assert_eq!(done > 0, !broken.is_empty(), "resumed at {done} of {total}");
        assert!(done < total && heard[0].0 > done);
        let again = std::fs::read(&file).unwrap();
        if !broken.is_empty() {
            assert_eq!(again, whole, "the same bytes whenever they are fetched");
        }
    }
}

/// A connection that ends, or carries a flipped bit, in the middle of a first query's hint: what came before it is kept, the
/// next query takes the rest, and gets the right answer.
#[test]
fn a_first_query_that_was_cut_off_leaves_its_hint() {
    let x = input(6, 3 * 17 * 15);
    let service = service(everything());
    let blocks = crate::hint::blocks(service.plan());
    let total: u64 = blocks.iter().map(|b| b.bytes as u64).sum();
    // How many bytes the client receives before and with the hint.
    let attempt = |cache: &Scratch, fault: Fault| {
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::hashing(a);
        thread::scope(|scope| {
            let server = scope.spawn(|| service.serve(Channel::new(b), &mut |_| ()));
            let mut before = 0;
            let result = connect(Channel::new(Faulty::new(recorder, fault)), &Limits::default())
                .and_then(|connected| connected.prepare_client(&cache.0))
                .and_then(|ready| {
                    before = transcript.lengths().1;
                    ready.prepare_query(&mut NoProgress)
                });
            let after = transcript.lengths().1;
            let result = result.and_then(|prepared| {
                let (prediction, report, ready) = prepared.run(&x, &mut NoProgress)?;
                ready.leave()?;
                Ok((prediction, report))
            });
            let _ = server.join().unwrap();
            (before, after, result)
        })
    };
    let clean = Scratch::new("cut-clean");
    let (before, after, sound) = attempt(&clean, Fault::Silence(u64::MAX));
    let (Prediction::Logits(sound), _) = sound.unwrap() else { panic!("logits were asked for") };
    assert!(after - before > total);
    let whole = std::fs::read(hint_in(&clean)).unwrap();
    let (mut kept, mut noticed) = (Vec::new(), 0);
    for twelfth in 0..12 {
        let cache = Scratch::new(&format!("cut-{twelfth}"));
        let byte = before + (after - before) * twelfth / 12 + 100;
        let fault =
            if twelfth % 2 == 0 { Fault::CutReceived(byte) } else { Fault::FlipReceived { byte, bit: 3 } };
        let error = attempt(&cache, fault).2.map(|_| ());
        if twelfth % 2 == 0 {
            assert!(error.is_err(), "cut at byte {byte} of {after}");
        } else if let Err(error) = error {
            // A bit of the hint is noticed at once; elsewhere it may only spoil the result.
            assert!(error.to_string().contains("arrived damaged"), "{error}");
            noticed += 1;
        }
        let file = hint_in(&cache);
        let held = std::fs::read(&file).unwrap();
        if twelfth % 2 == 0 {
            kept.push(held.len());
        }
        let (_, _, answer) = attempt(&cache, Fault::Silence(u64::MAX));
        let (Prediction::Logits(logits), report) = answer.unwrap() else { panic!("logits were asked for") };
        assert!(logits.iter().zip(&sound).all(|(a, b)| (a - b).abs() < 64), "{logits:?} {sound:?}");
        // Only what was missing came, and every block that was there stayed.
        let missing: u64 = (whole.len() - held.len()) as u64;
        assert_eq!(report.client.bytes_down - setup_bytes(&service, &clean), missing);
        assert_eq!(std::fs::read(&file).unwrap()[..held.len()], held);
    }
    assert!(kept.is_sorted() && kept[0] < kept[5], "{kept:?}");
    assert!(noticed > 0);
}

/// What a client receives in the client phase when its hint is complete.
fn setup_bytes(service: &Service, cache: &Scratch) -> u64 {
    let (report, served) = session(service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (_, report, ready) = prepared.run(&[0; 3 * 17 * 15], &mut NoProgress).unwrap();
        ready.leave().unwrap();
        report
    });
    served.unwrap();
    report.client.bytes_down
}

/// Any number of processes may use a complete hint; while one fetches, the others are told.
#[test]
fn the_hint_file_is_shared_when_complete() {
    let cache = Scratch::new("share");
    let service = service(everything());
    let place = Place::from(&cache.0);
    let open = || Hint::open(&place, service.model(), service.plan(), [1; 32], &mut NoProgress);
    let fetching = open().unwrap();
    let Err(error) = open() else { panic!("two processes fetch into one file") };
    assert!(error.to_string().contains("being fetched"), "{error}");
    drop(fetching);
    let (_, served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        assert!(open().is_err());
        let ready = ready.fetch_hint(&mut NoProgress).unwrap();
        let mut other = open().unwrap();
        assert_eq!(other.have(), other.blocks().len());
        assert_eq!(other.nonce(), open().unwrap().nonce());
        let first = other.blocks()[0].node;
        assert!(!other.layer(first).unwrap().is_empty());
        ready.leave().unwrap();
    });
    served.unwrap();
}

/// What this side tells its peer when it gives up holds no path and no value.
#[test]
fn local_failures_stay_local() {
    let path = std::path::Path::new("/home/someone/.cache/jaguar");
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    for error in [
        EngineError::file("writing", path, full),
        EngineError::Hint(format!("{} is damaged", path.display())),
        EngineError::Input("input value 12345 is outside".into()),
        EngineError::Bundle(BundleError::Unusable(format!("{}: damaged", path.display())))
            .in_layer("conv", "online"),
    ] {
        let told = error.for_peer();
        assert!(!told.contains("someone") && !told.contains("12345"), "{told}");
    }
}

/// What a client says to a server that offers this network.
fn greet(b: Builder, protocol: BackendId) -> Result<(), EngineError> {
    let (client_end, mut server_end) = memory_pair();
    let network = b.network;
    network.validate().unwrap();
    server_end.send_message(&crate::message::Hello { version: PROTOCOL_VERSION }).unwrap();
    let offer = crate::message::Offer {
        model: crate::bundle::ModelId([1; 32]),
        choices: Choices::standard(&network, protocol),
        reveal: Reveal::Logits,
    };
    server_end.send_message(&offer).unwrap();
    server_end.send_message(&network).unwrap();
    server_end.flush().unwrap();
    connect(client_end, &Limits::default()).map(|_| ())
}

/// Networks that are sound but would cost their reader minutes or gigabytes, in a few hundred bytes.
#[test]
fn small_descriptions_of_endless_work_are_refused_at_once() {
    let greet = |b: Builder| greet(b, BackendId::JAGUAR);
    // A max-pool with a schedule of gigabytes.
    let mut pool = Builder::new([16, 1024, 1024]);
    let window = Window { kernel: [1024; 2], stride: [1; 2], pads: [512, 512, 511, 511] };
    pool.add(Op::MaxPool { window, ignored: 0 }, &[0], [16, 1024, 1024]);
    assert!(matches!(greet(pool), Err(EngineError::PeerMisbehaved(_))));
    // ReLUs with gigabytes of prepared material.
    let mut relus = Builder::new([64, 1024, 1024]);
    let mut last = 0;
    for _ in 0..3 {
        last = relus.add(Op::Relu { ignored: 0 }, &[last], [64, 1024, 1024]);
    }
    assert!(greet(relus).is_err());
    // A kernel that falls into as many phases as it has taps: fine, and planned at once.
    let mut phases = Builder::new([1, 1024, 1024]);
    phases.conv(0, 1, 512, 512, 0, 1);
    greet(phases).unwrap();
    // A kernel that nearly fills the ring, over a huge map: gigabytes of tiles. One of millions of taps.
    let mut tiles = Builder::new([1, 2048, 2048]);
    tiles.conv(0, 1, 43, 1, 0, 1);
    let mut taps = Builder::new([1, 8192, 4096]);
    taps.conv(0, 1, 4096, 4096, 0, 1);
    for (network, what) in [(tiles, "tiles in one layer"), (taps, "taps in one layer")] {
        let error = greet(network).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    // A nonlinear layer behind a sum that has outgrown its ring.
    let mut wide = Builder::new([3, 8, 8]);
    let window = Window { kernel: [4; 2], stride: [4; 2], pads: [0; 4] };
    let sum = wide.add(Op::SumPool { window, count_real_places: None }, &[0], [3, 2, 2]);
    wide.add(Op::Relu { ignored: 0 }, &[sum], [3, 2, 2]);
    assert!(matches!(greet(wide), Err(EngineError::Plan(_))));
}

/// Another layout of the same model names other zero-encryptions: their difference would cancel.
#[test]
fn hint_keys_follow_the_layout() {
    let bundle = everything();
    let network = &bundle.model.network;
    let plans = [(2048, 48), (2048, 47), (4096, 48)].map(|(ring_dim, modulus_bits)| {
        let choices = Choices { ring_dim, modulus_bits, ..standard(&bundle) };
        Plan::new(network, choices).unwrap().hint_digest()
    });
    let keys: HashSet<_> = plans.iter().map(|p| *bundle.hint_key(&[7; 32], p)).collect();
    assert_eq!(keys.len(), 3);
    assert_ne!(*bundle.hint_key(&[7; 32], &plans[0]), *bundle.hint_key(&[8; 32], &plans[0]));
    assert_eq!(*bundle.hint_key(&[7; 32], &plans[0]), *bundle.hint_key(&[7; 32], &plans[0]));
}

/// A server may not make its client plan for ever, or print what a terminal would obey.
#[test]
fn a_network_beyond_the_limits_is_refused() {
    let mut bundle = everything();
    let server = service(everything());
    for (limits, what) in [
        (Limits { values: 100, ..Limits::default() }, "values"),
        (Limits { multiply_adds: 100, ..Limits::default() }, "multiplications"),
        (Limits { prepared_bytes: 100, ..Limits::default() }, "prepared"),
        (Limits { hint_bytes: 100, ..Limits::default() }, "hint"),
    ] {
        let (result, _) = session(&server, |channel| connect(channel, &limits).map(|_| ()));
        assert!(result.unwrap_err().to_string().contains(what));
    }
    bundle.model.network.nodes[1].name = "\u{1b}[2J".into();
    let renamed = service(bundle);
    let (result, _) = session(&renamed, |channel| connect(channel, &Limits::default()).map(|_| ()));
    assert!(result.unwrap_err().to_string().contains("control"));
}

#[test]
fn an_input_that_does_not_fit_is_named() {
    let cache = Scratch::new("input");
    let service = service(everything());
    for (bad, what) in [(vec![0; 5], "5 values"), (vec![1 << 20; 3 * 17 * 15], "1048576")] {
        let (error, served) = session(&service, |channel| {
            let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
            ready.prepare_query(&mut NoProgress).unwrap().run(&bad, &mut NoProgress).map(|_| ()).unwrap_err()
        });
        assert!(error.to_string().contains(what), "{error}");
        // The server hears that the client gave up, and nothing of the input.
        let heard = served.unwrap_err();
        assert!(matches!(root(&heard), EngineError::Wire(WireError::PeerAborted(_))));
        assert!(!heard.to_string().contains("1048576"), "{heard}");
    }
}

fn root(error: &EngineError) -> &EngineError {
    match error {
        EngineError::InLayer { source, .. } => root(source),
        other => other,
    }
}

#[test]
fn a_hostile_or_foreign_peer_gets_an_error_not_a_panic() {
    let service = service(everything());
    let mut prg = Prg::new([8; 32]);
    // Garbage, lengths that lie, another version, silence and departure.
    let mut openings: Vec<Vec<u8>> = vec![
        vec![],
        vec![0xff; 64],
        [4u32.to_le_bytes().to_vec(), vec![PROTOCOL_VERSION as u8]].concat(),
        u32::MAX.to_le_bytes().to_vec(),
        [1u32.to_le_bytes().to_vec(), vec![99]].concat(),
    ];
    for _ in 0..20 {
        let mut garbage = vec![0; 300];
        prg.fill(&mut garbage);
        // A sound greeting, then noise: deeper states see garbage too.
        openings.push([1u32.to_le_bytes().to_vec(), vec![PROTOCOL_VERSION as u8], garbage].concat());
    }
    for opening in openings {
        let (_, served) = session(&service, |mut channel| {
            channel.send(&opening).and_then(|()| channel.flush()).unwrap();
        });
        assert!(served.is_err(), "{opening:?}");
    }
    // The other way round: a server that sends garbage.
    for seed in 0..20u8 {
        let (client_end, mut server_end) = memory_pair();
        let mut garbage = vec![0; 400];
        Prg::new([seed; 32]).fill(&mut garbage);
        if seed % 2 == 0 {
            garbage[..5].copy_from_slice(&[1, 0, 0, 0, PROTOCOL_VERSION as u8]);
        }
        server_end.send(&garbage).and_then(|()| server_end.flush()).unwrap();
        drop(server_end);
        assert!(connect(client_end, &Limits::default()).is_err());
    }
}

/// Connections that end, and bits that flip, anywhere from the acceptance to the result, on the way to either party: an error or a
/// wrong answer at both of them, never a panic, and nobody waits for ever. (Flips in the lengths of control messages are left out: who
/// is promised more than comes has to wait.)
#[test]
fn no_fault_makes_a_party_panic_or_wait() {
    let x = input(6, 3 * 17 * 15);
    for (protocol, reveal) in [
        (BackendId::JAGUAR, Reveal::Logits),
        (BackendId::JAGUAR, Reveal::Label),
        (BackendId::CHEETAH, Reveal::Logits),
    ] {
        let bundle = everything();
        let choices = Choices::standard(&bundle.model.network, protocol);
        let service = Service::new(bundle, choices, reveal).unwrap();
        let complete = Scratch::new(&format!("faults-{protocol}-{reveal:?}"));
        // What had passed, sent and received, when the query was asked for, and at the result.
        let attempt = |cache: &Scratch, fault: Fault| {
            let (a, b) = memory_transports();
            let (recorder, transcript) = Recorder::hashing(a);
            thread::scope(|scope| {
                let server = scope.spawn(|| service.serve(Channel::new(b), &mut |_| ()));
                let mut start = (0, 0);
                let result = connect(Channel::new(Faulty::new(recorder, fault)), &Limits::default())
                    .and_then(|connected| connected.prepare_client(&cache.0))
                    .and_then(|ready| {
                        start = transcript.lengths();
                        ready.with_timeline().prepare_query(&mut NoProgress)?.run(&x, &mut NoProgress)
                    });
                let end = transcript.lengths();
                let ended = result.map(|(_, _, ready)| ready.leave());
                let served = server.join().expect("the server does not panic");
                (start, end, ended.is_ok(), served.is_ok())
            })
        };
        // Without a hint, and with one.
        let sound = [(); 2].map(|()| {
            let (start, end, ended, served) = attempt(&complete, Fault::Silence(u64::MAX));
            assert!(ended && served);
            (start, end)
        });
        for i in 0..10u64 {
            let (start, end) = sound[(i % 2) as usize];
            let between = |from: u64, to: u64| from + (to - from) * (2 * i + 1) / 20;
            let (sent, received) = (between(start.0 + 32, end.0), between(start.1, end.1 - 4096));
            for (fault, cut) in [
                (Fault::CutSent(sent), true),
                (Fault::CutReceived(received), true),
                (Fault::FlipSent { byte: sent, bit: (i % 8) as u8 }, false),
                (Fault::FlipReceived { byte: received, bit: (i % 8) as u8 }, false),
            ] {
                let fresh = (i % 2 == 0).then(|| Scratch::new(&format!("fault-{protocol}-{reveal:?}-{i}")));
                let (_, _, ended, served) = attempt(fresh.as_ref().unwrap_or(&complete), fault);
                assert!(!cut || !ended || !served, "{fault:?}");
            }
        }
    }
}

#[test]
fn another_version_is_named_on_both_sides() {
    let service = service(everything());
    let (answer, served) = session(&service, |mut channel| {
        channel.send_message(&crate::message::Hello { version: 77 }).unwrap();
        channel.recv_message::<crate::message::Hello>("greeting", 100).unwrap().version
    });
    assert_eq!(answer, PROTOCOL_VERSION);
    assert!(matches!(served, Err(EngineError::Version { theirs: 77, .. })));
}

#[test]
fn bundles_are_checked() {
    let folder = Scratch::new("bundle");
    let path = folder.0.join("model.jaguar");
    let bundle = everything();
    bundle.write(&path).unwrap();
    assert_eq!(Bundle::read(&path).unwrap().id(), bundle.id());
    let whole = std::fs::read(&path).unwrap();
    for (broken, what) in [
        (&whole[..20], "cut off"),
        (&whole[..whole.len() - 1], "damaged"),
        (&b"\x08\x08 an ONNX file"[..], "compile"),
        (&b""[..], "too short"),
    ] {
        std::fs::write(&path, broken).unwrap();
        let Err(error) = Bundle::read(&path) else { panic!("{what}: accepted") };
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(Bundle::read(&folder.0.join("nothing")).is_err());
    // Another secret, another name: the name tells nothing of the model.
    assert_ne!(everything().id(), bundle.id());
}

/// Other digits change what passes online, and leave a client's hint as it is.
#[test]
fn the_digits_of_comparisons_do_not_concern_the_hint() {
    let bundle = everything();
    let plan = |digit| {
        let standard = standard(&bundle);
        let digits = vec![digit; standard.digits.len()];
        Plan::new(&bundle.model.network, Choices { digits, ..standard }).unwrap()
    };
    let (three, four) = (plan(3), plan(4));
    assert_eq!(three.hint_digest(), four.hint_digest());
    assert_ne!(three.digest(), four.digest());
    let (three, four) = (three.nonlinear_cost(), four.nonlinear_cost());
    assert!(three.up + three.down < four.up + four.down && three.client_rounds > four.client_rounds);
}

#[test]
fn unsound_choices_are_refused() {
    let good = standard(&everything());
    let cases = [
        (Choices { modulus_bits: 54, ..good.clone() }, "54"),
        (Choices { digits: vec![4; 3], ..good.clone() }, "3 nodes"),
        (Choices { digits: vec![5; good.digits.len()], ..good }, "5 bits"),
    ];
    for (choices, named) in cases {
        let error = Service::new(everything(), choices, Reveal::Logits).err().expect("refused");
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// What a plan predicts of bytes and rounds is what passes, on the first query of a connection and on later ones, whatever is
/// revealed and in whatever digits.
#[test]
fn bytes_are_as_predicted() {
    use jaguar_plan::predict::predict;
    let cache = Scratch::new("predicted");
    let x = input(5, 3 * 17 * 15);
    for (reveal, digit) in [(Reveal::Logits, 4), (Reveal::Label, 4), (Reveal::Logits, 3), (Reveal::Logits, 2)]
    {
        let bundle = everything();
        let digits = vec![digit; bundle.model.network.nodes.len()];
        let packings = vec![Packing::Tight; bundle.model.network.nodes.len()];
        let choices = Choices { digits, packings, ..standard(&bundle) };
        let service = Service::new(bundle, choices, reveal).unwrap();
        let reports = queries(&service, &cache, &x, 3);
        assert_eq!(reports[0].session.used, Default::default());
        let (from_server, from_client) = reports[1].session.used;
        assert!(from_server.vectors > 0 && from_server.bits > 0 && from_client.bits > 0);
        for report in &reports {
            let predicted = predict(service.plan(), &report.session, None);
            let of = |up, down| (up, down);
            assert_eq!(
                of(predicted.preparation.bytes_up, predicted.preparation.bytes_down),
                of(report.preprocessing.bytes_up, report.preprocessing.bytes_down),
                "before the input, {digit}"
            );
            assert_eq!(
                of(predicted.online.bytes_up, predicted.online.bytes_down),
                of(report.online.bytes_up, report.online.bytes_down),
                "online, {digit}"
            );
            // Branches share their rounds, which the sum over the layers does not know.
            assert!(report.online.rounds <= predicted.online.rounds, "{digit}");
        }
    }
}

/// The link is measured between queries, and a probe beyond all measure is refused.
#[test]
fn the_link_is_measured() {
    let cache = Scratch::new("probe");
    let service = service(everything());
    let (link, served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        let (link, ready) = ready.measure_link().unwrap();
        let ready = ready.prepare_query(&mut NoProgress).unwrap();
        let (.., ready) = ready.run(&input(5, 3 * 17 * 15), &mut NoProgress).unwrap();
        ready.leave().unwrap();
        link
    });
    served.unwrap();
    assert!(link.is_sound(), "{link:?}");
    let (_, served) = session(&service, |channel| {
        let mut ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        let channel = ready.channel();
        let request = Request::Probe { up: 0, down: MAX_PROBE + 1 };
        channel.send_message(&request).and_then(|()| channel.flush()).unwrap();
    });
    assert!(matches!(served, Err(EngineError::PeerMisbehaved(_))), "{served:?}");
}
