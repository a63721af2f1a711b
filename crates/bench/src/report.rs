//! What a benchmark hands out: tables for people, the same tables and every figure as JSON, and a plot.
//!
//! A table's cells are made once, here: what is printed, what JSON carries, and what `tools/benchmark_tables.py` puts into
//! `docs/benchmarks.md` are the same.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jaguar_report::terminal::say;
use jaguar_report::terminal::table::{plain, trimmed};
use serde::Serialize;

use super::limits::Peaks;
use super::plot::Dots;
use super::setting::Setting;
use super::statistics::significant;

/// Where a benchmark's figures go, besides standard output.
#[derive(clap::Args, Clone, Default)]
pub struct Output {
    /// Also writes the figures to this file.
    #[arg(long, value_name = "FILE.json")]
    json: Option<PathBuf>,
    /// Also draws them into this file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Figures for people.
#[derive(Serialize)]
pub struct Table {
    /// By which `docs/benchmarks.md` asks for it.
    pub name: &'static str,
    pub title: String,
    pub header: Vec<&'static str>,
    /// The columns from here on are numbers.
    pub numbers_from: usize,
    pub rows: Vec<Vec<String>>,
    /// What a reader must know, below.
    pub notes: String,
}

/// What was set out to be reached, and what was measured.
#[derive(Clone)]
pub struct Goal {
    pub what: String,
    pub target: Target,
    pub figure: f64,
    /// The figure that this machine and link would allow, where that is known.
    pub limit: Option<f64>,
}

#[derive(Clone, Copy)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn is_met(&self) -> bool {
        match self.target {
            Target::AtMost(target) => self.figure <= target,
            Target::AtLeast(target) => self.figure >= target,
        }
    }

    /// How many times better the limit is than the figure.
    fn distance(&self) -> Option<f64> {
        self.limit.map(|limit| match self.target {
            Target::AtMost(_) => self.figure / limit,
            Target::AtLeast(_) => limit / self.figure,
        })
    }
}

impl Table {
    /// The goals that a benchmark is for.
    pub fn goals(goals: &[Goal]) -> Self {
        let row = |goal: &Goal| {
            let target = match goal.target {
                Target::AtMost(target) => format!("≤ {}", significant(target)),
                Target::AtLeast(target) => format!("≥ {}", significant(target)),
            };
            let or_none = |value: Option<f64>| value.map_or("-".into(), significant);
            vec![
                goal.what.clone(),
                target,
                significant(goal.figure),
                if goal.is_met() { "yes" } else { "no" }.to_owned(),
                or_none(goal.limit),
                or_none(goal.distance()),
            ]
        };
        Self {
            name: "goals",
            title: "goals".into(),
            header: vec!["goal", "target", "measured", "met", "limit", "distance"],
            numbers_from: 1,
            rows: goals.iter().map(row).collect(),
            notes: String::new(),
        }
    }
}

/// All that one benchmark found.
#[derive(Serialize)]
pub struct Report<F> {
    pub setting: Setting,
    /// What this machine can do at best, measured in the same run.
    pub peaks: Peaks,
    pub tables: Vec<Table>,
    pub figures: F,
}

impl Output {
    /// Prints the tables; writes and draws, if asked to.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn hand_out<F: Serialize>(&self, report: &Report<F>, plot: &Dots) -> Result<()> {
        say!("{}\n{}", report.setting.line(), report.peaks.line());
        for table in &report.tables {
            say!("\n{}\n", table.title);
            let mut text = plain(&table.header, table.numbers_from);
            for row in &table.rows {
                text.add_row(row);
            }
            say!("{}", trimmed(&text));
            if !table.notes.is_empty() {
                say!("{}", table.notes);
            }
        }
        if let Some(path) = &self.json {
            write(path, &(serde_json::to_string(report)? + "\n"))?;
        }
        if let Some(path) = &self.plot {
            write(path, &plot.svg()?)?;
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Whether there are goals, and all are met.
    pub fn met(goals: &[Goal]) -> bool {
        !goals.is_empty() && goals.iter().all(Goal::is_met)
    }

    /// Whether there are goals, and all are missed.
    pub fn missed(goals: &[Goal]) -> bool {
        !goals.is_empty() && goals.iter().all(|goal| !goal.is_met())
    }

    #[test]
    fn goals_are_met_from_their_side_and_distances_are_above_one() {
        let goal = |target, figure, limit| Goal { what: "it".into(), target, figure, limit };
        let goals = [
            goal(Target::AtMost(7.0), 1.5, Some(0.5)),
            goal(Target::AtMost(7.0), 7.5, None),
            goal(Target::AtLeast(10.0), 20.0, Some(40.0)),
            goal(Target::AtLeast(10.0), 9.0, None),
        ];
        let rows = Table::goals(&goals).rows;
        assert_eq!(rows[0][1..], ["≤ 7.00", "1.50", "yes", "0.500", "3.00"]);
        assert_eq!(rows[1][1..], ["≤ 7.00", "7.50", "no", "-", "-"]);
        assert_eq!(rows[2][1..], ["≥ 10.0", "20.0", "yes", "40.0", "2.00"]);
        assert_eq!(rows[3][3], "no");
    }
}
