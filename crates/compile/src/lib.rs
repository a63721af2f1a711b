//! From a trained network and sample inputs to a compiled model: calibration, the choice of widths, reduced-precision
//! signs, and what came of it.
//!
//! ```text
//! graph   <- jaguar_graph::import::import_file(ONNX file)
//! samples <- tensors [C, H, W], preprocessed as Preprocessing::spec says
//! Compiled <- compile(kit, graph, samples, Options)
//! ```
//!
//! Nothing here prints. How far it is, and what a person should know meanwhile, is told as an [`Event`]; all of it is
//! in [`Compiled`] too.

mod classes;
mod hide;
mod input_map;
mod preprocessing;
pub mod samples;
mod signs;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use jaguar_graph::agreement::{Agreement, Beyond, agreement_heard, beyond, private_agreement};
use jaguar_graph::bundle::{Bundle, BundleError};
use jaguar_graph::float::Graph;
use jaguar_graph::network::{Hiding, ImageSpec, Model, Network, Seen, Shape, hidden_for, may_guard};
use jaguar_graph::quantise::{self, Chosen, CoarseValues, Oddity, QuantiseError, Report, Samples, Width};
use jaguar_graph::reference::ReferenceError;
use jaguar_graph::signs::{SearchStage, SignsError};
use jaguar_plan::{Choices, Kit, Plan, PlanError};
use jaguar_ring::cpu::Cpu;

pub use classes::{ByClass, Classes, Counted, Ruled};
pub use hide::Hide;
pub use input_map::{InputMap, MOST_LOST_BITS, MapFound, MapPlace, place_input_map};
pub use preprocessing::{Preprocessing, PreprocessingError};
pub use signs::{ReducedSigns, SignLayer};

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bits of activations.
    pub widths: Widths,
    /// For how many queries the rounding of values is hidden, or by how many guard bits besides these and how much noise: see
    /// [`Model::guarded`].
    pub hide: Hide,
    /// Significant bits of weights: 2 to 16.
    pub weight_bits: u32,
    /// How many times larger than in calibration values may become before they overflow; at least 1.
    pub headroom: f64,
    /// How pictures become tensors; recorded in the model.
    pub image: ImageSpec,
    /// Names of the classes in the order of the outputs, or none; recorded in the model.
    pub labels: Vec<String>,
    /// By how much logits may be off, as a part of their spread over the classes: more than 0. Widths are chosen by it;
    /// reduced signs may use as much again.
    pub bound: f64,
    /// Labelled pictures: bits are then chosen by how often the right class comes out, and beside it is told what the bound would take.
    pub by_class: Option<ByClass>,
    /// Whether activations and max-pools may leave low bits out of their comparisons where calibration finds the bound
    /// kept.
    pub reduced_signs: bool,
    /// Whether some samples are pictures whose pixels go to the network as they are: then it is worth a warning if the
    /// network seems to want others.
    pub raw_pixels: bool,
    /// Whether clients get the names that the file has for nodes and outputs. Otherwise they get kinds and numbers
    /// ([`Network::without_names`]).
    pub keep_names: bool,
    /// What becomes of an affine map of the file's right behind the input: of a batch normalisation, or of constants.
    pub input_map: InputMap,
    /// Whether a model is made that does not answer as the float network does ([`CompileError::Disagrees`]).
    pub force: bool,
    /// What the float network and the integer reference are run with.
    pub cpu: Cpu,
}

/// Bits of activations: a number from 8 to 24, or which to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Widths {
    /// So many.
    Bits(u32),
    /// The fewest of these that keep the bound, once there are as many guard bits as help.
    Among(RangeInclusive<u32>),
}

impl Widths {
    /// What is tried unless somebody asks for less: 16 to 21.
    pub const AUTO: Self = Self::Among(16..=21);
    /// What is tried for the cheapest query: 12 to 21.
    pub const FEWEST: Self = Self::Among(12..=21);
}

impl Default for Options {
    /// [`Widths::AUTO`], [`Hide::default`], 15 bits of weight, fourfold headroom, a bound of one percent, exact signs.
    fn default() -> Self {
        Self {
            widths: Widths::AUTO,
            hide: Hide::default(),
            weight_bits: 15,
            headroom: 4.0,
            image: ImageSpec::default(),
            labels: Vec::new(),
            bound: 0.01,
            by_class: None,
            reduced_signs: false,
            raw_pixels: false,
            keep_names: false,
            input_map: InputMap::Auto,
            force: false,
            cpu: Cpu::default(),
        }
    }
}

impl Options {
    /// Whether they can be of use for this network; [`compile`] asks too, but only after the samples were read.
    ///
    /// # Errors
    /// When labels and outputs differ in number, the bound is none, there cannot be so many guard bits, or classes are asked for of a
    /// network that has none.
    pub fn check(&self, graph: &Graph) -> Result<(), CompileError> {
        let classes: usize = graph.nodes.last().map_or(0, |n| n.shape.iter().product());
        if !self.labels.is_empty() && self.labels.len() != classes {
            return Err(CompileError::Labels { found: self.labels.len(), classes });
        }
        if !(self.bound.is_finite() && self.bound > 0.0) {
            return Err(CompileError::Bound);
        }
        match self.hide {
            Hide::For(queries) if queries.is_nan() => return Err(CompileError::Queries),
            Hide::As(hiding) if !may_guard(hiding.guard_bits) => {
                return Err(CompileError::GuardBits(hiding.guard_bits));
            }
            Hide::For(_) | Hide::As(_) => (),
        }
        self.by_class.as_ref().map_or(Ok(()), |by_class| by_class.check(graph))
    }
}

/// Why a network cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The samples, the options or the network itself do not allow it.
    #[error(transparent)]
    Quantise(#[from] QuantiseError),
    /// A sample of the wrong length.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The search for reduced-precision signs.
    #[error(transparent)]
    Signs(#[from] SignsError),
    /// The quantised network cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The model is not sound.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Names of classes that are not those of the network.
    #[error("{found} label names for {classes} classes")]
    Labels {
        /// How many names.
        found: usize,
        /// How many classes.
        classes: usize,
    },
    /// A bound that nothing can keep.
    #[error("the bound must be more than 0")]
    Bound,
    /// Classes of a network whose output is no list of them.
    #[error("an output of {0:?} is no list of classes: labelled pictures say nothing of it")]
    NoClasses(Shape),
    /// Labelled pictures whose classes are not told.
    #[error(transparent)]
    Label(#[from] samples::labelled::LabelError),
    /// No labelled pictures.
    #[error("there are no labelled pictures")]
    NoPictures,
    /// A part that is none.
    #[error("the part of the pictures that may be lost must be from 0 to below 1")]
    Loss,
    /// A labelled picture that cannot be read.
    #[error(transparent)]
    Open(#[from] samples::OpenError),
    /// A labelled picture that cannot be brought to the network's shape.
    #[error("{}: {error}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: samples::FitError,
    },
    /// A number of queries that is none.
    #[error("for how many queries hidden units are hidden must be a number")]
    Queries,
    /// Guard bits that a network cannot have.
    #[error("{0} guard bits: 0, or 2 to 12 are possible")]
    GuardBits(u32),
    /// The integer network is another function than the float network.
    #[error(
        "the compiled network does not answer as the float network does: {0}. More activation or weight bits, or samples more like \
         what will come, may help"
    )]
    Disagrees(Disagreement),
    /// The samples themselves leave the range.
    #[error(
        "{values} values leave the range of {bits} bits on the samples themselves; more activation bits or more \
         headroom are needed"
    )]
    Overflows {
        /// How many values.
        values: usize,
        /// Bits of activations.
        bits: u32,
    },
}

/// How far it is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// So many of so many samples went through the float network.
    Calibrating(usize, usize),
    /// On so many of so many samples it was measured how much a hidden unit weighs in what is opened.
    Weighing(usize, usize),
    /// Only one width is possible; the network is quantised.
    Quantising,
    /// The first of these widths that keeps the bound is looked for.
    Trying(&'a [Width]),
    /// So many of so many samples went through an imitated private run at the width at hand.
    TryingSamples(usize, usize),
    /// One of them was tried: how an imitated private run agreed on inputs left out of calibration, if it has scales at
    /// all.
    Tried(Width, Option<&'a Agreement>),
    /// So many bits of these were tried: how an imitated private run agreed on inputs left out of calibration.
    TriedCoarse(CoarseValues, u32, &'a Agreement),
    /// They have so many bits, fewer than other values (factors: so many at least); and how that agreed.
    CoarseChosen(CoarseValues, u32, &'a Agreement),
    /// So many of so many samples were compared with the float network.
    Checking(usize, usize),
    /// The network is quantised; in the network, nodes are called as clients will call them.
    Quantised(&'a Report, &'a Network),
    /// What may cost accuracy.
    Warning(&'a Warning),
    /// So many of so many labelled pictures went through the float network, or through the one that is this wide.
    Judging(Option<Width>, usize, usize),
    /// How often a width finds the right class.
    Judged(&'a Counted),
    /// The search for the bits that signs may leave out.
    Signs(SearchStage),
    /// What that search chose.
    SignsChosen(&'a ReducedSigns),
}

/// What may cost accuracy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// Fewer samples than make ranges reliable.
    FewSamples(usize),
    /// Samples that are the same, of one colour, or unlike all others.
    Samples(Oddity),
    /// With scales from either half of the samples, values of the other leave their range.
    HeldOutOverflows {
        /// How many values.
        values: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// With scales from either half of the samples, values of the other take the last bit of their range.
    HeldOutTight {
        /// How many values.
        values: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// With scales from either half of the samples, logits of the other are off by more than the bound.
    HeldOutError {
        /// What was found.
        found: Agreement,
        /// How many samples there are.
        samples: usize,
        /// What was allowed, as a part of the logits' spread.
        bound: f64,
    },
    /// With answers as exact as was asked for, hidden units are hidden for fewer queries.
    HiddenFor {
        /// How many queries were asked for.
        asked: f64,
        /// For how many it is.
        found: f64,
    },
    /// So few labelled pictures that a single one is more than may be lost.
    FewPictures {
        /// How many pictures.
        pictures: usize,
        /// Which part may be lost.
        loss: f64,
    },
    /// No width loses as little as was asked for; what the bound on logits chose was taken.
    Lost(Classes),
    /// The integer network is another function than the float network, and a model was asked for all the same.
    Disagrees(Disagreement),
    /// The file's own map of the input becomes public, and nobody asked for that.
    PublicMap(MapFound),
    /// About a layer.
    Layer(quantise::Warning),
    /// Curves that are coarse, with how far their lines are from them in units of the values' last places: the farthest first.
    Coarse(Vec<(String, f64)>),
    /// The model's end is left to whoever gets the answer: what [`Graph::left_out`] says.
    Tail(String),
    /// Layers that are dense, though the file gives them blocks ([`Graph::lost_blocks`]).
    LostBlocks(Vec<String>),
    /// The network gets raw pixels, and its logits are out of all proportion: most likely it was trained on scaled
    /// ones.
    RawPixels {
        /// The range of the samples.
        seen: Option<Seen>,
        /// The largest logit of the float network.
        largest_logit: f64,
    },
}

impl Warning {
    /// So many of a list's nodes are named in words.
    const NAMED: usize = 3;
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let half =
            |samples| format!("with scales from either half of the {samples} samples, on the other half");
        match self {
            Self::HeldOutOverflows { values, samples } => {
                write!(
                    f,
                    "{}, {values} values leave their range: more samples or headroom would help",
                    half(samples)
                )
            }
            Self::HeldOutTight { values, samples } => write!(
                f,
                "{}, {values} values take the last bit of their range, which nonlinear layers may need: more samples or headroom would \
                 help",
                half(samples)
            ),
            Self::HeldOutError { found, samples, bound } => write!(
                f,
                "{}, logits are off by up to {:.2} % of their spread (the bound is {:.2} %), same class {}/{}: more \
                 bits or more samples would help",
                half(samples),
                100.0 * found.worst_relative_error,
                100.0 * bound,
                found.same_class,
                found.images
            ),
            Self::HiddenFor { asked, found } => write!(
                f,
                "hidden units weigh much in the answer: they stay hidden for {found:.0} queries of one image, not for {asked:.0}, \
                 unless answers may be less exact"
            ),
            Self::FewPictures { pictures, loss } => write!(
                f,
                "one of {pictures} labelled pictures is {:.2} % of them: none may be lost, and what is lost of others is not known to be \
                 {:.2} % or less; {:.0} or more would tell",
                100.0 / *pictures as f64,
                100.0 * loss,
                (1.0 / loss).ceil()
            ),
            Self::Lost(found) => write!(
                f,
                "no width to {} loses {:.2} % of the labelled pictures or less: what the bound on logits chose is taken, which loses {} \
                 and wins {} of {}",
                found.by_logits.width,
                100.0 * found.loss,
                found.by_logits.counted.lost,
                found.by_logits.counted.won,
                found.by_logits.counted.pictures
            ),
            Self::FewSamples(samples) => write!(
                f,
                "{samples} calibration {}; {ENOUGH} or more make the ranges reliable",
                if *samples == 1 { "input is too few" } else { "inputs are few" }
            ),
            Self::Samples(oddity) => oddity.fmt(f),
            Self::Disagrees(found) => {
                write!(f, "the compiled network does not answer as the float network does: {found}")
            }
            Self::PublicMap(found) => found.fmt(f),
            Self::Layer(warning) => warning.fmt(f),
            Self::Coarse(curves) => {
                let most = curves.first().map_or(0.0, |(_, units)| *units);
                let each = curves.iter().map(|(node, units)| format!("{node} ({units:.1})"));
                let more = match curves.len().saturating_sub(Self::NAMED) {
                    0 => String::new(),
                    more => format!(", and {more} more"),
                };
                write!(
                    f,
                    "the lines of {} curves are up to {most:.1} units from them, since values go far beyond where they bend: {}{more}",
                    curves.len(),
                    each.take(Self::NAMED).collect::<Vec<_>>().join(", ")
                )
            }
            Self::Tail(found) => found.fmt(f),
            Self::LostBlocks(layers) => write!(
                f,
                "{} {} no blocks any more, {} first: factors by channel in front, as a norm has them, are folded into weights, and \
                 keep blocks only where they are the same for all channels of one",
                layers.len(),
                if layers.len() == 1 { "layer has" } else { "layers have" },
                layers.first().map_or("", String::as_str)
            ),
            Self::RawPixels { seen, largest_logit } => {
                let seen = seen.map(|s| s.to_string()).unwrap_or_default();
                write!(
                    f,
                    "the network gets raw pixels, {seen}, and its logits reach {largest_logit:.0}: if it was trained \
                     on scaled ones, its answers are wrong"
                )
            }
        }
    }
}

/// Of an output that is off by more than this part of its spread on half of the samples, hardly anything is left.
pub const LOST: f64 = 0.25;

/// How an integer network was found to be another function than the float network.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    /// Samples of the float network's class, and how many samples there are; `None` where the output is no list of classes.
    pub same_class: Option<(usize, usize)>,
    /// The part of the output that is worst, ...
    pub output: String,
    /// ... and by which part of its spread it is off on half of the samples or more.
    pub error: f64,
}

impl Disagreement {
    /// Whether `model` is lost by what `found` says of it: an output is off by more than [`LOST`] on half of the samples, or (of a
    /// list of classes) more than half of the samples have another class, and the output is off by more than `bound`.
    pub(crate) fn of(found: &Agreement, network: &Network, bound: f64) -> Option<Self> {
        let worst = found.outputs.iter().max_by(|a, b| a.typical_error().total_cmp(&b.typical_error()))?;
        let is_list = network.nodes.last().is_some_and(|n| n.shape[0] > 1 && n.shape[1..] == [1, 1]);
        let classes = is_list && found.outputs.len() == 1;
        let error = worst.typical_error();
        let other_classes = classes && 2 * found.same_class < found.images;
        // (A NaN is no agreement.)
        let off = |by: f64| error.is_nan() || error > by;
        (off(LOST) || other_classes && off(bound)).then(|| Self {
            same_class: classes.then_some((found.same_class, found.images)),
            output: worst.name.clone(),
            error,
        })
    }
}

impl std::fmt::Display for Disagreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((same, of)) = self.same_class {
            write!(f, "same class on {same} of {of} samples, ")?;
        }
        let Self { output, error, .. } = self;
        write!(f, "{output} off by {:.0} % of its spread on half of the samples or more", 100.0 * error)
    }
}

/// A compiled model, and how it was found to be.
pub struct Compiled {
    /// The model, with a fresh secret.
    pub bundle: Bundle,
    /// The float network that it was made from, if that is another form of the one that was given: what the file has right behind
    /// the input is in the layers behind it. Node i is node i of the model.
    pub moved: Option<Graph>,
    /// What became of the map that the file has right behind the input, if it has one.
    pub input_map: Option<MapFound>,
    /// How it would be run by default.
    pub plan: Plan,
    /// How its scales came out.
    pub report: Report,
    /// The exact integer network, guard bits and all, beside the float network, on all samples.
    pub agreement: Agreement,
    /// An imitated private run beside it, scales from either half of the samples, on the other half.
    pub held_out: Agreement,
    /// What labelled pictures said, if there were any.
    pub classes: Option<Classes>,
    /// What was chosen, if reduced-precision signs were asked for.
    pub signs: Option<ReducedSigns>,
    /// What may cost accuracy.
    pub warnings: Vec<Warning>,
}

impl Compiled {
    /// The integer network beside the float network on other inputs, tensors `[C, H, W]`; `done` hears how many are
    /// through.
    ///
    /// # Errors
    /// An input of the wrong length.
    pub fn agreement(
        &self,
        cpu: Cpu,
        graph: &Graph,
        inputs: &[Vec<f32>],
        done: &mut dyn FnMut(usize),
    ) -> Result<Agreement, CompileError> {
        Ok(agreement_heard(cpu, graph, &self.bundle.model, inputs, done)?)
    }

    /// Where values on other inputs reach beyond what calibration saw: by node, the farthest first.
    ///
    /// # Errors
    /// An input of the wrong length.
    pub fn beyond(&self, cpu: Cpu, inputs: &[Vec<f32>]) -> Result<Vec<Beyond>, CompileError> {
        Ok(beyond(cpu, &self.bundle.model, &self.report, inputs)?)
    }

    /// Imitated private runs beside it: truncation by chance, and signs as they are.
    ///
    /// # Errors
    /// An input of the wrong length.
    pub fn imitated(&self, cpu: Cpu, graph: &Graph, inputs: &[Vec<f32>]) -> Result<Agreement, CompileError> {
        Ok(private_agreement(cpu, graph, &self.bundle.model, inputs, SEED)?)
    }
}

/// Of the imitated private runs that are reported; other than those of any search.
const SEED: u64 = 0x5eed;

/// So many samples make ranges reliable.
const ENOUGH: usize = 10;

/// Larger values than a network has that was trained on numbers around zero.
const RAW: f32 = 50.0;

/// Compiles `graph` by what it does on `samples`: tensors `[C, H, W]`, ten or more, like those that will come. Each
/// half of them is tried with the scales of the other, to see how the network does on what it has not seen; the model's
/// scales are from all. What its layers will cost is planned with the first backend of `kit`.
///
/// # Errors
/// When the options or samples cannot be, the network does not fit, or the samples themselves overflow.
pub fn compile(
    kit: &Kit,
    graph: &Graph,
    samples: &[Vec<f32>],
    options: &Options,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Compiled, CompileError> {
    options.check(graph)?;
    let (moved, input_map) = place_input_map(options.cpu, graph, samples, options.input_map);
    let scales_itself = !graph.affine.is_empty();
    let graph = moved.as_ref().unwrap_or(graph);
    let but_for_width = quantise::Options {
        weight_bits: options.weight_bits,
        headroom: options.headroom,
        image: options.image.clone(),
        labels: options.labels.clone(),
        ..quantise::Options::default()
    };

    // 1. Ranges, widths and scales.
    tell(Event::Calibrating(0, samples.len()));
    let calibrated =
        Samples::new(options.cpu, graph, samples, &mut |done| tell(Event::Calibrating(done, samples.len())))?;
    let few = (samples.len() < ENOUGH).then_some(Warning::FewSamples(samples.len()));
    let odd = calibrated.oddities(samples).into_iter().map(Warning::Samples);
    let public = input_map.as_ref().and_then(|map| match map.place {
        MapPlace::Secret | MapPlace::Asked => None,
        MapPlace::Stuck | MapPlace::Costly(_) => Some(Warning::PublicMap(map.clone())),
    });
    let tail = graph.left_out().map(Warning::Tail);
    let lost = Some(graph.lost_blocks.clone()).filter(|layers| !layers.is_empty()).map(Warning::LostBlocks);
    let mut warnings: Vec<Warning> =
        tail.into_iter().chain(lost).chain(public).chain(few).chain(odd).collect();
    warnings.iter().for_each(|w| tell(Event::Warning(w)));
    let (leverage, chosen) = hide::chosen(options, &but_for_width, &calibrated, samples, tell)?;
    let (chosen, classes) = match &options.by_class {
        None => (chosen, None),
        Some(by_class) => {
            let (but_for_width, calibrated) = (&but_for_width, &calibrated);
            let search = classes::Search { kit, graph, options, by_class, but_for_width, calibrated };
            let (chosen, classes) = search.chosen(chosen, leverage.longest, tell)?;
            (chosen, Some(classes))
        }
    };
    // (What labelled pictures chose was counted with lines and factors that are as fine as can be.)
    let (leverage, chosen) = match classes {
        Some(_) => (leverage.longest, chosen),
        None => {
            hide::with_coarse_values(options, &but_for_width, &calibrated, samples, (leverage, chosen), tell)?
        }
    };
    let Chosen { width, mut model, report, held_out, .. } = chosen;
    model.leverage = Some(leverage);
    if let Hide::For(asked) = options.hide
        && let found = hidden_for(width.hiding.noise_bits, leverage)
        && found < asked
        && asked > 1.0
    {
        let warning = Warning::HiddenFor { asked, found };
        tell(Event::Warning(&warning));
        warnings.push(warning);
    }
    // What labelled pictures chose may leave the bound, on purpose (and is asked below for more than that).
    let bound =
        if classes.as_ref().is_some_and(|c| c.by_class.is_some()) { f64::INFINITY } else { options.bound };
    let judged = classes.iter().flat_map(of_classes);
    for warning in judged.chain(of_held_out(&held_out, samples.len(), bound)) {
        tell(Event::Warning(&warning));
        warnings.push(warning);
    }
    model.network.input.seen = Seen::of(samples.iter().map(Vec::as_slice));

    // 2. The whole of it beside the float network, with the guard bits that it will run with.
    tell(Event::Checking(0, samples.len()));
    let mut done = |done| tell(Event::Checking(done, samples.len()));
    let guarded = model.clone().guarded(width.hiding).map_err(QuantiseError::from)?;
    let agreement = agreement_heard(options.cpu, graph, &guarded, samples, &mut done)?;
    let for_clients = match options.keep_names {
        true => model.network.clone(),
        false => model.network.clone().without_names(),
    };
    tell(Event::Quantised(&report, &for_clients));
    let more = of_layers(&report.warnings);
    let suspicious = options.raw_pixels && !scales_itself;
    let raw =
        (suspicious && looks_raw(&model.network, agreement.largest_logit)).then_some(Warning::RawPixels {
            seen: model.network.input.seen,
            largest_logit: agreement.largest_logit,
        });
    for warning in more.into_iter().chain(raw) {
        tell(Event::Warning(&warning));
        warnings.push(warning);
    }
    if agreement.overflows > 0 {
        let bits = model.network.activation_bits;
        return Err(CompileError::Overflows { values: agreement.overflows, bits });
    }

    if let Some(found) = Disagreement::of(&agreement, &model.network, options.bound) {
        if !options.force {
            return Err(CompileError::Disagrees(found));
        }
        let warning = Warning::Disagrees(found);
        tell(Event::Warning(&warning));
        warnings.push(warning);
    }

    // 3. Signs.
    let signs = match options.reduced_signs {
        true => Some(reduce(kit, &mut model, samples, (options, width.hiding), tell)?),
        false => None,
    };
    // 4. What clients will see of it.
    for (node, other) in model.network.nodes.iter_mut().zip(for_clients.nodes) {
        node.name = other.name;
    }
    model.network.output.parts = for_clients.output.parts;
    let bundle = Bundle::with_hiding(model, width.hiding)?;
    let network = &bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, kit.first()))?;
    Ok(Compiled { bundle, moved, input_map, plan, report, agreement, held_out, classes, signs, warnings })
}

fn reduce(
    kit: &Kit,
    model: &mut Model,
    samples: &[Vec<f32>],
    (options, hiding): (&Options, Hiding),
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<ReducedSigns, CompileError> {
    let guarded = model.network.guarded(hiding).map_err(QuantiseError::from)?;
    let plan = Plan::new(&guarded, Choices::standard(&guarded, kit.first()))?;
    let chosen = signs::reduce(options.cpu, model, samples, (&plan, options.bound), &mut |stage| {
        tell(Event::Signs(stage));
    })?;
    tell(Event::SignsChosen(&chosen));
    Ok(chosen)
}

/// Whether pictures most likely lack the preprocessing that the network, which does not scale them itself, was trained with: its
/// logits are out of all proportion.
fn looks_raw(network: &Network, largest_logit: f64) -> bool {
    let large = network.input.seen.is_some_and(|s| s.highest > RAW);
    large && largest_logit > f64::from(RAW)
}

/// What labelled pictures do not say.
fn of_classes(classes: &Classes) -> Vec<Warning> {
    let Classes { pictures, loss, by_class, .. } = classes;
    let few = (*loss * *pictures as f64) < 1.0 && *loss > 0.0;
    let few = few.then_some(Warning::FewPictures { pictures: *pictures, loss: *loss });
    let none = by_class.is_none().then(|| Warning::Lost(classes.clone()));
    few.into_iter().chain(none).collect()
}

/// What is told of layers: of curves that are coarse in one line, where there are several.
fn of_layers(found: &[quantise::Warning]) -> Vec<Warning> {
    let coarse = |warning: &quantise::Warning| match warning {
        quantise::Warning::Coarse { node, units } => Some((node.clone(), *units)),
        _ => None,
    };
    let mut curves: Vec<(String, f64)> = found.iter().filter_map(coarse).collect();
    if curves.len() < 2 {
        return found.iter().cloned().map(Warning::Layer).collect();
    }
    curves.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let others = found.iter().filter(|warning| coarse(warning).is_none());
    others.cloned().map(Warning::Layer).chain([Warning::Coarse(curves)]).collect()
}

/// Where inputs that the scales were not made from come out worse than they should.
fn of_held_out(found: &Agreement, samples: usize, bound: f64) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if found.overflows > 0 {
        warnings.push(Warning::HeldOutOverflows { values: found.overflows, samples });
    } else if found.tight > 0 {
        // (What helps is the same: one of them is told.)
        warnings.push(Warning::HeldOutTight { values: found.tight, samples });
    }
    if found.worst_relative_error > bound {
        warnings.push(Warning::HeldOutError { found: found.clone(), samples, bound });
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several curves that are coarse are told in one line, the farthest first; one is told as it is, and so is all else.
    #[test]
    fn coarse_curves_are_told_in_one_line() {
        let coarse = |node: &str, units| quantise::Warning::Coarse { node: node.into(), units };
        let dead = quantise::Warning::Dead { node: "d".into() };
        let one = [coarse("a", 3.0), dead.clone()];
        assert_eq!(of_layers(&one), one.clone().map(Warning::Layer));
        let told = of_layers(&[coarse("a", 3.0), dead.clone(), coarse("b", 7.25), coarse("c", 2.5)]);
        let words: Vec<String> = told.iter().map(Warning::to_string).collect();
        assert_eq!(told[0], Warning::Layer(dead));
        let all = "the lines of 3 curves are up to 7.2 units from them, since values go far beyond where they bend: b (7.2), a (3.0), c (2.5)";
        assert_eq!(words[1..], [all]);
        // Of many the farthest are named.
        let many: Vec<_> = (0..9).map(|i| coarse("many", f64::from(i))).collect();
        let [Warning::Coarse(curves)] = &of_layers(&many)[..] else { panic!("one warning") };
        assert_eq!(curves.len(), 9);
        let words = Warning::Coarse(curves.clone()).to_string();
        assert!(words.ends_with("many (8.0), many (7.0), many (6.0), and 6 more"), "{words}");
    }

    /// Values that take the last bit of their range are told, unless some leave it.
    #[test]
    fn values_in_the_bit_to_spare_are_told() {
        let found = |overflows, tight| Agreement {
            images: 10,
            same_class: 10,
            max_error: 0.0,
            mean_error: 0.0,
            largest_logit: 1.0,
            worst_relative_error: 0.0,
            outputs: Vec::new(),
            overflows,
            tight,
            classes: Vec::new(),
        };
        let told = |overflows, tight| of_held_out(&found(overflows, tight), 10, 0.01);
        assert_eq!(told(0, 0), []);
        assert_eq!(told(0, 7), [Warning::HeldOutTight { values: 7, samples: 10 }]);
        assert_eq!(told(3, 7), [Warning::HeldOutOverflows { values: 3, samples: 10 }]);
    }
}
