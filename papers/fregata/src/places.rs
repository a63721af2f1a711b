//! Which rows or columns of an input some output reads.

use jaguar_graph::network::Linear;

/// Ascending indices along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// So many, from the first on, at one distance: all of them, or every s-th.
    Every {
        /// The index of the first one.
        first: usize,
        /// From one to the next.
        step: usize,
        /// How many indices there are.
        count: usize,
    },
    /// Any others: a kernel with gaps, under a stride.
    Listed(Vec<u32>),
}

impl Places {
    /// What a layer reads along `axis` (0: rows) of an input of `size` there.
    pub(super) fn read(spec: &Linear, axis: usize, size: usize) -> Self {
        let (stride, dilation, pad) = (spec.stride[axis], spec.dilation[axis], spec.pads[axis]);
        let padded = size + pad + spec.pads[axis + 2];
        let outputs = (padded - (spec.kernel[axis] - 1) * dilation - 1) / stride + 1;
        // By how much more often a place is read than the one a stride before it: each tap reads so many places, a
        // stride apart.
        let mut read = vec![0i32; padded];
        for tap in (0..spec.kernel[axis]).map(|tap| tap * dilation) {
            read[tap] += 1;
            if let Some(behind) = read.get_mut(tap + outputs * stride) {
                *behind -= 1;
            }
        }
        for at in stride..padded {
            read[at] += read[at - stride];
        }
        let places = || (0..size).filter(|at| read[at + pad] > 0);
        let (first, count) = (places().next().unwrap_or(0), places().count());
        let step = places().nth(1).map_or(1, |second| second - first);
        match places().enumerate().all(|(i, at)| at == first + i * step) {
            true => Self::Every { first, step, count },
            false => Self::Listed(places().map(|at| at as u32).collect()),
        }
    }

    /// How many indices there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Every { count, .. } => *count,
            Self::Listed(places) => places.len(),
        }
    }

    /// The index at place `i`.
    pub(super) fn at(&self, i: usize) -> usize {
        match self {
            Self::Every { first, step, .. } => first + i * step,
            Self::Listed(places) => places[i] as usize,
        }
    }

    /// Bytes of the list.
    pub(super) fn listed(&self) -> usize {
        match self {
            Self::Every { .. } => 0,
            Self::Listed(places) => size_of_val(&places[..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_read_is_what_some_tap_reads(
            size in 1usize..40, kernel in 1usize..5, stride in 1usize..6, dilation in 1usize..5, pads in prop::array::uniform2(0usize..4),
        ) {
            let spec = Linear {
                kernel: [kernel, 1], stride: [stride, 1], dilation: [dilation, 1],
                pads: [pads[0], 0, pads[1], 0], ..Linear::same(1, 1, 0)
            };
            prop_assume!(spec.output_hw([1, size, 1]).is_some());
            let [outputs, _] = spec.output_hw([1, size, 1]).unwrap();
            let mut read: Vec<usize> = (0..outputs)
                .flat_map(|o| (0..kernel).map(move |u| o * stride + u * dilation))
                .filter_map(|padded| padded.checked_sub(pads[0]).filter(|&at| at < size))
                .collect();
            read.sort_unstable();
            read.dedup();
            let places = Places::read(&spec, 0, size);
            let found: Vec<usize> = (0..places.len()).map(|i| places.at(i)).collect();
            prop_assert_eq!(found, read);
        }
    }
}
