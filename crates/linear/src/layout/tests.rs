//! The layout against the convolution from its definition, on plain numbers in place of ciphertexts.

use proptest::prelude::*;

use super::*;

/// The convolution from its definition.
fn direct(spec: &Linear, [c_in, h, w]: Shape, [_, oh, ow]: Shape, weights: &[i64], x: &[i64]) -> Vec<i64> {
    let (cg, og) = (c_in / spec.groups, spec.out_channels / spec.groups);
    let mut out = Vec::new();
    for d in 0..spec.out_channels {
        for y in 0..oh {
            for z in 0..ow {
                let mut sum = 0;
                for c in 0..cg {
                    for u in 0..spec.kernel[0] {
                        for v in 0..spec.kernel[1] {
                            let iy = (y * spec.stride[0] + u * spec.dilation[0]).wrapping_sub(spec.pads[0]);
                            let iz = (z * spec.stride[1] + v * spec.dilation[1]).wrapping_sub(spec.pads[1]);
                            if iy < h && iz < w {
                                let wt = weights[((d * cg + c) * spec.kernel[0] + u) * spec.kernel[1] + v];
                                sum += wt * x[((d / og * cg + c) * h + iy) * w + iz];
                            }
                        }
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

/// The convolution through the layout, on plain numbers in place of ciphertexts. Coefficients that are not
/// read hold garbage.
fn through(layout: &Layout, weights: &[i64], x: &[i64]) -> Vec<i64> {
    let n = layout.ring_dim();
    let [c_out, oh, ow] = layout.out_shape();
    let mut out = vec![i64::MIN; c_out * oh * ow];
    let og = c_out / layout.spec().groups;
    let per = layout.terms_per_output();
    for tile in layout.tiles() {
        let cts: Vec<Vec<i64>> = (0..layout.ciphertexts_per_tile())
            .map(|i| {
                let contents = layout.contents(tile, i);
                let mut words = vec![1 << 40; n];
                contents.read.iter().for_each(|&r| words[r as usize] = 0);
                for &(at, from) in &contents.data {
                    assert!(contents.read.binary_search(&at).is_ok());
                    assert_eq!(words[at as usize], 0, "two values in one place");
                    words[at as usize] = x[from as usize];
                }
                words
            })
            .collect();
        for row in 0..layout.responses_per_tile() {
            let first = layout.channel(row, 0);
            let terms = layout.terms(first / og);
            for part in 0..layout.parts() {
                let d = layout.channel(row, part);
                for (from, to, len) in layout.exports(tile) {
                    for k in 0..len {
                        let at = |off: usize| part * layout.part_len() + from + k + off;
                        out[d * oh * ow + to + k] = terms
                            .iter()
                            .zip(&weights[first * per..])
                            .map(|(&(ct, off), &w)| {
                                let word = cts[ct][at(off) % n];
                                w * if at(off) < n { word } else { -word }
                            })
                            .sum();
                    }
                }
            }
        }
    }
    out
}

fn check(ring_dim: usize, spec: &Linear, in_shape: Shape) -> Layout {
    let tight = Layout::with_packing(ring_dim, spec, in_shape, Packing::Tight).unwrap();
    let layout = Layout::new(ring_dim, spec, in_shape).unwrap();
    for layout in [&tight, &layout] {
        // The kernels read 2N words of each row.
        let furthest = (0..spec.groups).flat_map(|g| layout.terms(g)).map(|(_, shift)| shift).max().unwrap();
        assert!(furthest <= ring_dim, "{spec:?} {in_shape:?}: a shift of {furthest}");
        assert!(layout.tiles().iter().all(|tile| furthest + layout.export_len(tile) <= 2 * ring_dim));
    }
    // The packing concerns ciphertexts alone, and a tight one never takes more.
    assert_eq!(tight.responses(), layout.responses());
    assert!(
        tight.maps_per_ciphertext() >= layout.maps_per_ciphertext()
            && tight.ciphertexts() <= layout.ciphertexts()
    );
    compare(&tight, spec, in_shape);
    compare(&layout, spec, in_shape);
    layout
}

fn compare(layout: &Layout, spec: &Linear, in_shape: Shape) {
    // Distinct non-zero values, so that a misplaced one shows.
    let x: Vec<i64> = (1..=in_shape.iter().product::<usize>() as i64).map(|i| i * 7 % 1009 + 1).collect();
    let weights: Vec<i64> =
        (0..(spec.out_channels * layout.terms_per_output()) as i64).map(|i| i * 5 % 31 - 15).collect();
    assert_eq!(
        through(layout, &weights, &x),
        direct(spec, in_shape, layout.out_shape(), &weights, &x),
        "{spec:?} {in_shape:?}"
    );
}

fn conv(out_channels: usize, k: usize, stride: usize, pad: usize, groups: usize) -> Linear {
    Linear {
        out_channels,
        kernel: [k, k],
        stride: [stride, stride],
        dilation: [1, 1],
        pads: [pad; 4],
        groups,
        shift: 8,
        max_exponent: 0,
        blocks: None,
    }
}

#[test]
fn the_layers_of_real_networks() {
    // (spec, input, tiles, maps a ciphertext)
    for (spec, shape, tiles, maps_per_ciphertext) in [
        (conv(2, 3, 1, 1, 1), [3, 56, 56], 2, 1),
        (conv(2, 3, 1, 1, 1), [5, 28, 28], 1, 2),
        (conv(2, 3, 1, 1, 1), [9, 14, 14], 1, 8),
        (conv(2, 3, 1, 1, 1), [40, 7, 7], 1, 32),
        (conv(3, 1, 1, 0, 1), [4, 56, 56], 2, 1),
        (conv(3, 1, 2, 0, 1), [4, 56, 56], 1, 2),
        (conv(2, 3, 2, 1, 1), [3, 56, 56], 1, 2),
        (conv(1, 7, 2, 3, 1), [3, 224, 224], 8, 1),
        (conv(6, 3, 1, 1, 6), [6, 14, 14], 1, 8),
        (conv(4, 3, 2, 1, 4), [4, 112, 112], 2, 1),
        (conv(4, 1, 1, 0, 1), [2500, 1, 1], 1, 2048),
    ] {
        let layout = check(2048, &spec, shape);
        assert_eq!(
            (layout.tiles().len(), layout.maps_per_ciphertext()),
            (tiles, maps_per_ciphertext),
            "{spec:?} {shape:?}"
        );
    }
    // A fully connected layer as a kernel over the whole input.
    let fc = Linear { kernel: [7, 7], ..conv(3, 1, 1, 0, 1) };
    assert_eq!(check(2048, &fc, [40, 7, 7]).maps_per_ciphertext(), 32);
}

/// More rows of padding than the kernel has: the last outputs lie beyond the rows that maps share, and still
/// within the response.
#[test]
fn padding_deeper_than_the_kernel() {
    let spec = Linear { kernel: [1, 2], pads: [2, 1, 2, 1], ..conv(2, 1, 1, 0, 1) };
    for (height, width, ring_dim) in [(7, 1, 32), (2, 6, 32), (1, 9, 32), (6, 6, 64), (3, 5, 64)] {
        let layout = check(ring_dim, &spec, [3, height, width]);
        for tile in layout.tiles() {
            assert!(layout.export_len(tile) <= ring_dim, "{height} x {width} in {ring_dim}");
        }
    }
}

/// Kernels that reach far past a tiny map, in as many channels as fill ciphertexts: torchvision's ResNet-18, MobileNetV2 and
/// MNASNet have such layers for small pictures.
#[test]
fn kernels_larger_than_maps() {
    for (kernel, pad, size) in [(3, 1, 1), (5, 2, 1), (5, 2, 2), (7, 3, 2), (9, 4, 4), (3, 2, 1), (11, 5, 3)]
    {
        for channels in [1, 127, 128, 512, 513, 1024] {
            check(2048, &conv(2, kernel, 1, pad, 1), [channels, size, size]);
            check(2048, &conv(channels, kernel, 1, pad, channels), [channels, size, size]);
            let stretched = Linear { dilation: [2, 2], pads: [2 * pad; 4], ..conv(2, kernel, 1, 0, 1) };
            check(2048, &stretched, [channels, size, size]);
            check(2048, &conv(2, kernel, 2, pad, 1), [channels, size, size]);
        }
    }
}

/// Taps and components, counted one by one.
#[test]
fn an_axis_is_what_its_taps_read() {
    for (kernel, stride, dilation, outputs) in (1..9)
        .flat_map(|k| (1..8).flat_map(move |s| (1..8).flat_map(move |d| (1..6).map(move |t| (k, s, d, t)))))
    {
        let axis = Axis::new(kernel, stride, dilation);
        let mut offsets = Vec::new();
        for y in (0..kernel).map(|u| u * dilation) {
            if !offsets.contains(&(y % stride)) {
                offsets.push(y % stride);
            }
        }
        assert_eq!(axis.components(), offsets.len());
        assert_eq!((0..offsets.len()).map(|p| axis.offset(p)).collect::<Vec<_>>(), offsets);
        let mut seen = vec![std::collections::BTreeSet::new(); offsets.len()];
        for u in 0..kernel {
            let y = u * dilation;
            let component = offsets.iter().position(|&o| o == y % stride).unwrap();
            assert_eq!((axis.component(u), axis.down(u)), (component, y / stride));
            seen[component].extend(y / stride..y / stride + outputs);
        }
        assert_eq!(axis.reach(), (kernel - 1) * dilation / stride);
        for (component, seen) in seen.iter().enumerate() {
            assert!(axis.seen(component, outputs).flatten().eq(seen.iter().copied()));
            let runs: Vec<_> = axis.seen(component, outputs).collect();
            assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}

/// A layer of one output channel, cheap in plaintext: its ciphertexts would take gigabytes to list.
#[test]
fn ciphertexts_are_counted_before_they_are_listed() {
    let spec =
        Linear { kernel: [2, 1], dilation: [2047, 1], pads: [4096, 4, 4096, 5], ..conv(1, 1, 1, 0, 1) };
    for channels in [256, 2048, 65_536] {
        let error = Layout::new(2048, &spec, [channels, 1, 1]).unwrap_err();
        assert!(matches!(error, LayoutError::Pieces { what: "ciphertexts", .. }), "{error}");
    }
}

#[test]
fn what_cannot_fit_is_refused() {
    let spec = Linear { kernel: [20, 20], ..conv(1, 1, 1, 0, 1) };
    assert!(matches!(Layout::new(64, &spec, [1, 30, 30]), Err(LayoutError::KernelTooLarge { .. })));
}

/// Weights `[C_out, C_in, k_h, k_w]` of skew blocks, from the definition.
fn skew_weights(spec: &Linear, in_channels: usize) -> Vec<i64> {
    let (b, area) = (block_size(spec), spec.kernel[0] * spec.kernel[1]);
    let entry = |at: usize| {
        let (out, input, tap) = (at / area / in_channels, at / area % in_channels, at % area);
        let (i, j) = (out % b, input % b);
        let place = ((out / b * in_channels + input / b) * area + tap) * b + (i + b - j) % b;
        let w = (place * 5 % 31) as i64 - 15;
        if i < j { -w } else { w }
    };
    (0..spec.out_channels * in_channels * area).map(entry).collect()
}

/// In every number of parts, and in the one that is chosen.
fn check_blocks(ring_dim: usize, spec: &Linear, in_shape: Shape) -> usize {
    let x: Vec<i64> = (1..=in_shape.iter().product::<usize>() as i64).map(|i| i * 7 % 1009 + 1).collect();
    let weights = skew_weights(spec, in_shape[0]);
    let size = block_size(spec);
    let mut fitted = 0;
    for parts in (0..=size.trailing_zeros()).map(|log| 1 << log) {
        for packing in [Packing::PowerOfTwo, Packing::Tight] {
            let Ok(layout) = Layout::in_parts(ring_dim, spec, in_shape, packing, parts) else { continue };
            fitted += 1;
            assert_eq!(layout.responses(), layout.tiles().len() * spec.out_channels / parts);
            let furthest = layout.terms(0).iter().map(|&(_, shift)| shift).max().unwrap();
            let most = furthest + (parts - 1) * layout.part_len();
            assert!(furthest <= ring_dim);
            assert!(layout.tiles().iter().all(|tile| most + layout.export_len(tile) <= 2 * ring_dim));
            let channels = (0..spec.out_channels / parts).flat_map(|row| (0..parts).map(move |p| (row, p)));
            let mut seen: Vec<_> = channels.map(|(row, part)| layout.channel(row, part)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..spec.out_channels));
            assert_eq!(
                through(&layout, &weights, &x),
                direct(spec, in_shape, layout.out_shape(), &weights, &x),
                "{spec:?} {in_shape:?} in {parts} parts of {ring_dim}, {packing:?}"
            );
        }
    }
    fitted
}

fn skew(b: usize, spec: Linear) -> Linear {
    Linear { blocks: Some(Blocks::skew(b)), ..spec }
}

#[test]
fn blocks_of_real_networks() {
    // (spec, input, parts, tiles, responses, ciphertexts, responses of the dense layer)
    for (spec, shape, expected) in [
        (conv(64, 3, 1, 1, 1), [64, 56, 56], (8, 16, 128, 128, 128)),
        (conv(128, 3, 1, 1, 1), [128, 28, 28], (8, 4, 64, 64, 128)),
        (conv(256, 3, 1, 1, 1), [256, 14, 14], (8, 1, 32, 32, 256)),
        (conv(512, 3, 1, 1, 1), [512, 7, 7], (8, 1, 64, 16, 512)),
        (conv(1024, 1, 1, 0, 1), [256, 14, 14], (8, 1, 128, 32, 1024)),
        (conv(1000, 1, 1, 0, 1), [2048, 1, 1], (8, 1, 125, 1, 1000)),
        (conv(512, 1, 2, 0, 1), [256, 14, 14], (8, 1, 64, 8, 512)),
    ] {
        let spec = skew(8, spec);
        let layout = Layout::blocked(2048, &spec, shape, Packing::PowerOfTwo).unwrap();
        let dense = Layout::new(2048, &spec, shape).unwrap();
        let found = (
            layout.parts(),
            layout.tiles().len(),
            layout.responses(),
            layout.ciphertexts(),
            dense.responses(),
        );
        assert_eq!(found, expected, "{spec:?} {shape:?}");
    }
    // Small ones by value.
    assert!(check_blocks(2048, &skew(8, conv(8, 3, 1, 1, 1)), [16, 14, 14]) == 8);
    assert!(check_blocks(2048, &skew(16, conv(16, 3, 1, 1, 1)), [32, 7, 7]) == 10);
    assert!(check_blocks(256, &skew(4, conv(8, 3, 1, 1, 1)), [8, 9, 9]) == 6);
}

/// A circulant block without the sign is not what the ring computes: such a layer runs as a dense one.
#[test]
fn other_blocks_run_dense() {
    let circulant = Blocks { size: 8, kind: BlockKind::Circulant };
    let spec = Linear { blocks: Some(circulant), ..conv(8, 3, 1, 1, 1) };
    let layout = Layout::blocked(2048, &spec, [8, 7, 7], Packing::PowerOfTwo).unwrap();
    assert_eq!((layout.parts(), layout.block(), layout.responses()), (1, 1, 8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_convolution(
        (h, w) in (1usize..13, 1usize..13),
        (kh, kw) in (1usize..5, 1usize..5),
        (sh, sw) in (1usize..4, 1usize..4),
        (dh, dw) in (1usize..3, 1usize..3),
        pads in prop::array::uniform4(0usize..4),
        (groups, cg, og) in (1usize..4, 1usize..4, 1usize..3),
        log_n in 5u32..9,
    ) {
        prop_assume!(h + pads[0] + pads[2] > dh * (kh - 1) && w + pads[1] + pads[3] > dw * (kw - 1));
        let spec = Linear {
            out_channels: groups * og, kernel: [kh, kw], stride: [sh, sw], dilation: [dh, dw], pads, groups, shift: 8, max_exponent: 0, blocks: None,
        };
        prop_assume!(Layout::new(1 << log_n, &spec, [groups * cg, h, w]).is_ok());
        check(1 << log_n, &spec, [groups * cg, h, w]);
    }

    #[test]
    fn any_convolution_in_blocks(
        (h, w) in (1usize..13, 1usize..13),
        (kh, kw) in (1usize..5, 1usize..5),
        (sh, sw) in (1usize..4, 1usize..4),
        (dh, dw) in (1usize..3, 1usize..3),
        pads in prop::array::uniform4(0usize..4),
        (log_b, ins, outs) in (1u32..5, 1usize..4, 1usize..3),
        log_n in 5u32..10,
    ) {
        prop_assume!(h + pads[0] + pads[2] > dh * (kh - 1) && w + pads[1] + pads[3] > dw * (kw - 1));
        let b = 1 << log_b;
        let spec = Linear {
            out_channels: outs * b, kernel: [kh, kw], stride: [sh, sw], dilation: [dh, dw], pads,
            ..skew(b, conv(1, 1, 1, 0, 1))
        };
        check_blocks(1 << log_n, &spec, [ins * b, h, w]);
    }

    #[test]
    fn any_kernel_over_any_tiny_map(
        (h, w) in (1usize..5, 1usize..5),
        (kh, kw) in (1usize..12, 1usize..12),
        (sh, sw) in (1usize..3, 1usize..3),
        (dh, dw) in (1usize..4, 1usize..4),
        pads in prop::array::uniform4(0usize..12),
        (groups, cg) in prop_oneof![(Just(1usize), 1usize..300), (1usize..300, Just(1usize))],
        log_n in 6u32..11,
    ) {
        prop_assume!(h + pads[0] + pads[2] > dh * (kh - 1) && w + pads[1] + pads[3] > dw * (kw - 1));
        let spec = Linear {
            out_channels: groups, kernel: [kh, kw], stride: [sh, sw], dilation: [dh, dw], pads, groups, shift: 8, max_exponent: 0, blocks: None,
        };
        prop_assume!(Layout::new(1 << log_n, &spec, [groups * cg, h, w]).is_ok());
        check(1 << log_n, &spec, [groups * cg, h, w]);
    }
}
