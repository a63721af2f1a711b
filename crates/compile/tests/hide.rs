//! For how many queries hidden units are hidden: what is asked for is kept, or told.

use std::path::Path;

use jaguar_compile::{Compiled, Hide, Options, Warning, Widths, compile};
use jaguar_graph::bundle::Bundle;
use jaguar_graph::import;
use jaguar_graph::network::{Hiding, Operators};
use jaguar_plan::Kit;

fn compiled(change: impl FnOnce(&mut Options)) -> Compiled {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/fixtures/pool_after_relus_13.onnx");
    let graph =
        import::import_file(&path, &import::Options::new(&Operators::standard())).expect("it imports");
    let length: usize = graph.input_shape().iter().product();
    let value = |i: usize, at: usize| ((at * 7 + i * 13) % 23) as f32 / 4.0 - 3.0;
    let images: Vec<Vec<f32>> = (0..10).map(|i| (0..length).map(|at| value(i, at)).collect()).collect();
    let mut options = Options::default();
    change(&mut options);
    compile(&Kit::standard(), &graph, &images, &options, &mut |_| ()).expect("it compiles")
}

fn hidden_for(bundle: &Bundle) -> f64 {
    bundle.model.hidden_for().expect("compiling measures the leverage")
}

fn told(compiled: &Compiled) -> Option<f64> {
    let of = |warning: &Warning| match warning {
        Warning::HiddenFor { found, .. } => Some(*found),
        _ => None,
    };
    compiled.warnings.iter().find_map(of)
}

#[test]
fn as_many_queries_as_asked_for_and_no_more_bits_than_that_takes() {
    let mut before = 0;
    for queries in [1e4, 1e6, 1e8] {
        let compiled = compiled(|options| options.hide = Hide::For(queries));
        let network = &compiled.bundle.model.network;
        let found = hidden_for(&compiled.bundle);
        assert!(found >= queries && told(&compiled).is_none(), "{queries}: {found}");
        // (A bit less of noise is not enough.)
        assert!(found < 4.01 * queries, "{queries}: {found}");
        assert!(compiled.held_out.worst_relative_error <= 0.01);
        assert!(network.activation_bits > before, "{queries}: {}", network.activation_bits);
        before = network.activation_bits;
    }
    assert!(hidden_for(&compiled(|_| ()).bundle) >= 1e6, "by default");
}

#[test]
fn one_query_takes_neither_guard_bits_nor_noise() {
    let compiled = compiled(|options| options.hide = Hide::For(1.0));
    assert_eq!(compiled.bundle.model.network.hiding(), Hiding::NONE);
    assert_eq!((hidden_for(&compiled.bundle), told(&compiled)), (0.0, None));
}

/// Answers come first. What is hidden less for it is told, and it is the noise that was given up, not more than that.
#[test]
fn what_cannot_be_hidden_is_told() {
    let compiled = compiled(|options| {
        options.widths = Widths::Bits(16);
        options.hide = Hide::For(1e14);
    });
    let found = told(&compiled).expect("a warning");
    assert!(found < 1e14 && found == hidden_for(&compiled.bundle));
    assert!(compiled.held_out.worst_relative_error <= 0.01);
    assert!(compiled.held_out.worst_relative_error > 0.001, "more noise would have done");
}

/// A server may hide for longer or shorter than the model was compiled for: answers keep their accuracy.
#[test]
fn a_compiled_model_is_hidden_for_other_numbers() {
    let bundle = compiled(|_| ()).bundle;
    let places = |bundle: &Bundle| bundle.model.network.hiding().noise_places();
    let longer = bundle.clone().hidden_for(1e7).expect("possible");
    assert!(hidden_for(&longer) >= 1e7 && (places(&longer) / places(&bundle) - 1.0).abs() < 0.01);
    assert_eq!(bundle.clone().hidden_for(1.0).expect("possible").model.network.hiding(), Hiding::NONE);
    let again = longer.hidden_for(1e6).expect("possible");
    assert_eq!(again.model, bundle.model);
    for (queries, why) in
        [(1e30, "more noise than answers may have"), (1e9, "more guard bits than values may have")]
    {
        let error = bundle.clone().hidden_for(queries).err().expect("too many").to_string();
        assert!(error.contains(why), "{queries}: {error}");
    }
}
