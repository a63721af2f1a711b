//! How values are brought to where an operator takes them, and how indices are picked of them.

use super::build::{Activation, Builder, Call, Reject, Value, activation};
use super::tensor::{SliceRange, slice_indices};
use super::view::View;
use crate::network::{NodeId, Rearrange, Shape};

/// Moves values until the node's order is the ONNX tensor's and its shape is `shape`; `shape` must have as many
/// elements. Costs nothing where that holds already.
pub(crate) fn materialise(
    builder: &mut Builder,
    name: &str,
    value: &Activation,
    shape: Shape,
) -> Result<NodeId, Reject> {
    let mut node = value.node;
    let own = builder.nodes[node].shape;
    if !value.view.in_order() {
        builder.list(own.iter().sum())?;
        if let Some(axes) = value.view.by_axis_order(own) {
            node = builder.push(name, selection(axes.map(picks), own), vec![node], own)?;
        } else {
            for (grouped, perm) in value.view.moves() {
                if grouped != builder.nodes[node].shape {
                    node = builder.push(name, Rearrange::Reshape, vec![node], grouped)?;
                }
                node = builder.push(name, Rearrange::Transpose { perm }, vec![node], [0; 3])?;
            }
        }
    }
    if builder.nodes[node].shape != shape {
        node = builder.push(name, Rearrange::Reshape, vec![node], shape)?;
    }
    Ok(node)
}

pub(crate) fn picks(indices: Vec<usize>) -> Vec<Option<usize>> {
    indices.into_iter().map(Some).collect()
}

/// The simplest operation that picks these indices of a value of this shape.
pub(crate) fn selection(mut axes: [Vec<Option<usize>>; 3], from: Shape) -> Rearrange {
    for (picks, size) in axes.iter_mut().zip(from) {
        if picks.iter().copied().eq((0..size).map(Some)) {
            picks.clear();
        }
    }
    let (mut start, mut step) = ([0; 3], [1; 3]);
    for (axis, picks) in axes.iter().enumerate().filter(|(_, picks)| !picks.is_empty()) {
        let Some(Some(first)) = picks.first().copied() else { return Rearrange::Select { axes } };
        start[axis] = first;
        if let Some(Some(second)) = picks.get(1).copied() {
            step[axis] = second.saturating_sub(first);
        }
        let regular = (0..picks.len()).map(|i| Some(first + i * step[axis]));
        if step[axis] == 0 || !picks.iter().copied().eq(regular) {
            return Rearrange::Select { axes };
        }
    }
    Rearrange::Slice { start, step }
}

/// Picks indices axis by axis, of a node.
pub(crate) fn select_axes(
    builder: &mut Builder,
    name: &str,
    node: NodeId,
    axes: [Vec<Option<usize>>; 3],
) -> Result<NodeId, Reject> {
    let from = builder.nodes[node].shape;
    let mut to = from;
    for (to, picks) in to.iter_mut().zip(&axes).filter(|(_, picks)| !picks.is_empty()) {
        *to = picks.len();
    }
    match selection(axes, from) {
        Rearrange::Slice { step: [1, 1, 1], .. } if from == to => Ok(node),
        op => builder.push(name, op, vec![node], to),
    }
}

/// Picks indices of one ONNX dimension.
pub(crate) fn select(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dim: usize,
    indices: &[usize],
) -> Result<Activation, Reject> {
    if indices.iter().copied().eq(0..x.view.sizes()[dim]) {
        return Ok(x.clone());
    }
    let own = builder.nodes[x.node].shape;
    builder.list(x.view.count_of_selected(own, dim, indices.len()).unwrap_or(indices.len()))?;
    let mut axes: [Vec<Option<usize>>; 3] = Default::default();
    if let Some((axis, indices, view)) = x.view.selected(own, dim, indices) {
        axes[axis] = picks(indices);
        let node = select_axes(builder, &call.name, x.node, axes)?;
        return Ok(Activation::new(node, view));
    }
    let (node, layout) = laid_out(builder, call, x)?;
    let axis = dim.checked_sub(1).and_then(|d| layout.get(d).copied());
    let axis = axis.ok_or_else(|| Reject::unsupported("changes the batch"))?;
    axes[axis] = picks(indices.to_vec());
    let node = select_axes(builder, &call.name, node, axes)?;
    let view = View::with_layout(builder.nodes[node].shape, &layout);
    Ok(Activation::new(node, view))
}

/// A node for an operator that works dimension by dimension, and its axis of each dimension after the batch.
pub(crate) fn laid_out(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
) -> Result<(NodeId, Vec<usize>), Reject> {
    if let Some(layout) = x.view.layout(builder.nodes[x.node].shape) {
        return Ok((x.node, layout));
    }
    let shape = match x.view.sizes()[..] {
        [1, c, h, w] => [c, h, w],
        [1, c, h] => [c, h, 1],
        [1, c] => [c, 1, 1],
        _ => return Err(Reject::unsupported("its input is flattened or regrouped")),
    };
    let node = materialise(builder, &call.name, x, shape)?;
    Ok((node, (0..x.view.rank() - 1).collect()))
}

impl Builder {
    /// A node whose axes `[C, H, W]` are the ONNX dimensions of an image, `[1, C, H, W]`.
    ///
    /// # Errors
    /// The value has another number of dimensions.
    pub fn image(&mut self, call: &Call<'_>, value: &Activation) -> Result<NodeId, Reject> {
        match value.view.sizes()[..] {
            [1, c, h, w] => materialise(self, &call.name, value, [c, h, w]),
            ref sizes => Err(no_image(sizes)),
        }
    }

    /// An image, `[1, C, H, W]`, that is a node's value: a result for a builder to give.
    pub fn made(&self, node: NodeId) -> Vec<Value> {
        activation(node, View::natural(self.shape(node)))
    }
}

/// Why a value of these sizes is refused where an image must be.
pub(crate) fn no_image(sizes: &[usize]) -> Reject {
    Reject::Unsupported {
        reason: format!("its input of shape {sizes:?} is no image [1, C, H, W]"),
        instead: "Only two-dimensional layers are supported".into(),
    }
}

/// Cuts a range (first index, count, step) out of each ONNX dimension.
pub(crate) fn cut(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    ranges: &[SliceRange],
) -> Result<Value, Reject> {
    let mut rest = x.clone();
    for (dim, &range) in ranges.iter().enumerate() {
        let indices: Vec<usize> = slice_indices(range).collect();
        rest = select(builder, call, &rest, dim, &indices)?;
    }
    Ok(Value::Activation(rest))
}
