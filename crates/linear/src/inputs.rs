//! What the input ciphertexts of a layer hold, in runs, and once only for all that look alike.
//!
//! [`Layout::contents`] names every coefficient. That is 24 KiB a ciphertext and takes longer to work out than the ring
//! product of that ciphertext; but ciphertexts of one tile differ in the channels that they hold and in nothing else,
//! and within one, rows are contiguous. So a layer keeps a few *patterns*, some hundred bytes each.

use std::collections::HashMap;
use std::ops::Range;

use jaguar_wire::pack;

use crate::layout::{Contents, Layout, LayoutError, Tile, few};

/// Bytes of what is listed of a layer, and of all layers of a network: tiles, ciphertexts and patterns. (ResNet-50's take
/// 0.45 MB.) A layer may have a pattern for every tile, and a pattern a run for every second coefficient.
pub const MAX_LISTED: usize = 128 << 20;

/// What [`MAX_LISTED`] counts, as an error names it.
pub const LISTED: &str = "bytes of tiles, ciphertexts and runs of values";

/// A row of input values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its first coefficient.
    pub at: u32,
    /// Which of the coefficients that are read this is: its place in the ciphertext's part of b.
    pub rank: u32,
    /// Index of its first value, in the input tensor from the ciphertext's first channel on.
    pub from: u32,
    /// Values. Coefficients follow each other, indices have the distance [`Inputs::step`].
    pub len: u32,
}

/// Where ciphertexts of one kind hold what: of one image, in the ring of dimension N/g. Coefficient c of image i of the g interleaved ones
/// is coefficient `g·c + i` of the ciphertext, and so for ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Coefficients that some output reads, ascending, without gaps between neighbouring runs.
    pub read: Vec<Range<u32>>,
    /// Input values; all of them are read. What else is read encrypts zero.
    pub data: Vec<Run>,
    /// How many coefficients are read, of all interleaved images.
    pub count: usize,
}

impl Pattern {
    fn new(contents: &Contents, first_value: u32, step: u32, interleaved: usize) -> Self {
        let mut read: Vec<Range<u32>> = Vec::new();
        for &at in &contents.read {
            match read.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => read.push(at..at + 1),
            }
        }
        let mut data: Vec<Run> = Vec::new();
        for &(at, from) in &contents.data {
            let from = from - first_value;
            match data.last_mut() {
                Some(run) if run.at + run.len == at && run.from + run.len * step == from => run.len += 1,
                _ => {
                    let rank = contents.read.partition_point(|&r| r < at) as u32;
                    data.push(Run { at, rank, from, len: 1 });
                }
            }
        }
        read.shrink_to_fit();
        data.shrink_to_fit();
        Self { read, data, count: contents.read.len() * interleaved }
    }

    /// Bytes that it takes.
    fn listed(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.read[..]) + size_of_val(&self.data[..])
    }
}

/// One input ciphertext.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Which values it holds, and in which coefficients.
    pub pattern: &'a Pattern,
    /// Index in the input tensor of its first channel's first value, of its first image.
    pub first_value: usize,
}

/// The input ciphertexts of a layer, in the order of [`Layout::ciphertexts`].
#[derive(Clone, Debug)]
pub struct Inputs {
    patterns: Vec<Pattern>,
    /// For each ciphertext: its pattern, and the first value of its first channel.
    ciphertexts: Vec<(u32, u32)>,
    /// In the order in which they are sent.
    uploads: Vec<Upload>,
    step: usize,
    /// g: how many images share a ciphertext.
    interleaved: usize,
    /// From an image's value to the next image's, in the input tensor.
    image_len: usize,
    count: usize,
    /// Bytes that the lists take together.
    listed: usize,
}

/// One input ciphertext on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Its number among the layer's input ciphertexts.
    pub index: usize,
    /// Where its part of b begins.
    pub start: usize,
    /// It can be made of so many first values of the input tensor.
    pub needs: usize,
}

impl Inputs {
    /// Those of `layout`.
    ///
    /// # Errors
    /// When they take more than 128 MiB to list. No more than that is allocated first.
    pub(crate) fn new(layout: &Layout) -> Result<Self, LayoutError> {
        let each = size_of::<Tile>() + size_of::<(u32, u32)>() + size_of::<Upload>();
        let mut listed = layout.ciphertexts().saturating_mul(each);
        few(LISTED, listed, MAX_LISTED)?;
        let [_, h, w] = layout.in_shape();
        let step = layout.spec().stride[1];
        let (images, interleaved, image_len) = (layout.images(), layout.interleaved(), h * w);
        // The same tiles for every group of images.
        let each_image = layout.tiles().len() / (images / interleaved);
        let (mut patterns, mut known) = (Vec::new(), HashMap::new());
        let mut ciphertexts = Vec::with_capacity(layout.ciphertexts());
        for (t, tile) in layout.tiles().iter().enumerate() {
            for i in 0..layout.ciphertexts_per_tile() {
                let (channel, component, maps, standing) = layout.maps_of(i);
                let first_value = (channel * images * image_len) as u32;
                let next = patterns.len() as u32;
                let number = *known.entry((t % each_image, component, maps, standing)).or_insert(next);
                if number == next {
                    let contents = layout.contents(tile, i);
                    let pattern = Pattern::new(&contents, first_value, step as u32, interleaved);
                    listed += pattern.listed();
                    few(LISTED, listed, MAX_LISTED)?;
                    patterns.push(pattern);
                }
                ciphertexts.push((number, first_value + (tile.image * image_len) as u32));
            }
        }
        let uploads = Vec::with_capacity(ciphertexts.len());
        let mut this =
            Self { patterns, ciphertexts, uploads, step, interleaved, image_len, count: 0, listed };
        for index in 0..this.ciphertexts.len() {
            let Input { pattern, first_value } = this.ciphertext(index);
            let end = |run: &Run| first_value + run.from as usize + (run.len as usize - 1) * step + 1;
            let last = (interleaved - 1) * image_len;
            let needs = pattern.data.iter().map(end).max().map_or(0, |end| end + last);
            let count = pattern.count;
            this.uploads.push(Upload { index, start: this.count, needs });
            this.count += count;
        }
        this.uploads.sort_by_key(|upload| upload.needs);
        Ok(this)
    }

    /// Bytes of what is listed of the layer: its tiles, ciphertexts and patterns.
    pub(crate) fn listed(&self) -> usize {
        self.listed
    }

    /// The ciphertexts in the order in which they are sent: as their inputs become known, from the first channel on.
    pub fn uploads(&self) -> &[Upload] {
        &self.uploads
    }

    /// How many of the first uploads can be made of `values` first values of the input tensor.
    pub(crate) fn ready(&self, values: usize) -> usize {
        self.uploads.partition_point(|upload| upload.needs <= values)
    }

    /// Bytes of all of them, in words of `bits` bits: each is packed by itself.
    pub(crate) fn upload_bytes(&self, bits: u32) -> usize {
        self.ciphertexts
            .iter()
            .map(|&(pattern, _)| pack::packed_len(self.patterns[pattern as usize].count, bits))
            .sum()
    }

    /// Ciphertext `index`.
    pub fn ciphertext(&self, index: usize) -> Input<'_> {
        let (pattern, first_value) = self.ciphertexts[index];
        Input { pattern: &self.patterns[pattern as usize], first_value: first_value as usize }
    }

    /// g: how many images are interleaved.
    pub(crate) fn interleaved(&self) -> usize {
        self.interleaved
    }

    /// Calls `f` with every input value's place in `words` and the value, of ciphertext `index`: `words` are all its coefficients, or
    /// those that are read, as `place` says of a run.
    #[inline]
    pub(crate) fn each_value(
        &self,
        index: usize,
        x: &[u64],
        words: &mut [u64],
        place: impl Fn(&Run) -> u32,
        mut f: impl FnMut(&mut u64, u64),
    ) {
        let Input { pattern, first_value } = self.ciphertext(index);
        let (interleaved, len) = (self.interleaved, self.image_len);
        for run in &pattern.data {
            let from = first_value + run.from as usize;
            let at = place(run) as usize * interleaved;
            let words = &mut words[at..at + run.len as usize * interleaved];
            if interleaved == 1 {
                let values = x[from..].iter().step_by(self.step);
                words.iter_mut().zip(values).for_each(|(word, &x)| f(word, x));
                continue;
            }
            for image in 0..interleaved {
                let values = x[from + image * len..].iter().step_by(self.step);
                let words = words[image..].iter_mut().step_by(interleaved);
                words.zip(values).for_each(|(word, &x)| f(word, x));
            }
        }
    }

    /// Distance of the values of a run in the input tensor.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Coefficients that are read, of all ciphertexts: the values of b that are sent.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Cuts `words`, one for every coefficient that is read, into the ciphertexts' parts.
    ///
    /// # Panics
    /// When there are not [`count`](Self::count) words.
    pub(crate) fn split_mut<'a, T>(&self, words: &'a mut [T]) -> Vec<&'a mut [T]> {
        assert_eq!(words.len(), self.count, "a word for every coefficient that is read");
        crate::cut(words, (0..self.ciphertexts.len()).map(|i| self.ciphertext(i).pattern.count))
    }
}

#[cfg(test)]
mod tests {
    use jaguar_graph::network::Linear;
    use proptest::prelude::*;

    use super::*;

    /// What is allocated, by the capacities of the lists.
    fn allocated(inputs: &Inputs) -> usize {
        let pattern =
            |p: &Pattern| p.read.capacity() * size_of::<Range<u32>>() + p.data.capacity() * size_of::<Run>();
        inputs.patterns.iter().map(|p| size_of::<Pattern>() + pattern(p)).sum::<usize>()
            + inputs.ciphertexts.capacity() * size_of::<(u32, u32)>()
            + inputs.uploads.capacity() * size_of::<Upload>()
    }

    /// Taps three apart under windows of two outputs: a run for each of them, in each of 65,500 tiles.
    #[test]
    fn runs_are_counted_while_they_are_listed() {
        let spec = Linear {
            out_channels: 1,
            kernel: [1, 683],
            stride: [1, 1],
            dilation: [1, 3],
            pads: [0; 4],
            groups: 1,
            shift: 1,
            max_exponent: 0,
            blocks: None,
        };
        let layout = Layout::new(2048, &spec, [1, 1, 133_046]).unwrap();
        let error = Inputs::new(&layout).unwrap_err();
        assert!(matches!(error, LayoutError::Pieces { what: LISTED, most: MAX_LISTED, .. }), "{error}");
        let layout = Layout::new(2048, &spec, [1, 1, 13_304]).unwrap();
        let inputs = Inputs::new(&layout).unwrap();
        assert!(allocated(&inputs) <= inputs.listed() && inputs.listed() > MAX_LISTED / 20);
    }

    /// Extents of 1, of what a ring holds, and of the most that a network may have.
    fn extent() -> impl Strategy<Value = usize> + Clone {
        prop_oneof![Just(1usize), 1usize..5, 40usize..50, 500usize..1100, 2040usize..2050, Just(4096)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(800))]
        /// Layers as a hostile server would choose them: refused, or listed in no more than is counted.
        #[test]
        fn no_layer_takes_more_than_the_limit_to_list(
            kernel in prop::array::uniform2(extent()),
            stride in prop::array::uniform2(extent()),
            dilation in prop::array::uniform2(prop_oneof![3 => 1usize..5, 1 => extent()]),
            pads in prop::array::uniform4(prop_oneof![Just(0usize), extent()]),
            (h, w) in (prop_oneof![extent(), 1usize..200_000], prop_oneof![extent(), 1usize..200_000]),
            channels in prop_oneof![Just(1usize), 1usize..100, Just(2048), Just(1 << 16)],
        ) {
            let spec = Linear { out_channels: 1, kernel, stride, dilation, pads, groups: 1, shift: 1, max_exponent: 0, blocks: None };
            // Only what a valid network may have.
            let valid = channels * h * w <= 1 << 26
                && spec.output_hw([channels, h, w]).is_some_and(|[oh, ow]| oh * ow <= 1 << 26);
            let listed = || Layout::new(2048, &spec, [channels, h, w]).and_then(|layout| Inputs::new(&layout));
            if valid && let Ok(inputs) = listed() {
                prop_assert!(allocated(&inputs) <= inputs.listed());
                prop_assert!(inputs.listed() <= MAX_LISTED);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn runs_say_what_contents_say(
            (h, w) in (1usize..12, 1usize..12),
            kernel in prop_oneof![prop::array::uniform2(1usize..4), prop::array::uniform2(4usize..10)],
            stride in prop::array::uniform2(1usize..4),
            pads in prop_oneof![prop::array::uniform4(0usize..3), prop::array::uniform4(3usize..8)],
            channels in prop_oneof![1usize..20, 100usize..140],
            log_n in 5u32..9,
        ) {
            prop_assume!(h + pads[0] + pads[2] >= kernel[0] && w + pads[1] + pads[3] >= kernel[1]);
            let spec = Linear { out_channels: 1, kernel, stride, dilation: [1, 1], pads, groups: 1, shift: 1, max_exponent: 0, blocks: None };
            if let Ok(layout) = Layout::new(1 << log_n, &spec, [channels, h, w]) {
                let inputs = Inputs::new(&layout).unwrap();
                let mut places: Vec<usize> = (0..inputs.count()).collect();
                let parts = inputs.split_mut(&mut places);
                let mut start = 0;
                for (i, part) in parts.iter().enumerate() {
                    let per_tile = layout.ciphertexts_per_tile();
                    let contents = layout.contents(&layout.tiles()[i / per_tile], i % per_tile);
                    let Input { pattern, first_value } = inputs.ciphertext(i);
                    let read: Vec<u32> = pattern.read.iter().cloned().flatten().collect();
                    prop_assert_eq!(&read, &contents.read);
                    prop_assert!(pattern.read.windows(2).all(|pair| pair[0].end < pair[1].start));
                    let mut data = Vec::new();
                    for run in &pattern.data {
                        for j in 0..run.len {
                            prop_assert_eq!(read[(run.rank + j) as usize], run.at + j);
                            let from = first_value + run.from as usize + j as usize * inputs.step();
                            data.push((run.at + j, from as u32));
                        }
                    }
                    prop_assert_eq!(data, contents.data);
                    prop_assert_eq!(part.len(), read.len());
                    prop_assert_eq!(part[0], start);
                    start += read.len();
                }
                prop_assert_eq!(start, inputs.count());
                // Every ciphertext is sent once, as soon as what it holds is known.
                let mut seen = vec![false; layout.ciphertexts()];
                let mut needed = 0;
                for upload in inputs.uploads() {
                    prop_assert!(!std::mem::replace(&mut seen[upload.index], true));
                    let per_tile = layout.ciphertexts_per_tile();
                    let (tile, i) = (upload.index / per_tile, upload.index % per_tile);
                    let contents = layout.contents(&layout.tiles()[tile], i);
                    let last = contents.data.iter().map(|&(_, from)| from as usize + 1).max().unwrap_or(0);
                    prop_assert_eq!(upload.needs, last);
                    prop_assert!(last >= needed);
                    needed = last;
                }
                prop_assert!(seen.iter().all(|&s| s));
                prop_assert_eq!(inputs.ready(channels * h * w), layout.ciphertexts());
            }
        }
    }
}
