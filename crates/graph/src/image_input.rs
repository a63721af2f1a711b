//! Pixels to the network's input tensor: resize, crop, order of channels, `(pixel - mean)·factor`.
//!
//! The resize is bilinear with the filter widened to the shrinking factor (antialiased), as Pillow and so most
//! training code does it, columns first, rounded to whole pixel values after each direction; within one pixel
//! value of Pillow's fixed-point arithmetic.

use thiserror::Error;

use crate::network::{ImageSpec, Resize, Shape};

/// The largest width or height of an image, before and after resizing.
pub const MAX_SIDE: usize = 1 << 15;
/// The most pixels of an image, before and after resizing.
pub const MAX_PIXELS: usize = 1 << 28;

/// Why an image cannot become the input.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The buffer does not hold the image that it should.
    #[error("{width}x{height} RGB pixels take {expected} bytes, there are {found}")]
    Length {
        /// In pixels.
        width: usize,
        /// In pixels.
        height: usize,
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Empty or too large, as given or as resized.
    #[error("an image of {width}x{height} pixels is out of range")]
    Size {
        /// In pixels.
        width: usize,
        /// In pixels.
        height: usize,
    },
    /// Smaller than what is cut out of it.
    #[error(
        "{width}x{height} pixels are left after resizing, the network takes {wanted_width}x{wanted_height}"
    )]
    TooSmall {
        /// In pixels.
        width: usize,
        /// In pixels.
        height: usize,
        /// In pixels.
        wanted_width: usize,
        /// In pixels.
        wanted_height: usize,
    },
    /// Neither colour nor grey.
    #[error("the network takes {0} channels; images have 3, or 1 for grey")]
    Channels(usize),
}

/// The input tensor `[C, H, W]` of `shape` from RGB pixels, row by row, three bytes each. C is 3, or 1 for grey
/// (ITU-R 601 luma). Missing entries of `mean` and `factor` are 0 and 1.
///
/// # Errors
/// A buffer or image of the wrong size, a network that takes no images.
pub fn tensor(
    spec: &ImageSpec,
    shape: Shape,
    rgb: &[u8],
    width: usize,
    height: usize,
) -> Result<Vec<f32>, ImageError> {
    let [channels, wanted_height, wanted_width] = shape;
    if channels != 3 && channels != 1 {
        return Err(ImageError::Channels(channels));
    }
    check_size(width, height)?;
    check_size(wanted_width, wanted_height)?;
    if rgb.len() != width * height * 3 {
        return Err(ImageError::Length { width, height, expected: width * height * 3, found: rgb.len() });
    }
    let [new_width, new_height] = match spec.resize {
        Resize::Exact => [wanted_width, wanted_height],
        Resize::Shorter(side) => {
            let side = side as usize;
            let long = |long: usize, short: usize| side.saturating_mul(long) / short;
            if width <= height { [side, long(height, width)] } else { [long(width, height), side] }
        }
    };
    check_size(new_width, new_height)?;
    if new_width < wanted_width || new_height < wanted_height {
        return Err(ImageError::TooSmall {
            width: new_width,
            height: new_height,
            wanted_width,
            wanted_height,
        });
    }
    let narrow = resize_rows(rgb, width, new_width);
    let turned = resize_rows(&transpose(&narrow, new_width), height, new_height);
    let turned = transpose(&turned, new_height);
    let (resized, _) = turned.as_chunks::<3>();

    // The centre; an odd rest is split as Python's round() does, to the even side.
    let offset = |have: usize, want: usize| ((have - want) as f64 / 2.0).round_ties_even() as usize;
    let (left, top) = (offset(new_width, wanted_width), offset(new_height, wanted_height));
    let mut out = Vec::with_capacity(channels * wanted_height * wanted_width);
    for c in 0..channels {
        let source = if spec.bgr { 2 - c.min(2) } else { c };
        let mean = spec.mean.get(c).copied().unwrap_or(0.0);
        let factor = spec.factor.get(c).copied().unwrap_or(1.0);
        for row in resized.chunks_exact(new_width).skip(top).take(wanted_height) {
            out.extend(row[left..left + wanted_width].iter().map(|pixel| {
                let value = if channels == 1 { luma(*pixel) } else { pixel[source] };
                (f32::from(value) - mean) * factor
            }));
        }
    }
    Ok(out)
}

fn check_size(width: usize, height: usize) -> Result<(), ImageError> {
    let side = 1..=MAX_SIDE;
    if !side.contains(&width) || !side.contains(&height) || width * height > MAX_PIXELS {
        return Err(ImageError::Size { width, height });
    }
    Ok(())
}

type Pixel = [u8; 3];

fn luma([r, g, b]: Pixel) -> u8 {
    // Weights .299, .587, .114 in 1/65536.
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
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

/// Resizes each row from `width` to `new_width` pixels.
fn resize_rows(pixels: &[u8], width: usize, new_width: usize) -> Vec<u8> {
    if width == new_width {
        return pixels.to_vec();
    }
    let scale = width as f64 / new_width as f64;
    let reach = scale.max(1.0);
    // By output column: the first input column and the weights of the triangle over those in reach.
    let filters: Vec<(usize, Vec<f32>)> = (0..new_width)
        .map(|column| {
            let centre = (column as f64 + 0.5) * scale;
            let first = (centre - reach + 0.5).max(0.0) as usize;
            let end = ((centre + reach + 0.5) as usize).min(width);
            let weights = (first..end).map(|x| (1.0 - ((x as f64 + 0.5 - centre) / reach).abs()).max(0.0));
            let weights: Vec<f64> = weights.collect();
            let sum: f64 = weights.iter().sum();
            (first, weights.into_iter().map(|w| (w / sum) as f32).collect())
        })
        .collect();
    let mut out = Vec::with_capacity(pixels.len() / width * new_width);
    for row in pixels.chunks_exact(width * 3) {
        let (row, _) = row.as_chunks::<3>();
        for (first, weights) in &filters {
            let mut sums = [0f32; 3];
            for (pixel, weight) in row[*first..].iter().zip(weights) {
                sums.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += weight * f32::from(v));
            }
            out.extend(sums.map(|sum| (sum + 0.5) as u8));
        }
    }
    out
}
