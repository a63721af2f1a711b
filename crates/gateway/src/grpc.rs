//! The protocol's messages for gRPC, by their numbers in `open_inference_grpc.proto`, and how gRPC frames them.

use std::borrow::Cow;
use std::collections::HashMap;

use hyper::body::Bytes;
use prost::{Message, Oneof};
use zeroize::{Zeroize, Zeroizing};

use crate::input::{Data, Given, Inputs, inputs};
use crate::model::{About, PLATFORM, TensorInfo};
use crate::output::{Tensor, Values, check_wanted, no_classification};
use crate::refusal::{Refusal, invalid};
use crate::wiped::Wiped;

/// Where the service's methods are.
pub const SERVICE: &str = "/inference.GRPCInferenceService/";

/// Bytes in front of a message: whether it is compressed, and its length.
pub const PREFIX: usize = 5;

#[derive(Clone, PartialEq, Message)]
pub struct Flag {
    #[prost(bool, tag = "1")]
    pub is: bool,
}

/// Which model: the request for its metadata, and whether it is ready.
#[derive(Clone, PartialEq, Message)]
pub struct Which {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct ModelMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    versions: Vec<String>,
    #[prost(string, tag = "3")]
    platform: String,
    #[prost(message, repeated, tag = "4")]
    inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    outputs: Vec<TensorMetadata>,
    #[prost(map = "string, string", tag = "6")]
    properties: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(oneof = "Choice", tags = "1, 2, 3, 4, 5")]
    choice: Option<Choice>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Choice {
    #[prost(bool, tag = "1")]
    Flag(bool),
    #[prost(int64, tag = "2")]
    Integer(i64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(double, tag = "4")]
    Real(f64),
    #[prost(uint64, tag = "5")]
    Count(u64),
}

/// A tensor's values by their type; of types that are not known here, nothing.
#[derive(Clone, PartialEq, Message)]
struct Contents {
    #[prost(int64, repeated, tag = "3")]
    integers: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    counts: Vec<u32>,
    #[prost(float, repeated, tag = "6")]
    floats: Vec<f32>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    texts: Vec<Bytes>,
}

/// A tensor with its values, given or answered.
#[derive(Clone, PartialEq, Message)]
struct InferTensor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    contents: Option<Contents>,
}

#[derive(Clone, PartialEq, Message)]
struct WantedTensor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(map = "string, message", tag = "2")]
    parameters: HashMap<String, Parameter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub model: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(message, repeated, tag = "5")]
    inputs: Vec<InferTensor>,
    #[prost(message, repeated, tag = "6")]
    outputs: Vec<WantedTensor>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    raw: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    model: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(map = "string, message", tag = "4")]
    parameters: HashMap<String, Parameter>,
    #[prost(message, repeated, tag = "5")]
    outputs: Vec<InferTensor>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    raw: Vec<Vec<u8>>,
}

/// The one message that `body` frames.
pub fn unframed<M: Message + Default>(body: Bytes) -> Result<M, Refusal> {
    let wrong = || invalid!("the request is not one message of gRPC");
    let (&[compressed, a, b, c, d], message) = body.split_first_chunk::<PREFIX>().ok_or_else(wrong)?;
    if compressed != 0 {
        return Err(Refusal::Unsupported("compressed messages are not read".into()));
    }
    if u32::from_be_bytes([a, b, c, d]) as usize != message.len() {
        return Err(wrong());
    }
    M::decode(body.slice(PREFIX..)).map_err(|e| invalid!("the request is not as expected: {e}"))
}

/// `message` as gRPC frames it.
pub fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Zeroizing::new(Vec::with_capacity(PREFIX + length));
    frame.push(0);
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    // (There is room: it neither fails nor moves.)
    let _ = message.encode(&mut *frame);
    Bytes::from_owner(frame)
}

/// What is told of the model.
pub fn metadata(name: &str, about: &About) -> impl Message + use<> {
    let tensors = |all: Vec<TensorInfo>| {
        let tensor = |TensorInfo { name, datatype, shape }| TensorMetadata {
            name,
            datatype: String::from(datatype),
            shape,
        };
        all.into_iter().map(tensor).collect()
    };
    ModelMetadata {
        name: name.to_owned(),
        versions: vec![about.version()],
        platform: PLATFORM.to_owned(),
        inputs: tensors(about.inputs()),
        outputs: tensors(about.outputs()),
        properties: about.properties().into_iter().map(|(name, text)| (name.to_owned(), text)).collect(),
    }
}

/// What a request asks, and in which form it wants its answer.
pub struct Asked {
    pub inputs: Inputs,
    pub wanted: Vec<String>,
    pub form: Form,
}

/// As the inputs came, so the outputs go.
#[derive(Default)]
pub struct Form {
    id: String,
    raw: bool,
}

pub fn read(about: &About, request: Request, most: usize) -> Result<Asked, Refusal> {
    let Request { id, inputs: given, outputs, raw, .. } = request;
    let is_raw = !raw.is_empty();
    if is_raw && (raw.len() != given.len() || given.iter().any(|tensor| tensor.contents.is_some())) {
        return Err(invalid!("raw_input_contents has one entry for each input, and these have no contents"));
    }
    let mut tensors = Vec::new();
    let mut raw = raw.iter();
    for tensor in &given {
        let data = match (raw.next(), &tensor.contents) {
            (Some(raw), _) => Data::Raw(raw),
            (None, None) => return Err(invalid!("input '{}' has no contents", tensor.name)),
            (None, Some(contents)) => match tensor.datatype.as_str() {
                "UINT8" => Data::Numbers(contents.counts.iter().map(|&count| count as f32).collect()),
                "BYTES" => Data::Files(contents.texts.iter().map(|file| &file[..]).collect()),
                _ => Data::Numbers(contents.floats.iter().copied().collect()),
            },
        };
        let (name, datatype) = (Cow::from(&*tensor.name), Cow::from(&*tensor.datatype));
        tensors.push(Given { name, datatype, shape: tensor.shape.clone(), data });
    }
    if outputs.iter().any(|output| output.parameters.contains_key("classification")) {
        return Err(no_classification());
    }
    let wanted: Vec<String> = outputs.into_iter().map(|output| output.name).collect();
    check_wanted(about, &wanted)?;
    let inputs = inputs(about, tensors, most);
    for mut contents in given.into_iter().filter_map(|tensor| tensor.contents) {
        contents.floats.zeroize();
        contents.counts.zeroize();
    }
    Ok(Asked { inputs: inputs?, wanted, form: Form { id, raw: is_raw } })
}

/// The answer, framed.
pub fn write(
    (name, about): (&str, &About),
    form: Form,
    warning: Option<String>,
    tensors: &[Tensor],
) -> Bytes {
    let parameter = |text| Parameter { choice: Some(Choice::Text(text)) };
    let mut response = Response {
        model: name.to_owned(),
        version: about.version(),
        id: form.id,
        parameters: warning.into_iter().map(|text| ("warning".to_owned(), parameter(text))).collect(),
        outputs: Vec::new(),
        raw: Vec::new(),
    };
    for Tensor { name, shape, values } in tensors {
        let contents = (!form.raw).then(|| match values {
            Values::Floats(values) => Contents { floats: values.to_vec(), ..Contents::default() },
            Values::Integers(values) => Contents { integers: values.to_vec(), ..Contents::default() },
            Values::Texts(texts) => {
                let text = |text: &Zeroizing<String>| Bytes::from_owner(text.bytes().collect::<Wiped<u8>>());
                Contents { texts: texts.iter().map(text).collect(), ..Contents::default() }
            }
        });
        let datatype = values.datatype().to_owned();
        response.outputs.push(InferTensor { name: name.clone(), datatype, shape: shape.clone(), contents });
        if form.raw {
            response.raw.push(values.raw().to_vec());
        }
    }
    let frame = framed(&response);
    response.raw.zeroize();
    for mut contents in response.outputs.into_iter().filter_map(|tensor| tensor.contents) {
        contents.floats.zeroize();
        contents.integers.zeroize();
    }
    frame
}
