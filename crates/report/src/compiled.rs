//! What compiling did to a network: how it agrees with the float network, layer by layer and image by image.

use askama::Template;
use jaguar_compile::{Classes, Compiled, MapFound, Ruled};
use jaguar_graph::agreement::{Agreement, OutputAgreement};
use jaguar_graph::network::{Filter, ImageSpec, Model, Resize, argmax};
use jaguar_graph::quantise::layers::{BARS, Clipped, Image, LayerStatistics};
use jaguar_graph::quantise::{NodeReport, Width};

use crate::draw::{histogram, thumbnail};
use crate::terminal::table::bytes;
use crate::{Frame, NodeKind, ReportError, number, percent, render, thousands};

/// How many of the images that agree least are shown.
const WORST: usize = 12;

/// The bound is drawn beside errors where it is at most so many times the largest of them.
const FAR: f64 = 8.0;

/// Errors below this part are drawn at the chart's foot.
const LEAST: f64 = 1e-6;

/// Where charts begin, of 1000, and their middle. The axis' words, up to eight letters ("0.0843 %"), end at `LABELS`.
const LEFT: u32 = 100;
const LABELS: u32 = LEFT - 10;
const MIDDLE: u32 = (LEFT + 1000) / 2;

/// What `compile` told, beside the model.
#[derive(Clone, Debug)]
pub struct Found {
    /// By node, its range and how its weights came out.
    pub nodes: Vec<NodeReport>,
    /// An imitated private run beside the float network: scales from either half of the calibration inputs, on the other half.
    pub held_out: Agreement,
    /// Activation bits that were tried, and by which part of their spread logits were off at most on inputs left out of calibration;
    /// `None` where there are no scales.
    pub tried: Vec<(Width, Option<f64>)>,
    /// What labelled pictures chose, if there were any.
    pub classes: Option<Classes>,
    /// The exact integer network beside the float network, by part of the output, each judged by its own spread: on the calibration
    /// inputs.
    pub outputs: Vec<OutputAgreement>,
    /// What became of a map that the file has right behind the input, if it has one.
    pub input_map: Option<MapFound>,
    /// In the words of whoever asked.
    pub warnings: Vec<String>,
    /// By which part of their spread logits may be off.
    pub bound: f64,
}

impl Found {
    /// What is known once a network is compiled; `tried` and `warnings` are the caller's, who heard of them.
    pub fn new(
        compiled: &Compiled,
        bound: f64,
        tried: Vec<(Width, Option<f64>)>,
        warnings: Vec<String>,
    ) -> Self {
        let (nodes, held_out) = (compiled.report.nodes.clone(), compiled.held_out.clone());
        let (outputs, input_map) = (compiled.agreement.outputs.clone(), compiled.input_map.clone());
        let classes = compiled.classes.clone();
        Self { nodes, held_out, classes, outputs, input_map, tried, warnings, bound }
    }
}

/// An input that both networks ran on.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What it is called: its file, or its number.
    pub name: &'a str,
    /// `[C, H, W]`, preprocessed.
    pub tensor: &'a [f32],
}

/// What a page on a compiled model is made of.
pub struct Subject<'a> {
    /// The quantised network and its weights.
    pub model: &'a Model,
    /// The model's public name, which tells compiled models apart.
    pub id: &'a str,
    /// What compiling found out: ranges, widths, warnings.
    pub found: &'a Found,
    /// Agreement with the float network by node, as [`jaguar_graph::quantise::layers::compare`] gives it, ...
    pub layers: &'a [LayerStatistics],
    /// ... and by input.
    pub images: &'a [Image],
    /// The inputs: those of calibration, then the others.
    pub inputs: &'a [Input<'a>],
    /// How many are those of calibration.
    pub calibration: usize,
}

#[derive(Template)]
#[template(path = "compiled.html")]
struct Page<'a> {
    frame: Frame,
    name: &'a str,
    id: &'a str,
    bits: [u32; 3],
    classes: usize,
    input: String,
    /// How inputs of calibration agree, and how others.
    groups: Vec<Group>,
    held_out: Group,
    /// By output, where there are several.
    outputs: Vec<Output<'a>>,
    bound: String,
    verdict: &'static str,
    tried: Vec<Tried>,
    /// What labelled pictures said, and what either rule chose.
    labelled: Option<(&'a Classes, Vec<Rule>)>,
    warnings: &'a [String],
    preprocessing: Vec<(&'static str, String)>,
    layers: Vec<Row<'a>>,
    overflows: u64,
    beyond: u64,
    chart: Chart,
    bars: Bars,
    worst: Vec<Card<'a>>,
    kinds: [NodeKind; NodeKind::ALL.len()],
}

/// Agreement on some of the inputs.
struct Group {
    what: &'static str,
    inputs: usize,
    same: usize,
    mean: String,
    largest: String,
    worst: String,
    keeps: bool,
    overflows: u64,
}

/// Agreement on one part of the output.
struct Output<'a> {
    name: &'a str,
    values: String,
    largest_value: String,
    mean: String,
    largest: String,
    typical: String,
    worst: String,
    keeps: bool,
}

/// What a rule chose, and how often the right class comes out of it.
struct Rule {
    name: String,
    bits: String,
    right: String,
    /// On how many pictures.
    of: String,
    lost: usize,
    won: usize,
    error: String,
    before: String,
    with: String,
    taken: bool,
}

struct Tried {
    bits: String,
    error: Option<String>,
    taken: bool,
}

struct Row<'a> {
    index: usize,
    name: &'a str,
    /// What the file calls it, where that is another name.
    file_name: &'a str,
    operation: String,
    kind: NodeKind,
    shape: String,
    range: String,
    spare: String,
    error: String,
    /// Of a bar, 0 to 100.
    error_bar: String,
    largest: String,
    histogram: String,
    zeros: String,
    ceiling: String,
    beyond: String,
    overflows: String,
    shift: String,
    largest_weight: String,
}

/// Errors by layer, drawn in a box of 1000 by 260.
struct Chart {
    /// Height and words of each line of the grid.
    grid: Vec<(String, String)>,
    line: String,
    dots: Vec<Dot>,
}

struct Dot {
    x: String,
    y: String,
    kind: NodeKind,
    title: String,
}

/// Errors by image, sorted, in a box of 1000 by 160.
struct Bars {
    bars: Vec<Dot>,
    width: String,
    /// Where the bound is; `None` where it is so far above all errors that they could not be seen below it.
    bound: Option<String>,
    top: String,
}

struct Card<'a> {
    name: &'a str,
    part: &'static str,
    picture: Option<String>,
    error: String,
    same: bool,
    rows: Vec<(String, String, String)>,
}

/// The page.
///
/// # Errors
/// When the system gives no random bytes, or a picture cannot be encoded.
pub fn page(of: &Subject<'_>) -> Result<String, ReportError> {
    let network = &of.model.network;
    let (calibration, others) = of.images.split_at(of.calibration.min(of.images.len()));
    let bound = of.found.bound;
    let mut groups = vec![Group::of("calibration inputs", calibration, bound)];
    if !others.is_empty() {
        groups.push(Group::of("test inputs", others, bound));
    }
    let held_out = &of.found.held_out;
    let held_out = Group {
        what: "calibration inputs, each with scales from the other half, rounded by chance as a private run does",
        inputs: held_out.images,
        same: held_out.same_class,
        mean: number(held_out.mean_error),
        largest: number(held_out.max_error),
        worst: percent(held_out.worst_relative_error),
        keeps: held_out.worst_relative_error <= bound,
        overflows: held_out.overflows as u64,
    };
    let all_same = groups.iter().chain([&held_out]).all(|g| g.same == g.inputs);
    let all_keep = groups.iter().chain([&held_out]).all(|g| g.keeps && g.overflows == 0);
    let verdict = match (all_same, all_keep) {
        (true, true) => "The compiled network answers as the float network does, within the bound.",
        (true, false) => {
            "Every input has the float network's class, but some outputs are off by more than the bound."
        }
        (false, _) => "Some inputs have another class than in the float network.",
    };
    let bits = network.activation_bits - network.guard_bits;
    let layers = rows(of);
    let page = Page {
        frame: Frame::new()?,
        name: &network.name,
        id: of.id,
        bits: [bits, network.guard_bits, network.weight_bits],
        classes: network.nodes.last().map_or(0, |n| n.shape.iter().product()),
        input: shape(network.nodes[0].shape),
        groups,
        held_out,
        bound: percent(bound),
        verdict,
        tried: of
            .found
            .tried
            .iter()
            .map(|&(tried, error)| Tried {
                bits: tried.to_string(),
                error: error.map(percent),
                taken: (tried.activation_bits, tried.hiding) == (bits, network.hiding()),
            })
            .collect(),
        labelled: of.found.classes.as_ref().map(|classes| (classes, rules(classes, bound))),
        warnings: &of.found.warnings,
        outputs: outputs(of.found),
        preprocessing: preprocessing(&network.input.image, network.nodes[0].shape[0])
            .into_iter()
            .chain(
                of.found.input_map.iter().map(|map| ("in the file right behind the input", map.to_string())),
            )
            .collect(),
        overflows: of.layers.iter().map(|l| l.overflows).sum(),
        beyond: of.layers.iter().map(|l| l.beyond).sum(),
        chart: chart(of),
        bars: bars(of),
        worst: worst(of)?,
        layers,
        kinds: NodeKind::ALL,
    };
    render(&page)
}

fn rules(classes: &Classes, bound: f64) -> Vec<Rule> {
    let rule = |name: String, ruled: &Ruled, taken: bool| {
        let Ruled { width, error, bytes: [before, with], counted } = ruled;
        Rule {
            name,
            bits: width.to_string(),
            right: percent(counted.right as f64 / counted.pictures.max(1) as f64),
            of: thousands(counted.pictures as u64),
            lost: counted.lost,
            won: counted.won,
            error: percent(*error),
            before: bytes(*before),
            with: bytes(*with),
            taken,
        }
    };
    let by_class = classes.by_class.as_ref();
    let logits = format!("logits within {} % of their spread", percent(bound));
    let class = format!("at most {} % of the pictures lost", percent(classes.loss));
    let logits = rule(logits, &classes.by_logits, by_class.is_none());
    std::iter::once(logits).chain(by_class.map(|ruled| rule(class, ruled, true))).collect()
}

impl Group {
    fn of(what: &'static str, images: &[Image], bound: f64) -> Self {
        let errors =
            || images.iter().flat_map(|i| i.float.iter().zip(&i.integer)).map(|(a, b)| (a - b).abs());
        let worst = images.iter().map(|i| i.error).fold(0.0, f64::max);
        Self {
            what,
            inputs: images.len(),
            same: images.iter().filter(|i| argmax(&i.float) == argmax(&i.integer)).count(),
            mean: number(errors().sum::<f64>() / errors().count().max(1) as f64),
            largest: number(errors().fold(0.0, f64::max)),
            worst: percent(worst),
            keeps: worst <= bound,
            overflows: images.iter().map(|i| i.overflows).sum(),
        }
    }
}

fn outputs(found: &Found) -> Vec<Output<'_>> {
    if found.outputs.len() < 2 {
        return Vec::new();
    }
    found.outputs.iter().map(|output| Output::of(output, found.bound)).collect()
}

impl<'a> Output<'a> {
    fn of(output: &'a OutputAgreement, bound: f64) -> Self {
        let OutputAgreement { name, values, max_error, mean_error, largest, .. } = output;
        Self {
            name,
            values: thousands(*values as u64),
            largest_value: number(*largest),
            mean: number(*mean_error),
            largest: number(*max_error),
            typical: percent(output.typical_error()),
            worst: percent(output.worst_error()),
            keeps: output.worst_error() <= bound,
        }
    }
}

fn shape([c, h, w]: [usize; 3]) -> String {
    format!("{c} × {h} × {w}")
}

/// A count; a dash for none.
fn some(n: u64) -> String {
    if n == 0 { "–".into() } else { thousands(n) }
}

fn rows<'a>(of: &Subject<'a>) -> Vec<Row<'a>> {
    let network = &of.model.network;
    let largest = of.layers.iter().map(LayerStatistics::relative_error).fold(f64::MIN_POSITIVE, f64::max);
    let row = |(index, (node, layer)): (usize, (&'a jaguar_graph::network::Node, &LayerStatistics))| {
        let found = of.found.nodes.get(index);
        let linear = found.and_then(|n| n.linear.as_ref());
        let operation = network.describe(&node.op);
        let part = |n: u64| percent(n as f64 / layer.values.max(1) as f64);
        let Clipped { low, high } = layer.clipped.unwrap_or_default();
        let clips = layer.clipped.is_some();
        let none = || "–".to_owned();
        Row {
            index,
            name: &node.name,
            file_name: found.map(|n| n.name.as_str()).filter(|name| *name != node.name).unwrap_or_default(),
            kind: NodeKind::of(node.op.part()),
            operation,
            shape: shape(node.shape),
            range: number(layer.range),
            spare: found.map_or_else(none, |n| format!("{:.1}", n.spare_bits)),
            error: percent(layer.relative_error()),
            error_bar: format!("{:.1}", 100.0 * layer.relative_error() / largest),
            largest: number(layer.largest_error),
            histogram: histogram(&layer.histogram),
            zeros: if clips { part(low) } else { none() },
            ceiling: if high > 0 { part(high) } else { none() },
            beyond: some(layer.beyond),
            overflows: some(layer.overflows),
            shift: linear.map_or_else(none, |l| l.shift.to_string()),
            largest_weight: linear.map_or_else(none, |l| thousands(l.largest_weight.unsigned_abs())),
        }
    };
    network.nodes.iter().zip(of.layers).enumerate().map(row).collect()
}

fn chart(of: &Subject<'_>) -> Chart {
    let errors: Vec<f64> = of.layers.iter().map(|l| l.relative_error().max(LEAST)).collect();
    let high = errors.iter().copied().filter(|e| e.is_finite()).fold(LEAST * 10.0, f64::max).log10().ceil();
    let low = errors.iter().copied().fold(1.0, f64::min).log10().floor();
    let y = |log: f64| 240.0 - 220.0 * (log.clamp(low, high) - low) / (high - low).max(1.0);
    let left = f64::from(LEFT);
    let x = |i: usize| left + (985.0 - left) * (i as f64 + 0.5) / errors.len() as f64;
    let mut line = String::new();
    let mut dots = Vec::new();
    for (i, ((node, layer), &error)) in of.model.network.nodes.iter().zip(of.layers).zip(&errors).enumerate()
    {
        let (x, y) = (format!("{:.1}", x(i)), format!("{:.1}", y(error.log10())));
        line.push_str(&format!("{}{x} {y}", if i == 0 { 'M' } else { 'L' }));
        let operation = of.model.network.describe(&node.op);
        let title = format!("{}, {operation}: {} %", node.name, percent(layer.relative_error()));
        dots.push(Dot { x, y, kind: NodeKind::of(node.op.part()), title });
    }
    let grid = (low as i32..=high as i32)
        .map(|log| (format!("{:.1}", y(f64::from(log))), format!("{} %", 10f64.powi(log + 2))));
    Chart { grid: grid.collect(), line, dots }
}

fn bars(of: &Subject<'_>) -> Bars {
    let mut order: Vec<usize> = (0..of.images.len()).collect();
    order.sort_by(|&a, &b| of.images[b].error.total_cmp(&of.images[a].error));
    let largest = order.first().map_or(0.0, |&i| of.images[i].error);
    let bound = of.found.bound;
    let drawn = bound <= FAR * largest;
    let top = 1.1 * if drawn || largest <= 0.0 { largest.max(bound) } else { largest };
    let left = f64::from(LEFT);
    let step = (1000.0 - left) / order.len().max(1) as f64;
    let bar = |(at, &i): (usize, &usize)| {
        let image = &of.images[i];
        let other = argmax(&image.float) != argmax(&image.integer);
        Dot {
            x: format!("{:.1}", left + step * at as f64),
            y: format!("{:.1}", (130.0 * image.error / top).max(0.5)),
            kind: if other { NodeKind::Activation } else { NodeKind::Linear },
            title: format!(
                "{}: {} %{}",
                of.inputs.get(i).map_or("", |input| input.name),
                percent(image.error),
                if other { ", another class" } else { "" }
            ),
        }
    };
    Bars {
        bars: order.iter().enumerate().map(bar).collect(),
        width: format!("{:.2}", (step * 0.8).min(40.0)),
        bound: drawn.then(|| format!("{:.1}", 140.0 - 130.0 * bound / top)),
        top: percent(top),
    }
}

/// Those of another class first, then by error.
fn worst<'a>(of: &Subject<'a>) -> Result<Vec<Card<'a>>, ReportError> {
    let network = &of.model.network;
    let same = |i: usize| argmax(&of.images[i].float) == argmax(&of.images[i].integer);
    let mut order: Vec<usize> = (0..of.images.len().min(of.inputs.len())).collect();
    order.sort_by(|&a, &b| same(a).cmp(&same(b)).then(of.images[b].error.total_cmp(&of.images[a].error)));
    order.truncate(WORST);
    let card = |i: usize| {
        let (image, input) = (&of.images[i], of.inputs[i]);
        let mut classes: Vec<usize> = (0..image.float.len()).collect();
        classes.sort_by(|&a, &b| image.float[b].total_cmp(&image.float[a]));
        classes.truncate(3);
        let own = argmax(&image.integer);
        if !classes.contains(&own) {
            classes.push(own);
        }
        let name = |class: usize| match network.output.labels.get(class) {
            Some(label) => label.clone(),
            None => format!("class {class}"),
        };
        Ok(Card {
            name: input.name,
            part: if i < of.calibration { "calibration" } else { "test" },
            picture: thumbnail(input.tensor, network.nodes[0].shape, &network.input.image)?,
            error: percent(image.error),
            same: same(i),
            rows: classes
                .into_iter()
                .map(|c| (name(c), format!("{:.3}", image.float[c]), format!("{:.3}", image.integer[c])))
                .collect(),
        })
    };
    order.into_iter().map(card).collect()
}

/// How pictures become tensors, in words.
fn preprocessing(spec: &ImageSpec, channels: usize) -> Vec<(&'static str, String)> {
    let list = |values: &[f32], default: &str| match values {
        [] => default.to_owned(),
        values => values.iter().map(|v| format!("{v:.6}")).collect::<Vec<_>>().join(", "),
    };
    vec![
        ("size", resized(spec.resize)),
        ("pixels in between", filtered(spec.filter).to_owned()),
        (
            "channels",
            if channels == 1 {
                "grey"
            } else if spec.bgr {
                "blue, green, red"
            } else {
                "red, green, blue"
            }
            .to_owned(),
        ),
        ("subtracted from pixels of 0 to 255", list(&spec.mean, "nothing")),
        ("then multiplied by", list(&spec.factor, "1")),
    ]
}

/// How pictures come to the network's size, in words.
fn resized(resize: Resize) -> String {
    match resize {
        Resize::Exact => "straight to the network's height and width".into(),
        Resize::Shorter(side) => format!("shorter side to {side} pixels, then the centre"),
        Resize::CropPct(of) => {
            format!("shorter side to the network's over {of}, then the centre (timm's crop_pct)")
        }
        Resize::Centre(of) => {
            format!("the central square of {of} of the shorter side, then straight to the network's size")
        }
    }
}

/// How pixels in between are found, in words.
fn filtered(filter: Filter) -> &'static str {
    match filter {
        Filter::Nearest => "the nearest one",
        Filter::Box => "box, as Pillow does it",
        Filter::Bilinear => "bilinear, antialiased, as Pillow and torchvision do it",
        Filter::Hamming => "Hamming, as Pillow does it",
        Filter::Bicubic => "bicubic, antialiased, as Pillow and timm do it",
        Filter::Lanczos => "Lanczos, as Pillow does it",
        Filter::Interpolate => "bilinear without antialiasing, as TensorFlow and Keras do it",
    }
}

/// The width of a histogram's box.
const WIDTH: usize = 3 * BARS;
