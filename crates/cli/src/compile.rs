//! `jaguar compile`

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use jaguar_engine::bundle::Bundle;
use jaguar_graph::agreement::agreement;
use jaguar_graph::import::{self, import_file};
use jaguar_graph::network::{ImageSpec, Op, Resize};
use jaguar_graph::quantise::{self, calibrate};
use jaguar_plan::{Choices, Plan, Protocol};

use crate::picture;
use crate::table::{bytes, plain, trimmed};

#[derive(clap::Args)]
pub struct Args {
    /// The ONNX model.
    model: PathBuf,
    /// Sample inputs: images, .npy tensors, or folders of them. Ten or more, like those that will come.
    #[arg(long, required = true, num_args = 1..)]
    calibrate: Vec<PathBuf>,
    /// Where to write the compiled model (it holds the weights: keep it on the server).
    #[arg(short, long)]
    output: PathBuf,
    /// The model's name (default: the file's).
    #[arg(long)]
    name: Option<String>,
    /// Names of the classes, one a line, in the order of the outputs.
    #[arg(long)]
    labels: Option<PathBuf>,
    /// How images are brought to the network's size: `exact`, or the length that the shorter side gets before
    /// the centre is cut out (256 is usual).
    #[arg(long, default_value = "exact", value_parser = parse_resize)]
    resize: Resize,
    /// The network takes blue, green, red.
    #[arg(long)]
    bgr: bool,
    /// Pixels (0 to 255) are multiplied by this first; torchvision's networks want 0.00392157 (1/255).
    #[arg(long, default_value_t = 1.0)]
    pixel_scale: f32,
    /// Then this is subtracted: one number, or one per channel in the network's order.
    #[arg(long, value_delimiter = ',', default_value = "0", allow_hyphen_values = true)]
    mean: Vec<f32>,
    /// Then divided by this.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    std: Vec<f32>,
    /// Bits of activations: 8 to 24.
    #[arg(long, default_value_t = 16)]
    activation_bits: u32,
    /// Bits of weights: 2 to 16.
    #[arg(long, default_value_t = 14)]
    weight_bits: u32,
    /// How many times larger than in calibration values may become before they overflow.
    #[arg(long, default_value_t = 2.0)]
    headroom: f64,
    /// The input's shape with the batch, for models that leave it open, as 1,3,224,224.
    #[arg(long, value_delimiter = ',')]
    input_shape: Option<Vec<usize>>,
    /// Which output to compute, for models that have several.
    #[arg(long)]
    output_name: Option<String>,
    /// Print the range, scale and shift of every layer.
    #[arg(short, long)]
    verbose: bool,
}

fn parse_resize(text: &str) -> Result<Resize, String> {
    if text == "exact" {
        return Ok(Resize::Exact);
    }
    text.parse().map(Resize::Shorter).map_err(|_| "`exact` or a number of pixels".into())
}

/// One number for every channel, or one for all.
fn by_channel(numbers: &[f32], channels: usize, what: &str) -> Result<Vec<f32>> {
    match numbers.len() {
        1 => Ok(vec![numbers[0]; channels]),
        n if n == channels => Ok(numbers.to_vec()),
        n => bail!("--{what} has {n} numbers; the network has {channels} channels"),
    }
}

pub fn run(args: &Args) -> Result<()> {
    // Everything that can be wrong with the request comes before the work.
    let options = import::Options { input_shape: args.input_shape.clone(), output: args.output_name.clone() };
    let mut graph = import_file(&args.model, &options).with_context(|| args.model.display().to_string())?;
    if let Some(name) = &args.name {
        graph.name.clone_from(name);
    }
    let shape = graph.input_shape();
    let mean = by_channel(&args.mean, shape[0], "mean")?;
    let std = by_channel(&args.std, shape[0], "std")?;
    ensure!(
        args.pixel_scale.is_finite()
            && args.pixel_scale != 0.0
            && std.iter().all(|s| s.is_finite() && *s != 0.0),
        "--pixel-scale and --std must not be zero"
    );
    let image = ImageSpec {
        resize: args.resize,
        bgr: args.bgr,
        mean: mean.iter().map(|m| m / args.pixel_scale).collect(),
        factor: std.iter().map(|s| args.pixel_scale / s).collect(),
    };
    let labels: Vec<String> = match &args.labels {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            text.lines().map(|l| l.trim().to_owned()).collect()
        }
    };
    let classes: usize = graph.nodes.last().map_or(0, |n| n.shape.iter().product());
    ensure!(
        labels.is_empty() || labels.len() == classes,
        "{} label names for {classes} classes",
        labels.len()
    );
    let files = picture::collect(&args.calibrate)?;
    let images = files
        .iter()
        .map(|path| {
            picture::open(path)?
                .tensor(&image, shape, graph.channels_last)
                .with_context(|| path.display().to_string())
        })
        .collect::<Result<Vec<_>>>()?;
    if images.len() < 10 {
        eprintln!("note: {} calibration inputs are few; ten or more make the ranges reliable", images.len());
    }

    let options = quantise::Options {
        activation_bits: args.activation_bits,
        weight_bits: args.weight_bits,
        headroom: args.headroom,
        image,
        labels,
        ..quantise::Options::default()
    };
    let (model, report) = calibrate(&graph, &images, &options)?;
    let plan = Plan::new(&model.network, Choices::standard(&model.network, Protocol::Jaguar))?;
    let check = agreement(&graph, &model, &images)?;

    if args.verbose {
        let mut table =
            plain(&["layer", "operation", "largest seen", "spare bits", "shift", "largest weight"], 2);
        for node in &report.nodes {
            table.add_row([
                node.name.clone(),
                node.operation.to_owned(),
                format!("{:.4}", node.range),
                format!("{:.1}", node.spare_bits),
                node.linear.as_ref().map_or("-".into(), |l| l.shift.to_string()),
                node.linear.as_ref().map_or("-".into(), |l| l.largest_weight.to_string()),
            ]);
        }
        crate::say!("{}\n", trimmed(&table));
    }
    for warning in &report.warnings {
        eprintln!("warning: {warning}");
    }
    if check.overflows > 0 {
        bail!(
            "{} values leave the range of {} bits on the calibration inputs themselves; raise --activation-bits or --headroom",
            check.overflows,
            args.activation_bits
        );
    }
    let bundle = Bundle::new(model)?;
    bundle.write(&args.output)?;

    let network = &bundle.model.network;
    let linear = network.nodes.iter().filter(|n| matches!(n.op, Op::Linear(_))).count();
    crate::say!(
        "{}: {} layers, {linear} of them linear, input {:?}, {classes} outputs",
        network.name,
        network.nodes.len() - 1,
        shape
    );
    crate::say!(
        "agreement with the float model on {} calibration inputs: same class {}/{}, logits off by {:.4} on average and {:.4} at most (largest logit {:.2})",
        check.images,
        check.same_class,
        check.images,
        check.mean_error,
        check.max_error,
        check.largest_logit
    );
    crate::say!(
        "a client will fetch {} once and send {} of ciphertexts per query",
        bytes(plan.hint_bytes() as u64),
        bytes(plan.layers().map(|l| l.upload_bytes() as u64).sum())
    );
    crate::say!(
        "wrote {} ({}), model {}",
        args.output.display(),
        bytes(std::fs::metadata(&args.output).map_or(0, |m| m.len())),
        bundle.id()
    );
    Ok(())
}
