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

/// The same value over a node whose channels are these dimensions, one within the other, and whose places are the others.
///
/// # Errors
/// As [`materialise`].
pub(crate) fn channels_first(
    builder: &mut Builder,
    name: &str,
    x: &Activation,
    dims: &[usize],
) -> Result<Activation, Reject> {
    let beyond = || Reject::unsupported("takes values in an order that cannot be made");
    let sizes = x.view.sizes();
    let channels = dims.iter().map(|&d| sizes[d]).product::<usize>();
    let places = sizes.iter().product::<usize>().checked_div(channels).ok_or_else(beyond)?;
    let view = x.view.transposed(&first_of(sizes.len(), dims)).ok_or_else(beyond)?;
    let node = materialise(builder, name, &Activation { view, ..x.clone() }, [channels, places, 1])?;
    let view = lying_first(builder.shape(node), &sizes, dims).ok_or_else(beyond)?;
    Ok(Activation::new(node, view))
}

/// The order of so many dimensions in which these come first.
fn first_of(rank: usize, dims: &[usize]) -> Vec<usize> {
    dims.iter().copied().chain((0..rank).filter(|d| !dims.contains(d))).collect()
}

/// How a value of these sizes lies over a node of this shape whose order has these dimensions first.
pub(crate) fn lying_first(shape: Shape, sizes: &[usize], dims: &[usize]) -> Option<View> {
    let order = first_of(sizes.len(), dims);
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &d)| back[d] = at);
    let turned: Vec<usize> = order.iter().map(|&d| sizes[d]).collect();
    View::natural(shape).reshaped(&turned)?.transposed(&back)
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

/// Two values of which each one's sizes are the other's or one: nodes of one shape whose elements run alike, smaller values repeated, in
/// the order of the values given; and the view of both.
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
        () => {
            let (shape, view) = natural(&wide)?;
            let kept = |x: &Activation| {
                let found = view.runs(&kept_of(&x.view, &wide)).filter(Runs::are_few);
                found.ok_or_else(refusal::product)
            };
            let mut node = |x: &Activation| spread(builder, name, x, &wide, (kept(x)?, shape));
            Ok(([node(a)?, node(b)?], shape, view))
        }
    }
}

/// A node's shape for values of these ONNX sizes in their own order, and how they lie over it.
pub(crate) fn natural(sizes: &[usize]) -> Result<(Shape, View), Reject> {
    match *sizes {
        [1, c, h, w] => Ok(([c, h, w], View::natural([c, h, w]))),
        _ => {
            let count = sizes.iter().product();
            let view = View::vector(count, 2).reshaped(sizes);
            let view =
                view.ok_or_else(|| Reject::unsupported("takes values in an order that cannot be made"))?;
            Ok(([count, 1, 1], view))
        }
    }
}

/// Which of these sizes a value has itself, where it is repeated along the others.
fn kept_of(view: &View, wide: &[usize]) -> Vec<bool> {
    let sizes = view.sizes();
    let own = std::iter::repeat_n(&1, wide.len() - sizes.len()).chain(&sizes);
    own.zip(wide).map(|(own, wide)| own == wide).collect()
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
    let kept = kept_of(&small.view, wide);
    let (node, view, found) = match view.runs(&kept).filter(Runs::are_few) {
        Some(found) => (large.node, view, found),
        None => {
            // In the tensor's own order.
            let flat = Activation { view, ..large.clone() };
            let count = wide.iter().product();
            let node = materialise(builder, name, &flat, [count, 1, 1])?;
            let view = View::vector(count, 2).reshaped(wide).ok_or_else(beyond)?;
            let found = view.runs(&kept).filter(Runs::are_few).ok_or_else(refusal::product)?;
            (node, view, found)
        }
    };
    let many = spread(builder, name, small, wide, (found, builder.shape(node)))?;
    Ok((node, view, many))
}

/// A value repeated until it has these sizes.
pub(crate) fn spread_to(
    builder: &mut Builder,
    name: &str,
    small: &Activation,
    wide: &[usize],
) -> Result<Activation, Reject> {
    let (shape, view) = natural(wide)?;
    let runs = view.runs(&kept_of(&small.view, wide)).filter(Runs::are_few).ok_or_else(refusal::product)?;
    let node = spread(builder, name, small, wide, (runs, shape))?;
    Ok(Activation::new(node, view))
}

/// A value repeated until it has the sizes `wide`: a node of this shape, whose elements run as these runs say.
fn spread(
    builder: &mut Builder,
    name: &str,
    small: &Activation,
    wide: &[usize],
    (Runs { runs, order }, shape): (Runs, Shape),
) -> Result<NodeId, Reject> {
    let (mut part, mut whole) = ([1; 3], [1; 3]);
    for (axis, &(kept, size)) in runs.iter().enumerate() {
        (part[axis], whole[axis]) = (if kept { size } else { 1 }, size);
    }
    let few = own_values(builder, name, small, wide, &order, part)?;
    builder.list(whole.iter().sum())?;
    let axes = [0, 1, 2].map(|axis| match part[axis] == whole[axis] {
        true => Vec::new(),
        false => vec![Some(0); whole[axis]],
    });
    let many = select_axes(builder, name, few, axes)?;
    reshaped(builder, name, many, shape)
}

/// A value that is to be repeated until it has the sizes `wide`, as it is: a node of this shape, of its larger dimensions in this order.
fn own_values(
    builder: &mut Builder,
    name: &str,
    small: &Activation,
    wide: &[usize],
    order: &[usize],
    shape: Shape,
) -> Result<NodeId, Reject> {
    let mut sizes = vec![1; wide.len() - small.view.rank()];
    sizes.extend(small.view.sizes());
    let perm: Vec<usize> =
        order.iter().copied().chain((0..wide.len()).filter(|d| !order.contains(d))).collect();
    let own = small.view.reshaped(&sizes).and_then(|view| view.transposed(&perm));
    let own = own.ok_or_else(|| Reject::unsupported("repeats a value in an order that cannot be made"))?;
    materialise(builder, name, &Activation { view: own, ..small.clone() }, shape)
}

/// Of a value in rows that lie one behind the other, and one with a number for each row: nodes `[rows, columns, 1]` and `[rows, 1, 1]`.
/// `None` where rows do not lie so.
pub(crate) fn by_rows(
    builder: &mut Builder,
    name: &str,
    large: &Activation,
    small: &Activation,
) -> Result<Option<[NodeId; 2]>, Reject> {
    let wide = large.view.sizes();
    if small.view.rank() > wide.len() {
        return Ok(None);
    }
    let Some(Runs { runs, order }) = large.view.runs(&kept_of(&small.view, &wide)) else { return Ok(None) };
    let [(true, rows), (false, columns)] = runs[..] else { return Ok(None) };
    let numbers = own_values(builder, name, small, &wide, &order, [rows, 1, 1])?;
    Ok(Some([reshaped(builder, name, large.node, [rows, columns, 1])?, numbers]))
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
    select_or_zero(builder, call, x, dim, &picks(indices.to_vec()))
}

/// [`select`], with zeros where there is no index.
pub(crate) fn select_or_zero(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dim: usize,
    indices: &[Option<usize>],
) -> Result<Activation, Reject> {
    if indices.iter().copied().eq((0..x.view.sizes()[dim]).map(Some)) {
        return Ok(x.clone());
    }
    let own = builder.nodes[x.node].shape;
    builder.list(x.view.count_of_selected(own, dim, indices.len()).unwrap_or(indices.len()))?;
    let mut axes: [Vec<Option<usize>>; 3] = Default::default();
    if let Some((axis, indices, view)) = x.view.selected(own, dim, indices) {
        axes[axis] = indices;
        let node = select_axes(builder, &call.name, x.node, axes)?;
        return Ok(Activation::new(node, view));
    }
    let own = x.view.sizes();
    let at_places = x.view.layout(builder.nodes[x.node].shape).is_some() || own.len() <= 4 && own[0] == 1;
    if !at_places || dim == 0 {
        return select_in_order(builder, call, x, dim, indices);
    }
    let (node, layout) = laid_out(builder, call, x)?;
    let axis = layout[dim - 1];
    axes[axis] = indices.to_vec();
    let node = select_axes(builder, &call.name, node, axes)?;
    let view = View::with_layout(builder.nodes[node].shape, &layout);
    Ok(Activation::new(node, view))
}

/// A value repeated along dimensions of size one (and new ones before all) until it has these sizes.
pub(crate) fn widened(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    wide: &[usize],
) -> Result<Activation, Reject> {
    let sizes = x.view.sizes();
    let mut padded = vec![1; wide.len() - sizes.len()];
    padded.extend(&sizes);
    let view = x.view.reshaped(&padded).ok_or_else(|| Reject::unsupported("expands a flattened value"))?;
    let mut expanded = Activation { view, ..x.clone() };
    for (dim, (&to, &from)) in wide.iter().zip(&padded).enumerate() {
        if to != from {
            if to > crate::limits::MAX_ELEMENTS {
                return Err(Reject::TooLarge("values"));
            }
            expanded = select(builder, call, &expanded, dim, &vec![0; to])?;
        }
    }
    Ok(expanded)
}

/// [`select_or_zero`], of a value that is brought into the tensor's order first.
fn select_in_order(
    builder: &mut Builder,
    call: &Call<'_>,
    x: &Activation,
    dim: usize,
    indices: &[Option<usize>],
) -> Result<Activation, Reject> {
    let mut sizes = x.view.sizes();
    let (outer, inner) = (sizes[..dim].iter().product(), sizes[dim + 1..].iter().product());
    let node = materialise(builder, &call.name, x, [outer, sizes[dim], inner])?;
    let node = select_axes(builder, &call.name, node, [Vec::new(), indices.to_vec(), Vec::new()])?;
    sizes[dim] = indices.len();
    let view = View::vector(sizes.iter().product(), 2).reshaped(&sizes);
    let view = view.ok_or_else(|| Reject::unsupported("picks values in an order that cannot be made"))?;
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
    /// A node whose axes `[C, H, W]` are the ONNX dimensions of an image, `[1, C, H, W]`, or of places along one axis, `[1, C, L]`, which
    /// are an image of one row.
    ///
    /// # Errors
    /// The value has another number of dimensions.
    pub fn image(&mut self, call: &Call<'_>, value: &Activation) -> Result<NodeId, Reject> {
        match value.view.sizes()[..] {
            [1, c, h, w] => materialise(self, &call.name, value, [c, h, w]),
            [1, c, w] => materialise(self, &call.name, value, [c, 1, w]),
            ref sizes => Err(no_image(sizes)),
        }
    }

    /// An image that is a node's value, with as many dimensions as the first input of the call: a result for a builder to give.
    pub fn made(&self, call: &Call<'_>, node: NodeId) -> Vec<Value> {
        activation(node, self.image_view(call, node))
    }

    /// How an image lies that is a node's value, `[1, C, H, W]`, or `[1, C, W]` where the first input of the call has three dimensions.
    pub(crate) fn image_view(&self, call: &Call<'_>, node: NodeId) -> View {
        match call.rank() {
            Some(3) => View::with_layout(self.shape(node), &[0, 2]),
            _ => View::natural(self.shape(node)),
        }
    }
}

/// Why a value of these sizes is refused where an image must be.
pub(crate) fn no_image(sizes: &[usize]) -> Reject {
    Reject::Unsupported {
        reason: format!("its input of shape {sizes:?} is no image [1, C, H, W] and no sequence [1, C, L]"),
        instead: match sizes.len() {
            5 => "Three-dimensional layers (volumes, video) are not supported: a layer over height and width, for each frame, is".into(),
            _ => "Layers over height and width, or along one axis, are supported".into(),
        },
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
