//! The fewest bits by how often the right class comes out, on labelled pictures.
//!
//! ```text
//! right   <- the pictures whose class the float network finds
//! loss    <- how many of these an imitated private run misses, less those that it finds and the float network does not
//! width   <- the fewest activation bits, then the fewest guard bits, whose loss is as small as was asked for
//! ```
//!
//! A bound on logits holds for every class of every input. A class needs less where its logit is far above the others: then rounding
//! and the server's noise may be larger than the bound allows, and no answer changes. What is hidden, and for how many queries,
//! is the same by both rules: the noise has the same number of bits, in last places of whatever is opened.

use std::path::Path;

use jaguar_graph::float::Graph;
use jaguar_graph::network::{ACTIVATION_BITS, Hiding, MAX_NOISE_BITS, Model, NOISE_MARGIN, Shape, argmax};
use jaguar_graph::quantise::{self, Chosen, Samples, Width, narrowest};
use jaguar_graph::reference::{self, Draws};
use jaguar_plan::predict::{Session, predict};
use jaguar_plan::{Choices, Kit, Plan};
use rayon::prelude::*;

use crate::hide::MOST_GUARD_BITS;
use crate::samples::folder::Skipped;
use crate::samples::labelled::{Labelled, labelled};
use crate::samples::{Axes, open};
use crate::{CompileError, Event, Hide, Options, Widths};

/// That widths are chosen by how often the right class comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct ByClass {
    /// Labelled pictures; they are read anew for each width.
    pub pictures: Vec<Labelled>,
    /// Of all pictures, which part may have the right class by the float network and not by the compiled one (less those where it is
    /// the other way round): 0 to 1.
    pub loss: f64,
}

impl ByClass {
    /// 0.2 % of the pictures.
    pub const LOSS: f64 = 0.002;

    /// The pictures of `data`, a folder or a list ([`labelled`]), for `graph`, whose classes `labels` names, if there are names; and the
    /// files that were left out. No picture is read yet.
    ///
    /// # Errors
    /// When the network's output is no list of classes, or `data` does not say the class of each picture.
    pub fn read(
        data: &Path,
        graph: &Graph,
        labels: &[String],
        loss: f64,
    ) -> Result<(Self, Vec<Skipped>), CompileError> {
        let found = labelled(data, labels, classes(graph)?)?;
        Ok((Self { pictures: found.pictures, loss }, found.skipped))
    }

    /// How many pictures may be lost.
    pub fn allowed(&self) -> usize {
        // (0.002 of 500 pictures is one.)
        (self.loss * self.pictures.len() as f64 + 1e-9) as usize
    }

    /// Whether it can be of use for this network.
    ///
    /// # Errors
    /// When its output is no list of classes, there are no pictures, or the loss is no part.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), CompileError> {
        classes(graph)?;
        if self.pictures.is_empty() {
            return Err(CompileError::NoPictures);
        }
        if (0.0..1.0).contains(&self.loss) { Ok(()) } else { Err(CompileError::Loss) }
    }
}

/// How many classes the network tells apart.
fn classes(graph: &Graph) -> Result<usize, CompileError> {
    match graph.nodes.last().map_or([0; 3], |node| node.shape) {
        [classes, 1, 1] if classes > 1 => Ok(classes),
        shape => Err(CompileError::NoClasses(shape)),
    }
}

/// How often a compiled network finds the right class, beside the float network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its width.
    pub width: Width,
    /// How many pictures it ran on: fewer than all if these settled that too many are lost.
    pub pictures: usize,
    /// Of these, how many have the right class.
    pub right: usize,
    /// How many have the right class by the float network only, ...
    pub lost: usize,
    /// ... and how many by the compiled network only.
    pub won: usize,
    /// How many values left their range.
    pub overflows: usize,
    /// Whether no more are lost than may be, and no value leaves its range.
    pub kept: bool,
}

/// What a rule chose, and what that takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruled {
    /// The width.
    pub width: Width,
    /// By which part of their spread logits are off at most, on inputs left out of calibration.
    pub error: f64,
    /// Bytes of a query before its input and with it, both ways, with the first backend of the kit.
    pub bytes: [u64; 2],
    /// On the labelled pictures.
    pub counted: Counted,
}

/// What labelled pictures said.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    /// How many pictures there are.
    pub pictures: usize,
    /// How many of them have the right class by the float network.
    pub float_right: usize,
    /// Which part may be lost.
    pub loss: f64,
    /// By the bound on logits.
    pub by_logits: Ruled,
    /// By the loss; `None` if no width that was tried keeps it. Then the other rule's was taken.
    pub by_class: Option<Ruled>,
}

/// The float network, and what a compiled one is made with.
pub(crate) struct Search<'a> {
    pub kit: &'a Kit,
    pub graph: &'a Graph,
    pub options: &'a Options,
    pub by_class: &'a ByClass,
    pub but_for_width: &'a quantise::Options,
    pub calibrated: &'a Samples<'a>,
}

/// The fewest guard bits that there are, if there are any.
const LEAST_GUARD_BITS: u32 = 2;

/// Any will do; a fixed one makes the choice reproducible.
const SEED: u64 = 2;

impl Search<'_> {
    /// The model with the fewest bits that keep the loss, beside `by_logits`, which the bound on logits chose; that one, if none does.
    pub fn chosen(
        &self,
        by_logits: Chosen,
        leverage: f64,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(Chosen, Classes), CompileError> {
        let right = self.float_right(tell)?;
        let counted = self.count(&by_logits.model, by_logits.width, &right, tell)?;
        let fewest = self.fewest(&counted, leverage, &right, tell)?;
        let logits = self.ruled(&by_logits, counted)?;
        let (chosen, by_class) = match fewest {
            None => (by_logits, None),
            Some(counted) => {
                let Options { bound, .. } = self.options;
                let widths = [counted.width];
                let chosen = narrowest(self.calibrated, self.but_for_width, &widths, *bound, &mut |_| ())?;
                let ruled = self.ruled(&chosen, counted)?;
                (chosen, Some(ruled))
            }
        };
        let float_right = right.iter().filter(|&&right| right).count();
        let ByClass { pictures, loss } = self.by_class;
        let classes =
            Classes { pictures: pictures.len(), float_right, loss: *loss, by_logits: logits, by_class };
        Ok((chosen, classes))
    }

    /// The fewest activation bits, up to those that are `known`, that keep the loss with as many guard bits as help; then the fewest guard bits.
    fn fewest(
        &self,
        known: &Counted,
        leverage: f64,
        right: &[bool],
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<Counted>, CompileError> {
        let activations = match self.options.widths {
            Widths::Bits(bits) => bits..=bits,
            Widths::Among(_) => *ACTIVATION_BITS.start()..=known.width.activation_bits,
        };
        let mut found = None;
        for width in activations.map(|bits| self.width(bits, leverage)) {
            found = self.tried(width, known, right, tell)?.filter(|counted| counted.kept);
            if found.is_some() {
                break;
            }
        }
        // Each guard bit less makes the noise twice as large beside the answer.
        let searches = matches!(self.options.hide, Hide::For(queries) if queries > 1.0);
        while let Some(Counted { width, .. }) = found
            && searches
            && width.hiding.guard_bits > LEAST_GUARD_BITS
        {
            let hiding = Hiding { guard_bits: width.hiding.guard_bits - 1, ..width.hiding };
            let fewer = self.tried(Width { hiding, ..width }, known, right, tell)?;
            let Some(fewer) = fewer.filter(|counted| counted.kept) else { break };
            found = Some(fewer);
        }
        Ok(found)
    }

    /// With as many guard bits as help, and the noise that was asked for.
    fn width(&self, activation_bits: u32, leverage: f64) -> Width {
        let hiding = match self.options.hide {
            Hide::As(hiding) => hiding,
            Hide::For(queries) if queries <= 1.0 => Hiding::NONE,
            Hide::For(queries) => {
                let noise_bits = Hiding::noise_bits_for(queries, leverage).unwrap_or(MAX_NOISE_BITS);
                Hiding { guard_bits: MOST_GUARD_BITS, noise_bits }
            }
        };
        Width { activation_bits, hiding }
    }

    /// How this width does; `None` if it has no room for its noise, or no scales (a clip may need more bits).
    fn tried(
        &self,
        width: Width,
        known: &Counted,
        right: &[bool],
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<Counted>, CompileError> {
        if width == known.width {
            return Ok(Some(*known));
        }
        let noise_bits = width.hiding.noise_bits;
        if noise_bits > 0 && width.bits() < noise_bits + NOISE_MARGIN {
            return Ok(None);
        }
        match self.calibrated.quantise(&width.of(self.but_for_width)) {
            Ok((model, _)) => self.count(&model, width, right, tell).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// By picture, whether the float network finds its class.
    fn float_right(&self, tell: &mut dyn FnMut(Event<'_>)) -> Result<Vec<bool>, CompileError> {
        let all = self.by_class.pictures.len();
        let mut right = Vec::with_capacity(all);
        tell(Event::Judging(None, 0, all));
        for some in self.by_class.pictures.chunks(at_once()) {
            let found: Result<Vec<bool>, CompileError> = some
                .par_iter()
                .map(|picture| {
                    let tensor = self.tensor(&picture.path)?;
                    // (The tensor has the network's shape.)
                    let logits = self.graph.forward(self.options.cpu, &tensor);
                    Ok(logits.is_some_and(|logits| argmax(&logits) == picture.class))
                })
                .collect();
            right.extend(found?);
            tell(Event::Judging(None, right.len(), all));
        }
        Ok(right)
    }

    /// Imitated private runs of `model`, which has no guard bits yet.
    fn count(
        &self,
        model: &Model,
        width: Width,
        float_right: &[bool],
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Counted, CompileError> {
        let model = model.clone().guarded(width.hiding).map_err(quantise::QuantiseError::from)?;
        let all = self.by_class.pictures.len();
        let mut counted =
            Counted { width, pictures: 0, right: 0, lost: 0, won: 0, overflows: 0, kept: false };
        tell(Event::Judging(Some(width), 0, all));
        let size = at_once();
        for (some, float) in self.by_class.pictures.chunks(size).zip(float_right.chunks(size)) {
            let first = counted.pictures;
            let numbered: Vec<(usize, &Labelled)> = (first..).zip(some).collect();
            let found: Result<Vec<(bool, usize)>, CompileError> =
                numbered.into_par_iter().map(|(i, picture)| self.private(&model, i, picture)).collect();
            for ((right, overflows), &float) in found?.into_iter().zip(float) {
                counted.right += usize::from(right);
                counted.lost += usize::from(float && !right);
                counted.won += usize::from(right && !float);
                counted.overflows += overflows;
            }
            counted.pictures += some.len();
            tell(Event::Judging(Some(width), counted.pictures, all));
            let may_win = float_right[counted.pictures..].iter().filter(|&&right| !right).count();
            if !self.keeps(&counted, may_win) {
                break;
            }
        }
        counted.kept = counted.pictures == all && self.keeps(&counted, 0);
        tell(Event::Judged(&counted));
        Ok(counted)
    }

    /// Whether the loss can still be kept if so many more are won.
    fn keeps(&self, counted: &Counted, may_win: usize) -> bool {
        counted.overflows == 0 && counted.lost <= counted.won + may_win + self.by_class.allowed()
    }

    /// Whether an imitated private run finds the class of picture number `index`, and how many values leave their range.
    fn private(
        &self,
        model: &Model,
        index: usize,
        picture: &Labelled,
    ) -> Result<(bool, usize), CompileError> {
        let tensor = self.tensor(&picture.path)?;
        let network = &model.network;
        let input = network.input.quantise(&tensor, network.activation_bits);
        let draws = Draws { seed: SEED.wrapping_add(index as u64), rounding: true };
        let run = reference::run_drawn(self.options.cpu, model, &input, draws)?;
        let right = argmax(&network.output.logits(run.output())) == picture.class;
        Ok((right, run.total_overflows()))
    }

    fn tensor(&self, path: &Path) -> Result<Vec<f32>, CompileError> {
        let shape: Shape = self.graph.input_shape();
        let tensor = open(path)?.tensor(&self.options.image, shape, Axes::of_graph(self.graph));
        tensor.map_err(|error| CompileError::Picture { path: path.to_owned(), error })
    }

    fn ruled(&self, chosen: &Chosen, counted: Counted) -> Result<Ruled, CompileError> {
        let network =
            chosen.model.network.guarded(chosen.width.hiding).map_err(quantise::QuantiseError::from)?;
        let plan = Plan::new(&network, Choices::standard(&network, self.kit.first()))?;
        let found = predict(&plan, &Session::default(), None);
        let bytes = [&found.offline, &found.online].map(|stage| stage.bytes_up + stage.bytes_down);
        let error = chosen.held_out.worst_relative_error;
        Ok(Ruled { width: chosen.width, error, bytes, counted })
    }
}

/// How many pictures are in memory at once.
fn at_once() -> usize {
    2 * rayon::current_num_threads()
}
