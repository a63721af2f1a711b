//! Shapes of values, and how windows lie in them.

/// `[channels, height, width]`. A vector is `[len, 1, 1]`.
pub type Shape = [usize; 3];

/// The index of a node in [`Network::nodes`](crate::network::Network::nodes), and of the value that it makes.
pub type NodeId = usize;

/// The number of values in a tensor, if it can be counted.
pub fn elements(shape: Shape) -> Option<usize> {
    shape[0].checked_mul(shape[1])?.checked_mul(shape[2])
}

/// How a window lies along one axis: `(size + before + after - extent) / stride + 1` with
/// `extent = (kernel - 1)·dilation + 1`. `None` if a parameter is zero, nothing fits, or a sum overflows.
pub(crate) fn places(
    size: usize,
    before: usize,
    after: usize,
    kernel: usize,
    dilation: usize,
    stride: usize,
) -> Option<usize> {
    let extent = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    let room = size.checked_add(before)?.checked_add(after)?.checked_sub(extent)?;
    if dilation == 0 { None } else { room.checked_div(stride)?.checked_add(1) }
}
