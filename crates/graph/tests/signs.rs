//! The choice of reduced-precision signs and of narrow activations: what it promises is measured again here.
use std::ops::RangeInclusive;

use jaguar_graph::agreement::{agreement, logit_error, private_agreement};
use jaguar_graph::float::{Add, Bias, Clip, Graph, Input, Linear, MaxPool, Node, Op, Relu};
use jaguar_graph::network::{self, Hiding, Model, NodeId, Shape, argmax};
use jaguar_graph::quantise::{
    Options as Quantise, QuantiseError, Samples, Trial, Width, calibrate, narrowest,
};
use jaguar_graph::reference::{self, Draws};
use jaguar_graph::signs::{Options, SearchStage, SignsError, apply, choose};
use jaguar_ring::cpu::Cpu;
use proptest::prelude::*;

struct Random(u64);

impl Random {
    /// In -1..1.
    fn draw(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.draw()).collect()
    }
}

/// A residual block with a ReLU, a ReLU6 and a ReLU after the sum, then a max-pool and a classifier of six classes.
fn graph(random: &mut Random) -> Graph {
    let shape: Shape = [8, 6, 6];
    let mut linear = |inputs: usize, out_channels: usize, kernel: usize, pads: usize| {
        let spec = network::Linear {
            out_channels,
            kernel: [kernel; 2],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [pads; 4],
            groups: 1,
            shift: 0,
            max_exponent: 0,
            blocks: None,
        };
        let weights = random.values(out_channels * inputs * kernel * kernel);
        Op::new(Linear { spec, weights, bias: Bias::PerChannel(random.values(out_channels)) })
    };
    let nodes = [
        (Op::new(Input), vec![], [3, 6, 6]),
        (linear(3, 8, 3, 1), vec![0], shape),
        (Op::new(Relu), vec![1], shape),
        (linear(8, 8, 3, 1), vec![2], shape),
        (Op::new(Clip { ceiling: 6.0 }), vec![3], shape),
        (linear(8, 8, 1, 0), vec![4], shape),
        (Op::new(Add), vec![5, 2], shape),
        (Op::new(Relu), vec![6], shape),
        (
            Op::new(MaxPool(network::Window { kernel: [3; 2], stride: [2; 2], pads: [0, 0, 1, 1] })),
            vec![7],
            [8, 3, 3],
        ),
        (linear(8, 6, 3, 0), vec![8], [6, 1, 1]),
    ];
    let nodes = nodes.into_iter().enumerate();
    let nodes = nodes.map(|(i, (op, inputs, shape))| Node { name: format!("n{i}"), op, inputs, shape });
    Graph { name: "test".into(), nodes: nodes.collect(), ..Graph::default() }
}

const SIGNS: [NodeId; 4] = [2, 4, 7, 8];

/// A quantised network, its inputs and the images that they were.
fn quantised(seed: u64) -> (Model, Vec<Vec<i64>>, Graph, Vec<Vec<f32>>) {
    let mut random = Random(seed | 1);
    let graph = graph(&mut random);
    let images: Vec<Vec<f32>> = (0..5).map(|_| random.values(108)).collect();
    let options = Quantise { headroom: 2.0, ..Quantise::default() };
    let (model, _) = calibrate(Cpu::detect(), &graph, &images, &options).expect("quantises");
    let inputs = images.iter().map(|x| model.network.input.quantise(x, 16)).collect();
    (model, inputs, graph, images)
}

fn price(node: NodeId, ignored: u32) -> u64 {
    // As of a comparison: a bit, and a jump where a digit goes.
    1000 * node as u64 * u64::from(30 - ignored - ignored / 4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    /// In the very runs that count, recomputed with the public reference only: same class, and errors up to what is reported,
    /// which is within the bound.
    #[test]
    fn the_bound_is_kept(seed: u64, bound in 0.001f64..0.1) {
        let (model, inputs, ..) = quantised(seed);
        let options = Options { bound, seed, ..Options::default() };
        let mut heard = 0;
        let report = choose(&model, &inputs, &price, &options, &mut |_| heard += 1).expect("chooses");
        prop_assert_eq!(report.layers.iter().map(|l| l.node).collect::<Vec<_>>(), SIGNS);
        prop_assert!(heard > 2 * 4 * 4);
        prop_assert!(report.worst_error <= bound);
        for layer in &report.layers {
            prop_assert_eq!(layer.saving, price(layer.node, 1) - price(layer.node, layer.ignored));
        }
        let mut reduced = model.clone();
        apply(&mut reduced, &report);
        prop_assert_eq!(reduced.validate(), Ok(()));
        let chosen = report.layers.iter().filter(|l| l.ignored > 1).count();
        prop_assert_eq!(reduced.network.reduced_signs(), chosen);
        let mut worst = 0f64;
        for run in 0..report.runs {
            let x = &inputs[run % inputs.len()];
            let seed = seed.wrapping_add(1 << 32).wrapping_add(run as u64);
            let logits = |run: reference::Run| model.network.output.logits(run.output());
            let got = logits(reference::run_drawn(Cpu::detect(), &reduced, x, Draws { seed, rounding: false }).expect("fits"));
            let want = logits(reference::run(Cpu::detect(), &model, x).expect("fits"));
            prop_assert_eq!(argmax(&got), argmax(&want));
            worst = worst.max(logit_error(&got, &want));
        }
        prop_assert_eq!(worst, report.worst_error);
    }
}

#[test]
fn a_wider_bound_buys_more_and_none_loses_nothing() {
    let found = |bound: f64| {
        let (model, inputs, ..) = quantised(12);
        let options = Options { bound, ..Options::default() };
        let report = choose(&model, &inputs, &price, &options, &mut |_| ()).expect("chooses");
        (report.layers.iter().map(|l| l.saving).sum::<u64>(), report.worst_error)
    };
    // A ten millionth of the logits' spread is less than a unit anywhere: not one value may be lost.
    let (least, error) = found(1e-7);
    assert_eq!(error, 0.0);
    let ((little, _), (more, _)) = (found(0.003), found(0.05));
    assert!(least < little && little < more, "{least}, {little}, {more}");
}

#[test]
fn bits_go_where_they_save_most() {
    let (model, inputs, ..) = quantised(5);
    // One layer's signs alone cost anything: the sum's, the max-pool's.
    for (place, dear) in [(2, 7), (3, 8)] {
        let price = |node, ignored| if node == dear { u64::from(30 - ignored) } else { 100 };
        let report = choose(&model, &inputs, &price, &Options::default(), &mut |_| ()).expect("chooses");
        let bits: Vec<u32> = report.layers.iter().map(|l| l.ignored).collect();
        assert!(bits.iter().enumerate().all(|(i, &bits)| (bits > 1) == (i == place)), "{bits:?}");
    }
}

#[test]
fn the_search_says_how_far_it_is() {
    let (model, inputs, ..) = quantised(3);
    let mut stages = Vec::new();
    choose(&model, &inputs, &price, &Options::default(), &mut |s| stages.push(s)).expect("chooses");
    let layers = stages.iter().filter(|s| matches!(s, SearchStage::Layers(..))).count();
    assert_eq!(stages[layers - 1], SearchStage::Layers(layers, layers));
    assert!(
        stages[layers..]
            .iter()
            .all(|s| matches!(s, SearchStage::Check(1.., done, 10) if (1..=10).contains(done)))
    );
    assert!(stages.len() > layers);
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let (model, inputs, ..) = quantised(1);
    let choose = |inputs: &[Vec<i64>], bound| {
        choose(&model, inputs, &price, &Options { bound, ..Options::default() }, &mut |_| ()).map(drop)
    };
    assert_eq!(choose(&[], 0.01), Err(SignsError::NoInputs));
    assert_eq!(choose(&inputs, 0.0), Err(SignsError::Bound(0.0)));
    assert!(matches!(choose(&inputs, f64::NAN), Err(SignsError::Bound(_))));
    assert!(matches!(choose(&[vec![0; 3]], 0.01), Err(SignsError::Reference(_))));
}

/// What an imitated private run differs by is chance of the stated size: nothing without rounding and reduced signs, little with
/// the first, more with both.
#[test]
fn imitated_runs_err_more_the_more_is_left_to_chance() {
    let (mut model, inputs, graph, images) = quantised(9);
    let exact = reference::run(Cpu::detect(), &model, &inputs[0]).expect("fits");
    let draws = |seed, rounding| Draws { seed, rounding };
    assert_eq!(reference::run_drawn(Cpu::detect(), &model, &inputs[0], draws(1, false)), Ok(exact.clone()));
    let rounded = reference::run_drawn(Cpu::detect(), &model, &inputs[0], draws(1, true)).expect("fits");
    // The first layer's inputs are equal, so its outputs are neighbours.
    assert_ne!(rounded.values[1], exact.values[1]);
    assert!(rounded.values[1].iter().zip(&exact.values[1]).all(|(a, b)| (a - b).abs() <= 1));
    assert_eq!(reference::run_drawn(Cpu::detect(), &model, &inputs[0], draws(1, true)), Ok(rounded.clone()));
    assert_ne!(reference::run_drawn(Cpu::detect(), &model, &inputs[0], draws(2, true)), Ok(rounded));

    let of = |model: &Model| {
        private_agreement(Cpu::detect(), &graph, model, &images, 1).expect("fits").worst_relative_error
    };
    let before = of(&model);
    assert!(before < 0.01);
    for node in SIGNS {
        *model.network.nodes[node].op.ignored_mut().expect("has signs") = 10;
    }
    assert!(of(&model) > 3.0 * before);
    // The exact comparison takes no notice.
    assert!(agreement(Cpu::detect(), &graph, &model, &images).expect("fits").worst_relative_error < 0.01);
}

#[test]
fn the_error_of_logits_is_relative_to_their_spread() {
    let want = [1.0, 3.0, 5.0];
    // A common shift says nothing; three of them differ from their mean by 0, 1 and 1 where the spread is 2 and 2.
    assert!(logit_error(&[8.0, 10.0, 12.0], &want) < 1e-12);
    assert!((logit_error(&[0.0, 3.0, 6.0], &want) - 0.5).abs() < 1e-12);
    assert_eq!(logit_error(&want, &want), 0.0);
    assert!((logit_error(&[11.0], &[10.0]) - 0.1).abs() < 1e-12);
    assert!(logit_error(&[1.0, 2.0], &[1.0, 1.0]).is_infinite());
}

fn widths(bits: RangeInclusive<u32>) -> Vec<Width> {
    bits.map(|activation_bits| Width { activation_bits, hiding: Hiding::default() }).collect()
}

#[test]
fn the_narrowest_width_that_keeps_the_bound_is_taken() {
    let (_, _, graph, images) = quantised(21);
    let samples = Samples::new(Cpu::detect(), &graph, &images, &mut |_| ()).expect("images that fit");
    let find = |bound: f64| {
        let mut tried = Vec::new();
        let mut note = |trial: Trial<'_>| {
            if let Trial::Width(width, found) = trial {
                tried.push((width.activation_bits, found.map(|f| f.worst_relative_error)));
            }
        };
        let options = Quantise::default();
        let chosen = narrowest(&samples, &options, &widths(10..=16), bound, &mut note).expect("quantises");
        (chosen, tried)
    };
    let (chosen, tried) = find(0.02);
    let bits = chosen.model.network.activation_bits;
    assert!(chosen.kept && (11..16).contains(&bits), "{bits}, {tried:?}");
    assert_eq!(tried.iter().map(|t| t.0).collect::<Vec<_>>(), (10..=bits).collect::<Vec<_>>());
    assert!(tried[..tried.len() - 1].iter().all(|t| t.1.is_none_or(|e| e > 0.02)), "{tried:?}");
    assert!(chosen.held_out.worst_relative_error <= 0.02);
    // Where none does, the one that comes nearest, and it says so.
    let (chosen, tried) = find(1e-9);
    assert!(!chosen.kept && chosen.model.network.activation_bits == 16 && tried.len() == 7);
    let none = narrowest(&samples, &Quantise::default(), &widths(30..=31), 0.1, &mut |_| ());
    assert!(matches!(none, Err(QuantiseError::Option { .. })));
}
