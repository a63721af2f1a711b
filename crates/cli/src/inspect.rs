//! `jaguar inspect`

use std::path::PathBuf;

use anyhow::Result;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::report::{caveat, describe};
use jaguar_graph::network::{Network, Op};
use jaguar_linear::cheetah;
use jaguar_mpc::Cost;
use jaguar_plan::{Choices, Layer, Plan};
use jaguar_rlwe::Estimate;

use crate::protocol::Protocol;
use crate::table::{bytes, count, plain, trimmed};

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
    /// The protocol.
    #[arg(long, value_enum, default_value_t = Protocol::Jaguar)]
    protocol: Protocol,
}

/// What the network would be had nobody asked for reduced-precision signs.
fn with_exact_signs(network: &Network) -> Network {
    let mut network = network.clone();
    for node in &mut network.nodes {
        if let Op::Relu { ignored } | Op::Relu6 { ignored, .. } = &mut node.op {
            *ignored = 0;
        }
    }
    network
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.model)?;
    let network = &bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, args.protocol.into()))?;
    crate::say!("{} (model {}), protocol {}", network.name, bundle.id(), plan.choices.protocol);
    crate::say!(
        "{}; activations {} bits, weights {} bits",
        rings(&plan),
        network.activation_bits,
        network.weight_bits
    );
    let mut table = plain(
        &[
            "layer",
            "operation",
            "shape",
            "shift",
            "ring",
            "tiles",
            "maps/ct",
            "ciphertexts",
            "responses",
            "hint",
            "up",
            "down",
            "COTs",
            "noise/ulp",
        ],
        2,
    );
    for (node, step) in network.nodes.iter().zip(&plan.steps) {
        let [c, h, w] = node.shape;
        let mut row = vec![
            node.name.clone(),
            describe(&node.op),
            format!("{c}x{h}x{w}"),
            step.layer.as_ref().map_or("-".into(), |l| l.spec().shift.to_string()),
            match (&step.extension, &step.truncation) {
                (Some(_), _) => format!("{}>{}", step.made, step.ring),
                (None, Some(truncation)) => format!("{} /2^{}", step.ring, truncation.shift),
                (None, None) => step.ring.to_string(),
            },
        ];
        let cost = step.cost;
        let cots = cost.cots_from_client + cost.cots_from_server;
        let (mut up, mut down, none) = (cost.up, cost.down + cost.prepare_down, || "-".to_owned());
        match &step.layer {
            Some(layer) => {
                up += layer.upload_bytes() as u64;
                down += layer.response_bytes() as u64;
                row.extend([
                    layer.tiles().to_string(),
                    layer.maps_per_ciphertext().to_string(),
                    layer.ciphertexts().to_string(),
                    layer.responses().to_string(),
                    bytes(layer.jaguar().map_or(0, |l| l.hint_bytes() as u64)),
                ]);
            }
            None => row.extend(std::iter::repeat_with(none).take(5)),
        }
        row.extend([
            bytes(up),
            bytes(down),
            count(cots),
            step.layer.as_ref().map_or_else(none, |l| format!("{:.4}", l.noise_ulps())),
        ]);
        table.add_row(row);
    }
    crate::say!("{}", trimmed(&table));
    let nonlinear = plan.nonlinear_cost();
    match args.protocol {
        Protocol::Jaguar => crate::say!(
            "once per client: a hint of {} ({} responses)",
            bytes(plan.hint_bytes() as u64),
            plan.responses()
        ),
        Protocol::Cheetah => crate::say!(
            "once per session: a key of {}",
            bytes(plan.cheetah_rings().iter().map(|l| l.key_bytes() as u64).sum())
        ),
    }
    let (up, down) = plan.linear_bytes();
    crate::say!(
        "per query: ciphertexts {} up, {} down, {} client rounds; nonlinear layers {} up, {} down, {} COTs, {} client rounds",
        bytes(up as u64),
        bytes(down as u64),
        plan.layers().map(Layer::rounds).sum::<u64>(),
        bytes(nonlinear.up),
        bytes(nonlinear.down + nonlinear.prepare_down),
        count(nonlinear.cots_from_client + nonlinear.cots_from_server),
        nonlinear.client_rounds,
    );
    if let Some(caveat) = caveat(network) {
        let exact = Plan::new(&with_exact_signs(network), plan.choices.clone())?;
        let exact = exact.nonlinear_cost();
        let sent = |c: &Cost| c.up + c.down + c.prepare_down;
        crate::say!(
            "{caveat}\n(exact signs: nonlinear layers {} in all instead of {}, {} COTs)",
            bytes(sent(&exact)),
            bytes(sent(&nonlinear)),
            count(exact.cots_from_client + exact.cots_from_server),
        );
    }
    Ok(())
}

/// The rings of the linear layers and their security.
fn rings(plan: &Plan) -> String {
    let bits = |tenths: u32| format!("{:.1} bits of security", f64::from(tenths) / 10.0);
    if plan.choices.protocol == jaguar_plan::Protocol::Jaguar {
        let security = match plan.params.estimate() {
            Estimate::TenthsOfBits(tenths) => bits(tenths),
            Estimate::Insecure => "insecure".into(),
        };
        return format!(
            "ring N = {}, q = 2^{} ({security})",
            plan.params.ring_dim(),
            plan.params.modulus_bits()
        );
    }
    let ring = |layer: &&cheetah::Layer| {
        let (n, limbs) = (layer.layout().ring_dim(), layer.limbs());
        let count = plan.layers().filter_map(Layer::cheetah).filter(|l| l.limbs() == limbs).count();
        format!("ring N = {n}, q of {limbs} primes ({}) in {count} layers", bits(layer.security_tenths()))
    };
    plan.cheetah_rings().iter().map(ring).collect::<Vec<_>>().join("; ")
}
