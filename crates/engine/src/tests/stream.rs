//! Linear layers whose output is made while what follows them runs.

use std::sync::{Arc, Mutex};

use jaguar_graph::reference;
use jaguar_linear::backend::{self, BackendError, Online, Output};
use jaguar_mpc::Party;
use jaguar_ot::{Cots, Role};
use jaguar_wire::Phase;

use super::*;
use crate::program::{Backends, Clock, HintPath, Onlookers, Program};
use crate::report::Progress;

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
    let relu = |b: &mut Builder, from| b.add(Op::Relu { ignored: 0 }, &[from], shape);
    let stem = conv(&mut b, 0);
    let first = relu(&mut b, stem);
    let left = conv(&mut b, first);
    let right = conv(&mut b, first);
    let both = b.add(Op::Add, &[left, right], shape);
    let second = relu(&mut b, both);
    let third = conv(&mut b, second);
    let residual = b.add(Op::Add, &[second, third], shape);
    let fourth = relu(&mut b, residual);
    let fifth = conv(&mut b, fourth);
    let extended = b.add(Op::Add, &[fifth, fourth], shape);
    let last = b.conv(extended, 4, 1, 1, 0, 1);
    // It reads all at once.
    b.add(Op::SumPool { window: whole(), count_real_places: None }, &[last], [4, 1, 1]);
    Net {
        builder: b,
        streamed: vec![stem, left, right, third, fifth],
        readers: vec![first, second, fourth, extended],
    }
}

fn whole() -> Window {
    Window { kernel: [16; 2], stride: [16; 2], pads: [0; 4] }
}

/// Stands in for a backend: what a linear layer makes is the reference's, the client sends its share in clear, and all that the
/// server makes is noted.
#[derive(Clone)]
struct Plain {
    role: Role,
    model: Arc<Model>,
    plan: Arc<Plan>,
    /// What the server has sent, and what it made.
    sent: Option<Transcript>,
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

/// Makes channel after channel, no more of them than it is asked for.
struct Parts {
    node: usize,
    values: Vec<u64>,
    end: usize,
    plane: usize,
    sent: Transcript,
    log: Arc<Mutex<Vec<Made>>>,
}

impl Output for Parts {
    fn values(&self) -> &[u64] {
        &self.values[..self.end]
    }

    fn make(&mut self, count: usize) {
        assert!(count > self.end && count <= self.values.len(), "{count} of {}", self.values.len());
        self.end = count.next_multiple_of(self.plane);
        let made = Made { node: self.node, end: self.end, sent: self.sent.lengths().0 };
        self.log.lock().unwrap().push(made);
    }

    fn into_values(self: Box<Self>) -> Vec<u64> {
        assert_eq!(self.end, self.values.len(), "it was asked for");
        self.values
    }
}

impl backend::Party for Plain {
    fn prepare(&mut self, node: usize, _: &[u8], _: &mut Channel) -> Result<Box<dyn Online>, BackendError> {
        let mut share = vec![0; self.model.network.nodes[node].shape.iter().product()];
        let bits = self.plan.steps[node].layer.as_ref().unwrap().output().bits;
        Prg::derive(&[8; 32], "client", &[node as u64]).fill_words(&mut share, bits);
        Ok(Box::new(PlainOnline { plain: self.clone(), node, share, theirs: Vec::new() }))
    }
}

struct PlainOnline {
    plain: Plain,
    node: usize,
    /// The client's share of the output, which the server knows too.
    share: Vec<u64>,
    /// At the server: the client's share of the input.
    theirs: Vec<u64>,
}

impl Online for PlainOnline {
    fn early_output(&self) -> Option<&[u64]> {
        Some(&self.share)
    }

    fn feed_all(&mut self, channel: &mut Channel, x: &[u64]) -> Result<(), BackendError> {
        let bits = self.plain.plan.steps[self.node].layer.as_ref().unwrap().input().bits;
        match self.plain.role {
            Role::Client => channel.send_packed(x, bits)?,
            Role::Server => self.theirs = channel.recv_packed(x.len(), bits)?,
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut Channel, x: &[u64]) -> Result<Box<dyn Output>, BackendError> {
        let Self { plain: Plain { model, plan, sent, made, .. }, node, share, theirs } = *self;
        let Some(sent) = sent else { return Ok(Box::new(share)) };
        let layer = plan.steps[node].layer.as_ref().unwrap();
        let (bits, out_bits) = (layer.input().bits, layer.output().bits);
        let x: Vec<i64> =
            x.iter().zip(&theirs).map(|(&a, &b)| jaguar_mpc::reference::open(a, b, bits)).collect();
        let Model { network, weights, .. } = &*model;
        let y = reference::apply_op(network, node, weights[node].as_ref(), &[&x]).unwrap();
        let mask = (1 << out_bits) - 1;
        let values = y.iter().zip(&share).map(|(&y, c)| (y as u64).wrapping_sub(*c) & mask).collect();
        let [_, h, w] = network.nodes[node].shape;
        Ok(Box::new(Parts { node, values, end: 0, plane: h * w, sent, log: made }))
    }
}

struct NoHints;

impl HintPath for NoHints {
    fn pass(&mut self, _: usize, _: &mut Channel, _: &mut dyn Progress) -> Result<bool, EngineError> {
        Ok(false)
    }

    fn of(&mut self, _: usize) -> Result<Vec<u8>, EngineError> {
        Ok(Vec::new())
    }
}

/// One party's way through the plan: its share of the output.
fn walk(plain: &Plain, channel: &mut Channel, input: Vec<u64>) -> Vec<u64> {
    let (network, plan) = (&plain.model.network, &*plain.plan);
    let program = Program { network, plan };
    let mut party = Party::new(plain.role, Cots::setup(channel, plain.role, plan.choices.instances).unwrap());
    let mut clock = Clock::new(network.nodes.len());
    let mut backends = Backends::new(plan, |_| Box::new(plain.clone()));
    let (clock_, none) = (&mut clock, &mut NoProgress);
    let prepared =
        program.prepare(channel, &mut party, Reveal::Logits, clock_, none, &mut backends, &mut NoHints);
    let watch = &mut |_: usize, _: &[u64]| ();
    let onlookers = Onlookers { clock: &mut clock, progress: &mut NoProgress, watch };
    let output = program.run(channel, prepared.unwrap().0, input, onlookers).unwrap();
    channel.flush().unwrap();
    output
}

/// A linear layer's output is made as blocks begin that read it: when its last channels are made, the first flight of the first
/// block has left. And what comes of it is what the reference makes.
#[test]
fn a_first_flight_leaves_before_the_last_channel_is_made() {
    let Net { builder, streamed, .. } = net(1);
    let Bundle { model, .. } = builder.bundle();
    let plan = Plan::new(&model.network, Choices::standard(&model.network, BackendId::JAGUAR)).unwrap();
    let x = input(3, 3 * PLANE);
    let (model, plan, made) = (Arc::new(model), Arc::new(plan), Arc::default());
    let plain = |role, sent| Plain {
        role,
        model: Arc::clone(&model),
        plan: Arc::clone(&plan),
        sent,
        made: Arc::clone(&made),
    };
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::hashing(b);
    let (ours, theirs) = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let server = plain(Role::Server, Some(transcript.clone()));
            walk(&server, &mut Channel::new(recorder), vec![0; x.len()])
        });
        let client = plain(Role::Client, None);
        let mask = (1u64 << plan.steps[0].ring) - 1;
        let input = x.iter().map(|&v| v as u64 & mask).collect();
        let ours = walk(&client, &mut Channel::new(a), input);
        (ours, server.join().unwrap())
    });

    let bits = plan.steps.last().unwrap().ring;
    let output: Vec<i64> =
        ours.iter().zip(&theirs).map(|(&a, &b)| jaguar_mpc::reference::open(a, b, bits)).collect();
    let mut values: Vec<Vec<i64>> = vec![x];
    for (id, node) in model.network.nodes.iter().enumerate().skip(1) {
        let inputs: Vec<&[i64]> = node.inputs.iter().map(|&i| &values[i][..]).collect();
        values.push(reference::apply_op(&model.network, id, model.weights[id].as_ref(), &inputs).unwrap());
    }
    assert_eq!(&output, values.last().unwrap());

    let made: &Mutex<Vec<Made>> = &made;
    let made = made.lock().unwrap();
    for node in streamed {
        let parts: Vec<&Made> = made.iter().filter(|part| part.node == node).collect();
        let [first, last] = parts[..] else { panic!("two blocks, two parts: {parts:?}") };
        assert_eq!((first.end, last.end), (CHANNELS / 2 * PLANE, CHANNELS * PLANE), "node {node}");
        assert!(last.sent > first.sent, "node {node}: nothing left between {first:?} and {last:?}");
    }
    // What reads all at once has all made at once.
    assert_eq!(made.iter().filter(|part| part.node == model.network.nodes.len() - 2).count(), 1);
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
        server.work.iter().filter(|(phase, ..)| *phase == Phase::Online).map(|&(_, node, _)| node).collect();
    let Net { builder, readers, .. } = net(3);
    for reader in readers {
        let begins = online.iter().position(|&node| node == reader).unwrap();
        let operand = builder.network.nodes[reader].inputs[0];
        // A sum's own pieces come with those of the layer that it waits for.
        let layer = match builder.network.nodes[reader].op {
            Op::Add => reader - 1,
            _ if matches!(builder.network.nodes[operand].op, Op::Add) => operand - 1,
            _ => operand,
        };
        let (before, behind) = online.split_at(begins);
        assert!(before.contains(&layer), "node {layer} begins before {reader}: {online:?}");
        // The stem is small enough to be made at once.
        assert_eq!(behind.contains(&layer), layer != 1, "node {layer} and {reader}: {online:?}");
    }
}

/// Layers alternate between the backends, every other way round in the second run: each within its bound of the reference, and the
/// plan's bytes are those that pass.
#[test]
fn backends_alternate_from_layer_to_layer() {
    let all: Vec<BackendId> = BackendId::all().collect();
    for first in 0..all.len() {
        let cache = Scratch::new(&format!("mixed-{first}"));
        let mixed = || {
            let bundle = everything();
            let network = &bundle.model.network;
            let mut choices = Choices::standard(network, all[0]);
            let linear = network.nodes.iter().enumerate().filter(|(_, n)| matches!(n.op, Op::Linear(_)));
            for (k, (id, _)) in linear.enumerate() {
                choices.backends[id] = all[(first + k) % all.len()];
            }
            (bundle, choices)
        };
        let (bundle, choices) = mixed();
        let x = input(5, 3 * 17 * 15);
        let checks = verify(bundle, choices, Reveal::Logits, std::slice::from_ref(&x), &cache.0).unwrap();
        for layer in &checks[0].layers {
            assert_eq!(layer.wrong, 0, "{layer:?}");
        }
        let (bundle, choices) = mixed();
        let service = Service::new(bundle, choices, Reveal::Logits).unwrap();
        assert_eq!(service.plan().backends.len(), all.len());
        let reports = queries(&service, &cache, &x, 2);
        let predicted = jaguar_plan::predict::predict(service.plan(), &reports[1].session, None);
        for (p, measured) in
            [(&predicted.preparation, &reports[1].preprocessing), (&predicted.online, &reports[1].online)]
        {
            assert_eq!((p.bytes_up, p.bytes_down), (measured.bytes_up, measured.bytes_down));
        }
    }
}
