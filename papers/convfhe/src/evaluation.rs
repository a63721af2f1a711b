//! Evaluations of a compiled model in this process, behind a server's desk.
//!
//! What is loaded for a client (its keys, the matrices, the ring's tables, and memory that polynomials are made of) is all
//! dropped with its evaluator. Between evaluations nothing stays but the network.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jaguar_ckks::Context;
use jaguar_ring::cpu::Cpu;

use crate::keys::{KeyError, file_bytes, read};
use crate::machine::{memory, resident, too_small};
use crate::network::{self, NetworkError, Plan, answer_bytes, key_specs};
use crate::session::{Evaluation, Evaluator, Failure, OfClient, Ticket};
use crate::sets::Set;

/// What passes for a network, and what its evaluation takes, in bytes. All follows from sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Of the evaluation keys' file.
    pub keys: u64,
    /// Of an encrypted input.
    pub input: usize,
    /// Of an encrypted answer.
    pub answer: usize,
    /// Memory of an evaluation, estimated.
    pub memory: u64,
}

impl Figures {
    /// Of a calibrated network under a set, evaluated on so many threads.
    ///
    /// # Errors
    /// If the plan was made for another set, or has no bounds.
    pub fn new(set: &Set, plan: &Plan, threads: usize) -> Result<Self, KeyError> {
        let failed = |e: jaguar_ckks::Error| KeyError::from(NetworkError::from(e));
        let context = Context::new(Cpu::detect(), set.params().clone(), threads).map_err(failed)?;
        let specs = key_specs(&context)?;
        Ok(Self {
            keys: file_bytes(&context, &specs)?,
            input: plan.public(set.params())?.input_bytes(&context)?,
            answer: answer_bytes(&context)?,
            memory: network::memory(&context, plan)?,
        })
    }
}

/// Evaluates a network under clients' keys, which are read for each of them.
pub struct InProcess {
    set: Set,
    plan: Arc<Plan>,
    figures: Figures,
    threads: usize,
    give_back: fn(),
    /// Memory that the process had when nothing was loaded.
    idle: u64,
}

impl InProcess {
    /// On so many threads. `give_back` is called when what was loaded for a client is dropped.
    ///
    /// # Errors
    /// As [`Figures::new`].
    pub fn new(set: Set, plan: Plan, threads: usize, give_back: fn()) -> Result<Self, KeyError> {
        let figures = Figures::new(&set, &plan, threads)?;
        Ok(Self { set, plan: Arc::new(plan), figures, threads, give_back, idle: resident() })
    }

    /// Sizes and memory.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }
}

/// Who is at fault for what came of a client's keys.
fn failure(error: KeyError) -> Failure {
    let detail = format!("evaluation: {error}");
    match error {
        KeyError::Spoilt { .. } => Failure {
            told: format!("{error}: the server has removed them; send them again"),
            detail,
            spoilt_keys: true,
        },
        KeyError::Network(NetworkError::Keys(_)) => {
            Failure { told: error.to_string(), detail, spoilt_keys: true }
        }
        KeyError::Stopped => Failure { told: error.to_string(), detail, spoilt_keys: false },
        KeyError::File(_) | KeyError::Make(_) | KeyError::Network(_) => {
            let told = "the server cannot start the evaluation; ask its operator".into();
            Failure { told, detail, spoilt_keys: false }
        }
    }
}

impl Evaluation for InProcess {
    fn open(&self, keys: OfClient<'_>, stop: &AtomicBool) -> Result<Box<dyn Evaluator>, Failure> {
        // What an earlier evaluation had, and the allocator has not given back, is there for this one.
        let kept = resident().saturating_sub(self.idle);
        let memory = memory().map(|[free, all]| [free.saturating_add(kept), all]);
        if let Some(told) = too_small("an evaluation", self.figures.memory, memory) {
            return Err(Failure { detail: told.clone(), told, spoilt_keys: false });
        }
        let open = || -> Result<_, KeyError> {
            let made = Context::new(Cpu::detect(), self.set.params().clone(), self.threads);
            let context = made.map_err(NetworkError::from)?;
            let keys = read(&context, &key_specs(&context)?, keys.path, keys.hash, stop)?;
            Ok(network::Evaluator::new(Arc::clone(&self.plan), context, keys)?)
        };
        Ok(Box::new(open().map_err(failure)?))
    }

    fn answer_bytes(&self) -> usize {
        self.figures.answer
    }

    fn dropped(&self) {
        (self.give_back)();
    }
}

impl Evaluator for network::Evaluator {
    fn answer(
        &mut self,
        (_, input): (Ticket, &[u8]),
        progress: &mut dyn FnMut(u32, u32),
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, Failure> {
        self.evaluate(input, progress, stop).map_err(|e| {
            let told = match &e {
                NetworkError::Message { .. } | NetworkError::Stopped => e.to_string(),
                // (Names of layers are the operator's.)
                NetworkError::Malformed(_)
                | NetworkError::Layer { .. }
                | NetworkError::Uncalibrated { .. }
                | NetworkError::Set { .. }
                | NetworkError::Input { .. }
                | NetworkError::Calibration(_)
                | NetworkError::Public(_)
                | NetworkError::Ckks(_)
                | NetworkError::Circuit(_)
                | NetworkError::Keys(_)
                | NetworkError::Spoilt
                | NetworkError::Left => "the evaluation failed on the server; ask its operator".into(),
            };
            Failure { told, detail: format!("evaluation: {e}"), spoilt_keys: false }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{make, make_secret};
    use crate::model::Inputs;
    use crate::network::tests::{inputs, small};

    /// All that a server's desk does with it, and what it says where that fails.
    #[test]
    fn what_fails_is_told_to_whom_it_concerns() {
        let set = Set::by_name("insecure-n10").unwrap();
        let samples = inputs(&small(), 3);
        let mut plan = Plan::new(small(), set.params().values()).unwrap();
        plan.calibrate(Inputs { samples: &samples, margin: 1.5, stress: &[], stress_margin: 1.0 }).unwrap();
        let public = plan.public(set.params()).unwrap();
        let folder = std::env::temp_dir().join(format!("jaguar-evaluation-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let context = Context::new(Cpu::detect(), set.params().clone(), 1).unwrap();
        let secret = make_secret(&context, &folder.join("secret")).unwrap();
        let path = folder.join("keys");
        let hash = make(&context, &secret, &key_specs(&context).unwrap(), &path).unwrap();
        let input = public.encrypt(&secret, &samples[0]).unwrap();

        let mut evaluation = InProcess::new(set, plan, 1, || ()).unwrap();
        let figures = evaluation.figures().clone();
        assert_eq!(figures.keys, std::fs::metadata(&path).unwrap().len());
        assert_eq!(figures.input, input.len());
        let go_on = AtomicBool::new(false);
        let keys = OfClient { path: &path, hash: &hash };
        let mut evaluator = evaluation.open(keys, &go_on).unwrap();
        let answer = evaluator.answer((Ticket([1; 32]), &input), &mut |_, _| (), &go_on).unwrap();
        assert_eq!(answer.len(), evaluation.answer_bytes());
        assert_eq!(public.decrypt(&secret, &answer).unwrap().len(), public.outputs);

        let refused = |failure: Failure, told: &str, spoilt_keys: bool| {
            assert!(failure.told.contains(told) && failure.spoilt_keys == spoilt_keys, "{told}: {failure:?}");
        };
        let short = evaluator.answer((Ticket([1; 32]), &input[1..]), &mut |_, _| (), &go_on);
        refused(short.unwrap_err(), "the input: ", false);
        // Somebody asks to stop when the first layer is through.
        let stop = AtomicBool::new(false);
        let mut layers = Vec::new();
        let mut progress = |done, _| {
            layers.push(done);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        };
        refused(
            evaluator.answer((Ticket([1; 32]), &input), &mut progress, &stop).unwrap_err(),
            "stopped",
            false,
        );
        assert_eq!(layers, [1]);
        refused(evaluation.open(keys, &stop).err().unwrap(), "stopped", false);

        let none = folder.join("none");
        let missing = evaluation.open(OfClient { path: &none, hash: &hash }, &go_on).err().unwrap();
        assert!(missing.detail.contains("none") && !missing.told.contains("none"), "{missing:?}");
        refused(missing, "ask its operator", false);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        refused(evaluation.open(keys, &go_on).err().unwrap(), "spoilt keys: ", true);
        evaluation.figures.memory = u64::MAX;
        refused(evaluation.open(keys, &go_on).err().unwrap(), " GB are free", false);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
