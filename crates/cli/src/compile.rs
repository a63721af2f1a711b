//! `jaguar compile`

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use jaguar_engine::bundle::Bundle;
use jaguar_graph::agreement::{Agreement, agreement_heard, private_agreement};
use jaguar_graph::float::Graph;
use jaguar_graph::image_input::MAX_SIDE;
use jaguar_graph::import::{self, import_file};
use jaguar_graph::network::{ImageSpec, Model, Network, Op, Resize, Seen, Shape};
use jaguar_graph::quantise::{self, Samples, narrowest};
use jaguar_graph::signs;
use jaguar_mpc::cost;
use jaguar_plan::{Choices, Nonlinear, Plan, Protocol};

use crate::picture::{self, Axes};
use crate::progress::Phases;
use crate::table::{bytes, count, plain, trimmed};

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
    /// Bits of activations: 8 to 24; `auto` for the fewest from 16 to 21 that keep --accuracy-bound; `fewest` for the
    /// fewest from 12 to 21.
    #[arg(long, default_value = "auto", value_parser = parse_width)]
    activation_bits: Width,
    /// `reduced` lets activations and max-pools leave low bits out of their comparisons where calibration finds that --accuracy-bound
    /// is kept: small positive values may become zero, a value slightly below a window's largest may be taken for it, and a query
    /// costs less. What it does to the results is printed.
    #[arg(long, value_enum, default_value_t = Signs::Exact)]
    signs: Signs,
    /// By how much logits may be off, in percent of their spread over the classes. Activation bits are chosen, and a warning is
    /// given, by calibration inputs that are left out of the scales. `--signs reduced` may use as much again, on every calibration
    /// input; its class must stay the same.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    accuracy_bound: f64,
    /// Inputs that have no part in calibration; the agreement is reported for them too.
    #[arg(long, num_args = 1..)]
    test: Vec<PathBuf>,
    /// Significant bits of weights: 2 to 16.
    #[arg(long, default_value_t = 15)]
    weight_bits: u32,
    /// How many times larger than in calibration values may become before they overflow.
    #[arg(long, default_value_t = 2.0)]
    headroom: f64,
    /// The input's shape with the batch, for models that leave it open, as 1,3,224,224.
    #[arg(long, value_delimiter = ',')]
    input_shape: Option<Vec<usize>>,
    /// Which output to compute, for models that have several: one, or more with commas between.
    #[arg(long, value_delimiter = ',')]
    output_name: Vec<String>,
    /// Print the range, scale and shift of every layer.
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Clone)]
enum Width {
    Bits(u32),
    Among(std::ops::RangeInclusive<u32>),
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Signs {
    Exact,
    Reduced,
}

/// What `--activation-bits auto` tries.
const AUTO: std::ops::RangeInclusive<u32> = 16..=21;

/// What `--activation-bits fewest` tries.
const FEWEST: std::ops::RangeInclusive<u32> = 12..=21;

/// Of the imitated private runs that are reported; other than those of any search.
const SEED: u64 = 0x5eed;

fn parse_width(text: &str) -> Result<Width, String> {
    match text {
        "auto" => Ok(Width::Among(AUTO)),
        "fewest" => Ok(Width::Among(FEWEST)),
        _ => text.parse().map(Width::Bits).map_err(|_| "`auto`, `fewest` or a number of bits".into()),
    }
}

fn parse_resize(text: &str) -> Result<Resize, String> {
    if text == "exact" {
        return Ok(Resize::Exact);
    }
    let pixels = text.parse().ok().filter(|n| (1..=MAX_SIDE as u32).contains(n));
    pixels.map(Resize::Shorter).ok_or_else(|| format!("`exact` or a number of pixels (1 to {MAX_SIDE})"))
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
    check_output(&args.output)?;
    let mut phases = Phases::default();
    phases.begin(format!("reading {}", args.model.display()));
    let options =
        import::Options { input_shape: args.input_shape.clone(), outputs: args.output_name.clone() };
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
        "--pixel-scale and --std must be numbers other than zero"
    );
    ensure!(mean.iter().all(|m| m.is_finite()), "--mean must be a finite number");
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
    ensure!(
        args.accuracy_bound.is_finite() && args.accuracy_bound > 0.0,
        "--accuracy-bound must be more than 0 percent"
    );
    let bound = args.accuracy_bound / 100.0;
    phases.finish();
    let files = picture::collect(&args.calibrate)?;
    let test_files = picture::collect(&args.test)?;
    phases.begin(format!("reading {} samples", files.len() + test_files.len()));
    let images = tensors(&files, &image, shape, Axes::of_graph(&graph), &phases)?;
    let tested = tensors(&test_files, &image, shape, Axes::of_graph(&graph), &phases)?;
    phases.finish();
    if images.len() < 10 {
        eprintln!("note: {} calibration inputs are few; ten or more make the ranges reliable", images.len());
    }

    let options = quantise::Options {
        activation_bits: match &args.activation_bits {
            Width::Bits(bits) => *bits,
            Width::Among(widths) => *widths.start(),
        },
        weight_bits: args.weight_bits,
        headroom: args.headroom,
        image,
        labels,
        ..quantise::Options::default()
    };
    phases.begin("calibrating");
    let samples = Samples::new(&graph, &images, &mut |done| phases.done(done, images.len()))?;
    let (mut model, report, held_out) = match &args.activation_bits {
        Width::Bits(_) => {
            phases.begin("quantising");
            let (model, report) = samples.quantise(&options)?;
            (model, report, samples.held_out(&options)?)
        }
        Width::Among(widths) => {
            phases.begin(format!("trying {} to {} activation bits", widths.start(), widths.end()));
            let chosen = narrowest(&samples, &options, widths.clone(), bound, &mut say_width)?;
            (chosen.model, chosen.report, chosen.held_out)
        }
    };
    warn_of_held_out(&held_out, images.len(), bound);
    model.network.input.seen = Seen::of(images.iter().map(Vec::as_slice));
    let check = checked(&graph, &model, &images, "samples", &mut phases)?;

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
    let with_images = files.iter().any(|f| !f.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")));
    if with_images && raw_pixels(args, &model.network, check.largest_logit) {
        let seen = model.network.input.seen.map(|s| s.to_string()).unwrap_or_default();
        eprintln!(
            "warning: the network gets raw pixels, {seen}, and its logits reach {:.0}: if it was trained on scaled ones, \
             its answers are wrong. --pixel-scale, --mean and --std scale them (torchvision's networks: --pixel-scale \
             0.00392157 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225)",
            check.largest_logit
        );
    }
    if check.overflows > 0 {
        bail!(
            "{} values leave the range of {} bits on the calibration inputs themselves; raise --activation-bits or --headroom",
            check.overflows,
            model.network.activation_bits
        );
    }
    let reduced = args.signs == Signs::Reduced;
    if reduced {
        reduce_signs(&mut model, &images, &files, bound)?;
    }
    let plan = Plan::new(&model.network, Choices::standard(&model.network, Protocol::Jaguar))?;
    phases.begin(format!("writing {}", args.output.display()));
    let bundle = Bundle::new(model)?;
    bundle.write(&args.output)?;
    phases.finish();

    let network = &bundle.model.network;
    let linear = network.nodes.iter().filter(|n| matches!(n.op, Op::Linear(_))).count();
    crate::say!(
        "{}: {} layers, {linear} of them linear, input {:?}, {classes} outputs",
        network.name,
        network.nodes.len() - 1,
        shape
    );
    say_agreement("with the float model", "calibration", &check);
    let of_test = match tested.as_slice() {
        [] => None,
        tested => Some(checked(&graph, &bundle.model, tested, "test inputs", &mut phases)?),
    };
    if let Some(of_test) = &of_test {
        say_agreement("with the float model", "test", of_test);
    }
    if reduced {
        let with = "of imitated private runs, reduced-precision signs included, with the float model";
        for (inputs, images) in [("calibration", &images), ("test", &tested)] {
            if !images.is_empty() {
                phases.begin(format!("imitating {} private runs", images.len()));
                let found = private_agreement(&graph, &bundle.model, images, SEED)?;
                phases.finish();
                say_agreement(with, inputs, &found);
            }
        }
    }
    crate::say!(
        "a client will fetch {} once and send {} of ciphertexts per query",
        bytes(plan.hint_bytes() as u64),
        bytes(plan.linear_bytes().0 as u64)
    );
    crate::say!(
        "wrote {} ({}), model {}",
        args.output.display(),
        bytes(std::fs::metadata(&args.output).map_or(0, |m| m.len())),
        bundle.id()
    );
    Ok(())
}

/// Only a compiled model is overwritten: neither the network that it comes from nor anything else that somebody may
/// miss.
fn check_output(path: &Path) -> Result<()> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => bail!("-o {shown}: that is no file"),
        Ok(found) if found.len() > 0 => ensure!(
            Bundle::recognises(path).with_context(|| shown.to_string())?,
            "-o {shown}: this file is there and is no compiled model; give another name, or remove it first"
        ),
        Ok(_) => {}
        Err(_) => {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            ensure!(folder.is_dir(), "writing {shown}: {} is no folder", folder.display());
        }
    }
    Ok(())
}

/// Larger values than a network has that was trained on numbers around zero.
const RAW: f32 = 50.0;

/// Whether images most likely lack the preprocessing that the network was trained with: nothing was said of it, the
/// network does not scale them itself, and its logits are out of all proportion.
fn raw_pixels(args: &Args, network: &Network, largest_logit: f64) -> bool {
    let all = |values: &[f32], default: f32| values.iter().all(|v| *v == default);
    let unsaid = args.pixel_scale == 1.0 && all(&args.mean, 0.0) && all(&args.std, 1.0);
    let large = network.input.seen.is_some_and(|s| s.highest > RAW);
    unsaid && network.input.affine.is_empty() && large && largest_logit > f64::from(RAW)
}

/// Agreement with the float model, and how far the check is.
fn checked(
    graph: &Graph,
    model: &Model,
    images: &[Vec<f32>],
    what: &str,
    phases: &mut Phases,
) -> Result<Agreement> {
    phases.begin(format!("checking {} {what} against the float model", images.len()));
    let found = agreement_heard(graph, model, images, &mut |done| phases.done(done, images.len()))?;
    phases.finish();
    Ok(found)
}

fn tensors(
    files: &[PathBuf],
    image: &ImageSpec,
    shape: Shape,
    axes: Axes<'_>,
    phases: &Phases,
) -> Result<Vec<Vec<f32>>> {
    let mut tensors = Vec::with_capacity(files.len());
    for path in files {
        let source = picture::open(path)?;
        let tensor = source.tensor(image, shape, axes).with_context(|| path.display().to_string())?;
        tensors.push(tensor);
        phases.done(tensors.len(), files.len());
    }
    Ok(tensors)
}

fn say_agreement(what: &str, inputs: &str, found: &Agreement) {
    crate::say!(
        "agreement {what} on {} {inputs} inputs: same class {}/{}, logits off by {:.4} on average and {:.4} at most (largest logit {:.2}; {:.2} % of their spread)",
        found.images,
        found.same_class,
        found.images,
        found.mean_error,
        found.max_error,
        found.largest_logit,
        100.0 * found.worst_relative_error
    );
}

/// What a width of activations was found to do.
fn say_width(bits: u32, found: Option<&Agreement>) {
    match found {
        None => crate::say!("{bits} activation bits: too few for this network's scales"),
        Some(found) => crate::say!(
            "{bits} activation bits: logits off by up to {:.2} % of their spread on inputs left out of calibration",
            100.0 * found.worst_relative_error
        ),
    }
}

/// Says so where inputs that the scales were not made from come out worse than they should.
fn warn_of_held_out(found: &Agreement, inputs: usize, bound: f64) {
    let left_out =
        format!("with scales from either half of the {inputs} calibration inputs, on the other half");
    if found.overflows > 0 {
        eprintln!(
            "warning: {left_out}, {} values leave their range: more calibration inputs, or a larger --headroom",
            found.overflows
        );
    }
    if found.worst_relative_error > bound {
        eprintln!(
            "warning: {left_out}, logits are off by up to {:.2} % of their spread (--accuracy-bound is {:.2} %), same \
             class {}/{}: more --activation-bits or --weight-bits, or more calibration inputs",
            100.0 * found.worst_relative_error,
            100.0 * bound,
            found.same_class,
            found.images
        );
    }
}

/// COTs and bytes per query of a plan's step if its sign leaves out so many bits.
fn sign_cost(plan: &Plan, node: usize, ignored: u32) -> (u64, u64) {
    let step = &plan.steps[node];
    // One bit is left out even of exact signs.
    let ignored = ignored.max(1);
    let cost = match step.nonlinear {
        Some(Nonlinear::Relu(params)) => {
            cost::relu(step.values, &jaguar_mpc::ReluParams { ignored, ..params })
        }
        Some(Nonlinear::Relu6(params)) => {
            cost::relu6(step.values, &jaguar_mpc::Relu6Params { ignored, ..params })
        }
        Some(Nonlinear::MaxPool { shape, params }) => {
            cost::maxpool(&shape, &jaguar_mpc::PoolParams { ignored, ..params })
        }
        None => step.cost,
    };
    (cost.cots_from_client + cost.cots_from_server, cost.up + cost.down + cost.prepare_down)
}

/// `--signs reduced`: chooses, writes the choice into the model, and says what it is and does.
fn reduce_signs(model: &mut Model, images: &[Vec<f32>], files: &[PathBuf], bound: f64) -> Result<()> {
    let network = &model.network;
    let plan = Plan::new(network, Choices::standard(network, Protocol::Jaguar))?;
    let inputs: Vec<Vec<i64>> =
        images.iter().map(|x| network.input.quantise(x, network.activation_bits)).collect();
    let options = signs::Options { bound, ..signs::Options::default() };
    let start = std::time::Instant::now();
    let mut bars = crate::progress::Search::new();
    let price = |node, ignored| sign_cost(&plan, node, ignored).0;
    let report = signs::choose(model, &inputs, &price, &options, &mut |stage| bars.stage(stage))?;
    bars.finish();
    signs::apply(model, &report);

    let mut table =
        plain(&["layer", "bits left out", "error alone", "COTs", "instead of", "bytes", "instead of"], 1);
    let mut all = [0u64; 4];
    for layer in &report.layers {
        let (before, after) = (sign_cost(&plan, layer.node, 1), sign_cost(&plan, layer.node, layer.ignored));
        let row = [after.0, before.0, after.1, before.1];
        all.iter_mut().zip(row).for_each(|(all, n)| *all += n);
        table.add_row([
            model.network.nodes[layer.node].name.clone(),
            if layer.ignored > 1 { layer.ignored.to_string() } else { "-".into() },
            format!("{:.3} %", 100.0 * layer.alone),
            count(row[0]),
            count(row[1]),
            bytes(row[2]),
            bytes(row[3]),
        ]);
    }
    let [cots, cots_before, sent, sent_before] = all;
    table.add_row([
        "all".to_owned(),
        String::new(),
        String::new(),
        count(cots),
        count(cots_before),
        bytes(sent),
        bytes(sent_before),
    ]);
    crate::say!("{}", trimmed(&table));
    // COTs are what the search saves; at some widths a digit that falls apart takes more bytes.
    let fewer = |after: u64, before: u64| 100.0 * (1.0 - after as f64 / before.max(1) as f64);
    crate::say!(
        "reduced-precision signs in {} of {} layers ({:.0} s): {:.0} % fewer COTs and {:.0} % fewer bytes there; in {} imitated runs the class was that of exact signs, and logits differed by at most {:.2} % of their spread (bound {} %)",
        model.network.reduced_signs(),
        report.layers.len(),
        start.elapsed().as_secs_f64(),
        fewer(cots, cots_before),
        fewer(sent, sent_before),
        report.runs,
        100.0 * report.worst_error,
        100.0 * bound
    );
    match report.limited_by {
        Some((input, Some(error))) => crate::say!(
            "more bits would go beyond the bound on {}: {:.2} %",
            files[input].display(),
            100.0 * error
        ),
        Some((input, None)) => crate::say!("more bits would change the class of {}", files[input].display()),
        None => {}
    }
    Ok(())
}
