//! Samples that calibration can do little with, or that it should not have: the same twice, of one colour, far from all others.

use std::collections::BTreeMap;
use std::fmt;

use super::ChannelRanges;
use crate::float::Graph;

/// A sample that reaches farther than all others together by this factor is unlike them. (It costs two bits of every other sample's
/// values there; as much is left free by the usual headroom.)
const FAR: f64 = 4.0;

/// With fewer others nothing can be said of what is usual.
const OTHERS: usize = 4;

/// What is odd about some of the samples. Samples are numbered from 0, in the order in which they were given.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Oddity {
    /// These are the same, value by value.
    Same(Vec<usize>),
    /// In each of these, every channel has one value: black, white, an empty page.
    Plain(Vec<usize>),
    /// One sample reaches farther than all others, and so sets the scale alone.
    Far {
        /// The sample's number, from 0.
        sample: usize,
        /// The layer where it does so the most.
        layer: String,
        /// How many times as far as the farthest of the others.
        times: f64,
        /// In how many layers it reaches more than four times as far.
        layers: usize,
    },
}

impl Oddity {
    /// In words, where `name` says what a sample is called.
    pub fn words(&self, name: &dyn Fn(usize) -> String) -> String {
        /// How many samples a warning names at most.
        const NAMED: usize = 4;
        let list = |samples: &[usize]| {
            let mut names: Vec<String> = samples.iter().take(NAMED).map(|&i| name(i)).collect();
            if samples.len() > NAMED {
                names.push(format!("{} more", samples.len() - NAMED));
            }
            names.join(", ")
        };
        match self {
            Self::Same(samples) => {
                format!("{} are the same picture: they count as one", list(samples))
            }
            Self::Plain(samples) => format!(
                "{} {} of one colour: calibration learns nothing from such",
                list(samples),
                if samples.len() == 1 { "is" } else { "are" }
            ),
            Self::Far { sample, layer, times, layers } => format!(
                "{} is unlike the others: it reaches {times:.1} times as far as all of them at {layer}{}, and sets the \
                 scale there alone. Leave it out if none like it will come",
                name(*sample),
                match layers {
                    1 => String::new(),
                    n => format!(" (more than {FAR:.0} times in {n} layers)"),
                }
            ),
        }
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(&|sample| format!("sample {sample}")))
    }
}

/// What is odd about samples, whose `ranges` are those of each by itself.
pub(super) fn oddities(graph: &Graph, samples: &[Vec<f32>], ranges: &[Vec<f64>]) -> Vec<Oddity> {
    let mut found = same(samples);
    let plane = graph.nodes[0].shape[1] * graph.nodes[0].shape[2];
    let of_one_value = |values: &[f32]| values.iter().all(|v| *v == values[0]);
    let plain: Vec<usize> = (0..samples.len())
        .filter(|&i| match plane {
            // A vector: there are no places that could differ.
            1 => samples[i].len() > 1 && of_one_value(&samples[i]),
            _ => samples[i].chunks(plane).all(of_one_value),
        })
        .collect();
    if !plain.is_empty() {
        found.push(Oddity::Plain(plain));
    }
    found.extend(far(graph, ranges));
    found
}

/// Groups of equal samples, each in the order of its members.
fn same(samples: &[Vec<f32>]) -> Vec<Oddity> {
    let bits = |i: &usize| samples[*i].iter().map(|v| v.to_bits());
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by(|a, b| bits(a).cmp(bits(b)).then(a.cmp(b)));
    let groups = order.chunk_by(|a, b| bits(a).eq(bits(b)));
    let mut groups: Vec<Vec<usize>> = groups.filter(|group| group.len() > 1).map(<[usize]>::to_vec).collect();
    groups.sort();
    groups.into_iter().map(Oddity::Same).collect()
}

/// Samples that reach far beyond all others somewhere.
fn far(graph: &Graph, ranges: &[Vec<f64>]) -> Vec<Oddity> {
    if ranges.len() <= OTHERS {
        return Vec::new();
    }
    // By sample: the layer where it is farthest out, how far, and in how many layers it is.
    let mut found: BTreeMap<usize, (usize, f64, usize)> = BTreeMap::new();
    for node in 0..graph.nodes.len() {
        let (mut sample, mut first, mut second) = (0, 0.0, 0.0);
        for (i, range) in ranges.iter().map(|range| range[node]).enumerate() {
            if range > first {
                (sample, first, second) = (i, range, first);
            } else {
                second = range.max(second);
            }
        }
        // Where all others are zero, no factor says how unlike it is.
        if second > 0.0 && first > FAR * second {
            let worst = found.entry(sample).or_insert((node, 0.0, 0));
            if first / second > worst.1 {
                (worst.0, worst.1) = (node, first / second);
            }
            worst.2 += 1;
        }
    }
    let one = |(sample, (node, times, layers)): (usize, (usize, f64, usize))| {
        let layer = graph.nodes[node].name.clone();
        Oddity::Far { sample, layer, times, layers }
    };
    found.into_iter().map(one).collect()
}

/// The largest absolute value of each node.
pub(super) fn by_node(ranges: &ChannelRanges) -> Vec<f64> {
    ranges.iter().map(|channels| channels.iter().copied().fold(0.0, f64::max)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jaguar_ring::cpu::Cpu;

    use super::*;
    use crate::import;
    use crate::network::Operators;
    use crate::quantise::Samples;

    fn graph() -> Graph {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/clips_21.onnx");
        import::import_file(&path, &import::Options::new(&Operators::standard())).unwrap()
    }

    fn usual(graph: &Graph, count: usize) -> Vec<Vec<f32>> {
        let length: usize = graph.input_shape().iter().product();
        (0..count)
            .map(|i| (0..length).map(|at| ((at * 7 + i * 13) % 23) as f32 / 8.0 - 1.0).collect())
            .collect()
    }

    fn found(graph: &Graph, samples: &[Vec<f32>]) -> Vec<Oddity> {
        Samples::new(Cpu::default(), graph, samples, &mut |_| ()).unwrap().oddities(samples)
    }

    #[test]
    fn usual_samples_are_not_odd() {
        let graph = graph();
        assert_eq!(found(&graph, &usual(&graph, 10)), []);
        assert_eq!(found(&graph, &usual(&graph, 1)), []);
    }

    #[test]
    fn the_same_twice_is_told_once_for_each_group() {
        let graph = graph();
        let mut samples = usual(&graph, 7);
        samples[3] = samples[1].clone();
        samples[5] = samples[1].clone();
        samples[6] = samples[0].clone();
        assert_eq!(found(&graph, &samples), [Oddity::Same(vec![0, 6]), Oddity::Same(vec![1, 3, 5])]);
    }

    #[test]
    fn one_colour_is_told_whichever_it_is() {
        let graph = graph();
        let mut samples = usual(&graph, 6);
        let plane = graph.nodes[0].shape[1] * graph.nodes[0].shape[2];
        samples[2].fill(0.0);
        // Another value in each channel is one colour too; a dot on it is none.
        samples[4].iter_mut().enumerate().for_each(|(at, v)| *v = (at / plane) as f32 / 3.0 - 0.5);
        samples[5].fill(0.25);
        samples[5][plane / 2] = 0.5;
        assert_eq!(found(&graph, &samples), [Oddity::Plain(vec![2, 4])]);
    }

    #[test]
    fn a_sample_on_another_scale_is_named_with_the_layer_where_it_shows() {
        let graph = graph();
        let mut samples = usual(&graph, 8);
        samples[5].iter_mut().for_each(|v| *v *= 3.0);
        assert_eq!(found(&graph, &samples), [], "three times as far is no reason to worry");
        samples[5].iter_mut().for_each(|v| *v *= 30.0);
        let [Oddity::Far { sample, times, layers, .. }] = &found(&graph, &samples)[..] else {
            panic!("{:?}", found(&graph, &samples))
        };
        assert!((*sample, *layers) >= (5, 1) && *times >= 80.0, "{times}, {layers}");
        // With three others one cannot say who is the stranger.
        assert_eq!(found(&graph, &samples[3..7]), []);
        let text = found(&graph, &samples)[0].words(&|i| format!("{i}.png"));
        assert!(text.starts_with("5.png is unlike the others"), "{text}");
    }
}
