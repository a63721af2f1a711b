//! `jaguar compile --protocol convfhe`

use std::path::Path;

use anyhow::{Context, Result, ensure};
use jaguar_convfhe::session::Facing;
use jaguar_convfhe::{Compiled, Figures, describe};
use jaguar_graph::float::Graph;
use jaguar_graph::network::ImageSpec;
use jaguar_terminal::say;
use jaguar_terminal::table::bytes;

use super::Program;
use crate::progress::Steps;

/// What a compilation for one round takes.
pub struct Source<'a> {
    pub graph: &'a Graph,
    pub image: ImageSpec,
    pub labels: Vec<String>,
    /// Tensors `[C, H, W]`.
    pub samples: Vec<Vec<f32>>,
    /// Whether pictures are among the samples, and so among what will come.
    pub pictures: bool,
}

/// Calibrates a network, and writes what `jaguar serve --protocol convfhe` reads.
pub fn compile(
    source: Source<'_>,
    (set, margin): (&str, f64),
    program: &Program,
    output: &Path,
    steps: &mut Steps,
) -> Result<()> {
    let fhe = program.find()?;
    check_output(output)?;
    let Source { graph, image, labels, samples, pictures } = source;
    let facing = Facing {
        name: graph.name.clone(),
        shape: graph.input_shape(),
        layout_dims: graph.layout_dims.clone(),
        channels_last: graph.channels_last,
        image,
        affine: graph.affine.clone(),
        parts: graph.outputs.clone(),
        labels,
    };
    let samples: Vec<Vec<f32>> = samples.into_iter().map(|sample| facing.mapped(sample)).collect();
    let seen = samples.iter().flatten().fold(0.0f32, |most, v| most.max(v.abs()));
    // Any picture is to be within the bound, not only those.
    let bound = if pictures { seen.max(of_pictures(&facing)) } else { seen };
    ensure!(bound > 0.0, "every sample is zero");
    // Samples travel as decimal digits, which may be rounded up.
    let description = describe(graph, f64::from(bound) * 1.000_01)?;
    let figures = fhe.about(set, None)?;
    steps.begin(format!("calibrating with {} samples", samples.len()));
    let compiled = Compiled::make(&fhe, (set, margin), (&description, facing), &samples, output)?;
    steps.finish();
    let Figures { keys, input, answer, memory, .. } = fhe.about(set, Some(output))?;
    let layers = description.layers.len();
    say!(
        "{}: {layers} layers with ReLU, input {:?}, {} outputs, parameter set {set} ({})",
        compiled.facing.name,
        compiled.facing.shape,
        compiled.outputs,
        figures.security
    );
    say!(
        "a client will send {} of keys once, then {} for an image, and get {}; an evaluation takes about {} of memory",
        bytes(keys),
        bytes(input as u64),
        bytes(answer as u64),
        bytes(memory)
    );
    say!("wrote {} ({})", output.display(), bytes(std::fs::metadata(output).map_or(0, |m| m.len())));
    Ok(())
}

/// The largest absolute value that a picture can have, behind preprocessing and affine map.
fn of_pictures(facing: &Facing) -> f32 {
    let pixels = facing.image.mean.iter().zip(&facing.image.factor).enumerate();
    let value = |(c, (mean, factor)): (usize, (&f32, &f32)), pixel: f32| {
        let (mul, add) = facing.affine.get(c).copied().unwrap_or((1.0, 0.0));
        ((pixel - mean) * factor * mul + add).abs()
    };
    pixels.map(|channel| value(channel, 0.0).max(value(channel, 255.0))).fold(0.0, f32::max)
}

/// Only such a model is overwritten.
fn check_output(path: &Path) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        let why = "this file is there and is no model for --protocol convfhe; give another name, or remove it first";
        Compiled::read(path).with_context(|| format!("-o {}: {why}", path.display()))?;
    }
    Ok(())
}
