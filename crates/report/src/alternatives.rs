//! What else a plan could have been: what `jaguar plan --explain` prints, as a part of the page about costs.

use crate::terminal::table::count;
use jaguar_plan::planner::{Alternative, Decision, Explanation};

use crate::{mib, thousands};

/// All that was decided, as the page has it.
pub(crate) struct Alternatives {
    /// Rings, then bits of activations: of the whole query.
    pub whole: [Decided; 2],
    /// Backends, packings and digits: of single layers.
    pub layers: Vec<Decided>,
}

/// A decision of the planner, with all that it chose from.
pub(crate) struct Decided {
    /// What was decided, and of which layer.
    pub title: String,
    /// What the choice that was taken is called.
    pub taken: String,
    /// Why that one was taken, in words.
    pub reason: String,
    /// All choices, the taken one among them.
    pub options: Vec<Choice>,
}

/// A row of a decision's table.
pub(crate) struct Choice {
    pub what: String,
    pub taken: bool,
    /// Why it is impossible, if it is.
    pub refused: Option<String>,
    /// Time of a query, of its online part; bytes of both; round trips; hint; ciphertexts; responses; COTs; noise.
    pub cells: [String; 10],
}

impl Alternatives {
    pub(crate) fn new(explanation: &Explanation) -> Self {
        let Explanation { rings, ring_reason, activations, layers } = explanation;
        let fixed = "Fixed when the network is compiled (jaguar compile --activation-bits).";
        let whole = [("Ring", rings, ring_reason.as_str()), ("Bits of activations", activations, fixed)];
        let layer = |decision: &Decision| {
            let Decision { name, about, alternatives, reason, .. } = decision;
            let mut decided = decided(name.clone(), alternatives, reason, Unit::Milliseconds);
            // "digits" of "digits of 4 bits" goes without saying.
            if !decided.taken.starts_with(about) {
                decided.taken = format!("{about} {}", decided.taken);
            }
            decided
        };
        Self {
            whole: whole.map(|(title, all, why)| decided(title.into(), all, why, Unit::Seconds)),
            layers: layers.iter().map(layer).collect(),
        }
    }
}

/// What times of a table are in: single layers take milliseconds.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

fn decided(title: String, alternatives: &[Alternative], reason: &str, unit: Unit) -> Decided {
    let taken = alternatives.iter().find(|a| a.taken).map_or_else(String::new, |a| a.what.clone());
    let options = alternatives.iter().map(|a| choice(a, unit)).collect();
    Decided { title, taken, reason: reason.to_owned(), options }
}

fn choice(of: &Alternative, unit: Unit) -> Choice {
    let time = |seconds: Option<f64>| match (seconds, unit) {
        (None, _) => "–".to_owned(),
        (Some(s), Unit::Seconds) => format!("{s:.2}"),
        (Some(s), Unit::Milliseconds) => format!("{:.2}", 1e3 * s),
    };
    let some = |n: u64| if n == 0 { "–".to_owned() } else { thousands(n) };
    let cells = of.figures.map_or_else(Default::default, |f| {
        [
            time(f.seconds),
            time(f.online_seconds),
            mib(f.bytes),
            mib(f.online_bytes),
            some(f.rounds),
            mib(f.hint_bytes),
            some(f.ciphertexts as u64),
            some(f.responses as u64),
            if f.cots == 0 { "–".to_owned() } else { count(f.cots) },
            format!("{:.4}", f.noise_ulps),
        ]
    });
    let refused = of.figures.is_none().then(|| of.refused.clone().unwrap_or_else(|| "impossible".into()));
    Choice { what: of.what.clone(), taken: of.taken, refused, cells }
}
