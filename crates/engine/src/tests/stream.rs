//! Linear layers whose output is made while what follows them runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jaguar_graph::network::Difference;
use jaguar_graph::reference;
use jaguar_linear::backend::{self, BackendError, Online, Output};
use jaguar_mpc::Party;
use jaguar_ot::{Cots, Role};
use jaguar_plan::Modulus;
use jaguar_ring::cpu::Cpu;
use jaguar_wire::{Stage, memory_pair};

use super::*;
use crate::exec::backends::Backends;
use crate::exec::clock::NodeTimes;
use crate::exec::prepare::{LayerHints, Offline, prepare};
use crate::exec::run::{Observers, run};
use crate::exec::values::PlannedNetwork;
use crate::progress::Progress;

const PLANE: usize = 16 * 16;
const CHANNELS: usize = 128;

/// Everything that may stand between a linear layer and the blocks that read its output, each tensor two blocks long: nothing, a
/// sum with a value that is there, a sum of two layers, and an extension behind a sum.
struct Net {
    builder: Builder,
    /// Linear layers whose output is read block by block.
    streamed: Vec<usize>,
    /// What reads it.
    readers: Vec<usize>,
}

/// Kernels of `kernel` by `kernel`.
fn net(kernel: usize) -> Net {
    let mut b = Builder::new([3, 16, 16]);
    let shape = [CHANNELS, 16, 16];
    let conv = |b: &mut Builder, from| b.conv(from, CHANNELS, kernel, 1, kernel / 2, 1);
    let relu = |b: &mut Builder, from| b.add(Op::new(Relu { ignored: 0 }), &[from], shape);
    let stem = conv(&mut b, 0);
    let first = relu(&mut b, stem);
    let left = conv(&mut b, first);
    let right = conv(&mut b, first);
    let both = b.add(Op::new(Add), &[left, right], shape);
    let second = relu(&mut b, both);
    let third = conv(&mut b, second);
    let residual = b.add(Op::new(Add), &[second, third], shape);
    let fourth = relu(&mut b, residual);
    let fifth = conv(&mut b, fourth);
    let extended = b.add(Op::new(Add), &[fifth, fourth], shape);
    let last = b.conv(extended, 4, 1, 1, 0, 1);
    // It reads all at once.
    b.add(Op::new(SumPool { window: whole(), count_real_places: None }), &[last], [4, 1, 1]);
    Net {
        builder: b,
        streamed: vec![stem, left, right, third, fifth],
        readers: vec![first, second, fourth, extended],
    }
}

fn whole() -> Window {
    Window { kernel: [16; 2], stride: [16; 2], pads: [0; 4] }
}

/// What a server's backend makes, and when: stands before a party of a real backend and notes it.
struct Noted {
    party: Box<dyn backend::BackendParty>,
    plane: Vec<usize>,
    sent: Transcript,
    made: Arc<Mutex<Vec<Made>>>,
}

/// A part of a linear layer's output.
#[derive(Debug)]
struct Made {
    node: usize,
    /// Up to this value.
    end: usize,
    /// When so many bytes had left.
    sent: u64,
}

impl backend::BackendParty for Noted {
    fn prepare(
        &mut self,
        node: usize,
        hint: &[u8],
        channel: &mut Channel,
    ) -> Result<Box<dyn Online>, BackendError> {
        let online = self.party.prepare(node, hint, channel)?;
        let (sent, made) = (self.sent.clone(), Arc::clone(&self.made));
        Ok(Box::new(NotedOnline { node, plane: self.plane[node], online, sent, made }))
    }
}

struct NotedOnline {
    node: usize,
    plane: usize,
    online: Box<dyn Online>,
    sent: Transcript,
    made: Arc<Mutex<Vec<Made>>>,
}

impl Online for NotedOnline {
    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        self.online.feed_all(channel, x)
    }

    fn finish(self: Box<Self>, channel: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { node, plane, online, sent, made } = *self;
        Ok(Box::new(Parts { node, plane, output: online.finish(channel, x)?, sent, made }))
    }
}

/// Passes on what it is asked for, and notes it.
struct Parts {
    node: usize,
    plane: usize,
    output: Box<dyn Output>,
    sent: Transcript,
    made: Arc<Mutex<Vec<Made>>>,
}

impl Output for Parts {
    fn values(&self) -> &[u64] {
        self.output.values()
    }

    fn make(&mut self, count: usize) {
        assert!(count > self.output.values().len(), "it was made before");
        self.output.make(count);
        let end = self.output.values().len();
        assert_eq!(end, count.next_multiple_of(self.plane), "no more channels than are asked for");
        self.made.lock().unwrap().push(Made { node: self.node, end, sent: self.sent.lengths().0 });
    }

    fn into_values(self: Box<Self>) -> Vec<u64> {
        self.output.into_values()
    }
}

struct NoHints;

impl LayerHints for NoHints {
    fn transfer(&mut self, _: usize, _: &mut Channel, _: &mut dyn Progress) -> Result<bool, EngineError> {
        Ok(false)
    }

    fn read(&mut self, _: usize) -> Result<Arc<Vec<u8>>, EngineError> {
        Ok(Arc::default())
    }
}

/// One party's way through the plan with these parties of its backends: its shares of every node's value.
fn walk(
    planned: PlannedNetwork<'_>,
    role: Role,
    mut backends: Backends,
    channel: &mut Channel,
    input: Vec<u64>,
) -> BTreeMap<usize, Vec<u64>> {
    let mut party = Party::new(role, Cots::setup(channel, role, planned.plan.choices.instances).unwrap());
    let mut times = NodeTimes::new(channel.clock(), planned.network.nodes.len());
    let offline = Offline {
        channel: &mut *channel,
        party: &mut party,
        backends: &mut backends,
        hints: &mut NoHints,
        times: &mut times,
        progress: &mut NoProgress,
        schedule: Default::default(),
    };
    let prepared = prepare(planned, Reveal::Logits, offline).unwrap();
    assert!(!party.keeps_keys(), "when all is prepared, keys are forgotten");
    let mut values = BTreeMap::new();
    let shares = &mut |node: usize, share: &[u64]| drop(values.insert(node, share.to_vec()));
    let observers = Observers { times: &mut times, progress: &mut NoProgress, shares };
    run(planned, role, channel, prepared.steps, input.into(), observers).unwrap();
    channel.flush().unwrap();
    values
}

/// Keys of products of matrices do not outlive the preparation, at either party ([`walk`] looks).
#[test]
fn keys_are_forgotten_when_all_is_prepared() {
    let Bundle { model, .. } = super::matrices::attention();
    let choices = Choices::standard(&model.network, backend(INSECURE[0]));
    let plan = Plan::allowing_insecure_backends(&model.network, choices).unwrap();
    let both = PlannedNetwork { network: &model.network, plan: &plan };
    let (mut a, mut b) = memory_pair();
    let zeros = || vec![0; model.network.nodes[0].shape.iter().product()];
    thread::scope(|scope| {
        scope.spawn(|| {
            let backends = Backends::new(&plan, |layers| {
                Arc::clone(layers).model(&Cpu::detect().into(), [0; 32], &model.weights, 12).party(&[0; 32])
            });
            walk(both, Role::Server, backends, &mut b, zeros())
        });
        let backends = Backends::new(&plan, |layers| Arc::clone(layers).client(Cpu::detect(), [0; 32]));
        walk(both, Role::Client, backends, &mut a, zeros());
    });
}

/// A linear layer's output is made as blocks begin that read it: when its last channels are made, the first flight of the first
/// block has left. And what comes of it is what the reference makes, each linear layer within its bound.
#[test]
fn a_first_flight_leaves_before_the_last_channel_is_made() {
    for name in INSECURE {
        let Net { builder, streamed, .. } = net(1);
        let Bundle { model, .. } = builder.bundle();
        let choices = Choices::standard(&model.network, backend(name));
        let plan = Plan::allowing_insecure_backends(&model.network, choices).unwrap();
        let x = input(3, 3 * PLANE);
        let made: Arc<Mutex<Vec<Made>>> = Arc::default();
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::hashing(b);
        let both = PlannedNetwork { network: &model.network, plan: &plan };
        let (ours, theirs) = thread::scope(|scope| {
            let server = scope.spawn(|| {
                let backends = Backends::new(&plan, |layers| {
                    let weights =
                        Arc::clone(layers).model(&Cpu::detect().into(), [0; 32], &model.weights, 12);
                    let plane = model.network.nodes.iter().map(|n| n.shape[1] * n.shape[2]).collect();
                    let (sent, made) = (transcript.clone(), Arc::clone(&made));
                    Box::new(Noted { party: weights.party(&[0; 32]), plane, sent, made })
                });
                walk(both, Role::Server, backends, &mut Channel::new(recorder), vec![0; x.len()])
            });
            let modulus = plan.steps[0].computed.modulus;
            let input = x.iter().map(|&v| modulus.from_signed(v)).collect();
            let backends = Backends::new(&plan, |layers| Arc::clone(layers).client(Cpu::detect(), [0; 32]));
            let ours = walk(both, Role::Client, backends, &mut Channel::new(a), input);
            (ours, server.join().unwrap())
        });
        let mut values: Vec<Vec<i64>> = Vec::new();
        for (id, (node, step)) in model.network.nodes.iter().zip(&plan.steps).enumerate() {
            let pairs = ours[&id].iter().zip(&theirs[&id]);
            values.push(pairs.map(|(&a, &b)| step.domain.modulus.open(a, b)).collect());
            let inputs: Vec<&[i64]> = node.inputs.iter().map(|&i| &values[i][..]).collect();
            match (node.op.linear(), &model.weights[id]) {
                _ if id == 0 => assert_eq!(values[id], x),
                (Some(spec), Some(weights)) => {
                    let shape = model.network.nodes[node.inputs[0]].shape;
                    let exact = reference::linear_exact(Cpu::detect(), spec, shape, weights, inputs[0]);
                    let quotient = |m: i64| m as f64 / f64::from(1 << spec.shift);
                    let off = values[id].iter().zip(exact).map(|(&y, m)| (y as f64 - quotient(m)).abs());
                    assert!(off.fold(0.0, f64::max) <= step.error_ulps(), "{name}, node {id}");
                }
                _ => {
                    let exact =
                        reference::apply_op(Cpu::detect(), &model.network, id, None, &inputs).unwrap();
                    assert_eq!(values[id], exact, "{name}, node {id}");
                }
            }
        }

        check_parts(&made, &streamed, model.network.nodes.len() - 2);
    }
}

/// Of each of these layers two blocks were read: the second was made when something had left behind the first. What `last` makes
/// is read all at once.
fn check_parts(made: &Mutex<Vec<Made>>, streamed: &[usize], last: usize) {
    let made = made.lock().unwrap();
    for &node in streamed {
        let parts: Vec<&Made> = made.iter().filter(|part| part.node == node).collect();
        let [first, last] = parts[..] else { panic!("two blocks, two parts: {parts:?}") };
        assert_eq!((first.end, last.end), (CHANNELS / 2 * PLANE, CHANNELS * PLANE), "node {node}");
        assert!(last.sent > first.sent, "node {node}: nothing left between {first:?} and {last:?}");
    }
    assert_eq!(made.iter().filter(|part| part.node == last).count(), 1);
}

/// The same with the real backend: every layer within its bound, and the server's timeline shows pieces of a linear layer between
/// those of what reads it.
#[test]
fn layers_in_pieces_agree_with_the_reference_and_show_in_the_timeline() {
    let cache = Scratch::new("stream");
    let bundle = || net(3).builder.bundle();
    let x = input(3, 3 * PLANE);
    let checks =
        verify(bundle(), standard(&bundle()), Reveal::Logits, std::slice::from_ref(&x), &cache.0).unwrap();
    assert_eq!(checks[0].layers.len(), bundle().model.network.nodes.len());
    for layer in &checks[0].layers {
        assert_eq!(layer.wrong, 0, "{layer:?}");
    }

    let service = service(bundle());
    let (report, served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        let prepared = ready.with_timeline().prepare_query(&mut NoProgress).unwrap();
        let (_, report, ready) = prepared.run(&x, &mut NoProgress).unwrap();
        ready.leave().unwrap();
        report
    });
    served.unwrap();
    let server = report.timeline.unwrap().server;
    let online: Vec<usize> =
        server.work.iter().filter(|(stage, ..)| *stage == Stage::Online).map(|&(_, node, _)| node).collect();
    let Net { builder, readers, .. } = net(3);
    for reader in readers {
        let begins = online.iter().position(|&node| node == reader).unwrap();
        let operand = builder.network.nodes[reader].inputs[0];
        // A sum's own pieces come with those of the layer that it waits for.
        let sum = |node: NodeId| builder.network.nodes[node].op.is::<Add>();
        let layer = if sum(reader) {
            reader - 1
        } else if sum(operand) {
            operand - 1
        } else {
            operand
        };
        let (before, behind) = online.split_at(begins);
        assert!(before.contains(&layer), "node {layer} begins before {reader}: {online:?}");
        // The stem is small enough to be made at once.
        assert_eq!(behind.contains(&layer), layer != 1, "node {layer} and {reader}: {online:?}");
    }
}

/// Backends that protect nothing: shares modulo a power of two, and modulo a prime.
const INSECURE: [&str; 2] = ["plaintext-insecure", "plaintext-prime-insecure"];

/// Runs `bundle`'s network with its linear layers in turn under the backends `of`, from number `first` on: each layer within its bound
/// of the reference, and the plan's bytes are those that pass.
pub(super) fn alternate(
    bundle: impl Fn() -> Bundle,
    of: &[BackendId],
    first: usize,
    name: &str,
) -> Vec<Modulus> {
    let cache = Scratch::new(&format!("mixed-{name}-{first}"));
    let choices = || {
        let network = bundle().model.network;
        let mut choices = Choices::standard(&network, of[0]);
        let linear = network.nodes.iter().enumerate().filter(|(_, n)| n.op.is::<Linear>());
        linear.enumerate().for_each(|(k, (id, _))| choices.backends[id] = of[(first + k) % of.len()]);
        choices
    };
    let x = input(5, bundle().model.network.nodes[0].shape.iter().product());
    let checks = verify(bundle(), choices(), Reveal::Logits, std::slice::from_ref(&x), &cache.0).unwrap();
    for layer in &checks[0].layers {
        assert_eq!(layer.wrong, 0, "{name}, {first}: {layer:?}");
    }
    let service = Service::allowing_insecure_backends(bundle(), choices(), Reveal::Logits).unwrap();
    queries(&service, &cache, &x, 2);
    service.plan().steps.iter().map(|step| step.domain.modulus).collect()
}

/// Layers alternate between the backends, every other way round in the second run.
#[test]
fn backends_alternate_from_layer_to_layer() {
    let secure: Vec<BackendId> = kit().secure();
    assert!(secure.len() > 1);
    for first in 0..secure.len() {
        alternate(everything, &secure, first, "secure");
    }
}

/// With guard bits: every layer within its bound, under each backend and in turn, and bytes as planned. The server's noise is in
/// what is opened, and nowhere else.
#[test]
fn guarded_layers_keep_their_bounds_and_noise_is_opened() {
    const GUARD_BITS: u32 = 8;
    let guarded = || everything().guarded(GUARD_BITS).unwrap();
    let all: Vec<BackendId> = kit().backends().to_vec();
    for &one in &all {
        alternate(guarded, &[one], 0, &format!("guarded-{one}"));
    }
    alternate(guarded, &all, 0, "guarded-all");

    let bundle = guarded();
    let network = bundle.model.network.clone();
    let x = input(5, network.nodes[0].shape.iter().product());
    let choices = Choices::standard(&network, Kit::JAGUAR);
    let asked = vec![x.clone(); ASKED];
    let checks = verify(bundle, choices, Reveal::Logits, &asked, HintPlace::Memory).unwrap();
    for (id, node) in network.nodes.iter().enumerate() {
        for layer in checks.iter().map(|check| &check.layers[id]) {
            // A rounding, and encryption's noise: a quarter of the last place above the guard bits at most.
            let most = if node.op.is::<Linear>() || node.op.is::<Product>() { 64.0 } else { 0.0 };
            assert!(layer.wrong == 0 && layer.max_ulps <= most, "{layer:?}");
        }
    }
    opened_with_noise(&guarded(), &x, &checks, 256);
    // Exact signs stay exact, and reduced ones leave out as many bits besides the guard bits.
    assert_eq!(network.activation_bits, everything().model.network.activation_bits + GUARD_BITS);
    assert_eq!(network.reduced_signs(), everything().model.network.reduced_signs());
}

/// Whole networks without encryption, in both domains, alone and in turn with the others.
#[test]
fn plaintext_layers_run_whole_networks() {
    let id = |name: &str| backend(name);
    let [plain, prime] = INSECURE.map(id);
    let is_odd = |modulus: &&Modulus| modulus.log2().is_none();
    for of in [&[plain][..], &[prime], &[plain, prime]] {
        let domains = alternate(everything, of, 0, &format!("{of:?}"));
        assert_eq!(domains.iter().any(|m| m.log2().is_none()), of.contains(&prime), "{domains:?}");
        alternate(|| net(1).builder.bundle(), of, 0, &format!("streamed {of:?}"));
    }
    let all: Vec<BackendId> = kit().backends().to_vec();
    for first in 0..all.len() {
        let domains = alternate(everything, &all, first, "all");
        assert!(domains.iter().filter(is_odd).count() < domains.len());
    }
}

/// In a network of layers modulo one prime, activations, sums, moves and averages live modulo that prime where all that reads
/// them asks for it; where something else reads them too, the layer converts its input.
#[test]
fn values_live_modulo_a_prime_where_all_that_read_them_ask_for_it() {
    let bundle = || branches().0.bundle();
    let (_, expected, converts) = branches();
    let prime = backend(INSECURE[1]);
    let plan = {
        let network = bundle().model.network;
        Plan::allowing_insecure_backends(&network, Choices::standard(&network, prime)).unwrap()
    };
    let all = 0..plan.steps.len();
    let lives = |id: &usize| plan.steps[*id].domain.modulus.log2().is_none();
    assert_eq!(all.clone().filter(lives).collect::<Vec<_>>(), expected);
    let converting = |id: &usize| plan.steps[*id].conversion.is_some();
    assert_eq!(all.filter(converting).collect::<Vec<_>>(), [converts]);
    alternate(bundle, &[prime], 0, "prime");
}

/// A network with the nodes that can live modulo a prime if its layers ask for it, and the layer that must convert its input then.
fn branches() -> (Builder, Vec<usize>, usize) {
    let mut b = Builder::new([2, 8, 8]);
    let shape = [4, 8, 8];
    let conv = |b: &mut Builder, from| b.conv(from, 4, 3, 1, 1, 1);
    let relu = |b: &mut Builder, from| b.add(Op::new(Relu { ignored: 0 }), &[from], shape);
    let stem = conv(&mut b, 0);
    let first = relu(&mut b, stem);
    let left = conv(&mut b, first);
    let second = relu(&mut b, left);
    // Read by layers only, through a sum.
    let both = b.add(Op::new(Add), &[first, second], shape);
    // Nowhere above zero.
    let below = b.add(Op::new(Difference), &[second, both], shape);
    let third = conv(&mut b, below);
    let fourth = relu(&mut b, third);
    let fifth = conv(&mut b, fourth);
    // `fourth` is also read by a sum that is compared.
    let residual = b.add(Op::new(Add), &[fourth, fifth], shape);
    let sixth = relu(&mut b, residual);
    let window = Window { kernel: [4; 2], stride: [4; 2], pads: [0; 4] };
    let pooled = b.add(Op::new(SumPool { window, count_real_places: None }), &[sixth], [4, 2, 2]);
    b.conv_shifted(pooled, 3, 2, 1, 0, 1, 12);
    (b, vec![0, first, second, both, below, sixth, pooled], fifth)
}

/// Neither a server nor a client takes correlations with stationary noise unless it says so; where both do, answers are right.
#[test]
fn stationary_noise_takes_both_parties() {
    let choices = || {
        let mut choices = Choices::standard(&everything().model.network, Kit::JAGUAR);
        choices.instances.noise = jaguar_mpc::cost::Noise::Stationary;
        choices
    };
    let refused = Service::new(everything(), choices(), Reveal::Logits).map(drop).unwrap_err().to_string();
    assert!(refused.contains("--lpn-noise stationary"), "{refused}");
    let allowed = jaguar_plan::Allowed { stationary_noise: true, ..Default::default() };
    let service = Service::allowing(Cpu::detect(), everything(), choices(), Reveal::Logits, allowed).unwrap();
    let (refused, served) = session(&service, |channel| connect(channel, &Limits::default()).map(drop));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("--lpn-noise stationary"), "{refused}");
    assert!(served.is_err());
    let inputs = [input(5, 3 * 17 * 15)];
    let checks = verify(everything(), choices(), Reveal::Logits, &inputs, HintPlace::Memory);
    assert!(checks.unwrap()[0].layers.iter().all(|layer| layer.wrong == 0));
}

/// Neither a server nor a client takes a backend that protects nothing, unless it says so.
#[test]
fn insecure_backends_are_refused() {
    for name in INSECURE {
        let choices = || Choices::standard(&everything().model.network, backend(name));
        let refused = Service::new(everything(), choices(), Reveal::Logits).map(drop).unwrap_err();
        assert!(refused.to_string().contains("protects nothing"), "{refused}");
        let service = Service::allowing_insecure_backends(everything(), choices(), Reveal::Logits).unwrap();
        let (refused, served) = session(&service, |channel| connect(channel, &Limits::default()).map(drop));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("protects nothing"), "{refused}");
        assert!(served.is_err());
    }
}
