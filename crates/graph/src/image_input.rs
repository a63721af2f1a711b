//! Pixels to the network's input tensor: resize, crop, order of channels, `(pixel - mean)·factor`.
//!
//! Resizes are [`crate::resample`]'s: Pillow's, bit for bit, or TensorFlow's.

use std::borrow::Cow;

use thiserror::Error;

pub use crate::ir::limits::MAX_SIDE;
use crate::network::{Filter, ImageSpec, Resize, Shape};
use crate::resample::{interpolated, pillow};

/// The most pixels of an image, before and after resizing.
pub(crate) const MAX_PIXELS: usize = 1 << 28;

/// Why an image cannot become the input.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The buffer does not hold the image that it should.
    #[error("{width}x{height} RGB pixels take {expected} bytes, there are {found}")]
    Length {
        /// Width of the picture, in pixels.
        width: usize,
        /// Height of the picture, in pixels.
        height: usize,
        /// Bytes that a picture of this size has.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// Empty or too large, as given or as resized.
    #[error(
        "an image of {width}x{height} pixels is out of range: a side has 1 to {MAX_SIDE}, all of it {MAX_PIXELS} at most, as given and as \
         resized"
    )]
    Size {
        /// Width of the picture, in pixels.
        width: usize,
        /// Height of the picture, in pixels.
        height: usize,
    },
    /// Smaller than what is cut out of it.
    #[error(
        "{width}x{height} pixels are left after resizing, the network takes {wanted_width}x{wanted_height}"
    )]
    TooSmall {
        /// Width of the picture, in pixels.
        width: usize,
        /// Height of the picture, in pixels.
        height: usize,
        /// Width that the network takes, in pixels.
        wanted_width: usize,
        /// Height that the network takes, in pixels.
        wanted_height: usize,
    },
    /// A part of a picture that is none.
    #[error("the fraction of a picture that is kept must be above 0 and at most 1")]
    Fraction,
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
    let fraction = |fraction: f32| match fraction {
        fraction if fraction > 0.0 && fraction <= 1.0 => Ok(f64::from(fraction)),
        _ => Err(ImageError::Fraction),
    };
    let shorter = |side: usize| {
        let long = |long: usize, short: usize| side.saturating_mul(long) / short;
        if width <= height { [side, long(height, width)] } else { [long(width, height), side] }
    };
    let mut centre = None;
    let [new_width, new_height] = match spec.resize {
        Resize::Exact => [wanted_width, wanted_height],
        Resize::Shorter(side) => shorter(side as usize),
        Resize::CropPct(of) => shorter((wanted_width.min(wanted_height) as f64 / fraction(of)?) as usize),
        Resize::Centre(of) => {
            // (A fraction of one 24-bit number off 1/8 must not lose a pixel.)
            let side = (fraction(of)? * width.min(height) as f64 + 1e-4) as usize;
            centre = Some(side.max(1));
            [wanted_width, wanted_height]
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
    let (cut, size) = match centre {
        Some(side) => (Cow::from(central_square(rgb, [width, height], side)), [side; 2]),
        None => (Cow::from(rgb), [width, height]),
    };
    let new_size = [new_width, new_height];
    let resized: Vec<[f32; 3]> = match spec.filter {
        Filter::Interpolate => interpolated(&cut, size, new_size),
        filter => {
            let resized = pillow(&cut, size, new_size, filter);
            let (pixels, _) = resized.as_chunks::<3>();
            // Grey is whole too, as where pictures are converted.
            let of = |p: &[u8; 3]| if channels == 1 { [f32::from(luma(*p)); 3] } else { p.map(f32::from) };
            pixels.iter().map(of).collect()
        }
    };

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
                let value = match spec.filter {
                    Filter::Interpolate if channels == 1 => {
                        0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]
                    }
                    _ => pixel[source],
                };
                (value - mean) * factor
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

/// The square of `side` pixels in the middle, an odd rest above and to the left.
fn central_square(rgb: &[u8], [width, height]: [usize; 2], side: usize) -> Vec<u8> {
    let (left, top) = ((width - side).div_ceil(2), (height - side).div_ceil(2));
    let rows = rgb.chunks_exact(3 * width).skip(top).take(side);
    rows.flat_map(|row| &row[3 * left..][..3 * side]).copied().collect()
}

fn luma([r, g, b]: [u8; 3]) -> u8 {
    // Weights .299, .587, .114 in 1/65536.
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}
