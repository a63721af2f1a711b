//! Pictures in other sizes: Pillow's arithmetic, bit for bit, and plain bilinear interpolation.
//!
//! [`pillow`] is what `PIL.Image.resize` computes of 8-bit RGB (libImaging's `Resample.c`): filters widened to the
//! shrinking factor (antialiased), coefficients in fixed point with 22 bits behind the point, rows first, rounded to whole
//! values after each direction. torchvision and timm train and test on pictures resized in this way.
//!
//! [`interpolated`] is bilinear without antialiasing, between the centres of pixels (half-pixel), not rounded: what
//! `tf.image.resize`, Keras' `Resizing` and torch's `interpolate` compute of tensors.

use crate::network::Filter;

/// A picture's pixel: red, green, blue.
type Pixel = [u8; 3];

/// Bits behind the point of Pillow's coefficients.
const PRECISION: u32 = 32 - 8 - 2;

/// How far a filter reaches, in pixels, and its value at a distance.
fn kernel(filter: Filter) -> (f64, fn(f64) -> f64) {
    /// `sin(πx)/(πx)`
    fn sinc(x: f64) -> f64 {
        let x = x * std::f64::consts::PI;
        if x == 0.0 { 1.0 } else { x.sin() / x }
    }
    match filter {
        Filter::Box => (0.5, |x| if -0.5 < x && x <= 0.5 { 1.0 } else { 0.0 }),
        Filter::Hamming => (1.0, |x| match x.abs() {
            0.0 => 1.0,
            x if x >= 1.0 => 0.0,
            x => sinc(x) * (0.54 + 0.46 * (x * std::f64::consts::PI).cos()),
        }),
        Filter::Bicubic => (2.0, |x| {
            const A: f64 = -0.5;
            match x.abs() {
                x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
                x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
                _ => 0.0,
            }
        }),
        Filter::Lanczos => (3.0, |x| if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }),
        Filter::Bilinear | Filter::Nearest | Filter::Interpolate => (1.0, |x| (1.0 - x.abs()).max(0.0)),
    }
}

/// RGB pixels, row by row, of `width` in a row, as Pillow resizes them to `new_width` by `new_height`.
///
/// # Panics
/// When a size is zero, or the pixels are not whole rows.
pub fn pillow(
    rgb: &[u8],
    [width, height]: [usize; 2],
    [new_width, new_height]: [usize; 2],
    filter: Filter,
) -> Vec<u8> {
    assert_eq!(rgb.len(), 3 * width * height, "whole rows");
    let along = |pixels: &[u8], size: usize, new_size: usize| match filter {
        _ if size == new_size => pixels.to_vec(),
        Filter::Nearest => pick_rows(pixels, size, new_size),
        _ => resize_rows(pixels, size, new_size, filter),
    };
    let narrow = along(rgb, width, new_width);
    let turned = along(&transpose(&narrow, new_width), height, new_height);
    transpose(&turned, new_height)
}

/// Rows of `width` pixels become columns.
fn transpose(pixels: &[u8], width: usize) -> Vec<u8> {
    let (pixels, _) = pixels.as_chunks::<3>();
    let mut out = Vec::with_capacity(pixels.len() * 3);
    for column in 0..width {
        out.extend(pixels.iter().skip(column).step_by(width).flatten());
    }
    out
}

/// The pixel below the centre of each new one, of each row.
fn pick_rows(pixels: &[u8], width: usize, new_width: usize) -> Vec<u8> {
    let scale = width as f64 / new_width as f64;
    // Pillow adds up, and so does this.
    let positions = std::iter::successors(Some(scale * 0.5), |at| Some(at + scale));
    let columns: Vec<usize> = positions.take(new_width).map(|at| (at as usize).min(width - 1)).collect();
    let (pixels, _) = pixels.as_chunks::<3>();
    pixels.chunks_exact(width).flat_map(|row| columns.iter().flat_map(|&x| row[x])).collect()
}

/// Resizes each row from `width` to `new_width` pixels.
fn resize_rows(pixels: &[u8], width: usize, new_width: usize, filter: Filter) -> Vec<u8> {
    let (support, value) = kernel(filter);
    let scale = width as f64 / new_width as f64;
    let reach = scale.max(1.0);
    let support = support * reach;
    // By output column: the first input column and the coefficients of those in reach.
    let filters: Vec<(usize, Vec<i32>)> = (0..new_width)
        .map(|column| {
            let centre = (column as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(width);
            // As Pillow multiplies, not divides.
            let inverse = 1.0 / reach;
            let of = |x: usize| value((x as f64 - centre + 0.5) * inverse);
            let values: Vec<f64> = (first..end).map(of).collect();
            let sum: f64 = values.iter().sum();
            let fixed = |v: f64| {
                let v = (if sum == 0.0 { v } else { v / sum }) * f64::from(1u32 << PRECISION);
                (if v < 0.0 { v - 0.5 } else { v + 0.5 }) as i32
            };
            (first, values.into_iter().map(fixed).collect())
        })
        .collect();
    let mut out = Vec::with_capacity(pixels.len() / width * new_width);
    for row in pixels.chunks_exact(width * 3) {
        let (row, _) = row.as_chunks::<3>();
        for (first, coefficients) in &filters {
            let mut sums = [1i32 << (PRECISION - 1); 3];
            for (pixel, coefficient) in row[*first..].iter().zip(coefficients) {
                sums.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += coefficient * i32::from(v));
            }
            out.extend(sums.map(|sum| (sum >> PRECISION).clamp(0, 255) as u8));
        }
    }
    out
}

/// As [`pillow`], bilinear without antialiasing, in real numbers.
///
/// # Panics
/// As `pillow`.
pub fn interpolated(
    rgb: &[u8],
    [width, height]: [usize; 2],
    [new_width, new_height]: [usize; 2],
) -> Vec<[f32; 3]> {
    assert_eq!(rgb.len(), 3 * width * height, "whole rows");
    let axis = |size: usize, new_size: usize| -> Vec<(usize, usize, f32)> {
        let scale = size as f32 / new_size as f32;
        let of = |i: usize| {
            let at = ((i as f32 + 0.5) * scale - 0.5).max(0.0);
            let low = (at as usize).min(size - 1);
            (low, (low + 1).min(size - 1), (at - low as f32).min(1.0))
        };
        (0..new_size).map(of).collect()
    };
    let (columns, rows) = (axis(width, new_width), axis(height, new_height));
    let (pixels, _): (&[Pixel], _) = rgb.as_chunks::<3>();
    let mut out = Vec::with_capacity(new_width * new_height);
    for &(top, bottom, down) in &rows {
        for &(left, right, across) in &columns {
            let at = |y: usize, x: usize| pixels[y * width + x].map(f32::from);
            let [tl, tr, bl, br] = [at(top, left), at(top, right), at(bottom, left), at(bottom, right)];
            out.push(std::array::from_fn(|c| {
                let upper = tl[c] + (tr[c] - tl[c]) * across;
                let lower = bl[c] + (br[c] - bl[c]) * across;
                upper + (lower - upper) * down
            }));
        }
    }
    out
}
