//! Runs the kernels' compiled form, instruction by instruction, and compares every word with plain integers.
//!
//! PTX is what the driver gets; nothing but its own compiler stands between it and the card. The interpreter knows the
//! instructions that the two kernels consist of, as NVIDIA's "Parallel Thread Execution ISA" describes them, and
//! refuses all others. Threads of a block run one after the other from barrier to barrier. Every access is checked:
//! inside its array, and aligned.

#[path = "ptx/interpreter.rs"]
mod interpreter;

use interpreter::{Grid, Program};
use jaguar_gpu::{FEW_OUTPUTS, PTX, Shape, THREADS, TILE};
use jaguar_ring::prg::Prg;

/// The product by the kernel that a card would run.
fn on_interpreter(shape: &Shape, weights: &[i32], x: &[u64]) -> Vec<u64> {
    let places = shape.layout();
    let mut padded = vec![0; places.padded_words(shape)];
    places.pad(shape, x, &mut padded);
    let outputs = shape.output.iter().product::<usize>();
    let [n_outputs, n_terms, n_places, groups] =
        [shape.outputs(), shape.terms(), shape.places(), shape.groups].map(|n| n as u32);
    let side = THREADS.isqrt();
    let (kernel, grid) = if n_outputs < FEW_OUTPUTS {
        (
            "product_narrow",
            Grid { blocks: [n_places.div_ceil(THREADS), n_outputs, groups], threads: [THREADS, 1] },
        )
    } else {
        let blocks = [n_places.div_ceil(TILE), n_outputs.div_ceil(TILE), groups];
        ("product_tiled", Grid { blocks, threads: [side, side] })
    };
    let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let arrays = [
        weights.iter().flat_map(|w| w.to_le_bytes()).collect(),
        padded.iter().flat_map(|w| w.to_le_bytes()).collect(),
        bytes(&places.terms),
        bytes(&places.bases),
        // What was there before must not matter.
        vec![0xA5; 8 * outputs],
    ];
    let numbers = [n_outputs, n_terms, n_places, places.group_step];
    let out = Program::parse(PTX, kernel).run(grid, arrays, &numbers);
    out[4].chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect()
}

/// The same by its definition, over all integers modulo 2^64.
fn plain(shape: &Shape, weights: &[i32], x: &[u64]) -> Vec<u64> {
    let Shape { input: [channels, height, width], output: [outputs, rows, columns], .. } = *shape;
    let (inner, own) = (channels / shape.groups, outputs / shape.groups);
    let mut out = Vec::new();
    for d in 0..outputs {
        for row in 0..rows {
            for column in 0..columns {
                let mut sum = 0u64;
                for c in 0..inner {
                    for i in 0..shape.kernel[0] {
                        for j in 0..shape.kernel[1] {
                            let y =
                                (row * shape.stride[0] + i * shape.dilation[0]).checked_sub(shape.pads[0]);
                            let at =
                                (column * shape.stride[1] + j * shape.dilation[1]).checked_sub(shape.pads[1]);
                            let (Some(y), Some(at)) = (y, at) else { continue };
                            if y < height && at < width {
                                let w =
                                    weights[((d * inner + c) * shape.kernel[0] + i) * shape.kernel[1] + j];
                                let x = x[((d / own * inner + c) * height + y) * width + at];
                                sum = sum.wrapping_add((i64::from(w) as u64).wrapping_mul(x));
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

fn check(shape: &Shape, seed: u64) {
    shape.check().unwrap();
    let mut prg = Prg::derive(&[5; 32], "ptx", &[seed]);
    let mut x = vec![0; shape.input.iter().product()];
    prg.fill_u64(&mut x);
    let mut words = vec![0; shape.output[0] * shape.terms()];
    prg.fill_u64(&mut words);
    let mut weights: Vec<i32> = words.iter().map(|&w| w as i32).collect();
    // The ends of both ranges, and where the low limb's sign carries.
    for (i, edge) in [0, u64::MAX, 1 << 63, 0x8000_0000, 0x7fff_ffff, 0xffff_ffff].into_iter().enumerate() {
        if let Some(x) = x.get_mut(3 * i) {
            *x = edge;
        }
    }
    for (w, edge) in weights.iter_mut().step_by(5).zip([i32::MIN, i32::MAX, -1, 0, 1]) {
        *w = edge;
    }
    assert_eq!(on_interpreter(shape, &weights, &x), plain(shape, &weights, &x), "{shape:?}");
}

fn shape(
    input: [usize; 3],
    output: [usize; 3],
    kernel: usize,
    stride: usize,
    pads: usize,
    groups: usize,
) -> Shape {
    Shape {
        input,
        output,
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1; 2],
        pads: [pads; 2],
        groups,
    }
}

#[test]
fn a_tile_and_less_and_more() {
    // A whole tile; less than one in every direction; terms that are no multiple of what is held at once.
    check(&shape([16, 8, 8], [64, 8, 8], 1, 1, 0, 1), 1);
    check(&shape([3, 5, 7], [8, 5, 7], 3, 1, 1, 1), 2);
    check(&shape([5, 9, 9], [70, 9, 9], 1, 1, 0, 1), 3);
}

#[test]
fn strides_pads_and_groups() {
    check(&shape([3, 11, 11], [9, 6, 6], 7, 2, 3, 1), 4);
    check(&shape([4, 10, 10], [32, 5, 5], 3, 2, 1, 2), 5);
    let uneven = Shape {
        kernel: [3, 2],
        stride: [2, 3],
        dilation: [2, 1],
        pads: [2, 0],
        ..shape([2, 9, 8], [8, 5, 3], 1, 1, 0, 1)
    };
    check(&uneven, 6);
}

#[test]
fn depthwise_and_few_outputs() {
    check(&shape([6, 18, 18], [6, 18, 18], 3, 1, 1, 6), 7);
    check(&shape([7, 6, 6], [3, 3, 3], 3, 2, 1, 1), 8);
}

#[test]
fn fully_connected() {
    check(&shape([50, 1, 1], [100, 1, 1], 1, 1, 0, 1), 9);
}

#[test]
fn the_kernels_are_those_of_the_source() {
    // The script puts the source's hash into what it makes.
    let source = include_str!("../src/product.cu");
    let hash = source
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let line = format!("// of product.cu, FNV-1a {hash:016x}");
    assert!(PTX.starts_with(&line), "src/product.ptx is older than src/product.cu: run tools/gpu_kernel.py");
}

#[test]
fn what_has_no_meaning_or_is_too_large_is_refused() {
    let good = shape([4, 10, 10], [32, 5, 5], 3, 2, 1, 2);
    assert!(good.check().is_ok());
    assert!(Shape { groups: 3, ..good.clone() }.check().is_err());
    assert!(Shape { stride: [0, 1], ..good.clone() }.check().is_err());
    assert!(Shape { input: [4, 1 << 20, 1 << 20], ..good.clone() }.check().is_err());
    assert!(Shape { output: [32, usize::MAX, 5], ..good }.check().is_err());
}
