//! Single layers by their steps: Figure 4's ablation, and Table 2's memory.

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use jaguar_graph::network::{Linear, Shape};
use jaguar_hyena::steps::{Bytes, Planned};
use jaguar_hyena::{Form, Wanted};
use jaguar_ring::cpu::Cpu;
use serde::Serialize;

use super::paper::{MEMORY, Memory};
use super::units::{Case, Means, Sampling, Seconds, Units, measure, weights};
use crate::fregata::layers::{ACTIVATION_BITS, SHIFT, WEIGHT_BITS};

/// Bits of weights in the paper's own parameters.
const PUBLISHED_WEIGHT_BITS: u32 = 8;

/// The parameters of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// Those that the search finds, with 128 bits of security or more.
    Secure,
    /// **Insecure**: the paper's own.
    Published,
}

impl Set {
    pub const ALL: [Self; 2] = [Self::Secure, Self::Published];

    pub fn name(self) -> &'static str {
        match self {
            Self::Secure => "128 bits",
            Self::Published => "the paper's, insecure",
        }
    }
}

/// A row of Table 2 as a layer of its network.
pub fn spec(row: &Memory) -> (Linear, Shape) {
    (Linear::same(row.outputs, 3, SHIFT), [row.inputs, row.width(), row.width()])
}

/// `28x28, 64>128`.
pub fn name(row: &Memory) -> String {
    format!("{0}x{0}, {1}>{2}", row.width(), row.inputs, row.outputs)
}

/// It with all the memory that it takes.
fn wanted(form: Form, spec: &Linear, in_shape: Shape) -> Wanted<'_> {
    let (activation_bits, weight_bits) = (ACTIVATION_BITS, WEIGHT_BITS);
    Wanted { form, spec, in_shape, activation_bits, weight_bits, weight_memory: u64::MAX }
}

/// One layer, planned under `set`.
fn planned(set: Set, row: &Memory, wanted: &Wanted<'_>) -> Result<Planned> {
    let planned = match set {
        Set::Secure => Planned::new(std::slice::from_ref(wanted)).map_err(|(_, why)| why),
        // "For 32x32-sized inputs, we use 2048, while for larger inputs, we opt for 4096."
        Set::Published => Planned::insecure_published(if row.size == 32 { 2048 } else { 4096 }, wanted),
    };
    planned.map_err(|why| anyhow!("{}, {}: {why}", name(row), wanted.form.name()))
}

/// A layer in one of Figure 4's five ways, or in ours.
#[derive(Clone, Serialize)]
pub struct Variant {
    /// `a` to `e`, as in the figure; `f`, what sessions run.
    pub label: &'static str,
    pub channels: usize,
    /// Primes of q, and digits of keys.
    pub limbs: usize,
    pub digits: usize,
    pub units: Units,
    pub seconds: Seconds,
}

/// A layer of Figure 4.
#[derive(Clone, Serialize)]
pub struct Ablation {
    pub name: String,
    pub set: Set,
    /// a to f; without c where no digits keep its noise low enough.
    pub variants: Vec<Variant>,
}

impl Ablation {
    /// How many times faster than the conventional form.
    pub fn ratio(&self, label: &str) -> Option<f64> {
        let of = |label: &str| self.variants.iter().find(|variant| variant.label == label);
        Some(of("a")?.seconds.convolution() / of(label)?.seconds.convolution())
    }
}

/// Rows of Table 2 that `filter` is in.
pub fn rows(filter: Option<&str>) -> impl Iterator<Item = &'static Memory> + '_ {
    MEMORY.iter().filter(move |row| filter.is_none_or(|filter| name(row).contains(filter)))
}

/// Runs all ways of a layer by turns, on this thread.
///
/// # Errors
/// When the layer does not fit, or a result is wrong.
pub fn ablation(cpu: Cpu, set: Set, row: &Memory, sampling: Sampling) -> Result<Ablation> {
    let (spec, in_shape) = spec(row);
    let wanted = |form| wanted(form, &spec, in_shape);
    let bits = if set == Set::Secure { WEIGHT_BITS } else { PUBLISHED_WEIGHT_BITS };
    let weights = weights(&spec, in_shape[0], bits);
    let [conventional, searched] =
        [Form::Conventional, Form::WalshHadamard].map(|form| planned(set, row, &wanted(form)));
    let (conventional, searched) = (conventional?, searched?);
    let interleaved = planned(set, row, &wanted(Form::Interleaved))?;
    // In the paper's own parameters the largest weights may leave no digits for it.
    let unsearched = Planned::unsearched(&wanted(Form::WalshHadamard), &conventional, &searched).ok();
    let strict = Means { lazy: false, ..Means::ALL };
    let ways = [
        Some(("a", &conventional, Means::ALL)),
        Some(("b", &conventional, Means { hoisted: false, ..Means::ALL })),
        unsearched.as_ref().map(|unsearched| ("c", unsearched, strict)),
        Some(("d", &searched, strict)),
        Some(("e", &searched, Means::ALL)),
        Some(("f", &interleaved, Means::ALL)),
    ];
    let ways: Vec<(&'static str, &Planned, Means)> = ways.into_iter().flatten().collect();
    let mut cases: Vec<Case> = ways
        .iter()
        .map(|(_, planned, means)| Case::new(cpu, planned, 0, &weights, *means, sampling))
        .collect();
    let measured = measure(&mut cases, sampling).with_context(|| name(row))?;
    let variants = ways.iter().zip(measured).map(|((label, planned, _), (units, seconds))| Variant {
        label,
        channels: planned.layer(0).packing().channels(),
        limbs: planned.ring().params.primes().len(),
        digits: planned.ring().digits(),
        units,
        seconds,
    });
    Ok(Ablation { name: name(row), set, variants: variants.collect() })
}

/// What a form of a layer of Table 2 takes.
#[derive(Clone, Serialize)]
pub struct Stored {
    pub form: &'static str,
    pub keys: usize,
    pub numbers: usize,
    pub polynomials: usize,
    /// Bytes of the input's ciphertexts.
    pub input: usize,
}

impl Stored {
    pub fn model(&self) -> usize {
        self.numbers + self.polynomials
    }

    /// The same if a number took so many bytes.
    pub fn model_with(&self, number_bytes: usize) -> usize {
        self.numbers / size_of::<i16>() * number_bytes + self.polynomials
    }
}

/// A layer of Table 2, in every form.
#[derive(Clone, Serialize)]
pub struct Storage {
    pub name: String,
    pub set: Set,
    pub forms: Vec<Stored>,
}

/// The forms that sessions run.
pub const FORMS: [Form; 3] = [Form::Interleaved, Form::Conventional, Form::Padded];

/// Those of which Table 2 says what is stored: ours in the place of the padded one.
const STORED: [Form; 3] = [Form::Interleaved, Form::Conventional, Form::WalshHadamard];

/// # Errors
/// When a form does not fit.
pub fn storage(set: Set, row: &Memory) -> Result<Storage> {
    let (spec, in_shape) = spec(row);
    let stored = |form: Form| -> Result<Stored> {
        let planned = planned(set, row, &wanted(form, &spec, in_shape))?;
        let Bytes { keys, numbers, polynomials } = planned.bytes();
        Ok(Stored { form: form.name(), keys, numbers, polynomials, input: planned.query(0).0 })
    };
    Ok(Storage { name: name(row), set, forms: STORED.into_iter().map(stored).collect::<Result<_>>()? })
}
