//! `jaguar accuracy`: how often the right class comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use jaguar_cpu::Cpu;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Prediction, Reveal};
use jaguar_engine::verify::verify;
use jaguar_graph::float::Graph;
use jaguar_graph::import::{self, import_file};
use jaguar_graph::network::{Model, argmax};
use jaguar_graph::reference;
use jaguar_plan::{BackendId, Choices};
use jaguar_terminal::say;
use jaguar_terminal::table::{plain, trimmed};
use rayon::prelude::*;
use serde::Serialize;

use crate::notes::{in_one_line, name_skipped};
use crate::progress::Steps;
use crate::protocol;
use jaguar_samples::{self as samples, Axes};

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
    /// Labelled pictures: a folder with one folder a class (named as the model's labels, or by the class's number, or
    /// as many as there are classes, in the order of their names), or a list: lines of a file and its class (.csv: two
    /// columns), by name or number.
    #[arg(long)]
    data: PathBuf,
    /// The ONNX file that the model was compiled from: its own accuracy too.
    #[arg(long)]
    float: Option<PathBuf>,
    /// Run so many of the pictures privately, both parties here.
    #[arg(long, default_value_t = 0, value_name = "N")]
    private: usize,
    /// An answer counts if the right class is among so many of the first (default: 1,5).
    #[arg(long, value_delimiter = ',', value_parser = jaguar_terminal::at_least_one)]
    top: Vec<usize>,
    /// Take only so many of the pictures, evenly spread over them.
    #[arg(long, value_parser = jaguar_terminal::at_least_one, value_name = "N")]
    limit: Option<usize>,
    /// As for `compile`, for --float.
    #[arg(long, value_delimiter = ',', requires = "float")]
    input_shape: Option<Vec<usize>>,
    /// As for `compile`, for --float.
    #[arg(long, value_delimiter = ',', requires = "float")]
    output_name: Vec<String>,
    /// Which backends may run linear layers in the private runs.
    #[arg(long, value_delimiter = ',', default_values_t = protocol::secure(), value_parser = protocol::parse)]
    backends: Vec<BackendId>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Threads (0: one per core).
    #[arg(long, default_value_t = 0, value_parser = jaguar_terminal::thread_count)]
    threads: usize,
}

/// A picture and its class.
#[derive(Debug, PartialEq)]
struct Labelled {
    path: PathBuf,
    class: usize,
}

/// What one picture gave: how many classes come before the right one, and which is first.
#[derive(Clone, Copy)]
struct Place {
    rank: usize,
    first: usize,
}

impl Place {
    fn new<T: PartialOrd + Copy>(logits: &[T], class: usize) -> Self {
        let before = |(i, v): (usize, &T)| *v > logits[class] || (*v == logits[class] && i < class);
        let rank = logits.iter().enumerate().filter(|&(i, v)| before((i, v))).count();
        Self { rank, first: argmax(logits) }
    }
}

/// One way to run the network.
#[derive(Serialize)]
struct Found {
    pictures: usize,
    /// By k: for which part the right class is among the first k.
    top: BTreeMap<usize, f64>,
    /// For which part the class is the one of the integer network.
    same_class_as_integer: f64,
}

impl Found {
    /// `places` and the integer network's, of the same pictures.
    fn new(places: &[Place], integer: &[Place], tops: &[usize]) -> Self {
        let part = |n: usize| n as f64 / places.len().max(1) as f64;
        let within = |k: usize| part(places.iter().filter(|p| p.rank < k).count());
        let same = places.iter().zip(integer).filter(|(a, b)| a.first == b.first).count();
        Self {
            pictures: places.len(),
            top: tops.iter().map(|&k| (k, within(k))).collect(),
            same_class_as_integer: part(same),
        }
    }
}

#[derive(Serialize)]
struct Answer {
    model: String,
    labels_by: &'static str,
    classes: usize,
    /// How many pictures could not be read.
    failed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    float: Option<Found>,
    integer: Found,
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<Found>,
    /// The integer network on the pictures that were run privately.
    #[serde(skip_serializing_if = "Option::is_none")]
    integer_on_those: Option<Found>,
}

/// How many pictures are in memory at once, by thread.
const AT_ONCE: usize = 4;

pub fn run(args: &Args) -> Result<()> {
    jaguar_terminal::set_threads(args.threads)?;
    let bundle = Bundle::read(&args.model)?;
    let model = &bundle.model;
    let classes: usize = model.network.nodes.last().map_or(0, |n| n.shape.iter().product());
    ensure!(classes > 1, "{} has a single output: there are no classes to tell apart", args.model.display());
    let tops = tops(&args.top, classes)?;
    let (mut labelled, labels_by) = labelled(&args.data, &model.network.output.labels, classes)?;
    if let Some(limit) = args.limit {
        labelled = spread(labelled, limit);
    }
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
    let integer: Vec<Place> = runs.iter().map(|r| r.integer).collect();
    let floats: Option<Vec<Place>> = runs.iter().map(|r| r.float).collect();
    let name = format!("{} ({})", model.network.name, bundle.id());
    let sample = spread(runs.iter().map(|r| (r.class, r.integer, &r.path)).collect(), args.private);
    let private = private(args, &sample, &mut steps)?;
    let on_those: Vec<Place> = sample.iter().map(|s| s.1).collect();

    let answer = Answer {
        model: name,
        labels_by,
        classes,
        failed,
        float: floats.map(|f| Found::new(&f, &integer, &tops)),
        integer: Found::new(&integer, &integer, &tops),
        integer_on_those: private.as_ref().map(|_| Found::new(&on_those, &on_those, &tops)),
        private: private.map(|p| Found::new(&p, &on_those, &tops)),
    };
    if args.json {
        say!("{}", serde_json::to_string(&answer)?);
    } else {
        show(&answer, &tops);
    }
    ensure!(failed == 0, "{failed} of {} pictures could not be used", labelled.len());
    Ok(())
}

fn show(answer: &Answer, tops: &[usize]) {
    say!("model {}, {} classes, labels by {}", answer.model, answer.classes, answer.labels_by);
    let names: Vec<String> = tops.iter().map(|k| format!("top-{k}")).collect();
    let mut header = vec!["", "pictures"];
    header.extend(names.iter().map(String::as_str));
    header.push("class of the integer network");
    let mut table = plain(&header, 1);
    for (name, found) in [
        ("float", &answer.float),
        ("integer", &Some(Found { top: answer.integer.top.clone(), ..answer.integer })),
        ("private", &answer.private),
        ("integer, on those", &answer.integer_on_those),
    ] {
        let Some(found) = found else { continue };
        let mut row = vec![name.to_owned(), found.pictures.to_string()];
        row.extend(found.top.values().map(|part| format!("{:.2} %", 100.0 * part)));
        row.push(format!("{:.2} %", 100.0 * found.same_class_as_integer));
        table.add_row(row);
    }
    say!("{}", trimmed(&table));
}

/// The k of top-k: as asked for, or 1 and 5 as far as they make sense.
fn tops(asked: &[usize], classes: usize) -> Result<Vec<usize>> {
    if let Some(k) = asked.iter().find(|k| **k > classes) {
        bail!("--top {k}: the model has {classes} classes");
    }
    let mut tops = match asked {
        [] => vec![1, 5].into_iter().filter(|k| *k < classes).collect(),
        asked => asked.to_vec(),
    };
    tops.sort_unstable();
    tops.dedup();
    Ok(tops)
}

/// The float graph, which must be the one that the model comes from as far as shapes tell.
fn float(args: &Args, path: &Path, model: &Model) -> Result<Graph> {
    let options = import::Options {
        input_shape: args.input_shape.clone(),
        outputs: args.output_name.clone(),
        ..Default::default()
    };
    let graph = import_file(path, &options)?;
    let nodes = &model.network.nodes;
    let ends = |input, output: Option<usize>| (input, output.unwrap_or(0));
    let of_graph = ends(graph.input_shape(), graph.nodes.last().map(|n| n.shape.iter().product()));
    let of_model = ends(nodes[0].shape, nodes.last().map(|n| n.shape.iter().product()));
    ensure!(
        of_graph == of_model,
        "input {:?} and {} outputs; the compiled model has {:?} and {}: it comes from another network",
        of_graph.0,
        of_graph.1,
        of_model.0,
        of_model.1
    );
    Ok(graph)
}

/// What one picture gave.
struct Run {
    path: PathBuf,
    class: usize,
    integer: Place,
    float: Option<Place>,
    warning: Option<String>,
}

fn one(model: &Model, graph: Option<&Graph>, labelled: &Labelled) -> Result<Run> {
    let Labelled { path, class } = labelled;
    let source = samples::open(path)?;
    let at = || path.display().to_string();
    let input = source.input(&model.network).with_context(at)?;
    let warning = input.warning.map(|w| format!("{}: {w}", path.display()));
    let integer = Place::new(reference::run(Cpu::detect(), model, &input.integers)?.output(), *class);
    let float = match graph {
        None => None,
        Some(graph) => {
            let spec = &model.network.input;
            let tensor =
                source.tensor(&spec.image, graph.input_shape(), Axes::of_graph(graph)).with_context(at)?;
            let logits =
                graph.forward(Cpu::detect(), &tensor).context("the float network does not take the input")?;
            Some(Place::new(&logits, *class))
        }
    };
    Ok(Run { path: path.clone(), class: *class, integer, float, warning })
}

/// Real runs of both parties, if any are asked for.
fn private(
    args: &Args,
    sample: &[(usize, Place, &PathBuf)],
    steps: &mut Steps,
) -> Result<Option<Vec<Place>>> {
    if sample.is_empty() {
        return Ok(None);
    }
    // It is read once more: a run takes it with it.
    let bundle = Bundle::read(&args.model)?;
    let network = &bundle.model.network;
    let open = |(_, _, path): &(usize, Place, &PathBuf)| Ok(samples::open(path)?.input(network)?.integers);
    let inputs = sample.iter().map(open).collect::<Result<Vec<_>>>()?;
    let choices = Choices::among(network, &args.backends)?;
    steps.begin(format!("private runs of {} samples", inputs.len()));
    // A folder of its own: the hint of a check is no client's.
    let cache = std::env::temp_dir().join(format!("jaguar-accuracy-{}", std::process::id()));
    let checks = verify(bundle, choices, Reveal::Logits, &inputs, &cache);
    let _ = std::fs::remove_dir_all(&cache);
    let checks = checks?;
    steps.finish();
    let places = checks.iter().zip(sample).map(|(check, (class, _, _))| match &check.prediction {
        Prediction::Logits(logits) => Place::new(logits, *class),
        Prediction::Label(label) => Place { rank: usize::from(label != class), first: *label },
    });
    Ok(Some(places.collect()))
}

/// `count` of the items, evenly spread; all if there are no more.
fn spread<T>(items: Vec<T>, count: usize) -> Vec<T> {
    let all = items.len();
    let chosen: BTreeSet<usize> = (0..count.min(all)).map(|i| i * all / count.min(all)).collect();
    items.into_iter().enumerate().filter(|(i, _)| chosen.contains(i)).map(|(_, item)| item).collect()
}

/// The pictures and their classes, and how the classes were told.
fn labelled(data: &Path, labels: &[String], classes: usize) -> Result<(Vec<Labelled>, &'static str)> {
    let found = if data.is_dir() { by_folder(data, labels, classes) } else { by_list(data, labels, classes) };
    found.with_context(|| data.display().to_string())
}

/// The class that a name or a number stands for.
fn class_of(text: &str, labels: &[String], classes: usize) -> Result<usize> {
    let named: Vec<usize> = (0..labels.len()).filter(|&i| labels[i].eq_ignore_ascii_case(text)).collect();
    match (named.as_slice(), text.parse::<usize>()) {
        ([one], _) => Ok(*one),
        ([], Ok(number)) if number < classes => Ok(number),
        ([], Ok(number)) => bail!("class {number} is none of the model's: they are 0 to {}", classes - 1),
        ([], Err(_)) if labels.is_empty() => bail!("{text:?} is no number, and the model has no label names"),
        ([], Err(_)) => bail!("{text:?} is no label name of the model's, and no number"),
        ([a, b, ..], _) => bail!("{text:?} is the name of classes {a} and {b}: use numbers"),
    }
}

fn by_folder(data: &Path, labels: &[String], classes: usize) -> Result<(Vec<Labelled>, &'static str)> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !name.starts_with('.') {
            folders.push((name, entry.path()));
        }
    }
    folders.sort();
    ensure!(!folders.is_empty(), "there are no folders in it; one a class is needed, or a list");
    let named: Result<Vec<usize>> = folders.iter().map(|(name, _)| class_of(name, labels, classes)).collect();
    let (of_folder, by) = match named {
        Ok(named) => {
            let by_name = folders.iter().all(|(name, _)| labels.iter().any(|l| l.eq_ignore_ascii_case(name)));
            (named, if by_name { "folder name" } else { "folder number" })
        }
        // As training code numbers them.
        Err(_) if folders.len() == classes => ((0..classes).collect(), "the order of the folders' names"),
        Err(e) => {
            bail!("{} folders for {classes} classes, and their names do not say which: {e:#}", folders.len())
        }
    };
    let mut all = Vec::new();
    for ((_, folder), class) in folders.iter().zip(of_folder) {
        let found = samples::folder::folder(folder)?;
        name_skipped(&found);
        all.extend(found.files.into_iter().map(|path| Labelled { path, class }));
    }
    Ok((all, by))
}

fn by_list(data: &Path, labels: &[String], classes: usize) -> Result<(Vec<Labelled>, &'static str)> {
    let text = std::fs::read_to_string(data)?;
    let folder = data.parent().unwrap_or(Path::new(""));
    let columns =
        data.extension().and_then(|e| e.to_str()).and_then(|e| match e.to_ascii_lowercase().as_str() {
            "csv" => Some(b','),
            "tsv" => Some(b'\t'),
            _ => None,
        });
    let mut all = Vec::new();
    for (number, line) in rows(&text, columns)? {
        let at = || format!("line {number}");
        let (file, label) = line.with_context(at)?;
        let path = folder.join(&file);
        match class_of(&label, labels, classes) {
            Ok(class) => all.push(Labelled { path, class }),
            // The names of the columns.
            Err(_) if all.is_empty() && columns.is_some() && !path.exists() => {}
            Err(e) => return Err(e).with_context(at),
        }
    }
    ensure!(!all.is_empty(), "the list is empty");
    Ok((all, "list"))
}

/// A file and its label, or what is wrong with the line.
type Row = (usize, Result<(String, String)>);

/// The rows of a list with their numbers: two columns, or a file and behind the last space its class.
fn rows(text: &str, columns: Option<u8>) -> Result<Vec<Row>> {
    let Some(delimiter) = columns else {
        let lines =
            text.lines().map(str::trim).zip(1..).filter(|(l, _)| !l.is_empty() && !l.starts_with('#'));
        let split = |line: &str| {
            // A label name may have spaces in it; then a tab is before it.
            let parts = line.rsplit_once('\t').or_else(|| line.rsplit_once(char::is_whitespace));
            let (file, label) = parts.context("a file and its class are needed")?;
            Ok((file.trim().to_owned(), label.trim().to_owned()))
        };
        return Ok(lines.map(|(line, number)| (number, split(line))).collect());
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let rows = reader.records().map(|record| {
        let record = record?;
        let number = record.position().map_or(0, |p| p.line() as usize);
        let row = match (record.get(0), record.get(1)) {
            (Some(file), Some(label)) => Ok((file.to_owned(), label.to_owned())),
            _ => Err(anyhow::anyhow!("a file and its class are needed, in two columns")),
        };
        Ok((number, row))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["cat", "dog", "crane", "crane", "tabby, cat"].map(str::to_owned).to_vec()
    }

    #[test]
    fn classes_have_names_and_numbers() {
        let class = |text: &str| class_of(text, &names(), 5).map_err(|e| e.to_string());
        assert_eq!(class("dog"), Ok(1));
        assert_eq!(class("Dog"), Ok(1));
        assert_eq!(class("tabby, cat"), Ok(4));
        assert_eq!(class("3"), Ok(3));
        for (text, part) in
            [("crane", "2 and 3"), ("5", "0 to 4"), ("bird", "no label name"), ("-1", "no number")]
        {
            assert!(class(text).is_err_and(|e| e.contains(part)), "{text}");
        }
        assert_eq!(class_of("7", &["7".to_owned(), "3".to_owned()], 2).unwrap(), 0, "a name first");
        assert!(class_of("cat", &[], 5).is_err_and(|e| e.to_string().contains("has no label names")));
    }

    #[test]
    fn lists_are_read() {
        let read = |text: &str, columns| -> Vec<(usize, Option<(String, String)>)> {
            rows(text, columns).unwrap().into_iter().map(|(n, row)| (n, row.ok())).collect()
        };
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        let list = "# comment\na.jpg 1\n\nmy photo.jpg  2\nb.png\ttabby, cat\nalone\n";
        assert_eq!(
            read(list, None),
            [
                (2, pair("a.jpg", "1")),
                (4, pair("my photo.jpg", "2")),
                (5, pair("b.png", "tabby, cat")),
                (6, None)
            ]
        );
        let csv = "file,label\na.jpg, 1\n\"b,c.jpg\",\"tabby, cat\"\nalone\n";
        assert_eq!(
            read(csv, Some(b',')),
            [
                (1, pair("file", "label")),
                (2, pair("a.jpg", "1")),
                (3, pair("b,c.jpg", "tabby, cat")),
                (4, None)
            ]
        );
    }

    #[test]
    fn samples_are_spread() {
        assert_eq!(spread((0..10).collect(), 3), [0, 3, 6]);
        assert_eq!(spread((0..3).collect(), 7), [0, 1, 2]);
        assert!(spread((0..3).collect(), 0).is_empty());
        assert!(spread(Vec::<u8>::new(), 4).is_empty());
    }

    #[test]
    fn ranks_and_ties() {
        let logits = [3, 5, 5, 1];
        assert_eq!([0, 1, 2, 3].map(|c| Place::new(&logits, c).rank), [2, 0, 1, 3]);
        assert_eq!(Place::new(&logits, 3).first, 1);
        assert_eq!(tops(&[], 10).unwrap(), [1, 5]);
        assert_eq!(tops(&[], 4).unwrap(), [1]);
        assert_eq!(tops(&[5, 2, 5], 5).unwrap(), [2, 5]);
        assert!(tops(&[6], 5).is_err());
    }
}
