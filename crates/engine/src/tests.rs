//! Sessions between two parties, over memory, checked layer by layer against the plaintext reference.

mod batch;
mod blocks;
mod cheetah;
mod comparisons;
mod curves;
mod exchange;
mod freed;
mod guests;
mod hints;
mod hostile;
mod kept;
mod keys;
mod malicious_client;
mod matrices;
mod norms;
mod products;
mod rows;
mod stream;
mod traffic;

use std::sync::Arc;
use std::thread;

use jaguar_graph::network::{
    Add, Bias, Concat, Input, InputSpec, Linear, MaxPool, Model, Network, Node, NodeId, Op, OutputSpec,
    Product, Rearrange, Relu, Relu6, Scale, Shape, SumPool, Weights, Window,
};
use jaguar_linear::layout::Packing;
use jaguar_linear::plaintext_insecure;
use jaguar_plan::double::SAID_TO_LEAK;
use jaguar_plan::predict::predict;
use jaguar_plan::{BackendId, Choices, Kit, PROTOCOL_VERSION, Plan};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::prg::{Prg, with_insecure_fixed_randomness};
use jaguar_wire::double::repeats::{Repeat, Repeats};
use jaguar_wire::double::{Fault, Faulty, Frozen, Recorder, Transcript};
use jaguar_wire::{Channel, WireError, memory_pair, memory_transports};

use crate::client::{self, Connected, Limits, Prediction, Ready, Reveal};
use crate::error::EngineError;
use crate::handshake::SharesParameters;
use crate::hint::{Hint, HintPlace};
use crate::message::{MAX_PROBE, Request};
use crate::progress::NoProgress;
use crate::report::Report;
use crate::server::Service;
use crate::verify::Check;
use jaguar_graph::bundle::{Bundle, BundleError};

/// Every backend that there is, those that protect nothing among them; and comparisons that are said to leak.
fn kit() -> Kit {
    let all = Kit::standard().with(jaguar_fregata::ALL).with(jaguar_hyena::ALL).with(plaintext_insecure::ALL);
    all.with_comparisons(SAID_TO_LEAK)
}

/// The backend of a name.
fn backend(name: &str) -> BackendId {
    kit().backend(name).unwrap()
}

fn connect(channel: Channel, limits: &Limits) -> Result<Connected, EngineError> {
    client::connect(&kit(), channel, limits)
}

fn connect_to(channel: Channel, model: Option<&str>, limits: &Limits) -> Result<Connected, EngineError> {
    client::connect_to(&kit(), channel, model, limits)
}

fn connect_for(
    channel: Channel,
    model: Option<&str>,
    limits: &Limits,
    images: u32,
) -> Result<Connected, EngineError> {
    client::connect_for(&kit(), channel, model, limits, images)
}

fn verify(
    bundle: Bundle,
    choices: Choices,
    reveal: Reveal,
    inputs: &[Vec<i64>],
    hint: impl Into<HintPlace>,
) -> Result<Vec<Check>, EngineError> {
    crate::verify::verify(&kit(), bundle, choices, reveal, inputs, hint)
}

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
            guard_bits: 0,
            noise_bits: 0,
            weight_bits: 12,
            nodes: vec![Node { name: "input".into(), op: Op::new(Input), inputs: vec![], shape }],
            input: InputSpec::plain(1.0),
            output: OutputSpec::plain(1.0),
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
            blocks: None,
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
        let id = self.add(Op::new(spec), &[input], shape);
        self.weights[id] = Some(Weights { weights, exponents, bias });
        id
    }

    fn bundle(self) -> Bundle {
        let mut scales: Vec<f64> = Vec::new();
        for node in &self.network.nodes {
            scales.push(match node.op.scale() {
                Scale::Own => 1.0,
                Scale::Inherited | Scale::Gained(_) => scales[node.inputs[0]] * node.op.scale_gain() as f64,
            });
        }
        Bundle::with_hiding(Model { network: self.network, weights: self.weights, scales, leverage: None }, 0)
            .unwrap()
    }
}

/// What a plan follows by default.
fn standard(bundle: &Bundle) -> Choices {
    Choices::standard(&bundle.model.network, Kit::JAGUAR)
}

/// The same by comparisons that are said to leak.
fn said_to_leak(network: &Network, backend: BackendId) -> Choices {
    Choices::standard(network, backend).comparing_by(network, kit().comparisons()[0]).unwrap()
}

fn service(bundle: Bundle) -> Service {
    let choices = standard(&bundle);
    Service::new(bundle, choices, Reveal::Logits).unwrap()
}

/// Every operation but products ([`products`]), in the combinations that real networks have: residuals, bottlenecks without activation, pools in both places,
/// concatenation, channel padding, average at the end.
fn everything() -> Bundle {
    let mut b = Builder::new([3, 17, 15]);
    let window = |k: usize, s: usize, pads| Window { kernel: [k; 2], stride: [s; 2], pads };
    let stem = b.conv(0, 8, 3, 2, 1, 1); // [8, 9, 8]
    let pooled =
        b.add(Op::new(MaxPool { window: window(3, 2, [1, 1, 0, 1]), ignored: 0 }), &[stem], [8, 4, 4]);
    let relu = b.add(Op::new(Relu { ignored: 0 }), &[pooled], [8, 4, 4]);
    let depth = b.conv(relu, 8, 3, 1, 1, 8);
    let six = b.add(Op::new(Relu6 { log2_six: 11, ignored: 0 }), &[depth], [8, 4, 4]);
    let project = b.conv(six, 8, 1, 1, 0, 1);
    let residual = b.add(Op::new(Add), &[project, relu], [8, 4, 4]);
    let expand = b.conv(residual, 12, 1, 1, 0, 2); // linear after linear: an extension
    let relu2 = b.add(Op::new(Relu { ignored: 0 }), &[expand], [12, 4, 4]);
    let sum = b.add(
        Op::new(SumPool { window: window(2, 2, [1, 1, 1, 1]), count_real_places: Some(4) }),
        &[relu2],
        [12, 3, 3],
    );
    let a = b.conv(sum, 5, 3, 1, 1, 1);
    let relu3 = b.add(Op::new(Relu { ignored: 0 }), &[a], [5, 3, 3]);
    let padded = b.add(Op::new(Rearrange::Pad { before: [1, 0, 1], after: [2, 1, 0] }), &[relu3], [8, 4, 4]);
    let sliced = b.add(Op::new(Rearrange::Slice { start: [0, 0, 1], step: [1, 2, 2] }), &[padded], [8, 2, 2]);
    let turned = b.add(Op::new(Rearrange::Transpose { perm: [0, 2, 1] }), &[sliced], [8, 2, 2]);
    let other = b.conv(sum, 4, 2, 1, 0, 1); // [4, 2, 2]
    let relu4 = b.add(Op::new(Relu { ignored: 0 }), &[other], [4, 2, 2]);
    let axes = [vec![Some(3), None, Some(0), Some(3)], vec![Some(0), None, Some(1)], vec![Some(1), Some(1)]];
    let spread = b.add(Op::new(Rearrange::Select { axes }), &[relu4], [4, 3, 2]);
    let taken = b.conv(spread, 4, 3, 1, 1, 1);
    let relu5 = b.add(Op::new(Relu { ignored: 0 }), &[taken], [4, 3, 2]);
    let axes = [vec![], vec![Some(2), Some(0)], vec![]];
    let picked = b.add(Op::new(Rearrange::Select { axes }), &[relu5], [4, 2, 2]);
    let concat = b.add(Op::new(Concat), &[turned, picked], [12, 2, 2]);
    let flat = b.add(Op::new(Rearrange::Reshape), &[concat], [48, 1, 1]);
    let logits = b.conv(flat, 10, 1, 1, 0, 1);
    let last = b.add(Op::new(Relu { ignored: 0 }), &[logits], [10, 1, 1]);
    b.add(Op::new(SumPool { window: window(1, 1, [0; 4]), count_real_places: None }), &[last], [10, 1, 1]);
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
        Bundle::with_hiding(model, 0).unwrap()
    };
    let cache = Scratch::new("verify-reduced");
    let inputs: Vec<Vec<i64>> = (0..3).map(|s| input(s, 3 * 17 * 15)).collect();
    for protocol in [Kit::JAGUAR, Kit::CHEETAH] {
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
        assert!(lost(|op| op.is::<Relu>() || op.is::<Relu6>()) > 10, "{checks:?}");
        assert!(lost(|op| op.is::<MaxPool>()) > 10, "{checks:?}");
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
    // Whatever the service was made with.
    let limits = Limits { allow_insecure_backends: true, ..Limits::default() };
    let (reports, served) = session(service, |channel| {
        let mut ready = connect(channel, &limits).unwrap().prepare_client(&cache.0).unwrap();
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
    reports.iter().for_each(|report| passed_as_predicted(service.plan(), report));
    reports
}

/// Bytes of a query, and its rounds online, are those that `plan` predicts, in all and by layer.
fn passed_as_predicted(plan: &Plan, report: &Report) {
    let said = predict(plan, &report.session, None);
    let (before, found) = (&said.offline, &report.offline);
    assert_eq!((before.bytes_up, before.bytes_down), (found.bytes_up, found.bytes_down), "before the input");
    let (online, found) = (&said.online, &report.online);
    let online = (online.bytes_up, online.bytes_down, online.rounds);
    assert_eq!(online, (found.bytes_up, found.bytes_down, found.rounds), "online");
    assert_eq!(report.rows.len(), said.nodes.len());
    for (row, said) in report.rows.iter().zip(&said.nodes) {
        let (said, found) = (&said.online, &row.online);
        let said = (said.bytes_up, said.bytes_down, said.rounds);
        assert_eq!(said, (found.bytes_up, found.bytes_down, found.rounds), "online, {}", row.name);
    }
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
        assert_eq!(reports[1].client.bytes_down, 0, "the second query needs nothing of the client stage");
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

/// Of the network with every operation, the first pool and five activations work on what the client knows offline, and
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

/// A branch that is through while a longer one beside it goes on sends its linear layer's input meanwhile. Its rounds count where
/// that layer begins, whoever was faster.
#[test]
fn a_layer_that_sent_while_others_waited_counts_where_it_begins() {
    let bundle = || {
        let mut b = Builder::new([3, 8, 8]);
        let stem = b.conv(0, 4, 3, 1, 1, 1);
        let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
        let pooled = b.add(Op::new(MaxPool { window, ignored: 0 }), &[stem], [4, 4, 4]);
        let relu = b.add(Op::new(Relu { ignored: 0 }), &[stem], [4, 8, 8]);
        let conv = b.conv(relu, 4, 3, 2, 1, 1);
        let relu2 = b.add(Op::new(Relu { ignored: 0 }), &[conv], [4, 4, 4]);
        let both = b.add(Op::new(Concat), &[pooled, relu2], [8, 4, 4]);
        let flat = b.add(Op::new(Rearrange::Reshape), &[both], [128, 1, 1]);
        b.conv(flat, 10, 1, 1, 0, 1);
        b.bundle()
    };
    let mut ends_with_server = false;
    for digit in [2, 3, 4] {
        let choices = standard(&bundle());
        let digits = vec![digit; choices.digits.len()];
        let service = Service::new(bundle(), Choices { digits, ..choices }, Reveal::Logits).unwrap();
        let steps = &service.plan().steps;
        let [pool, relu] = [2, 3].map(|id| steps[id].cost);
        assert!(pool.client_rounds > relu.client_rounds);
        ends_with_server |= pool.client_rounds == pool.server_rounds;
        queries(&service, &Scratch::new("stream-rounds"), &input(5, 3 * 8 * 8), 2);
    }
    assert!(ends_with_server, "else what is sent behind the pool's last message counts anyway");
}

/// Secrets, masks and correlations serve one query: of four queries with one input, on two connections, nothing that either party sends
/// comes twice (but for the greeting, and the hint, which the second connection does not fetch).
#[test]
fn no_message_repeats() {
    nothing_repeats(&service(everything()), &Scratch::new("repeat"));
}

/// `service` is one of `everything()`.
fn nothing_repeats(service: &Service, cache: &Scratch) {
    let mut repeats = Repeats::new();
    for _connection in 0..2 {
        let (transcript, start) = two_queries(service, cache, [false; 2], false);
        nothing_in_common(&mut repeats, &transcript, start);
    }
}

/// What goes over a connection with two queries of one input, and how many bytes of it each way are the greeting. `weak` parties, the
/// client and the server, draw the same randomness each time. A `shifted` session has some bytes more before its queries.
fn two_queries(
    service: &Service,
    cache: &Scratch,
    weak: [bool; 2],
    shifted: bool,
) -> (Transcript, (u64, u64)) {
    let x = input(5, 3 * 17 * 15);
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::new(a);
    let ask = || {
        let connected = connect(Channel::new(recorder), &Limits::default()).unwrap();
        let start = transcript.lengths();
        let mut ready = connected.prepare_client(&cache.0).unwrap();
        if shifted {
            ready = ready.ticket().unwrap().1;
        }
        for _query in 0..2 {
            let prepared = ready.prepare_query(&mut NoProgress).unwrap();
            ready = prepared.run(&x, &mut NoProgress).unwrap().2;
        }
        ready.leave().unwrap();
        start
    };
    let serve = || service.serve(Channel::with_clock(b, Arc::new(Frozen::default())), &mut |_| ()).unwrap();
    let start = thread::scope(|scope| {
        let server = scope.spawn(move || match weak[1] {
            true => with_insecure_fixed_randomness([8; 32], serve),
            false => serve(),
        });
        let start = match weak[0] {
            true => with_insecure_fixed_randomness([9; 32], ask),
            false => ask(),
        };
        server.join().unwrap();
        start
    });
    (transcript, start)
}

/// Looks at what went over a connection after its first `start` bytes each way, which tell what both know. The server has a
/// [`Frozen`] clock, so that its reports have no times in them.
fn nothing_in_common(repeats: &mut Repeats, transcript: &Transcript, start: (u64, u64)) {
    let found = in_common(repeats, transcript, start);
    assert!(found.is_empty(), "{} pieces come again, the first {}", found.len(), found[0]);
}

fn in_common(repeats: &mut Repeats, transcript: &Transcript, start: (u64, u64)) -> Vec<Repeat> {
    // The client's answer to the offer names the protocol, the plan and itself, in less than 112 bytes.
    let sent = [("client", transcript.sent(), start.0 + 112), ("server", transcript.received(), start.1)];
    let look = |(side, bytes, start): (&str, Vec<u8>, u64)| {
        // (A connection that was cut may have carried less.)
        repeats.look(format!("what the {side} sent"), bytes.get(start as usize..).unwrap_or(&[]))
    };
    sent.into_iter().flat_map(look).collect()
}

/// The check finds what it looks for: all traffic of a party whose randomness comes again, behind other bytes than the first time.
#[test]
fn a_wholesale_repeat_of_traffic_is_found() {
    let (service, cache) = (service(everything()), Scratch::new("wholesale"));
    // The hint is there, so that sessions begin alike.
    two_queries(&service, &cache, [false; 2], false);
    for (weak, found) in
        [([false; 2], false), ([true, false], true), ([false, true], true), ([true; 2], true)]
    {
        let mut repeats = Repeats::new();
        let mut again = Vec::new();
        for shifted in [false, true] {
            let (transcript, start) = two_queries(&service, &cache, weak, shifted);
            again = in_common(&mut repeats, &transcript, start);
            assert!(shifted || again.is_empty(), "{weak:?}: {}", again[0]);
        }
        assert_eq!(!again.is_empty(), found, "{weak:?}: {} pieces come again", again.len());
        // All but the little that counts as few values, where nobody draws anything new.
        let looked_at = repeats.blocks() / 2;
        assert!(weak != [true; 2] || again.len() > looked_at / 2, "{} of {looked_at}", again.len());
    }
}

/// How often a query is asked for [`opened_with_noise`].
const ASKED: usize = 4;

/// Whether what was opened in all `checks` of one input is around the reference's output, but no nearer than the server's noise: within
/// what `rounding` allows and the noise's bound, and not all within half its standard deviation (of 40 values all are with a probability
/// of 10^-17).
fn opened_with_noise(bundle: &Bundle, input: &[i64], checks: &[Check], rounding: i64) {
    let network = &bundle.model.network;
    let reference = jaguar_graph::reference::run(Cpu::detect(), &bundle.model, input).unwrap();
    let deviation = network.noise_deviation();
    let off: Vec<i64> = checks
        .iter()
        .flat_map(|check| {
            let Prediction::Logits(logits) = &check.prediction else { panic!("logits are opened") };
            logits.iter().zip(reference.output()).map(|(got, want)| got - want)
        })
        .collect();
    assert!(off.len() >= 40, "{}", off.len());
    let most = (2 << network.noise_bits) + rounding;
    assert!(off.iter().all(|off| off.abs() <= most), "{off:?}");
    assert!(off.iter().any(|off| off.abs() as f64 > deviation / 2.0), "{off:?}");
}

/// What a client says to a server that offers this network.
fn greet(b: Builder, protocol: BackendId) -> Result<(), EngineError> {
    let (client_end, mut server_end) = memory_pair();
    let network = b.network;
    network.validate().unwrap();
    server_end.send_message(&crate::handshake::Hello { version: PROTOCOL_VERSION }).unwrap();
    let choices = Choices::standard(&network, protocol);
    let offer = crate::handshake::Offer {
        model: jaguar_graph::bundle::ModelId([1; 32]),
        protocols: vec![SharesParameters { choices, reveal: Reveal::Logits }.protocol()],
    };
    server_end.send_message(&offer).unwrap();
    server_end.send_message(&network).unwrap();
    server_end.flush().unwrap();
    connect(client_end, &Limits::default()).map(|_| ())
}

fn root(error: &EngineError) -> &EngineError {
    error.root()
}

/// What a plan predicts of bytes and rounds is what passes, on the first query of a connection and on later ones, whatever is
/// revealed and in whatever digits.
#[test]
fn bytes_are_as_predicted() {
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
        // (Small tables take bits.)
        assert!((from_server.vectors > 0) == (digit > 2) && from_server.bits > 0 && from_client.bits > 0);
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
