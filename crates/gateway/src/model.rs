//! What is told of the model: its tensors, and what is protected.

use std::collections::BTreeMap;

use jaguar::bundle::ModelId;
use jaguar::client::{Connected, Reveal};
use jaguar::compile::samples::Axes;
use jaguar::is_model_name;
use jaguar::network::Network;
use jaguar::report::caveat;
use serde::Serialize;

/// What a gateway is called where servers of models say what they are.
pub const PLATFORM: &str = "jaguar-gateway";

/// A tensor's name, type and shape; -1 is any number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorInfo {
    pub name: String,
    pub datatype: &'static str,
    pub shape: Vec<i64>,
}

/// The model behind a gateway.
pub struct About {
    pub network: Network,
    pub model: ModelId,
    pub reveal: Reveal,
    protocol: String,
    leaks: Option<String>,
}

/// The output with the most likely class's name, and that with its number.
pub const LABEL: &str = "label";
pub const CLASS: &str = "class";

/// What an output is called that has no name.
const OUTPUT: &str = "output";

impl About {
    pub fn new(connected: &Connected) -> Self {
        let (network, plan) = (connected.network().clone(), connected.plan());
        Self {
            protocol: plan.choices.names(&network),
            leaks: plan.choices.comparison.caveat(),
            model: connected.model(),
            reveal: connected.reveal(),
            network,
        }
    }

    /// Of a network that nobody serves.
    #[cfg(test)]
    pub fn of(network: Network, reveal: Reveal) -> Self {
        Self { network, reveal, model: ModelId([7; 32]), protocol: "none".into(), leaks: None }
    }

    /// The name of the model for who asks here, where its server's name for it is not known.
    pub fn name(&self) -> &str {
        if is_model_name(&self.network.name) { &self.network.name } else { "model" }
    }

    /// Its version: the fingerprint of what was compiled.
    pub fn version(&self) -> String {
        self.model.to_string()
    }

    /// The input's name.
    pub fn input(&self) -> &str {
        &self.network.nodes[0].name
    }

    /// One input's shape as the model has it, without the batch.
    pub fn layout(&self) -> Vec<i64> {
        let [c, h, w] = self.network.nodes[0].shape;
        let axes = Axes::of_network(&self.network);
        let dims = match (axes.dims, axes.channels_last) {
            ([], false) => vec![c, h, w],
            ([], true) => vec![h, w, c],
            (dims, _) => dims.to_vec(),
        };
        dims.into_iter().map(|dim| dim as i64).collect()
    }

    /// The input, as tensors of numbers that are preprocessed already.
    pub fn inputs(&self) -> Vec<TensorInfo> {
        let shape = [&[-1], &self.layout()[..]].concat();
        vec![TensorInfo { name: self.input().to_owned(), datatype: "FP32", shape }]
    }

    /// The model's own outputs: the name, and the shape of one of them.
    pub fn parts(&self) -> Vec<(String, Vec<i64>)> {
        if self.reveal == Reveal::Label {
            return Vec::new();
        }
        let output = &self.network.output;
        if output.parts.is_empty() {
            let values = self.network.nodes.last().map_or(0, |node| node.shape.iter().product::<usize>());
            return vec![(OUTPUT.to_owned(), vec![values as i64])];
        }
        let parts = output.parts.iter().filter(|part| part.count() != Some(0));
        // (A model's first dimension is its batch, of one.)
        let dims = |dims: &[usize]| {
            let own = dims.split_first().filter(|(first, _)| **first == 1).map_or(dims, |(_, rest)| rest);
            own.iter().map(|&dim| dim as i64).collect()
        };
        parts.map(|part| (part.name.clone(), dims(&part.dims))).collect()
    }

    /// Whether there are outputs that name the most likely class: where the model has one output, and none of these names.
    pub fn names_class(&self) -> bool {
        let parts = self.parts();
        parts.len() < 2 && !parts.iter().any(|(name, _)| name == LABEL || name == CLASS)
    }

    pub fn outputs(&self) -> Vec<TensorInfo> {
        let parts = self.parts().into_iter().map(|(name, dims)| TensorInfo {
            name,
            datatype: "FP32",
            shape: [&[-1], &dims[..]].concat(),
        });
        let mut outputs: Vec<TensorInfo> = parts.collect();
        if self.names_class() {
            let info = |name: &str, datatype| TensorInfo { name: name.to_owned(), datatype, shape: vec![-1] };
            outputs.extend([info(LABEL, "BYTES"), info(CLASS, "INT64")]);
        }
        outputs
    }

    /// What a person should know: what is protected, by what, and in which other ways an input may come.
    pub fn properties(&self) -> BTreeMap<&'static str, String> {
        let input = self.input();
        let answer = match self.reveal {
            Reveal::Logits => "logits",
            Reveal::Label => "label",
        };
        let mut properties = BTreeMap::from([
            (
                "protected",
                "the input and the answer are seen by this gateway and by who asks it; the server that has the model learns neither \
                 (it is taken to follow the protocol), and the weights stay with the server"
                    .to_owned(),
            ),
            ("protocol", self.protocol.clone()),
            ("revealed", answer.to_owned()),
            ("fingerprint", self.model.in_full()),
            (
                "inputs",
                format!(
                    "{input} as FP32 is preprocessed already; as UINT8 of shape [-1, height, width, 3] it is pictures in red, green and \
                     blue, as BYTES of shape [-1] picture files (JPEG, PNG, ...; base64 in JSON): both are preprocessed here"
                ),
            ),
        ]);
        properties.extend(self.leaks.clone().map(|leaks| ("leaks", leaks)));
        properties.extend(caveat(&self.network).map(|caveat| ("signs", caveat)));
        properties.extend(self.network.output.left_out().map(|left_out| ("left_out", left_out)));
        properties
    }
}
