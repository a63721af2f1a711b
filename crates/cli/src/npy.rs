//! NumPy's `.npy` files: header and numbers, checked against each other before anything large is read.
//!
//! The format (NEP 1): `\x93NUMPY`, two bytes of version, the header's length (two bytes in version 1, four
//! later, little-endian), the header, which is a Python dictionary as text, and the values.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// Larger tensors are refused unread.
const MAX_VALUES: u64 = 1 << 26;

/// NumPy's own headers are a hundred bytes.
const MAX_HEADER: usize = 1 << 16;

/// The shape and the values, in C order.
///
/// # Errors
/// When the file cannot be read, is no `.npy` file or cut off, or holds anything but finite real numbers.
pub fn read(path: &Path) -> Result<(Vec<u64>, Vec<f32>)> {
    let mut file = BufReader::new(File::open(path)?);
    let mut start = [0; 8];
    ensure!(
        file.read_exact(&mut start).is_ok() && start.starts_with(b"\x93NUMPY"),
        "no .npy file: it does not begin with NumPy's signature"
    );
    let mut length = [0; 4];
    let size = if start[6] == 1 { 2 } else { 4 };
    file.read_exact(&mut length[..size]).context("the .npy header is cut off")?;
    let length = u32::from_le_bytes(length) as usize;
    ensure!(length <= MAX_HEADER, "an .npy header of {length} bytes is too long");
    let mut header = vec![0; length];
    file.read_exact(&mut header).context("the .npy header is cut off")?;
    let header = String::from_utf8(header).context("the .npy header")?;
    let entry = |key: &str| {
        let after = header.split_once(&format!("'{key}':")).map(|(_, after)| after.trim_start());
        after.with_context(|| format!("the .npy header has no '{key}'"))
    };

    let order = entry("fortran_order")?;
    ensure!(order.starts_with("False"), "the tensor is in Fortran order; save it in C order");
    let shape = entry("shape")?.strip_prefix('(').and_then(|s| s.split_once(')'));
    let (shape, _) = shape.context("the .npy header's shape is no tuple")?;
    let shape = shape.split(',').map(str::trim).filter(|d| !d.is_empty()).map(|d| {
        d.parse::<u64>().with_context(|| format!("{d:?} in the .npy header's shape is no dimension"))
    });
    let shape: Vec<u64> = shape.collect::<Result<_>>()?;
    let count = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).filter(|n| *n <= MAX_VALUES);
    let count = count.with_context(|| format!("a tensor of shape {shape:?} is too large"))? as usize;

    let descr = entry("descr")?;
    let descr = descr.split([',', '}']).next().unwrap_or(descr).trim();
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
        _ => bail!("the tensor's type is {descr}; little-endian floats (float32) or integers are needed"),
    }?;
    ensure!(values.iter().all(|v| v.is_finite()), "the tensor holds values that are no finite numbers");
    Ok((shape, values))
}

/// As many numbers of N bytes each.
fn numbers<const N: usize>(
    file: impl Read,
    count: usize,
    number: impl Fn([u8; N]) -> f32,
) -> Result<Vec<f32>> {
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
fn data(file: impl Read, expected: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(expected as u64 + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() >= expected, "the tensor is cut off: {} bytes of {expected}", bytes.len());
    ensure!(bytes.len() == expected, "more bytes than the tensor's {expected} follow its header");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
