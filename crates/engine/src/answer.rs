//! What a prediction says to a person or a program: the most likely classes, and the model's outputs as real numbers.

use jaguar_graph::network::{Finish, Network, softmax};
use serde::Serialize;

use crate::client::Prediction;

/// A class, and how likely the network holds it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// The class's number among the network's outputs, from 0.
    pub class: usize,
    /// Its label; `class N` in a model without labels.
    pub name: String,
    /// The model's own logit.
    pub logit: f64,
    /// What the model ends in (softmax, sigmoid) makes of it; a softmax over all logits where it ends in nothing.
    pub probability: f64,
}

/// One of the model's outputs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Output {
    /// Its name in the ONNX model.
    pub name: String,
    /// Its shape there, the batch included.
    pub shape: Vec<usize>,
    /// The values in C order, with what the model ends in applied.
    pub values: Vec<f64>,
}

impl Prediction {
    /// The class that comes first. Of equal logits it is the one with the smaller number.
    pub fn label(&self, network: &Network) -> usize {
        match self {
            Self::Label(label) => *label,
            Self::Logits(logits) => order(&network.output.logits(logits)).first().copied().unwrap_or(0),
        }
    }

    /// The `count` classes that come first, best first; none where only the label was revealed.
    pub fn top(&self, network: &Network, count: usize) -> Vec<Class> {
        let Self::Logits(logits) = self else { return Vec::new() };
        let real = network.output.logits(logits);
        let finished = network.output.parts.iter().any(|p| p.finish != Finish::None);
        let probabilities = if finished { network.output.finish(logits) } else { softmax(&real) };
        let class = |class: usize| Class {
            class,
            name: class_name(network, class),
            logit: real[class],
            probability: probabilities[class],
        };
        order(&real).into_iter().take(count).map(class).collect()
    }

    /// All outputs by name; none where only the label was revealed.
    pub fn outputs(&self, network: &Network) -> Vec<Output> {
        let Self::Logits(logits) = self else { return Vec::new() };
        let real = network.output.logits(logits);
        let parts = network.output.split(&real).filter(|(_, values)| !values.is_empty());
        let output = parts.map(|(part, values)| Output {
            name: part.name.clone(),
            shape: part.dims.clone(),
            values: part.finish.apply(values),
        });
        output.collect()
    }
}

/// A class's label; `class N` in a model without labels.
pub fn class_name(network: &Network, class: usize) -> String {
    network.output.labels.get(class).cloned().unwrap_or_else(|| format!("class {class}"))
}

/// All classes, the largest logit first.
fn order(logits: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_comes_first() {
        assert_eq!(order(&[3.0, 9.0, -1.0, 9.0]), [1, 3, 0, 2]);
        assert!(order(&[]).is_empty());
    }
}
