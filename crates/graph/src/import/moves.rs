//! How values are brought to where an operator takes them, and how indices are picked of them.

use super::build::{Activation, Builder, Call, Reject, Value, activation};
use super::refusal;
use super::tensor::{SliceRange, broadcast, slice_indices};
use super::view::{Runs, View};
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
    reshaped(builder, name, node, shape)
}

/// The same values, in the same order, in another shape.
pub(crate) fn reshaped(
    builder: &mut Builder,
    name: &str,
    node: NodeId,
    shape: Shape,
) -> Result<NodeId, Reject> {
    if builder.shape(node) == shape {
        return Ok(node);
    }
    builder.push(name, Rearrange::Reshape, vec![node], shape)
}

/// Two values of which each one's sizes are the other's or one, and one's are as large everywhere: nodes of one shape whose elements run
/// alike, the smaller value's repeated, in the order of the values given; and the view of both.
pub(crate) fn together(
    builder: &mut Builder,
    name: &str,
    a: &Activation,
    b: &Activation,
) -> Result<([NodeId; 2], Shape, View), Reject> {
    let (sizes, others) = (a.view.sizes(), b.view.sizes());
    let wide = broadcast(&sizes, &others)
        .ok_or_else(|| Reject::invalid("takes values whose shapes do not go together"))?;
    let count = |sizes: &[usize]| sizes.iter().product::<usize>();
    match () {
        () if count(&wide) == count(&sizes) => {
            let (large, view, small) = repeated(builder, name, a, b, &wide)?;
            Ok(([large, small], builder.shape(large), view))
        }
        () if count(&wide) == count(&others) => {
            let (large, view, small) = repeated(builder, name, b, a, &wide)?;
            Ok(([small, large], builder.shape(large), view))
        }
        () => Err(refusal::product()),
    }
}

/// `large`, of the sizes `wide`, as a node; its view; and `small`, repeated, as a node of the same shape and order.
fn repeated(
    builder: &mut Builder,
    name: &str,
    large: &Activation,
    small: &Activation,
    wide: &[usize],
) -> Result<(NodeId, View, NodeId), Reject> {
    let beyond = || Reject::unsupported("repeats a value in an order that cannot be made");
    let view = large.view.reshaped(wide).ok_or_else(beyond)?;
    let mut sizes = vec![1; wide.len() - small.view.rank()];
    sizes.extend(small.view.sizes());
    let kept: Vec<bool> = sizes.iter().zip(wide).map(|(own, wide)| own == wide).collect();
    let few = |found: &Runs| found.runs.len() <= 3;
    let (node, view, Runs { runs, order }) = match view.runs(&kept).filter(few) {
        Some(found) => (large.node, view, found),
        None => {
            // In the tensor's own order.
            let flat = Activation { view, ..large.clone() };
            let count = wide.iter().product();
            let node = materialise(builder, name, &flat, [count, 1, 1])?;
            let view = View::vector(count, 2).reshaped(wide).ok_or_else(beyond)?;
            let found = view.runs(&kept).filter(few).ok_or_else(refusal::product)?;
            (node, view, found)
        }
    };
    let perm: Vec<usize> =
        order.iter().copied().chain((0..wide.len()).filter(|d| !order.contains(d))).collect();
    let own = small.view.reshaped(&sizes).and_then(|view| view.transposed(&perm)).ok_or_else(beyond)?;
    let (mut part, mut whole) = ([1; 3], [1; 3]);
    for (axis, &(kept, size)) in runs.iter().enumerate() {
        (part[axis], whole[axis]) = (if kept { size } else { 1 }, size);
    }
    let few = materialise(builder, name, &Activation { view: own, ..small.clone() }, part)?;
    builder.list(whole.iter().sum())?;
    let axes = [0, 1, 2].map(|axis| match part[axis] == whole[axis] {
        true => Vec::new(),
        false => vec![Some(0); whole[axis]],
    });
    let many = select_axes(builder, name, few, axes)?;
    let many = reshaped(builder, name, many, builder.shape(node))?;
    Ok((node, view, many))
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
