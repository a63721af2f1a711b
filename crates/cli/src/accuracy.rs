//! `jaguar accuracy`: how often the right class comes out.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use jaguar::bundle::Bundle;
use jaguar::compile::samples::labelled::{Found, Labelled, labelled};
use jaguar::float::Graph;
use jaguar::import::{self, import_file};
use jaguar::network::Model;
use jaguar::plan::Choices;
use jaguar::progress::NoProgress;
use jaguar::reports::accuracy::{
    AccuracyError, Ranking, Run, Score, classes, measure, private, same_network, spread, tops,
};
use jaguar::reports::terminal::{in_one_line, say};
use rayon::prelude::*;
use serde::Serialize;

use crate::one_round::{self, Unencrypted};
use crate::progress::Steps;
use crate::scores::{AT_ONCE, Measured, table};
use crate::{kit, protocol};

/// Groups of the options in `--help`.
const PICTURES: &str = "Which pictures, and what counts";
const COMPARED: &str = "What to compare with";
const RUN: &str = "How it runs and what is shown";

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
    /// Labelled pictures: a folder with one folder a class, or a list of files.
    ///
    /// Folders are named as the model's labels, or by the class's number, or there are as many as classes, in the order of their names. A
    /// list has lines of a file and its class (.csv: two columns), by name or number.
    #[arg(long, help_heading = PICTURES, value_name = "FOLDER|LIST")]
    data: PathBuf,
    /// Take only so many of the pictures, evenly spread over them.
    #[arg(long, help_heading = PICTURES, value_parser = jaguar::reports::terminal::at_least_one, value_name = "PICTURES")]
    limit: Option<usize>,
    /// How many first places count as right (default: 1,5).
    #[arg(long, help_heading = PICTURES, value_name = "CLASSES", value_delimiter = ',', value_parser = jaguar::reports::terminal::at_least_one)]
    top: Vec<usize>,
    /// Run so many pictures privately.
    ///
    /// With both parties here.
    #[arg(long, help_heading = COMPARED, default_value_t = 0, value_name = "PICTURES")]
    private: usize,
    /// The model's ONNX file: its accuracy too.
    #[arg(long, help_heading = COMPARED, value_name = "FILE")]
    float: Option<PathBuf>,
    /// That file's input shape, as `jaguar compile` took it.
    #[arg(long, help_heading = COMPARED, value_name = "SHAPE", value_delimiter = ',', requires = "float")]
    input_shape: Option<Vec<usize>>,
    /// That file's outputs, as `jaguar compile` took them.
    #[arg(long, help_heading = COMPARED, value_name = "NAME", value_delimiter = ',', requires = "float")]
    output_name: Vec<String>,
    /// That file's constant inputs, as `jaguar compile` took them.
    #[arg(long, help_heading = COMPARED, value_name = "NAME=NUMBER|FILE", value_parser = crate::compile::parse_constant)]
    constant: Vec<(String, Vec<f32>)>,
    #[command(flatten, next_help_heading = RUN)]
    backends: protocol::Backends,
    /// Print JSON.
    #[arg(long, help_heading = RUN)]
    json: bool,
    /// Threads that compute (0: one per core).
    #[arg(long, help_heading = RUN, default_value_t = 0, value_parser = jaguar::reports::terminal::thread_count)]
    threads: usize,
}

#[derive(Serialize)]
struct Answer {
    model: String,
    labels_by: &'static str,
    classes: usize,
    /// How many pictures could not be read.
    failed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    float: Option<Score>,
    integer: Score,
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<Score>,
    /// The integer network on the pictures that were run privately.
    #[serde(skip_serializing_if = "Option::is_none")]
    integer_on_those: Option<Score>,
}

pub fn run(args: &Args) -> Result<()> {
    jaguar::reports::terminal::set_threads(args.threads)?;
    for protocol in kit::ONE_ROUND {
        if let Some(model) = protocol.open(&args.model)? {
            return one_round(args, &*model, protocol.name());
        }
    }
    let bundle = Bundle::read(&args.model, kit::kit().operators())?;
    let model = &bundle.model;
    let classes = classes(model).with_context(|| args.model.display().to_string())?;
    let (found, tops) = asked(args, &model.network.output.labels, classes)?;
    let (labelled, labels_by) = (found.pictures, found.by);
    let mut steps = Steps::default();
    let graph = match &args.float {
        None => None,
        Some(path) => {
            steps.begin(format!("reading {}", path.display()));
            Some(float(args, path, model).with_context(|| path.display().to_string())?)
        }
    };

    // Each picture through both networks.
    let mut runs = Vec::new();
    let mut failed = 0;
    let at_once = AT_ONCE * rayon::current_num_threads();
    for (i, some) in labelled.chunks(at_once).enumerate() {
        steps.begin(format!(
            "pictures {} to {} of {}",
            i * at_once + 1,
            i * at_once + some.len(),
            labelled.len()
        ));
        let results: Vec<Result<Run>> = some.par_iter().map(|l| one(model, graph.as_ref(), l)).collect();
        steps.finish();
        for result in results {
            match result {
                Ok(run) => {
                    if let Some(warning) = &run.warning {
                        eprintln!("warning: {warning}");
                    }
                    runs.push(run);
                }
                Err(e) => {
                    failed += 1;
                    eprintln!("error: {}", in_one_line(e.as_ref()));
                }
            }
        }
    }
    ensure!(!runs.is_empty(), "none of the {} pictures could be used", labelled.len());
    let integer: Vec<Ranking> = runs.iter().map(|r| r.integer).collect();
    let floats: Option<Vec<Ranking>> = runs.iter().map(|r| r.float).collect();
    let name = format!("{} ({})", model.network.name, bundle.id());
    let sample = spread(runs.iter().collect(), args.private);
    let private = if sample.is_empty() {
        None
    } else {
        steps.begin(format!("private runs of {} samples", sample.len()));
        let choices = Choices::among(&model.network, &args.backends.named())?;
        let places = private(&kit::kit(), bundle.clone(), choices, &sample, &mut NoProgress)?;
        steps.finish();
        Some(places)
    };
    let on_those: Vec<Ranking> = sample.iter().map(|run| run.integer).collect();

    let answer = Answer {
        model: name,
        labels_by,
        classes,
        failed,
        float: floats.map(|f| Score::new(&f, &integer, &tops)),
        integer: Score::new(&integer, &integer, &tops),
        integer_on_those: private.as_ref().map(|_| Score::new(&on_those, &on_those, &tops)),
        private: private.map(|p| Score::new(&p, &on_those, &tops)),
    };
    if args.json {
        say!("{}", serde_json::to_string(&answer)?);
    } else {
        show(&answer, &tops);
    }
    ensure!(failed == 0, "{failed} of {} pictures could not be used", labelled.len());
    Ok(())
}

/// The pictures that are asked for, and how many first places count.
fn asked(args: &Args, labels: &[String], classes: usize) -> Result<(Found, Vec<usize>)> {
    let tops = tops(&args.top, classes).map_err(|error| match error {
        AccuracyError::Top { k, classes } => anyhow::anyhow!("--top {k}: the model has {classes} classes"),
        other => other.into(),
    })?;
    let mut found = labelled(&args.data, labels, classes)?;
    found.skipped.iter().for_each(|skipped| eprintln!("note: {skipped}"));
    if let Some(limit) = args.limit {
        found.pictures = spread(found.pictures, limit);
    }
    Ok((found, tops))
}

/// Of a model of one round, which has the float network in itself and runs no backend.
fn one_round(args: &Args, model: &dyn Unencrypted, protocol: &str) -> Result<()> {
    let other = [
        ("--private", args.private > 0),
        ("--float", args.float.is_some()),
        ("--backends", args.backends.are_given()),
    ];
    for (option, given) in other {
        ensure!(!given, "{option} is for interactive models; {} is one for {protocol}", args.model.display());
    }
    ensure!(model.classes() > 1, "{}: a single output tells no classes apart", args.model.display());
    let (found, tops) = asked(args, model.labels(), model.classes())?;
    one_round::accuracy::run(model, found, &tops, args.json)
}

fn show(answer: &Answer, tops: &[usize]) {
    say!("model {}, {} classes, labels by {}", answer.model, answer.classes, answer.labels_by);
    let rows: Vec<Measured<'_>> = [
        ("float", answer.float.as_ref()),
        ("integer", Some(&answer.integer)),
        ("private", answer.private.as_ref()),
        ("integer, on those", answer.integer_on_those.as_ref()),
    ]
    .into_iter()
    .filter_map(|(name, found)| Some((name, found?)))
    .collect();
    say!("{}", table(&rows, tops, "class of the integer network"));
    say!("(in brackets: where it lies with 95 % confidence, were the pictures drawn by chance)");
}

/// The float graph, which must be the one that the model comes from as far as shapes tell.
fn float(args: &Args, path: &std::path::Path, model: &Model) -> Result<Graph> {
    let options = import::Options {
        input_shape: args.input_shape.clone(),
        outputs: args.output_name.clone(),
        constants: args.constant.clone(),
        ..import::Options::new(kit::kit().operators())
    };
    let graph = import_file(path, &options).with_context(|| path.display().to_string())?;
    same_network(&graph, model)?;
    Ok(graph)
}

fn one(model: &Model, graph: Option<&Graph>, labelled: &Labelled) -> Result<Run> {
    let at = || labelled.path.display().to_string();
    let source = jaguar::compile::samples::open(&labelled.path)?;
    let mut run = measure(model, graph, &source, labelled.class).with_context(at)?;
    run.warning = run.warning.map(|warning| format!("{}: {warning}", at()));
    Ok(run)
}
