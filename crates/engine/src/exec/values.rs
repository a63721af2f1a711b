//! This party's shares of the nodes' values.
//!
//! A linear layer's output may be incomplete when the nodes behind it begin ([`Output`]), and so may a sum of such
//! outputs. Whoever reads a value asks first for as many elements as it needs.

use jaguar_graph::network::{Network, Node, NodeId, Shape, Work};
use jaguar_graph::reference;
use jaguar_linear::backend::Output;
use jaguar_ot::threads;
use jaguar_plan::{Modulus, Plan};
use jaguar_ring::cpu::Cpu;
use zeroize::Zeroizing;

use super::clock::Account;
use crate::error::EngineError;

/// Sees this party's share of every node's value: `(node, share)`. Only `verify` looks.
pub(crate) type ShareObserver<'a> = &'a mut dyn FnMut(usize, &[u64]);

/// This party's share of a value, wiped when it is dropped. It is made in its full length, for growing would leave copies.
pub(crate) type Share = Zeroizing<Vec<u64>>;

/// Whether a node adds its inputs up, place by place.
pub(crate) fn adds(node: &Node) -> bool {
    matches!(node.op.work(), Work::Local(local) if local.adds)
}

/// A network and its plan: all that both parties know of the work.
#[derive(Clone, Copy)]
pub(crate) struct PlannedNetwork<'a> {
    pub network: &'a Network,
    pub plan: &'a Plan,
}

impl PlannedNetwork<'_> {
    /// Sums and moves, which each party does on its own shares. They are what the reference does on plain values: these
    /// operations are linear over the integers and so over every ring. (The plan keeps the sums below 2^63.) Inputs of less
    /// excess than the result's are scaled up. The inputs of what adds them up may be the same part of each. Values of several
    /// images stand as `[C, image, H, W]`; what is done is done to each image by itself.
    pub fn local<'v>(&self, node: NodeId, input: impl Fn(usize) -> &'v [u64]) -> Share {
        let Self { network, plan } = *self;
        let step = &plan.steps[node];
        let scaled = |(i, &from): (usize, &NodeId)| {
            let up = step.domain.excess - plan.steps[from].domain.excess;
            if up == 0 {
                return Operand::As(bytemuck::cast_slice(input(i)));
            }
            let modulus = step.domain.modulus;
            let up = modulus.power(up);
            let scaled = input(i).iter().map(|&v| modulus.mul(modulus.reduce(v), up) as i64);
            Operand::Scaled(Zeroizing::new(scaled.collect()))
        };
        let inputs: Vec<Operand<'v>> = network.nodes[node].inputs.iter().enumerate().map(scaled).collect();
        let inputs: Vec<&[i64]> = inputs.iter().map(Operand::values).collect();
        if let (true, [x, y]) = (adds(&network.nodes[node]), &inputs[..]) {
            return Zeroizing::new(x.iter().zip(*y).map(|(x, y)| x.wrapping_add(*y) as u64).collect());
        }
        // (It is no linear layer: nothing here has kernels.)
        let apply = |inputs: &[&[i64]]| {
            let value = reference::apply_op(Cpu::scalar(), network, node, None, inputs);
            value.expect("a valid network, and its own shapes")
        };
        // (Differences may be below zero, and 2^64 is a multiple of every power of two, but of no odd number.)
        let modulus = step.domain.modulus;
        let odd = modulus.log2().is_none();
        let unsigned = |v: i64| if odd { modulus.from_signed(v) } else { v as u64 };
        let images = plan.images();
        if images == 1 {
            // (The same memory, as other numbers.)
            return Zeroizing::new(apply(&inputs).into_iter().map(unsigned).collect());
        }
        let node = &network.nodes[node];
        let mut value = Zeroizing::new(vec![0; images * elements(node.shape)]);
        for image in 0..images {
            let own = node.inputs.iter().zip(&inputs).map(|(&from, values)| {
                Zeroizing::new(image_of(values, network.nodes[from].shape, (image, images)))
            });
            let own: Vec<Zeroizing<Vec<i64>>> = own.collect();
            let result = Zeroizing::new(apply(&own.iter().map(|own| &own[..]).collect::<Vec<_>>()));
            let planes = value.chunks_mut(plane(node.shape)).skip(image).step_by(images);
            for (plane, result) in planes.zip(result.chunks(plane(node.shape))) {
                plane.iter_mut().zip(result).for_each(|(value, result)| *value = unsigned(*result));
            }
        }
        value
    }
}

/// A local operation's input.
enum Operand<'v> {
    /// The share as it is.
    As(&'v [i64]),
    /// The share times a power of two.
    Scaled(Zeroizing<Vec<i64>>),
}

impl Operand<'_> {
    fn values(&self) -> &[i64] {
        match self {
            Self::As(values) => values,
            Self::Scaled(values) => values,
        }
    }
}

/// Two values as pairs, element by element: what a product takes. Of one number a channel, each serves for all places of its
/// channel.
pub(super) fn pairs(first: &[u64], second: &[u64]) -> Share {
    let each = first.len() / second.len();
    let mut pairs = Zeroizing::new(Vec::with_capacity(2 * first.len()));
    for (values, &factor) in first.chunks(each).zip(second) {
        values.iter().for_each(|&value| pairs.extend([value, factor]));
    }
    pairs
}

/// All of one value, then all of another: what a product of matrices takes.
pub(super) fn one_behind_the_other(first: &[u64], second: &[u64]) -> Share {
    let mut both = Zeroizing::new(Vec::with_capacity(first.len() + second.len()));
    both.extend_from_slice(first);
    both.extend_from_slice(second);
    both
}

fn elements(shape: Shape) -> usize {
    shape.iter().product()
}

/// Values of a channel of one image.
fn plane([_, h, w]: Shape) -> usize {
    h * w
}

/// Of `images` images' values `[C, image, H, W]` those of number `image`: `[C, H, W]`.
pub(crate) fn image_of<T: Copy>(values: &[T], shape: Shape, (image, images): (usize, usize)) -> Vec<T> {
    values.chunks(plane(shape)).skip(image).step_by(images).flatten().copied().collect()
}

/// Values of `images` images `[image, C, H, W]` as `[C, image, H, W]`.
#[cfg(feature = "client")]
pub(crate) fn by_channel<T: Copy>(values: &[T], shape: Shape, images: usize) -> Vec<T> {
    // The same the other way round: a channel takes the place of an image.
    let [channels, h, w] = shape;
    by_image(values, [images, h, w], channels)
}

/// Values of `images` images `[C, image, H, W]` as `[image, C, H, W]`. (There is no other copy.)
pub(crate) fn by_image<T: Copy>(values: &[T], shape: Shape, images: usize) -> Vec<T> {
    let mut sorted = Vec::with_capacity(values.len());
    for image in 0..images {
        let own = values.chunks(plane(shape)).skip(image).step_by(images);
        own.for_each(|plane| sorted.extend_from_slice(plane));
    }
    sorted
}

/// Shares of a wider ring, or sums of shares, modulo `modulus`.
pub(super) fn reduce(x: &[u64], modulus: Modulus) -> Share {
    reduced(Zeroizing::new(x.to_vec()), modulus)
}

/// As [`reduce`], in place.
pub(super) fn reduced(mut x: Share, modulus: Modulus) -> Share {
    match modulus.log2() {
        Some(bits) => x.iter_mut().for_each(|v| *v &= u64::MAX >> (64 - bits)),
        None => x.iter_mut().for_each(|v| *v = modulus.reduce(*v)),
    }
    x
}

/// This party's share of a node's value.
pub(super) enum Value {
    Complete(Share),
    /// A linear layer's output, computed as it is asked for.
    Partial(Box<dyn Output>),
    /// The first elements of a sum of which some operand is incomplete; with room for all.
    PartialSum(Share),
}

impl Value {
    /// The first elements, as many as there are.
    pub fn available(&self) -> &[u64] {
        match self {
            Self::Complete(elements) | Self::PartialSum(elements) => elements,
            Self::Partial(output) => output.values(),
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete(_))
    }
}

/// Drops a value, and so wipes it, on another thread if there is one: it may be tens of megabytes.
fn wipe(value: Option<Value>) {
    match value {
        Some(Value::Complete(elements) | Value::PartialSum(elements)) if threads::count() > 1 => {
            rayon::spawn(move || drop(elements));
        }
        Some(Value::Complete(_) | Value::PartialSum(_) | Value::Partial(_)) | None => {}
    }
}

/// The values that some node still has to read.
pub(super) struct Values<'a> {
    planned: PlannedNetwork<'a>,
    /// By node: from when it is begun until its last consumer has read it. A consumer that reads it in pieces has read it when
    /// it is through.
    values: Vec<Option<Value>>,
    /// By node: how many consumers have not read all of it.
    uses: Vec<usize>,
    observe: ShareObserver<'a>,
}

impl<'a> Values<'a> {
    /// No value is there yet.
    pub fn new(planned: PlannedNetwork<'a>, observe: ShareObserver<'a>) -> Self {
        let nodes = &planned.network.nodes;
        let mut uses = vec![0; nodes.len()];
        nodes.iter().flat_map(|node| &node.inputs).for_each(|&i| uses[i] += 1);
        Self { planned, values: (0..nodes.len()).map(|_| None).collect(), uses, observe }
    }

    /// The value of `node`, if it has begun and still has a consumer.
    pub fn of(&self, node: NodeId) -> Option<&Value> {
        self.values[node].as_ref()
    }

    /// The elements that are there of the value of input `i` of `node`.
    pub fn input(&self, node: NodeId, i: usize) -> &[u64] {
        let from = self.planned.network.nodes[node].inputs[i];
        self.values[from].as_ref().expect("its consumers keep it").available()
    }

    /// Keeps the value of `node` for its consumers.
    pub fn keep(&mut self, node: NodeId, value: Value) {
        if let Value::Complete(elements) = &value {
            (self.observe)(node, elements);
        }
        self.values[node] = Some(value);
    }

    /// Makes at least the first `count` elements of `value`: of the value of `node`, or of what the operation behind it takes.
    pub fn make(
        &mut self,
        account: &mut Account<'_>,
        node: NodeId,
        value: &mut Value,
        count: usize,
    ) -> Result<(), EngineError> {
        if value.available().len() >= count {
            return Ok(());
        }
        match value {
            Value::Complete(_) => Ok(()),
            Value::Partial(output) => account.timed(node, |_| {
                output.make(count);
                Ok(())
            }),
            Value::PartialSum(elements) => {
                let PlannedNetwork { network, plan } = self.planned;
                network.nodes[node].inputs.iter().try_for_each(|&i| self.make_kept(account, i, count))?;
                account.timed(node, |_| {
                    let new = elements.len()..count;
                    let sum = self.planned.local(node, |i| &self.input(node, i)[new.clone()]);
                    elements.extend_from_slice(&reduced(sum, plan.steps[node].computed.modulus));
                    Ok(())
                })
            }
        }
    }

    /// Makes at least the first `count` elements of a node's value, which is kept for its consumers.
    pub fn make_kept(
        &mut self,
        account: &mut Account<'_>,
        node: NodeId,
        count: usize,
    ) -> Result<(), EngineError> {
        let mut value = self.values[node].take().expect("its consumers keep it");
        self.make(account, node, &mut value, count)?;
        self.values[node] = Some(value);
        Ok(())
    }

    /// Makes all of `value`: of the value of `node`, or of what the operation behind it takes.
    pub fn complete_value(
        &mut self,
        account: &mut Account<'_>,
        node: NodeId,
        mut value: Value,
    ) -> Result<Share, EngineError> {
        self.make(account, node, &mut value, self.planned.plan.steps[node].values)?;
        Ok(match value {
            Value::Complete(elements) => elements,
            Value::Partial(output) => Zeroizing::new(output.into_values()),
            Value::PartialSum(elements) => {
                let inputs = &self.planned.network.nodes[node].inputs;
                inputs.iter().try_for_each(|&i| self.complete(account, i))?;
                self.release_inputs(node);
                elements
            }
        })
    }

    /// Makes all of a node's value, if it is still kept.
    pub fn complete(&mut self, account: &mut Account<'_>, node: NodeId) -> Result<(), EngineError> {
        if let Some(value) = self.values[node].take_if(|value| !value.is_complete()) {
            let elements = self.complete_value(account, node, value)?;
            self.keep(node, Value::Complete(elements));
        }
        Ok(())
    }

    /// `node` has read its inputs: those without a further consumer are dropped.
    pub fn release_inputs(&mut self, node: NodeId) {
        for &i in &self.planned.network.nodes[node].inputs {
            self.uses[i] -= 1;
            if self.uses[i] == 0 {
                wipe(self.values[i].take());
            }
        }
    }

    /// The value of the last node, the network's output. All must be complete.
    pub fn into_output(mut self) -> Share {
        match self.values.pop().flatten() {
            Some(Value::Complete(output)) => output,
            _ => unreachable!("a valid network has an output, and it is complete"),
        }
    }
}
