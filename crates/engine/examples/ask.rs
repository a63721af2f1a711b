//! The shortest client: asks a server about one input, and prints the logits, one a line. `make test-arm` runs it on 64-bit Arm.
//!
//! `ask ADDRESS FILE`: HOST:PORT of a `jaguar serve` without TLS, and the input's values as little-endian `f32`, in the order `[C, H, W]`.

use std::error::Error;

use jaguar_engine::client::{Limits, Prediction, connect};
use jaguar_engine::hint::HintPlace;
use jaguar_engine::progress::NoProgress;
use jaguar_plan::Kit;
use jaguar_wire::Channel;
use jaguar_wire::tcp::{Options, Tcp};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, file] = arguments.as_slice() else {
        return Err("ask ADDRESS FILE".into());
    };
    let bytes = std::fs::read(file)?;
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let channel = Channel::new(Tcp::connect(address.as_str(), Options::default())?);
    let ready = connect(&Kit::standard(), channel, &Limits::default())?.prepare_client(HintPlace::Memory)?;
    let prepared = ready.prepare_query(&mut NoProgress)?;
    let network = prepared.network();
    let (input, output) = (network.input.quantise(&values, network.activation_bits), network.output.clone());
    let (prediction, _, ready) = prepared.run(&input, &mut NoProgress)?;
    ready.leave()?;
    match prediction {
        Prediction::Logits(logits) => output.logits(&logits).iter().for_each(|logit| println!("{logit}")),
        Prediction::Label(label) => return Err(format!("only the label came: {label}").into()),
    }
    Ok(())
}
