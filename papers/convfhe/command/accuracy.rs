//! `jaguar accuracy` of a model for one round: the calibrated network in floating point, with the polynomial that stands for ReLU.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Result, ensure};
use jaguar::compile::samples;
use jaguar_convfhe::{Compiled, Loaded};

use super::hex;
use super::predict::tensor;
use crate::one_round::protocol::{Answered, Unencrypted};

/// A model whose answers are computed without encryption.
pub struct Open {
    model: Loaded,
    name: String,
}

/// Reads the model; none where the file is no model of this protocol. (Those are JSON, and others are not.)
pub fn open(path: &Path) -> Result<Option<Open>> {
    let mut first = [0];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    // Whoever reads it next says what is wrong with it.
    if read.is_err() || first != *b"{" {
        return Ok(None);
    }
    let model = Compiled::load(path)?;
    ensure!(
        model.compiled.facing.first.is_none(),
        "{}: clients compute its first layers, which are not in it",
        path.display()
    );
    let name = format!("{} ({})", model.compiled.facing.name, &hex(&model.id.0)[..16]);
    Ok(Some(Open { model, name }))
}

impl Unencrypted for Open {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn labels(&self) -> &[String] {
        &self.model.compiled.facing.labels
    }

    fn classes(&self) -> usize {
        self.model.compiled.outputs
    }

    fn tensor(&self, source: &samples::Source) -> Result<Vec<f32>> {
        tensor(&self.model.compiled.facing, None, source)
    }

    fn answers(&self, tensors: &[Vec<f32>]) -> Result<Vec<Answered>> {
        let simulated = self.model.plan.simulate(tensors)?;
        Ok(simulated.into_iter().map(|one| Answered { encrypted: one.logits, float: one.exact }).collect())
    }
}
