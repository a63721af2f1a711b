//! The protocol's JSON, and its extension for binary tensors: behind the JSON, whose length a header tells, the tensors' bytes follow.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::input::{Data, Given, Inputs, inputs};
use crate::model::About;
use crate::output::{Tensor, Values, check_wanted, no_classification};
use crate::refusal::{Refusal, invalid};
use crate::wiped::Wiped;

/// The header that tells how long the JSON is, where tensors follow it.
pub const JSON_LENGTH: &str = "inference-header-content-length";

/// What a request asks.
pub struct Asked {
    pub inputs: Inputs,
    /// The names of the outputs that it wants; none: all of them.
    pub wanted: Vec<String>,
    pub form: Form,
}

/// In which form it wants its answer.
pub struct Form {
    id: Option<String>,
    /// Whether outputs are binary that it does not name.
    binary: bool,
    /// Whether those are that it names.
    binary_of: HashMap<String, bool>,
}

type Parameters = HashMap<String, Value>;

#[derive(Deserialize)]
struct Request<'a> {
    id: Option<String>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(borrow)]
    inputs: Vec<Input<'a>>,
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<i64>,
    #[serde(default)]
    parameters: Parameters,
    data: Option<List>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

/// Values in JSON, in lists of lists or in one.
#[derive(Default)]
struct List {
    numbers: Wiped<f32>,
    texts: Vec<Zeroizing<String>>,
}

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut list = Self::default();
        from.deserialize_seq(Into(&mut list))?;
        if !list.numbers.is_empty() && !list.texts.is_empty() {
            return Err(D::Error::custom("numbers and texts in one tensor"));
        }
        Ok(list)
    }
}

/// Puts what comes into a list.
struct Into<'a>(&'a mut List);

impl<'de> DeserializeSeed<'de> for Into<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Into<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("numbers, texts, or lists of them")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Into(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.numbers.push(value as f32);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.texts.push(Zeroizing::new(value.to_owned()));
        Ok(())
    }
}

/// What `body` asks, whose first `json_length` bytes are JSON (all, where that is not told).
pub fn read(about: &About, body: &[u8], json_length: Option<usize>, most: usize) -> Result<Asked, Refusal> {
    let json = json_length.unwrap_or(body.len());
    let (json, mut rest) = body
        .split_at_checked(json)
        .ok_or_else(|| invalid!("{JSON_LENGTH} is {json}, and the request has {} bytes", body.len()))?;
    let request: Request<'_> =
        serde_json::from_slice(json).map_err(|e| invalid!("the request is not as expected: {e}"))?;
    let mut tensors = Vec::new();
    for Input { name, datatype, shape, parameters, data } in request.inputs {
        let data = match (parameters.get("binary_data_size"), data) {
            (None, None) => return Err(invalid!("input '{name}' has no data")),
            (None, Some(List { numbers, texts })) if texts.is_empty() => Data::Numbers(numbers),
            (None, Some(List { texts, .. })) => Data::Base64(texts),
            (Some(_), Some(_)) => return Err(invalid!("input '{name}' has data in JSON and behind it")),
            (Some(size), None) => {
                let there = rest.len();
                let wrong =
                    || invalid!("input '{name}': binary_data_size is {size}, and {there} bytes are there");
                let size = size.as_u64().and_then(|size| usize::try_from(size).ok()).ok_or_else(wrong)?;
                let (own, behind) = rest.split_at_checked(size).ok_or_else(wrong)?;
                rest = behind;
                Data::Raw(own)
            }
        };
        tensors.push(Given { name, datatype, shape, data });
    }
    if !rest.is_empty() {
        return Err(invalid!("{} bytes are behind the request that no input has", rest.len()));
    }
    let flag = |parameters: &Parameters, name: &str| parameters.get(name).and_then(Value::as_bool);
    if request.outputs.iter().any(|output| output.parameters.contains_key("classification")) {
        return Err(no_classification());
    }
    let binary = flag(&request.parameters, "binary_data_output").unwrap_or(false);
    let of = |output: &Output| {
        let own = flag(&output.parameters, "binary_data").unwrap_or(binary);
        (output.name.clone(), own)
    };
    let binary_of = request.outputs.iter().map(of).collect();
    let wanted: Vec<String> = request.outputs.into_iter().map(|output| output.name).collect();
    check_wanted(about, &wanted)?;
    let inputs = inputs(about, tensors, most)?;
    Ok(Asked { inputs, wanted, form: Form { id: request.id, binary, binary_of } })
}

#[derive(Serialize)]
struct Response<'a> {
    model_name: &'a str,
    model_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
    outputs: Vec<Answered<'a>>,
}

#[derive(Serialize)]
struct Answered<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [i64],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Values>,
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Floats(values) => to.collect_seq(values.iter()),
            Self::Integers(values) => to.collect_seq(values.iter()),
            Self::Texts(texts) => to.collect_seq(texts.iter().map(|text| text.as_str())),
        }
    }
}

/// The answer, and the length of its JSON if tensors follow it.
pub fn write(
    (name, about): (&str, &About),
    form: Form,
    warning: Option<String>,
    tensors: &[Tensor],
) -> (Wiped<u8>, Option<usize>) {
    let mut behind = Vec::new();
    let mut outputs = Vec::new();
    for Tensor { name, shape, values } in tensors {
        let binary = form.binary_of.get(name).copied().unwrap_or(form.binary);
        let raw = binary.then(|| values.raw());
        let parameters = raw.as_ref().map(|raw| json!({ "binary_data_size": raw.len() }));
        let data = raw.is_none().then_some(values);
        behind.extend(raw);
        outputs.push(Answered { name, datatype: values.datatype(), shape, parameters, data });
    }
    let response = Response {
        model_name: name,
        model_version: about.version(),
        id: form.id,
        parameters: warning.map(|warning| json!({ "warning": warning })),
        outputs,
    };
    let mut body = Wiped::default();
    // (Memory takes all that is written, and nothing in it has no form.)
    let _ = serde_json::to_writer(&mut body, &response);
    let json_length = (!behind.is_empty()).then_some(body.len());
    behind.iter().for_each(|raw| body.extend(raw));
    (body, json_length)
}
