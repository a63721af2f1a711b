//! A description computes what the graph computes.

use jaguar_convfhe::{Description, Layer, NoCut, Polynomial, describe, last_layers};
use jaguar_graph::float::{Add, AveragePool, Bias, Clip, Graph, Input, Linear, MaxPool, Node, Op, Relu};
use jaguar_graph::network::{self, Rearrange, Shape, Window};
use jaguar_ring::cpu::Cpu;

/// Numbers in [-1, 1) that look random, the same at every run.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

struct Builder(Vec<Node>);

impl Builder {
    fn new(input: Shape) -> Self {
        Self(vec![Node { name: "input".into(), op: Input.into(), inputs: Vec::new(), shape: input }])
    }

    fn push(&mut self, name: &str, op: impl Into<Op>, inputs: &[usize], shape: Shape) -> usize {
        self.0.push(Node { name: name.into(), op: op.into(), inputs: inputs.to_vec(), shape });
        self.0.len() - 1
    }

    /// A convolution with random weights.
    fn convolution(&mut self, from: usize, spec: network::Linear) -> usize {
        let input = self.0[from].shape;
        let [h, w] = spec.output_hw(input).unwrap();
        let seed = self.0.len() as u64;
        let weights = numbers(spec.weights_len(input[0]).unwrap(), seed);
        let bias = Bias::PerChannel(numbers(spec.out_channels, seed + 100));
        let shape = [spec.out_channels, h, w];
        self.push("convolution", Linear { spec, weights, bias }, &[from], shape)
    }

    fn relu(&mut self, from: usize) -> usize {
        let shape = self.0[from].shape;
        self.push("relu", Relu, &[from], shape)
    }

    fn graph(self) -> Graph {
        Graph { name: "test".into(), nodes: self.0, ..Graph::default() }
    }
}

fn same(out: usize, kernel: usize) -> network::Linear {
    network::Linear::same(out, kernel, 0)
}

/// What ResNet-20 has: residual connections, an option-A shortcut, a pool and a fully connected layer behind it; and groups, dilation
/// and a kernel of 5.
fn residual() -> Graph {
    let mut b = Builder::new([2, 8, 8]);
    let first = b.convolution(0, network::Linear { dilation: [2; 2], pads: [2; 4], ..same(4, 3) });
    let first = b.relu(first);
    let grouped = b.convolution(first, network::Linear { groups: 2, ..same(4, 5) });
    let sum = b.push("sum", Add, &[grouped, first], [4, 8, 8]);
    let second = b.relu(sum);
    let strided = b.convolution(second, network::Linear { stride: [2; 2], ..same(8, 3) });
    let slice = Rearrange::Slice { start: [0; 3], step: [1, 2, 2] };
    let slice = b.push("slice", slice, &[second], [4, 4, 4]);
    let pad = Rearrange::Pad { before: [2, 0, 0], after: [2, 0, 0] };
    let pad = b.push("pad", pad, &[slice], [8, 4, 4]);
    let sum = b.push("sum", Add, &[strided, pad], [8, 4, 4]);
    let third = b.relu(sum);
    let window = Window { kernel: [4; 2], stride: [1; 2], pads: [0; 4] };
    let pool = b.push("pool", AveragePool { window, count_padding: true }, &[third], [8, 1, 1]);
    let flat = b.push("flatten", Rearrange::Reshape, &[pool], [8, 1, 1]);
    b.convolution(flat, network::Linear { pads: [0; 4], ..same(3, 1) });
    b.graph()
}

/// The description by the definition of its layers.
fn run(description: &Description, input: &[f32]) -> Vec<f32> {
    let mut values = vec![(description.input, input.to_vec())];
    for layer in &description.layers {
        let (shape, mut sum) = sums(layer, &values);
        sum.iter_mut().for_each(|v| *v = v.max(0.0));
        values.push((shape, sum));
    }
    sums(&description.output, &values).1
}

fn sums(layer: &Layer, values: &[(Shape, Vec<f32>)]) -> (Shape, Vec<f32>) {
    let mut made: Option<(Shape, Vec<f32>)> = None;
    for term in &layer.terms {
        let ([channels, height, width], x) = &values[term.from];
        assert_eq!(term.channels, *channels);
        let [top, left, bottom, right] = term.padding;
        let out_h = (height + top + bottom - term.height) / term.stride + 1;
        let out_w = (width + left + right - term.width) / term.stride + 1;
        let mut to = vec![0.0; term.out * out_h * out_w];
        for (index, to) in to.iter_mut().enumerate() {
            let (o, i, j) = (index / out_w / out_h, index / out_w % out_h, index % out_w);
            for c in 0..*channels {
                for a in 0..term.height {
                    for b in 0..term.width {
                        let (y, x_at) = (i * term.stride + a, j * term.stride + b);
                        if y < top || x_at < left || y - top >= *height || x_at - left >= *width {
                            continue;
                        }
                        let weight = term.weights.0[((o * channels + c) * term.height + a) * term.width + b];
                        *to += weight * x[(c * height + y - top) * width + x_at - left];
                    }
                }
            }
        }
        let shape = [term.out, out_h, out_w];
        match &mut made {
            None => made = Some((shape, to)),
            Some((before, sum)) => {
                assert_eq!(*before, shape);
                sum.iter_mut().zip(to).for_each(|(a, b)| *a += b);
            }
        }
    }
    let (shape, mut sum) = made.unwrap();
    let plane = shape[1] * shape[2];
    for (c, bias) in layer.bias.0.iter().enumerate() {
        sum[c * plane..][..plane].iter_mut().for_each(|v| *v += bias);
    }
    (shape, sum)
}

/// What MobileNetV2 has: ReLU6, depthwise kernels, a projection without ReLU, a sum of projections under a wider kernel.
fn mobile() -> Graph {
    let mut b = Builder::new([2, 8, 8]);
    let expand = b.convolution(0, network::Linear { pads: [0; 4], ..same(6, 1) });
    let expand = b.push("relu6", Clip { ceiling: 0.5 }, &[expand], [6, 8, 8]);
    let depthwise = b.convolution(expand, network::Linear { groups: 6, ..same(6, 3) });
    let depthwise = b.push("relu6", Clip { ceiling: 0.75 }, &[depthwise], [6, 8, 8]);
    let sum = b.push("sum", Add, &[depthwise, expand], [6, 8, 8]);
    let wide = b.convolution(sum, network::Linear { stride: [2; 2], ..same(3, 3) });
    let relu = b.relu(wide);
    let window = Window { kernel: [4; 2], stride: [1; 2], pads: [0; 4] };
    let pool = b.push("pool", AveragePool { window, count_padding: true }, &[relu], [3, 1, 1]);
    b.convolution(pool, network::Linear { pads: [0; 4], ..same(3, 1) });
    b.graph()
}

/// A pool between two convolutions; `relu_first` says which of pool and ReLU comes first.
fn pooled(side: usize, window: Window, relu_first: bool) -> Graph {
    let mut b = Builder::new([2, side, side]);
    let mut from = b.convolution(0, same(3, 3));
    let out = [0, 1].map(|axis| {
        (side + window.pads[axis] + window.pads[axis + 2] - window.kernel[axis]) / window.stride[axis] + 1
    });
    let shape = [3, out[0], out[1]];
    if relu_first {
        from = b.relu(from);
    }
    from = b.push("pool", MaxPool(window), &[from], shape);
    if !relu_first {
        from = b.relu(from);
    }
    let second = b.convolution(from, same(2, 3));
    let second = b.relu(second);
    b.convolution(second, network::Linear { pads: [0; 4], ..same(2, out[0]) });
    b.graph()
}

#[test]
fn max_pools_are_taken() {
    let window =
        |kernel: usize, stride, pad| Window { kernel: [kernel; 2], stride: [stride; 2], pads: [pad; 4] };
    // Layers: the ReLUs of the pool, the convolutions' two; one more where the ReLU before cannot be taken behind.
    for (side, window, layers) in [
        (8, window(2, 2, 0), 2 + 2),
        (9, window(2, 2, 0), 2 + 2),
        (9, window(3, 2, 0), 4 + 2),
        (8, window(3, 2, 0), 4 + 2),
        (8, window(3, 2, 1), 4 + 3),
        (9, window(3, 2, 1), 4 + 3),
        (6, window(3, 1, 1), 4 + 3),
        (6, window(2, 1, 0), 2 + 2),
        (6, window(6, 4, 0), 10 + 2),
        (9, window(1, 4, 0), 2),
    ] {
        let graph = pooled(side, window.clone(), true);
        let description = describe(&graph, 1.0).unwrap();
        assert_eq!(description.layers.len(), layers, "{window:?}");
        computes_the_same(&graph, &description);
        let graph = pooled(side, window.clone(), false);
        if window.pads == [0; 4] {
            let description = describe(&graph, 1.0).unwrap();
            assert_eq!(description.layers.len(), layers, "{window:?}");
            computes_the_same(&graph, &description);
        } else {
            assert!(describe(&graph, 1.0).unwrap_err().to_string().contains("takes what a ReLU gives"));
        }
    }
}

/// A batch norm behind the ReLU may turn values below zero: what the pool gives is the difference of two ReLUs then.
#[test]
fn a_pool_behind_a_batch_norm_is_taken() {
    let mut b = Builder::new([2, 6, 6]);
    let first = b.convolution(0, same(4, 3));
    let first = b.relu(first);
    let norm = b.convolution(first, network::Linear { groups: 4, pads: [0; 4], ..same(4, 1) });
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    let pool = b.push("pool", MaxPool(window), &[norm], [4, 3, 3]);
    let second = b.convolution(pool, same(3, 3));
    let second = b.relu(second);
    b.convolution(second, network::Linear { pads: [0; 4], ..same(2, 3) });
    let graph = b.graph();
    let description = describe(&graph, 1.0).unwrap();
    assert_eq!(description.layers.len(), 1 + 2 + 2 + 1);
    computes_the_same(&graph, &description);
}

/// A residual connection takes the ReLU before the pool, too: it is not taken behind it then.
#[test]
fn a_relu_with_two_takers_stays_before_its_pool() {
    let mut b = Builder::new([2, 6, 6]);
    let first = b.convolution(0, same(2, 3));
    let first = b.relu(first);
    let window = Window { kernel: [3; 2], stride: [1; 2], pads: [1; 4] };
    let pool = b.push("pool", MaxPool(window.clone()), &[first], [2, 6, 6]);
    let pool = b.push("pool of a pool", MaxPool(window), &[pool], [2, 6, 6]);
    let sum = b.push("sum", Add, &[pool, first], [2, 6, 6]);
    b.convolution(sum, network::Linear { pads: [0; 4], ..same(3, 6) });
    let graph = b.graph();
    let description = describe(&graph, 1.0).unwrap();
    assert_eq!(description.layers.len(), 1 + 5 + 5);
    computes_the_same(&graph, &description);
}

fn computes_the_same(graph: &Graph, description: &Description) {
    let [c, h, w] = graph.nodes[0].shape;
    for seed in 1..4 {
        let input = numbers(c * h * w, 1000 + seed);
        let want = graph.forward(Cpu::detect(), &input).unwrap();
        let got = run(description, &input);
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 1e-3 * want.abs().max(1.0), "{got} is not {want}");
        }
    }
}

#[test]
fn relu6_and_depthwise_kernels_are_taken() {
    let graph = mobile();
    let description = describe(&graph, 1.0).unwrap();
    assert_eq!(description.layers.len(), 5);
    // The kernel over a sum of two differences.
    assert_eq!(
        description.layers[4].terms.iter().map(|t| (t.from, t.height)).collect::<Vec<_>>(),
        [(3, 3), (4, 3), (1, 3), (2, 3)]
    );
    computes_the_same(&graph, &description);
}

#[test]
fn the_last_layers_are_cut_off() {
    let graph = residual();
    let (head, tail) = last_layers(&graph, 1).unwrap();
    let description = describe(&tail, 1.0).unwrap();
    assert_eq!(description.layers.len(), 1);
    assert_eq!(description.input, [4, 8, 8]);
    for seed in 1..4 {
        let input = numbers(2 * 8 * 8, seed);
        let middle = head.forward(Cpu::detect(), &input).unwrap();
        let want = graph.forward(Cpu::detect(), &input).unwrap();
        assert_eq!(tail.forward(Cpu::detect(), &middle).unwrap(), want);
    }
    assert_eq!(last_layers(&graph, 3).unwrap_err(), NoCut::TooFew(3));
    // Nodes: input, convolution, ReLU, then the first residual block's convolution, sum (5) and ReLU (6).
    let mut crossed = graph.clone();
    crossed.nodes[9].inputs = vec![2];
    let NoCut::Crossed { node: 9, from: 2, .. } = last_layers(&crossed, 1).unwrap_err() else {
        panic!("a connection across the cut was not seen")
    };
}

#[test]
fn polynomials_are_found_by_their_degrees() {
    for polynomial in Polynomial::ALL {
        assert_eq!(polynomial.name().parse(), Ok(polynomial));
        assert_eq!(serde_json::to_string(&polynomial).unwrap(), format!("{:?}", polynomial.name()));
        // A degree d takes as many levels as d + 1 has binary digits after the first, rounded up; the last product one.
        let levels =
            polynomial.name().split('-').map(|d| d.parse::<u32>().unwrap().ilog2() + 1).sum::<u32>() + 1;
        assert_eq!(polynomial.levels(), levels);
    }
    assert!("9-9".parse::<Polynomial>().unwrap_err().contains("7-7-13"));
}

#[test]
fn a_description_computes_what_the_graph_computes() {
    let graph = residual();
    let description = describe(&graph, 1.0).unwrap();
    assert_eq!(description.layers.len(), 3);
    // The residual connection, the shortcut, and nothing else, are second terms.
    assert_eq!(description.layers.iter().map(|l| l.terms.len()).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(description.output.terms[0].height, 4);
    computes_the_same(&graph, &description);
}

#[test]
fn a_description_is_this_json() {
    let mut b = Builder::new([1, 1, 1]);
    b.convolution(0, same(1, 1));
    let mut graph = b.graph();
    if let Some(linear) = graph.nodes[1].op.linear_mut() {
        linear.weights = vec![1.5];
        linear.bias = Bias::PerChannel(vec![-2.0]);
    }
    let json = serde_json::to_string(&describe(&graph, 0.5).unwrap()).unwrap();
    assert_eq!(
        json,
        r#"{"name":"test","input":[1,1,1],"input_bound":0.5,"relu":"7-7-13","images":1,"layers":[],"output":{"name":"convolution","terms":[{"from":0,"out":1,"in":1,"height":1,"width":1,"stride":1,"padding":[0,0,0,0],"weights":"AADAPw=="}],"bias":"AAAAwA=="}}"#
    );
}

#[test]
fn what_has_no_form_is_refused_with_a_reason() {
    let window = Window { kernel: [2; 2], stride: [2; 2], pads: [0; 4] };
    let refused = |op: Op, shape: Shape| {
        let mut b = Builder::new([2, 8, 8]);
        b.push("odd one", op, &[0], shape);
        describe(&b.graph(), 1.0).unwrap_err().to_string()
    };
    for (op, shape, reason) in [
        (Op::new(MaxPool(Window { pads: [1; 4], ..window.clone() })), [2, 5, 5], "takes what a ReLU gives"),
        (Op::new(MaxPool(Window { stride: [2, 1], ..window.clone() })), [2, 4, 7], "must have the same"),
        (Op::new(Clip { ceiling: 6.0 }), [2, 8, 8], "one number a channel"),
        (Op::new(Rearrange::Transpose { perm: [0, 2, 1] }), [2, 8, 8], "no stride"),
        (Op::new(Rearrange::Slice { start: [0, 1, 1], step: [1; 3] }), [2, 7, 7], "no stride"),
        (
            Op::new(AveragePool { window: Window { pads: [1; 4], ..window.clone() }, count_padding: false }),
            [2, 5, 5],
            "does not count the padding",
        ),
        (
            Op::new(AveragePool { window: Window { stride: [2, 1], ..window }, count_padding: true }),
            [2, 4, 7],
            "must have the same",
        ),
        (Op::new(Relu), [2, 8, 8], "one number a channel"),
    ] {
        let message = refused(op, shape);
        assert!(message.contains(reason) && message.contains("node 1 (odd one)"), "{message}");
    }
    let mut b = Builder::new([2, 8, 8]);
    let first = b.convolution(0, same(2, 3));
    b.convolution(first, same(2, 3));
    let message = describe(&b.graph(), 1.0).unwrap_err().to_string();
    assert!(message.contains("node 2") && message.contains("without a ReLU between"), "{message}");
}
