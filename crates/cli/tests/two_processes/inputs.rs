//! Pictures and tensors of all kinds, folders of them, and what is told of those that do not fit.

use jaguar::network::DEFAULT_GUARD_BITS;
use std::path::Path;

use serde_json::Value;

use crate::predictions::{Deployment, answers, logits, number, photo};
use crate::process::{Process, Scratch, jaguar};
use crate::{WATCHDOG, tiny};

fn text(answer: &Value, key: &str) -> String {
    answer[key].as_str().unwrap_or_else(|| panic!("no {key} in {answer}")).to_owned()
}

/// An input far outside what calibration saw gets an answer and a warning; one within it gets none.
#[test]
fn inputs_unlike_those_of_calibration_are_told() {
    let it = Deployment::new("range", &[]);
    let (file, values) = tiny::tensor();
    let scaled = |name: &str, factor: f32| {
        let data: Vec<u8> = values.iter().flat_map(|v| (v * factor).to_le_bytes()).collect();
        let path = it.folder.path(name);
        std::fs::write(&path, tiny::npy("<f4", &[3, tiny::SIDE, tiny::SIDE], &data)).unwrap();
        path
    };
    let usual = it.folder.path("usual.npy");
    std::fs::write(&usual, file).unwrap();
    let (large, small) = (scaled("large.npy", 100.0), scaled("small.npy", 0.01));
    let finished =
        it.client(&it.server.address, "cache", &[&usual, &large, &photo(), &small]).finish(WATCHDOG);
    let told = finished.stderr.clone();
    let answers: Vec<Value> =
        finished.succeeded().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let warnings = |i: usize| answers[i]["warnings"].as_array().unwrap().clone();
    assert_eq!([0, 1, 2, 3].map(|i| warnings(i).len()), [0, 1, 0, 1], "{told}");
    let warning = warnings(1)[0].as_str().unwrap().to_owned();
    // (The photographs of calibration go from black to white: (0 - 0.5) / 0.25 to (1 - 0.5) / 0.25.)
    for part in ["large.npy", "-100 to 100", "-2.00 to 2.00", "% of them are cut off", "may be far off"] {
        assert!(warning.contains(part), "{warning:?} does not say {part:?}");
    }
    assert!(warnings(3)[0].as_str().unwrap().contains("small.npy"));
    assert_eq!(told.lines().filter(|l| l.starts_with("warning: ")).count(), 2, "{told}");
    // Both parties in one process say it too.
    let checked = Process::start(jaguar(&["verify", &it.model, &large])).finish(WATCHDOG);
    assert!(
        checked.stderr.contains("large.npy") && checked.stderr.contains("-100 to 100"),
        "{}",
        checked.stderr
    );
}

/// A folder with a class a folder, as training code has it; files that are no pictures are named, one that is damaged
/// is reported, and the others are predicted.
#[test]
fn folders_of_pictures() {
    let it = Deployment::new("folders", &[]);
    let pictures = it.folder.path("pictures");
    for class in ["a", "b"] {
        std::fs::create_dir_all(format!("{pictures}/{class}")).unwrap();
    }
    let drawing = image::load_from_memory(&tiny::png()).unwrap();
    for name in ["a/1.png", "a/2.bmp", "b/3.webp", "b/4.gif", "5.ppm"] {
        drawing.save(format!("{pictures}/{name}")).unwrap();
    }
    for name in ["a/notes.txt", "b/list.csv"] {
        std::fs::write(format!("{pictures}/{name}"), "words").unwrap();
    }
    let finished = it.client(&it.server.address, "cache", &[&pictures]).finish(WATCHDOG);
    for part in ["note: ", "2 files are skipped", "a/notes.txt", "b/list.csv"] {
        assert!(finished.stderr.contains(part), "{part:?}: {}", finished.stderr);
    }
    let found: Vec<Value> = finished.succeeded().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let names: Vec<String> = found.iter().map(|a| text(a, "input")).collect();
    let expected = ["5.ppm", "a/1.png", "a/2.bmp", "b/3.webp", "b/4.gif"].map(|n| format!("{pictures}/{n}"));
    assert_eq!(names, expected);
    // The same picture but for the GIF, which has 256 colours.
    for answer in &found[..4] {
        for (a, b) in logits(answer).iter().zip(&logits(&found[0])) {
            assert!((a - b).abs() < 64 << DEFAULT_GUARD_BITS, "{}: {a} and {b}", text(answer, "input"));
        }
    }

    std::fs::write(format!("{pictures}/a/0.jpg"), "no picture").unwrap();
    std::fs::write(format!("{pictures}/b/5.npy"), tiny::npy("<f4", &[2, 2], &[0; 16])).unwrap();
    let client = it.client(&it.server.address, "cache", &[&pictures]);
    let finished = client.finish(WATCHDOG);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let errors: Vec<&str> = finished.stderr.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 3, "{}", finished.stderr);
    assert!(errors[0].contains("a/0.jpg: neither an image nor a tensor"), "{errors:?}");
    assert!(errors[1].contains("b/5.npy: the tensor's shape is [2, 2]; the network takes [3, 16, 16]"));
    assert!(errors[2].contains("2 of 7 inputs"), "{errors:?}");
    let lines: Vec<Value> = finished.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let (failed, answered): (Vec<&Value>, Vec<&Value>) = lines.iter().partition(|l| l.get("error").is_some());
    assert_eq!((failed.len(), answered.len()), (2, 5));
    assert!(text(failed[0], "error").contains("neither an image nor a tensor"));
    assert!(text(failed[1], "input").ends_with("b/5.npy"));

    // A folder with nothing in it.
    let empty = it.folder.path("empty");
    std::fs::create_dir(&empty).unwrap();
    crate::assert_fails(it.client("127.0.0.1:1", "cache", &[&empty]), &["empty", "no JPEG, PNG"]);
    assert!(Path::new(&it.model).exists());
}

/// The layouts and types that a tensor file may have.
#[test]
fn tensors_of_other_types_and_shapes() {
    let it = Deployment::new("tensors", &[]);
    let count = 3 * tiny::SIDE * tiny::SIDE;
    // Small whole numbers, which every type can hold.
    let values: Vec<i8> = (0..count).map(|i| (i * 7 % 3) as i8).collect();
    let shape = [3, tiny::SIDE, tiny::SIDE];
    let with_batch = [1, 3, tiny::SIDE, tiny::SIDE];
    let data = |bytes: &dyn Fn(i8) -> Vec<u8>| values.iter().flat_map(|v| bytes(*v)).collect::<Vec<u8>>();
    let half = |v: i8| [0u16, 0x3c00, 0x4000][v as usize].to_le_bytes().to_vec();
    let files = [
        tiny::npy("<f4", &shape, &data(&|v| f32::from(v).to_le_bytes().to_vec())),
        tiny::npy("<f4", &with_batch, &data(&|v| f32::from(v).to_le_bytes().to_vec())),
        tiny::npy("<f8", &shape, &data(&|v| f64::from(v).to_le_bytes().to_vec())),
        tiny::npy("<f2", &shape, &data(&half)),
        tiny::npy("|u1", &with_batch, &data(&|v| vec![v as u8])),
        tiny::npy("|i1", &shape, &data(&|v| vec![v as u8])),
        tiny::npy("<i2", &shape, &data(&|v| i16::from(v).to_le_bytes().to_vec())),
        tiny::npy("<i4", &shape, &data(&|v| i32::from(v).to_le_bytes().to_vec())),
        tiny::npy("<i8", &shape, &data(&|v| i64::from(v).to_le_bytes().to_vec())),
    ];
    let paths: Vec<String> = (0..files.len()).map(|i| it.folder.path(&format!("{i}.npy"))).collect();
    files.iter().zip(&paths).for_each(|(file, path)| std::fs::write(path, file).unwrap());
    let inputs: Vec<&str> = paths.iter().map(String::as_str).collect();
    let found = it.ask("cache", &inputs);
    for answer in &found {
        for (a, b) in logits(answer).iter().zip(&logits(&found[0])) {
            assert!((a - b).abs() < 64 << DEFAULT_GUARD_BITS, "{}: {a} and {b}", text(answer, "input"));
        }
    }
    // The last dimension is not the channels' here.
    let last = it.folder.path("last.npy");
    std::fs::write(&last, tiny::npy("|u1", &[tiny::SIDE, tiny::SIDE, 3], &vec![0; count])).unwrap();
    crate::assert_fails(
        it.client(&it.server.address, "cache", &[&last]),
        &["last.npy", "[16, 16, 3]", "[3, 16, 16] or [1, 3, 16, 16]"],
    );
    assert_eq!(
        number(&answers(it.client(&it.server.address, "cache", &[inputs[0]]), 1)[0], "reduced_signs"),
        0
    );
}

/// A network over a vector takes it as the ONNX file has it, `[1, N]`, and without the batch.
#[test]
fn vectors_in_their_own_layout() {
    let folder = Scratch::new("vector");
    let [source, model] = ["vector.onnx", "vector.jaguar"].map(|f| folder.path(f));
    std::fs::write(&source, tiny::vector_onnx()).unwrap();
    let n = tiny::VECTOR;
    let data: Vec<u8> = (0..n).flat_map(|i| (i as f32 * 0.7).sin().to_le_bytes()).collect();
    let files: Vec<String> = [&[n][..], &[1, n], &[n, 1, 1], &[1, n, 1, 1]]
        .iter()
        .enumerate()
        .map(|(i, shape)| {
            let path = folder.path(&format!("{i}.npy"));
            std::fs::write(&path, tiny::npy("<f4", shape, &data)).unwrap();
            path
        })
        .collect();
    let mut compile = vec!["compile", &source, "-o", &model, "--calibrate"];
    compile.extend(files.iter().map(String::as_str));
    Process::start(jaguar(&compile)).finish(WATCHDOG).succeeded();
    let mut verify = vec!["verify", &model];
    verify.extend(files.iter().map(String::as_str));
    let checked = Process::start(jaguar(&verify)).finish(WATCHDOG).succeeded();
    assert!(checked.contains("same class: 4/4"), "{checked}");
    let other = folder.path("other.npy");
    std::fs::write(&other, tiny::npy("<f4", &[n, 1], &data)).unwrap();
    crate::fails(&["verify", &model, &other], &["other.npy", "[12, 1]", "[12, 1, 1] or [12] or"]);
}
