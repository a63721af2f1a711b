//! Layers with skew-circulant blocks: the same as the layer that the reference reads as a dense one.

use std::collections::HashSet;

use jaguar_graph::network::{Blocks, Linear, Shape};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::PublicSeed;
use proptest::prelude::*;

use super::tests::{Case, WEIGHT_BITS, assert_unbiased, make_bit_by_bit};
use super::*;
use crate::layout::{MAX_SECRETS, Packing};

fn skew(size: usize, out: usize, kernel: usize, stride: usize) -> Linear {
    Linear { stride: [stride; 2], blocks: Some(Blocks::skew(size)), ..Linear::same(out, kernel, 10) }
}

fn blocked(spec: &Linear, in_shape: Shape) -> Layout {
    Layout::blocked(2048, spec, in_shape, Packing::default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// In every number of parts that the blocks allow, several tiles under several secrets among them.
    #[test]
    fn any_layer_in_blocks_bit_for_bit(
        (h, w) in (1usize..10, 1usize..10),
        kernel in prop::array::uniform2(1usize..4),
        stride in prop::array::uniform2(1usize..3),
        pads in prop::array::uniform4(0usize..3),
        (log_b, ins, outs) in (1u32..5, 1usize..3, 1usize..3),
        shift in 1u32..16,
        max_exponent in 0u32..8,
        log_n in 5u32..10,
        log_parts in 0u32..5,
        seed: u64,
        extreme: bool,
    ) {
        prop_assume!(h + pads[0] + pads[2] >= kernel[0] && w + pads[1] + pads[3] >= kernel[1]);
        let b = 1 << log_b;
        let spec = Linear { kernel, stride, pads, shift, max_exponent, ..skew(b, outs * b, 1, 1) };
        let params = Parameters::insecure_noiseless(1 << log_n, 32);
        let parts = 1 << log_parts.min(log_b);
        if let Ok(layout) = Layout::in_parts(1 << log_n, &spec, [ins * b, h, w], Packing::default(), parts)
            && let Some(case) = Case::over(params, layout, (16, WEIGHT_BITS), seed, extreme)
        {
            case.check_bit_for_bit();
        }
    }
}

#[test]
fn real_parameters_within_one_ulp() {
    let mut errors = Vec::new();
    for (seed, (spec, shape, parts)) in [
        (skew(8, 16, 3, 1), [16, 14, 14], 8),
        (skew(8, 16, 3, 1), [8, 56, 56], 8),
        (skew(16, 32, 3, 1), [64, 7, 7], 16),
        (skew(16, 32, 3, 1), [16, 14, 14], 8),
        (skew(16, 32, 1, 2), [16, 28, 28], 16),
        (skew(4, 8, 1, 1), [3000, 1, 1], 4),
        (Linear { max_exponent: 3, ..skew(2, 6, 3, 2) }, [4, 28, 28], 2),
    ]
    .into_iter()
    .enumerate()
    {
        let layout = blocked(&spec, shape);
        assert_eq!(layout.parts(), parts, "{spec:?}");
        for extreme in [false, true] {
            let case =
                Case::over(Parameters::DEFAULT, layout.clone(), (16, WEIGHT_BITS), seed as u64, extreme)
                    .expect("layer fits");
            let mean = case.check_within_one_ulp();
            if !extreme {
                errors.push((mean, case.layer.layout.outputs()));
            }
        }
    }
    assert_unbiased(&errors);
}

/// A layer in blocks adds up as many products of the same weights as the dense one: the bounds of its noise are the same.
#[test]
fn blocks_change_counts_and_no_noise() {
    for (size, shape, kernel) in
        [(8, [64, 14, 14], 3), (16, [64, 7, 7], 3), (8, [64, 56, 56], 3), (4, [64, 28, 28], 1)]
    {
        let spec = skew(size, 64, kernel, 1);
        let plan = |layout| Layer::new(Parameters::DEFAULT, layout, 0, 16, 14, false).unwrap();
        let layer = plan(blocked(&spec, shape));
        let dense = plan(Layout::new(2048, &Linear { blocks: None, ..spec }, shape).unwrap());
        assert_eq!(layer.noise_ulps(), dense.noise_ulps());
        assert_eq!(layer.upload_bits, dense.upload_bits);
        assert_eq!(layer.hint_response_bytes(), dense.hint_response_bytes());
        // One response of the hint for a block, however many tiles there are.
        assert_eq!(layer.hint_responses(), 64 / size);
        assert_eq!(layer.hint_bytes() * size * dense.layout.tiles().len(), dense.hint_bytes());
        assert_eq!(layer.secrets(), layer.layout.tiles().len());
        assert_eq!(dense.secrets(), 1);
    }
}

/// More tiles than a query has secrets: sets of tiles share hints, and no a half is used twice under one secret.
#[test]
fn tiles_beyond_the_secrets() {
    let spec = skew(8, 8, 3, 1);
    let layout = Layout::in_parts(2048, &spec, [8, 80, 80], Packing::default(), 8).unwrap();
    let case = Case::over(Parameters::DEFAULT, layout, (16, WEIGHT_BITS), 5, false).unwrap();
    let layer = &case.layer;
    let tiles = layer.layout.tiles().len();
    assert!(tiles > MAX_SECRETS && layer.secrets() == MAX_SECRETS);
    assert_eq!(layer.hint_responses(), tiles.div_ceil(MAX_SECRETS));
    let mut used = HashSet::new();
    for i in 0..layer.layout.ciphertexts() {
        let secret = i / layer.layout.ciphertexts_per_tile() % layer.secrets();
        assert!(used.insert((layer.a_of(i), secret)), "ciphertext {i}");
    }
    case.check_within_one_ulp();
}

/// Nothing that the client opens or the server answers with repeats between the parts and tiles of one hint: every opened
/// coefficient has its own mask.
#[test]
fn tiles_of_one_hint_share_no_phase() {
    let layout = blocked(&skew(8, 8, 3, 1), [8, 28, 28]);
    assert_eq!(layout.tiles().len(), 4);
    let mut case = Case::over(Parameters::DEFAULT, layout, (16, WEIGHT_BITS), 2, false).unwrap();
    // The same values in every tile.
    case.x.fill(1234);
    let (_, _, phases) = case.run(1);
    let distinct: HashSet<_> = phases.iter().collect();
    assert_eq!(distinct.len(), phases.len());
}

#[test]
fn outputs_come_block_by_block() {
    for (seed, (spec, shape)) in [
        (skew(8, 128, 3, 1), [16, 14, 14]),
        (skew(16, 256, 3, 1), [16, 14, 14]),
        (skew(4, 96, 1, 1), [64, 1, 1]),
        (skew(8, 64, 3, 1), [8, 56, 56]),
    ]
    .into_iter()
    .enumerate()
    {
        let case =
            Case::over(Parameters::DEFAULT, blocked(&spec, shape), (16, WEIGHT_BITS), seed as u64, false)
                .unwrap();
        let layer = &case.layer;
        let server = ServerLayer::new(Cpu::detect(), layer.clone(), &case.weights, WEIGHT_BITS);
        let begin = || case.begin(&server, seed as u64);
        let whole = begin().finish();
        let mut output = begin();
        make_bit_by_bit(&server, &mut output, seed as u64);
        assert_eq!(*output.ready(), whole[..output.ready().len()]);
        assert!(output.finish() == whole, "layer {seed}");
        let mut output = begin();
        output.together = server.channels_indivisible();
        let mut made = 0;
        while output.ready().len() < whole.len() {
            output.make(output.ready().len() + 1);
            made += 1;
        }
        assert_eq!(
            made,
            layer.layout.spec().out_channels.div_ceil(server.channels_indivisible()),
            "layer {seed}"
        );
    }
}

/// The online product by frequencies is that of limb planes, bit for bit, whatever b holds; with dropped bits and without.
#[test]
fn online_is_the_same_from_limbs_and_from_frequencies() {
    let mut transformed_ones = 0;
    for (seed, (spec, shape)) in [
        (skew(8, 128, 3, 1), [64, 14, 14]),
        (skew(16, 256, 3, 1), [64, 7, 7]),
        (skew(8, 64, 3, 1), [64, 28, 28]),
        (skew(4, 64, 1, 1), [512, 1, 1]),
    ]
    .into_iter()
    .enumerate()
    {
        for opened in [false, true] {
            let case = Case::over(
                Parameters::DEFAULT,
                blocked(&spec, shape),
                (16, WEIGHT_BITS),
                3 * seed as u64,
                false,
            );
            let mut case = case.unwrap();
            case.layer =
                Layer::new(Parameters::DEFAULT, blocked(&spec, shape), 3, 16, WEIGHT_BITS, opened).unwrap();
            let layer = &case.layer;
            assert_eq!(layer.low_zeros() == 0, opened);
            let plain = ServerLayer::from_limbs(Cpu::detect(), layer.clone(), &case.weights, WEIGHT_BITS);
            let server = ServerLayer::new(Cpu::detect(), layer.clone(), &case.weights, WEIGHT_BITS);
            transformed_ones += usize::from(server.transforms_online());
            assert!(!plain.transforms_online());
            let [found, expected] = [&server, &plain].map(|server| case.begin(server, seed as u64).finish());
            assert!(found == expected, "layer {seed}");
        }
    }
    assert!(transformed_ones > 0);
}

#[test]
fn the_a_half_is_the_same_from_limbs_and_from_frequencies() {
    let public = PublicSeed([3; 32]);
    let mut transformed_ones = 0;
    for (seed, (spec, shape)) in [
        (skew(8, 64, 3, 1), [64, 14, 14]),
        (skew(16, 64, 1, 1), [256, 7, 7]),
        (skew(8, 16, 3, 1), [64, 28, 28]),
    ]
    .into_iter()
    .enumerate()
    {
        let case =
            Case::over(Parameters::DEFAULT, blocked(&spec, shape), (16, WEIGHT_BITS), seed as u64, false)
                .unwrap();
        let plain = ServerLayer::from_limbs(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        let transformed = ServerLayer::new(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        transformed_ones += usize::from(transformed.spectral().is_some());
        assert!(transformed.a_half(&public) == plain.a_half(&public), "layer {seed}");
        assert_eq!(plain.a_half(&public).len(), case.layer.hint_responses() * 2048);
    }
    assert!(transformed_ones > 0);
}
