//! Small drawings: paths of histograms and charts, thumbnails of tensors.

use std::fmt::Write;
use std::io::Cursor;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::imageops::{FilterType, resize};
use image::{ImageFormat, Rgb, RgbImage};
use jaguar_graph::network::{ImageSpec, Shape};

use crate::ReportError;

/// The width of a bar in a histogram's path, and the height of the path.
const BAR: usize = 3;
const HEIGHT: f64 = 30.0;

/// The longest side of a thumbnail in pixels.
const SIDE: u32 = 128;

/// Bars as tall as the logarithms of the counts: a path in a box of `3 · counts` by 30.
pub fn histogram(counts: &[u64]) -> String {
    let tall = |count: u64| (count as f64).ln_1p();
    let tallest = counts.iter().copied().map(tall).fold(1.0, f64::max);
    let mut path = String::new();
    for (i, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (HEIGHT * tall(count) / tallest).max(0.5);
        let _ = write!(path, "M{} {HEIGHT}v-{height:.1}h{BAR}v{height:.1}z", i * BAR);
    }
    path
}

/// A tensor `[C, H, W]` with one or three channels, as the picture that it was made of with `spec`, or, where that is none, from its
/// smallest value as black to its largest as white; as a `data:` URI of a PNG file. `None` for tensors that are no pictures.
pub fn thumbnail(tensor: &[f32], shape: Shape, spec: &ImageSpec) -> Result<Option<String>, ReportError> {
    let [channels, height, width] = shape;
    if !matches!(channels, 1 | 3) || height < 4 || width < 4 || tensor.len() != channels * height * width {
        return Ok(None);
    }
    let plane = height * width;
    let of = |list: &[f32], channel: usize, default: f32| list.get(channel).copied().unwrap_or(default);
    let pixel = |channel: usize, at: usize| {
        let value = tensor[channel * plane + at] / of(&spec.factor, channel, 1.0);
        value + of(&spec.mean, channel, 0.0)
    };
    let all = || (0..channels).flat_map(|c| (0..plane).map(move |at| pixel(c, at)));
    let (low, high) = all().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if !(low.is_finite() && high.is_finite()) {
        return Ok(None);
    }
    let is_picture = low > -1.0 && high < 256.0 && high > 2.0;
    let (low, high) = if is_picture { (0.0, 255.0) } else { (low, high) };
    let picture = RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let at = y as usize * width + x as usize;
        let colour = [0, 1, 2].map(|colour| {
            let channel = if channels == 1 {
                0
            } else if spec.bgr {
                2 - colour
            } else {
                colour
            };
            (255.0 * (pixel(channel, at) - low) / (high - low).max(f32::MIN_POSITIVE)).round() as u8
        });
        Rgb(colour)
    });
    let longest = picture.width().max(picture.height());
    let side = |side: u32| (side * SIDE / longest).max(1);
    let picture = if longest > SIDE {
        resize(&picture, side(picture.width()), side(picture.height()), FilterType::Triangle)
    } else {
        picture
    };
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png)?;
    Ok(Some(format!("data:image/png;base64,{}", STANDARD.encode(file.into_inner()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbnail_shows_the_picture_that_the_tensor_was_made_of() {
        let spec =
            ImageSpec { bgr: true, mean: vec![10.0, 20.0, 30.0], factor: vec![0.5], ..Default::default() };
        // Blue, green, red planes of 8x4 pixels; pixel 5 differs.
        let colours = [200.0, 100.0, 50.0f32];
        let mut tensor = Vec::new();
        for (c, colour) in colours.iter().enumerate() {
            let factor = if c == 0 { 0.5 } else { 1.0 };
            tensor.extend((0..32).map(|at| (if at == 5 { 7.0 } else { *colour } - spec.mean[c]) * factor));
        }
        let uri = thumbnail(&tensor, [3, 4, 8], &spec).unwrap().unwrap();
        let file = STANDARD.decode(uri.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        let picture = image::load_from_memory(&file).unwrap().to_rgb8();
        assert_eq!(picture.dimensions(), (8, 4));
        assert_eq!(picture.get_pixel(0, 0).0, [50, 100, 200]);
        assert_eq!(picture.get_pixel(5, 0).0, [7; 3]);
        // Neither vectors nor what is not finite.
        assert!(thumbnail(&[1.0; 10], [10, 1, 1], &spec).unwrap().is_none());
        assert!(thumbnail(&[f32::NAN; 16], [1, 4, 4], &spec).unwrap().is_none());
    }

    #[test]
    fn bars_have_places_and_heights() {
        assert_eq!(histogram(&[0, 0]), "");
        let path = histogram(&[0, 1, 0, 100]);
        assert!(path.starts_with("M3 30v-") && path.contains("M9 30v-30.0h3v30.0z"), "{path}");
    }
}
