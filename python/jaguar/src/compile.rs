//! From an ONNX network and samples to a compiled model.

use std::path::PathBuf;
use std::sync::Arc;

use jaguar::Cpu;
use jaguar::agreement::Agreement;
use jaguar::compile::samples::Axes;
use jaguar::compile::{ByClass, Event, Hide, InputMap, Options, Preprocessing, Warning, Widths, compile};
use jaguar::reports::compiled::Found;
use jaguar::signs::SearchStage;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::input::{Given, Input, each, given};
use crate::kit::kit;
use crate::model::Model;
use crate::origin::{Onnx, Origin};
use crate::task::{Task, run};

/// How to compile: a dictionary's items.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    name: Option<String>,
    labels: Vec<String>,
    /// As the command takes it.
    resize: String,
    filter: String,
    bgr: bool,
    pixel_scale: f32,
    mean: Vec<f32>,
    std: Vec<f32>,
    /// `auto`, `fewest`, or a number.
    activation_bits: String,
    hide_for: f64,
    weight_bits: u32,
    reduced_signs: bool,
    /// In percent.
    accuracy_bound: f64,
    /// Labelled pictures: a folder or a list.
    data: Option<PathBuf>,
    /// In percent of the pictures.
    loss: f64,
    headroom: f64,
    keep_names: bool,
    /// `auto`, `secret` or `public`.
    input_map: String,
    force: bool,
    input_shape: Option<Vec<usize>>,
    outputs: Vec<String>,
    /// Inputs that are always the same: names, and numbers in C order.
    constants: Vec<(String, Vec<f32>)>,
}

/// Compiles the network in `onnx` by what it does on `samples`. Returns the model, and as JSON how it agrees with the float network.
#[pyfunction]
#[pyo3(name = "compile", signature = (onnx, samples, settings, listener = None))]
pub fn compile_onnx(
    py: Python<'_>,
    onnx: Onnx,
    samples: Vec<Bound<'_, Input>>,
    settings: Settings,
    listener: Option<Py<PyAny>>,
) -> PyResult<(Model, String)> {
    let samples = given(&samples);
    run(py, &Arc::default(), listener.as_ref(), move |task| make(task, &onnx, samples, settings))
}

fn make(task: &Task, onnx: &Onnx, given: Vec<Given>, settings: Settings) -> Result<(Model, String), Failure> {
    // Everything that can be wrong with the request comes before the work.
    task.at("reading the network", 0, 0, "");
    let mut graph = onnx.import(settings.input_shape, settings.outputs, settings.constants)?;
    if let Some(name) = settings.name {
        graph.name = name;
    }
    let shape = graph.input_shape();
    let given = &each(given, shape, Axes::of_graph(&graph))[..];
    let wrong = |option: &str, text: &str, why: String| Failure::option(format!("{option}='{text}': {why}"));
    let preprocessing = Preprocessing {
        resize: settings.resize.parse().map_err(|why| wrong("resize", &settings.resize, why))?,
        filter: settings.filter.parse().map_err(|why| wrong("filter", &settings.filter, why))?,
        bgr: settings.bgr,
        pixel_scale: settings.pixel_scale,
        mean: settings.mean,
        std: settings.std,
    };
    let labels = settings.labels;
    if settings.data.is_some() && settings.activation_bits != "auto" {
        return Err(Failure::option(
            "data: labelled pictures choose activation_bits, so these must be \"auto\"",
        ));
    }
    let by_class = match settings.data {
        None => None,
        Some(data) => {
            let found = ByClass::read(&data, &graph, &labels, settings.loss / 100.0);
            let (by_class, skipped) = found.map_err(|error| Failure::option(format!("data: {error}")))?;
            skipped.iter().for_each(|skipped| task.note(skipped.to_string()));
            Some(by_class)
        }
    };
    let options = Options {
        widths: match settings.activation_bits.as_str() {
            "auto" => Widths::AUTO,
            "fewest" => Widths::FEWEST,
            bits => Widths::Bits(bits.parse().map_err(|_| {
                Failure::option(format!("activation_bits={bits:?}: \"auto\", \"fewest\" or a number of bits"))
            })?),
        },
        hide: Hide::For(settings.hide_for),
        weight_bits: settings.weight_bits,
        headroom: settings.headroom,
        image: preprocessing.spec(shape[0])?,
        labels,
        bound: settings.accuracy_bound / 100.0,
        by_class,
        reduced_signs: settings.reduced_signs,
        raw_pixels: given.iter().any(Given::is_picture) && preprocessing.is_identity(),
        keep_names: settings.keep_names,
        input_map: match settings.input_map.as_str() {
            "auto" => InputMap::Auto,
            "secret" => InputMap::Secret,
            "public" => InputMap::Public,
            other => {
                return Err(Failure::option(format!(
                    "input_map={other:?}: \"auto\", \"secret\" or \"public\""
                )));
            }
        },
        force: settings.force,
        cpu: Cpu::detect(),
    };
    options.check(&graph)?;
    let mut tensors = Vec::with_capacity(given.len());
    for (i, one) in given.iter().enumerate() {
        task.at("reading samples", i, given.len(), &one.name(i));
        let tensor = one.source(i)?.tensor(&options.image, shape, Axes::of_graph(&graph));
        tensors.push(tensor.map_err(|e| one.unfit(e, i))?);
    }
    let mut tried = Vec::new();
    let compiled = compile(&kit(), &graph, &tensors, &options, &mut |event| {
        if let Event::Tried(width, found) = &event {
            tried.push((*width, found.map(|f| f.worst_relative_error)));
        }
        show(task, &event, given);
    })?;
    let warnings: Vec<String> = compiled.warnings.iter().map(|w| with_options(w, given)).collect();
    let about = json!({
        "agreement": agreement(&compiled.agreement),
        "held_out": agreement(&compiled.held_out),
        "warnings": &warnings,
        "hint_bytes": compiled.plan.hint_bytes(),
    });
    let found = Found::new(&compiled, options.bound, tried, warnings);
    let graph = compiled.moved.unwrap_or(graph);
    let origin = Origin { graph, given: given.to_vec(), found };
    Ok((Model::new(compiled.bundle, Some(origin)), about.to_string()))
}

fn show(task: &Task, event: &Event<'_>, given: &[Given]) {
    match event {
        Event::Calibrating(done, of) => task.at("calibrating", *done, *of, ""),
        Event::Weighing(done, of) => task.at("measuring how much hidden values weigh", *done, *of, ""),
        Event::Checking(done, of) => task.at("checking against the float network", *done, *of, ""),
        Event::Quantising => task.at("quantising", 0, 0, ""),
        Event::Trying(widths) => {
            let [first, last] =
                [widths.first(), widths.last()].map(|w| w.map_or_else(String::new, ToString::to_string));
            task.at("trying activation bits", 0, 0, &format!("{first} to {last}"));
        }
        Event::TryingSamples(done, of) => task.at("imitating private runs", *done, *of, ""),
        Event::Tried(width, _) => task.at("trying activation bits", 0, 0, &width.to_string()),
        Event::TriedCoarse(coarse, bits, _) => {
            task.at("trying fewer bits", 0, 0, &format!("{coarse} of {bits}"))
        }
        Event::Judging(None, done, of) => {
            task.at("running the float network on labelled pictures", *done, *of, "")
        }
        Event::Judging(Some(width), done, of) => {
            task.at("imitating runs of labelled pictures", *done, *of, &width.to_string());
        }
        Event::Warning(warning) => task.warning(with_options(warning, given)),
        Event::Signs(SearchStage::Layers(done, of)) => task.at("measuring layers", *done, *of, ""),
        Event::Signs(SearchStage::Check(number, done, of)) => {
            task.at("checking choices", *done, *of, &number.to_string());
        }
        _ => {}
    }
}

/// A warning with what would help, and the inputs that it is about.
fn with_options(warning: &Warning, given: &[Given]) -> String {
    match warning {
        Warning::Samples(oddity) => oddity.words(&|i| given[i].name(i)),
        Warning::PublicMap(_) => {
            format!(
                "{warning} (input_map=\"secret\" keeps them so; input_map=\"public\" says that they may be)"
            )
        }
        Warning::RawPixels { .. } => format!(
            "{warning}. preprocessing=jaguar.Preprocessing(pixel_scale=1/255, mean=..., std=...) scales them (torchvision's networks: \
             jaguar.Preprocessing.imagenet())"
        ),
        other => other.to_string(),
    }
}

fn agreement(found: &Agreement) -> Value {
    json!({
        "images": found.images,
        "same_class": found.same_class,
        "mean_error": found.mean_error,
        "max_error": found.max_error,
        "largest_logit": found.largest_logit,
        "worst_relative_error": found.worst_relative_error,
        "outputs": found.outputs.iter().map(|output| json!({
            "name": output.name,
            "values": output.values,
            "mean_error": output.mean_error,
            "max_error": output.max_error,
            "largest": output.largest,
            "worst_relative_error": output.worst_error(),
            "typical_relative_error": output.typical_error(),
        })).collect::<Vec<_>>(),
    })
}
