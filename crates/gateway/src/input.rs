//! From the tensor of a request to the integers that queries take.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jaguar::compile::samples::{Source, npy};
use jaguar::reports::terminal::in_one_line;
use zeroize::{Zeroize, Zeroizing};

use crate::model::About;
use crate::refusal::{Refusal, invalid};
use crate::wiped::Wiped;

/// A tensor as a request has it.
pub struct Given<'a> {
    pub name: Cow<'a, str>,
    pub datatype: Cow<'a, str>,
    pub shape: Vec<i64>,
    pub data: Data<'a>,
}

/// A tensor's values.
pub enum Data<'a> {
    /// As they lie in memory, little-endian; of text, its length (four bytes) and itself, one after the other.
    Raw(&'a [u8]),
    /// Numbers.
    Numbers(Wiped<f32>),
    /// Bytes, of each value.
    Files(Vec<&'a [u8]>),
    /// The same in base64.
    Base64(Vec<Zeroizing<String>>),
}

/// What a request asks about.
pub struct Inputs {
    /// Each as a query takes it.
    pub integers: Vec<Zeroizing<Vec<i64>>>,
    /// What is unusual about them.
    pub warning: Option<String>,
}

/// A picture or a tensor that is wiped at its end.
struct Held(Source);

impl Drop for Held {
    fn drop(&mut self) {
        match &mut self.0 {
            Source::Pixels { rgb, .. } => rgb.zeroize(),
            Source::Tensor { values, .. } => values.zeroize(),
        }
    }
}

/// The inputs among `tensors`, of which a model takes one, with up to `most` inputs in it.
pub fn inputs(about: &About, tensors: Vec<Given<'_>>, most: usize) -> Result<Inputs, Refusal> {
    let count = tensors.len();
    let Ok([tensor]) = <[Given<'_>; 1]>::try_from(tensors) else {
        return Err(invalid!("{count} inputs: the model takes one, '{}'", about.input()));
    };
    if tensor.name != about.input() {
        return Err(invalid!("input '{}': the model's is '{}'", tensor.name, about.input()));
    }
    let sources = match &*tensor.datatype {
        "FP32" => tensors_of(about, tensor, most)?,
        "UINT8" => pictures(tensor, most)?,
        "BYTES" => files(tensor, most)?,
        other => {
            return Err(invalid!(
                "input '{}' has type {other}: FP32 (preprocessed), UINT8 (pixels) or BYTES (picture files) is expected",
                about.input()
            ));
        }
    };
    if sources.is_empty() {
        return Err(invalid!("input '{}' has nothing in it", about.input()));
    }
    let (mut integers, mut warning) = (Vec::new(), None);
    for Held(source) in &sources {
        let input = source.input(&about.network);
        let input = input.map_err(|e| invalid!("input '{}': {e}", about.input()))?;
        integers.push(Zeroizing::new(input.integers));
        warning = warning.or(input.warning);
    }
    Ok(Inputs { integers, warning })
}

/// How many values a tensor of this shape has.
fn volume(shape: &[i64]) -> Option<usize> {
    shape.iter().try_fold(1usize, |all, &dim| all.checked_mul(usize::try_from(dim).ok()?))
}

fn check_count(name: &str, shape: &[i64], found: usize) -> Result<(), Refusal> {
    match volume(shape) {
        Some(count) if count == found => Ok(()),
        Some(count) => {
            Err(invalid!("input '{name}' of shape {shape:?} has {found} values in it, not {count}"))
        }
        None => Err(invalid!("input '{name}': {shape:?} is no shape")),
    }
}

/// More inputs than a request may have.
fn check_batch(name: &str, found: usize, most: usize) -> Result<(), Refusal> {
    if found <= most {
        return Ok(());
    }
    Err(invalid!("input '{name}' has {found} inputs in it; a request may have {most}"))
}

fn tensors_of(about: &About, tensor: Given<'_>, most: usize) -> Result<Vec<Held>, Refusal> {
    let Given { name, shape, data, .. } = tensor;
    let values: Wiped<f32> = match data {
        Data::Numbers(values) => values,
        Data::Raw(bytes) => {
            let (values, rest) = bytes.as_chunks::<4>();
            if !rest.is_empty() {
                return Err(invalid!("input '{name}' has {} bytes: FP32 has four a value", bytes.len()));
            }
            values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        }
        Data::Files(_) | Data::Base64(_) => {
            return Err(invalid!("input '{name}' has texts in it: FP32 is numbers"));
        }
    };
    check_count(&name, &shape, values.len())?;
    let dims: Vec<u64> = shape.iter().map(|&dim| dim as u64).collect();
    npy::check_finite(&dims, &values).map_err(|e| invalid!("input '{name}': {e}"))?;
    let each = about.network.nodes[0].shape.iter().product::<usize>();
    let wanted = || {
        let layout = about.layout();
        invalid!("input '{name}' has shape {shape:?}: {:?} is expected", [&[-1], &layout[..]].concat())
    };
    if values.len() == each {
        return Ok(vec![Held(Source::Tensor { shape: dims, values: values.to_vec() })]);
    }
    let Some((&count, part)) = dims.split_first() else { return Err(wanted()) };
    if count == 0 || values.len() != (count as usize).saturating_mul(each) {
        return Err(wanted());
    }
    check_batch(&name, count as usize, most)?;
    let of = |values: &[f32]| Held(Source::Tensor { shape: part.to_vec(), values: values.to_vec() });
    Ok(values.chunks_exact(each).map(of).collect())
}

fn pictures(tensor: Given<'_>, most: usize) -> Result<Vec<Held>, Refusal> {
    let Given { name, shape, data, .. } = tensor;
    let numbers: Wiped<u8>;
    let bytes: &[u8] = match &data {
        Data::Raw(bytes) => bytes,
        Data::Numbers(values) => {
            let whole = |v: &&f32| v.fract() == 0.0 && (0.0..=255.0).contains(*v);
            if let Some(bad) = values.iter().find(|v| !whole(v)) {
                return Err(invalid!("input '{name}' has {bad} in it: UINT8 is whole numbers from 0 to 255"));
            }
            numbers = values.iter().map(|&v| v as u8).collect();
            &numbers
        }
        Data::Files(_) | Data::Base64(_) => {
            return Err(invalid!("input '{name}' has texts in it: UINT8 is numbers"));
        }
    };
    check_count(&name, &shape, bytes.len())?;
    let (height, width) = match shape[..] {
        [height, width, 3] | [_, height, width, 3] if height > 0 && width > 0 => (height, width),
        _ => {
            return Err(invalid!(
                "input '{name}' has shape {shape:?}: as UINT8, [-1, height, width, 3] is expected"
            ));
        }
    };
    // (Their product is part of the volume, which was counted.)
    let (height, width) = (height as usize, width as usize);
    check_batch(&name, bytes.len() / (3 * height * width), most)?;
    let of = |rgb: &[u8]| Held(Source::Pixels { rgb: rgb.to_vec(), width, height });
    Ok(bytes.chunks_exact(3 * height * width).map(of).collect())
}

fn files(tensor: Given<'_>, most: usize) -> Result<Vec<Held>, Refusal> {
    let Given { name, shape, data, .. } = tensor;
    let decoded: Vec<Zeroizing<Vec<u8>>>;
    let files: Vec<&[u8]> = match &data {
        Data::Files(files) => files.clone(),
        Data::Raw(bytes) => split_texts(bytes).ok_or_else(|| {
            invalid!("input '{name}': a length and that many bytes, for each value, are expected")
        })?,
        Data::Base64(texts) => {
            let decode =
                |text: &Zeroizing<String>| BASE64_STANDARD.decode(text.as_bytes()).map(Zeroizing::new);
            decoded = texts
                .iter()
                .map(decode)
                .collect::<Result<_, _>>()
                .map_err(|e| invalid!("input '{name}': a picture file in JSON is base64: {e}"))?;
            decoded.iter().map(|file| file.as_slice()).collect()
        }
        Data::Numbers(_) => return Err(invalid!("input '{name}' has numbers in it: BYTES is texts")),
    };
    check_count(&name, &shape, files.len())?;
    check_batch(&name, files.len(), most)?;
    let open = |(index, file): (usize, &&[u8])| {
        let opened = Source::encoded(file).map(Held);
        opened.map_err(|e| invalid!("input '{name}', number {index}: {}", in_one_line(&e)))
    };
    files.iter().enumerate().map(open).collect()
}

/// The texts of a tensor in its raw form. None where it is not in that.
fn split_texts(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        texts.push(text);
        bytes = rest;
    }
    bytes.is_empty().then_some(texts)
}
