//! NumPy's `.npy` files: header and numbers, checked against each other before anything large is read.
//!
//! The format (NEP 1): `\x93NUMPY`, two bytes of version, the header's length (two bytes in version 1, four
//! later, little-endian), the header, which is a Python dictionary as text, and the values.

use std::io::{self, BufRead, BufReader, Read};
use std::num::ParseIntError;
use std::string::FromUtf8Error;

/// How such a file begins.
const SIGNATURE: &[u8] = b"\x93NUMPY";

/// Larger tensors are refused unread.
const MAX_VALUES: u64 = 1 << 26;

/// NumPy's own headers are a hundred bytes.
const MAX_HEADER: usize = 1 << 16;

/// Why a `.npy` file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It begins with something else.
    #[error("no .npy file: it does not begin with NumPy's signature; numpy.save writes one")]
    Signature,
    /// It is empty.
    #[error("nothing is in it (0 bytes)")]
    Nothing,
    /// It ends within the header.
    #[error("the .npy header is cut off: {0}")]
    HeaderCutOff(#[source] io::Error),
    /// A header longer than NumPy writes.
    #[error("an .npy header of {0} bytes is too long")]
    HeaderLength(usize),
    /// A header that is no text.
    #[error("the .npy header: {0}")]
    HeaderText(#[from] FromUtf8Error),
    /// A header without this entry.
    #[error("the .npy header has no '{0}'")]
    Missing(&'static str),
    /// Columns come first.
    #[error("the tensor is in Fortran order; numpy.save of numpy.ascontiguousarray(...) is in C order")]
    FortranOrder,
    /// A header whose shape is no tuple.
    #[error("the .npy header's shape is no tuple")]
    NoTuple,
    /// A dimension that is no number.
    #[error("{text:?} in the .npy header's shape is no dimension: {source}")]
    Dimension {
        /// What is there instead.
        text: String,
        /// Why that is no number.
        source: ParseIntError,
    },
    /// More values than are read.
    #[error("a tensor of shape {0:?} is too large: it may have {MAX_VALUES} values")]
    Size(Vec<u64>),
    /// A type that is not read.
    #[error(
        "the values are of type {0}; little-endian floats or integers are needed (numpy.save of \
         array.astype(numpy.float32))"
    )]
    Type(String),
    /// The file ends within the values.
    #[error("the tensor is cut off: {found} bytes of {expected}")]
    CutOff {
        /// Bytes that are there.
        found: usize,
        /// Bytes that the header announces.
        expected: usize,
    },
    /// The file goes on behind the values.
    #[error("more bytes than the tensor's {0} follow its header")]
    TooLong(usize),
    /// Infinities or no numbers.
    #[error("the tensor has a value {value} at {at:?}: finite numbers are needed")]
    NotFinite {
        /// The first of them, as it was read.
        value: f32,
        /// Its place, an index for each dimension.
        at: Vec<u64>,
    },
}

/// The shape and the values, in C order.
///
/// # Errors
/// When the file cannot be read, is no `.npy` file or cut off, or holds anything but finite real numbers.
pub fn read(file: impl Read) -> Result<(Vec<u64>, Vec<f32>), NpyError> {
    let mut file = BufReader::new(file);
    let mut start = [0; 8];
    if file.fill_buf()?.is_empty() {
        return Err(NpyError::Nothing);
    }
    if file.read_exact(&mut start).is_err() || !recognises(&start) {
        return Err(NpyError::Signature);
    }
    let mut length = [0; 4];
    let size = if start[6] == 1 { 2 } else { 4 };
    file.read_exact(&mut length[..size]).map_err(NpyError::HeaderCutOff)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER {
        return Err(NpyError::HeaderLength(length));
    }
    let mut header = vec![0; length];
    file.read_exact(&mut header).map_err(NpyError::HeaderCutOff)?;
    let header = String::from_utf8(header)?;
    let entry = |key: &'static str| {
        let after = header.split_once(&format!("'{key}':")).map(|(_, after)| after.trim_start());
        after.ok_or(NpyError::Missing(key))
    };

    if !entry("fortran_order")?.starts_with("False") {
        return Err(NpyError::FortranOrder);
    }
    let shape = entry("shape")?.strip_prefix('(').and_then(|s| s.split_once(')'));
    let (shape, _) = shape.ok_or(NpyError::NoTuple)?;
    let shape = shape
        .split(',')
        .map(str::trim)
        .filter(|d| !d.is_empty())
        .map(|d| d.parse::<u64>().map_err(|source| NpyError::Dimension { text: d.to_owned(), source }));
    let shape: Vec<u64> = shape.collect::<Result<_, _>>()?;
    let count = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).filter(|n| *n <= MAX_VALUES);
    let count = count.ok_or_else(|| NpyError::Size(shape.clone()))? as usize;

    let descr = entry("descr")?;
    // (A structured type is a list of fields.)
    let descr = match descr.split_once(']') {
        Some((fields, _)) if descr.starts_with('[') => &descr[..=fields.len()],
        _ => descr.split([',', '}']).next().unwrap_or(descr).trim(),
    };
    let values = match descr.trim_matches(['\'', '"']) {
        "<f2" => numbers(file, count, |b| half(u16::from_le_bytes(b))),
        "<f4" => numbers(file, count, f32::from_le_bytes),
        "<f8" => numbers(file, count, |b| f64::from_le_bytes(b) as f32),
        "|u1" | "|b1" => numbers(file, count, |b| f32::from(u8::from_le_bytes(b))),
        "|i1" => numbers(file, count, |b| f32::from(i8::from_le_bytes(b))),
        "<u2" => numbers(file, count, |b| f32::from(u16::from_le_bytes(b))),
        "<i2" => numbers(file, count, |b| f32::from(i16::from_le_bytes(b))),
        "<u4" => numbers(file, count, |b| u32::from_le_bytes(b) as f32),
        "<i4" => numbers(file, count, |b| i32::from_le_bytes(b) as f32),
        "<u8" => numbers(file, count, |b| u64::from_le_bytes(b) as f32),
        "<i8" => numbers(file, count, |b| i64::from_le_bytes(b) as f32),
        _ => return Err(NpyError::Type(descr.to_owned())),
    }?;
    check_finite(&shape, &values)?;
    Ok((shape, values))
}

/// Whether bytes begin as such a file does.
pub fn recognises(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// Looks for values that are infinite, or no numbers, in a tensor of this shape.
///
/// # Errors
/// The first of them in C order, and where it is.
pub fn check_finite(shape: &[u64], values: &[f32]) -> Result<(), NpyError> {
    let Some(first) = values.iter().position(|v| !v.is_finite()) else { return Ok(()) };
    let mut rest = first as u64;
    let mut at: Vec<u64> = shape
        .iter()
        .rev()
        .map(|&side| {
            let index = rest % side.max(1);
            rest /= side.max(1);
            index
        })
        .collect();
    at.reverse();
    Err(NpyError::NotFinite { value: values[first], at })
}

/// As many numbers of N bytes each.
fn numbers<const N: usize>(
    file: impl Read,
    count: usize,
    number: impl Fn([u8; N]) -> f32,
) -> Result<Vec<f32>, NpyError> {
    let bytes = data(file, count * N)?;
    Ok(bytes.as_chunks().0.iter().map(|b| number(*b)).collect())
}

/// An IEEE 754 binary16 number: sign, five bits of exponent (bias 15), ten of fraction.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 0 { magnitude } else { -magnitude }
}

/// The rest of the file, which must have this length. Memory follows what is there, not what the header
/// claims.
fn data(file: impl Read, expected: usize) -> Result<Vec<u8>, NpyError> {
    let mut bytes = Vec::new();
    file.take(expected as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() {
        found if found < expected => Err(NpyError::CutOff { found, expected }),
        found if found > expected => Err(NpyError::TooLong(expected)),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_has_its_place() {
        let mut values = vec![0.0; 24];
        assert!(check_finite(&[2, 3, 4], &values).is_ok());
        values[23] = f32::INFINITY;
        values[17] = f32::NAN;
        let error = check_finite(&[2, 3, 4], &values).unwrap_err().to_string();
        assert_eq!(error, "the tensor has a value NaN at [1, 1, 1]: finite numbers are needed");
        assert!(check_finite(&[], &[f32::NAN]).unwrap_err().to_string().contains("NaN at []"));
        assert!(check_finite(&[0, 3], &[]).is_ok());
    }

    #[test]
    fn half_precision() {
        // From the format's definition: largest, smallest normal, smallest of all, a third.
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x3555, 0.333_251_95),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), value, "{bits:#x}");
        }
        assert!(half(0x7e00).is_nan());
        // Larger patterns are larger numbers.
        assert!((0..0x7c00).map(half).is_sorted());
    }
}
