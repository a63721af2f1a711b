//! The networks of the paper (its Table VII), by their shapes, with random weights: times do not depend on them.

use jaguar_convfhe::{Description, Floats, Layer, Polynomial, Term};

/// What makes a network of convolutions with ReLU behind each.
struct Builder {
    layers: Vec<Layer>,
    channels: usize,
    side: usize,
    state: u64,
}

impl Builder {
    fn new(channels: usize, side: usize) -> Self {
        Self { layers: Vec::new(), channels, side, state: 0x9E37_79B9_7F4A_7C15 }
    }

    /// Numbers that look random, of variance 2 by the number of inputs: values keep their size from layer to layer.
    fn weights(&mut self, count: usize, inputs: usize) -> Floats {
        let bound = (6.0 / inputs as f32).sqrt();
        let mut next = || {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            ((self.state >> 40) as f32 / (1 << 23) as f32 - 1.0) * bound
        };
        Floats((0..count).map(|_| next()).collect())
    }

    fn term(&mut self, out: usize, kernel: usize, stride: usize, padding: usize) -> Term {
        let inputs = self.channels * kernel * kernel;
        Term {
            from: self.layers.len(),
            out,
            channels: self.channels,
            height: kernel,
            width: kernel,
            stride,
            padding: [padding; 4],
            weights: self.weights(out * inputs, inputs),
        }
    }

    /// Convolutions that keep the size, the first one with a stride.
    fn block(&mut self, count: usize, out: usize, kernel: usize, stride: usize) {
        for i in 0..count {
            let stride = if i == 0 { stride } else { 1 };
            let term = self.term(out, kernel, stride, kernel / 2);
            let name = format!("convolution {}", self.layers.len() + 1);
            self.layers.push(Layer { name, terms: vec![term], bias: Floats(vec![0.0; out]), bound: None });
            self.channels = out;
            self.side = self.side.div_ceil(stride);
        }
    }

    /// An average pool and a fully connected layer, as one.
    fn done(mut self, name: String, input: [usize; 3], outputs: usize) -> Description {
        let term = self.term(outputs, self.side, 1, 0);
        let bias = Floats(vec![0.0; outputs]);
        let output = Layer { name: "fully connected".into(), terms: vec![term], bias, bound: None };
        Description {
            name,
            input,
            input_bound: 1.0,
            images: 1,
            relu: Polynomial::default(),
            layers: self.layers,
            output,
        }
    }
}

/// What Figure 7 varies: kernels, depths and widths of [`plain`].
pub const VARIANTS: [[usize; 3]; 3] = [[3, 5, 7], [8, 14, 20], [1, 2, 3]];

/// A plain network for CIFAR: k3-d20-w1 is Plain-20.
pub fn plain(kernel: usize, depth: usize, width: usize) -> Description {
    let mut b = Builder::new(3, 32);
    let per_block = (depth - 2) / 3;
    b.block(1, 16, kernel, 1);
    b.block(per_block, 16 * width, kernel, 1);
    b.block(per_block, 32 * width, kernel, 2);
    b.block(per_block, 64 * width, kernel, 2);
    b.done(format!("k{kernel}-d{depth}-w{width}"), [3, 32, 32], 10)
}

/// The final eight layers of Plain-18 for ImageNet; the client has evaluated those before.
pub fn tail(kernel: usize) -> Description {
    let mut b = Builder::new(128, 28);
    b.block(4, 256, kernel, 2);
    b.block(4, 512, kernel, 2);
    b.done(format!("ImageNet tail, k{kernel}"), [128, 28, 28], 1000)
}

/// One layer; its output is one number.
pub fn layer(channels: usize, side: usize, kernel: usize) -> Description {
    let mut b = Builder::new(channels, side);
    b.block(1, channels, kernel, 1);
    b.done(format!("B = {channels}, {side} × {side}, k{kernel}"), [channels, side, side], 1)
}
