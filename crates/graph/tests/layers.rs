//! The comparison of both networks layer by layer.

use jaguar_graph::agreement::agreement;
use jaguar_graph::float::Graph;
use jaguar_graph::import::{Options as Import, import_file};
use jaguar_graph::network::{Hiding, Operators};
use jaguar_graph::quantise::layers::compare;
use jaguar_graph::quantise::{Options, calibrate};
use jaguar_ring::cpu::Cpu;

fn graph(name: &str) -> Graph {
    let path = format!("{}/tests/fixtures/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    import_file(path.as_ref(), &Import { cpu: Cpu::detect(), ..Import::new(&Operators::standard()) }).unwrap()
}

fn image(graph: &Graph, seed: u32) -> Vec<f32> {
    let length: usize = graph.input_shape().iter().product();
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state as f32 / u32::MAX as f32 - 0.5) * 4.0
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Every node of networks with all kinds of layers: its errors are those of rounding, though calibration rescaled channels; and
/// what comes out is what the comparison of outputs alone says.
#[test]
fn layers_differ_by_rounding_and_images_as_in_the_agreement() {
    for name in ["conv_shapes_13", "clips_21", "batch_norm_and_concat_17", "average_pools_19", "qdq_relu6_13"]
    {
        let graph = graph(name);
        let images: Vec<Vec<f32>> = (1..5).map(|seed| image(&graph, seed)).collect();
        let options = Options { activation_bits: 20, ..Options::default() };
        let (model, report) = calibrate(Cpu::detect(), &graph, &images, &options).unwrap();
        let model = model.guarded(options.hiding).unwrap();
        let mut heard = Vec::new();
        let (layers, outputs) =
            compare(Cpu::detect(), &graph, &model, [&images, &[]], &mut |done| heard.push(done)).unwrap();
        assert_eq!(heard, [1, 2, 3, 4]);
        assert_eq!((layers.len(), outputs.len()), (graph.nodes.len(), 4));
        for ((layer, node), found) in layers.iter().zip(&graph.nodes).zip(&report.nodes) {
            let elements: usize = node.shape.iter().product();
            assert_eq!(layer.values, 4 * elements as u64);
            assert_eq!(layer.histogram.iter().sum::<u64>(), layer.values);
            assert!((layer.range - found.range).abs() <= 1e-9 * found.range, "{name}, {}", node.name);
            assert_eq!((layer.beyond, layer.overflows), (0, 0));
            assert!(layer.relative_error() < 1e-3, "{name}, {}: {}", node.name, layer.relative_error());
            assert!(layer.rms_error <= layer.largest_error);
        }
        assert!(layers.iter().skip(1).any(|l| l.rms_error > 0.0), "{name}: nothing was rounded");
        let known = agreement(Cpu::detect(), &graph, &model, &images).unwrap();
        // (The rescaled network rounds otherwise in its floating point.)
        let worst = outputs.iter().map(|o| o.error).fold(0.0, f64::max);
        assert!((worst - known.worst_relative_error).abs() < 1e-5 + 0.1 * worst);
    }
}

/// What a ReLU6 clips is counted; what an image brings beyond calibration, too.
#[test]
fn clipped_and_new_values_are_counted() {
    let graph = graph("clips_21");
    let small: Vec<Vec<f32>> = vec![image(&graph, 3)];
    let large: Vec<Vec<f32>> = vec![small[0].iter().map(|v| v * 3.0).collect()];
    let options = Options { activation_bits: 20, hiding: Hiding::NONE, headroom: 8.0, ..Options::default() };
    let (model, _) = calibrate(Cpu::detect(), &graph, &small, &options).unwrap();
    let (layers, _) = compare(Cpu::detect(), &graph, &model, [&small, &large], &mut |_| ()).unwrap();
    assert!(layers[0].beyond > 0);
    let clipped = |l: &jaguar_graph::quantise::layers::LayerStatistics| l.clipped.is_some_and(|c| c.low > 0);
    assert!(layers.iter().any(clipped));
    assert!(layers.iter().all(|l| l.clipped.is_none_or(|c| c.low + c.high <= l.values)));
    // No images, and images that do not fit.
    assert!(compare(Cpu::detect(), &graph, &model, [&[], &large], &mut |_| ()).is_err());
    assert!(compare(Cpu::detect(), &graph, &model, [&small, &[vec![0.0; 3]]], &mut |_| ()).is_err());
}
