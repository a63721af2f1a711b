//! Signs of reduced precision: what they make of other layers' values.

use std::path::Path;

use jaguar_compile::{Options, compile};
use jaguar_graph::import;
use jaguar_graph::network::Operators;
use jaguar_plan::Kit;
use jaguar_ring::cpu::Cpu;

/// A softmax whose max-pool takes too small a value for the largest sums up exponentials beyond all that calibration saw. A private run
/// would wrap such sums around, so a choice that makes them is refused, though an imitated run's logits are fine.
#[test]
fn no_value_wraps_around_behind_a_softmax() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/fixtures/attention_13.onnx");
    let graph =
        import::import_file(&path, &import::Options::new(&Operators::standard())).expect("it imports");
    let length: usize = graph.input_shape().iter().product();
    let value = |i: usize, at: usize| ((at * at * 7 + i * 131 + at * (i + 3)) % 255) as f32;
    let images: Vec<Vec<f32>> = (0..10).map(|i| (0..length).map(|at| value(i, at)).collect()).collect();
    let options = Options { reduced_signs: true, ..Options::default() };
    let compiled = compile(&Kit::standard(), &graph, &images, &options, &mut |_| ()).expect("it compiles");
    let signs = compiled.signs.as_ref().expect("they were asked for");
    assert!(signs.reduced > 0, "{signs:?}");
    let imitated = compiled.imitated(Cpu::detect(), &graph, &images).expect("inputs that fit");
    assert_eq!(imitated.overflows, 0, "{signs:?}");
}
