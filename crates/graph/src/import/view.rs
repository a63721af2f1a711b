//! How an ONNX tensor lies over a node's value.
//!
//! Nodes hold `[C, H, W]`; ONNX has tensors of any rank, which exporters transpose, flatten, squeeze and unsqueeze
//! freely. A [`View`] keeps track of that without moving a value: the value's row-major order is cut into
//! *atoms* (factors of its axes that stay together, those of size one left out), and each ONNX dimension is an
//! ordered product of atoms. A transposition permutes dimensions, a reshape regroups atoms; only an operator
//! that needs another order than the node has makes the importer move values.

use crate::network::Shape;

/// An ONNX tensor's dimensions over a node's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    /// Sizes, each above one, in the node's row-major order; every axis of the node is a product of
    /// consecutive ones.
    atoms: Vec<usize>,
    /// By ONNX dimension (the batch included), the atoms that it is made of, outermost first.
    dims: Vec<Vec<usize>>,
}

/// A node's values in stretches of dimensions that are kept and of such that are not.
pub(crate) struct Runs {
    /// By run, in the node's order: whether it is kept, and how many places it has.
    pub(crate) runs: Vec<(bool, usize)>,
    /// The kept dimensions that are larger than one, as they follow each other in the node.
    pub(crate) order: Vec<usize>,
}

impl Runs {
    /// Whether a node has an axis for each.
    pub(crate) fn are_few(&self) -> bool {
        self.runs.len() <= 3
    }
}

/// The ways to assign dimensions to axes, the usual ones first.
const LAYOUTS: [[usize; 3]; 6] = [[0, 1, 2], [1, 2, 0], [0, 2, 1], [1, 0, 2], [2, 0, 1], [2, 1, 0]];

impl View {
    /// Dimension 0 is the batch, dimension `i + 1` the node's axis `layout[i]`; axes left out have size one.
    pub(crate) fn with_layout(shape: Shape, layout: &[usize]) -> View {
        let atoms: Vec<usize> = shape.iter().copied().filter(|&s| s > 1).collect();
        let mut next = 0;
        let by_axis = shape.map(|s| {
            if s > 1 {
                next += 1;
                vec![next - 1]
            } else {
                Vec::new()
            }
        });
        let dims =
            std::iter::once(Vec::new()).chain(layout.iter().map(|&axis| by_axis[axis].clone())).collect();
        View { atoms, dims }
    }

    /// `[1, C, H, W]`.
    pub(crate) fn natural(shape: Shape) -> View {
        View::with_layout(shape, &[0, 1, 2])
    }

    /// `[1, .., 1, len]` of this rank over a node `[len, 1, 1]`.
    pub(crate) fn vector(len: usize, rank: usize) -> View {
        let mut dims = vec![Vec::new(); rank];
        let atoms: Vec<usize> = if len > 1 { vec![len] } else { Vec::new() };
        if let Some(last) = dims.last_mut() {
            last.extend(0..atoms.len());
        }
        View { atoms, dims }
    }

    /// The ONNX shape.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.dims.iter().map(|dim| self.product(dim)).collect()
    }

    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    fn product(&self, atoms: &[usize]) -> usize {
        atoms.iter().map(|&a| self.atoms[a]).product()
    }

    /// The atoms in the order in which the ONNX tensor's elements run.
    fn order(&self) -> Vec<usize> {
        self.dims.concat()
    }

    /// The view after an ONNX transposition; `None` if `perm` is no permutation of the dimensions.
    pub(crate) fn transposed(&self, perm: &[usize]) -> Option<View> {
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.dims.len()) {
            return None;
        }
        Some(View { atoms: self.atoms.clone(), dims: perm.iter().map(|&d| self.dims[d].clone()).collect() })
    }

    /// The view after an ONNX reshape to `sizes`; `None` if the number of elements differs or a new dimension
    /// would cut an atom unevenly.
    pub(crate) fn reshaped(&self, sizes: &[usize]) -> Option<View> {
        let mut pieces: Vec<Vec<usize>> = vec![Vec::new(); self.atoms.len()];
        let mut waiting = self.order().into_iter().map(|a| (a, self.atoms[a]));
        let mut current: Option<(usize, usize)> = None;
        let mut dims: Vec<Vec<(usize, usize)>> = Vec::with_capacity(sizes.len());
        for &size in sizes {
            let (mut need, mut dim) = (size, Vec::new());
            while need != 1 {
                let (atom, rest) = current.take().or_else(|| waiting.next())?;
                // The outer part of an atom comes first.
                let taken = if need.is_multiple_of(rest) {
                    rest
                } else if rest.is_multiple_of(need) {
                    need
                } else {
                    return None;
                };
                dim.push((atom, pieces[atom].len()));
                pieces[atom].push(taken);
                need /= taken;
                current = (rest > taken).then_some((atom, rest / taken));
            }
            dims.push(dim);
        }
        if current.is_some() || waiting.next().is_some() {
            return None;
        }
        let mut offsets = Vec::with_capacity(pieces.len());
        let mut count = 0;
        for parts in &pieces {
            offsets.push(count);
            count += parts.len();
        }
        let dims =
            dims.into_iter().map(|d| d.into_iter().map(|(a, part)| offsets[a] + part).collect()).collect();
        Some(View { atoms: pieces.concat(), dims })
    }

    /// The atoms of each axis of the node.
    fn by_axis(&self, shape: Shape) -> [Vec<usize>; 3] {
        let mut next = 0;
        shape.map(|size| {
            let first = next;
            let mut product = 1;
            while product < size && next < self.atoms.len() {
                product *= self.atoms[next];
                next += 1;
            }
            (first..next).collect()
        })
    }

    /// By dimension after the batch, the node's axis that it is, if each is one (and none is left over but of
    /// size one).
    pub(crate) fn layout(&self, shape: Shape) -> Option<Vec<usize>> {
        let axes = self.by_axis(shape);
        let dims = self.dims.get(1..).filter(|dims| dims.len() <= 3 && self.dims[0].is_empty())?;
        LAYOUTS.iter().find_map(|layout| {
            let (used, rest) = layout.split_at(dims.len());
            let fits = used.iter().zip(dims).all(|(&axis, dim)| axes[axis] == *dim);
            (fits && rest.iter().all(|&axis| axes[axis].is_empty())).then(|| used.to_vec())
        })
    }

    /// The axis of the node that a dimension is a consecutive part of, and how many places there are outside and inside of it.
    fn part_of_axis(&self, shape: Shape, dim: usize) -> Option<(usize, usize, usize)> {
        let (&first, &last) = (self.dims[dim].first()?, self.dims[dim].last()?);
        if !self.dims[dim].iter().copied().eq(first..last + 1) {
            return None;
        }
        let axes = self.by_axis(shape);
        let axis = axes.iter().position(|atoms| atoms.contains(&first) && atoms.contains(&last))?;
        let outer = axes[axis].iter().filter(|&&a| a < first).map(|&a| self.atoms[a]).product();
        let inner = axes[axis].iter().filter(|&&a| a > last).map(|&a| self.atoms[a]).product();
        Some((axis, outer, inner))
    }

    /// How many indices [`selected`](Self::selected) lists when it picks so many.
    pub(crate) fn count_of_selected(&self, shape: Shape, dim: usize, count: usize) -> Option<usize> {
        let (_, outer, inner) = self.part_of_axis(shape, dim)?;
        Some(count.saturating_mul(outer).saturating_mul(inner))
    }

    /// What picking `indices` of dimension `dim` (zeros for `None`) picks of the node: its axis, the indices there, and the view
    /// of what is left. `None` unless the dimension is a consecutive part of one axis, and larger than one.
    pub(crate) fn selected(
        &self,
        shape: Shape,
        dim: usize,
        indices: &[Option<usize>],
    ) -> Option<(usize, Vec<Option<usize>>, View)> {
        let (&first, &last) = (self.dims[dim].first()?, self.dims[dim].last()?);
        let own = first..last + 1;
        let (axis, outer, inner) = self.part_of_axis(shape, dim)?;
        let size = self.product(&self.dims[dim]);
        let picks = (0..outer).flat_map(|o| {
            indices.iter().flat_map(move |&i| (0..inner).map(move |k| i.map(|i| (o * size + i) * inner + k)))
        });
        // One atom, or none, takes the place of the old ones.
        let new = usize::from(indices.len() > 1);
        let mut atoms = self.atoms.clone();
        atoms.splice(own.clone(), (0..new).map(|_| indices.len()));
        let renumber = |a: &usize| if *a > last { a + new - own.len() } else { *a };
        let dims = self.dims.iter().enumerate().map(|(d, atoms)| match d == dim {
            true => (first..first + new).collect(),
            false => atoms.iter().map(renumber).collect(),
        });
        Some((axis, picks.collect(), View { dims: dims.collect(), atoms }))
    }

    /// If bringing the node's values, of this shape, into the ONNX tensor's order moves them within each axis alone:
    /// by axis, where each index comes from.
    pub(crate) fn by_axis_order(&self, shape: Shape) -> Option<[Vec<usize>; 3]> {
        let axes = self.by_axis(shape);
        let mut order = self.order().into_iter();
        let mut places: [Vec<usize>; 3] = Default::default();
        for (axis, atoms) in axes.iter().enumerate() {
            let moved: Vec<usize> = order.by_ref().take(atoms.len()).collect();
            let mut sorted = moved.clone();
            sorted.sort_unstable();
            if sorted != *atoms {
                return None;
            }
            let stride = |atom: usize| atoms.iter().filter(|&&a| a > atom).map(|&a| self.atoms[a]).product();
            places[axis] = moved.iter().fold(vec![0], |places, &atom| {
                let stride: usize = stride(atom);
                places.iter().flat_map(|p| (0..self.atoms[atom]).map(move |i| p + i * stride)).collect()
            });
        }
        Some(places)
    }

    /// The node's values in runs by whether the dimensions that these lie in are among `kept`, which has one entry a dimension. `None` if
    /// one of these is no consecutive part of what is kept.
    pub(crate) fn runs(&self, kept: &[bool]) -> Option<Runs> {
        let mut is_kept = vec![false; self.atoms.len()];
        self.dims.iter().zip(kept).for_each(|(dim, &kept)| dim.iter().for_each(|&a| is_kept[a] = kept));
        let mut runs: Vec<(bool, usize)> = Vec::new();
        for (&kept, &size) in is_kept.iter().zip(&self.atoms) {
            match runs.last_mut() {
                Some((own, places)) if *own == kept => *places *= size,
                _ => runs.push((kept, size)),
            }
        }
        let mut order: Vec<usize> =
            (0..self.dims.len()).filter(|&d| kept[d] && !self.dims[d].is_empty()).collect();
        order.sort_unstable_by_key(|&d| self.dims[d][0]);
        let atoms = order.iter().flat_map(|&d| self.dims[d].iter().copied());
        atoms.eq((0..self.atoms.len()).filter(|&a| is_kept[a])).then_some(Runs { runs, order })
    }

    /// Whether dimension `dim` is exactly the node's channels.
    pub(crate) fn is_channels(&self, dim: usize, shape: Shape) -> bool {
        self.dims[dim] == self.by_axis(shape)[0]
    }

    /// Whether dimension `dim` holds every element.
    pub(crate) fn is_everything(&self, dim: usize) -> bool {
        self.dims[dim].len() == self.atoms.len()
    }

    /// Whether dimensions `from..` hold every element.
    pub(crate) fn is_everything_from(&self, from: usize) -> bool {
        self.dims[..from].iter().all(Vec::is_empty)
    }

    /// Whether the ONNX tensor's elements run as the node's do.
    pub(crate) fn in_order(&self) -> bool {
        self.order().into_iter().eq(0..self.atoms.len())
    }

    /// For each element of the ONNX tensor in its order, where it is in the node's value.
    pub(crate) fn positions(&self) -> Vec<usize> {
        let mut strides = vec![1; self.atoms.len()];
        for a in (1..self.atoms.len()).rev() {
            strides[a - 1] = strides[a] * self.atoms[a];
        }
        let mut positions = vec![0];
        for atom in self.order() {
            let (steps, stride) = (self.atoms[atom], strides[atom]);
            positions = positions.iter().flat_map(|p| (0..steps).map(move |i| p + i * stride)).collect();
        }
        positions
    }

    /// Which axes a reduction over these dimensions takes away, and the view of what remains (with the reduced
    /// dimensions kept at size one, or dropped); `None` if they are no whole axes.
    pub(crate) fn reduced(&self, shape: Shape, dims: &[usize], keep: bool) -> Option<([bool; 3], View)> {
        let gone: Vec<usize> = dims.iter().flat_map(|&d| self.dims[d].clone()).collect();
        let axes = self.by_axis(shape);
        let mut whole = [false; 3];
        for (axis, atoms) in axes.iter().enumerate() {
            match atoms.iter().filter(|a| gone.contains(a)).count() {
                0 => {}
                n if n == atoms.len() => whole[axis] = true,
                _ => return None,
            }
        }
        let kept: Vec<usize> = (0..self.atoms.len()).filter(|a| !gone.contains(a)).collect();
        let renumber = |atom: &usize| kept.iter().position(|k| k == atom);
        let remaining = self.dims.iter().enumerate().filter(|(d, _)| keep || !dims.contains(d));
        let new_dims = remaining.map(|(_, dim)| dim.iter().filter_map(renumber).collect()).collect();
        Some((whole, View { atoms: kept.iter().map(|&a| self.atoms[a]).collect(), dims: new_dims }))
    }

    /// The same view with the channels (all in dimension `dim`) replaced by others.
    pub(crate) fn with_channels(&self, dim: usize, shape: Shape, channels: usize) -> View {
        let old = self.by_axis(shape)[0].len();
        let new = usize::from(channels > 1);
        let atoms = (0..new).map(|_| channels).chain(self.atoms[old..].iter().copied()).collect();
        let dims = self.dims.iter().enumerate().map(|(d, atoms)| match d == dim {
            true => (0..new).collect(),
            false => atoms.iter().map(|a| a - old + new).collect(),
        });
        View { atoms, dims: dims.collect() }
    }

    /// Whether two views arrange values of one shape alike, however finely their atoms are cut.
    pub(crate) fn same_as(&self, other: &View) -> bool {
        let (a, b) = (self.merged(), other.merged());
        a == b
    }

    /// Atoms that always stand side by side made one.
    fn merged(&self) -> View {
        let follows = |a: usize| self.dims.iter().any(|dim| dim.windows(2).any(|w| w == [a - 1, a]));
        let mut atoms: Vec<usize> = Vec::new();
        let mut renamed = Vec::new();
        for (a, &size) in self.atoms.iter().enumerate() {
            match atoms.last_mut() {
                Some(last) if a > 0 && follows(a) => *last *= size,
                _ => atoms.push(size),
            }
            renamed.push(atoms.len() - 1);
        }
        let dims = self.dims.iter().map(|dim| {
            let mut dim: Vec<usize> = dim.iter().map(|&a| renamed[a]).collect();
            dim.dedup();
            dim
        });
        View { dims: dims.collect(), atoms }
    }

    /// How to bring the node's values into the ONNX tensor's order, step by step: each time a shape for the node, and the
    /// permutation of its axes. One step where three axes are enough.
    pub(crate) fn moves(&self) -> Vec<(Shape, [usize; 3])> {
        if let Some(step) = self.permutation() {
            return vec![step];
        }
        let order = self.order();
        let mut now: Vec<usize> = (0..self.atoms.len()).collect();
        let mut steps = Vec::new();
        // What is wanted last comes to the front first. Atoms that stay side by side come together.
        for run in order.chunk_by(|a, b| a + 1 == *b).rev() {
            let Some(at) = now.iter().position(|atom| *atom == run[0]).filter(|&at| at > 0) else { continue };
            let (before, after) = (&now[..at], &now[at + run.len()..]);
            steps.push(([self.product(before), self.product(run), self.product(after)], [1, 0, 2]));
            now = [run, before, after].concat();
        }
        steps
    }

    /// How to bring the node's values into the ONNX tensor's order: a shape for the node, and the permutation
    /// of its axes. `None` if more than three axes would have to move.
    fn permutation(&self) -> Option<(Shape, [usize; 3])> {
        // Runs of atoms that stay together, by their first atom.
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut previous = usize::MAX;
        for atom in self.order() {
            match runs.last_mut() {
                Some((_, size)) if atom == previous.wrapping_add(1) => *size *= self.atoms[atom],
                _ => runs.push((atom, self.atoms[atom])),
            }
            previous = atom;
        }
        if runs.len() > 3 {
            return None;
        }
        let mut sorted = runs.clone();
        sorted.sort_unstable();
        let mut shape = [1; 3];
        for (axis, (_, size)) in sorted.iter().enumerate() {
            shape[axis] = *size;
        }
        let mut perm = [0, 1, 2];
        for (to, run) in runs.iter().enumerate() {
            perm[to] = sorted.iter().position(|s| s == run)?;
        }
        Some((shape, perm))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn flattening_channels_last() {
        let view = View::natural([3, 4, 5]).transposed(&[0, 2, 3, 1]).unwrap();
        assert_eq!(view.sizes(), [1, 4, 5, 3]);
        assert_eq!(view.layout([3, 4, 5]), Some(vec![1, 2, 0]));
        let flat = view.reshaped(&[1, 60]).unwrap();
        assert_eq!(flat.positions()[..4], [0, 20, 40, 1]);
        assert!(!flat.in_order());
        assert_eq!(flat.permutation(), Some(([3, 20, 1], [1, 0, 2])));
    }

    #[test]
    fn a_channel_shuffle_is_one_transposition() {
        let view = View::natural([6, 4, 5]).reshaped(&[1, 2, 3, 4, 5]).unwrap();
        let view = view.transposed(&[0, 2, 1, 3, 4]).unwrap().reshaped(&[1, 6, 4, 5]).unwrap();
        assert_eq!(view.permutation(), Some(([2, 3, 20], [1, 0, 2])));
        assert_eq!(view.layout([6, 4, 5]), None);
        let within = [vec![0, 3, 1, 4, 2, 5], (0..4).collect(), (0..5).collect()];
        assert_eq!(view.by_axis_order([6, 4, 5]), Some(within));
        assert_eq!(
            View::natural([3, 4, 5]).transposed(&[0, 2, 3, 1]).unwrap().by_axis_order([3, 4, 5]),
            None
        );
    }

    #[test]
    fn many_axes_move_in_several_steps() {
        // Squares of 2×2 places become channels.
        let shape = [3, 4, 6];
        let view = View::natural(shape).reshaped(&[1, 3, 2, 2, 3, 2]).unwrap();
        let view = view.transposed(&[0, 3, 5, 1, 2, 4]).unwrap().reshaped(&[1, 12, 2, 3]).unwrap();
        assert_eq!(view.permutation(), None);
        let steps = view.moves();
        assert!(steps.len() > 1, "{steps:?}");
        let mut values: Vec<usize> = (0..72).collect();
        for (from, perm) in steps {
            let to: Shape = std::array::from_fn(|axis| from[perm[axis]]);
            let transpose = crate::network::Rearrange::Transpose { perm };
            values = crate::ops::rearrange::rearrange(&transpose, from, to, &values);
        }
        assert_eq!(values, view.positions());
    }

    #[test]
    fn a_part_of_an_axis_is_picked() {
        // One of two halves, interleaved: channels 1, 3, 5.
        let view = View::natural([6, 4, 5]).reshaped(&[3, 2, 20]).unwrap().transposed(&[1, 0, 2]).unwrap();
        let some = |picks: Vec<usize>| picks.into_iter().map(Some).collect::<Vec<_>>();
        let (axis, picks, rest) = view.selected([6, 4, 5], 0, &[Some(1)]).unwrap();
        assert_eq!((axis, picks, rest.sizes()), (0, some(vec![1, 3, 5]), vec![1, 3, 20]));
        let (axis, picks, rest) = view.selected([6, 4, 5], 1, &[Some(2), Some(0)]).unwrap();
        assert_eq!((axis, picks, rest.sizes()), (0, some(vec![4, 5, 0, 1]), vec![2, 2, 20]));
        let (_, picks, _) = view.selected([6, 4, 5], 1, &[None, Some(1)]).unwrap();
        assert_eq!(picks, [None, None, Some(2), Some(3)]);
        // Rows and columns together are no one axis.
        assert!(view.selected([6, 4, 5], 2, &[Some(0)]).is_none());
    }

    #[test]
    fn uneven_cuts_are_refused() {
        let view = View::natural([6, 4, 1]);
        assert_eq!(view.reshaped(&[1, 4, 6]), None);
        assert_eq!(view.reshaped(&[1, 23]), None);
        assert_eq!(view.reshaped(&[1, 25]), None);
        assert!(view.reshaped(&[2, 3, 4]).is_some());
    }

    proptest! {
        /// Against index arithmetic on the ONNX tensor itself.
        #[test]
        fn positions_follow_transposition_and_reshape(
            shape in prop::array::uniform3(1usize..5), layout in 0usize..6, split in any::<bool>(),
        ) {
            let perm = LAYOUTS[layout];
            let onnx: Vec<usize> = perm.iter().map(|&p| shape[p]).collect();
            let full: Vec<usize> = std::iter::once(0).chain(perm.iter().map(|p| p + 1)).collect();
            let view = View::natural(shape).transposed(&full).unwrap();
            let mut sizes = vec![1, onnx.iter().product()];
            if split { sizes = vec![onnx[0], onnx[1] * onnx[2]]; }
            let view = view.reshaped(&sizes).unwrap();
            prop_assert_eq!(view.sizes(), sizes);
            let mut expected = Vec::new();
            for i in 0..onnx[0] { for j in 0..onnx[1] { for k in 0..onnx[2] {
                let mut at = [0; 3];
                for (value, axis) in [i, j, k].into_iter().zip(perm) { at[axis] = value; }
                expected.push((at[0] * shape[1] + at[1]) * shape[2] + at[2]);
            }}}
            prop_assert_eq!(view.positions(), expected.clone());
            // Moving values as `permutation` says gives the same order.
            let (moved, perm) = view.permutation().unwrap();
            let target: Shape = std::array::from_fn(|axis| moved[perm[axis]]);
            let values: Vec<usize> = (0..expected.len()).collect();
            let transpose = crate::network::Rearrange::Transpose { perm };
            prop_assert_eq!(crate::ops::rearrange::rearrange(&transpose, moved, target, &values), expected);
            prop_assert!(view.same_as(&view.reshaped(&view.sizes()).unwrap()));
        }
    }
}
