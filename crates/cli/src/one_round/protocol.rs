//! What a protocol of one round is to the command: options of its own, and what it does with them. The kit has those that there are.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{ArgMatches, Command};
use jaguar::EngineError;
use jaguar::compile::{InputMap, samples};
use jaguar::float::Graph;
use jaguar::machine::Imitated;
use jaguar::net::Bound;
use jaguar::network::ImageSpec;
use jaguar::serve::{Control, Hosted, Told, Visit};
use jaguar::wire::Channel;

use crate::progress::Steps;
use crate::reach::Reach;

/// The commands that such a protocol has options of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Compile,
    Predict,
    Serve,
}

/// A protocol in which one message goes up and one comes down. (It has a kind of session of its own: `jaguar::one_round`.)
pub trait OneRound: Sync {
    /// As it stands behind `--protocol`.
    fn name(&self) -> &'static str;

    /// What it does and costs, in a line of `--help`.
    fn about(&self) -> &'static str;

    /// The group in `--help` of its options, each of which stands there: the other protocols refuse them.
    fn heading(&self) -> &'static str;

    /// A command with the options of this protocol behind its own. No other protocol may have some of the same name.
    fn options(&self, which: Which, to: Command) -> Command;

    /// Writes what `jaguar serve` reads to `output`.
    ///
    /// # Errors
    /// When the network has no form in this protocol, or would answer otherwise, or the file cannot be written.
    fn compile(
        &self,
        source: Source<'_>,
        options: &ArgMatches,
        output: &Path,
        steps: &mut Steps,
    ) -> Result<()>;

    /// Asks a server about inputs, and shows the answers.
    ///
    /// # Errors
    /// When an input cannot be used, or the session fails.
    fn predict(&self, request: &Request<'_>, options: &ArgMatches) -> Result<()>;

    /// Reads a model, and what is kept for it; `cache` is the folder for that where no option names one.
    ///
    /// # Errors
    /// When either cannot be read, or this machine is too small.
    fn serve(&self, model: &Path, cache: Option<PathBuf>, options: &ArgMatches) -> Result<Box<dyn Serving>>;

    /// A compiled model without its encryption, for `jaguar accuracy`; none where the file is no model of this protocol.
    ///
    /// # Errors
    /// When it is one, and cannot be used.
    fn open(&self, model: &Path) -> Result<Option<Box<dyn Unencrypted>>>;

    /// Evaluates what a server of this protocol has put into a folder for others; the answer is left there.
    ///
    /// # Errors
    /// When it may go better on another machine, or later: nothing is left then.
    fn evaluate(&self, task: &Path) -> Result<()>;

    /// Files below the cache folder that their owner alone may read.
    fn secrets(&self, cache: &Path) -> Vec<PathBuf>;
}

/// A compiled model without its encryption.
pub trait Unencrypted: Sync {
    /// The network's name, and the model's public name.
    fn name(&self) -> String;

    /// Names of the classes; none if it has none.
    fn labels(&self) -> &[String];

    /// How many classes it tells apart.
    fn classes(&self) -> usize;

    /// An input as it would be encrypted.
    ///
    /// # Errors
    /// When the network does not take it.
    fn tensor(&self, source: &samples::Source) -> Result<Vec<f32>>;

    /// What these inputs give, on all threads.
    ///
    /// # Errors
    /// When one is no input of the network.
    fn answers(&self, tensors: &[Vec<f32>]) -> Result<Vec<Answered>>;
}

/// What an input gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Logits as an encrypted answer would have them, before its noise; none where the input leaves what calibration allows.
    pub encrypted: Option<Vec<f64>>,
    /// By the float network.
    pub float: Vec<f64>,
}

/// What a compilation takes.
#[allow(dead_code, reason = "only protocols read it, and the program may be built without them")]
pub struct Source<'a> {
    pub graph: &'a Graph,
    /// Where factors and offsets go that the file has right behind the input.
    pub input_map: InputMap,
    pub image: ImageSpec,
    pub labels: Vec<String>,
    /// Inputs of calibration, as tensors `[C, H, W]`.
    pub samples: Vec<Vec<f32>>,
    /// The same, without a part in calibration.
    pub tests: Vec<Vec<f32>>,
    /// Whether pictures are among the samples, and so among what will come.
    pub pictures: bool,
    /// The ONNX file.
    pub file: &'a Path,
    /// Whether clients get the names that the file has.
    pub keep_names: bool,
    /// Whether a model is written that answers otherwise than the network.
    pub force: bool,
}

/// What is asked, of whom, and how the answer is shown.
#[allow(dead_code, reason = "only protocols read it, and the program may be built without them")]
pub struct Request<'a> {
    pub reach: &'a Reach,
    pub inputs: &'a [PathBuf],
    /// Where the client keeps what it keeps; none if it may not.
    pub cache: Option<PathBuf>,
    pub top: usize,
    pub json: bool,
    pub link: Option<Imitated>,
}

/// A service behind the server's port.
pub trait Serving: Hosted {
    /// Says what a person should know at the start.
    fn announce(&self, address: &Bound);

    /// Ends what is computed, and waits a little for sessions to tell their clients.
    fn end(&self, control: &Control);
}

impl Hosted for Box<dyn Serving> {
    fn serve(
        &self,
        channel: Channel,
        visit: &Visit<'_>,
        tell: &mut dyn FnMut(Told),
    ) -> Result<(), EngineError> {
        (**self).serve(channel, visit, tell)
    }
}
