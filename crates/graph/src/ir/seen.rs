//! The range of values that calibration saw.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The smallest and the largest value of some tensors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The smallest.
    pub lowest: f32,
    /// The largest.
    pub highest: f32,
}

impl Seen {
    /// Of all values of all tensors; `None` if there are none.
    pub fn of<'a>(tensors: impl IntoIterator<Item = &'a [f32]>) -> Option<Self> {
        let values = tensors.into_iter().flatten().copied();
        values.fold(None, |seen, v| {
            let Seen { lowest, highest } = seen.unwrap_or(Seen { lowest: v, highest: v });
            Some(Seen { lowest: lowest.min(v), highest: highest.max(v) })
        })
    }

    pub(crate) fn spread(self) -> f64 {
        f64::from(self.highest) - f64::from(self.lowest)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.lowest.abs().max(self.highest.abs()) {
            0.0 | 100.0.. => 0,
            1.0..100.0 => 2,
            _ => 5,
        };
        write!(f, "{:.digits$} to {:.digits$}", self.lowest, self.highest)
    }
}
