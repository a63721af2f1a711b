//! Pixels as the network sees them.

use jaguar_graph::image_input::{self, ImageError};
use jaguar_graph::network::{ImageSpec, Shape};

/// Red, green and blue of a picture of four bytes a pixel, as a canvas has it. What is transparent counts as it is, as in the native
/// client.
pub fn rgb(rgba: &[u8]) -> Vec<u8> {
    rgba.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}

/// What is left of a picture of `width` times `height` pixels (four bytes each) when it was brought to the network's `shape`: four bytes
/// a pixel again, row by row. For people to look at.
///
/// # Errors
/// When the picture cannot be brought there.
pub fn view(
    spec: &ImageSpec,
    shape: Shape,
    rgba: &[u8],
    (width, height): (usize, usize),
) -> Result<Vec<u8>, ImageError> {
    let plain = ImageSpec { bgr: false, mean: Vec::new(), factor: Vec::new(), ..spec.clone() };
    let tensor = image_input::tensor(&plain, shape, &rgb(rgba), width, height)?;
    let [channels, rows, columns] = shape;
    let plane = rows * columns;
    let value =
        |c: usize, at: usize| tensor[c.min(channels - 1) * plane + at].round().clamp(0.0, 255.0) as u8;
    Ok((0..plane).flat_map(|at| [value(0, at), value(1, at), value(2, at), u8::MAX]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_the_picture_where_nothing_is_resized() {
        let spec = ImageSpec { bgr: true, mean: vec![9.0; 3], factor: vec![3.0; 3], ..ImageSpec::default() };
        let rgba: Vec<u8> = (0..6).flat_map(|i| [i, 10 + i, 20 + i, 255]).collect();
        assert_eq!(view(&spec, [3, 2, 3], &rgba, (3, 2)).unwrap(), rgba);
        let grey = view(&spec, [1, 2, 3], &rgba, (3, 2)).unwrap();
        assert!(grey.chunks_exact(4).all(|p| p[0] == p[1] && p[1] == p[2] && p[3] == 255), "{grey:?}");
        assert!(view(&spec, [3, 2, 3], &rgba[4..], (3, 2)).is_err());
    }
}
