//! Numbers that scale a matrix's rows, behind its product: `(diag(s)·X)·Y` is `diag(s)·(X·Y)`.
//!
//! So a softmax's inverse sums scale the mixtures of values, a head's features each, and not the weights, as many as there are places.

use super::float::MatrixProduct;
use crate::float::{Node, Op, Product};
use crate::network::{NodeId, Rearrange, Shape};

/// Of a product of matrices whose first factor's rows are scaled by a number each, and are longer than its own: the node that takes its
/// place, and those that are to be put behind all others. `once` says whether a value is taken once.
pub(crate) fn scaled_behind(
    nodes: &[Node],
    once: &dyn Fn(NodeId) -> bool,
    node: NodeId,
) -> Option<(Node, Vec<Node>)> {
    let Node { name, op, inputs, shape: [batch, rows, columns] } = &nodes[node];
    let (product, &[matrix, other]) = (op.downcast_ref::<MatrixProduct>()?, &inputs[..]) else { return None };
    let (batch, rows, columns, inner) = (*batch, *rows, *columns, nodes[matrix].shape[2]);
    if product.transposed[0] || columns >= inner {
        return None;
    }
    let mut scaled = matrix;
    while once(scaled) && nodes[scaled].op.downcast_ref() == Some(&Rearrange::Reshape) {
        scaled = nodes[scaled].inputs[0];
    }
    let scaling = &nodes[scaled];
    let (Product { offsets, .. }, &[values, numbers]) = (scaling.op.downcast_ref()?, &scaling.inputs[..])
    else {
        return None;
    };
    let each = [batch * rows, 1, 1];
    let by_row = nodes[numbers].shape == each && scaling.shape[0] == each[0] && values != numbers;
    if !by_row || !once(scaled) || *offsets != [0.0; 2] {
        return None;
    }
    let made =
        |name: &str, op: Op, inputs: Vec<NodeId>, shape: Shape| Node { name: name.into(), op, inputs, shape };
    let (own, first, shape) = (&scaling.name, nodes.len(), [batch, rows, columns]);
    let by_numbers = [each[0], columns, 1];
    let more = vec![
        made(name, Rearrange::Reshape.into(), vec![values], [batch, rows, inner]),
        made(name, op.clone(), vec![first, other], shape),
        made(own, Rearrange::Reshape.into(), vec![first + 1], by_numbers),
        made(own, scaling.op.clone(), vec![first + 2, numbers], by_numbers),
    ];
    Some((made(name, Rearrange::Reshape.into(), vec![first + 3], shape), more))
}
