//! A network as it is evaluated in one round, and as JSON.

use std::str::FromStr;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A network as a chain of sums of convolutions. Value 0 is the input, value i the output of layer i - 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The model's name, for people.
    pub name: String,
    /// `[C, H, W]` of the network's input.
    pub input: [usize; 3],
    /// The largest absolute value of an input.
    pub input_bound: f64,
    /// What stands for ReLU.
    #[serde(default)]
    pub relu: Polynomial,
    /// How many inputs stand abreast in a ciphertext, and are evaluated at once: 1 or more.
    #[serde(default = "one")]
    pub images: usize,
    /// The layers in their order; a ReLU follows each.
    pub layers: Vec<Layer>,
    /// Makes the logits; not rectified.
    pub output: Layer,
}

fn one() -> usize {
    1
}

impl Description {
    /// The layers, and behind them the output.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Layer> {
        (0..self.layers.len() + 1).map(|at| self.layers.get(at).unwrap_or(&self.output))
    }

    /// Calls layers by number: what the program says of them goes to clients too, when it cannot evaluate.
    #[must_use]
    pub fn without_names(mut self) -> Self {
        for (number, layer) in (1..).zip(&mut self.layers) {
            layer.name = format!("layer {number}");
        }
        self.output.name = "output".into();
        self
    }
}

/// A composite polynomial for ReLU, by the degrees of its parts. `jaguar_ckks::circuits::COMPOSITES` has their coefficients; more levels, less error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Polynomial {
    /// 8 levels, error 2^-8.0.
    #[serde(rename = "7-15")]
    Coarse,
    /// 10 levels, error 2^-9.3.
    #[serde(rename = "7-7-7")]
    Short,
    /// The paper's: 11 levels, error 2^-10.1.
    #[default]
    #[serde(rename = "7-7-13")]
    Paper,
}

impl Polynomial {
    /// From the fewest levels to the most.
    pub const ALL: [Self; 3] = [Self::Coarse, Self::Short, Self::Paper];

    /// The degrees, e.g. `7-7-13`: its name in a description.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coarse => "7-15",
            Self::Short => "7-7-7",
            Self::Paper => "7-7-13",
        }
    }

    /// The finest of those that take so many levels or fewer.
    pub fn finest(levels: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|p| p.levels() <= levels)
    }

    /// How many levels a parameter set must have for it.
    pub fn levels(self) -> u32 {
        match self {
            Self::Coarse => 8,
            Self::Short => 10,
            Self::Paper => 11,
        }
    }
}

impl FromStr for Polynomial {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no polynomial for ReLU is called {name:?}; there are {names}")
        })
    }
}

/// `Σ over terms of convolution(value) + bias`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// What messages call the layer.
    pub name: String,
    /// Their outputs have the same shape.
    pub terms: Vec<Term>,
    /// `[C_out]`: what is added to each channel.
    pub bias: Floats,
    /// The largest absolute value before ReLU, or of a logit, at any place of a ciphertext: what calibration found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
}

/// A convolution of one value; all groups in one kernel, dilation filled with zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The number of the value that it convolves.
    pub from: usize,
    /// C_out: channels that it makes.
    pub out: usize,
    /// C_in: channels that it takes.
    #[serde(rename = "in")]
    pub channels: usize,
    /// k_h: rows of the kernel.
    pub height: usize,
    /// k_w: columns of the kernel.
    pub width: usize,
    /// Rows and columns from one window to the next.
    pub stride: usize,
    /// Rows and columns of zeros: `[top, left, bottom, right]`.
    pub padding: [usize; 4],
    /// `[C_out, C_in, k_h, k_w]`, row-major.
    pub weights: Floats,
}

/// Numbers, which JSON carries as the base64 (RFC 4648, with padding) of their bytes, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub struct Floats(pub Vec<f32>);

impl Serialize for Floats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|x| x.to_le_bytes()).collect();
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Floats {
    /// Fails at what is no base64, at a length that is no multiple of four bytes, and at what is not finite.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(text).map_err(|e| D::Error::custom(format!("no base64: {e}")))?;
        let (numbers, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            return Err(D::Error::custom(format!("{} bytes of numbers of four", bytes.len())));
        }
        let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        match numbers.iter().position(|number| !number.is_finite()) {
            Some(at) => Err(D::Error::custom(format!("number {at} is {}", numbers[at]))),
            None => Ok(Self(numbers)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Floats, Polynomial};

    #[test]
    fn levels_that_are_there_are_used() {
        assert_eq!([7, 8, 9, 10, 11, 99].map(Polynomial::finest), {
            use Polynomial::{Coarse, Paper, Short};
            [None, Some(Coarse), Some(Coarse), Some(Short), Some(Paper), Some(Paper)]
        });
    }

    #[test]
    fn numbers_are_base64_in_json() {
        let floats = Floats(vec![1.0, -0.5]);
        let text = serde_json::to_string(&floats).expect("plain");
        assert_eq!(text, "\"AACAPwAAAL8=\"");
        assert_eq!(serde_json::from_str::<Floats>(&text).expect("the same"), floats);
        for (text, why) in
            [("\"AAC?\"", "no base64"), ("\"AACAPwAA\"", "6 bytes"), ("\"AADAfw==\"", "number 0 is NaN")]
        {
            let error = serde_json::from_str::<Floats>(text).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
