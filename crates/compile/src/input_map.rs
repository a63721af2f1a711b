//! What becomes of an affine map that the file has right behind the input: the batch normalisation that some networks begin with, or
//! factors and offsets of the exporter's.
//!
//! As part of the preprocessing its numbers would go to every client, and those of a batch normalisation were learned. In the weights
//! of the layers behind it they are secret, at no cost but a bias that differs by element where a layer has zero padding. So that is the
//! default, unless the input's integers would become too coarse: see [`MOST_LOST_BITS`].

use jaguar_graph::float::Graph;
use jaguar_ring::cpu::Cpu;

/// Where the affine map goes that a file has right behind the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputMap {
    /// Into the layers behind it, unless that takes another layer or costs more than [`MOST_LOST_BITS`] bits of the input; then as
    /// [`InputMap::Public`], with a warning.
    #[default]
    Auto,
    /// Into the layers behind it, or a layer of its own: its numbers are as secret as weights.
    Secret,
    /// Into the public preprocessing: every client gets its numbers.
    Public,
}

/// What became of the affine map that the file has right behind the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFound {
    /// What the file calls the node.
    pub node: String,
    /// Over how many channels.
    pub channels: usize,
    /// Where it is.
    pub place: MapPlace,
}

/// Where an affine map of the input ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapPlace {
    /// In weights and biases.
    Secret,
    /// In the public preprocessing, as asked for.
    Asked,
    /// There, because no layer behind it can take it.
    Stuck,
    /// There, because channels are so different that integers of one scale would lose this many bits of the input.
    Costly(u32),
}

impl std::fmt::Display for MapFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, channels, place } = self;
        let s = if *channels == 1 { "" } else { "s" };
        write!(f, "{node}, a factor and an offset for the input's {channels} channel{s}, ")?;
        match place {
            MapPlace::Secret => f.write_str("is in the weights of what follows, and stays secret"),
            MapPlace::Asked => f.write_str("becomes public preprocessing: every client gets its numbers"),
            MapPlace::Stuck => f.write_str(
                "becomes public preprocessing: every client gets its numbers. No layer behind it can take them in: kept secret, \
                 they would be a layer more",
            ),
            MapPlace::Costly(bits) => write!(
                f,
                "becomes public preprocessing: every client gets its numbers. The channels are of very different sizes: kept \
                 secret, it would cost {bits} bits of the input"
            ),
        }
    }
}

/// How many bits of the input's precision keeping an affine map secret may cost unless asked for. Activations have 16 or more, a
/// pixel has 8.
pub const MOST_LOST_BITS: u32 = 2;

/// Puts the affine map right behind the input where `wanted` says; `samples` are tensors `[C, H, W]`. `None` for a graph without
/// one, or one that stays as it is.
pub fn place_input_map(
    cpu: Cpu,
    graph: &Graph,
    samples: &[Vec<f32>],
    wanted: InputMap,
) -> (Option<Graph>, Option<MapFound>) {
    if graph.affine.is_empty() {
        return (None, None);
    }
    let found = |place| MapFound { node: graph.affine_name.clone(), channels: graph.affine.len(), place };
    let secret = |one_layer_more| graph.with_map_in_layers(cpu, one_layer_more);
    let (moved, place) = match wanted {
        InputMap::Public => (None, MapPlace::Asked),
        InputMap::Secret => match secret(true) {
            Some(moved) => (Some(moved), MapPlace::Secret),
            None => (None, MapPlace::Stuck),
        },
        InputMap::Auto => match (lost_bits(graph, samples), secret(false)) {
            (lost, Some(_)) if lost > MOST_LOST_BITS => (None, MapPlace::Costly(lost)),
            (_, Some(moved)) => (Some(moved), MapPlace::Secret),
            (_, None) => (None, MapPlace::Stuck),
        },
    };
    (moved, Some(found(place)))
}

/// By how many bits values are coarser behind the map, where the input has one scale, than where the map's result has.
fn lost_bits(graph: &Graph, samples: &[Vec<f32>]) -> u32 {
    let [_, h, w] = graph.input_shape();
    let (mut before, mut behind) = (0f64, 0f64);
    for sample in samples {
        for (plane, &(mul, add)) in sample.chunks_exact((h * w).max(1)).zip(&graph.affine) {
            for &value in plane {
                before = before.max(f64::from(value).abs());
                behind = behind.max(f64::from(value * mul + add).abs());
            }
        }
    }
    let steepest = graph.affine.iter().map(|(mul, _)| f64::from(*mul).abs()).fold(0.0, f64::max);
    let coarser = before * steepest / behind;
    // (A map to zero alone, or samples of nothing but zeros, lose nothing.)
    if coarser.is_finite() && coarser > 1.0 { coarser.log2().ceil() as u32 } else { 0 }
}
