//! `jaguar compile --protocol convfhe`

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jaguar_convfhe::session::{Facing, FirstLayers};
use jaguar_convfhe::{Compiled, Figures, describe, last_layers};
use jaguar_cpu::Cpu;
use jaguar_engine::bundle::files;
use jaguar_graph::float::{Graph, Op};
use jaguar_graph::import::first_parts;
use jaguar_graph::network::{ImageSpec, without_names};
use jaguar_graph::onnx;
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
    /// The ONNX file.
    pub file: &'a Path,
    /// Whether clients get the names that the file has for outputs and, in a file of first layers, for everything.
    pub keep_names: bool,
}

/// A network of which the client computes the first layers in the clear.
#[derive(clap::Args)]
pub struct Last {
    /// For --protocol convfhe: only the last so many layers with ReLU are computed on ciphertexts. Clients compute those before in the
    /// clear, so they get their weights: in a file, --first-layers of `jaguar predict`.
    #[arg(long, value_name = "LAYERS", value_parser = clap::value_parser!(u16).range(1..))]
    last: Option<u16>,
    /// Where the file for clients is written (default: beside the model, OUTPUT.first.onnx).
    #[arg(long, value_name = "FILE.onnx", requires = "last")]
    first_layers: Option<PathBuf>,
}

impl Last {
    /// Whether a network is to be cut.
    pub fn is_wanted(&self) -> bool {
        self.last.is_some()
    }

    /// Where the first layers go.
    fn file(&self, output: &Path) -> PathBuf {
        self.first_layers.clone().unwrap_or_else(|| output.with_added_extension("first.onnx"))
    }
}

/// A network in two.
struct Cut {
    /// For the server.
    rest: Graph,
    /// For clients: as they will read it, and the file.
    first: Graph,
    bytes: Vec<u8>,
    told: FirstLayers,
}

impl Cut {
    fn new(graph: &Graph, file: &Path, layers: u16, keep_names: bool) -> Result<Self> {
        let (first, rest) = last_layers(graph, layers.into()).with_context(|| format!("--last {layers}"))?;
        let model = onnx::read(file)?;
        let end = first.nodes.last().expect("a cut graph has nodes");
        let dims: Vec<usize> = [1].into_iter().chain(graph.layout_dims.iter().copied()).collect();
        let is_first = |bytes: Vec<u8>| {
            let told = FirstLayers::new(end.shape, &bytes);
            let again = told.read(&bytes, graph.input_shape()).ok()?;
            let same = again.nodes.iter().map(|node| &node.op).eq(first.nodes.iter().map(|node| &node.op));
            same.then_some((bytes, told, again))
        };
        let (bytes, told, again) =
            first_parts(&model, &end.name, &dims, keep_names).find_map(is_first).with_context(|| {
                format!("--last {layers}: no part of the file computes the layers up to {} alone", end.name)
            })?;
        Ok(Self { rest, first: again, bytes, told })
    }
}

fn weights(graph: &Graph) -> usize {
    let of = |op: &Op| if let Op::Linear(linear) = op { linear.weights.len() } else { 0 };
    graph.nodes.iter().map(|node| of(&node.op)).sum()
}

/// Calibrates a network, and writes what `jaguar serve --protocol convfhe` reads.
pub fn compile(
    source: Source<'_>,
    (set, margin): (&str, f64),
    last: &Last,
    program: &Program,
    output: &Path,
    steps: &mut Steps,
) -> Result<()> {
    let fhe = program.find()?;
    check_output(output)?;
    let Source { graph, image, labels, samples, pictures, file, keep_names } = source;
    let cut = last.last.map(|layers| Cut::new(graph, file, layers, keep_names)).transpose()?;
    let for_clients = last.file(output);
    if let Some(cut) = &cut {
        ensure!(
            for_clients != file && for_clients != output,
            "--first-layers {}: this is the network, or -o; give another name",
            for_clients.display()
        );
        // Before the calibration, which takes minutes.
        files::replace(&for_clients, &cut.bytes)?;
    }
    let facing = Facing {
        name: graph.name.clone(),
        shape: graph.input_shape(),
        layout_dims: graph.layout_dims.clone(),
        channels_last: graph.channels_last,
        image,
        // (In a file of first layers it is among them.)
        affine: if cut.is_some() { Vec::new() } else { graph.affine.clone() },
        parts: match keep_names {
            true => graph.outputs.clone(),
            false => without_names(graph.outputs.clone()),
        },
        labels,
        first: cut.as_ref().map(|cut| cut.told.clone()),
    };
    let cpu = Cpu::detect();
    let samples: Vec<Vec<f32>> = match &cut {
        None => samples.into_iter().map(|sample| facing.mapped(sample)).collect(),
        Some(cut) => {
            let forward =
                |sample: Vec<f32>| cut.first.forward(cpu, &sample).context("a sample of another length");
            samples.into_iter().map(forward).collect::<Result<_>>()?
        }
    };
    let seen = samples.iter().flatten().fold(0.0f32, |most, v| most.max(v.abs()));
    let bound = match cut {
        // What first layers make of others is not known.
        Some(_) => seen * margin as f32,
        // Any picture is to be within the bound, not only those.
        None if pictures => seen.max(of_pictures(&facing)),
        None => seen,
    };
    ensure!(bound > 0.0, "every sample is zero");
    // Samples travel as decimal digits, which may be rounded up.
    let rest = cut.as_ref().map_or(graph, |cut| &cut.rest);
    let description = describe(rest, f64::from(bound) * 1.000_01)?;
    let description = if keep_names { description } else { description.without_names() };
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
    if let Some(cut) = cut {
        let [public, all] = [&cut.first, graph].map(weights);
        say!(
            "wrote {} ({}): the first layers, for clients. {public} of {all} weights are theirs then ({:.1} %)",
            for_clients.display(),
            bytes(cut.bytes.len() as u64),
            100.0 * public as f64 / all as f64
        );
    }
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
