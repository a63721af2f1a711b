//! `jaguar compile --protocol convfhe`: calibrates a network for ciphertexts, and cuts off layers that clients compute.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use jaguar::bundle::files;
use jaguar::compile::{InputMap, MapFound, MapPlace, place_input_map};
use jaguar::float::Graph;
use jaguar::import::first_parts;
use jaguar::network::without_names;
use jaguar::reports::terminal::table::bytes;
use jaguar::reports::terminal::{say, threads};
use jaguar::{Cpu, onnx};
use jaguar_convfhe::network::Plan;
use jaguar_convfhe::session::{Facing, FirstLayers};
use jaguar_convfhe::{
    COARSE_SET, Calibration, Compiled, DEFAULT_SET, Figures, Inputs, Polynomial, STRESS_MARGIN, Set,
    Simulated, describe, last_layers, stress,
};

use super::precision::{Precision, ROUGH, least_spread, lost};
use super::{HEADING, parameters};
use crate::one_round::protocol::Source;
use crate::progress::Steps;

/// What `jaguar compile` takes for this protocol alone.
#[derive(clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct CompileOptions {
    /// The parameter set: n16; n16-relu8, with smaller keys, less time and larger errors; or n16-full, with room for twice as many images.
    ///
    /// By default calibration finds it: n16-relu8 is taken where ten samples or more keep their class by it, and neither their logits nor
    /// those of made-up inputs are off by more than 1/64 of their spread; else n16. For tests there are sets that protect nothing:
    /// insecure-n10, insecure-n12, insecure-n14, insecure-n10-relu8, insecure-n10-full.
    #[arg(long, hide = true, value_name = "SET")]
    parameters: Option<String>,
    /// How many times larger than in calibration a layer's values may become before they spoil an answer.
    #[arg(long, hide = true, value_name = "FACTOR", default_value_t = 1.5)]
    margin: f64,
    /// How many times larger they may become than with made-up inputs, or `off` without those.
    ///
    /// Made-up inputs are single colours, stripes, chequers and noise, all as bright as a picture can be (for tensors: as large as the
    /// samples in each channel). `off` is more precise, and drawings or noise then spoil their answers.
    #[arg(long, hide = true, value_name = "FACTOR|off", default_value_t = Stress::default(), value_parser = str::parse::<Stress>)]
    stress: Stress,
    /// How many inputs a client may send in one ciphertext, side by side: an evaluation of them takes as long as one of a single input.
    ///
    /// There must be room for them: an error says for how many there is. (n16-full has more, and takes longer.) Each input, alone or not,
    /// counts as so many queries then.
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    images: u16,
    /// Only the last so many layers with ReLU are computed on ciphertexts.
    ///
    /// Clients compute those before in the clear, so they get their weights: in a file, --first-layers of `jaguar predict`.
    #[arg(long, hide = true, value_name = "LAYERS", value_parser = clap::value_parser!(u16).range(1..))]
    last: Option<u16>,
    /// Where the first layers are written, for clients (default: beside the model, OUTPUT.first.onnx).
    #[arg(long, hide = true, value_name = "FILE.onnx", requires = "last")]
    first_layers: Option<PathBuf>,
}

/// Whether made-up inputs have a part in calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stress {
    Off,
    Margin(f64),
}

impl Default for Stress {
    fn default() -> Self {
        Self::Margin(STRESS_MARGIN)
    }
}

impl fmt::Display for Stress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Margin(margin) => margin.fmt(f),
        }
    }
}

impl FromStr for Stress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => match text.parse() {
                Ok(margin) if (1.0..f64::INFINITY).contains(&margin) => Ok(Self::Margin(margin)),
                Ok(_) | Err(_) => Err("`off`, or a number of at least 1".into()),
            },
        }
    }
}

impl CompileOptions {
    /// The file that the first layers go to.
    fn file(&self, output: &Path) -> PathBuf {
        self.first_layers.clone().unwrap_or_else(|| output.with_added_extension("first.onnx"))
    }
}

/// A network in two parts: the client's and the server's.
struct Cut {
    /// The layers that the server computes.
    rest: Graph,
    /// For clients: as they will read it, and the file.
    first: Graph,
    bytes: Vec<u8>,
    told: FirstLayers,
}

impl Cut {
    fn new(graph: &Graph, file: &Path, layers: u16, keep_names: bool) -> Result<Self> {
        let (first, rest) = last_layers(graph, layers.into()).with_context(|| format!("--last {layers}"))?;
        let model = onnx::read(file).with_context(|| file.display().to_string())?;
        let end = first.nodes.last().expect("a cut graph has nodes");
        let dims: Vec<usize> = [1].into_iter().chain(graph.layout_dims.iter().copied()).collect();
        let is_first = |bytes: Vec<u8>| {
            let told = FirstLayers::new(end.shape, &bytes);
            let again = told.read(&bytes, graph.input_shape()).ok()?;
            let same = again.nodes.iter().map(|node| &node.op).eq(first.nodes.iter().map(|node| &node.op));
            same.then_some((bytes, told, again))
        };
        let (bytes, told, again) =
            first_parts(&model, &end.name, &dims, keep_names).find_map(is_first).with_context(|| {
                format!("--last {layers}: no part of the file computes the layers up to {} alone", end.name)
            })?;
        Ok(Self { rest, first: again, bytes, told })
    }
}

fn weights(graph: &Graph) -> usize {
    graph.nodes.iter().filter_map(|node| node.op.linear()).map(|linear| linear.weights.len()).sum()
}

/// The network with what the file has right behind the input in the weights behind that, if it goes there. What stays public is told.
fn moved(graph: &Graph, map: InputMap, samples: &[Vec<f32>], leaves_layers: bool) -> Option<Graph> {
    // (Layers of this protocol take no bias that differs by element, as zero padding makes it. A client that computes first layers
    // gets all of them.)
    let wanted = match map {
        InputMap::Secret => InputMap::Secret,
        InputMap::Auto | InputMap::Public => InputMap::Public,
    };
    let (moved, found) = place_input_map(Cpu::detect(), graph, samples, wanted);
    let told =
        |found: &MapFound| map != InputMap::Public && found.place != MapPlace::Secret && !leaves_layers;
    if let Some(found) = found.filter(told) {
        eprintln!(
            "warning: in the file right behind the input: {found} (--input-map secret puts them into the weights behind them, where \
             these can take them; --input-map public says that they may be public)"
        );
    }
    moved
}

/// Calibrates a network, and writes what `jaguar serve --protocol convfhe` reads.
pub fn compile(source: Source<'_>, options: &CompileOptions, output: &Path, steps: &mut Steps) -> Result<()> {
    let set = Set::by_name(options.parameters.as_deref().unwrap_or(DEFAULT_SET)).context("--parameters")?;
    check_output(output)?;
    let Source { graph, input_map, image, labels, samples, tests, pictures, file, keep_names, force } =
        source;
    let moved = moved(graph, input_map, &samples, options.last.is_some());
    let graph = moved.as_ref().unwrap_or(graph);
    let cut = options.last.map(|layers| Cut::new(graph, file, layers, keep_names)).transpose()?;
    let for_clients = options.file(output);
    if let Some(cut) = &cut {
        ensure!(
            for_clients != file && for_clients != output,
            "--first-layers {}: this is the network, or -o; give another name",
            for_clients.display()
        );
        // Before the calibration, which takes minutes.
        files::replace(&for_clients, &cut.bytes)?;
    }
    let facing = Facing {
        name: graph.name.clone(),
        shape: graph.input_shape(),
        layout_dims: graph.layout_dims.clone(),
        channels_last: graph.channels_last,
        image,
        // (In a file of first layers it is among them.)
        affine: if cut.is_some() { Vec::new() } else { graph.affine.clone() },
        parts: match keep_names {
            true => graph.outputs.clone(),
            false => without_names(graph.outputs.clone()),
        },
        labels,
        first: cut.as_ref().map(|cut| cut.told.clone()),
    };
    let made_up = match options.stress {
        Stress::Off => Vec::new(),
        Stress::Margin(_) => stress(facing.shape, &ranges(&facing, &samples, pictures)),
    };
    let cpu = Cpu::detect();
    // As the network on ciphertexts gets them.
    let given = |inputs: Vec<Vec<f32>>| -> Result<Vec<Vec<f32>>> {
        let one = |input: Vec<f32>| match &cut {
            None => Ok(facing.mapped(input)),
            Some(cut) => cut.first.forward(cpu, &input).context("a sample of another length"),
        };
        inputs.into_iter().map(one).collect()
    };
    let [samples, made_up, tests] = [given(samples)?, given(made_up)?, given(tests)?];
    let most = |inputs: &[Vec<f32>]| inputs.iter().flatten().fold(0.0f32, |most, v| most.max(v.abs()));
    let seen = most(&samples);
    let made_up_margin = match options.stress {
        Stress::Off => 1.0,
        Stress::Margin(margin) => margin,
    };
    let bound = match cut {
        // What first layers make of others is not known.
        Some(_) => (seen * options.margin as f32).max(most(&made_up) * made_up_margin as f32),
        // Any picture is to be within the bound, not only those.
        None if pictures => seen.max(of_pictures(&facing)),
        None => seen,
    };
    ensure!(bound > 0.0, "every sample is zero");
    // Samples travel as decimal digits, which may be rounded up.
    let rest = cut.as_ref().map_or(graph, |cut| &cut.rest);
    let description = describe(rest, f64::from(bound) * 1.000_01)?;
    let mut description = if keep_names { description } else { description.without_names() };
    description.relu = finest(&set);
    description.images = options.images.into();
    let layers = description.layers.len();
    steps.begin(format!("calibrating with {} samples and {} made-up inputs", samples.len(), made_up.len()));
    let inputs =
        Inputs { samples: &samples, margin: options.margin, stress: &made_up, stress_margin: made_up_margin };
    let (plan, found) = Compiled::calibrate(&set, description, inputs)?;
    steps.finish();
    say_calibration(&found);
    let mut simulate = |plan: &Plan, inputs: &[Vec<f32>]| -> Result<Vec<Simulated>> {
        steps.begin(format!("simulating {} inputs", inputs.len()));
        let simulated = plan.simulate(inputs)?;
        steps.finish();
        Ok(simulated)
    };
    let seen = [&samples[..], &tests[..]].concat();
    let mut candidate = |set: Set, plan: Plan| -> Result<Candidate> {
        Ok(Candidate {
            figures: Figures::new(&set, &plan, threads())?,
            seen: simulate(&plan, &seen)?,
            set,
            plan,
        })
    };
    let mut taken = candidate(set, plan)?;
    if options.parameters.is_none() {
        let set = Set::by_name(COARSE_SET)?;
        let plan = taken.plan.with_polynomial(finest(&set))?;
        let cheap = candidate(set, plan)?;
        let both = [&taken, &cheap];
        let least = least_spread(&taken.seen[..samples.len()]);
        let made_up = || -> Result<_> {
            let made = both.map(|one| anyhow::Ok(Precision::of(&simulate(&one.plan, &made_up)?, least)));
            let [fine, cheap] = made;
            Ok([fine?, cheap?])
        };
        let given = both.map(|one| Precision::of(&one.seen, 0.0));
        let (cheaper, line) = parameters::choose(&found, given, both.map(|one| &one.figures), made_up)?;
        say!("{line}");
        if cheaper {
            taken = cheap;
        }
    }
    let Candidate { set, plan, seen, figures } = taken;
    let (by_samples, by_tests) = seen.split_at(samples.len());
    say_reach(by_tests);
    for (what, simulated) in [("samples", by_samples), ("test inputs", by_tests)] {
        if simulated.is_empty() {
            continue;
        }
        say_precision(what, simulated, &set);
        let Some(lost) = lost(simulated) else { continue };
        if !force {
            bail!(
                "not written, for the encrypted network would not answer as the network does ({what}): {lost}. Other samples, a larger \
                 --margin or --parameters {DEFAULT_SET} may help; --force writes it all the same"
            );
        }
        eprintln!("warning: the encrypted network will not answer as the network does ({what}): {lost}");
    }
    let compiled = Compiled::write(&set, &plan, facing, output)?;
    let Figures { keys, input, answer, memory } = figures;
    say!(
        "{}: {layers} layers with ReLU, input {:?}, {} outputs, parameter set {set}",
        compiled.facing.name,
        compiled.facing.shape,
        compiled.outputs
    );
    let images = match options.images {
        1 => "an image".to_owned(),
        images => format!("up to {images} images at once"),
    };
    say!(
        "a client will send {} of keys once, then {} for {images}, and get {}; an evaluation takes about {} of memory",
        bytes(keys),
        bytes(input as u64),
        bytes(answer as u64),
        bytes(memory)
    );
    say!("wrote {} ({})", output.display(), bytes(std::fs::metadata(output).map_or(0, |m| m.len())));
    if let Some(cut) = cut {
        let [public, all] = [&cut.first, graph].map(weights);
        say!(
            "wrote {} ({}): the first layers, for clients. {public} of {all} weights are theirs then ({:.1} %)",
            for_clients.display(),
            bytes(cut.bytes.len() as u64),
            100.0 * public as f64 / all as f64
        );
    }
    Ok(())
}

/// A calibrated network under a parameter set.
struct Candidate {
    set: Set,
    plan: Plan,
    figures: Figures,
    /// What it makes of samples, and behind them of test inputs.
    seen: Vec<Simulated>,
}

/// The finest polynomial that a set has levels for.
fn finest(set: &Set) -> Polynomial {
    u32::try_from(set.relu_levels()).ok().and_then(Polynomial::finest).unwrap_or_default()
}

/// By channel, what pictures can have, or what samples have, in front of the affine map.
fn ranges(facing: &Facing, samples: &[Vec<f32>], pictures: bool) -> Vec<[f32; 2]> {
    let plane = facing.shape[1] * facing.shape[2];
    let channel = |c: usize| {
        let seen = samples.iter().flat_map(|sample| sample.iter().skip(c * plane).take(plane)).copied();
        let ends = |pixel: f32| (pixel - facing.image.mean[c]) * facing.image.factor[c];
        let possible = if pictures { vec![ends(0.0), ends(255.0)] } else { Vec::new() };
        let all = seen.chain(possible);
        all.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)])
    };
    (0..facing.shape[0]).map(channel).collect()
}

/// What the calibration found, for people.
fn say_calibration(found: &Calibration) {
    let Calibration { samples, stress, distinct: _, left_out, stressed, stretch, warnings } = found;
    say!(
        "calibrated with {samples} samples and {stress} made-up inputs; these set {stressed} bounds, and raise one up to {stretch:.1} times"
    );
    if *left_out > 0.0 {
        say!("a sample reaches {left_out:.2} of the bounds that the others give, at most");
    }
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
}

/// How far test inputs reach in the calibrated network, for people.
fn say_reach(simulated: &[Simulated]) {
    let all = simulated.len();
    let within = simulated.iter().filter(|one| one.logits.is_some()).count();
    if let Some(farthest) = simulated.iter().max_by(|a, b| a.reach.total_cmp(&b.reach)) {
        say!(
            "test inputs: {within} of {all} stay within the bounds; the farthest reaches {:.2} of one, at {}",
            farthest.reach,
            farthest.layer
        );
    }
    if within < all {
        eprintln!(
            "warning: {} of {all} test inputs leave the bounds: their answers would mean nothing. Calibrate with inputs like \
             them, or with a larger --margin",
            all - within
        );
    }
}

/// By how much logits are off since a polynomial stands for ReLU, for people. Inputs that leave the bounds have none.
fn say_precision(what: &str, simulated: &[Simulated], set: &Set) {
    let Precision { answered, same, worst } = Precision::of(simulated, 0.0);
    if answered == 0 {
        return;
    }
    say!(
        "{what}, by ReLU's polynomial and before noise: {same} of {answered} have the class of ReLU itself, logits are off by at most \
         {:.2} % of their spread",
        100.0 * worst
    );
    if worst > ROUGH {
        eprintln!("warning: {}", finer(finest(set)));
    }
}

/// What makes logits less rough than by this polynomial.
fn finer(polynomial: Polynomial) -> String {
    let set = match Polynomial::default().levels() > polynomial.levels() {
        true => format!("--parameters {DEFAULT_SET} has a finer polynomial. "),
        false => String::new(),
    };
    format!(
        "that is rough; {set}--stress off gives smaller errors, but leaves drawings and noise without an answer"
    )
}

/// The largest absolute value that a picture can have, behind preprocessing and affine map.
fn of_pictures(facing: &Facing) -> f32 {
    let pixels = facing.image.mean.iter().zip(&facing.image.factor).enumerate();
    let value = |(c, (mean, factor)): (usize, (&f32, &f32)), pixel: f32| {
        let (mul, add) = facing.affine.get(c).copied().unwrap_or((1.0, 0.0));
        ((pixel - mean) * factor * mul + add).abs()
    };
    pixels.map(|channel| value(channel, 0.0).max(value(channel, 255.0))).fold(0.0, f32::max)
}

/// Only such a model is overwritten.
fn check_output(path: &Path) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        let why = "this file is there and is no model for --protocol convfhe; give another name, or remove it first";
        Compiled::read(path).with_context(|| format!("-o {}: {why}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_inputs_have_a_margin_or_are_left_out() {
        assert_eq!("off".parse(), Ok(Stress::Off));
        assert_eq!("1.1".parse(), Ok(Stress::Margin(1.1)));
        assert_eq!(Stress::default().to_string().parse(), Ok(Stress::default()));
        for bad in ["", "on", "0.9", "-1", "NaN", "inf"] {
            assert!(bad.parse::<Stress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_finer_set_is_advised_where_there_is_one() {
        assert!(finer(Polynomial::Coarse).contains("--parameters n16 has a finer"));
        assert!(!finer(Polynomial::Paper).contains("--parameters"));
        let most = Polynomial::ALL.into_iter().map(Polynomial::levels).max();
        assert_eq!(most, Some(finest(&Set::by_name(DEFAULT_SET).unwrap()).levels()));
    }
}
