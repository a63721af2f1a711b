//! How pictures become tensors, as training code says it.

use jaguar_graph::network::{Filter, ImageSpec, Resize};

/// A picture's channel value v (0 to 255) becomes `(v * pixel_scale - mean) / std`.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessing {
    /// How pictures are brought to the network's size.
    pub resize: Resize,
    /// How pixels are found there.
    pub filter: Filter,
    /// Whether the network takes blue, green, red.
    pub bgr: bool,
    /// Finite and not zero; torchvision's networks want 1/255.
    pub pixel_scale: f32,
    /// One number, or one per channel in the network's order.
    pub mean: Vec<f32>,
    /// One number, or one per channel; none is zero.
    pub std: Vec<f32>,
}

/// Why numbers are no preprocessing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PreprocessingError {
    /// Neither one number nor one per channel.
    #[error("{what} has {found} numbers; the network has {channels} channels")]
    Count {
        /// "mean" or "std".
        what: &'static str,
        /// How many numbers.
        found: usize,
        /// How many channels.
        channels: usize,
    },
    /// A scale of zero, or none.
    #[error("pixel scale and std must be numbers other than zero")]
    Scale,
    /// A part of a picture that is none.
    #[error("the fraction of a picture that is kept must be above 0 and at most 1")]
    Fraction,
    /// A mean that is no number.
    #[error("mean must be a finite number")]
    Mean,
}

impl Preprocessing {
    /// As the model records it, for a network of so many channels.
    ///
    /// # Errors
    /// When a number cannot be, or there are too few or too many.
    pub fn spec(&self, channels: usize) -> Result<ImageSpec, PreprocessingError> {
        let mean = by_channel(&self.mean, channels, "mean")?;
        let std = by_channel(&self.std, channels, "std")?;
        let sound = |scale: f32| scale.is_finite() && scale != 0.0;
        if !sound(self.pixel_scale) || !std.iter().all(|s| sound(*s)) {
            return Err(PreprocessingError::Scale);
        }
        if !mean.iter().all(|m| m.is_finite()) {
            return Err(PreprocessingError::Mean);
        }
        if let Resize::CropPct(fraction) | Resize::Centre(fraction) = self.resize
            && !(fraction > 0.0 && fraction <= 1.0)
        {
            return Err(PreprocessingError::Fraction);
        }
        Ok(ImageSpec {
            resize: self.resize,
            filter: self.filter,
            bgr: self.bgr,
            mean: mean.iter().map(|m| m / self.pixel_scale).collect(),
            factor: std.iter().map(|s| self.pixel_scale / s).collect(),
        })
    }

    /// Whether pixels go to the network as they are.
    pub fn is_identity(&self) -> bool {
        let all = |values: &[f32], default: f32| values.iter().all(|v| *v == default);
        self.pixel_scale == 1.0 && all(&self.mean, 0.0) && all(&self.std, 1.0)
    }
}

/// One number for every channel, or one for all.
fn by_channel(numbers: &[f32], channels: usize, what: &'static str) -> Result<Vec<f32>, PreprocessingError> {
    match numbers.len() {
        1 => Ok(vec![numbers[0]; channels]),
        found if found == channels => Ok(numbers.to_vec()),
        found => Err(PreprocessingError::Count { what, found, channels }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Preprocessing {
        Preprocessing {
            resize: Resize::Exact,
            filter: Filter::Bilinear,
            bgr: false,
            pixel_scale: 1.0,
            mean: vec![0.0],
            std: vec![1.0],
        }
    }

    #[test]
    fn numbers_are_for_all_channels_or_for_each() {
        assert!(plain().is_identity());
        let of = |mean: &[f32]| Preprocessing { mean: mean.to_vec(), pixel_scale: 0.5, ..plain() };
        assert_eq!(of(&[1.0]).spec(3).unwrap().mean, [2.0; 3]);
        assert_eq!(of(&[1.0, 2.0, 3.0]).spec(3).unwrap().mean, [2.0, 4.0, 6.0]);
        assert_eq!(of(&[1.0]).spec(3).unwrap().factor, [0.5; 3]);
        let count = PreprocessingError::Count { what: "mean", found: 2, channels: 3 };
        assert_eq!(of(&[1.0, 2.0]).spec(3), Err(count));
        assert_eq!(of(&[f32::NAN]).spec(3), Err(PreprocessingError::Mean));
        let cut = |fraction| Preprocessing { resize: Resize::Centre(fraction), ..plain() };
        assert!(cut(1.0).spec(3).is_ok());
        assert_eq!(cut(1.5).spec(3), Err(PreprocessingError::Fraction));
        assert_eq!(Preprocessing { pixel_scale: 0.0, ..plain() }.spec(1), Err(PreprocessingError::Scale));
        assert_eq!(Preprocessing { std: vec![0.0], ..plain() }.spec(1), Err(PreprocessingError::Scale));
    }
}
