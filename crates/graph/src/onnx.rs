//! The ONNX file format: protobuf messages, and reading them under limits.
//!
//! The messages are written out by hand from the public `onnx.proto` (ONNX 1.x, IR versions 3 to 11), with the
//! fields that an importer needs; others are skipped. A file is untrusted: before anything is decoded,
//! [`decode`] walks through its framing and bounds the number of messages, so that a small file cannot make
//! the decoder allocate much more than its own size.

use std::path::{Component, Path, PathBuf};

use prost::Message;
use thiserror::Error;

/// The largest model file, in bytes; tensors in files beside it come on top.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 30;
/// The largest sum of tensor data in files beside the model, in bytes.
pub(crate) const MAX_EXTERNAL_BYTES: u64 = 2 << 30;
/// The most length-delimited fields outside tensor data: nodes, names, attributes, dimensions.
const MAX_FIELDS: usize = 1 << 18;
/// The most bytes of integers in variable-length coding (which grow eightfold when decoded).
const MAX_VARINT_BYTES: usize = 32 << 20;
/// The deepest nesting of messages.
const MAX_DEPTH: usize = 32;

/// Why a file could not be read as ONNX.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The model's file cannot be read. (Whoever gave its name says it.)
    #[error("the file cannot be read: {0}")]
    Io(std::io::Error),
    /// A file of tensors beside the model.
    #[error("its tensors' file {path} cannot be read: {problem}")]
    External {
        /// The file that was to be read.
        path: PathBuf,
        /// The file system's error.
        problem: std::io::Error,
    },
    /// A file of more bytes than are read.
    #[error("the file has {found} bytes, at most {limit} are read")]
    TooLarge {
        /// The file's size, in bytes.
        found: u64,
        /// How many bytes are read at most.
        limit: u64,
    },
    /// More of something than a model can sensibly have.
    #[error("the file has too many {0} for a model")]
    TooMany(&'static str),
    /// Not the wire format of protocol buffers, or cut short.
    #[error("not a protocol buffer, or cut short: {0}")]
    Framing(String),
    /// A model file without a graph.
    #[error("the file holds no graph: it is empty, or no ONNX model")]
    NoGraph,
    /// A tensor whose data cannot be used.
    #[error("tensor {name:?}: {problem}")]
    Tensor {
        /// What the file calls the tensor.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A model file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// The version of the file format.
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    /// The program that wrote the file.
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    /// What the model computes.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// By domain, the version of the operators' definitions.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// What the exporter says besides.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// The version of a domain's operators.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Empty for ONNX's own.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// The version of this domain's operators.
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// A computation: nodes, and the values that go in and out.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// In topological order.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// A name that people read; nothing depends on it.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Constants by name.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs; older files list initializers here too.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// The values that the graph gives.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Values by name; empty for an absent optional one.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// The names of the values that it makes.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// A name that people read; nothing depends on it.
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    /// The operator's name in its domain.
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    /// The operator's parameters, which no node computes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's domain; empty for ONNX's own.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
}

/// A parameter of an operation.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// What the file calls it.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The value of a real attribute.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// The value of an integer attribute.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// The value of a text attribute, in UTF-8.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub s: Option<Vec<u8>>,
    /// The value of a tensor attribute.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A subgraph: what an If, a Loop or a Scan computes.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// The values of an attribute that is a list of reals.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// The values of an attribute that is a list of integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
}

/// A constant tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Its shape; empty for a single number.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// One of [`data_type`].
    #[prost(int32, optional, tag = "2")]
    pub data_type: Option<i32>,
    /// The values, if they are of single precision.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Values of 32 bits and fewer, half-precision ones by their bit pattern.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// The values, if they are 64-bit integers.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// What the file calls it.
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    /// Any type's values, little-endian.
    #[prost(bytes = "vec", optional, tag = "9")]
    pub raw_data: Option<Vec<u8>>,
    /// The values, if they are of double precision.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Where the data is if it lies in another file.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 if the data lies in another file.
    #[prost(int32, optional, tag = "14")]
    pub data_location: Option<i32>,
}

/// The values of [`TensorProto::data_type`] that are read.
pub mod data_type {
    /// Single precision (IEEE 754 binary32).
    pub(crate) const FLOAT: i32 = 1;
    /// Unsigned integers of 8 bits.
    pub(crate) const UINT8: i32 = 2;
    /// Signed integers of 8 bits.
    pub(crate) const INT8: i32 = 3;
    /// Unsigned integers of 16 bits.
    pub(crate) const UINT16: i32 = 4;
    /// Signed integers of 16 bits.
    pub(crate) const INT16: i32 = 5;
    /// Signed integers of 32 bits.
    pub(crate) const INT32: i32 = 6;
    /// Signed integers of 64 bits.
    pub(crate) const INT64: i32 = 7;
    /// Truth values, one byte each.
    pub(crate) const BOOL: i32 = 9;
    /// Half precision (IEEE 754 binary16).
    pub(crate) const FLOAT16: i32 = 10;
    /// Double precision (IEEE 754 binary64).
    pub(crate) const DOUBLE: i32 = 11;
    /// The upper half of single precision.
    pub(crate) const BFLOAT16: i32 = 16;
}

/// A key and a value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// What the metadata is about.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// What it says of that.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// A value's name and type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// What the file calls it.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Its type; absent where the exporter inferred none.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// A type; only tensors are read.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Set if the value is a tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// The element type and the shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// One of [`data_type`].
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    /// The shape; absent where the exporter inferred none.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape, of which single dimensions may be open.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// One for each axis, the batch included.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// A size, a name for one, or neither.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// The size, where it is fixed.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// The name of a size that is open.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

/// Which message a length-delimited field holds, as far as the walk before decoding must know.
#[derive(Clone, Copy, PartialEq)]
enum FieldKind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    /// Any other message or string: counted, not entered.
    Leaf,
    /// Value types and dimensions.
    Nested,
    /// Fixed-width values, raw bytes: not larger when decoded than now.
    Bulk,
    /// Integers of variable length.
    Varints,
}

impl FieldKind {
    fn of_field(self, field: u64) -> FieldKind {
        match (self, field) {
            (FieldKind::Model, 7) | (FieldKind::Attribute, 6) => FieldKind::Graph,
            (FieldKind::Graph, 1) => FieldKind::Node,
            (FieldKind::Graph, 5) | (FieldKind::Attribute, 5) => FieldKind::Tensor,
            (FieldKind::Graph, 11 | 12) => FieldKind::Nested,
            (FieldKind::Node, 5) => FieldKind::Attribute,
            (FieldKind::Attribute, 8) => FieldKind::Varints,
            (FieldKind::Attribute, 4 | 7) | (FieldKind::Tensor, 4 | 9 | 10) => FieldKind::Bulk,
            (FieldKind::Tensor, 1 | 5 | 7) => FieldKind::Varints,
            (FieldKind::Nested, _) => FieldKind::Nested,
            _ => FieldKind::Leaf,
        }
    }

    fn has_fields(self) -> bool {
        matches!(
            self,
            FieldKind::Model | FieldKind::Graph | FieldKind::Node | FieldKind::Attribute | FieldKind::Tensor
        )
    }
}

/// What the walk has seen so far.
#[derive(Default)]
struct Census {
    fields: usize,
    varint_bytes: usize,
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Walks through a message's fields, counting. Value types are entered only if they parse, since strings in
/// them look alike.
fn survey(kind: FieldKind, mut bytes: &[u8], depth: usize, census: &mut Census) -> Result<(), OnnxError> {
    let cut = || OnnxError::Framing("a field ends beyond its message".into());
    if depth > MAX_DEPTH {
        return Err(OnnxError::TooMany("levels of nesting"));
    }
    while !bytes.is_empty() {
        let key = varint(&mut bytes).ok_or_else(cut)?;
        let skipped = match key & 7 {
            0 => {
                varint(&mut bytes).ok_or_else(cut)?;
                census.varint_bytes += 1;
                0
            }
            1 => 8,
            5 => 4,
            2 => {
                let length = varint(&mut bytes).and_then(|l| usize::try_from(l).ok()).ok_or_else(cut)?;
                let body = bytes.get(..length).ok_or_else(cut)?;
                let inner = kind.of_field(key >> 3);
                match inner {
                    FieldKind::Varints => census.varint_bytes += length,
                    FieldKind::Bulk => {}
                    // Each dimension takes at least two bytes: counting halves bounds them without entering.
                    FieldKind::Nested => census.fields += 1 + length / 2,
                    _ => census.fields += 1,
                }
                if inner.has_fields() {
                    survey(inner, body, depth + 1, census)?;
                }
                length
            }
            other => return Err(OnnxError::Framing(format!("wire type {other}"))),
        };
        bytes = bytes.get(skipped..).ok_or_else(cut)?;
        if census.fields > MAX_FIELDS {
            return Err(OnnxError::TooMany("fields"));
        }
        if census.varint_bytes > MAX_VARINT_BYTES {
            return Err(OnnxError::TooMany("integers"));
        }
    }
    Ok(())
}

/// Decodes a model from memory.
///
/// # Errors
/// Not a protocol buffer, cut short, or more fields than a model has.
pub fn decode(bytes: &[u8]) -> Result<ModelProto, OnnxError> {
    survey(FieldKind::Model, bytes, 0, &mut Census::default())?;
    ModelProto::decode(bytes).map_err(|e| OnnxError::Framing(e.to_string()))
}

/// Reads a model and the tensor files beside it.
///
/// # Errors
/// As [`decode`]; files that cannot be read, are too large, or lie outside the model's folder.
pub fn read(path: &Path) -> Result<ModelProto, OnnxError> {
    let found = std::fs::metadata(path).map_err(OnnxError::Io)?.len();
    if found > MAX_FILE_BYTES {
        return Err(OnnxError::TooLarge { found, limit: MAX_FILE_BYTES });
    }
    let bytes = std::fs::read(path).map_err(OnnxError::Io)?;
    let mut model = decode(&bytes)?;
    drop(bytes);
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut budget = MAX_EXTERNAL_BYTES;
    if let Some(graph) = &mut model.graph {
        let in_nodes = graph.node.iter_mut().flat_map(|n| &mut n.attribute).filter_map(|a| a.t.as_mut());
        for tensor in graph.initializer.iter_mut().chain(in_nodes) {
            load_external(tensor, folder, &mut budget)?;
        }
    }
    Ok(model)
}

/// Brings a tensor's data in from the file that it names, which must lie in the model's folder or below.
fn load_external(tensor: &mut TensorProto, folder: &Path, budget: &mut u64) -> Result<(), OnnxError> {
    use std::io::{Read, Seek, SeekFrom};

    if tensor.data_location != Some(1) {
        return Ok(());
    }
    let name = tensor.name.clone().unwrap_or_default();
    let problem = |problem: &str| OnnxError::Tensor { name: name.clone(), problem: problem.into() };
    let entry = |key: &str| {
        let entries = &tensor.external_data;
        entries.iter().find(|e| e.key.as_deref() == Some(key)).and_then(|e| e.value.as_deref())
    };
    let location = Path::new(entry("location").ok_or_else(|| problem("its external data names no file"))?);
    if location.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(problem("its external data lies outside the model's folder"));
    }
    let path = folder.join(location);
    let io = |problem| OnnxError::External { path: path.clone(), problem };
    // A link out of the folder would be a way around the check above.
    let real = path.canonicalize().map_err(io)?;
    let root =
        if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.canonicalize().map_err(io)?;
    if !real.starts_with(&root) {
        return Err(problem("its external data lies outside the model's folder"));
    }
    let number = |key: &str| -> Result<Option<u64>, OnnxError> {
        let text = entry(key);
        text.map(|t| t.parse().map_err(|_| problem("its external data has a bad offset or length")))
            .transpose()
    };
    let offset = number("offset")?.unwrap_or(0);
    let mut file = std::fs::File::open(&real).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let available = size.checked_sub(offset).ok_or_else(|| problem("its external file is too short"))?;
    let length = number("length")?.unwrap_or(available);
    if length > available {
        return Err(problem("its external file is too short"));
    }
    *budget = budget.checked_sub(length).ok_or(OnnxError::TooMany("bytes of external data"))?;
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut data = vec![0; length as usize];
    file.read_exact(&mut data).map_err(io)?;
    tensor.raw_data = Some(data);
    tensor.data_location = None;
    Ok(())
}

/// A constant's values.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Real numbers of any precision, as single precision.
    Float(Vec<f32>),
    /// Integers and truth values.
    Int(Vec<i64>),
}

impl Values {
    /// How many values the tensor has.
    pub fn len(&self) -> usize {
        match self {
            Values::Float(v) => v.len(),
            Values::Int(v) => v.len(),
        }
    }

    /// Whether the tensor has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl TensorProto {
    /// The shape and the values.
    ///
    /// # Errors
    /// A type that is not read, a negative or overflowing shape, or data of another length than the shape says
    /// (so nothing is ever allocated by the shape alone).
    pub fn values(&self) -> Result<(Vec<usize>, Values), OnnxError> {
        let error =
            |problem: String| OnnxError::Tensor { name: self.name.clone().unwrap_or_default(), problem };
        if self.data_location == Some(1) {
            return Err(error("its data lies in another file, which was not read".into()));
        }
        let mut count = Some(1usize);
        let mut dims = Vec::with_capacity(self.dims.len());
        for &dim in &self.dims {
            let dim = usize::try_from(dim).map_err(|_| error(format!("dimension {dim}")))?;
            count = count.and_then(|c| c.checked_mul(dim));
            dims.push(dim);
        }
        let count = count.ok_or_else(|| error("its shape overflows".into()))?;
        let raw = self.raw_data.as_deref().filter(|raw| !raw.is_empty());
        let int32 = |map: fn(i32) -> f32| self.int32_data.iter().map(|&v| map(v)).collect::<Vec<_>>();
        let values = match self.data_type.unwrap_or(0) {
            data_type::FLOAT => Values::Float(match raw {
                Some(raw) => little_endian(raw, f32::from_le_bytes),
                None => self.float_data.clone(),
            }),
            data_type::DOUBLE => Values::Float(match raw {
                Some(raw) => little_endian(raw, |b| f64::from_le_bytes(b) as f32),
                None => self.double_data.iter().map(|&v| v as f32).collect(),
            }),
            data_type::FLOAT16 => Values::Float(match raw {
                Some(raw) => little_endian(raw, |b| half(u16::from_le_bytes(b))),
                None => int32(|v| half(v as u16)),
            }),
            data_type::BFLOAT16 => Values::Float(match raw {
                Some(raw) => little_endian(raw, |b| brain(u16::from_le_bytes(b))),
                None => int32(|v| brain(v as u16)),
            }),
            data_type::INT64 => Values::Int(match raw {
                Some(raw) => little_endian(raw, i64::from_le_bytes),
                None => self.int64_data.clone(),
            }),
            kind @ (data_type::INT32
            | data_type::UINT8
            | data_type::INT8
            | data_type::UINT16
            | data_type::INT16
            | data_type::BOOL) => Values::Int(match (raw, kind) {
                (Some(raw), data_type::INT32) => little_endian(raw, |b| i64::from(i32::from_le_bytes(b))),
                (Some(raw), data_type::UINT16) => little_endian(raw, |b| i64::from(u16::from_le_bytes(b))),
                (Some(raw), data_type::INT16) => little_endian(raw, |b| i64::from(i16::from_le_bytes(b))),
                (Some(raw), data_type::INT8) => little_endian(raw, |b| i64::from(i8::from_le_bytes(b))),
                (Some(raw), _) => little_endian(raw, |[b]: [u8; 1]| i64::from(b)),
                (None, _) => self.int32_data.iter().map(|&v| i64::from(v)).collect(),
            }),
            other => return Err(error(format!("its data type {other} is not read"))),
        };
        if values.len() != count {
            return Err(error(format!("its shape has {count} values, its data {}", values.len())));
        }
        Ok((dims, values))
    }
}

/// Values of N bytes each; a rest that is no whole value is left out (the count then shows it).
fn little_endian<const N: usize, T>(raw: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (whole, rest) = raw.as_chunks::<N>();
    if rest.is_empty() { whole.iter().map(|&b| read(b)).collect() } else { Vec::new() }
}

/// IEEE half precision to single.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let fraction = f32::from(bits & 0x3ff);
    sign * match (bits >> 10) & 0x1f {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        exponent => (1024.0 + fraction) * 2f32.powi(i32::from(exponent) - 25),
    }
}

/// The upper half of single precision to the whole.
fn brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_values() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f32.powi(-24)),
            (0x3555, 0.333_251_95),
        ] {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7e00).is_nan() && half(0xfc00) == f32::NEG_INFINITY);
        assert_eq!(brain(0xc040), -3.0);
    }

    #[test]
    fn a_shape_without_data_is_an_error() {
        let tensor = TensorProto { dims: vec![1 << 40, 1 << 20], data_type: Some(1), ..Default::default() };
        assert!(tensor.values().unwrap_err().to_string().contains("its data 0"));
        let tensor = TensorProto { dims: vec![1 << 40, 1 << 40], data_type: Some(1), ..Default::default() };
        assert!(tensor.values().unwrap_err().to_string().contains("overflows"));
        let tensor = TensorProto { dims: vec![-1], data_type: Some(1), ..Default::default() };
        assert!(tensor.values().unwrap_err().to_string().contains("-1"));
    }

    #[test]
    fn a_file_of_empty_messages_is_refused_before_decoding() {
        // Field 1 of the graph (a node), of length zero, over and over: two bytes that decode to hundreds.
        let graph = [0x0a, 0x00].repeat(MAX_FIELDS + 1);
        let mut file = vec![0x3a];
        prost::encoding::encode_varint(graph.len() as u64, &mut file);
        file.extend(graph);
        assert!(matches!(decode(&file), Err(OnnxError::TooMany("fields"))));
    }

    #[test]
    fn external_data_stays_in_the_folder() {
        let folder = std::env::temp_dir().join(format!("jaguar-onnx-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("model")).unwrap();
        std::fs::write(folder.join("outside.bin"), [0; 8]).unwrap();
        std::fs::write(folder.join("model/inside.bin"), [0, 0, 128, 63, 0, 0, 0, 64]).unwrap();
        let load = |location: &str, offset: &str| {
            let entry =
                |k: &str, v: &str| StringStringEntryProto { key: Some(k.into()), value: Some(v.into()) };
            let mut tensor = TensorProto {
                dims: vec![1],
                data_type: Some(1),
                data_location: Some(1),
                external_data: vec![
                    entry("location", location),
                    entry("offset", offset),
                    entry("length", "4"),
                ],
                ..Default::default()
            };
            load_external(&mut tensor, &folder.join("model"), &mut 100)?;
            tensor.values()
        };
        assert_eq!(load("inside.bin", "4").unwrap(), (vec![1], Values::Float(vec![2.0])));
        assert!(load("inside.bin", "8").is_err());
        assert!(load("inside.bin", "99").is_err());
        assert!(load("../outside.bin", "0").unwrap_err().to_string().contains("outside"));
        assert!(load("/etc/hostname", "0").unwrap_err().to_string().contains("outside"));
        assert!(load("absent.bin", "0").is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
