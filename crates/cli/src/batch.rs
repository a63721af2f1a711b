//! Queries of several images: which numbers are possible, and how their answers share one cost.

use jaguar::plan::MOST_IMAGES;
use jaguar::plan::batch::is_size;
use serde::Serialize;

/// A number of images that a query may have.
pub fn size(text: &str) -> Result<u32, String> {
    let images = text.parse::<u32>().ok().filter(|&images| is_size(images));
    images.ok_or_else(|| format!("a power of two up to {MOST_IMAGES} is possible"))
}

/// How an answer shares its query, and its query's cost.
#[derive(Clone, Copy, Serialize)]
pub struct Shared {
    /// How many images a query has.
    pub images: usize,
    /// How many of them were inputs; the others were zeros.
    pub inputs: usize,
    /// Which of them this one was, from 0.
    pub index: usize,
}

impl Shared {
    /// Whether the query has no further answer.
    pub fn is_last(self) -> bool {
        self.index + 1 == self.inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, images) in [("1", Some(1)), ("16", Some(16)), ("64", Some(64)), ("0", None), ("3", None)] {
            assert_eq!(size(text).ok(), images, "{text}");
        }
        for text in ["128", "-1", "4294967296", "", "two"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
