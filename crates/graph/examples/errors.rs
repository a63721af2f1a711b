use jaguar_graph::agreement::{agreement, private_agreement};
use jaguar_graph::image_input;
use jaguar_graph::import::{Options as ImportOptions, import_file};
use jaguar_graph::network::{ImageSpec, Resize};
use jaguar_graph::quantise::{Options, measure, quantise};
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bits: Vec<(u32, u32)> = args[0]
        .split(';')
        .map(|p| {
            let (a, b) = p.split_once(',').unwrap();
            (a.parse().unwrap(), b.parse().unwrap())
        })
        .collect();
    for file in &args[1..] {
        let graph = match import_file(Path::new(file), &ImportOptions::default()) {
            Ok(g) => g,
            Err(e) => {
                println!("{file}: {e}");
                continue;
            }
        };
        let shape = graph.input_shape();
        let name = Path::new(file).file_name().unwrap().to_string_lossy().into_owned();
        let f = 1.0 / 255.0;
        let tv = ImageSpec {
            resize: Resize::Shorter((shape[1] * 8 / 7) as u32),
            bgr: false,
            mean: vec![123.675, 116.28, 103.53],
            factor: vec![f / 0.229, f / 0.224, f / 0.225],
        };
        let spec = if name.starts_with("nsfw") {
            ImageSpec { resize: Resize::Exact, bgr: false, mean: vec![0.0; 3], factor: vec![f; 3] }
        } else if name.starts_with("squeeze") {
            ImageSpec {
                resize: Resize::Exact,
                bgr: true,
                mean: vec![103.939, 116.779, 123.68],
                factor: vec![1.0; 3],
            }
        } else if name.starts_with("efficient") {
            ImageSpec {
                resize: Resize::Shorter(256),
                bgr: false,
                mean: vec![127.0; 3],
                factor: vec![1.0 / 128.0; 3],
            }
        } else if name.starts_with("open") {
            ImageSpec {
                resize: Resize::Shorter(256),
                bgr: true,
                mean: vec![104.0, 117.0, 123.0],
                factor: vec![1.0; 3],
            }
        } else if name.starts_with("cifar10_cnn") {
            ImageSpec::default()
        } else {
            tv
        };
        let family = if shape[1] == 32 { "cifar10_" } else { "imagenet_" };
        let mut paths: Vec<_> = std::fs::read_dir("models/images")
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(family))
            .collect();
        paths.sort();
        let images: Vec<Vec<f32>> = paths
            .iter()
            .map(|p| {
                let i = image::open(p).unwrap().into_rgb8();
                image_input::tensor(&spec, shape, i.as_raw(), i.width() as usize, i.height() as usize)
                    .unwrap()
            })
            .collect();
        let (cal, test) = images.split_at(10);
        let ranges = measure(&graph, cal).unwrap();
        for &(n, w) in &bits {
            let options = Options { activation_bits: n, weight_bits: w, ..Options::default() };
            let (model, report) = match quantise(&graph, &ranges, &options) {
                Ok(m) => m,
                Err(e) => {
                    println!("{name} {n} {w}: {e}");
                    continue;
                }
            };
            let a = agreement(&graph, &model, test).unwrap();
            let p = private_agreement(&graph, &model, test, 7).unwrap();
            println!(
                "{name:40} n {n} w {w}: nearest {:6.2} % private {:6.2} % of spread, class {}/{} overflows {} warnings {}",
                100.0 * a.worst_relative_error,
                100.0 * p.worst_relative_error,
                p.same_class,
                p.images,
                p.overflows,
                report.warnings.len()
            );
            if std::env::var_os("V").is_some() {
                for node in &report.nodes {
                    println!(
                        "  {:9} {:40} range {:9.3} scale {:10.3} spare {:4.1} {:?}",
                        node.operation,
                        node.name,
                        node.range,
                        node.scale,
                        node.spare_bits,
                        node.linear.as_ref().map(|l| (l.shift, l.largest_weight, l.thin_channels))
                    );
                }
            }
        }
    }
}
