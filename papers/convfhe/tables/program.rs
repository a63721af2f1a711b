//! `jaguar-fhe` as what measures, and the rows that it writes: JSON, one a line.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A polynomial for ReLU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Polynomial {
    pub name: String,
    pub levels: u32,
    pub error: f64,
    /// Place and largest error up to the next one.
    pub curve: Vec<[f64; 2]>,
}

/// One convolution, in coefficients and in slots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Convolution {
    pub batch: usize,
    pub side: usize,
    pub kernel: usize,
    pub weights_seconds: f64,
    pub products_seconds: f64,
    pub packing_seconds: f64,
    /// Processor time of the three.
    pub busy_seconds: f64,
    /// 0 if it was not timed.
    pub vector_seconds: f64,
    pub vector_busy_seconds: f64,
    pub vector_rotations: usize,
    pub vector_products: usize,
}

impl Convolution {
    /// With the weights already encoded.
    pub fn seconds(&self) -> f64 {
        self.products_seconds + self.packing_seconds
    }
}

/// One layer by phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Layer {
    pub network: String,
    /// From 1; the last makes the logits.
    pub index: usize,
    pub layers: usize,
    /// Bootstrapped.
    pub ciphertexts: usize,
    pub convolution_seconds: f64,
    pub packing_seconds: f64,
    pub ctos_seconds: f64,
    pub sine_seconds: f64,
    pub relu_seconds: f64,
    pub stoc_seconds: f64,
    /// Processor time of all of it.
    pub busy_seconds: f64,
}

impl Layer {
    pub fn phases(&self) -> [f64; 6] {
        [
            self.convolution_seconds,
            self.packing_seconds,
            self.ctos_seconds,
            self.sine_seconds,
            self.relu_seconds,
            self.stoc_seconds,
        ]
    }

    pub fn seconds(&self) -> f64 {
        self.phases().iter().sum()
    }
}

/// What keys took and take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keys {
    pub key_seconds: f64,
    pub matrix_seconds: f64,
    pub wire_bytes: f64,
    pub memory_bytes: f64,
}

/// What `bench-layers` writes.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Line {
    Keys(Keys),
    Layer(Layer),
}

/// Where the program is: as told, or beside the running one, or where `make fhe` puts it.
pub fn find(told: Option<&Path>) -> PathBuf {
    if let Some(path) = told {
        return path.to_owned();
    }
    let here = std::env::current_exe().ok();
    let folders = here.iter().flat_map(|path| path.ancestors().skip(1).take(2));
    folders
        .map(|folder| folder.join("jaguar-fhe"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| "jaguar-fhe".into())
}

/// Runs it and hands over each line as it comes.
///
/// # Errors
/// When it cannot be started, fails, or writes what was not expected.
pub fn run<T: DeserializeOwned>(
    program: &Path,
    threads: usize,
    arguments: &[OsString],
    mut row: impl FnMut(T),
) -> Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("GOMAXPROCS", threads.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} cannot be started; `make fhe` builds it", program.display()))?;
    let out = child.stdout.take().context("its output")?;
    for line in BufReader::new(out).lines() {
        let line = line?;
        row(serde_json::from_str(&line).with_context(|| format!("jaguar-fhe wrote {line:?}"))?);
    }
    let status = child.wait()?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(())
}
