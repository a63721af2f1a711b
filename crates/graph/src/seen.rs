//! How an input's values lie beside those that calibration saw: what lies far outside gives wrong answers without an
//! error.

use std::fmt;

use crate::network::InputSpec;
pub use crate::network::Seen;

/// Farther outside than this part of what calibration saw is well outside.
const MARGIN: f64 = 0.5;
/// An input that spans less than this part of what calibration saw is on another scale.
const NARROW: f64 = 1.0 / 50.0;
/// More than this part of the values must not be cut off.
const CLAMPED: f64 = 0.01;

/// An input that is not like those of calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unusual {
    /// The range of the input's values.
    pub found: Seen,
    /// The range of the values that calibration saw.
    pub calibration: Seen,
    /// Which part of its values the network's range cuts off.
    pub clamped: f64,
}

impl fmt::Display for Unusual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, calibration, clamped } = self;
        write!(f, "the input has values from {found}, calibration saw {calibration}")?;
        if *clamped > 0.0 {
            write!(f, "; {:.1} % of them are cut off at the network's range", 100.0 * clamped)?;
        }
        write!(f, ": the answer may be far off")
    }
}

impl InputSpec {
    /// Whether an input tensor, as [`InputSpec::quantise`] takes it, is unlike those of calibration: well outside their
    /// range, cut off in a good part, or on a scale much smaller than theirs.
    pub fn unusual(&self, tensor: &[f32], activation_bits: u32) -> Option<Unusual> {
        let (found, calibration) = (Seen::of([tensor])?, self.seen?);
        let margin = MARGIN * calibration.spread();
        let below = f64::from(calibration.lowest) - f64::from(found.lowest);
        let above = f64::from(found.highest) - f64::from(calibration.highest);
        let narrow = 0.0 < found.spread() && found.spread() < NARROW * calibration.spread();
        let clamped = self.clamped(tensor, activation_bits) as f64 / tensor.len() as f64;
        let unusual = below.max(above) > margin || narrow || clamped > CLAMPED;
        unusual.then_some(Unusual { found, calibration, clamped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(seen: Seen) -> InputSpec {
        InputSpec { seen: Some(seen), ..InputSpec::plain(1000.0) }
    }

    #[test]
    fn what_is_unlike_calibration_is_told_from_what_is_like_it() {
        let spec = spec(Seen { lowest: -2.0, highest: 3.0 });
        let unusual = |values: &[f32]| spec.unusual(values, 16);
        // All of the range, a part of it, a little beyond, one colour.
        for usual in [&[-2.0, 3.0][..], &[0.1, 0.4], &[-4.4, 5.4], &[0.0; 7], &[]] {
            assert_eq!(unusual(usual), None, "{usual:?}");
        }
        for (values, clamped) in [
            (&[-4.6, 0.0][..], 0.0),
            (&[0.0, 5.6], 0.0),
            (&[0.0, 0.09], 0.0),
            (&[0.0, 300.0, 400.0, 1.0], 0.5),
        ] {
            let found = unusual(values).unwrap();
            assert_eq!((found.clamped, found.calibration.highest), (clamped, 3.0), "{values:?}");
        }
        let text = unusual(&[-200.0, 344.0]).unwrap().to_string();
        for part in ["-200 to 344", "-2.00 to 3.00", "100.0 %"] {
            assert!(text.contains(part), "{text}");
        }
        // Nothing is known: nothing is said.
        assert_eq!(InputSpec { seen: None, ..spec }.unusual(&[1e9], 16), None);
    }

    #[test]
    fn a_good_part_cut_off_is_told_even_near_the_range() {
        let spec = spec(Seen { lowest: 0.0, highest: 40.0 });
        let mut values = vec![1.0; 99];
        values.push(35.0);
        assert_eq!(spec.unusual(&values, 16), None, "one in a hundred");
        values.push(36.0);
        assert!(spec.unusual(&values, 16).is_some());
    }
}
