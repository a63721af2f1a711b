//! Answers as rows of a CSV file, one an input: written as they come, so that a run that ended early can go on.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use csv::{ReaderBuilder, StringRecord, Writer};
use jaguar::answer::class_name;
use jaguar::client::Prediction;
use jaguar::network::Network;
use jaguar::report::Report;

/// The columns. `label` is the class's number; `probability` is empty where the server reveals the label only; `error` says why an
/// input could not be used, and all between are empty then.
const COLUMNS: [&str; 9] = [
    "input",
    "label",
    "class",
    "probability",
    "offline_seconds",
    "online_seconds",
    "bytes_up",
    "bytes_down",
    "error",
];

/// A CSV file with a row an input, which a later run can go on with.
pub struct Rows {
    path: PathBuf,
    writer: Writer<File>,
    /// Inputs that have an answer already.
    done: HashSet<String>,
}

impl Rows {
    /// Begins a file; or, to `resume`, goes on with one that is there: its answers stay, and rows with an error, or cut off, are
    /// removed, since their inputs are tried anew.
    pub fn open(path: &Path, resume: bool) -> Result<Self> {
        let shown = || format!("--csv {}", path.display());
        let there = path.exists();
        if there && !resume {
            bail!("{}: this file is there; --resume goes on with it, or remove it first", shown());
        }
        let kept = if there { answers(path).with_context(shown)? } else { Vec::new() };
        // Whole or not at all: a run that ends here loses no answer.
        let mut writer = Writer::from_writer(Vec::new());
        writer.write_record(COLUMNS)?;
        kept.iter().try_for_each(|row| writer.write_record(row))?;
        let bytes = writer.into_inner().map_err(|e| e.into_error()).with_context(shown)?;
        jaguar::bundle::files::replace(path, &bytes).with_context(shown)?;
        let file = OpenOptions::new().append(true).open(path).with_context(shown)?;
        let done = kept.iter().filter_map(|row| row.get(0)).map(str::to_owned).collect();
        Ok(Self { path: path.to_owned(), writer: Writer::from_writer(file), done })
    }

    /// Whether this input has an answer already.
    pub fn has(&self, input: &Path) -> bool {
        self.done.contains(&*input.to_string_lossy())
    }

    /// Adds an answer. Its row has its part of the query's cost, which so many answers share.
    pub fn answer(
        &mut self,
        input: &Path,
        network: &Network,
        prediction: &Prediction,
        (report, answers): (&Report, usize),
    ) -> Result<()> {
        let label = prediction.label(network);
        let probability = prediction.top(network, 1).first().map(|c| format!("{:.6}", c.probability));
        let (before, online) = (&report.offline, &report.online);
        self.write([
            input.to_string_lossy().into_owned(),
            label.to_string(),
            class_name(network, label),
            probability.unwrap_or_default(),
            format!("{:.3}", report.offline_seconds / answers as f64),
            format!("{:.3}", report.online_seconds / answers as f64),
            ((before.bytes_up + online.bytes_up) / answers as u64).to_string(),
            ((before.bytes_down + online.bytes_down) / answers as u64).to_string(),
            String::new(),
        ])
    }

    /// Adds an input that could not be used.
    pub fn error(&mut self, input: &Path, error: &str) -> Result<()> {
        let mut row: [String; COLUMNS.len()] = Default::default();
        row[0] = input.to_string_lossy().into_owned();
        row[COLUMNS.len() - 1] = error.to_owned();
        self.write(row)
    }

    fn write(&mut self, row: [String; COLUMNS.len()]) -> Result<()> {
        self.writer.write_record(&row)?;
        self.writer.flush().with_context(|| self.path.display().to_string())
    }
}

/// The rows of a file that are answers.
fn answers(path: &Path) -> Result<Vec<StringRecord>> {
    let mut reader = ReaderBuilder::new().flexible(true).from_path(path)?;
    if reader.headers()? != COLUMNS.as_slice() {
        bail!("this file was not written by `jaguar predict --csv`: its columns are others");
    }
    let mut rows = Vec::new();
    for row in reader.records() {
        // A run that was cut off may have left half a row.
        let Ok(row) = row else { break };
        if row.len() == COLUMNS.len() && !row[1].is_empty() && row[COLUMNS.len() - 1].is_empty() {
            rows.push(row);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stay_and_errors_are_tried_anew() {
        let folder = std::env::temp_dir().join(format!("jaguar-rows-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("out.csv");
        let header = COLUMNS.join(",");
        let whole = "\"a,\"\"1\"\".png\",3,cat,0.5,1.000,0.100,10,20,";
        let broken = "b.png,,,,,,,,\"no image,\nat all\"";
        std::fs::write(&path, format!("{header}\n{whole}\n{broken}\nc.png,3,cat,0.")).unwrap();
        assert!(Rows::open(&path, false).is_err());
        let mut rows = Rows::open(&path, true).unwrap();
        let has = |rows: &Rows| ["a,\"1\".png", "b.png", "c.png"].map(|name| rows.has(Path::new(name)));
        assert_eq!(has(&rows), [true, false, false]);
        rows.error(Path::new("b.png"), "still none").unwrap();
        drop(rows);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!("{header}\n{whole}\nb.png,,,,,,,,still none\n")
        );
        std::fs::write(&path, "input,class\nx.png,3\n").unwrap();
        assert!(Rows::open(&path, true).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "input,class\nx.png,3\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
