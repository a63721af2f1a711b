//! Writes the description of an ONNX network, and inputs, for `jaguar-fhe`.
//!
//!     describe [--last LAYERS] [--relu DEGREES] [--stress STRESS.json]
//!         NETWORK.onnx DESCRIPTION.json SAMPLES.json [MEANS STDS PICTURE...]
//!
//! Pictures have the network's size. Values are (RGB/255 - mean)/std; MEANS and STDS are three numbers with commas between. Without
//! pictures, four inputs of noise are written. With `--last`, the description has only the last so many layers, and the inputs
//! are what the layers before them make of the pictures in the clear. With `--stress`, made-up inputs are written beside the pictures.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use jaguar_convfhe::{Polynomial, describe, last_layers, stress};
use jaguar_graph::float::Graph;
use jaguar_graph::import::{Options, import_file};
use jaguar_graph::network::Operators;
use jaguar_ring::cpu::Cpu;

fn picture(path: &str, graph: &Graph, mean: &[f32], std: &[f32]) -> Result<Vec<f32>> {
    let [channels, height, width] = graph.input_shape();
    ensure!(channels == 3 && mean.len() == 3 && std.len() == 3, "three channels are needed");
    let image = image::open(path).with_context(|| path.to_owned())?.to_rgb8();
    ensure!(image.dimensions() == (width as u32, height as u32), "{path} has another size");
    let mut values = vec![0.0; channels * height * width];
    for (x, y, pixel) in image.enumerate_pixels() {
        for c in 0..channels {
            let value = (f32::from(pixel.0[c]) / 255.0 - mean[c]) / std[c];
            values[(c * height + y as usize) * width + x as usize] = value;
        }
    }
    Ok(values)
}

/// Four inputs in [-1, 1), the same at every run.
fn noise(graph: &Graph) -> Vec<(String, Vec<f32>)> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let count = graph.input_shape().iter().product();
    (0..4).map(|i| (format!("noise {i}"), (0..count).map(|_| next()).collect())).collect()
}

fn weights(graph: &Graph) -> usize {
    graph.nodes.iter().filter_map(|node| node.op.linear()).map(|linear| linear.weights.len()).sum()
}

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |name: &str| -> Option<String> {
        let at =
            arguments.iter().position(|argument| argument == name).filter(|at| at + 1 < arguments.len())?;
        arguments.drain(at..at + 2).nth(1)
    };
    let last = option("--last");
    let relu = option("--relu");
    let stressed = option("--stress");
    let [network, description, samples, rest @ ..] = arguments.as_slice() else {
        bail!(
            "describe [--last LAYERS] [--relu DEGREES] [--stress STRESS.json] NETWORK.onnx DESCRIPTION.json SAMPLES.json \
             [MEANS STDS PICTURE...]"
        );
    };
    let graph = import_file(Path::new(network), &Options::new(&Operators::standard()))?;
    let three = |text: &str| -> Result<Vec<f32>> { text.split(',').map(|x| Ok(x.parse()?)).collect() };
    let inputs = match rest {
        [] => noise(&graph),
        [mean, std, pictures @ ..] => {
            let (mean, std) = (three(mean)?, three(std)?);
            let read = |path: &String| Ok((path.clone(), picture(path, &graph, &mean, &std)?));
            pictures.iter().map(read).collect::<Result<_>>()?
        }
        _ => bail!("MEANS and STDS come together"),
    };
    let parts = match &last {
        None => None,
        Some(layers) => Some(last_layers(&graph, layers.parse().context("--last LAYERS")?)?),
    };
    if let Some((head, tail)) = &parts {
        println!("the client needs {} weights, the server keeps {}", weights(head), weights(tail));
    }
    // As the layers that are described get them.
    let given = |mut values: Vec<f32>| -> Result<Vec<f32>> {
        if let Some((head, _)) = &parts {
            return head.forward(Cpu::detect(), &values).context("an input of another length");
        }
        let [_, height, width] = graph.input_shape();
        for (c, plane) in values.chunks_exact_mut(height * width).enumerate() {
            if let Some((mul, add)) = graph.affine.get(c) {
                plane.iter_mut().for_each(|v| *v = *v * mul + add);
            }
        }
        Ok(values)
    };
    let made_up = match (&stressed, rest) {
        (None, _) => Vec::new(),
        (Some(_), [mean, std, ..]) => {
            let (mean, std) = (three(mean)?, three(std)?);
            let ranges: Vec<[f32; 2]> =
                mean.iter().zip(&std).map(|(mean, std)| [-mean / std, (1.0 - mean) / std]).collect();
            stress(graph.input_shape(), &ranges).into_iter().map(given).collect::<Result<_>>()?
        }
        (Some(_), _) => bail!("--stress needs MEANS and STDS"),
    };
    let most = |inputs: &[Vec<f32>]| inputs.iter().flatten().fold(0.0f32, |most, v| most.max(v.abs()));
    let mut written = Vec::new();
    for (name, values) in inputs {
        let logits = graph.forward(Cpu::detect(), &values).context("an input of another length")?;
        let top = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(i, _)| i);
        println!("{name}: top {top:?}, {:.3?}", &logits[..logits.len().min(10)]);
        written.push(given(values)?);
    }
    let bound = most(&written).max(most(&made_up));
    let mut described = describe(parts.as_ref().map_or(&graph, |(_, tail)| tail), f64::from(bound))?;
    if let Some(name) = relu {
        described.relu = name.parse::<Polynomial>().map_err(anyhow::Error::msg)?;
    }
    println!("{} layers with ReLU", described.layers.len());
    fs::write(description, serde_json::to_vec(&described)?)?;
    fs::write(samples, serde_json::to_vec(&written)?)?;
    if let Some(file) = stressed {
        fs::write(file, serde_json::to_vec(&made_up)?)?;
    }
    Ok(())
}
