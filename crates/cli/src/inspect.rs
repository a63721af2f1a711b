//! `jaguar inspect`

use std::path::PathBuf;

use anyhow::Result;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::report::describe;
use jaguar_plan::{Choices, Plan, Protocol};
use jaguar_rlwe::Estimate;

use crate::table::{bytes, count, plain, trimmed};

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.model)?;
    let network = &bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, Protocol::Jaguar))?;
    let params = plan.params;
    crate::say!("{} (model {})", network.name, bundle.id());
    let security = match params.estimate() {
        Estimate::TenthsOfBits(t) => format!("{:.1} bits of security", f64::from(t) / 10.0),
        Estimate::Insecure => "insecure".into(),
    };
    crate::say!(
        "ring N = {}, q = 2^{} ({security}); activations {} bits, weights {} bits",
        params.ring_dim(),
        params.modulus_bits(),
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
            if step.extension.is_some() {
                format!("{}>{}", step.made, step.ring)
            } else {
                step.ring.to_string()
            },
        ];
        let cost = step.cost;
        let cots = cost.cots_from_client + cost.cots_from_server;
        let (mut up, none) = (cost.up, || "-".to_owned());
        match &step.layer {
            Some(layer) => {
                up += layer.upload_bytes() as u64;
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
            bytes(cost.down + cost.prepare_down),
            count(cots),
            step.layer.as_ref().map_or_else(none, |l| format!("{:.4}", l.noise_ulps())),
        ]);
        table.add_row(row);
    }
    crate::say!("{}", trimmed(&table));
    let nonlinear = plan.nonlinear_cost();
    crate::say!(
        "once per client: a hint of {} ({} responses)\nper query: {} of ciphertexts; nonlinear layers {} up, {} down, {} COTs, {} client rounds",
        bytes(plan.hint_bytes() as u64),
        plan.responses(),
        bytes(plan.layers().map(|l| l.upload_bytes() as u64).sum()),
        bytes(nonlinear.up),
        bytes(nonlinear.down + nonlinear.prepare_down),
        count(nonlinear.cots_from_client + nonlinear.cots_from_server),
        nonlinear.client_rounds,
    );
    Ok(())
}
