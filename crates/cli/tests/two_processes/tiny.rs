//! A network small enough to run in a moment, as a real ONNX file; inputs for it; and how far a private run
//! of it may be from the reference.

use std::io::Cursor;

use image::{ImageFormat, RgbImage};
use jaguar::network::{Input, MaxPool, Model, Rearrange, Relu, SumPool};
use jaguar::plan::{BackendId, Choices, Plan};

use crate::WATCHDOG;
use crate::process::{Process, Scratch, jaguar, repository};

/// Side of the network's input.
pub const SIDE: usize = 16;
/// How long the input of [`vector_onnx`] is.
pub const VECTOR: usize = 12;
/// The network's classes.
pub const CLASSES: usize = 10;

/// Protocol buffers by hand: the importer's own decoder is what is tested.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn int(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn message(self, field: u64, value: Self) -> Self {
        self.bytes(field, &value.0)
    }
}

/// An attribute of one integer or a list of them (field numbers and types from `onnx.proto`).
pub fn attribute(name: &str, values: &[u64]) -> Message {
    let start = Message::default().bytes(1, name.as_bytes());
    match values {
        [one] => start.int(3, *one).int(20, 2),
        many => many.iter().fold(start, |m, v| m.int(8, *v)).int(20, 7),
    }
}

pub fn node(operator: &str, inputs: &[&str], output: &str, attributes: Vec<Message>) -> Message {
    let m = inputs.iter().fold(Message::default(), |m, i| m.bytes(1, i.as_bytes()));
    let m = m.bytes(2, output.as_bytes()).bytes(3, output.as_bytes()).bytes(4, operator.as_bytes());
    attributes.into_iter().fold(m, |m, a| m.message(5, a))
}

fn value(name: &str, shape: &[u64]) -> Message {
    let shape = shape.iter().fold(Message::default(), |m, d| m.message(1, Message::default().int(1, *d)));
    let tensor = Message::default().int(1, 1).message(2, shape);
    Message::default().bytes(1, name.as_bytes()).message(2, Message::default().message(1, tensor))
}

/// Weights evenly spread in ±`span`, from a fixed linear congruential sequence.
pub fn weights(name: &str, shape: &[u64], span: f32, state: &mut u64) -> Message {
    let count: u64 = shape.iter().product();
    let data: Vec<u8> = (0..count)
        .flat_map(|_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (((*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * span).to_le_bytes()
        })
        .collect();
    let m = shape.iter().fold(Message::default(), |m, d| m.int(1, *d));
    m.int(2, 1).bytes(8, name.as_bytes()).bytes(9, &data)
}

/// The file of a network from `input` to [`CLASSES`] logits.
pub fn model(
    name: &str,
    nodes: impl IntoIterator<Item = Message>,
    tensors: impl IntoIterator<Item = Message>,
    input: &[u64],
) -> Vec<u8> {
    let graph = nodes.into_iter().fold(Message::default(), |m, n| m.message(1, n));
    let graph = tensors.into_iter().fold(graph.bytes(2, name.as_bytes()), |m, t| m.message(5, t));
    let graph = graph.message(11, value("input", input)).message(12, value("logits", &[1, CLASSES as u64]));
    Message::default().int(1, 8).message(7, graph).message(8, Message::default().int(2, 13)).0
}

/// The ONNX file: Conv, Relu, MaxPool, Conv, Relu, GlobalAveragePool, Flatten, Gemm.
pub fn onnx() -> Vec<u8> {
    let state = &mut 7;
    let side = SIDE as u64;
    let conv = || vec![attribute("kernel_shape", &[3, 3]), attribute("pads", &[1, 1, 1, 1])];
    let pool = vec![attribute("kernel_shape", &[2, 2]), attribute("strides", &[2, 2])];
    let nodes = [
        node("Conv", &["input", "w1", "b1"], "conv1", conv()),
        node("Relu", &["conv1"], "relu1", vec![]),
        node("MaxPool", &["relu1"], "pool1", pool),
        node("Conv", &["pool1", "w2", "b2"], "conv2", conv()),
        node("Relu", &["conv2"], "relu2", vec![]),
        node("GlobalAveragePool", &["relu2"], "average", vec![]),
        node("Flatten", &["average"], "flat", vec![]),
        node("Gemm", &["flat", "w3", "b3"], "logits", vec![attribute("transB", &[1])]),
    ];
    let tensors = [
        weights("w1", &[8, 3, 3, 3], 0.5, state),
        weights("b1", &[8], 0.2, state),
        weights("w2", &[8, 8, 3, 3], 0.3, state),
        weights("b2", &[8], 0.2, state),
        weights("w3", &[CLASSES as u64, 8], 1.0, state),
        weights("b3", &[CLASSES as u64], 0.2, state),
    ];
    model("tiny", nodes, tensors, &[1, 3, side, side])
}

/// As [`onnx`], and right behind the input a batch normalisation called `learned`.
pub fn normalised_onnx() -> Vec<u8> {
    let state = &mut 7;
    let side = SIDE as u64;
    let conv = || vec![attribute("kernel_shape", &[3, 3]), attribute("pads", &[1, 1, 1, 1])];
    let nodes = [
        node("BatchNormalization", &["input", "gamma", "beta", "mean", "variance"], "learned", vec![]),
        node("Conv", &["learned", "w1", "b1"], "conv1", conv()),
        node("Relu", &["conv1"], "relu1", vec![]),
        node("GlobalAveragePool", &["relu1"], "average", vec![]),
        node("Flatten", &["average"], "flat", vec![]),
        node("Gemm", &["flat", "w3", "b3"], "logits", vec![attribute("transB", &[1])]),
    ];
    let numbers = |name: &str, values: [f32; 3]| {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Message::default().int(1, 3).int(2, 1).bytes(8, name.as_bytes()).bytes(9, &data)
    };
    let tensors = [
        numbers("gamma", [1.25, 0.75, 1.5]),
        numbers("beta", [0.125, -0.25, 0.375]),
        numbers("mean", [120.5, 110.25, 100.75]),
        numbers("variance", [4000.0, 3900.0, 4100.0]),
        weights("w1", &[8, 3, 3, 3], 0.5, state),
        weights("b1", &[8], 0.2, state),
        weights("w3", &[CLASSES as u64, 8], 1.0, state),
        weights("b3", &[CLASSES as u64], 0.2, state),
    ];
    model("normalised", nodes, tensors, &[1, 3, side, side])
}

/// LeNet over 28 x 28 grey values, its weights made up: two convolutions with max-pools, three layers of 120, 84 and ten units.
pub fn lenet_onnx() -> Vec<u8> {
    let state = &mut 23;
    let conv = |pad| vec![attribute("kernel_shape", &[5, 5]), attribute("pads", &[pad; 4])];
    let pool = || vec![attribute("kernel_shape", &[2, 2]), attribute("strides", &[2, 2])];
    let gemm = || vec![attribute("transB", &[1])];
    let nodes = [
        node("Conv", &["input", "w1", "b1"], "conv1", conv(2)),
        node("Relu", &["conv1"], "relu1", vec![]),
        node("MaxPool", &["relu1"], "pool1", pool()),
        node("Conv", &["pool1", "w2", "b2"], "conv2", conv(0)),
        node("Relu", &["conv2"], "relu2", vec![]),
        node("MaxPool", &["relu2"], "pool2", pool()),
        node("Flatten", &["pool2"], "flat", vec![]),
        node("Gemm", &["flat", "w3", "b3"], "full1", gemm()),
        node("Relu", &["full1"], "relu3", vec![]),
        node("Gemm", &["relu3", "w4", "b4"], "full2", gemm()),
        node("Relu", &["full2"], "relu4", vec![]),
        node("Gemm", &["relu4", "w5", "b5"], "logits", gemm()),
    ];
    let mut layer = |name: &str, shape: &[u64], span: f32| {
        [
            weights(&format!("w{name}"), shape, span, state),
            weights(&format!("b{name}"), &shape[..1], 0.1, state),
        ]
    };
    let layers = [
        layer("1", &[6, 1, 5, 5], 0.4),
        layer("2", &[16, 6, 5, 5], 0.2),
        layer("3", &[120, 400], 0.12),
        layer("4", &[84, 120], 0.22),
        layer("5", &[CLASSES as u64, 84], 0.27),
    ];
    model("lenet", nodes, layers.into_iter().flatten(), &[1, 1, 28, 28])
}

/// The file of a network whose constants or weights are such that few bits of activations leave nothing of it: what makes its
/// logits is a small difference of large values.
pub fn cancelling_onnx() -> Vec<u8> {
    let state = &mut 17;
    let (inputs, classes) = (VECTOR as u64, CLASSES as u64);
    let gemm = || vec![attribute("transB", &[1])];
    let nodes = [
        node("Gemm", &["input", "w1", "b1"], "large", gemm()),
        node("Relu", &["large"], "relu", vec![]),
        node("Gemm", &["relu", "w2", "b2"], "logits", gemm()),
    ];
    // Values around 1000 that differ by some units; then what they have in common is taken away.
    let tensors = [
        weights("w1", &[16, inputs], 0.5, state),
        constant("b1", &[16], 1e3),
        difference("w2", classes, 16),
        constant("b2", &[classes], 0.0),
    ];
    model("cancelling", nodes, tensors, &[1, inputs])
}

/// So many equal numbers.
fn constant(name: &str, shape: &[u64], value: f32) -> Message {
    let count: u64 = shape.iter().product();
    let data: Vec<u8> = (0..count).flat_map(|_| value.to_le_bytes()).collect();
    shape
        .iter()
        .fold(Message::default(), |m, d| m.int(1, *d))
        .int(2, 1)
        .bytes(8, name.as_bytes())
        .bytes(9, &data)
}

/// Row r is one at column r and minus one behind it.
fn difference(name: &str, rows: u64, columns: u64) -> Message {
    let value = |r: u64, c: u64| f32::from(i8::from(c == r) - i8::from(c == r + 1));
    let data: Vec<u8> =
        (0..rows).flat_map(|r| (0..columns).flat_map(move |c| value(r, c).to_le_bytes())).collect();
    Message::default().int(1, rows).int(1, columns).int(2, 1).bytes(8, name.as_bytes()).bytes(9, &data)
}

/// A network over a vector of [`VECTOR`] numbers: Gemm, Relu, Gemm.
pub fn vector_onnx() -> Vec<u8> {
    let state = &mut 11;
    let (inputs, classes) = (VECTOR as u64, CLASSES as u64);
    let gemm = || vec![attribute("transB", &[1])];
    let nodes = [
        node("Gemm", &["input", "w1", "b1"], "hidden", gemm()),
        node("Relu", &["hidden"], "relu", vec![]),
        node("Gemm", &["relu", "w2", "b2"], "logits", gemm()),
    ];
    let tensors = [
        weights("w1", &[16, inputs], 0.5, state),
        weights("b1", &[16], 0.2, state),
        weights("w2", &[classes, 16], 0.5, state),
        weights("b2", &[classes], 0.2, state),
    ];
    model("vector", nodes, tensors, &[1, inputs])
}

/// Writes the ONNX file, class names `class-0` and so on, and compiles them. Gives the model's path.
#[track_caller]
pub fn compile(folder: &Scratch) -> String {
    compile_as(folder, "tiny.jaguar", "class")
}

/// As [`compile`], to another path in the folder, with class names `WORD-0` and so on: another model.
#[track_caller]
pub fn compile_as(folder: &Scratch, path: &str, word: &str) -> String {
    let [source, labels, model] = ["tiny.onnx", "labels.txt", path].map(|f| folder.path(f));
    std::fs::write(&source, onnx()).expect("the folder can be written");
    let names: Vec<String> = (0..CLASSES).map(|i| format!("{word}-{i}")).collect();
    std::fs::write(&labels, names.join("\n")).expect("the folder can be written");
    let photos = repository("demo/calibration");
    let mut command =
        jaguar(&["compile", &source, "--calibrate", &photos, "--labels", &labels, "-o", &model]);
    command.args(PREPARATION);
    Process::start(command).finish(WATCHDOG).succeeded();
    model
}

/// How images become its input.
pub const PREPARATION: [&str; 6] = ["--pixel-scale", "0.00392157", "--mean", "0.5", "--std", "0.25"];

/// A picture, its brightness rising to the lower right, as a PNG file.
pub fn png() -> Vec<u8> {
    let picture = RgbImage::from_fn(40, 30, |x, y| image::Rgb([(x * 6) as u8, (y * 8) as u8, (x + y) as u8]));
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png).expect("a picture encodes");
    file.into_inner()
}

/// An `.npy` file (format 1.0) of a type and shape, with this data.
pub fn npy(dtype: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data begins at a multiple of 64 bytes.
    header.extend(std::iter::repeat_n(' ', (128 - 11 - header.len() % 64) % 64));
    header.push('\n');
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

/// An input of the network as a tensor file, and its values.
pub fn tensor() -> (Vec<u8>, Vec<f32>) {
    let values: Vec<f32> = (0..3 * SIDE * SIDE).map(|i| (i as f32 * 0.37).sin()).collect();
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    (npy("<f4", &[1, 3, SIDE, SIDE], &data), values)
}

/// How far a private run's output may be from the reference's, in units of the last place, for a network of
/// the operations above. A linear layer rounds either way where the reference rounds to nearest (less than
/// 1.5 ulp between them, and eight standard deviations of noise), and passes on what its input is off by,
/// times the largest `Σ|w| / 2^f`; the other layers are exact, but for what they truncate, and stretch nothing,
/// but sums add up. What is opened has the server's noise, less than four summands of so many bits less their mean.
pub fn worst_error(model: &Model, protocol: BackendId) -> f64 {
    let plan = Plan::new(&model.network, Choices::standard(&model.network, protocol))
        .expect("the network was compiled");
    let mut errors: Vec<f64> = Vec::new();
    for (id, node) in model.network.nodes.iter().enumerate() {
        let largest = node.inputs.iter().map(|&i| errors[i]).fold(0.0, f64::max);
        let own = plan.steps[id].error_ulps();
        let op = &node.op;
        errors.push(if let Some(spec) = op.linear() {
            let weights = &model.weights[id].as_ref().expect("a linear layer has weights").weights;
            let rows = weights.chunks_exact(weights.len() / spec.out_channels);
            let sums = rows.map(|row| row.iter().map(|w| f64::from(w.unsigned_abs())).sum::<f64>());
            let gain = sums.fold(0.0, f64::max) / 2f64.powi(spec.shift as i32);
            largest * gain + 0.5 + own
        } else if op.is::<SumPool>() {
            largest * op.scale_gain() as f64
        } else if op.is::<Input>() || op.is::<Relu>() || op.is::<MaxPool>() || op.is::<Rearrange>() {
            largest + own
        } else {
            panic!("{} is not expected in the tiny network", op.name())
        });
    }
    errors.last().copied().expect("a network has nodes") + f64::from(2u32 << model.network.noise_bits)
}
