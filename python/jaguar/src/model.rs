//! A compiled model: what it costs, what it answers, how often it is right.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jaguar::bundle::{Bundle, files};
use jaguar::client::Prediction;
use jaguar::compile::CompileError;
use jaguar::compile::samples::Axes;
use jaguar::compile::samples::labelled::labelled;
use jaguar::machine::memory::room;
use jaguar::machine::{Between, Imitated};
use jaguar::plan::memory::Load;
use jaguar::plan::{Choices, Kit, Plan, batch};
use jaguar::quantise::layers;
use jaguar::reports::accuracy::{Ranking, Run, Score, classes, measure, private, same_network, spread, tops};
use jaguar::reports::tables::memory::MemoryNeeds;
use jaguar::reports::tables::plan::Planned;
use jaguar::reports::terminal::in_one_line;
use jaguar::reports::{compiled, cost};
use jaguar::{Cpu, reference};
use pyo3::prelude::*;
use serde_json::json;

use crate::answer::Answer;
use crate::choice::{Planning, backends};
use crate::client::size;
use crate::failure::Failure;
use crate::input::{Given, Input, each, given};
use crate::kit::kit;
use crate::origin::{Onnx, Origin};
use crate::task::{Heard, Task, run};

/// A compiled model, with its weights: it stays with the server.
#[pyclass(frozen, module = "jaguar._native")]
pub struct Model {
    pub bundle: Arc<Bundle>,
    /// What it was compiled from, if that was here.
    origin: Option<Arc<Origin>>,
}

/// How to tell accuracy: a dictionary's items.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Evaluation {
    /// How many to run privately.
    private: usize,
    /// The k of top-k; empty: 1 and 5.
    top: Vec<usize>,
    /// How many to take at most, evenly spread.
    limit: Option<usize>,
    /// The float network; none: the one that the model was compiled from here.
    float: Option<Onnx>,
    backends: Option<Vec<String>>,
}

impl Model {
    pub fn new(bundle: Bundle, origin: Option<Origin>) -> Self {
        Self { bundle: Arc::new(bundle), origin: origin.map(Arc::new) }
    }

    /// What Python gave, each one input of this network.
    fn each(&self, inputs: &[Bound<'_, Input>]) -> Vec<Given> {
        let network = &self.bundle.model.network;
        each(given(inputs), network.nodes[0].shape, Axes::of_network(network))
    }
}

#[pymethods]
impl Model {
    /// Reads a compiled model.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let read = move |_: &Arc<Task>| Ok(Self::new(Bundle::read(&path, kit().operators())?, None));
        run(py, &Arc::default(), None, read)
    }

    /// Writes it. Only a compiled model is overwritten.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let bundle = Arc::clone(&self.bundle);
        run(py, &Arc::default(), None, move |_| {
            let there = std::fs::metadata(&path).is_ok_and(|found| !found.is_file() || found.len() > 0);
            if there && !Bundle::recognises(&path).unwrap_or(false) {
                let text =
                    "this file is there and is no compiled model; give another name, or remove it first";
                return Err(Failure::option(text).of(path.display()));
            }
            Ok(bundle.write(&path)?)
        })
    }

    /// The same model, its hidden values hidden for so many queries of one image.
    fn hiding_for(&self, queries: f64) -> PyResult<Self> {
        let bundle = Bundle::clone(&self.bundle).hidden_for(queries).map_err(Failure::from)?;
        Ok(Self { bundle: Arc::new(bundle), origin: self.origin.clone() })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.bundle.model.network.name
    }

    #[getter]
    fn id(&self) -> String {
        self.bundle.id().to_string()
    }

    #[getter]
    fn labels(&self) -> Vec<String> {
        self.bundle.model.network.output.labels.clone()
    }

    /// For how many queries of one image hidden units stay hidden; `None` if that was not measured.
    #[getter]
    fn hidden_for(&self) -> Option<f64> {
        self.bundle.model.hidden_for()
    }

    /// `[C, H, W]`.
    #[getter]
    fn input_shape(&self) -> [usize; 3] {
        self.bundle.model.network.nodes[0].shape
    }

    #[getter]
    fn outputs(&self) -> usize {
        self.bundle.model.network.nodes.last().map_or(0, |n| n.shape.iter().product())
    }

    /// Bits of activations (guard bits besides), guard bits, bits of weights.
    #[getter]
    fn bits(&self) -> (u32, u32, u32) {
        let network = &self.bundle.model.network;
        (network.activation_bits - network.guard_bits, network.guard_bits, network.weight_bits)
    }

    /// What is done in each layer and what it will cost: as text, and as JSON; and as a page in a file.
    #[pyo3(signature = (planning, images, explain, page, listener = None))]
    fn plan(
        &self,
        py: Python<'_>,
        planning: Planning,
        images: i64,
        explain: bool,
        page: Option<PathBuf>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<(String, String)> {
        let bundle = Arc::clone(&self.bundle);
        let images = size("batch", images)?;
        run(py, &Arc::default(), listener.as_ref(), move |task| {
            let (among, allowed) = (planning.among()?, planning.allowed()?);
            planning.choose(&bundle, &Between::Loopback, false, task, |choices, site| {
                let network = &bundle.model.network;
                let single = Plan::allowing(network, choices, allowed)?;
                let plan = batch::plan(network, &single.choices, &among, images, allowed)?;
                let load = Load::single(jaguar::reports::terminal::threads());
                let needs =
                    MemoryNeeds::new(network, &plan, allowed, load, room(), Kit::standard().backends());
                let planned = Planned::new(
                    &bundle,
                    &plan,
                    allowed,
                    site,
                    needs,
                    (explain.then_some(&among[..]), false),
                )?;
                let planned = if images > 1 { planned.beside(&single, site) } else { planned };
                if let Some(path) = page {
                    let links = [Imitated::Lan, Imitated::Wan].map(|link| (link.name(), link.figures()));
                    let text = cost::page(&cost::Subject {
                        network,
                        id: &bundle.id().to_string(),
                        plan: &plan,
                        allowed,
                        load,
                        site,
                        links: &links,
                        backends: &among,
                        explanation: planned.explanation(),
                    })?;
                    write(&path, &text)?;
                }
                Ok((planned.to_string().trim_end().to_owned(), serde_json::to_string(&planned)?))
            })
        })
    }

    /// What compiling did, as a page in a file: on the calibration inputs, and on others.
    #[pyo3(signature = (path, others, listener = None))]
    fn report(
        &self,
        py: Python<'_>,
        path: PathBuf,
        others: Vec<Bound<'_, Input>>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let Some(origin) = self.origin.clone() else {
            let text =
                "a model that was loaded does not know what it was compiled from: report before you save it";
            return Err(Failure::option(text).into());
        };
        let (bundle, others) = (Arc::clone(&self.bundle), self.each(&others));
        run(py, &Arc::default(), listener.as_ref(), move |task| {
            let page = report(task, &bundle, &origin, &others)?;
            write(&path, &page)
        })
    }

    /// The integer network's answers, exactly.
    #[pyo3(signature = (inputs, listener = None))]
    fn simulate(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, Input>>,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Answer>> {
        let (bundle, inputs) = (Arc::clone(&self.bundle), self.each(&inputs));
        let logits = run(py, &Arc::default(), listener.as_ref(), move |task| {
            let all = inputs.len();
            inputs.iter().enumerate().map(|(i, one)| simulate(task, &bundle, one, (i, all))).collect()
        });
        let network = &self.bundle.model.network;
        let answers = |all: Vec<Prediction>| all.iter().map(|one| Answer::new(py, network, one)).collect();
        logits.map(answers)
    }

    /// How often the right class comes out: of a folder or a list ...
    #[pyo3(signature = (path, settings, listener = None))]
    fn evaluate_files(
        &self,
        py: Python<'_>,
        path: PathBuf,
        settings: Evaluation,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let (bundle, origin) = (Arc::clone(&self.bundle), self.origin.clone());
        run(py, &Arc::default(), listener.as_ref(), move |task| {
            let found = labelled(&path, &bundle.model.network.output.labels, classes(&bundle.model)?)?;
            found.skipped.iter().for_each(|skipped| task.note(skipped.to_string()));
            let pictures = found.pictures.into_iter().map(|one| (Given::File(one.path), one.class)).collect();
            evaluate(task, &bundle, origin.as_deref(), pictures, settings, found.by)
        })
    }

    /// ... or of inputs and their classes.
    #[pyo3(signature = (inputs, labels, settings, listener = None))]
    fn evaluate(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, Input>>,
        labels: Vec<usize>,
        settings: Evaluation,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let (bundle, origin) = (Arc::clone(&self.bundle), self.origin.clone());
        let inputs = self.each(&inputs);
        run(py, &Arc::default(), listener.as_ref(), move |task| {
            if inputs.len() != labels.len() {
                let text =
                    format!("{} inputs and {} labels: there must be one each", inputs.len(), labels.len());
                return Err(Failure::input(text));
            }
            let classes = classes(&bundle.model)?;
            if let Some(label) = labels.iter().find(|label| **label >= classes) {
                let text = format!("class {label} is none of the model's: they are 0 to {}", classes - 1);
                return Err(Failure::input(text));
            }
            let pictures = inputs.into_iter().zip(labels).collect();
            evaluate(task, &bundle, origin.as_deref(), pictures, settings, "numbers")
        })
    }
}

/// Writes a page that its owner alone may read: it has pictures in it, and what the network makes of them.
fn write(path: &Path, page: &str) -> Result<(), Failure> {
    files::save(path, page.as_bytes()).map_err(|e| Failure::option(in_one_line(&e)))
}

fn report(task: &Task, bundle: &Bundle, origin: &Origin, others: &[Given]) -> Result<String, Failure> {
    let (model, network) = (&bundle.model, &bundle.model.network);
    let all = origin.given.len() + others.len();
    let read = |(i, one): (usize, &Given)| {
        let name = one.name(i);
        task.at("reading inputs", i, all, &name);
        let axes = Axes::of_network(network);
        let tensor = one.source(i)?.tensor(&network.input.image, network.nodes[0].shape, axes);
        Ok((tensor.map_err(|e| one.unfit(e, i))?, name))
    };
    let read: Result<Vec<(Vec<f32>, String)>, Failure> =
        origin.given.iter().chain(others).enumerate().map(read).collect();
    let (tensors, names): (Vec<Vec<f32>>, Vec<String>) = read?.into_iter().unzip();
    let (calibration, tested) = tensors.split_at(origin.given.len());
    let mut heard = |done| task.at("comparing layer by layer", done, all, "");
    let cpu = Cpu::detect();
    let (layers, images) = layers::compare(cpu, &origin.graph, model, [calibration, tested], &mut heard)
        .map_err(CompileError::from)?;
    let inputs: Vec<compiled::Input<'_>> =
        names.iter().zip(&tensors).map(|(name, tensor)| compiled::Input { name, tensor }).collect();
    Ok(compiled::page(&compiled::Subject {
        model,
        id: &bundle.id().to_string(),
        found: &origin.found,
        layers: &layers,
        images: &images,
        inputs: &inputs,
        calibration: calibration.len(),
    })?)
}

fn simulate(
    task: &Task,
    bundle: &Bundle,
    one: &Given,
    (i, all): (usize, usize),
) -> Result<Prediction, Failure> {
    let name = one.name(i);
    task.at("simulating", i, all, &name);
    let input = one.source(i)?.input(&bundle.model.network).map_err(|e| one.unfit(e, i))?;
    if let Some(warning) = input.warning {
        task.warning(format!("{name}: {warning}"));
    }
    let mut run = reference::run(Cpu::detect(), &bundle.model, &input.integers)?;
    if run.total_overflows() > 0 {
        task.warning(format!(
            "{name}: {} values leave their range; a private run goes wrong",
            run.total_overflows()
        ));
    }
    Ok(Prediction::Logits(run.values.pop().unwrap_or_default()))
}

fn evaluate(
    task: &Task,
    bundle: &Bundle,
    origin: Option<&Origin>,
    mut pictures: Vec<(Given, usize)>,
    settings: Evaluation,
    labels_by: &str,
) -> Result<String, Failure> {
    let model = &bundle.model;
    let classes = classes(model)?;
    let tops = tops(&settings.top, classes)?;
    let allowed = backends(settings.backends.as_deref())?;
    let imported = match settings.float {
        None => None,
        Some(onnx) => {
            task.at("reading the float network", 0, 0, "");
            Some(onnx.import(None, Vec::new(), Vec::new())?)
        }
    };
    let float = imported.as_ref().or(origin.map(|origin| &origin.graph));
    if let Some(graph) = float {
        same_network(graph, model)?;
    }
    if let Some(limit) = settings.limit {
        pictures = spread(pictures, limit);
    }
    if pictures.is_empty() {
        return Err(Failure::input("no inputs"));
    }
    let mut runs = Vec::with_capacity(pictures.len());
    for (i, (one, class)) in pictures.iter().enumerate() {
        let name = one.name(i);
        task.at("running both networks", i, pictures.len(), &name);
        let run = measure(model, float, &one.source(i)?, *class);
        let run = run.map_err(|e| Failure::from(e).of(&name))?;
        if let Some(warning) = &run.warning {
            task.warning(format!("{name}: {warning}"));
        }
        runs.push(run);
    }
    let sample: Vec<&Run> = spread(runs.iter().collect(), settings.private);
    let privately = if sample.is_empty() {
        None
    } else {
        let choices = Choices::among(&model.network, &allowed)?;
        // (Nobody else has anything of this run: it may be unwound.)
        Some(private(&kit(), bundle.clone(), choices, &sample, &mut Heard { task, unwinds: true })?)
    };
    let integer: Vec<Ranking> = runs.iter().map(|run| run.integer).collect();
    let floats: Option<Vec<Ranking>> = runs.iter().map(|run| run.float).collect();
    let on_those: Vec<Ranking> = sample.iter().map(|run| run.integer).collect();
    let answer = json!({
        "model": format!("{} ({})", model.network.name, bundle.id()),
        "labels_by": labels_by,
        "classes": classes,
        "float": floats.map(|places| Score::new(&places, &integer, &tops)),
        "integer": Score::new(&integer, &integer, &tops),
        "integer_on_those": privately.as_ref().map(|_| Score::new(&on_those, &on_those, &tops)),
        "private": privately.map(|places| Score::new(&places, &on_those, &tops)),
    });
    Ok(answer.to_string())
}
