//! `jaguar inspect`

use std::path::PathBuf;

use anyhow::Result;
use jaguar_engine::bundle::Bundle;
use jaguar_engine::report::describe;
use jaguar_plan::Plan;
use jaguar_rlwe::{Estimate, Parameters};

use crate::table::{bytes, plain, trimmed};

#[derive(clap::Args)]
pub struct Args {
    /// The compiled model.
    model: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.model)?;
    let network = &bundle.model.network;
    let params = Parameters::DEFAULT;
    let plan = Plan::new(network, params)?;
    println!("{} (model {})", network.name, bundle.id());
    let security = match params.estimate() {
        Estimate::TenthsOfBits(t) => format!("{:.1} bits of security", f64::from(t) / 10.0),
        Estimate::Insecure => "insecure".into(),
    };
    println!(
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
            step.layer.as_ref().map_or("-".into(), |l| l.layout().spec().shift.to_string()),
            if step.extends() { format!("{}>{}", step.made, step.ring) } else { step.ring.to_string() },
        ];
        match &step.layer {
            Some(layer) => {
                let layout = layer.layout();
                row.extend([
                    layout.tiles().len().to_string(),
                    layout.slots().to_string(),
                    layout.ciphertexts().to_string(),
                    layout.responses().to_string(),
                    bytes(layer.hint_bytes() as u64),
                    bytes(layer.upload_bytes() as u64),
                    format!("{:.4}", layer.noise_ulps()),
                ]);
            }
            None => row.extend(std::iter::repeat_n("-".to_owned(), 7)),
        }
        table.add_row(row);
    }
    println!("{}", trimmed(&table));
    println!(
        "{} responses; hint {} once per client; ciphertexts {} per query",
        plan.responses(),
        bytes(plan.hint_bytes() as u64),
        bytes(plan.layers().map(|l| l.upload_bytes() as u64).sum())
    );
    Ok(())
}
