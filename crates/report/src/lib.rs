//! Reports as web pages: what compiling did to a network ([`compiled`]), what a query will cost ([`cost`]), and when both parties did
//! what ([`timeline`]).
//!
//! A page is one file. It has its style, its script and its pictures in itself and may load nothing: its content security policy says
//! so to the browser. It can be read on a dark and on a light screen, on paper, and with a screen reader. Each number stands in a
//! table; pictures repeat what tables say, and colours what words say.
//!
//! # What a page may hold
//!
//! Names of layers, files and classes are whatever a model's file, or a server, says. Templates (askama) escape them, in the data of
//! scripts too. Should a name become a script all the same, the browser does not run it: scripts need the page's nonce.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod accuracy;
mod alternatives;
mod batch;
pub mod compiled;
pub mod cost;
mod draw;
mod subject;
pub mod tables;
pub mod terminal;
pub mod timeline;

use askama::Template;
use jaguar_graph::network::Part;

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The system gives no random bytes for the nonce.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// A template could not be filled in.
    #[error("the page could not be made: {0}")]
    Template(#[from] askama::Error),
    /// A picture could not be encoded.
    #[error("a picture could not be encoded: {0}")]
    Picture(#[from] image::ImageError),
    /// There is no such plan for single images.
    #[error(transparent)]
    Plan(#[from] jaguar_plan::PlanError),
    /// A trace that is not one of `jaguar predict --trace`.
    #[error("no trace: {0}")]
    Trace(#[from] serde_json::Error),
    /// A trace with work of a kind that this version does not know.
    #[error(
        "a trace of another version: it does not say of what kind '{0}' is, or of one that is not known here"
    )]
    Kind(String),
}

/// What the head of every page needs.
struct Frame {
    /// Of this page alone: the browser runs no script and takes no style without it.
    nonce: String,
    style: &'static str,
    version: &'static str,
}

impl Frame {
    fn new() -> Result<Self, ReportError> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)?;
        let nonce = bytes.iter().map(|b| format!("{b:02x}")).collect();
        Ok(Self { nonce, style: include_str!("../templates/style.css"), version: env!("CARGO_PKG_VERSION") })
    }
}

fn render(page: &impl Template) -> Result<String, ReportError> {
    Ok(page.render()?)
}

/// What an operation is, for colours and sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeKind {
    Linear,
    Activation,
    MaxPool,
    Product,
    Other,
}

impl NodeKind {
    const ALL: [Self; 5] = [Self::Linear, Self::Activation, Self::MaxPool, Self::Product, Self::Other];

    /// By who computes it, and how.
    fn of(part: Part) -> Self {
        match part {
            Part::Linear => Self::Linear,
            Part::Activation => Self::Activation,
            Part::MaxPool => Self::MaxPool,
            Part::Product => Self::Product,
            Part::Input | Part::Local => Self::Other,
        }
    }

    /// The class that gives it its colour.
    fn class(self) -> &'static str {
        ["linear", "activation", "maxpool", "product", "other"][self as usize]
    }

    fn words(self) -> &'static str {
        ["convolutions, fully connected", "activations", "max-pools", "products of values", "others"]
            [self as usize]
    }
}

/// A layer's name at the places where a line may end in it.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split_inclusive(['/', '.', '_'])
}

/// Bytes without a unit, for columns in MiB.
fn mib(bytes: u64) -> String {
    if bytes == 0 { "–".into() } else { format!("{:.2}", bytes as f64 / 1_048_576.0) }
}

/// A part of one in percent, with as many places as it needs.
fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    match percent {
        0.0 => "0".into(),
        p if p < 0.001 => format!("{p:.1e}"),
        p if p < 0.1 => format!("{p:.4}"),
        p if p < 10.0 => format!("{p:.2}"),
        p => format!("{p:.1}"),
    }
}

/// A number with three to four significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if !(1e-5..1e5).contains(&v) => format!("{value:.2e}"),
        // Three significant digits, so that columns can be compared.
        v if v < 1.0 => format!("{value:.*}", (2.0 - v.log10().floor()) as usize),
        v if v < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// An integer with spaces between thousands.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds go by who computes an operation, and how.
    #[test]
    fn operations_are_of_a_kind() {
        use jaguar_graph::network::{Concat, Op, Product, Relu};
        for (op, kind) in [
            (Op::new(Relu { ignored: 0 }), NodeKind::Activation),
            (Op::new(Product { shift: 8, offsets: [0, 0] }), NodeKind::Product),
            (Op::new(Concat), NodeKind::Other),
        ] {
            assert_eq!(NodeKind::of(op.part()), kind, "{}", op.describe());
        }
        assert!(NodeKind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
    }

    #[test]
    fn numbers_are_written_to_be_read() {
        assert_eq!(
            [thousands(0), thousands(999), thousands(1_234_567)],
            ["0", "999", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(
            [percent(0.0), percent(0.000_5), percent(0.031_4), percent(1.0)],
            ["0", "0.0500", "3.14", "100.0"]
        );
        assert_eq!(
            [0.0, -0.25, 12.345, 123_456.0, 3.72e-4, 3.7e-6].map(number),
            ["0", "-0.250", "12.35", "1.23e5", "0.000372", "3.70e-6"]
        );
        assert_eq!([mib(0), mib(3 << 19)], ["–", "1.50"]);
        let long: Vec<&str> = parts("/block1/layer1.0/conv_1").collect();
        assert_eq!(long, ["/", "block1/", "layer1.", "0/", "conv_", "1"]);
    }
}
