//! Writes the description of an ONNX network, and pictures as its inputs, for `jaguar-fhe`.
//!
//!     describe NETWORK.onnx DESCRIPTION.json SAMPLES.json MEAN,MEAN,MEAN STD,STD,STD PICTURE...
//!
//! Pictures have the network's size. Values are (RGB/255 - mean)/std.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use jaguar_convfhe::describe;
use jaguar_cpu::Cpu;
use jaguar_graph::import::{Options, import_file};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, description, samples, mean, std, pictures @ ..] = arguments.as_slice() else {
        anyhow::bail!("describe NETWORK.onnx DESCRIPTION.json SAMPLES.json MEANS STDS PICTURE...");
    };
    let graph = import_file(Path::new(network), &Options::default())?;
    let [channels, height, width] = graph.input_shape();
    let three = |text: &str| -> Result<Vec<f32>> { text.split(',').map(|x| Ok(x.parse()?)).collect() };
    let (mean, std) = (three(mean)?, three(std)?);
    ensure!(channels == 3 && mean.len() == 3 && std.len() == 3, "three channels are needed");
    let mut inputs = Vec::new();
    let mut bound = 0.0f32;
    for picture in pictures {
        let image = image::open(picture).with_context(|| picture.clone())?.to_rgb8();
        ensure!(image.dimensions() == (width as u32, height as u32), "{picture} has another size");
        let mut values = vec![0.0; channels * height * width];
        for (x, y, pixel) in image.enumerate_pixels() {
            for c in 0..channels {
                let value = (f32::from(pixel.0[c]) / 255.0 - mean[c]) / std[c];
                values[(c * height + y as usize) * width + x as usize] = value;
            }
        }
        let logits = graph.forward(Cpu::detect(), &values).context("an input of another length")?;
        let top = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(i, _)| i);
        println!("{picture}: top {top:?}, {logits:.3?}");
        for (c, plane) in values.chunks_exact_mut(height * width).enumerate() {
            if let Some((mul, add)) = graph.affine.get(c) {
                plane.iter_mut().for_each(|v| *v = *v * mul + add);
            }
        }
        bound = values.iter().fold(bound, |most, v| most.max(v.abs()));
        inputs.push(values);
    }
    fs::write(description, serde_json::to_vec(&describe(&graph, f64::from(bound))?)?)?;
    fs::write(samples, serde_json::to_vec(&inputs)?)?;
    Ok(())
}
