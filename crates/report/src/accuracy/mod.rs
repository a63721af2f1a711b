//! How often the right class comes out of a compiled model: of the integer network, of the float network that it was made from,
//! and of private runs.
//!
//! Nothing here prints. [`jaguar_compile::samples::labelled`] finds pictures and their classes, [`measure`] runs one of them through both
//! networks, [`private`] runs some privately, and a [`Score`] says what came of it.

use std::collections::{BTreeMap, BTreeSet};

use jaguar_compile::samples::{Axes, FitError, Source};
use jaguar_engine::EngineError;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Prediction, Reveal};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::Progress;
use jaguar_engine::verify::verify_heard;
use jaguar_graph::float::Graph;
use jaguar_graph::network::{Model, argmax};
use jaguar_graph::reference::{self, ReferenceError};
use jaguar_plan::{Choices, Kit};
use jaguar_ring::cpu::Cpu;
use serde::Serialize;

/// Why accuracy cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccuracyError {
    /// There is a single output.
    #[error("the model has a single output: there are no classes to tell apart")]
    NoClasses,
    /// The first k of fewer classes.
    #[error("top {k}: the model has {classes} classes")]
    Top {
        /// How many were asked for.
        k: usize,
        /// How many classes the model has.
        classes: usize,
    },
    /// A float network of other shapes.
    #[error(
        "input {:?} and {} outputs; the compiled model has {:?} and {}: it comes from another network",
        found.0, found.1, wanted.0, wanted.1
    )]
    OtherNetwork {
        /// The float network's input shape, and how many outputs it has.
        found: ([usize; 3], usize),
        /// The input shape and the number of outputs that the model has.
        wanted: ([usize; 3], usize),
    },
    /// An input that the network does not take.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// An input of another length.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// An input that only the integer network takes.
    #[error("the float network does not take the input")]
    Float,
}

/// What one picture gave: how many classes come before the right one, and which is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// How many classes come before the right one.
    pub rank: usize,
    /// The class with the largest logit.
    pub first: usize,
}

impl Ranking {
    /// Of `class` among these logits; of equal ones the first comes first.
    pub fn new<T: PartialOrd + Copy>(logits: &[T], class: usize) -> Self {
        let before = |(i, v): (usize, &T)| *v > logits[class] || (*v == logits[class] && i < class);
        let rank = logits.iter().enumerate().filter(|&(i, v)| before((i, v))).count();
        Self { rank, first: argmax(logits) }
    }
}

/// How often the right class came out.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// How many pictures it is of.
    pub pictures: usize,
    /// By k: for which part the right class is among the first k.
    pub top: BTreeMap<usize, f64>,
    /// By k: where that part lies with 95 % confidence, were the pictures drawn by chance ([`interval`]).
    pub interval: BTreeMap<usize, [f64; 2]>,
    /// For which part the class is that of the network that they stand beside.
    pub same_class: f64,
}

impl Score {
    /// Of `places` beside another network's, of the same pictures.
    pub fn new(places: &[Ranking], beside: &[Ranking], tops: &[usize]) -> Self {
        let part = |n: usize| n as f64 / places.len().max(1) as f64;
        let within = |k: usize| places.iter().filter(|p| p.rank < k).count();
        let same = places.iter().zip(beside).filter(|(a, b)| a.first == b.first).count();
        Self {
            pictures: places.len(),
            top: tops.iter().map(|&k| (k, part(within(k)))).collect(),
            interval: tops.iter().map(|&k| (k, interval(within(k), places.len()))).collect(),
            same_class: part(same),
        }
    }
}

/// Where a part lies with 95 % confidence of which `hits` of `all` independent draws were found: Wilson's score interval (E. B. Wilson,
/// Probable inference, JASA 22, 1927). From 0 to 1 if there were none.
pub fn interval(hits: usize, all: usize) -> [f64; 2] {
    /// The normal distribution has 95 % within so many standard deviations.
    const Z: f64 = 1.959_963_984_540_054;
    if all == 0 {
        return [0.0, 1.0];
    }
    let n = all as f64;
    let p = hits as f64 / n;
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    [((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)]
}

/// How many classes the model tells apart.
///
/// # Errors
/// When there is a single output.
pub fn classes(model: &Model) -> Result<usize, AccuracyError> {
    let classes = model.network.nodes.last().map_or(0, |n| n.shape.iter().product());
    if classes > 1 { Ok(classes) } else { Err(AccuracyError::NoClasses) }
}

/// The k of top-k: as asked for, or 1 and 5 as far as they make sense.
///
/// # Errors
/// More than there are classes.
pub fn tops(asked: &[usize], classes: usize) -> Result<Vec<usize>, AccuracyError> {
    if let Some(k) = asked.iter().find(|k| **k > classes) {
        return Err(AccuracyError::Top { k: *k, classes });
    }
    let mut tops = match asked {
        [] => vec![1, 5].into_iter().filter(|k| *k < classes).collect(),
        asked => asked.to_vec(),
    };
    tops.sort_unstable();
    tops.dedup();
    Ok(tops)
}

/// Whether `graph` is the float network that the model comes from, as far as shapes tell.
///
/// # Errors
/// When it is another.
pub fn same_network(graph: &Graph, model: &Model) -> Result<(), AccuracyError> {
    let nodes = &model.network.nodes;
    let ends = |input, output: Option<usize>| (input, output.unwrap_or(0));
    let found = ends(graph.input_shape(), graph.nodes.last().map(|n| n.shape.iter().product()));
    let wanted = ends(nodes[0].shape, nodes.last().map(|n| n.shape.iter().product()));
    if found == wanted { Ok(()) } else { Err(AccuracyError::OtherNetwork { found, wanted }) }
}

/// What one picture gave.
#[derive(Clone, Debug)]
pub struct Run {
    /// The network's input, for a private run.
    pub input: Vec<i64>,
    /// The number of the right class, from 0.
    pub class: usize,
    /// By the integer network, exactly.
    pub integer: Ranking,
    /// By the float network, if there is one.
    pub float: Option<Ranking>,
    /// What is unusual about the picture.
    pub warning: Option<String>,
}

/// One picture of this class through the integer network, and through the float network `graph` if there is one.
///
/// # Errors
/// When it is not what the network takes.
pub fn measure(
    model: &Model,
    graph: Option<&Graph>,
    source: &Source,
    class: usize,
) -> Result<Run, AccuracyError> {
    let input = source.input(&model.network)?;
    let integer = Ranking::new(reference::run(Cpu::detect(), model, &input.integers)?.output(), class);
    let float = match graph {
        None => None,
        Some(graph) => {
            let image = &model.network.input.image;
            let tensor = source.tensor(image, graph.input_shape(), Axes::of_graph(graph))?;
            let logits = graph.forward(Cpu::detect(), &tensor).ok_or(AccuracyError::Float)?;
            Some(Ranking::new(&logits, class))
        }
    };
    Ok(Run { input: input.integers, class, integer, float, warning: input.warning })
}

/// Private runs of these, both parties here; `progress` hears how far each is. The hint is held in memory.
///
/// # Errors
/// When the model cannot be run so.
pub fn private(
    kit: &Kit,
    bundle: Bundle,
    choices: Choices,
    runs: &[&Run],
    progress: &mut dyn Progress,
) -> Result<Vec<Ranking>, EngineError> {
    let inputs: Vec<Vec<i64>> = runs.iter().map(|run| run.input.clone()).collect();
    let checks = verify_heard(kit, bundle, choices, Reveal::Logits, &inputs, HintPlace::Memory, progress)?;
    let places = checks.iter().zip(runs).map(|(check, run)| match &check.prediction {
        Prediction::Logits(logits) => Ranking::new(logits, run.class),
        Prediction::Label(label) => Ranking { rank: usize::from(*label != run.class), first: *label },
    });
    Ok(places.collect())
}

/// `count` of the items, evenly spread; all if there are no more.
pub fn spread<T>(items: Vec<T>, count: usize) -> Vec<T> {
    let all = items.len();
    let chosen: BTreeSet<usize> = (0..count.min(all)).map(|i| i * all / count.min(all)).collect();
    items.into_iter().enumerate().filter(|(i, _)| chosen.contains(i)).map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the roots of (p - part)^2 = z^2 p (1 - p) / n, which the interval's ends are.
    #[test]
    fn intervals_are_wilsons() {
        let z2 = 1.96f64 * 1.96;
        for (hits, all) in [(1, 10), (5, 10), (9, 10), (81, 263), (500, 1000)] {
            let part = hits as f64 / all as f64;
            for end in interval(hits, all) {
                let (left, right) = ((end - part).powi(2), z2 * end * (1.0 - end) / all as f64);
                assert!((left - right).abs() < 1e-4 * right, "{hits} of {all}: {end}");
            }
        }
        assert_eq!(interval(0, 0), [0.0, 1.0]);
        let [none, all] = [interval(0, 20), interval(20, 20)];
        assert_eq!(none[0], 0.0);
        assert_eq!(all[1], 1.0);
        assert!((none[1] - (1.0 - all[0])).abs() < 1e-12);
    }

    #[test]
    fn samples_are_spread() {
        assert_eq!(spread((0..10).collect(), 3), [0, 3, 6]);
        assert_eq!(spread((0..3).collect(), 7), [0, 1, 2]);
        assert!(spread((0..3).collect(), 0).is_empty());
        assert!(spread(Vec::<u8>::new(), 4).is_empty());
    }

    #[test]
    fn ranks_and_ties() {
        let logits = [3, 5, 5, 1];
        assert_eq!([0, 1, 2, 3].map(|c| Ranking::new(&logits, c).rank), [2, 0, 1, 3]);
        assert_eq!(Ranking::new(&logits, 3).first, 1);
        assert_eq!(tops(&[], 10).unwrap(), [1, 5]);
        assert_eq!(tops(&[], 4).unwrap(), [1]);
        assert_eq!(tops(&[5, 2, 5], 5).unwrap(), [2, 5]);
        assert!(tops(&[6], 5).is_err());
    }
}
