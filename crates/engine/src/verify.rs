//! A private run beside the plaintext reference, layer by layer.
//!
//! Both parties run in this process, over an in-memory connection and with the code that real sessions run; their shares of
//! every value are put together and compared with what the reference makes of the *same* inputs. Nonlinear and local layers must
//! agree exactly, linear ones within one unit of the last place and the noise that the plan states; where the protocol truncates
//! later (Cheetah's), the unit is lost there ([`jaguar_plan::Step::error_ulps`]).
//! What a sign of reduced precision makes of a value depends on its shares, which are known here too: those activations must agree
//! exactly as well. Of a max-pool the shares of what it makes on the way are not: with reduced-precision comparisons it must give one of the window's
//! values, as little below the largest as the protocol promises.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use jaguar_graph::network::{Network, Ran, Work};
use jaguar_graph::reference;
use jaguar_plan::{Allowed, Choices, Kit, Plan};
use jaguar_ring::cpu::Cpu;
use jaguar_wire::memory_pair;
use serde::Serialize;

use crate::client::{Limits, Prediction, Reveal, connect_for, together};
use crate::error::EngineError;
use crate::exec::values::image_of;
use crate::hint::HintPlace;
use crate::progress::{NoProgress, Progress};
use crate::server::Service;
use jaguar_graph::bundle::Bundle;

/// How one layer of a private run compares with the reference.
#[derive(Clone, Debug, Serialize)]
pub struct LayerCheck {
    /// What the network calls the node.
    pub name: String,
    /// How many values the node makes.
    pub values: usize,
    /// The largest difference from the exact result, in units of the last place (linear layers: from the quotient before
    /// rounding).
    pub max_ulps: f64,
    /// The mean absolute difference, in the same units.
    pub mean_ulps: f64,
    /// What the protocol promises as the largest.
    pub bound_ulps: f64,
    /// How many values exceed it.
    pub wrong: usize,
    /// How many values differ from those of exact signs because theirs are of reduced precision, as they may.
    pub reduced: usize,
}

/// How a private run of one input compares with the reference.
#[derive(Clone, Debug)]
pub struct Check {
    /// One for each node, in the network's order.
    pub layers: Vec<LayerCheck>,
    /// What the client got of the same run.
    pub prediction: Prediction,
}

/// One party's shares of every node's value.
type Shares = BTreeMap<usize, Vec<u64>>;

/// Runs every input privately and compares: in batches, where the choices are for queries of several images; zeros fill up the last.
/// `hint` says where the hint is kept. Both parties are this process, so the choices may
/// name backends that protect nothing, and comparisons that leak.
///
/// # Errors
/// When the model cannot be run, or an input does not fit.
pub fn verify(
    kit: &Kit,
    bundle: Bundle,
    choices: Choices,
    reveal: Reveal,
    inputs: &[Vec<i64>],
    hint: impl Into<HintPlace>,
) -> Result<Vec<Check>, EngineError> {
    verify_heard(kit, bundle, choices, reveal, inputs, hint, &mut NoProgress)
}

/// As [`verify`]; `progress` hears how far the client is.
///
/// # Errors
/// As there.
pub fn verify_heard(
    kit: &Kit,
    bundle: Bundle,
    choices: Choices,
    reveal: Reveal,
    inputs: &[Vec<i64>],
    hint: impl Into<HintPlace>,
    progress: &mut dyn Progress,
) -> Result<Vec<Check>, EngineError> {
    let allowed = Allowed { insecure_backends: true, leaks: true, stationary_noise: true };
    let images = choices.images;
    let service = Service::allowing(Cpu::detect(), bundle, choices.of_images(1), reveal, allowed)?;
    let service = service.with_batches(images)?;
    let plan = service.plans().last().expect("a service has a plan");
    let limits = Limits {
        allow_insecure_backends: true,
        accept_leaks: true,
        accept_stationary_noise: true,
        // (Nobody else chose the network.)
        prepared_bytes: u64::MAX,
        ciphertext_bytes: u64::MAX,
        ..Limits::default()
    };
    let (client_end, server_end) = memory_pair();
    let server_shares = Mutex::new(Shares::new());
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            service.serve_observed(server_end, &mut |_| (), &mut |node, share| {
                server_shares.lock().expect("no panic holds it").insert(node, share.to_vec());
            })
        });
        let client = || -> Result<Vec<Check>, EngineError> {
            let mut ready = connect_for(kit, client_end, None, &limits, images)?.prepare_client(hint)?;
            let images = images as usize;
            let mut checks = Vec::new();
            for inputs in inputs.chunks(images) {
                let input = together(inputs.iter().map(Vec::as_slice), images);
                let prepared = ready.prepare_query(&mut *progress)?;
                let mut client_shares = Shares::new();
                let (predictions, _, next) =
                    prepared.run_observed(&input, &mut *progress, &mut |node, share| {
                        client_shares.insert(node, share.to_vec());
                    })?;
                ready = next;
                // The result comes after the server's last share.
                let theirs = std::mem::take(&mut *server_shares.lock().expect("no panic holds it"));
                for (image, prediction) in predictions.into_iter().enumerate().take(inputs.len()) {
                    let nodes = &service.network().nodes;
                    let own = |shares: &Shares| -> Shares {
                        let one = |(&id, share): (&usize, &Vec<u64>)| {
                            (id, image_of(share, nodes[id].shape, (image, images)))
                        };
                        shares.iter().map(one).collect()
                    };
                    let layers = compare(&service, plan, &own(&client_shares), &own(&theirs));
                    checks.push(Check { layers, prediction });
                }
            }
            ready.leave()?;
            Ok(checks)
        };
        let checks = client();
        let served = server.join().expect("the server's thread does not panic");
        // The side that failed first says why.
        let checks = checks?;
        served?;
        Ok(checks)
    })
}

/// Of one image.
fn compare(service: &Service, plan: &Plan, client: &Shares, server: &Shares) -> Vec<LayerCheck> {
    let model = service.bundle_model();
    let network = &model.network;
    let scaled = with_excess(network, plan);
    let mut values: Vec<Vec<i64>> = Vec::new();
    let mut checks = Vec::new();
    for (id, node) in network.nodes.iter().enumerate() {
        let step = &plan.steps[id];
        let value: Vec<i64> =
            client[&id].iter().zip(&server[&id]).map(|(a, b)| step.domain.modulus.open(*a, *b)).collect();
        let bound = step.error_ulps();
        // Inputs, and what comes of them, at one scale: the network's times 2^excess.
        let excess = node.inputs.iter().map(|&i| plan.steps[i].domain.excess).max().unwrap_or(0);
        let inputs: Vec<Vec<i64>> = node
            .inputs
            .iter()
            .map(|&i| values[i].iter().map(|v| v << (excess - plan.steps[i].domain.excess)).collect())
            .collect();
        let inputs: Vec<&[i64]> = inputs.iter().map(Vec::as_slice).collect();
        let ulps = |v: i64, excess: u32| v as f64 / 2f64.powi(excess as i32);
        let mut reduced = 0;
        let (exact, excess) = match (node.op.work(), &model.weights[id]) {
            (Work::Linear(spec), Some(weights)) => {
                let shape = network.nodes[node.inputs[0]].shape;
                (reference::linear_exact(service.cpu(), spec, shape, weights, inputs[0]), spec.shift)
            }
            (Work::Linear(_), None) => unreachable!("a sound model has the weights of its linear layers"),
            (Work::Input, _) => (value.clone(), 0),
            (Work::Local(_) | Work::Interactive(_), _) => {
                let mut exact = reference::apply_op(service.cpu(), &scaled, id, None, &inputs)
                    .expect("values have their nodes' shapes");
                // (Other comparisons than the operator's own are exact.)
                let reduces = node.op.reduced().filter(|_| !step.replaced);
                if let (Some(ignored), Some(signs)) = (reduces, scaled.nodes[id].op.signs()) {
                    let from = node.inputs[0];
                    let (shape, client) = (network.nodes[from].shape, &client[&from][..]);
                    let run = Ran { shape, input: inputs[0], client, made: &value, exact: &exact };
                    let made = signs.reduced(ignored + excess, &run);
                    reduced = made.iter().zip(&exact).filter(|(made, exact)| made != exact).count();
                    exact = made;
                }
                (exact, excess)
            }
        };
        let pairs = value.iter().zip(&exact);
        let errors: Vec<f64> =
            pairs.map(|(&got, &want)| ulps(got, step.domain.excess) - ulps(want, excess)).collect();
        checks.push(LayerCheck {
            name: node.name.clone(),
            values: value.len(),
            max_ulps: errors.iter().fold(0.0, |m, e| m.max(e.abs())),
            mean_ulps: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            bound_ulps: bound,
            wrong: errors.iter().filter(|e| e.abs() > bound).count(),
            reduced,
        });
        values.push(value);
    }
    checks
}

/// The network as it is for values with an excess: what is clipped is clipped at their scale.
fn with_excess(network: &Network, plan: &Plan) -> Network {
    let mut scaled = network.clone();
    for node in &mut scaled.nodes {
        let excess = node.inputs.iter().map(|&i| plan.steps[i].domain.excess).max().unwrap_or(0);
        node.op.rescale(excess as i32).expect("shares hold values with their excess");
    }
    scaled
}
