//! What the Go program is told, as JSON. Its counterpart is `fhe/network/network.go`.

use serde::{Serialize, Serializer};

/// A network as a chain of sums of convolutions. Value 0 is the input, value i the output of layer i - 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// The model's name, for people.
    pub name: String,
    /// `[C, H, W]`.
    pub input: [usize; 3],
    /// The largest absolute value of an input.
    pub input_bound: f64,
    /// Each is rectified.
    pub layers: Vec<Layer>,
    /// Makes the logits; not rectified.
    pub output: Layer,
}

/// `Σ over terms of convolution(value) + bias`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer {
    /// For messages.
    pub name: String,
    /// Their outputs have the same shape.
    pub terms: Vec<Term>,
    /// `[C_out]`.
    pub bias: Floats,
}

/// A convolution of one value; all groups in one kernel, dilation filled with zeros.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    /// Which value.
    pub from: usize,
    /// C_out.
    pub out: usize,
    /// C_in.
    #[serde(rename = "in")]
    pub channels: usize,
    /// k_h.
    pub height: usize,
    /// k_w.
    pub width: usize,
    /// Down and right.
    pub stride: usize,
    /// Rows and columns of zeros: `[top, left, bottom, right]`.
    pub padding: [usize; 4],
    /// `[C_out, C_in, k_h, k_w]`, row-major.
    pub weights: Floats,
}

/// Numbers, which JSON carries as the base64 of their bytes, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub struct Floats(pub Vec<f32>);

impl Serialize for Floats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|x| x.to_le_bytes()).collect();
        serializer.serialize_str(&base64(&bytes))
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit > chunk.len() { '=' } else { char::from(ALPHABET[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
