//! Layers of several images at once: the same as each image by itself.

use std::collections::HashSet;

use jaguar_graph::network::{Blocks, Linear};
use jaguar_ring::cpu::Cpu;
use jaguar_ring::he::power_of_two::PublicSeed;
use proptest::prelude::*;

use super::tests::{Case, WEIGHT_BITS, assert_unbiased, make_bit_by_bit};
use super::*;
use crate::layout::{MAX_SECRETS, Packing};

const N: usize = 2048;

fn of_images(spec: &Linear, in_shape: [usize; 3], images: usize) -> Layout {
    Layout::of_images(N, spec, in_shape, Packing::default(), images).unwrap()
}

fn depthwise(channels: usize, stride: usize) -> Linear {
    Linear { groups: channels, stride: [stride; 2], ..Linear::same(channels, 3, 10) }
}

/// Layers of real networks, with what they become in a batch of 16: images interleaved, tiles.
fn real_layers() -> Vec<(Linear, [usize; 3], (usize, usize))> {
    let fc = Linear { pads: [0; 4], kernel: [4, 4], ..Linear::same(10, 1, 10) };
    vec![
        (Linear::same(16, 3, 10), [16, 7, 7], (16, 1)),
        (Linear::same(32, 1, 10), [24, 7, 7], (16, 1)),
        (Linear::same(10, 1, 10), [300, 1, 1], (16, 1)),
        (fc, [12, 4, 4], (16, 1)),
        (Linear::same(8, 3, 10), [8, 14, 14], (8, 2)),
        (depthwise(24, 1), [24, 14, 14], (8, 2)),
        (depthwise(16, 2), [16, 14, 14], (16, 1)),
        (Linear { stride: [2, 2], ..Linear::same(8, 3, 10) }, [4, 28, 28], (16, 2)),
        (Linear::same(4, 1, 10), [4, 28, 28], (16, 7)),
        (Linear { max_exponent: 3, ..Linear::same(2, 3, 10) }, [2, 56, 56], (1, 32)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    /// However many of the images are interleaved, in every number of parts.
    #[test]
    fn any_layer_of_images_bit_for_bit(
        (h, w) in (1usize..8, 1usize..8),
        kernel in prop::array::uniform2(1usize..4),
        stride in prop::array::uniform2(1usize..3),
        dilation in prop::array::uniform2(1usize..3),
        pads in prop::array::uniform4(0usize..3),
        (groups, cg, og) in (1usize..3, 1usize..4, 1usize..4),
        (log_b, log_parts) in (0u32..4, 0u32..4),
        (log_images, log_interleaved) in (0u32..5, 0u32..5),
        shift in 1u32..16,
        max_exponent in 0u32..8,
        log_n in 5u32..10,
        packing in prop_oneof![Just(Packing::PowerOfTwo), Just(Packing::Tight)],
        seed: u64,
        extreme: bool,
    ) {
        prop_assume!(h + pads[0] + pads[2] > dilation[0] * (kernel[0] - 1));
        prop_assume!(w + pads[1] + pads[3] > dilation[1] * (kernel[1] - 1));
        // With groups or in blocks.
        let b = if groups == 1 { 1 << log_b } else { 1 };
        let blocks = (b > 1).then(|| Blocks::skew(b));
        let parts = 1 << log_parts.min(b.trailing_zeros());
        let spec = Linear {
            kernel, stride, dilation, pads, groups, shift, max_exponent, blocks, out_channels: groups * og * b,
        };
        let params = Parameters::insecure_noiseless(1 << log_n, 32);
        let images = (parts, 1 << log_images, 1 << log_interleaved.min(log_images));
        let in_shape = [groups * cg * b, h, w];
        if let Ok(layout) = Layout::with_images(1 << log_n, &spec, in_shape, packing, images)
            && let Some(case) = Case::over(params, layout, (16, WEIGHT_BITS), seed, extreme)
        {
            case.check_bit_for_bit();
        }
    }
}

#[test]
fn real_parameters_within_one_ulp() {
    let mut errors = Vec::new();
    for (seed, (spec, shape, expected)) in real_layers().into_iter().enumerate() {
        let layout = of_images(&spec, shape, 16);
        assert_eq!((layout.interleaved(), layout.tiles().len()), expected, "{spec:?} {shape:?}");
        let case =
            Case::over(Parameters::DEFAULT, layout, (16, WEIGHT_BITS), seed as u64, seed % 4 == 3).unwrap();
        let mean = case.check_within_one_ulp();
        if seed % 4 != 3 {
            errors.push((mean, case.layer.layout.outputs()));
        }
    }
    assert_unbiased(&errors);
}

/// A batch of one is the layer as it is without batches, to the last figure that a hint is bound to.
#[test]
fn a_batch_of_one_is_no_batch() {
    for (spec, shape, _) in real_layers() {
        let single = Layout::blocked(N, &spec, shape, Packing::default()).unwrap();
        assert_eq!(of_images(&spec, shape, 1), single);
    }
}

/// What a batch takes, against as many queries of one image: never more responses, hardly more bytes; noise is the same.
#[test]
fn a_batch_takes_no_more_than_its_images() {
    let plan = |layout| Layer::new(Parameters::DEFAULT, layout, 0, 16, 14, false).unwrap();
    for (spec, shape, _) in real_layers() {
        let single = plan(of_images(&spec, shape, 1));
        for images in [2, 4, 8, 16, 32, 64] {
            let layer = plan(of_images(&spec, shape, images));
            let what = format!("{spec:?} {shape:?} of {images}");
            assert_eq!(layer.noise_ulps(), single.noise_ulps(), "{what}");
            assert!(layer.layout.responses() <= images * single.layout.responses(), "{what}");
            assert!(layer.hint_bytes() <= single.hint_bytes() * layer.sets().max(1), "{what}");
            // More tiles may have more halos.
            assert!(4 * layer.upload_bytes() <= 5 * images * single.upload_bytes(), "{what}");
            assert_eq!(layer.upload_bits, single.upload_bits, "{what}");
            assert_eq!(layer.secrets(), layer.layout.tiles().len().min(MAX_SECRETS), "{what}");
        }
    }
}

/// Over all images and tiles of a batch no a half meets a secret twice: not even where groups of images outnumber the secrets.
#[test]
fn no_a_half_meets_a_secret_twice() {
    for (images, interleaved) in [(16, 1), (64, 1), (64, 2), (32, 8)] {
        let spec = Linear::same(3, 3, 10);
        let layout =
            Layout::with_images(N, &spec, [9, 28, 28], Packing::default(), (1, images, interleaved)).unwrap();
        let case = Case::over(Parameters::DEFAULT, layout, (16, WEIGHT_BITS), 5, false).unwrap();
        let layer = &case.layer;
        let mut used = HashSet::new();
        for i in 0..layer.layout.ciphertexts() {
            let secret = i / layer.layout.ciphertexts_per_tile() % layer.secrets();
            assert!(used.insert((layer.a_of(i), secret)), "ciphertext {i}");
        }
        assert_eq!(layer.hint_responses(), layer.layout.tiles().len().div_ceil(MAX_SECRETS) * 3);
        case.check_within_one_ulp();
    }
}

/// Equal images do not look alike: every opened coefficient of every image has its own mask, and equal words are sent for none.
#[test]
fn equal_images_share_no_phase() {
    for interleaved in [1, 4, 16] {
        let spec = Linear::same(4, 3, 10);
        let layout =
            Layout::with_images(N, &spec, [4, 10, 10], Packing::default(), (1, 16, interleaved)).unwrap();
        let mut case = Case::over(Parameters::DEFAULT, layout, (16, WEIGHT_BITS), 2, false).unwrap();
        case.x.fill(1234);
        let (client, server, phases) = case.run(1);
        let distinct: HashSet<_> = phases.iter().collect();
        assert_eq!(distinct.len(), phases.len());
        let [_, h, w] = case.layer.layout.out_shape();
        for shares in [&client, &server] {
            for channel in shares.chunks(16 * h * w) {
                let planes: HashSet<&[u64]> = channel.chunks(h * w).collect();
                assert_eq!(planes.len(), 16);
            }
        }
    }
}

#[test]
fn outputs_come_block_by_block() {
    for (seed, (spec, shape, _)) in real_layers().into_iter().enumerate() {
        let case = Case::over(
            Parameters::DEFAULT,
            of_images(&spec, shape, 8),
            (16, WEIGHT_BITS),
            seed as u64,
            false,
        );
        let case = case.unwrap();
        let server = ServerLayer::new(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        let begin = || case.begin(&server, seed as u64);
        let whole = begin().finish();
        let mut output = begin();
        make_bit_by_bit(&server, &mut output, seed as u64);
        assert!(output.finish() == whole, "layer {seed}");
    }
}

#[test]
fn the_a_half_is_the_same_from_limbs_and_from_frequencies() {
    let public = PublicSeed([3; 32]);
    let mut transformed_ones = 0;
    for (seed, (spec, shape, interleaved)) in [
        (Linear::same(32, 1, 10), [256, 4, 4], 16),
        (Linear::same(64, 1, 10), [512, 1, 1], 16),
        (Linear { blocks: Some(Blocks::skew(8)), ..Linear::same(64, 3, 10) }, [64, 7, 7], 4),
    ]
    .into_iter()
    .enumerate()
    {
        let parts = jaguar_graph::network::block_size(&spec);
        let layout =
            Layout::with_images(N, &spec, shape, Packing::default(), (parts, 16, interleaved)).unwrap();
        let case = Case::over(Parameters::DEFAULT, layout, (16, WEIGHT_BITS), seed as u64, false).unwrap();
        let plain = ServerLayer::from_limbs(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        let server = ServerLayer::new(Cpu::detect(), case.layer.clone(), &case.weights, WEIGHT_BITS);
        transformed_ones += usize::from(server.spectral().is_some());
        assert!(server.a_half(&public) == plain.a_half(&public), "layer {seed}");
        let [found, expected] = [&server, &plain].map(|server| case.begin(server, seed as u64).finish());
        assert!(found == expected, "layer {seed}");
    }
    assert!(transformed_ones > 0);
}
