//! `jaguar accuracy`: labelled pictures, by folder and by list.

use std::path::Path;

use jaguar::bundle::Bundle;
use jaguar::network::{Operators, argmax};
use jaguar::{Cpu, image_input, reference};
use serde_json::Value;

use crate::process::{Finished, Process, Scratch, jaguar, repository};
use crate::{WATCHDOG, tiny};

fn run(arguments: &[&str]) -> Finished {
    Process::start(jaguar(arguments)).finish(WATCHDOG)
}

#[test]
fn labelled_pictures_are_counted() {
    let folder = Scratch::new("accuracy");
    let model = tiny::compile(&folder);
    let [source, data] = ["tiny.onnx", "data"].map(|f| folder.path(f));
    let bundle = Bundle::read(Path::new(&model), &Operators::standard()).unwrap();
    let network = &bundle.model.network;
    // Whatever the network says is the right class, but for one picture.
    let mut list = String::new();
    let photos: Vec<_> = std::fs::read_dir(repository("demo/calibration"))
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|f| f.extension().is_some_and(|e| e == "jpg"))
        .collect();
    assert_eq!(photos.len(), 6);
    for (i, photo) in photos.iter().enumerate() {
        let picture = image::open(photo).unwrap().into_rgb8();
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let tensor = image_input::tensor(
            &network.input.image,
            network.nodes[0].shape,
            picture.as_raw(),
            width,
            height,
        );
        let input = network.input.quantise(&tensor.unwrap(), network.activation_bits);
        let class = argmax(reference::run(Cpu::detect(), &bundle.model, &input).unwrap().output());
        let class = if i == 0 { (class + 1) % tiny::CLASSES } else { class };
        let place = format!("{data}/class-{class}");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::copy(photo, format!("{place}/{i}.jpg")).unwrap();
        list.push_str(&format!("data/class-{class}/{i}.jpg,{class}\n"));
    }
    let finished =
        run(&["accuracy", &model, "--data", &data, "--float", &source, "--private", "2", "--json"]);
    let told: Value = serde_json::from_str(finished.succeeded().trim()).unwrap();
    let part = |of: &Value, key: &str| {
        of.pointer(key).and_then(Value::as_f64).unwrap_or_else(|| panic!("{key} in {of}"))
    };
    assert!((part(&told, "/integer/top/1") - 5.0 / 6.0).abs() < 1e-9, "{told}");
    assert_eq!(part(&told, "/integer/pictures"), 6.0);
    assert!(part(&told, "/integer/top/5") >= part(&told, "/integer/top/1"));
    assert_eq!((part(&told, "/private/pictures"), part(&told, "/integer_on_those/pictures")), (2.0, 2.0));
    assert_eq!(told["labels_by"], "folder name");
    assert_eq!(part(&told, "/float/pictures"), 6.0);

    // The same by a list, as text.
    let csv = folder.path("list.csv");
    std::fs::write(&csv, format!("picture,label\n{list}")).unwrap();
    let text = run(&["accuracy", &model, "--data", &csv, "--top", "1,3"]).succeeded();
    for expected in ["10 classes, labels by list", "top-1", "top-3", "83.33 %", "integer"] {
        assert!(text.contains(expected), "{expected:?} is missing:\n{text}");
    }
    // A picture that cannot be read is reported, and the others count.
    std::fs::write(&csv, format!("{list}data/absent.jpg,1\n")).unwrap();
    let finished = run(&["accuracy", &model, "--data", &csv, "--json"]);
    assert_eq!(finished.status.code(), Some(1));
    assert!(finished.stderr.contains("absent.jpg") && finished.stderr.contains("1 of 7 pictures"));
    let told: Value = serde_json::from_str(finished.stdout.trim()).unwrap();
    assert_eq!((part(&told, "/failed"), part(&told, "/integer/pictures")), (1.0, 6.0));
}

/// `compile --data`: labels decide, and what the bound on logits would take stands beside it.
#[test]
fn labelled_pictures_choose_the_width() {
    let folder = Scratch::new("by-class");
    tiny::compile(&folder);
    let [source, data, output] = ["tiny.onnx", "list.csv", "by-class.jaguar"].map(|f| folder.path(f));
    let photos = repository("demo/calibration");
    let names = ["astronaut", "cat", "china", "flower", "hubble", "rocket"];
    let list: String = names.map(|name| format!("{photos}/{name}.jpg,0\n")).concat();
    std::fs::write(&data, list).unwrap();
    let arguments = ["compile", &source, "--calibrate", &photos, "--data", &data, "-o", &output];
    let told = run(&[&arguments[..], &["--loss", "20", "--force"]].concat());
    let text = told.succeeded();
    for part in [
        "6 labelled pictures",
        "logits within 1 %",
        "at most 20 % lost",
        "right class on",
        "bytes before the input",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    let told = run(&[&arguments[..], &["--loss", "20", "--force", "--accuracy-bound", "0.9"]].concat());
    assert!(told.succeeded().contains("logits within 0.9 %"), "no digits that nobody wrote");
    for (wrong, part) in [
        (&["--loss", "100"][..], "--loss must be from 0 to less than 100 percent"),
        (&["--activation-bits", "16"], "cannot be used with"),
        (&["--protocol", "convfhe"], "--data is for --protocol interactive"),
    ] {
        let refused = run(&[&arguments[..], wrong].concat());
        assert!(!refused.status.success() && refused.stderr.contains(part), "{wrong:?}: {}", refused.stderr);
    }
    let without = run(&["compile", &source, "--calibrate", &photos, "-o", &output, "--loss", "1"]);
    assert!(!without.status.success() && without.stderr.contains("--loss is about"), "{}", without.stderr);
}

#[test]
fn labels_that_do_not_match_are_named() {
    let folder = Scratch::new("mislabelled");
    let model = tiny::compile(&folder);
    let [data, list, other] = ["data", "list.txt", "other"].map(|f| folder.path(f));
    let fails = |data: &str, more: &[&str], parts: &[&str]| {
        crate::fails(&[&["accuracy", &model, "--data", data], more].concat(), parts);
    };
    fails(&folder.path("absent"), &[], &["absent", "No such file"]);
    for class in ["class-1", "dog"] {
        std::fs::create_dir_all(format!("{data}/{class}")).unwrap();
        std::fs::write(format!("{data}/{class}/x.png"), tiny::png()).unwrap();
    }
    fails(&data, &[], &["2 folders for 10 classes", "\"dog\" is no label name"]);
    std::fs::rename(format!("{data}/dog"), format!("{data}/10")).unwrap();
    fails(&data, &[], &["class 10 is none", "0 to 9"]);
    std::fs::create_dir(&other).unwrap();
    fails(&other, &[], &["other", "no folders"]);
    for (text, parts) in [
        ("data/class-1/x.png 3\ndata/10/x.png 12\n", &["list.txt", "line 2", "class 12"][..]),
        ("data/class-1/x.png\n", &["line 1", "a file and its class"]),
        ("data/class-1/x.png dog\n", &["line 1", "\"dog\""]),
        ("\n", &["empty"]),
        ("nothing.png 1\n", &["none of the 1 pictures"]),
    ] {
        std::fs::write(&list, text).unwrap();
        let finished = run(&["accuracy", &model, "--data", &list]);
        assert_eq!(finished.status.code(), Some(1));
        parts.iter().for_each(|p| assert!(finished.stderr.contains(p), "{p:?}: {}", finished.stderr));
    }
    std::fs::write(&list, "data/class-1/x.png 3\n").unwrap();
    fails(&list, &["--top", "11"], &["--top 11", "10 classes"]);
    let network = repository("demo/squeezenet1_1.onnx");
    fails(&list, &["--float", &network], &["squeezenet1_1.onnx", "[3, 227, 227]", "another network"]);
}
