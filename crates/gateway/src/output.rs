//! From predictions to the tensors of an answer.

use jaguar::answer::class_name;
use jaguar::client::Prediction;
use zeroize::{Zeroize, Zeroizing};

use crate::model::{About, CLASS, LABEL};
use crate::refusal::Refusal;
use crate::wiped::Wiped;

/// A tensor of an answer.
pub struct Tensor {
    pub name: String,
    pub shape: Vec<i64>,
    pub values: Values,
}

/// Its values.
pub enum Values {
    Floats(Wiped<f32>),
    Integers(Wiped<i64>),
    Texts(Vec<Zeroizing<String>>),
}

impl Values {
    pub fn datatype(&self) -> &'static str {
        match self {
            Self::Floats(_) => "FP32",
            Self::Integers(_) => "INT64",
            Self::Texts(_) => "BYTES",
        }
    }

    /// As they lie in memory, little-endian; of text, its length in front.
    pub fn raw(&self) -> Wiped<u8> {
        match self {
            Self::Floats(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::Integers(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::Texts(texts) => {
                let mut raw = Wiped::default();
                for text in texts {
                    raw.extend(&(text.len() as u32).to_le_bytes());
                    raw.extend(text.as_bytes());
                }
                raw
            }
        }
    }
}

/// The tensors of `predictions`: those that `wanted` names (in its order), or all where it names none.
pub fn outputs(
    about: &About,
    mut predictions: Vec<Prediction>,
    wanted: &[String],
) -> Result<Vec<Tensor>, Refusal> {
    let mut tensors = all(about, &predictions);
    for prediction in &mut predictions {
        match prediction {
            Prediction::Logits(logits) => logits.zeroize(),
            Prediction::Label(label) => label.zeroize(),
        }
    }
    if wanted.is_empty() {
        return Ok(tensors);
    }
    let mut take = |name: &String| {
        let at = tensors.iter().position(|tensor| tensor.name == *name);
        // (What is there was looked at before anything was asked.)
        at.map(|at| tensors.remove(at))
            .ok_or_else(|| Refusal::Invalid(format!("output '{name}' is there once")))
    };
    wanted.iter().map(&mut take).collect()
}

/// Looks whether the model has all outputs that are `wanted`.
pub fn check_wanted(about: &About, wanted: &[String]) -> Result<(), Refusal> {
    let all: Vec<String> = about.outputs().into_iter().map(|output| output.name).collect();
    for (index, name) in wanted.iter().enumerate() {
        if !all.contains(name) || wanted[..index].contains(name) {
            let text = format!("output '{name}': there are {}, each once", all.join(", "));
            return Err(Refusal::Invalid(text));
        }
    }
    Ok(())
}

/// A parameter of outputs that other servers know.
pub fn no_classification() -> Refusal {
    let text =
        format!("classification is not known here: the outputs '{LABEL}' and '{CLASS}' name the class");
    Refusal::Invalid(text)
}

fn all(about: &About, predictions: &[Prediction]) -> Vec<Tensor> {
    let (network, count) = (&about.network, predictions.len() as i64);
    let mut tensors = Vec::new();
    for (index, (name, dims)) in about.parts().into_iter().enumerate() {
        let mut values = Wiped::default();
        for prediction in predictions {
            let mut outputs = prediction.outputs(network);
            match prediction {
                Prediction::Logits(logits) if outputs.is_empty() => {
                    network.output.logits(logits).iter().for_each(|&v| values.push(v as f32));
                }
                _ => outputs[index].values.iter().for_each(|&v| values.push(v as f32)),
            }
            outputs.iter_mut().for_each(|output| output.values.zeroize());
        }
        tensors.push(Tensor { name, shape: [&[count], &dims[..]].concat(), values: Values::Floats(values) });
    }
    if about.names_class() {
        let classes: Wiped<i64> = predictions.iter().map(|p| p.label(network) as i64).collect();
        let name = |&class: &i64| Zeroizing::new(class_name(network, class as usize));
        let labels = classes.iter().map(name).collect();
        let tensor = |name: &str, values| Tensor { name: name.to_owned(), shape: vec![count], values };
        tensors.push(tensor(LABEL, Values::Texts(labels)));
        tensors.push(tensor(CLASS, Values::Integers(classes)));
    }
    tensors
}

#[cfg(test)]
mod tests {
    use jaguar::client::Reveal;
    use jaguar::network::{Finish, ImageSpec, InputSpec, Network, Node, Op, OutputPart, OutputSpec};
    use serde_json::Value;

    use super::*;
    use crate::{grpc, rest};

    /// Five logits: two outputs of three and two values, the first behind a softmax.
    fn about(reveal: Reveal) -> About {
        let node = Node {
            name: "input".into(),
            op: Op::new(jaguar::network::Input),
            inputs: Vec::new(),
            shape: [5, 1, 1],
        };
        let part =
            |name: &str, dims: &[usize], finish| OutputPart { name: name.into(), dims: dims.into(), finish };
        let parts = vec![part("scores", &[1, 3], Finish::Softmax), part("boxes", &[1, 1, 2], Finish::None)];
        let output = OutputSpec { parts, scales: vec![3.0, 7.0], ..OutputSpec::plain(1.0) };
        let input = InputSpec { image: ImageSpec::default(), ..InputSpec::plain(1.0) };
        let network = Network {
            name: "a network".into(),
            activation_bits: 16,
            guard_bits: 0,
            noise_bits: 0,
            weight_bits: 8,
            nodes: vec![node],
            input,
            output,
        };
        About::of(network, reveal)
    }

    /// JSON, binary tensors and gRPC have the same bits, which are those of what `predict` shows.
    #[test]
    fn all_forms_are_the_predictions() {
        let about = about(Reveal::Logits);
        assert_eq!(about.name(), "model", "a name with a space is none");
        let logits = [[1, -2, 3, 1000, -5], [0, 0, 1, 7, 9]];
        let predictions = || logits.map(|logits| Prediction::Logits(logits.to_vec())).to_vec();
        let want = |output: usize| -> Vec<f32> {
            let values = |p: &Prediction| p.outputs(&about.network)[output].values.clone();
            predictions().iter().flat_map(values).map(|v| v as f32).collect()
        };
        let request = |binary: bool| {
            let text = serde_json::json!({
                "parameters": { "binary_data_output": binary },
                "inputs": [{ "name": "input", "datatype": "FP32", "shape": [5], "data": [1, 2, 3, 4, 5] }],
                "outputs": [{ "name": "boxes" }, { "name": "scores" }],
            });
            rest::read(&about, text.to_string().as_bytes(), None, 1).unwrap_or_else(|e| panic!("{e}"))
        };
        let asked = request(false);
        let tensors = outputs(&about, predictions(), &asked.wanted).unwrap();
        let (body, length) = rest::write(("m", &about), asked.form, None, &tensors);
        assert_eq!(length, None);
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let (body, length) = rest::write(("m", &about), request(true).form, None, &tensors);
        let mut behind = &body[length.unwrap()..];
        for (place, (name, output, shape)) in
            [("boxes", 1, &[2, 1, 2][..]), ("scores", 0, &[2, 3])].into_iter().enumerate()
        {
            let told = &answer["outputs"][place];
            assert_eq!((&told["name"], &told["shape"]), (&name.into(), &shape.into()));
            let json = told["data"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32);
            let (own, rest) = behind.split_at(4 * want(output).len());
            behind = rest;
            let (chunks, _) = own.as_chunks::<4>();
            let raw = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes));
            let bits = |values: &mut dyn Iterator<Item = f32>| values.map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(&mut json.into_iter()), bits(&mut want(output).into_iter()), "{name}, JSON");
            assert_eq!(bits(&mut raw.into_iter()), bits(&mut want(output).into_iter()), "{name}, binary");
        }
        assert!(behind.is_empty());
        let bytes: Vec<u8> = want(1).iter().flat_map(|v| v.to_le_bytes()).collect();
        let frame = grpc::write(("m", &about), grpc::Form::default(), None, &tensors);
        assert!(frame.windows(bytes.len()).any(|window| window == bytes), "gRPC");
    }

    #[test]
    fn a_label_alone_has_its_name_and_number() {
        let about = about(Reveal::Label);
        let tensors = outputs(&about, vec![Prediction::Label(4)], &[]).unwrap();
        let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.name).collect();
        assert_eq!(names, [LABEL, CLASS]);
        assert_eq!(*tensors[0].values.raw(), *b"\x07\0\0\0class 4");
        assert_eq!(*tensors[1].values.raw(), 4i64.to_le_bytes());
        assert!(check_wanted(&about, &["scores".into()]).is_err());
    }
}
