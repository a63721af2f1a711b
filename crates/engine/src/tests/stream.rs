//! Linear layers whose output is made while what follows them runs.

use std::sync::Mutex;

use jaguar_graph::reference;
use jaguar_mpc::Party;
use jaguar_ot::{Cots, Role};
use jaguar_plan::Layer;
use jaguar_wire::Phase;

use super::*;
use crate::program::{Clock, Linear as LinearPart, Onlookers, Output, Prepare, Program};
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
struct Plain<'a> {
    role: Role,
    model: &'a Model,
    /// What the server has sent, and what it made.
    sent: Option<Transcript>,
    made: &'a Mutex<Vec<Made>>,
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
struct Parts<'a> {
    node: usize,
    values: Vec<u64>,
    end: usize,
    plane: usize,
    sent: Transcript,
    log: &'a Mutex<Vec<Made>>,
}

enum PlainOutput<'a> {
    Whole(Vec<u64>),
    Parts(Parts<'a>),
}

impl Output for PlainOutput<'_> {
    fn made(&self) -> &[u64] {
        match self {
            Self::Whole(values) => values,
            Self::Parts(parts) => &parts.values[..parts.end],
        }
    }

    fn make(&mut self, values: usize) {
        let Self::Parts(parts) = self else { panic!("nothing is left to be made") };
        assert!(values > parts.end && values <= parts.values.len(), "{values} of {}", parts.values.len());
        parts.end = values.next_multiple_of(parts.plane);
        let made = Made { node: parts.node, end: parts.end, sent: parts.sent.lengths().0 };
        parts.log.lock().unwrap().push(made);
    }

    fn finish(self) -> Vec<u64> {
        match self {
            Self::Whole(values) => values,
            Self::Parts(parts) => {
                assert_eq!(parts.end, parts.values.len(), "it was asked for");
                parts.values
            }
        }
    }
}

impl Prepare for Plain<'_> {
    /// The client's share of the output, which the server knows too.
    type Prepared = Vec<u64>;

    fn hint(&mut self, _: usize, _: &mut Channel, _: &mut dyn Progress) -> Result<bool, EngineError> {
        Ok(false)
    }

    fn prepare(&mut self, node: usize, layer: &Layer) -> Result<Vec<u64>, EngineError> {
        let mut share = vec![0; self.model.network.nodes[node].shape.iter().product()];
        let bits = layer.jaguar().unwrap().output_bits();
        Prg::derive(&[8; 32], "client", &[node as u64]).fill_words(&mut share, bits);
        Ok(share)
    }

    fn output(prepared: &Vec<u64>) -> Option<&[u64]> {
        Some(prepared)
    }
}

impl<'a> LinearPart for Plain<'a> {
    type Prepared = Vec<u64>;
    type Output = PlainOutput<'a>;

    fn run(
        &mut self,
        node: usize,
        layer: &Layer,
        prepared: Vec<u64>,
        channel: &mut Channel,
        x: &[u64],
    ) -> Result<PlainOutput<'a>, EngineError> {
        let (bits, out_bits) = (layer.input_bits(), layer.jaguar().unwrap().output_bits());
        let Some(sent) = &self.sent else {
            assert_eq!(self.role, Role::Client);
            channel.send_packed(x, bits)?;
            return Ok(PlainOutput::Whole(prepared));
        };
        let theirs = channel.recv_packed(x.len(), bits)?;
        let x: Vec<i64> =
            x.iter().zip(&theirs).map(|(&a, &b)| jaguar_mpc::reference::open(a, b, bits)).collect();
        let Model { network, weights, .. } = self.model;
        let y = reference::apply_op(network, node, weights[node].as_ref(), &[&x]).unwrap();
        let values = y
            .iter()
            .zip(&prepared)
            .map(|(&y, c)| (y as u64).wrapping_sub(*c) & ((1 << out_bits) - 1))
            .collect();
        let [_, h, w] = network.nodes[node].shape;
        Ok(PlainOutput::Parts(Parts {
            node,
            values,
            end: 0,
            plane: h * w,
            sent: sent.clone(),
            log: self.made,
        }))
    }
}

/// One party's way through the plan: its share of the output.
fn walk(backend: &mut Plain<'_>, plan: &Plan, channel: &mut Channel, input: Vec<u64>) -> Vec<u64> {
    let network = &backend.model.network;
    let program = Program { network, plan };
    let mut party = Party::new(backend.role, Cots::setup(channel, backend.role).unwrap());
    let mut clock = Clock::new(network.nodes.len());
    let prepared = program.prepare(channel, &mut party, Reveal::Logits, &mut clock, &mut NoProgress, backend);
    let watch = &mut |_: usize, _: &[u64]| ();
    let onlookers = Onlookers { clock: &mut clock, progress: &mut NoProgress, watch };
    let output = program.run(channel, prepared.unwrap().0, input, backend, onlookers).unwrap();
    channel.flush().unwrap();
    output
}

/// A linear layer's output is made as blocks begin that read it: when its last channels are made, the first flight of the first
/// block has left. And what comes of it is what the reference makes.
#[test]
fn a_first_flight_leaves_before_the_last_channel_is_made() {
    let Net { builder, streamed, .. } = net(1);
    let Bundle { model, .. } = builder.bundle();
    let plan = Plan::new(&model.network, Choices::standard(&model.network, Protocol::Jaguar)).unwrap();
    let x = input(3, 3 * PLANE);
    let made = Mutex::new(Vec::new());
    let (a, b) = memory_transports();
    let (recorder, transcript) = Recorder::hashing(b);
    let (ours, theirs) = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut backend =
                Plain { role: Role::Server, model: &model, sent: Some(transcript.clone()), made: &made };
            walk(&mut backend, &plan, &mut Channel::new(recorder), vec![0; x.len()])
        });
        let mut backend = Plain { role: Role::Client, model: &model, sent: None, made: &made };
        let mask = (1u64 << plan.steps[0].ring) - 1;
        let input = x.iter().map(|&v| v as u64 & mask).collect();
        let ours = walk(&mut backend, &plan, &mut Channel::new(a), input);
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

    let made = made.into_inner().unwrap();
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
