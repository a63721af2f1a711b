//! Runs inputs through `jaguar-fhe` in one round, client and server as two processes, beside the plaintext network.
//!
//!     one_round JAGUAR-FHE SET FOLDER NETWORK.onnx SAMPLES.json HOW_MANY
//!
//! The folder holds what `jaguar-fhe keygen`, `calibrate` and `public` made: client.secret, client.keys, network.json, public.json.
//! SAMPLES.json is what the example `describe` wrote.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use jaguar_convfhe::{Fhe, Program};
use jaguar_graph::import::{Options, import_file};
use jaguar_graph::network::Operators;
use jaguar_ring::cpu::Cpu;

/// An encrypted input or answer is 2 MiB at the largest set.
const MOST: usize = 1 << 22;

fn top(logits: &[f64]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, set, folder, network, samples, count] = arguments.as_slice() else {
        bail!("one_round JAGUAR-FHE SET FOLDER NETWORK.onnx SAMPLES.json HOW_MANY");
    };
    let (program, folder) = (Fhe::find(Some(Path::new(program)))?, Path::new(folder));
    let file = |name: &str| folder.join(name).display().to_string();
    let client = |command: &str| {
        let (secret, public) = (file("client.secret"), file("public.json"));
        Program::start(program.command([command, "--set", set, "--secret", &secret, "--public", &public]))
    };
    let (keys, described) = (file("client.keys"), file("network.json"));
    let mut encrypt = client("encrypt")?;
    let mut decrypt = client("decrypt")?;
    let mut evaluate = Program::start(program.command([
        "evaluate",
        "--set",
        set,
        "--keys",
        &keys,
        "--network",
        &described,
    ]))?;

    let graph = import_file(Path::new(network), &Options::new(&Operators::standard()))?;
    ensure!(graph.affine.is_empty(), "the samples have the network's first affine map behind them already");
    let samples: Vec<Vec<f32>> = serde_json::from_slice(&std::fs::read(samples)?)?;
    for (index, sample) in samples.iter().take(count.parse()?).enumerate() {
        let begin = Instant::now();
        let raw: Vec<u8> = sample.iter().flat_map(|v| v.to_le_bytes()).collect();
        let input = encrypt.ask(&raw, MOST, &mut |_, _| {})?;
        let answer = evaluate.ask(&input, MOST, &mut |done, of| {
            println!("input {index}: {done} of {of} layers, {:.0} s", begin.elapsed().as_secs_f64());
        })?;
        let raw = decrypt.ask(&answer, MOST, &mut |_, _| {})?;
        let logits: Vec<f64> =
            raw.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect();
        let plain = graph.forward(Cpu::detect(), sample).context("an input of another length")?;
        let plain: Vec<f64> = plain.into_iter().map(f64::from).collect();
        println!("input {index}: class {:?}, in plaintext {:?}", top(&logits), top(&plain));
        println!("  {logits:.3?}\n  {plain:.3?}");
    }
    Ok(())
}
