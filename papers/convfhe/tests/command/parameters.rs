//! The parameter set where nobody names one: what calibration finds.

use serde_json::Value;

use crate::process::{Process, Scratch, jaguar};
use crate::{WATCHDOG, tiny};

/// What `jaguar compile` says, and the set in the model that it writes, of a small network and so many samples.
fn compiled(scratch: &Scratch, samples: usize, options: &[&str]) -> (String, String) {
    let [network, folder, model] =
        ["vector.onnx", "samples", "vector.convfhe"].map(|name| scratch.path(name));
    std::fs::write(&network, tiny::vector_onnx()).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    for i in 0..samples {
        // (Those of the other tests are too alike.)
        let data: Vec<u8> =
            (0..tiny::VECTOR).flat_map(|j| ((i * 13 + j * 5) as f32 * 0.4).sin().to_le_bytes()).collect();
        std::fs::write(format!("{folder}/{i:02}.npy"), tiny::npy("<f4", &[1, tiny::VECTOR], &data)).unwrap();
    }
    let own = ["compile", &network, "--protocol", "convfhe", "--calibrate", &folder, "-o", &model];
    let told = Process::start(jaguar(&[&own[..], options].concat())).finish(WATCHDOG).succeeded();
    let model: Value = serde_json::from_slice(&std::fs::read(&model).unwrap()).unwrap();
    let set = model["jaguar"]["set"].as_str().unwrap();
    assert_eq!(model["relu"], if set == "n16" { "7-7-13" } else { "7-15" });
    (told, set.to_owned())
}

#[test]
fn calibration_takes_the_cheaper_set_only_where_it_can_tell_that_accuracy_bears_it() {
    let scratch = Scratch::new("choice");
    let line = |told: &str| told.lines().find(|line| line.starts_with("took ")).map(str::to_owned);
    // The fewest that are enough come last, since samples stay in the folder.
    let (told, set) = compiled(&scratch, 6, &[]);
    let why = line(&told).expect(&told);
    assert!(set == "n16" && why.starts_with("took n16, for 6 different samples are few"), "{why}");
    let (told, set) = compiled(&scratch, 10, &[]);
    let why = line(&told).expect(&told);
    assert!(set == "n16-relu8" && why.starts_with("took n16-relu8, for accuracy bears it"), "{why}");
    for part in [
        "logits of 10 inputs",
        "% by n16-relu8 and ",
        "804.25 MiB of keys",
        "1126.57 MiB of keys",
        "made-up ones",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // Nothing else tells of inputs that are unlike the samples.
    let (told, set) = compiled(&scratch, 10, &["--stress", "off"]);
    assert!(set == "n16" && line(&told).expect(&told).contains("unlike the samples"), "{told}");
    // Whoever names a set gets it.
    for name in ["n16", "n16-relu8"] {
        let (told, set) = compiled(&scratch, 10, &["--parameters", name]);
        assert!(set == name && line(&told).is_none(), "{told}");
    }
}
