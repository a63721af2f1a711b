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
