//! The first part of a model file, for who computes it in the clear.

use std::collections::{HashMap, HashSet};

use prost::Message;

use super::{describe, is_standard};
use crate::onnx::{
    DimensionProto, GraphProto, ModelProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
    data_type,
};

/// How many values behind a node are looked at.
const BEHIND: usize = 8;

/// Parts of a model that compute one value, each as a file of its own: nodes and constants that it takes, and the value as the only
/// output. `node` has the value's name as an imported [`Graph`](crate::float::Graph) has it. Since an import puts ReLUs behind pools, the
/// value may be one that the file computes a few nodes later: so the first part is up to that node, and the next ones are up to nodes
/// behind it. `dims` are the input's, with the batch, which the files then say. Metadata are left out, and unless `keep_names` says
/// otherwise all names: nodes are called by operator and number, values by number.
///
/// None at all if no node of the model has this name.
pub fn first_parts(
    model: &ModelProto,
    node: &str,
    dims: &[usize],
    keep_names: bool,
) -> impl Iterator<Item = Vec<u8>> {
    let nodes = model.graph.as_ref().map_or(&[][..], |graph| &graph.node);
    let named = (0..nodes.len()).rfind(|&i| describe(&nodes[i], i) == node);
    let ends = named.map_or(0..0, |at| at..nodes.len().min(at + BEHIND));
    ends.filter_map(move |end| first_part(model, end, dims, keep_names))
}

/// The part up to the node at `last`.
fn first_part(model: &ModelProto, last: usize, dims: &[usize], keep_names: bool) -> Option<Vec<u8>> {
    let graph = model.graph.as_ref()?;
    let value = graph.node[last].output.first()?;
    let mut wanted = HashSet::from([value.as_str()]);
    let mut taken = Vec::new();
    // (Nodes stand in topological order: the importer has checked it.)
    for proto in graph.node[..=last].iter().rev() {
        if proto.output.iter().any(|output| wanted.contains(output.as_str())) {
            wanted.extend(proto.input.iter().map(String::as_str));
            taken.push(proto.clone());
        }
    }
    taken.reverse();
    let constants: Vec<_> =
        graph.initializer.iter().filter(|tensor| wanted.contains(tensor.name())).collect();
    let is_constant = |name: &str| constants.iter().any(|tensor| tensor.name() == name);
    let tensor = |name: &str, kind: i32, dims: Option<&[usize]>| {
        let size = |&size: &usize| DimensionProto { dim_value: i64::try_from(size).ok(), dim_param: None };
        let shape = dims.map(|dims| TensorShapeProto { dim: dims.iter().map(size).collect() });
        let tensor_type = Some(TensorTypeProto { elem_type: Some(kind), shape });
        ValueInfoProto { name: Some(name.to_owned()), r#type: Some(TypeProto { tensor_type }) }
    };
    let kind = |info: &ValueInfoProto| {
        let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
        tensor.and_then(|t| t.elem_type).unwrap_or(data_type::FLOAT)
    };
    let inputs = graph.input.iter().filter(|info| wanted.contains(info.name()) && !is_constant(info.name()));
    let mut first = GraphProto {
        node: taken,
        name: graph.name.clone(),
        input: inputs.map(|info| tensor(info.name(), kind(info), Some(dims))).collect(),
        output: vec![tensor(value, data_type::FLOAT, None)],
        initializer: constants.iter().map(|&tensor| tensor.clone()).collect(),
    };
    if !keep_names {
        rename(&mut first);
    }
    let model = ModelProto {
        ir_version: model.ir_version,
        producer_name: None,
        graph: Some(first),
        opset_import: model
            .opset_import
            .iter()
            .filter(|o| is_standard(o.domain.as_deref()))
            .cloned()
            .collect(),
        metadata_props: Vec::new(),
    };
    Some(model.encode_to_vec())
}

/// Takes every name out of a graph without subgraphs that somebody may have chosen.
fn rename(graph: &mut GraphProto) {
    let mut values: HashMap<String, String> = HashMap::new();
    let mut number = |name: &mut String| {
        if !name.is_empty() {
            let next = format!("v{}", values.len());
            *name = values.entry(std::mem::take(name)).or_insert(next).clone();
        }
    };
    let mut named = |name: &mut Option<String>| name.iter_mut().for_each(&mut number);
    graph.input.iter_mut().chain(&mut graph.output).for_each(|info| named(&mut info.name));
    graph.initializer.iter_mut().for_each(|tensor| named(&mut tensor.name));
    for (at, node) in graph.node.iter_mut().enumerate() {
        node.input.iter_mut().chain(&mut node.output).for_each(&mut number);
        node.name = Some(format!("{} {at}", node.op_type()));
        for attribute in &mut node.attribute {
            attribute.t.iter_mut().for_each(|tensor| tensor.name = None);
        }
    }
    graph.name = Some("first layers".into());
}
