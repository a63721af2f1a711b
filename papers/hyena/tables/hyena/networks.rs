//! The linear layers of a whole network by their steps, in every form.

use std::collections::HashMap;

use anyhow::{Context, Result, anyhow};
use jaguar_engine::bundle::Bundle;
use jaguar_graph::network::{Linear, Shape, Weights};
use jaguar_hyena::steps::{Bytes, Planned};
use jaguar_hyena::{Form, Wanted};
use jaguar_ring::cpu::Cpu;
use serde::Serialize;

use super::layers::FORMS;
use super::units::{Case, Means, Sampling, Seconds, measure};

/// One linear layer of a network.
#[derive(Clone, Serialize)]
pub struct Layer {
    pub name: String,
    pub what: String,
    /// Whether it is a convolution: the paper counts these only.
    pub convolution: bool,
    /// In the order of [`FORMS`].
    pub forms: Vec<Taken>,
}

/// What one form of a layer takes.
#[derive(Clone, Copy, Serialize)]
pub struct Taken {
    pub channels: usize,
    pub seconds: Seconds,
}

impl Layer {
    /// The form with the least seconds, as a place in [`FORMS`].
    pub fn best(&self) -> usize {
        let seconds = |form: usize| self.forms[form].seconds.all();
        (0..FORMS.len()).min_by(|&a, &b| seconds(a).total_cmp(&seconds(b))).expect("there are forms")
    }
}

/// Bytes of all linear layers in some forms.
#[derive(Clone, Copy, Serialize)]
pub struct Stored {
    pub keys: usize,
    /// At the server: numbers and polynomials.
    pub model: usize,
    /// Of a query, up and down.
    pub query: usize,
}

/// The linear layers of a network.
#[derive(Clone, Serialize)]
pub struct Linears {
    pub network: String,
    pub layers: Vec<Layer>,
    /// In the order of [`FORMS`].
    pub forms: Vec<Stored>,
    /// The best form of each layer.
    pub mixed: Stored,
}

fn shape_name(spec: &Linear, [channels, h, w]: Shape) -> String {
    let [kh, kw] = spec.kernel;
    let depthwise = if spec.groups > 1 { ", in groups" } else { "" };
    format!("{h}x{w}, {channels}>{}, {kh}x{kw}/{}{depthwise}", spec.out_channels, spec.stride[0])
}

/// Runs some steps of every linear layer in every form, layers by turns between the forms, on this thread. Layers that are
/// alike are run once.
///
/// # Errors
/// When a form cannot run a layer, or a result is wrong.
pub fn linears(cpu: Cpu, bundle: &Bundle, sampling: Sampling) -> Result<Linears> {
    let (network, weights) = (&bundle.model.network, &bundle.model.weights);
    let nodes = network
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(id, node)| Some((id, node.op.linear()?, network.nodes[node.inputs[0]].shape)));
    let nodes: Vec<(usize, &Linear, Shape)> = nodes.collect();
    let plan = |form: &dyn Fn(usize) -> Form| -> Result<Planned> {
        let wanted = nodes.iter().enumerate().map(|(at, &(_, spec, in_shape))| Wanted {
            form: form(at),
            spec,
            in_shape,
            activation_bits: network.activation_bits,
            weight_bits: network.weight_bits + spec.max_exponent,
            weight_memory: u64::MAX,
        });
        let wanted: Vec<Wanted<'_>> = wanted.collect();
        Planned::new(&wanted).map_err(|(at, why)| anyhow!("{}: {why}", network.nodes[nodes[at].0].name))
    };
    let planned: Vec<Planned> =
        FORMS.iter().map(|&form| plan(&|_| form).context(form.name())).collect::<Result<_>>()?;
    let mut known: HashMap<String, Vec<Seconds>> = HashMap::new();
    let mut layers = Vec::new();
    for (index, &(id, spec, in_shape)) in nodes.iter().enumerate() {
        let (what, name) = (shape_name(spec, in_shape), network.nodes[id].name.clone());
        // Products of as many bits have the same prime.
        let alike = format!("{what}, {} {}", spec.shift, spec.max_exponent);
        if !known.contains_key(&alike) {
            eprintln!("{}: {name}, {what} ...", network.name);
            let weights: &Weights = weights[id].as_ref().context("a linear layer has weights")?;
            let case = |planned: &Planned| Case::new(cpu, planned, index, weights, Means::ALL, sampling);
            let mut cases: Vec<Case> = planned.iter().map(case).collect();
            let measured = measure(&mut cases, sampling).with_context(|| name.clone())?;
            known.insert(alike.clone(), measured.into_iter().map(|(_, seconds)| seconds).collect());
        }
        let forms = planned.iter().zip(&known[&alike]).map(|(planned, &seconds)| Taken {
            channels: planned.layer(index).packing().channels(),
            seconds,
        });
        let convolution = in_shape[1..] != [1, 1];
        layers.push(Layer { name, what, convolution, forms: forms.collect() });
    }
    // The best forms together, in a ring of their own.
    let best: Vec<Form> = layers.iter().map(|layer| FORMS[layer.best()]).collect();
    let mixed = plan(&|at| best[at]).context("the best form of each layer")?;
    let query = |planned: &Planned| -> usize {
        (0..nodes.len()).map(|index| planned.query(index)).map(|(up, down)| up + down).sum()
    };
    let stored = |planned: &Planned| {
        let Bytes { keys, numbers, polynomials } = planned.bytes();
        Stored { keys, model: numbers + polynomials, query: query(planned) }
    };
    let forms = planned.iter().map(stored).collect();
    Ok(Linears { network: network.name.clone(), layers, forms, mixed: stored(&mixed) })
}
