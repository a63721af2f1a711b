//! Widths by how often the right class comes out: no fewer bits than that takes, and no more.

use std::path::{Path, PathBuf};

use jaguar_compile::samples::labelled::Labelled;
use jaguar_compile::{
    ByClass, CompileError, Compiled, Counted, Event, Hide, Options, Warning, Widths, compile,
};
use jaguar_graph::float::Graph;
use jaguar_graph::import;
use jaguar_graph::network::{Operators, argmax};
use jaguar_plan::Kit;
use jaguar_ring::cpu::Cpu;

fn graph(name: &str) -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/fixtures").join(name);
    import::import_file(&path, &import::Options::new(&Operators::standard())).expect("it imports")
}

/// A network with a list of classes.
fn classifier() -> Graph {
    graph("sums_13.onnx")
}

/// Input number `i`, `[C, H, W]`.
fn input(graph: &Graph, i: usize) -> Vec<f32> {
    let length: usize = graph.input_shape().iter().product();
    let value = |at: usize| ((at * 7 + i * 13 + at * i % 11) % 23) as f32 / 4.0 - 3.0;
    (0..length).map(value).collect()
}

#[test]
fn layers_that_lost_their_blocks_are_told() {
    let told = |layers: &[&str]| {
        let lost_blocks = layers.iter().map(|&name| name.into()).collect();
        let graph = Graph { lost_blocks, ..classifier() };
        let images: Vec<Vec<f32>> = (0..10).map(|i| input(&graph, i)).collect();
        let compiled = compile(&Kit::standard(), &graph, &images, &Options::default(), &mut |_| ());
        let warnings = compiled.expect("it compiles").warnings;
        let found = warnings.into_iter().find(|warning| matches!(warning, Warning::LostBlocks(_)));
        found.map(|warning| warning.to_string())
    };
    assert_eq!(told(&[]), None);
    let text = told(&["/up/Gemm", "/down/Gemm"]).expect("a warning");
    assert!(text.starts_with("2 layers have no blocks any more, /up/Gemm first"), "{text}");
    let text = told(&["/up/Gemm"]).expect("a warning");
    assert!(text.starts_with("1 layer has no blocks any more"), "{text}");
}

/// A folder that is gone when this is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jaguar-classes-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("room for pictures");
        Self(path)
    }

    /// A tensor of the shape `[1, C, H, W]`.
    fn write(&self, name: &str, shape: [usize; 3], values: &[f32]) -> PathBuf {
        let [c, h, w] = shape;
        let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (1, {c}, {h}, {w}), }}");
        let padded = format!("{head:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(padded.len()).expect("short").to_le_bytes());
        bytes.extend(padded.as_bytes());
        values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("room for pictures");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// So many inputs, each with the class that the float network finds but for every `wrong`-th.
fn labelled(graph: &Graph, folder: &Folder, count: usize, wrong: usize) -> Vec<Labelled> {
    let one = |i: usize| {
        let tensor = input(graph, 100 + i);
        let class = argmax(&graph.forward(Cpu::default(), &tensor).expect("it fits"));
        let classes: usize = graph.nodes.last().expect("an output").shape.iter().product();
        let class = if i % wrong == wrong - 1 { (class + 1) % classes } else { class };
        Labelled { path: folder.write(&format!("{i}.npy"), graph.input_shape(), &tensor), class }
    };
    (0..count).map(one).collect()
}

fn compiled(
    graph: &Graph,
    by_class: ByClass,
    change: impl FnOnce(&mut Options),
    judged: &mut Vec<Counted>,
) -> Result<Compiled, CompileError> {
    let samples: Vec<Vec<f32>> = (0..10).map(|i| input(graph, i)).collect();
    let mut options = Options { by_class: Some(by_class), ..Options::default() };
    change(&mut options);
    compile(&Kit::standard(), graph, &samples, &options, &mut |event| {
        if let Event::Judged(counted) = event {
            judged.push(*counted);
        }
    })
}

#[test]
fn the_fewest_bits_that_keep_the_loss_are_taken() {
    let (graph, folder) = (classifier(), Folder::new("fewest"));
    let by_class = ByClass { pictures: labelled(&graph, &folder, 200, 10), loss: 0.02 };
    let mut judged = Vec::new();
    let compiled = compiled(&graph, by_class, |_| (), &mut judged).expect("it compiles");
    let classes = compiled.classes.expect("there were labels");
    let (logits, class) = (classes.by_logits, classes.by_class.expect("some width keeps the loss"));
    assert_eq!((classes.pictures, classes.float_right), (200, 180));

    // What the model has is what was chosen, hides as long, and is cheaper.
    let network = &compiled.bundle.model.network;
    assert_eq!(network.activation_bits, class.width.bits());
    assert_eq!(network.hiding(), class.width.hiding);
    assert!(compiled.bundle.model.hidden_for().expect("measured") >= 1e6);
    assert!(
        class.width.activation_bits < logits.width.activation_bits,
        "{} beside {}",
        class.width,
        logits.width
    );
    assert!(class.bytes[0] < logits.bytes[0] && class.bytes[1] < logits.bytes[1]);

    // Every width below was tried and loses too many; each count adds up.
    let (first, others) = judged.split_first().expect("what logits chose comes first");
    assert_eq!((first.width, first.kept), (logits.width, true));
    let kept: Vec<usize> = (0..others.len()).filter(|&i| others[i].kept).collect();
    let widest = kept[0];
    assert!(others[..widest].iter().all(|c| c.width.activation_bits < class.width.activation_bits));
    assert_eq!(others[widest].width.activation_bits, class.width.activation_bits);
    assert!(widest >= 2, "narrow widths lose too many");
    // Then guard bits go as long as the loss is kept.
    let last = others.last().expect("tried");
    assert!(others[widest..].windows(2).all(|w| w[0].kept && w[0].width.bits() == w[1].width.bits() + 1));
    assert_eq!(class.counted, if last.kept { *last } else { others[others.len() - 2] });
    for counted in &judged {
        let float_right = (0..counted.pictures).filter(|i| i % 10 != 9).count();
        assert_eq!(counted.right + counted.lost, float_right + counted.won, "{counted:?}");
        assert!(!counted.kept || counted.lost <= counted.won + 4, "{counted:?}");
        // (Nothing that is left could have made up for what was lost.)
        let may_win = (counted.pictures..200).filter(|i| i % 10 == 9).count();
        assert!(counted.kept || counted.lost > counted.won + may_win + 4, "{counted:?}");
    }
    // A lost cause ends early.
    assert!(others.iter().any(|c| c.pictures < 200));
}

/// Curves get coarser lines where answers allow it, a softmax's exponentials coarser ones still, and factors fewer bits; not where labelled pictures chose, which were counted with fine ones.
#[test]
fn values_stay_fine_where_classes_chose() {
    let (graph, folder) = (graph("vision_transformer_17.onnx"), Folder::new("curves"));
    let samples: Vec<Vec<f32>> = (0..10).map(|i| input(&graph, i)).collect();
    let chosen = |by_class: Option<ByClass>| {
        let mut bits = [None; 3];
        let options = Options { by_class, widths: Widths::Bits(20), ..Options::default() };
        let compiled = compile(&Kit::standard(), &graph, &samples, &options, &mut |event| {
            if let Event::CoarseChosen(coarse, found, _) = event {
                bits[coarse as usize] = Some(found);
            }
        });
        (bits, compiled.expect("it compiles").bundle.model.hidden_for().expect("measured"))
    };
    let (bits, hidden_for) = chosen(None);
    let fewer = bits.iter().all(|bits| bits.is_some_and(|bits| bits < 20));
    assert!(fewer && bits[1] < bits[0] && hidden_for >= 1e6, "{bits:?}, {hidden_for}");
    let pictures = labelled(&graph, &folder, 20, 21);
    assert_eq!(chosen(Some(ByClass { pictures, loss: 0.2 })).0, [None; 3]);
}

/// With coarse lines and coarse factors hidden values stay hidden for as many queries as were asked for, or that is told. (What is turned down for that:
/// `compile/src/hide.rs`.)
#[test]
fn coarse_values_hide_for_what_was_asked() {
    let graph = graph("vision_transformer_17.onnx");
    let samples: Vec<Vec<f32>> = (0..10).map(|i| input(&graph, i)).collect();
    // (Four times as many queries take one bit of noise more.)
    for asked in [1e6, 1.5e6, 2.2e6, 3.3e6] {
        let mut coarse = [false; 3];
        let options = Options { hide: Hide::For(asked), widths: Widths::Bits(20), ..Options::default() };
        let compiled = compile(&Kit::standard(), &graph, &samples, &options, &mut |event| {
            if let Event::CoarseChosen(chosen, ..) = event {
                coarse[chosen as usize] = true;
            }
        });
        let compiled = compiled.expect("it compiles");
        let hidden_for = compiled.bundle.model.hidden_for().expect("measured");
        let told = compiled.warnings.iter().any(|warning| matches!(warning, Warning::HiddenFor { .. }));
        assert_eq!(told, hidden_for < asked, "{hidden_for} of {asked}: {coarse:?}");
        assert!(asked > 1e6 || coarse == [true; 3] && !told, "{hidden_for} of {asked}: {coarse:?}");
    }
}

#[test]
fn what_no_width_keeps_is_told() {
    let (graph, folder) = (classifier(), Folder::new("none"));
    let by_class = ByClass { pictures: labelled(&graph, &folder, 200, 10), loss: 0.0 };
    let narrow = |options: &mut Options| {
        (options.widths, options.hide) = (Widths::Bits(8), Hide::For(1.0));
        options.force = true;
    };
    let mut judged = Vec::new();
    let compiled = compiled(&graph, by_class, narrow, &mut judged).expect("it compiles");
    assert_eq!(judged.len(), 1, "what logits chose is the only width, and is counted once");
    assert!(compiled.classes.as_ref().is_some_and(|found| found.by_class.is_none()));
    assert!(compiled.warnings.iter().any(|warning| matches!(warning, Warning::Lost(_))));
    assert_eq!(compiled.bundle.model.network.activation_bits, 8);
}

#[test]
fn few_pictures_say_little() {
    let (graph, folder) = (classifier(), Folder::new("few"));
    for (loss, warned) in [(0.002, true), (0.2, false)] {
        let by_class = ByClass { pictures: labelled(&graph, &folder, 10, 11), loss };
        let compiled = compiled(&graph, by_class, |_| (), &mut Vec::new()).expect("it compiles");
        let few = |warning: &Warning| matches!(warning, Warning::FewPictures { pictures: 10, .. });
        assert_eq!(compiled.warnings.iter().any(few), warned, "{loss}");
    }
}

#[test]
fn what_cannot_be_judged_is_refused() {
    let (graph, folder) = (classifier(), Folder::new("refused"));
    let refused = |graph: &Graph, pictures: Vec<Labelled>, loss: f64| {
        let found = compiled(graph, ByClass { pictures, loss }, |_| (), &mut Vec::new());
        found.err().expect("refused").to_string()
    };
    assert_eq!(refused(&graph, Vec::new(), 0.1), "there are no labelled pictures");
    let pictures = labelled(&graph, &folder, 2, 11);
    assert!(refused(&graph, pictures.clone(), 1.0).contains("below 1"));
    let absent = Labelled { path: folder.0.join("absent.npy"), class: 0 };
    assert!(refused(&graph, vec![absent], 0.1).contains("absent.npy"));
    let other = Labelled { path: folder.write("other.npy", [1, 2, 3], &[0.0; 6]), class: 0 };
    assert!(refused(&graph, vec![other], 0.1).contains("other.npy"));
    let map = graph_with_a_map();
    let error = ByClass::read(&folder.0, &map, &[], 0.1).expect_err("refused before anything is read");
    assert!(error.to_string().contains("no list of classes"), "{error}");
    assert!(refused(&map, pictures, 0.1).contains("no list of classes"));
}

/// A network whose output is no list of classes.
fn graph_with_a_map() -> Graph {
    graph("channel_shuffle_13.onnx")
}
