//! `jaguar compile`: from an ONNX file and samples to a compiled model, with what a person must know of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use jaguar::Cpu;
use jaguar::agreement::{Agreement, Beyond};
use jaguar::bundle::Bundle;
use jaguar::compile::samples::{self as samples, Axes, Source};
use jaguar::compile::{
    ByClass, Classes, CompileError, Counted, Event, Hide, MapPlace, Options, Preprocessing,
    PreprocessingError, ReducedSigns, Ruled, Warning, Widths, compile,
};
use jaguar::import::{self, import_file};
use jaguar::network::{DEFAULT_HIDDEN_FOR, Filter, ImageSpec, Network, Resize, Shape};
use jaguar::quantise::{CoarseValues, Report, Width, layers};
use jaguar::reports::compiled;
use jaguar::reports::terminal::say;
use jaguar::reports::terminal::table::{bytes, count, plain, trimmed};
use jaguar::signs::Failure;

use crate::hide::{self, parse_queries};
use crate::kit::kit;
use crate::memory;
use crate::notes::collect;
use crate::one_round::{self, Protocol};
use crate::page;
use crate::progress::{Search, Steps};

/// Groups of the options in `--help`.
const MODEL: &str = "The model";
const PICTURES: &str = "How pictures are prepared, as in the network's training";
const PRECISION: &str = "How exactly it computes";
const FILE: &str = "What the ONNX file leaves open";
const OUTCOME: &str = "What is written and told";

#[derive(clap::Args)]
pub struct Args {
    /// The ONNX model.
    model: PathBuf,
    /// Sample inputs: images, .npy tensors, or folders of them.
    ///
    /// Ten or more, like those that will come.
    #[arg(long, help_heading = MODEL, value_name = "INPUT", required = true, num_args = 1..)]
    calibrate: Vec<PathBuf>,
    /// Where to write the compiled model.
    ///
    /// It holds the weights: keep it on the server.
    #[arg(short, long, help_heading = MODEL, value_name = "FILE")]
    output: PathBuf,
    /// The model's name (default: the file's).
    #[arg(long, help_heading = MODEL, hide = true)]
    name: Option<String>,
    /// Names of the classes, one a line, in the order of the outputs.
    #[arg(long, help_heading = MODEL, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// How to compute.
    ///
    /// Without it: interactive.
    #[arg(long, help_heading = MODEL, hide_default_value = true, default_value_t, value_parser = Protocol::parser())]
    protocol: Protocol,
    /// How images get the network's size (default: exact).
    ///
    /// `exact` scales to that size. A length, as 256, is what the shorter side gets before the centre is cut out (256 is usual);
    /// `crop-pct=0.875` says that length as timm does. `centre=0.875` first cuts out the central square of that part of the shorter
    /// side, as TensorFlow's EfficientNets want.
    #[arg(long, help_heading = PICTURES, hide_default_value = true, default_value = "exact", value_parser = str::parse::<Resize>)]
    resize: Resize,
    /// How pixels are found when an image changes its size.
    ///
    /// As Pillow does it (torchvision, timm): nearest, box, bilinear, hamming, bicubic or lanczos; `interpolate` is bilinear without
    /// antialiasing, as in TensorFlow and Keras.
    #[arg(long, help_heading = PICTURES, hide = true, default_value = "bilinear", value_parser = str::parse::<Filter>)]
    filter: Filter,
    /// The network takes blue, green, red.
    #[arg(long, help_heading = PICTURES, hide = true)]
    bgr: bool,
    /// Multiply pixels (0 to 255) by this first.
    ///
    /// torchvision's networks want 0.00392157 (1/255).
    #[arg(long, help_heading = PICTURES, value_name = "FACTOR", default_value_t = 1.0)]
    pixel_scale: f32,
    /// Then subtract this: one number, or one a channel.
    ///
    /// In the network's order of channels, with commas between.
    #[arg(long, help_heading = PICTURES, value_delimiter = ',', default_value = "0", allow_hyphen_values = true)]
    mean: Vec<f32>,
    /// Then divide by this: one number, or one a channel.
    #[arg(long, help_heading = PICTURES, value_delimiter = ',', default_value = "1")]
    std: Vec<f32>,
    /// Bits of activations: 8 to 24, `auto` or `fewest`.
    ///
    /// `auto` takes 16, or as many as keep --accuracy-bound, `fewest` 12, each with as many guard bits as that takes; without guard bits
    /// (--hide-for 1) the fewest up to 21 that keep it.
    #[arg(long, help_heading = PRECISION, value_name = "BITS", default_value = "auto", value_parser = parse_width)]
    activation_bits: Widths,
    /// Hide values between layers for so many queries (default: 1e6).
    ///
    /// Of one image. Noise in the answers and guard bits below the activations' last place do that. How much noise it takes is measured: by how much a
    /// hidden unit moves the answer. Guard bits make the noise small beside the answer, as --accuracy-bound asks for. 1 has neither: a
    /// client that repeats its queries then learns hidden values and weights.
    #[arg(long, help_heading = PRECISION, value_name = "QUERIES", hide_default_value = true, default_value_t = DEFAULT_HIDDEN_FOR, value_parser = parse_queries)]
    hide_for: f64,
    /// Whether comparisons are exact.
    ///
    /// They are unless this says otherwise. `reduced` lets activations and max-pools leave out low bits where calibration finds that --accuracy-bound is kept: small positive values may
    /// become zero, a value slightly below a window's largest may be taken for it, and a query costs less. What it does to the results is
    /// printed.
    #[arg(long, help_heading = PRECISION, hide = true, hide_default_value = true, value_enum, default_value_t = Signs::Exact)]
    signs: Signs,
    /// By how much logits may be off, in percent.
    ///
    /// Of their spread over the classes. Activation bits are chosen, and a warning is given, by calibration inputs that are left
    /// out of the scales. `--signs reduced` may use as much again, on every calibration input; its class must stay the same.
    #[arg(long, help_heading = PRECISION, value_name = "PERCENT", default_value_t = 1.0)]
    accuracy_bound: f64,
    /// Labelled pictures: take the fewest bits that find their classes.
    ///
    /// As often as the float network does, less --loss. Otherwise, and beside it in what is told, bits are chosen by --accuracy-bound.
    /// Pictures are in folders, one a class, or in a list, as `jaguar accuracy` takes them; they have no part in calibration.
    #[arg(long, help_heading = PRECISION, value_name = "FOLDER|LIST", conflicts_with = "activation_bits")]
    data: Option<PathBuf>,
    /// Which part of the labelled pictures may be lost, in percent (default: 0.2).
    ///
    /// With --data. Pictures whose class the float network finds and the compiled one does not, less those where it is the other way round.
    #[arg(long, help_heading = PRECISION, hide = true, value_name = "PERCENT")]
    loss: Option<f64>,
    /// Other inputs, to see how it does on them.
    ///
    /// They have no part in calibration.
    #[arg(long, help_heading = PRECISION, value_name = "INPUT", num_args = 1..)]
    test: Vec<PathBuf>,
    /// Significant bits of weights: 2 to 16.
    #[arg(long, help_heading = PRECISION, hide = true, value_name = "BITS", default_value_t = 15)]
    weight_bits: u32,
    /// How many times larger than in calibration values may become before they overflow.
    #[arg(long, help_heading = PRECISION, hide = true, value_name = "FACTOR", default_value_t = 4.0)]
    headroom: f64,
    /// The input's shape with the batch, as 1,3,224,224.
    #[arg(long, help_heading = FILE, value_name = "SHAPE", value_delimiter = ',')]
    input_shape: Option<Vec<usize>>,
    /// An input that is always the same, for models that have several.
    ///
    /// Its name and a number, or a .npy file of numbers.
    #[arg(long, help_heading = FILE, hide = true, value_name = "NAME=NUMBER|FILE", value_parser = parse_constant)]
    constant: Vec<(String, Vec<f32>)>,
    /// Which outputs to compute, with commas between; without it, all.
    ///
    /// Values inside may be named too: that cuts off what follows them.
    #[arg(long, help_heading = FILE, value_name = "NAME", value_delimiter = ',')]
    output_name: Vec<String>,
    /// Give clients the names that the file has for nodes and outputs.
    ///
    /// They may tell where the model comes from. Without this clients get kinds and numbers, as `conv 3`; --report and --verbose have
    /// both.
    #[arg(long, help_heading = FILE, hide = true)]
    keep_names: bool,
    /// Where factors and offsets go that the file has right behind the input, as a batch normalisation there.
    ///
    /// `secret`: into the weights behind it, if need be as a layer more. `public`: into the preprocessing, which every client gets.
    /// `auto`: secret where that costs no layer and at most two bits of the input, and public with a warning otherwise.
    #[arg(long, help_heading = FILE, hide = true, value_enum, default_value_t = InputMap::Auto)]
    input_map: InputMap,
    /// Write the model even if it does not answer as the float network does.
    #[arg(long, help_heading = OUTCOME)]
    force: bool,
    /// Print the range, scale and shift of every layer.
    #[arg(short, long, help_heading = OUTCOME)]
    verbose: bool,
    /// Write a web page too: how inputs and layers agree with the float network.
    ///
    /// With ranges, what is clipped, and the worst images.
    #[arg(long, help_heading = OUTCOME, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    one_round: one_round::Compile,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Signs {
    Exact,
    Reduced,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum InputMap {
    Auto,
    Secret,
    Public,
}

impl From<InputMap> for jaguar::compile::InputMap {
    fn from(map: InputMap) -> Self {
        match map {
            InputMap::Auto => Self::Auto,
            InputMap::Secret => Self::Secret,
            InputMap::Public => Self::Public,
        }
    }
}

fn parse_width(text: &str) -> Result<Widths, String> {
    match text {
        "auto" => Ok(Widths::AUTO),
        "fewest" => Ok(Widths::FEWEST),
        _ => text.parse().map(Widths::Bits).map_err(|_| "`auto`, `fewest` or a number of bits".into()),
    }
}

/// `NAME=NUMBER`, or `NAME=FILE` with a tensor in it.
pub fn parse_constant(text: &str) -> Result<(String, Vec<f32>), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=NUMBER or NAME=FILE is needed")?;
    let values = match value.parse() {
        Ok(number) => vec![number],
        Err(_) => match samples::open(Path::new(value)).map_err(|e| e.to_string())? {
            Source::Tensor { values, .. } => values,
            Source::Pixels { .. } => return Err("a .npy file is needed".into()),
        },
    };
    Ok((name.to_owned(), values))
}

/// What is wrong with an option, by the option's name.
fn named(error: PreprocessingError) -> anyhow::Error {
    match error {
        PreprocessingError::Scale => anyhow!("--pixel-scale and --std must be numbers other than zero"),
        other => anyhow!("--{other}"),
    }
}

pub fn run(args: &Args) -> Result<()> {
    memory::keep();
    // Everything that can be wrong with the request comes before the work.
    if args.protocol.is_interactive() {
        check_output(&args.output)?;
    }
    if let Some(page) = &args.report {
        page::check(page)?;
    }
    let cpu = Cpu::detect();
    let mut steps = Steps::default();
    steps.begin(format!("reading {}", args.model.display()));
    let options = import::Options {
        input_shape: args.input_shape.clone(),
        outputs: args.output_name.clone(),
        constants: args.constant.clone(),
        cpu,
        ..import::Options::new(kit().operators())
    };
    ensure!(
        !Bundle::recognises(&args.model).unwrap_or(false),
        "{}: a compiled model, which `jaguar plan`, `verify` and `serve` take; an ONNX file is needed",
        args.model.display()
    );
    let mut graph = import_file(&args.model, &options).with_context(|| args.model.display().to_string())?;
    if let Some(name) = &args.name {
        graph.name.clone_from(name);
    }
    let shape = graph.input_shape();
    let preprocessing = Preprocessing {
        resize: args.resize,
        filter: args.filter,
        bgr: args.bgr,
        pixel_scale: args.pixel_scale,
        mean: args.mean.clone(),
        std: args.std.clone(),
    };
    let image = preprocessing.spec(shape[0]).map_err(named)?;
    let labels: Vec<String> = match &args.labels {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            text.lines().map(|l| l.trim().to_owned()).collect()
        }
    };
    let mut options = Options {
        widths: args.activation_bits.clone(),
        hide: Hide::For(args.hide_for),
        weight_bits: args.weight_bits,
        headroom: args.headroom,
        image,
        labels,
        bound: args.accuracy_bound / 100.0,
        by_class: None,
        reduced_signs: args.signs == Signs::Reduced,
        raw_pixels: false,
        keep_names: args.keep_names,
        input_map: args.input_map.into(),
        force: args.force,
        cpu,
    };
    match (&args.data, args.loss) {
        (None, None) => (),
        (None, Some(_)) => bail!("--loss is about the labelled pictures of --data, which is not there"),
        (Some(data), loss) => {
            let loss = loss.map_or(ByClass::LOSS, |percent| percent / 100.0);
            let (by_class, skipped) = ByClass::read(data, &graph, &options.labels, loss).context("--data")?;
            skipped.iter().for_each(|skipped| eprintln!("note: {skipped}"));
            options.by_class = Some(by_class);
        }
    }
    options.check(&graph).map_err(|error| match error {
        CompileError::Bound => anyhow!("--accuracy-bound must be more than 0 percent"),
        CompileError::Loss => anyhow!("--loss must be from 0 to less than 100 percent"),
        CompileError::NoPictures => anyhow!("--data: {error}"),
        other => other.into(),
    })?;
    steps.finish();
    let files = collect(&args.calibrate)?;
    let test_files = collect(&args.test)?;
    steps.begin(format!("reading {} samples", files.len() + test_files.len()));
    let images = tensors(&files, &options.image, shape, Axes::of_graph(&graph), &steps)?;
    let tested = tensors(&test_files, &options.image, shape, Axes::of_graph(&graph), &steps)?;
    steps.finish();
    let picture = |f: &PathBuf| !f.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"));
    let pictures = files.iter().any(picture);
    if let Protocol::OneRound(protocol) = args.protocol {
        let Options { image, labels, .. } = options;
        graph.left_out().iter().for_each(|left_out| eprintln!("warning: {left_out}"));
        let source = one_round::Source {
            graph: &graph,
            input_map: args.input_map.into(),
            image,
            labels,
            samples: images,
            tests: tested,
            pictures,
            file: &args.model,
            keep_names: args.keep_names,
            force: args.force,
        };
        return protocol.compile(source, &args.one_round.0, &args.output, &mut steps);
    }
    options.raw_pixels = pictures && preprocessing.is_identity();

    let mut shown = Shown {
        steps,
        search: Search::new(),
        verbose: args.verbose,
        bound: options.bound,
        files: &files,
        tried: Vec::new(),
        warnings: Vec::new(),
    };
    let compiled = compile(&kit(), &graph, &images, &options, &mut |event| shown.show(&event));
    let Shown { mut steps, tried, mut warnings, .. } = shown;
    let compiled = compiled.map_err(|error| match error {
        CompileError::Disagrees(found) => anyhow!(
            "{}: not written, for the compiled network does not answer as the float network does: {found}. More --activation-bits or \
             --weight-bits, or --calibrate with inputs more like what will come, may help; --force writes it all the same",
            args.output.display()
        ),
        CompileError::Overflows { values, bits } => anyhow!(
            "{values} values leave the range of {bits} bits on the calibration inputs themselves; raise --activation-bits or --headroom"
        ),
        other => other.into(),
    })?;
    steps.begin(format!("writing {}", args.output.display()));
    compiled.bundle.write(&args.output)?;
    steps.finish();

    let network = &compiled.bundle.model.network;
    let classes: usize = network.nodes.last().map_or(0, |n| n.shape.iter().product());
    let linear = network.nodes.iter().filter(|n| n.op.linear().is_some()).count();
    say!(
        "{}: {} layers, {linear} of them linear, input {:?}, {classes} outputs",
        network.name,
        network.nodes.len() - 1,
        shape
    );
    if let Some(map) = compiled.input_map.as_ref().filter(|map| map.place == MapPlace::Secret) {
        say!("in the file right behind the input: {map}");
    }
    if !args.keep_names {
        say!(
            "clients get kinds and numbers of layers, not the file's names (--keep-names; --report and --verbose have both)"
        );
    }
    say_agreement("with the float model", "calibration", &compiled.agreement);
    if !tested.is_empty() {
        let count = tested.len();
        steps.begin(format!("checking {count} test inputs against the float model"));
        let found = compiled.agreement(cpu, &graph, &tested, &mut |done| steps.done(done, count))?;
        steps.finish();
        say_agreement("with the float model", "test", &found);
        say_beyond(&compiled.beyond(cpu, &tested)?, &compiled.report, args);
    }
    if compiled.signs.is_some() {
        let with = "of imitated private runs, reduced-precision signs included, with the float model";
        for (inputs, images) in [("calibration", &images), ("test", &tested)] {
            if !images.is_empty() {
                steps.begin(format!("imitating {} private runs", images.len()));
                let found = compiled.imitated(cpu, &graph, images)?;
                steps.finish();
                say_agreement(with, inputs, &found);
                if found.overflows > 0 {
                    let values = found.overflows;
                    let warning = format!(
                        "reduced-precision signs make {values} values too large in imitated private runs on the \
                         {inputs} inputs: they wrap around, and answers may be far off (--signs exact; --headroom \
                         gives more room)"
                    );
                    eprintln!("warning: {warning}");
                    warnings.push(warning);
                }
            }
        }
    }
    if let Some(classes) = &compiled.classes {
        say_classes(classes, options.bound);
    }
    say!("{}", hide::describe(&compiled.bundle));
    say!(
        "a client will fetch {} once and send {} of ciphertexts per query",
        bytes(compiled.plan.hint_bytes() as u64),
        bytes(compiled.plan.linear_bytes().0 as u64)
    );
    say!(
        "wrote {} ({}), model {}",
        args.output.display(),
        bytes(std::fs::metadata(&args.output).map_or(0, |m| m.len())),
        compiled.bundle.id()
    );
    if let Some(path) = &args.report {
        let found = compiled::Found::new(&compiled, options.bound, tried, warnings);
        let all = images.len() + tested.len();
        steps.begin(format!("comparing {all} inputs layer by layer"));
        let inputs = [images.as_slice(), tested.as_slice()];
        let mut heard = |done| steps.done(done, all);
        let graph = compiled.moved.as_ref().unwrap_or(&graph);
        let (layers, outputs) = layers::compare(cpu, graph, &compiled.bundle.model, inputs, &mut heard)?;
        let names: Vec<String> = files.iter().chain(&test_files).map(|f| page::short(f)).collect();
        let tensors = images.iter().chain(&tested);
        let inputs: Vec<compiled::Input<'_>> =
            names.iter().zip(tensors).map(|(name, tensor)| compiled::Input { name, tensor }).collect();
        let page = compiled::page(&compiled::Subject {
            model: &compiled.bundle.model,
            id: &compiled.bundle.id().to_string(),
            found: &found,
            layers: &layers,
            images: &outputs,
            inputs: &inputs,
            calibration: images.len(),
        })?;
        steps.finish();
        page::write(path, &page)?;
    }
    Ok(())
}

/// Shows the steps and warnings of compiling as they come.
struct Shown<'a> {
    steps: Steps,
    search: Search,
    verbose: bool,
    bound: f64,
    /// Names for the samples, in their order.
    files: &'a [PathBuf],
    /// For a report: widths, and by which part of their spread logits were off.
    tried: Vec<(Width, Option<f64>)>,
    warnings: Vec<String>,
}

impl Shown<'_> {
    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Calibrating(0, _) => self.steps.begin("calibrating"),
            Event::Checking(0, of) => {
                self.steps.begin(format!("checking {of} samples against the float model"))
            }
            Event::Weighing(0, of) => {
                self.steps.begin(format!("measuring on {of} samples how much hidden values weigh"));
            }
            Event::Calibrating(done, of)
            | Event::Weighing(done, of)
            | Event::Checking(done, of)
            | Event::TryingSamples(done, of) => self.steps.done(*done, *of),
            Event::Quantising => self.steps.begin("quantising"),
            Event::Trying(widths) => {
                let [first, last] =
                    [widths.first(), widths.last()].map(|w| w.map_or_else(String::new, Width::to_string));
                self.steps.begin(format!("trying activations of {first} to {last}"));
            }
            Event::Tried(width, found) => {
                self.tried.push((*width, found.map(|f| f.worst_relative_error)));
                say_width(*width, *found);
            }
            Event::CoarseChosen(coarse, bits, found) => say!(
                "{coarse} of {bits} bits{}: logits off by up to {:.2} % of their spread on inputs left out of calibration",
                if *coarse == CoarseValues::Factors { " or more" } else { "" },
                100.0 * found.worst_relative_error
            ),
            Event::Quantised(report, network) => {
                self.steps.finish();
                if self.verbose {
                    say_layers(report, network);
                }
            }
            Event::Warning(warning) => {
                let warning = with_options(warning, self.files);
                eprintln!("warning: {warning}");
                self.warnings.push(warning);
            }
            Event::Judging(width, 0, of) => self.steps.begin(match width {
                None => format!("running the float network on {of} labelled pictures"),
                Some(width) => format!("activations of {width}: imitating runs of {of} labelled pictures"),
            }),
            Event::Judging(_, done, of) => self.steps.done(*done, *of),
            Event::Judged(counted) => say_counted(counted),
            Event::Signs(stage) => self.search.stage(*stage),
            Event::SignsChosen(chosen) => {
                self.search.finish();
                say_signs(chosen, self.files, self.bound);
            }
            _ => {}
        }
    }
}

/// Prints the range, scale and shift of each layer (`--verbose`).
fn say_layers(report: &Report, network: &Network) {
    let mut table = plain(
        &["layer", "in the file", "operation", "largest seen", "spare bits", "shift", "largest weight"],
        3,
    );
    for (node, public) in report.nodes.iter().zip(&network.nodes) {
        table.add_row([
            public.name.clone(),
            node.name.clone(),
            node.operation.to_owned(),
            format!("{:.4}", node.range),
            format!("{:.1}", node.spare_bits),
            node.linear.as_ref().map_or("-".into(), |l| l.shift.to_string()),
            node.linear.as_ref().map_or("-".into(), |l| l.largest_weight.to_string()),
        ]);
    }
    say!("{}\n", trimmed(&table));
}

/// A warning with the options that would help, and the files that it is about.
fn with_options(warning: &Warning, files: &[PathBuf]) -> String {
    let half = |inputs| {
        format!("with scales from either half of the {inputs} calibration inputs, on the other half")
    };
    match warning {
        Warning::HeldOutOverflows { values, samples } => format!(
            "{}, {values} values leave their range: more calibration inputs, or a larger --headroom",
            half(samples)
        ),
        Warning::HeldOutTight { values, samples } => format!(
            "{}, {values} values take the last bit of their range, which nonlinear layers may need: more calibration inputs, or a \
             larger --headroom",
            half(samples)
        ),
        Warning::HeldOutError { found, samples, bound } => format!(
            "{}, logits are off by up to {:.2} % of their spread (--accuracy-bound is {:.2} %), same class {}/{}: more \
             --activation-bits or --weight-bits, or more calibration inputs",
            half(samples),
            100.0 * found.worst_relative_error,
            100.0 * bound,
            found.same_class,
            found.images
        ),
        Warning::HiddenFor { found, .. } => format!(
            "{warning} (--hide-for {found:.0} asks for no more; a larger --accuracy-bound hides longer)"
        ),
        Warning::FewPictures { .. } | Warning::Lost(_) => format!("{warning} (--data, --loss)"),
        Warning::Samples(oddity) => oddity.words(&|i| files[i].display().to_string()),
        Warning::PublicMap(_) => {
            format!("{warning} (--input-map secret keeps them so; --input-map public says that they may be)")
        }
        Warning::RawPixels { .. } => format!(
            "{warning}. --pixel-scale, --mean and --std scale them (torchvision's networks: --pixel-scale 0.00392157 \
             --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225)"
        ),
        other => other.to_string(),
    }
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

fn tensors(
    files: &[PathBuf],
    image: &ImageSpec,
    shape: Shape,
    axes: Axes<'_>,
    steps: &Steps,
) -> Result<Vec<Vec<f32>>> {
    let mut tensors = Vec::with_capacity(files.len());
    for path in files {
        let source = samples::open(path)?;
        let tensor = source.tensor(image, shape, axes).with_context(|| path.display().to_string())?;
        tensors.push(tensor);
        steps.done(tensors.len(), files.len());
    }
    Ok(tensors)
}

fn say_agreement(what: &str, inputs: &str, found: &Agreement) {
    say!(
        "agreement {what} on {} {inputs} inputs: same class {}/{}, logits off by {:.4} on average and {:.4} at most (largest logit {:.2}; {:.2} % of their spread)",
        found.images,
        found.same_class,
        found.images,
        found.mean_error,
        found.max_error,
        found.largest_logit,
        100.0 * found.worst_relative_error
    );
    if found.outputs.len() < 2 {
        return;
    }
    say!("  by output, each by its own spread:");
    for output in &found.outputs {
        say!(
            "  {} ({} values): off by {:.4} on average and {:.4} at most (largest {:.2}; {:.2} % of its spread at most, {:.2} % on half of the inputs)",
            output.name,
            output.values,
            output.mean_error,
            output.max_error,
            output.largest,
            100.0 * output.worst_error(),
            100.0 * output.typical_error()
        );
    }
}

/// Where test inputs reach beyond what calibration saw.
fn say_beyond(found: &[Beyond], report: &Report, args: &Args) {
    /// Layers that are named without --verbose.
    const SHOWN: usize = 5;
    let Some(farthest) = found.first() else { return };
    say!(
        "test inputs reach beyond what calibration saw in {} of {} layers, at most {:.2} times as far (exact up to {} times, --headroom):",
        found.len(),
        report.nodes.len(),
        farthest.times,
        args.headroom
    );
    let shown = if args.verbose { found.len() } else { SHOWN };
    for beyond in found.iter().take(shown) {
        let node = &report.nodes[beyond.node];
        say!(
            "  {} ({}): {:.2} times, {} values",
            node.name,
            node.operation,
            beyond.times,
            count(beyond.values as u64)
        );
    }
    if found.len() > shown {
        say!("  and {} more (--verbose)", found.len() - shown);
    }
}

/// What a width of activations was found to do.
fn say_width(width: Width, found: Option<&Agreement>) {
    match found {
        None => say!("activations of {width}: too few for this network's scales"),
        Some(found) => say!(
            "activations of {width}: logits off by up to {:.2} % of their spread on inputs left out of calibration",
            100.0 * found.worst_relative_error
        ),
    }
}

/// A part in percent, without the digits that only its binary form has.
fn in_percent(part: f64) -> f32 {
    (100.0 * part) as f32
}

/// How often a width was found to give the right class.
fn say_counted(counted: &Counted) {
    let Counted { width, pictures, right, lost, won, overflows, kept } = counted;
    let beyond =
        if *overflows > 0 { format!(", {overflows} values leave their range") } else { String::new() };
    let verdict = if *kept { "enough" } else { "too few" };
    say!(
        "activations of {width}: right class on {right} of {pictures} labelled pictures, {lost} lost and {won} won beside the float \
         network{beyond}: {verdict}"
    );
}

/// What labelled pictures chose, beside what the bound on logits would.
fn say_classes(found: &Classes, bound: f64) {
    let Classes { pictures, float_right, loss, by_logits, by_class } = found;
    let part = |n: usize, of: usize| format!("{:.2} %", 100.0 * n as f64 / of.max(1) as f64);
    say!(
        "{pictures} labelled pictures; the float network has the right class on {float_right} ({})",
        part(*float_right, *pictures)
    );
    let mut table = plain(
        &[
            "chosen by",
            "activations",
            "right class",
            "lost",
            "won",
            "logits off by",
            "bytes before the input",
            "with it",
        ],
        2,
    );
    let logits = (format!("logits within {} %", in_percent(bound)), by_logits);
    let class = by_class.as_ref().map(|ruled| (format!("at most {} % lost", in_percent(*loss)), ruled));
    for (rule, Ruled { width, error, bytes: [before, with], counted }) in std::iter::once(logits).chain(class)
    {
        // (Fewer pictures are counted where they settled it.)
        let right = part(counted.right, counted.pictures);
        let of =
            if counted.pictures < *pictures { format!(" of {}", counted.pictures) } else { String::new() };
        table.add_row([
            rule,
            width.to_string(),
            format!("{right}{of}"),
            counted.lost.to_string(),
            counted.won.to_string(),
            format!("{:.2} %", 100.0 * error),
            bytes(*before),
            bytes(*with),
        ]);
    }
    say!("{}", trimmed(&table));
}

/// What reduced-precision signs save, layer by layer, and what they do.
fn say_signs(chosen: &ReducedSigns, files: &[PathBuf], bound: f64) {
    let mut table =
        plain(&["layer", "bits left out", "error alone", "COTs", "instead of", "bytes", "instead of"], 1);
    let mut all = [0u64; 4];
    for layer in &chosen.layers {
        let row = [layer.cots, layer.cots_exact, layer.bytes, layer.bytes_exact];
        all.iter_mut().zip(row).for_each(|(all, n)| *all += n);
        table.add_row([
            layer.name.clone(),
            if layer.ignored > 1 { layer.ignored.to_string() } else { "-".into() },
            format!("{:.3} %", 100.0 * layer.alone),
            count(row[0]),
            count(row[1]),
            bytes(row[2]),
            bytes(row[3]),
        ]);
    }
    let [cots, cots_exact, sent, sent_exact] = all;
    table.add_row([
        "all".to_owned(),
        String::new(),
        String::new(),
        count(cots),
        count(cots_exact),
        bytes(sent),
        bytes(sent_exact),
    ]);
    say!("{}", trimmed(&table));
    let fewer = |after: u64, before: u64| 100.0 * (1.0 - after as f64 / before.max(1) as f64);
    say!(
        "reduced-precision signs in {} of {} layers ({:.0} s): {:.0} % fewer bytes there; in {} imitated runs the class was that of exact signs, and logits differed by at most {:.2} % of their spread (bound {} %)",
        chosen.reduced,
        chosen.layers.len(),
        chosen.took.as_secs_f64(),
        fewer(sent, sent_exact),
        chosen.runs,
        100.0 * chosen.worst_error,
        in_percent(bound)
    );
    let Some((input, failure)) = chosen.limited_by else { return };
    let file = files[input].display();
    match failure {
        Failure::Class => say!("more bits would change the class of {file}"),
        Failure::Overflows(values) => {
            say!("more bits would make values too large on {file}: {values} would wrap around");
        }
        Failure::Error(error) => {
            say!("more bits would go beyond the bound on {file}: {:.2} %", 100.0 * error);
        }
    }
}
