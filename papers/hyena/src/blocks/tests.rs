//! The packing against the integer reference, in plain slots; the published counts.

use jaguar_graph::network::{BLOCK_SIZES, Bias, BlockKind, Blocks, Linear, Shape, Weights, block_size};
use jaguar_graph::reference::linear_exact;
use jaguar_ring::Kernel;
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::rns::Batch;
use jaguar_ring::modular::Modulus;
use jaguar_ring::prg::Prg;
use proptest::prelude::*;

use super::packing::Term;
use super::*;
use crate::PlainPrime;

fn spec(out: usize, kernel: usize, stride: usize, pad: usize) -> Linear {
    Linear {
        out_channels: out,
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1; 2],
        pads: [pad; 4],
        groups: 1,
        shift: 10,
        max_exponent: 0,
        blocks: None,
    }
}

fn signed(prg: &mut Prg, bits: u32) -> i64 {
    (prg.next_u64() >> (64 - bits)) as i64 - (1 << (bits - 1))
}

/// Random weights that have the layer's blocks.
fn weights(spec: &Linear, in_channels: usize, prg: &mut Prg) -> Weights {
    let each = in_channels / spec.groups;
    let area = spec.kernel[0] * spec.kernel[1];
    let mut weights: Vec<i16> = (0..spec.out_channels * each * area).map(|_| signed(prg, 8) as i16).collect();
    if let Some(blocks) = spec.blocks {
        blocks.repeat(&mut weights, each, spec.kernel);
    }
    Weights {
        weights,
        exponents: vec![0; spec.out_channels],
        bias: Bias::PerChannel(vec![0; spec.out_channels]),
    }
}

/// Both rows of `slots`, turned by the automorphism `element` (through a polynomial).
fn turned(batch: &Batch, m: &Modulus, slots: &[u64], element: usize) -> Vec<u64> {
    let n = slots.len();
    let poly = batch.encode(slots);
    let mut image = vec![0; n];
    for (i, &c) in poly.iter().enumerate() {
        let at = i * element % (2 * n);
        image[at % n] = if at < n { c } else { m.negate(c) };
    }
    batch.decode(&image)
}

/// Runs a layer in plain slots, as the server does in ciphertexts.
fn in_slots(packing: &BlockPacking, p: u64, x: &[i64], weights: &Weights) -> Vec<i64> {
    let n = packing.slots();
    let (batch, m) = (Batch::new(n, p).unwrap(), Modulus::new(p));
    let kind = packing.spec().blocks.map_or(BlockKind::Skew, |blocks| blocks.kind);
    let parts = Parts::new(Kernel::of(Cpu::detect()), packing.part(), kind, p).unwrap();
    let x: Vec<u64> = x.iter().map(|&v| m.reduce_signed(v)).collect();
    let each = packing.in_shape()[0] / packing.spec().groups;
    let area = packing.spec().kernel.iter().product::<usize>();
    let weight = |out: usize, channel: usize, tap: usize| {
        i64::from(weights.weights[(out * each + channel % each) * area + tap])
    };
    let mut output = vec![0; packing.out_shape().iter().product()];
    for group in 0..packing.groups() {
        let inputs: Vec<Vec<u64>> = (0..packing.in_blocks())
            .map(|block| {
                let mut slots = vec![0; n];
                packing.write_inputs(group, block, &x, &mut slots);
                parts.forward(&mut slots);
                slots
            })
            .collect();
        for block in 0..packing.out_blocks() {
            let mut total = vec![0; n];
            for (giant, terms) in packing.terms(block) {
                let mut sum = vec![0; n];
                for term in terms {
                    let mut plain = packing.weights(&m, block, giant, term, weight);
                    parts.forward(&mut plain);
                    let input = turned(&batch, &m, &inputs[term.0], packing.element(term.1));
                    let products = input.iter().zip(&plain).map(|(&x, &w)| m.mul(x, w));
                    sum.iter_mut().zip(products).for_each(|(sum, product)| *sum = m.add(*sum, product));
                }
                let sum = turned(&batch, &m, &sum, packing.element(giant));
                total.iter_mut().zip(sum).for_each(|(total, sum)| *total = m.add(*total, sum));
            }
            parts.backward(&mut total);
            for (at, place) in packing.outputs_of(group, block) {
                output[place] = m.centred(total[at]);
            }
        }
    }
    output
}

fn any_layer() -> impl Strategy<Value = (Linear, Shape)> {
    let size = prop_oneof![Just(1usize), prop::sample::select(&BLOCK_SIZES[..])];
    let kind = prop_oneof![Just(BlockKind::Skew), Just(BlockKind::Circulant)];
    let extents = (1usize..9, 1usize..9, 1usize..4, 1usize..4, 1usize..3, 1usize..3);
    let pads = prop::array::uniform4(0usize..3);
    (size, kind, (1usize..6, 1usize..6), extents, pads, 0usize..3).prop_map(
        |(size, kind, (blocks_in, blocks_out), (h, w, kh, kw, stride, dilation), pads, grouped)| {
            let blocks = (size > 1).then_some(Blocks { size, kind });
            let (input, out) = (size * blocks_in, size * blocks_out);
            // Depthwise, or two groups.
            let (input, out, groups) = match (size, grouped) {
                (1, 1) => (input, input * blocks_out.min(2), input),
                (1, 2) => (2 * input, 2 * out, 2),
                _ => (input, out, 1),
            };
            let spec = Linear {
                kernel: [kh, kw],
                stride: [stride; 2],
                dilation: [dilation; 2],
                pads,
                groups,
                blocks,
                ..spec(out, 1, 1, 0)
            };
            (spec, [input, h, w])
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn slots_compute_the_layer((spec, in_shape) in any_layer(), which in any::<prop::sample::Index>(), seed: u64) {
        let n = 256;
        let all = BlockPacking::all(n, &spec, in_shape);
        prop_assume!(!all.is_empty());
        let packing = &all[which.index(all.len())];
        let mut prg = Prg::derive(&[2; 32], "cirencode", &[seed]);
        let weights = weights(&spec, in_shape[0], &mut prg);
        let x: Vec<i64> = (0..in_shape.iter().product()).map(|_| signed(&mut prg, 10)).collect();
        let expected = linear_exact(Cpu::detect(), &spec, in_shape, &weights, &x);
        let p = PlainPrime::new(n, 30).unwrap().p;
        prop_assert_eq!(in_slots(packing, p, &x, &weights), expected);
    }

    /// What is turned and multiplied is what brings a pair together, and no more.
    #[test]
    fn terms_are_those_that_bring_pairs_together((spec, in_shape) in any_layer()) {
        for packing in BlockPacking::all(128, &spec, in_shape) {
            let mut counts = Counts { ciphertexts: packing.ciphertexts() + packing.responses(), ..Counts::default() };
            let mut babies = vec![vec![false; packing.babies()]; packing.in_blocks()];
            for output in 0..packing.out_blocks() {
                let mut expected = Vec::new();
                for giant in (0..packing.parts()).step_by(packing.babies()) {
                    let terms = (0..packing.in_blocks()).flat_map(|i| (0..packing.babies()).map(move |b| (i, b)));
                    let meet = |term: &Term| (0..packing.parts()).any(|r| packing.pair(output, giant, *term, r).is_some());
                    let terms: Vec<Term> = terms.filter(meet).collect();
                    terms.iter().for_each(|&(input, baby)| babies[input][baby] = true);
                    counts.products += packing.groups() * terms.len();
                    if !terms.is_empty() {
                        counts.rotations += packing.groups() * usize::from(giant != 0);
                        expected.push((giant, terms));
                    }
                }
                prop_assert_eq!(packing.terms(output), expected);
            }
            let turned = babies.iter().flatten().filter(|used| **used).count();
            let unmoved = babies.iter().filter(|babies| babies[0]).count();
            counts.rotations += packing.groups() * (turned - unmoved);
            prop_assert_eq!(packing.counts(), counts);
        }
    }
}

/// The fewest rotations of those with the fewest ciphertexts and products.
fn best(spec: &Linear, in_shape: Shape) -> Counts {
    let counts = BlockPacking::all(8192, spec, in_shape).into_iter().map(|packing| packing.counts());
    counts.min_by_key(|c| (c.ciphertexts, c.products, c.rotations)).unwrap()
}

/// PrivCirNet, Table 4: N = 8192, b = 8. Its baselines are the same without blocks (Bolt with the baby-step giant-step
/// method for the matrix product, Neujeans for the convolution).
#[test]
fn counts_are_the_papers() {
    let counts = |products, rotations, ciphertexts| Counts { products, rotations, ciphertexts };
    let blocks = Some(Blocks { size: 8, kind: BlockKind::Circulant });
    // (512, 768, 3072): 512 columns are the places of a map.
    let product = spec(3072, 1, 1, 0);
    assert_eq!(best(&Linear { blocks, ..product.clone() }, [768, 16, 32]), counts(18_432, 48, 240));
    assert_eq!(best(&product, [768, 16, 32]), counts(147_456, 528, 240));
    // 16 × 16, 128 to 128 channels, 3 × 3.
    let convolution = spec(128, 3, 1, 1);
    assert_eq!(best(&Linear { blocks, ..convolution.clone() }, [128, 16, 16]), counts(128, 8, 16));
    assert_eq!(best(&convolution, [128, 16, 16]), counts(1024, 48, 16));
    assert_eq!(block_size(&convolution), 1);
}

/// A circulant block of b is four blocks of b/2, with channels in another order. To run it as them would take a layer with blocks of b/2,
/// and that is never cheaper: not even where a map is cut into many windows for b. So no layer does it.
#[test]
fn no_layer_is_cheaper_as_one_with_smaller_blocks() {
    for (layer, in_shape) in [
        (spec(64, 3, 1, 1), [64, 56, 56]),
        (spec(128, 3, 2, 1), [64, 56, 56]),
        (spec(64, 1, 1, 0), [256, 56, 56]),
        (spec(64, 3, 1, 1), [64, 32, 32]),
        (spec(64, 5, 1, 2), [64, 32, 32]),
        (spec(128, 3, 1, 1), [128, 28, 28]),
        (spec(256, 3, 1, 1), [256, 14, 14]),
        (spec(512, 3, 1, 1), [512, 7, 7]),
        (spec(1024, 1, 1, 0), [256, 14, 14]),
        (spec(1008, 1, 1, 0), [512, 1, 1]),
    ] {
        let seconds = |size: usize| {
            let blocks = (size > 1).then_some(Blocks { size, kind: BlockKind::Circulant });
            let wanted = crate::Wanted {
                form: crate::Form::Blocks,
                spec: &Linear { blocks, ..layer.clone() },
                in_shape,
                activation_bits: 16,
                weight_bits: 12,
                weight_memory: 4 << 30,
            };
            crate::search(&[wanted]).expect("a ring").weighed[0].seconds
        };
        let all: Vec<f64> = std::iter::once(1).chain(BLOCK_SIZES).map(seconds).collect();
        assert!(all.is_sorted_by(|smaller, larger| smaller >= larger), "{in_shape:?} {layer:?}: {all:?}");
    }
}
