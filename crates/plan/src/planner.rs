//! Chooses what a plan leaves open, by what it would cost on one machine and over one link, and says why.
//!
//! # What is minimised
//!
//! ```text
//! seconds of a query  +  seconds of the hint and of keys / QUERIES_PER_CLIENT
//!                     +  seconds of the a half / QUERIES_PER_MODEL
//! ```
//!
//! as [`crate::predict`] tells them. Bytes count through the link, work through the machine. Where LPN instances are chosen,
//! a byte has a price besides, [`SECONDS_PER_BYTE`]. Where the answer to an input is what is to be short
//! ([`crate::predict::Aim::Online`]), a second before the input counts less than one with it.
//!
//! # What is chosen
//!
//! | choice | among | bound to a hint |
//! |---|---|---|
//! | ring | those of the backends ([`Backend::rings`](jaguar_linear::backend::Backend::rings)); those whose noise would show, or whose modulus is too narrow, are out | yes |
//! | packing, by linear layer | the two of `Packing` | yes |
//! | backend, by linear layer | those that are allowed; the first that can run it, unless the whole query gains | yes |
//! | digits, by nonlinear layer | [`DIGITS`] | no |
//! | LPN instances, for bits and for vectors | [`Instances::all`] | no |
//!
//! A tile is always as large as the ring allows: fewest tiles means fewest responses, and these are what a query, a hint and the a
//! half all pay for. The kernel is the widest that the processor has. Activation bits belong to the quantised network.
//!
//! # Stability
//!
//! Measured constants differ a little from one measurement to the next, and a client's hint must outlast that. So what a hint is
//! bound to leaves its default only where another choice wins by more than [`MARGIN`], and a server keeps it from then on: it
//! passes its former choices to [`choose`], which then only picks the digits and the LPN instances anew.

use jaguar_graph::network::Network;
use jaguar_linear::layout::Packing;
use jaguar_mpc::cost::{self, Drawn, Instances, Noise};
use serde::Serialize;

use crate::kit;
use crate::machine::DIGITS;
use crate::predict::{self, Session, Site, step_seconds};
use crate::{BackendId, Choices, DIGIT, Plan, PlanError, Step, WEIGHT_MEMORY};

/// How many queries a hint is thought to serve.
pub(crate) const QUERIES_PER_CLIENT: f64 = 100.0;

/// How many queries one start of a server is thought to serve.
pub(crate) const QUERIES_PER_MODEL: f64 = 10_000.0;

/// What a hint is bound to changes only for a gain of more than this share.
pub const MARGIN: f64 = 0.05;

/// Seconds that a byte which makes correlations counts for besides its time on the link, as on a line of 160 Mbit/s: a byte costs
/// more than time, and who plans for loopback only tries out what is to run over a network.
pub const SECONDS_PER_BYTE: f64 = 5e-8;

/// One choice and its predicted figures, all else being as chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// The choice, in a few words.
    pub what: String,
    /// Whether it is the one that was taken.
    pub taken: bool,
    /// Why it is impossible; `None` where it is not.
    pub refused: Option<String>,
    /// What it would cost; of the whole query or of the layer, as the place says.
    pub figures: Option<Figures>,
}

/// What alternatives are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Seconds of a query, `None` where nothing was measured.
    pub seconds: Option<f64>,
    /// Those, and the shares of the hint and the a half: what is minimised.
    pub weighed: Option<f64>,
    /// Of these, with the input.
    pub online_seconds: Option<f64>,
    /// Bytes of a query, both ways.
    pub bytes: u64,
    /// Of these, with the input.
    pub online_bytes: u64,
    /// How often the client waits for an answer.
    pub rounds: u64,
    /// Bytes of the hint, which a client fetches once.
    pub hint_bytes: u64,
    /// Bytes of keys that the server keeps for a client. (They are of no single layer.)
    pub key_bytes: u64,
    /// Input ciphertexts: ring products of the client, before the input.
    pub ciphertexts: usize,
    /// Responses: ring products of both, before the input.
    pub responses: usize,
    /// Correlated OTs that a query uses up.
    pub cots: u64,
    /// The largest noise of any linear layer: its standard deviation in units of the last place above the guard bits.
    pub noise_ulps: f64,
}

/// A layer's alternatives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The node's number in the network.
    pub node: usize,
    /// What the network calls the node.
    pub name: String,
    /// The choice that was open.
    pub about: &'static str,
    /// What there was to choose from.
    pub alternatives: Vec<Alternative>,
    /// Why the taken one was.
    pub reason: String,
}

/// Why a plan is as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Rings, for the whole network.
    pub rings: Vec<Alternative>,
    /// Why the taken one was.
    pub ring_reason: String,
    /// Activation bits, for the whole network; fixed when the network is compiled.
    pub activations: Vec<Alternative>,
    /// By layer with a choice.
    pub layers: Vec<Decision>,
}

/// Chooses for `network`, with the `allowed` backends: a layer has the first one that can run it, unless another makes the
/// whole query cheaper. What a hint is bound to is taken over from `kept` where it still makes a plan.
///
/// # Errors
/// When no ring can hold the network.
pub fn choose(
    network: &Network,
    allowed: &[BackendId],
    site: &Site<'_>,
    kept: Option<&Choices>,
) -> Result<Choices, PlanError> {
    choose_within(network, allowed, site, kept, WEIGHT_MEMORY)
}

/// As [`choose`], with so many bytes for weights as polynomials at the server. What was kept for another figure is no
/// longer the best, but clients' keys and hints are bound to it: it stays.
///
/// # Errors
/// As there.
pub fn choose_within(
    network: &Network,
    allowed: &[BackendId],
    site: &Site<'_>,
    kept: Option<&Choices>,
    weight_memory: u64,
) -> Result<Choices, PlanError> {
    let mut choices = match kept.filter(|k| k.backends.iter().all(|b| allowed.contains(b))) {
        Some(kept) if Plan::new(network, kept.clone()).is_ok() => Choices { weight_memory, ..kept.clone() },
        _ => bound_to_hint(network, allowed, site, weight_memory)?,
    };
    let plans = DIGITS
        .iter()
        .map(|&digit| {
            let digits = vec![digit as u8; network.nodes.len()];
            Ok((digit, Plan::new(network, Choices { digits, ..choices.clone() })?))
        })
        .collect::<Result<Vec<_>, PlanError>>()?;
    for (node, chosen) in choices.digits.iter_mut().enumerate() {
        *chosen = DIGIT as u8;
        if !has_digits(&plans[0].1.steps[node]) {
            continue;
        }
        // Of equals, the one with the fewest rounds.
        let options = plans
            .iter()
            .rev()
            .filter_map(|(digit, plan)| Some((*digit, step_weighed(&plan.steps[node], site)?)));
        if let Some((digit, _)) = options.min_by(|a, b| a.1.total_cmp(&b.1)) {
            *chosen = digit as u8;
        }
    }
    let plan = Plan::new(network, choices.clone())?;
    choices.instances = instances(predict::correlations(&plan, &Session::default()), site, Noise::Fresh);
    Ok(choices)
}

/// The same choices with stationary noise ([`Noise::Stationary`]), and with the bins that are best for it, where a `site` tells.
///
/// # Errors
/// When the choices make no plan.
pub fn with_stationary_noise(
    network: &Network,
    choices: Choices,
    site: Option<&Site<'_>>,
) -> Result<Choices, PlanError> {
    let noise = Noise::Stationary;
    let instances = match site {
        None => Instances { noise, ..choices.instances },
        Some(site) => {
            let plan = Plan::new(network, choices.clone())?;
            instances(predict::correlations(&plan, &Session::default()), site, noise)
        }
    };
    Ok(Choices { instances, ..choices })
}

/// The instances that make what a connection's first query draws, by the server and by the client, at the least cost: the time of
/// both parties at work and of the link beside them, and a price for every byte.
pub(crate) fn instances(
    (from_server, from_client): (Drawn, Drawn),
    site: &Site<'_>,
    noise: Noise,
) -> Instances {
    let weighed = |instances: Instances| {
        let bytes = |drawn| cost::extension_bytes(instances, Drawn::default(), drawn);
        let (down, up, setup) = (bytes(from_server), bytes(from_client), cost::setup_bytes(instances));
        let transfer = (down.max(up) + setup) as f64 / site.link.bytes_per_second;
        let each = site.machine.making(instances, from_server + from_client) / predict::preparing(site);
        predict::overlapped(each, transfer) + (down + up + 2 * setup) as f64 * SECONDS_PER_BYTE
    };
    let default = Instances { noise, ..Instances::default() };
    let best = |best: Instances, other| if weighed(other) < weighed(best) { other } else { best };
    Instances::all(noise).fold(default, best)
}

/// Ring and packings.
fn bound_to_hint(
    network: &Network,
    allowed: &[BackendId],
    site: &Site<'_>,
    weight_memory: u64,
) -> Result<Choices, PlanError> {
    let standard = Choices { weight_memory, ..Choices::among(network, allowed)? };
    let mut best: Option<(Choices, Option<f64>)> = None;
    let mut first_error = None;
    for ring in kit::rings(allowed) {
        let choices = standard.clone().in_ring(ring);
        match Plan::new(network, choices.clone()) {
            Err(e) => first_error = first_error.or(Some(e)),
            Ok(plan) => {
                let weighed = figures(&plan, Some(site)).weighed;
                let wins = match (&best, weighed) {
                    (None, _) => true,
                    (Some((_, Some(old))), Some(new)) => new < old * (1.0 - MARGIN),
                    _ => false,
                };
                if wins {
                    best = Some((choices, weighed));
                }
            }
        }
    }
    let Some((mut choices, _)) = best else {
        return Err(first_error.expect("there are rings to try"));
    };
    let [power, tight] = packed(network, &choices)?;
    for (node, packing) in choices.packings.iter_mut().enumerate() {
        let weighed = |plan: &Plan| layer_weighed(&plan.steps[node], site);
        if let (Some(power), Some(tight)) = (weighed(&power), weighed(&tight))
            && tight < power * (1.0 - MARGIN)
        {
            *packing = Packing::Tight;
        }
    }
    Ok(weigh_backends(network, choices, allowed, site))
}

/// Gives linear layers to other `allowed` backends where that makes the whole query cheaper by more than [`MARGIN`].
///
/// Layers are looked at that another backend would run for less by itself. They start as what is least of: none of them
/// moved, all of them, every layer of the network. Then each is moved to where the whole plan, with the conversions that
/// this makes, costs less.
fn weigh_backends(network: &Network, choices: Choices, allowed: &[BackendId], site: &Site<'_>) -> Choices {
    let plan_of = |backends: &[BackendId]| {
        Plan::new(network, Choices { backends: backends.to_vec(), ..choices.clone() }).ok()
    };
    let weigh = |backends: &[BackendId]| figures(&plan_of(backends)?, Some(site)).weighed;
    let first = choices.backends.clone();
    let Some(start) = weigh(&first) else { return choices };
    let (mut best, mut least) = (first.clone(), start);
    for &other in allowed {
        // As many layers as it can run.
        let order: Vec<BackendId> = std::iter::once(other).chain(allowed.iter().copied()).collect();
        let Ok(Choices { backends: everywhere, .. }) = Choices::among(network, &order) else { continue };
        let (Some(mine), Some(others)) = (plan_of(&best), plan_of(&everywhere)) else { continue };
        let mut gains: Vec<(f64, usize)> = mine
            .steps
            .iter()
            .zip(&others.steps)
            .enumerate()
            .filter(|&(node, _)| best[node] != everywhere[node])
            .filter_map(|(node, (mine, other))| {
                let gain = layer_weighed(mine, site)? - layer_weighed(other, site)?;
                (gain > 0.0).then_some((gain, node))
            })
            .collect();
        gains.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut moved = best.clone();
        gains.iter().for_each(|&(_, node)| moved[node] = everywhere[node]);
        let before = best.clone();
        for candidate in [moved, everywhere.clone()] {
            if let Some(weighed) = weigh(&candidate).filter(|&weighed| weighed < least) {
                (best, least) = (candidate, weighed);
            }
        }
        for (_, node) in gains {
            let mut candidate = best.clone();
            candidate[node] = if best[node] == everywhere[node] { before[node] } else { everywhere[node] };
            if let Some(weighed) = weigh(&candidate).filter(|&weighed| weighed < least) {
                (best, least) = (candidate, weighed);
            }
        }
    }
    if least < start * (1.0 - MARGIN) { Choices { backends: best, ..choices } } else { choices }
}

/// The plans with one packing throughout.
fn packed(network: &Network, choices: &Choices) -> Result<[Plan; 2], PlanError> {
    let plan = |packing| {
        let packings = vec![packing; network.nodes.len()];
        Plan::new(network, Choices { packings, ..choices.clone() })
    };
    Ok([plan(Packing::PowerOfTwo)?, plan(Packing::Tight)?])
}

fn has_digits(step: &Step) -> bool {
    step.nonlinear.as_ref().is_some_and(|layer| layer.digit().is_some())
}

/// What a step's seconds count.
fn step_weighed(step: &Step, site: &Site<'_>) -> Option<f64> {
    let [offline, online] = step_seconds(step, site)?;
    Some(site.aim.weigh(offline, online))
}

/// What a linear layer adds to what is minimised.
fn layer_weighed(step: &Step, site: &Site<'_>) -> Option<f64> {
    let layer = step.layer.as_ref()?;
    let work = layer.work(&site.machine.linear)?;
    let speedup = site.machine.speedups.linear;
    let hint = (work.hint / speedup).hypot(layer.traffic().hint as f64 / site.link.bytes_per_second);
    Some(step_weighed(step, site)? + hint / QUERIES_PER_CLIENT + work.model / speedup / QUERIES_PER_MODEL)
}

pub(crate) fn step_figures(step: &Step, site: Option<&Site<'_>>) -> Figures {
    let layer = step.layer.as_ref();
    let traffic = layer.map(|l| l.traffic()).unwrap_or_default();
    let both = |(up, down): (usize, usize)| (up + down) as u64;
    let cost = &step.cost;
    let seconds = site.and_then(|s| step_seconds(step, s));
    let online_bytes = cost.up + cost.down + both(traffic.online);
    Figures {
        seconds: seconds.map(|[offline, online]| offline + online),
        online_seconds: seconds.map(|[_, online]| online),
        weighed: site.and_then(|s| layer_weighed(step, s).or_else(|| step_weighed(step, s))),
        bytes: cost.prepare_up + cost.prepare_down + both(traffic.offline) + online_bytes,
        online_bytes,
        rounds: cost.client_rounds + traffic.rounds,
        hint_bytes: layer.map_or(0, |l| l.traffic().hint as u64),
        key_bytes: 0,
        ciphertexts: layer.map_or(0, |l| l.geometry().ciphertexts),
        responses: layer.map_or(0, |l| l.geometry().responses),
        cots: (cost.from_client() + cost.from_server()).total(),
        noise_ulps: step.noise_ulps().unwrap_or(0.0),
    }
}

/// A whole query's figures, as the first of a connection.
fn figures(plan: &Plan, site: Option<&Site<'_>>) -> Figures {
    let p = predict::predict(plan, &Session::default(), site);
    let seconds = p.offline.seconds.zip(p.online.seconds);
    let weigh = |(offline, online): (f64, f64)| Some(site?.aim.weigh(offline, online));
    let (from_server, from_client) = predict::correlations(plan, &Session::default());
    let weighed = (|| {
        let once = p.hint_seconds? + p.key_seconds?;
        Some(weigh(seconds?)? + once / QUERIES_PER_CLIENT + p.a_half_seconds? / QUERIES_PER_MODEL)
    })();
    let online_bytes = p.online.bytes_up + p.online.bytes_down;
    Figures {
        seconds: seconds.map(|(offline, online)| offline + online),
        online_seconds: p.online.seconds,
        online_bytes,
        weighed,
        bytes: p.offline.bytes_up + p.offline.bytes_down + online_bytes,
        rounds: p.offline.rounds + p.online.rounds,
        hint_bytes: p.hint_bytes,
        key_bytes: p.key_bytes,
        ciphertexts: plan.layers().map(|l| l.geometry().ciphertexts).sum(),
        responses: plan.responses(),
        cots: (from_server + from_client).total(),
        noise_ulps: plan.steps.iter().filter_map(Step::noise_ulps).fold(0.0, f64::max),
    }
}

fn alternative(
    what: String,
    taken: bool,
    plan: Result<Plan, PlanError>,
    site: Option<&Site<'_>>,
) -> Alternative {
    let (figures, refused) = match plan {
        Ok(plan) => (Some(figures(&plan, site)), None),
        Err(e) => (None, Some(e.to_string())),
    };
    Alternative { what, taken, refused, figures }
}

/// Activation bits, guard bits not counted, that are shown beside the network's own.
const ACTIVATIONS: std::ops::RangeInclusive<u32> = 12..=20;

/// Another plan beside one that is there: what comparisons tell was accepted when that was made.
pub(crate) fn planned(network: &Network, choices: Choices) -> Result<Plan, PlanError> {
    Plan::accepting_leaks(network, choices)
}

/// Says what else `plan` could have been, and what that would cost, with the backends `among` for its linear layers. Without a `site`
/// there are bytes and no seconds.
pub fn explain(network: &Network, plan: &Plan, among: &[BackendId], site: Option<&Site<'_>>) -> Explanation {
    let choices = &plan.choices;
    let mine = choices.ring();
    let mut candidates = kit::rings(among);
    if !candidates.contains(&mine) {
        candidates.push(mine);
    }
    let rings: Vec<Alternative> = candidates
        .into_iter()
        .map(|ring| {
            let other = planned(network, choices.clone().in_ring(ring));
            alternative(ring.to_string(), ring == mine, other, site)
        })
        .collect();
    let activations = ACTIVATIONS
        .map(|bits| {
            let what = format!("{bits} bits");
            let taken = bits + network.guard_bits == network.activation_bits;
            match network.rescaled(bits + network.guard_bits) {
                Ok(other) => alternative(what, taken, planned(&other, choices.clone()), site),
                Err(_) => Alternative {
                    what,
                    taken,
                    refused: Some("a clipping bound would fall below one unit".into()),
                    figures: None,
                },
            }
        })
        .collect();
    Explanation {
        ring_reason: reason(&rings, true),
        rings,
        activations,
        layers: decisions(network, plan, among, site),
    }
}

fn decisions(network: &Network, plan: &Plan, among: &[BackendId], site: Option<&Site<'_>>) -> Vec<Decision> {
    let choices = &plan.choices;
    let packings: Vec<(Packing, Plan)> = [Packing::PowerOfTwo, Packing::Tight]
        .into_iter()
        .filter_map(|packing| {
            let packings = vec![packing; network.nodes.len()];
            Some((packing, planned(network, Choices { packings, ..choices.clone() }).ok()?))
        })
        .collect();
    let digits: Vec<(u32, Plan)> = DIGITS
        .into_iter()
        .filter_map(|digit| {
            let digits = vec![digit as u8; network.nodes.len()];
            Some((digit, planned(network, Choices { digits, ..choices.clone() }).ok()?))
        })
        .collect();
    let of_step = |what: String, taken: bool, step: &Step| Alternative {
        what,
        taken,
        refused: None,
        figures: Some(step_figures(step, site)),
    };
    let mut all = backend_decisions(network, plan, among, site);
    for (node, step) in plan.steps.iter().enumerate() {
        let (about, alternatives, sticky): (_, Vec<Alternative>, _) = if step.layer.is_some() {
            // Where few maps share a ciphertext, or a power of two is what they need, both packings are the same.
            let mut distances = packings
                .iter()
                .filter_map(|(_, p)| p.steps[node].layer.as_ref()?.geometry().packing_distance);
            let first = distances.next();
            if distances.all(|distance| Some(distance) == first) {
                continue;
            }
            let options = packings.iter().map(|(packing, p)| {
                let layer = p.steps[node].layer.as_ref();
                let distance = layer.and_then(|l| l.geometry().packing_distance).unwrap_or(0);
                let what = match packing {
                    Packing::PowerOfTwo => format!("a power of two between maps ({distance})"),
                    Packing::Tight => format!("maps side by side ({distance})"),
                };
                of_step(what, *packing == choices.packings[node], &p.steps[node])
            });
            ("packing", options.collect(), true)
        } else if has_digits(step) {
            let options = digits.iter().map(|(digit, p)| {
                of_step(
                    format!("digits of {digit} bits"),
                    *digit == u32::from(choices.digits[node]),
                    &p.steps[node],
                )
            });
            ("digits", options.collect(), false)
        } else {
            continue;
        };
        let reason = reason(&alternatives, sticky);
        all.push(Decision { node, name: network.nodes[node].name.clone(), about, alternatives, reason });
    }
    all
}

/// For each linear layer, what every backend `among` these would cost there, all other layers staying where they are. What a move
/// changes elsewhere (conversions, wider shares) counts to the layer.
fn backend_decisions(
    network: &Network,
    plan: &Plan,
    among: &[BackendId],
    site: Option<&Site<'_>>,
) -> Vec<Decision> {
    let choices = &plan.choices;
    let whole = figures(plan, site);
    let of_layer = |node: usize, id: BackendId| -> Alternative {
        let (what, mine) = (id.name().into(), step_figures(&plan.steps[node], site));
        if choices.backends[node] == id {
            return Alternative { what, taken: true, refused: None, figures: Some(mine) };
        }
        let mut backends = choices.backends.clone();
        backends[node] = id;
        match planned(network, Choices { backends, ..choices.clone() }) {
            Err(e) => Alternative { what, taken: false, refused: Some(e.to_string()), figures: None },
            Ok(other) => {
                let moved = figures(&other, site);
                let count = |mine: u64, moved: u64, whole: u64| (mine + moved).saturating_sub(whole);
                let time =
                    |mine: Option<f64>, moved: Option<f64>, whole: Option<f64>| Some(mine? + moved? - whole?);
                let figures = Figures {
                    seconds: time(mine.seconds, moved.seconds, whole.seconds),
                    weighed: time(mine.weighed, moved.weighed, whole.weighed),
                    online_seconds: time(mine.online_seconds, moved.online_seconds, whole.online_seconds),
                    bytes: count(mine.bytes, moved.bytes, whole.bytes),
                    online_bytes: count(mine.online_bytes, moved.online_bytes, whole.online_bytes),
                    rounds: count(mine.rounds, moved.rounds, whole.rounds),
                    key_bytes: count(mine.key_bytes, moved.key_bytes, whole.key_bytes),
                    cots: count(mine.cots, moved.cots, whole.cots),
                    ..step_figures(&other.steps[node], site)
                };
                Alternative { what, taken: false, refused: None, figures: Some(figures) }
            }
        }
    };
    let linear = plan.steps.iter().enumerate().filter(|(_, step)| step.layer.is_some());
    linear
        .map(|(node, _)| {
            let alternatives: Vec<Alternative> = among.iter().map(|&id| of_layer(node, id)).collect();
            let reason = backend_reason(&alternatives);
            Decision { node, name: network.nodes[node].name.clone(), about: "backend", alternatives, reason }
        })
        .collect()
}

/// As [`reason`], where a single layer's gain is not what decides.
fn backend_reason(alternatives: &[Alternative]) -> String {
    let weighed = |a: &Alternative| a.figures.and_then(|f| f.weighed);
    let Some(mine) = alternatives.iter().find(|a| a.taken).and_then(weighed) else {
        return "nothing was measured: the first that can run it".into();
    };
    let others = alternatives.iter().filter(|a| !a.taken);
    let best = others.filter_map(|a| Some((weighed(a)?, &a.what))).min_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        None => "the only one that is possible".into(),
        Some((other, what)) if mine <= other => {
            format!("{what} would add {:.2} ms to a query", (other - mine) * 1e3)
        }
        Some((other, what)) => format!(
            "{what} would save {:.2} ms of a query; a change takes a gain of {:.0} % of all of it",
            (mine - other) * 1e3,
            MARGIN * 100.0
        ),
    }
}

/// In words, why the taken alternative was. `sticky`: a change would cost clients their hints.
fn reason(alternatives: &[Alternative], sticky: bool) -> String {
    let weighed = |a: &Alternative| a.figures.and_then(|f| f.weighed);
    let Some(taken) = alternatives.iter().find(|a| a.taken) else {
        return "chosen by hand".into();
    };
    let others: Vec<&Alternative> = alternatives.iter().filter(|a| !a.taken && a.figures.is_some()).collect();
    if others.is_empty() {
        return "the only one that is possible".into();
    }
    let Some(mine) = weighed(taken) else {
        return "nothing was measured: the default".into();
    };
    let best = others.iter().filter_map(|a| Some((weighed(a)?, &a.what))).min_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        None => "the only one that was measured".into(),
        Some((other, what)) if mine <= other => {
            format!("fastest; next is {what}, {:.1} % slower", (other / mine - 1.0) * 100.0)
        }
        Some((other, what)) if sticky => format!(
            "kept, for hints are bound to it: {what} would be {:.1} % faster (worth a change: {:.0} %, where \
             nothing was chosen before)",
            (1.0 - other / mine) * 100.0,
            MARGIN * 100.0
        ),
        Some((other, what)) => {
            format!("chosen elsewhere: {what} would be {:.1} % faster here", (1.0 - other / mine) * 100.0)
        }
    }
}
