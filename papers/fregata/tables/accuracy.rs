//! Figure 9: how often the right class comes out of the float network, of the integer network, and of private runs.
//!
//! The integer network is what every backend here computes, so its accuracy is Fregata's; private runs show it on some pictures.
//! The paper's figure has ResNet18, ResNet50 and ResNet101 on CIFAR-10, in plaintext and by five frameworks, without numbers.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jaguar_compile::samples::labelled::labelled;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::progress::NoProgress;
use jaguar_graph::import::{Options, import_file};
use jaguar_graph::network::Operators;
use jaguar_plan::{BackendId, Choices};
use jaguar_report::accuracy::{Ranking, Score, classes, measure, private, same_network, spread};
use rayon::prelude::*;
use serde::Serialize;

use crate::kit::kit;
use crate::plot::{self, Dots};
use crate::report::Table;

/// What accuracy is told from: for each model the ONNX file that it was compiled from and labelled pictures, in the order of the
/// models; one stands for all.
#[derive(clap::Args)]
pub struct Pictures {
    /// For `accuracy`: the ONNX file that each model was compiled from, in the order of the models; one stands for all.
    #[arg(long, value_name = "NETWORK.onnx", value_delimiter = ',', requires = "data")]
    float: Vec<PathBuf>,
    /// For `accuracy`: labelled pictures for each model, as `jaguar accuracy` takes them; one stands for all.
    #[arg(long, value_name = "PICTURES", value_delimiter = ',', requires = "float")]
    data: Vec<PathBuf>,
    /// For `accuracy`: so many of the pictures are run privately, too, under the backend fregata-hme.
    #[arg(long, default_value_t = 1, value_name = "N")]
    private: usize,
}

impl Pictures {
    /// Whether there are pictures.
    pub fn is_given(&self) -> bool {
        !self.data.is_empty()
    }
}

/// What was found of one model.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub network: String,
    pub activation_bits: u32,
    pub weight_bits: u32,
    pub float: Score,
    pub integer: Score,
    /// For which part of the pictures the integer network has the class of the float network.
    pub same_class_as_float: f64,
    /// Beside the integer network, on the pictures that were run.
    pub private: Option<Score>,
}

/// What belongs to model number `index`.
fn of<'a>(what: &str, files: &'a [PathBuf], index: usize, models: usize) -> Result<&'a Path> {
    ensure!(
        files.len() == 1 || files.len() == models,
        "--{what}: {} are given for {models} models: give one, or one for each",
        files.len()
    );
    Ok(&files[if files.len() == 1 { 0 } else { index }])
}

/// Both networks on all pictures, and some of these privately.
///
/// # Errors
/// When a file cannot be read, or a picture is none.
pub fn measure_all(args: &Pictures, models: &[PathBuf], backend: BackendId) -> Result<Vec<Found>> {
    let one = |(index, path): (usize, &PathBuf)| -> Result<Found> {
        let bundle = Bundle::read(path, kit().operators())?;
        let model = &bundle.model;
        let classes = classes(model)?;
        let graph = import_file(
            of("float", &args.float, index, models.len())?,
            &Options::new(&Operators::standard()),
        )?;
        same_network(&graph, model)?;
        let data = of("data", &args.data, index, models.len())?;
        let pictures = labelled(data, &model.network.output.labels, classes)?.pictures;
        ensure!(!pictures.is_empty(), "{}: no pictures", data.display());
        let run = |labelled: &jaguar_compile::samples::labelled::Labelled| -> Result<_> {
            let source = jaguar_compile::samples::open(&labelled.path)?;
            Ok(measure(model, Some(&graph), &source, labelled.class)?)
        };
        let runs = pictures.par_iter().map(run).collect::<Result<Vec<_>>>()?;
        let integer: Vec<Ranking> = runs.iter().map(|run| run.integer).collect();
        let float: Vec<Ranking> =
            runs.iter().map(|run| run.float).collect::<Option<_>>().context("no float network")?;
        let some = spread(runs.iter().collect(), args.private);
        let private = if some.is_empty() {
            None
        } else {
            let beside: Vec<Ranking> = some.iter().map(|run| run.integer).collect();
            let choices = Choices::among(&model.network, &[backend])?;
            let places = private(&kit(), bundle.clone(), choices, &some, &mut NoProgress)?;
            Some(Score::new(&places, &beside, &[1]))
        };
        let beside_float = Score::new(&integer, &float, &[1]);
        Ok(Found {
            network: model.network.name.clone(),
            // (A bundle counts the guard bits among them.)
            activation_bits: model.network.activation_bits.saturating_sub(model.network.guard_bits),
            weight_bits: model.network.weight_bits,
            float: Score::new(&float, &integer, &[1]),
            integer: Score::new(&integer, &integer, &[1]),
            same_class_as_float: beside_float.same_class,
            private,
        })
    };
    let told = |(index, path): (usize, &PathBuf)| {
        eprintln!("accuracy of {} ...", path.display());
        one((index, path)).with_context(|| path.display().to_string())
    };
    models.iter().enumerate().map(told).collect()
}

fn percent(part: f64) -> String {
    format!("{:.1}", 100.0 * part)
}

/// Figure 9.
pub fn table(found: &[Found]) -> Table {
    let row = |one: &Found| {
        let top = |score: &Score| percent(score.top[&1]);
        let [low, high] = one.float.interval[&1].map(percent);
        vec![
            one.network.clone(),
            one.activation_bits.to_string(),
            one.weight_bits.to_string(),
            one.float.pictures.to_string(),
            top(&one.float),
            format!("{low} to {high}"),
            top(&one.integer),
            percent(one.same_class_as_float),
            one.private.as_ref().map_or("-".into(), |score| score.pictures.to_string()),
            one.private.as_ref().map_or("-".into(), |score| percent(score.same_class)),
        ]
    };
    Table {
        name: "accuracy",
        title: "how often the right class comes out: Figure 9 of the paper".into(),
        header: vec![
            "network",
            "activation bits",
            "weight bits",
            "pictures",
            "float, %",
            "with 95 %",
            "integer, %",
            "class of float, %",
            "private runs",
            "class of integer, %",
        ],
        numbers_from: 1,
        rows: found.iter().map(row).collect(),
        notes: "With 95 %: where the float network's accuracy lies, were the pictures drawn by chance. The integer network is what every \
                backend computes. Figure 9 is a plot without numbers (ResNet18, 50 and 101 on CIFAR-10); its text says that accuracies are \
                very close."
            .into(),
    }
}

/// The same as dots.
pub fn plot(found: &[Found]) -> Dots {
    let rows = found.iter().map(|one| plot::Row {
        label: format!("{}, {} bits", one.network, one.activation_bits),
        dots: [(0, &one.float), (1, &one.integer)].map(|(i, score)| (i, 100.0 * score.top[&1])).to_vec(),
    });
    Dots {
        title: "How often the right class comes out".into(),
        axis: "%".into(),
        series: vec!["float", "integer"],
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_class_shows() {
        let place = |rank, first| Ranking { rank, first };
        let float = [place(0, 3), place(0, 4), place(1, 5), place(0, 6)];
        let integer = [place(0, 3), place(2, 9), place(1, 5), place(0, 6)];
        let found = Found {
            network: "it".into(),
            activation_bits: 8,
            weight_bits: 15,
            float: Score::new(&float, &integer, &[1]),
            integer: Score::new(&integer, &integer, &[1]),
            same_class_as_float: Score::new(&integer, &float, &[1]).same_class,
            private: Some(Score::new(&float[..2], &integer[..2], &[1])),
        };
        let row = &table(&[found]).rows[0];
        assert_eq!(row[3..], ["4", "75.0", "30.1 to 95.4", "50.0", "75.0", "2", "50.0"]);
    }

    #[test]
    fn each_model_has_its_own_or_all_have_one() {
        let files = ["a", "b"].map(PathBuf::from);
        assert_eq!(of("float", &files, 1, 2).unwrap(), Path::new("b"));
        assert_eq!(of("float", &files[..1], 1, 2).unwrap(), Path::new("a"));
        assert!(of("float", &files, 0, 3).is_err() && of("data", &[], 0, 3).is_err());
    }
}
