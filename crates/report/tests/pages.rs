//! Every page, made from names that try to become part of it, and in a browser where there is one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use jaguar_compile::{Classes, Compiled, Counted, Options, Ruled, Widths, compile};
use jaguar_graph::float::Graph;
use jaguar_graph::import;
use jaguar_graph::network::Operators;
use jaguar_graph::quantise::Width;
use jaguar_graph::quantise::layers::{self, Image, LayerStatistics};
use jaguar_plan::double::SAID_TO_LEAK;
use jaguar_plan::machine::{Link, Machine, NonlinearKind, Placement};
use jaguar_plan::memory::{Load, memory};
use jaguar_plan::planner::explain;
use jaguar_plan::predict::{Aim, Session, Site, predict};
use jaguar_plan::{Allowed, Choices, ComparisonsId, Kit, Plan};
use jaguar_report::tables::memory::MemoryNeeds;
use jaguar_report::tables::plan::Planned;
use jaguar_report::{compiled, cost, timeline};
use jaguar_ring::cpu::Cpu;
use serde_json::{Value, json};

/// What somebody may call a layer, a file or a class.
const NAMES: [&str; 4] = [
    "<script>document.title='owned'</script>",
    "\"><img src=x onerror=document.title='owned'>",
    "</script><script>document.title='owned'</script>",
    "</title></style>&lt;b&gt; {{ 7 * 7 }} ' onload=alert(1)",
];

/// A small network whose every name is one of those.
fn network() -> (Graph, Vec<Vec<f32>>, Compiled) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../graph/tests/fixtures/clips_21.onnx");
    let options = import::Options { cpu: Cpu::detect(), ..import::Options::new(&Operators::standard()) };
    let mut graph = import::import_file(path.as_ref(), &options).unwrap();
    graph.name = NAMES[3].into();
    for (i, node) in graph.nodes.iter_mut().enumerate() {
        node.name = format!("{} {i}", NAMES[i % 4]);
    }
    let length: usize = graph.input_shape().iter().product();
    let images: Vec<Vec<f32>> =
        (0..6).map(|i| (0..length).map(|at| ((at * 7 + i * 13) % 23) as f32 / 4.0 - 3.0).collect()).collect();
    let classes: usize = graph.nodes.last().unwrap().shape.iter().product();
    let options = Options {
        widths: Widths::Bits(18),
        keep_names: true,
        labels: (0..classes).map(|i| NAMES[i % 4].to_owned()).collect(),
        ..Options::default()
    };
    let compiled = compile(&Kit::standard(), &graph, &images, &options, &mut |_| ()).unwrap();
    (graph, images, compiled)
}

fn compiled_page() -> String {
    let (graph, images, compiled) = network();
    let model = &compiled.bundle.model;
    let width = |activation_bits| Width { activation_bits, hiding: model.network.hiding() };
    let (layers, outputs) =
        layers::compare(Cpu::detect(), &graph, model, [&images[..4], &images[4..]], &mut |_| ()).unwrap();
    let found = compiled::Found::new(
        &compiled,
        0.01,
        vec![(width(17), None), (width(18), Some(0.001))],
        vec![NAMES[0].into(), NAMES[1].into()],
    );
    let inputs: Vec<compiled::Input<'_>> =
        images.iter().enumerate().map(|(i, tensor)| compiled::Input { name: NAMES[i % 4], tensor }).collect();
    let (id, calibration) = (compiled.bundle.id().to_string(), 4);
    compiled::page(&compiled::Subject {
        model,
        id: &id,
        found: &found,
        layers: &layers,
        images: &outputs,
        inputs: &inputs,
        calibration,
    })
    .unwrap()
}

/// Words that end where a chart begins have room for themselves: letters are up to 8.5 wide at the charts' 13 pixels.
#[test]
fn words_of_an_axis_are_not_cut_off() {
    let page = compiled_page();
    let ends: Vec<&str> =
        page.split("<text x=\"").skip(1).filter(|text| text.contains("text-anchor=\"end\"")).collect();
    assert!(ends.len() > 3);
    for text in ends {
        let (x, rest) = text.split_once('"').unwrap();
        let words = rest.split_once('>').unwrap().1.split_once("</text>").unwrap().0;
        // No axis has longer words than these.
        let letters = words.chars().count().max("0.0843 %".len());
        assert!(8.5 * letters as f64 <= x.parse::<f64>().unwrap(), "{words} before {x}");
        assert!(letters == "0.0843 %".len(), "{words}");
    }
}

/// A machine on which everything takes a round figure.
fn machine() -> Machine {
    let product = json!({ "wide": 1e-9, "narrow": 2e-9, "grouped": 1e-8 });
    let jaguar = Kit::JAGUAR.backend();
    let rings = jaguar.rings().iter().map(|ring| {
        json!({
            "ring_dim": ring.ring_dim, "modulus_bits": ring.modulus_bits, "ciphertext": 1e-3, "client_response": [[1, 1e-3]],
            "server_response": [[1, 1e-3]], "hint_response": 1e-3, "client_word": 1e-7, "server_word": 2e-7,
            "server_output": 3e-7, "online": product, "a_half": product,
        })
    });
    let kinds = NonlinearKind::ALL.len();
    let byte = json!({ "client": 1e-7, "server": 2e-7, "both": 2.5e-7 });
    serde_json::from_value(json!({
        "cpu": NAMES[1], "kernel": "none", "threads": 2, "speedups": {"linear": 2.0, "preparing": 2.0, "preparing_both": 2.0, "running": 1.0},
        "linear": { jaguar.probes()[0].name(): rings.collect::<Vec<_>>() },
        "making": [[1e-8, 2e-8, 4e-8, 8e-8], [1e-8, 2e-8, 4e-8, 8e-8]],
        // Of each kind of nonlinear step; of each digit.
        "cots": vec![vec![json!({ "sent": 2e-6, "received": 1e-6 }); 3]; kinds], "nonlinear": vec![vec![byte; 3]; kinds],
        "loopback": { "bytes_per_second": 1e9, "round_trip": 1e-5 },
    }))
    .unwrap()
}

const SLOW: Link = Link { bytes_per_second: 1e6, round_trip: 0.05 };

/// The page, and the seconds of a query, offline and online, over the slow link.
fn cost_page() -> (String, [f64; 2]) {
    let (_, _, compiled) = network();
    let network = &compiled.bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap();
    let machine = machine();
    let site =
        Site { machine: &machine, link: machine.loopback, placement: Placement::Shared, aim: Aim::Query };
    let why = explain(network, &plan, &[Kit::JAGUAR, Kit::CHEETAH], Some(&site));
    let subject = cost::Subject {
        network,
        id: &compiled.bundle.id().to_string(),
        plan: &plan,
        allowed: Allowed::default(),
        load: Load::single(2),
        site: Some(&site),
        backends: &[Kit::JAGUAR, Kit::CHEETAH],
        links: &[("slow", SLOW)],
        explanation: Some(&why),
    };
    let slow = predict(&plan, &Session::default(), Some(&Site { link: SLOW, ..site }));
    (cost::page(&subject).unwrap(), [slow.offline.seconds.unwrap(), slow.online.seconds.unwrap()])
}

/// The page of a query of sixteen images.
fn batch_page() -> String {
    let (_, _, compiled) = network();
    let network = &compiled.bundle.model.network;
    let choices = Choices::standard(network, Kit::JAGUAR).of_images(16);
    let plan = Plan::new(network, choices).unwrap();
    let machine = machine();
    let site =
        Site { machine: &machine, link: machine.loopback, placement: Placement::Shared, aim: Aim::Query };
    let subject = cost::Subject {
        network,
        id: "x",
        plan: &plan,
        allowed: Allowed::default(),
        load: Load::single(2),
        site: Some(&site),
        backends: &[Kit::JAGUAR, Kit::CHEETAH],
        links: &[],
        explanation: None,
    };
    cost::page(&subject).unwrap()
}

/// What comparisons of a kit tell is in the table, in the file and on the page; nothing of a sealed plan is.
#[test]
fn comparisons_that_leak_are_told() {
    let (_, _, compiled) = network();
    let (bundle, allowed) = (&compiled.bundle, Allowed { leaks: true, ..Allowed::default() });
    let network = &bundle.model.network;
    let sealed = Choices::standard(network, Kit::JAGUAR);
    let leaky = sealed.clone().comparing_by(network, ComparisonsId(SAID_TO_LEAK[0])).unwrap();
    let told = |choices: Choices| {
        let plan = Plan::allowing(network, choices, allowed).unwrap();
        let memory = MemoryNeeds::new(network, &plan, allowed, Load::single(2), None, &[Kit::JAGUAR]);
        let planned = Planned::new(bundle, &plan, allowed, None, memory, (None, false)).unwrap();
        let page = cost::page(&cost::Subject {
            network,
            id: "x",
            plan: &plan,
            allowed,
            load: Load::single(2),
            site: None,
            backends: &[Kit::JAGUAR],
            links: &[],
            explanation: None,
        });
        (planned.to_string(), serde_json::to_value(&planned).unwrap(), page.unwrap())
    };
    let bits = leaky.comparison.extra_bits();
    let (table, json, page) = told(leaky);
    let by_layer = format!("LEAKS: said-to-leak, {bits} bits more");
    for part in ["WARNING: comparisons leak, a test says", &by_layer] {
        assert!(table.contains(part), "no {part:?} in {table}");
    }
    assert!(json["leaks"].is_string() && json["choices"]["comparison"]["by"]["extra_bits"] == bits, "{json}");
    assert!(page.contains("comparisons leak, a test says"));
    let (table, json, page) = told(sealed);
    assert!(!table.contains("leak") && !page.contains("comparisons leak"));
    assert!(json.get("leaks").is_none() && json["choices"]["comparison"] == "sealed", "{json}");
}

fn trace() -> Value {
    let event = |name: &str, category: &str, process: u32, start: u64, length: u64| {
        json!({ "name": name, "cat": category, "ph": "X", "pid": process, "tid": 1, "ts": start, "dur": length,
            "args": { "input": NAMES[0], "operation": NAMES[1], "kind": "linear", "working_ms": 3.0, "waiting_ms": 1.0,
                "bytes_up": 1 << 20, "bytes_down": 3 << 20, "rounds": 2 } })
    };
    let query = |process: u32, start: u64| {
        vec![
            event("query", "query", process, start, 100_000),
            event("before the input", "stage", process, start, 60_000),
            event(NAMES[0], "offline", process, start, 60_000),
            event("waiting", "waiting", process, start + 1_000, 20_000),
            event(NAMES[2], "online", process, start + 60_000, 40_000),
            // What a server may claim.
            event(NAMES[3], "online", process, u64::MAX, u64::MAX),
        ]
    };
    let events: Vec<Value> =
        (0..8).flat_map(|i| [query(1, i * 200_000), query(2, i * 200_000)]).flatten().collect();
    json!({ "traceEvents": events, "otherData": { "server_clock": [{ "uncertainty_ms": 0.5 }] } })
}

fn pages() -> [(&'static str, String); 3] {
    let timeline = timeline::page(&trace(), NAMES[2]).unwrap();
    [("compiled", compiled_page()), ("cost", cost_page().0), ("timeline", timeline)]
}

#[test]
fn names_stay_text() {
    for (page, text) in pages() {
        for name in NAMES {
            assert!(!text.contains(name), "{page} holds {name} as it is");
        }
        assert!(!text.contains("<img src=x"), "{page}");
        // Escaped, they are there.
        assert!(text.contains("document.title=&#39;owned&#39;"), "{page}");
        // Scripts: none but the page's own, each with the nonce; data is no script.
        let nonce = text.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        for script in text.split("<script").skip(1) {
            let own = script.starts_with(&format!(" nonce=\"{nonce}\""));
            assert!(own || script.starts_with(" type=\"application/json\""), "{page}");
        }
    }
}

#[test]
fn pages_need_nothing_from_elsewhere() {
    for (page, text) in pages() {
        for from in ["http://", "https://", "src=\"/", "url(", "@import", "<link"] {
            assert!(!text.contains(from), "{page} holds {from}");
        }
        assert!(text.contains("default-src 'none'"), "{page}");
        // No style attribute: the policy forbids them, so they would have no effect.
        assert!(!text.contains(" style="), "{page}");
        // Tables say what they show, and drawings that are more than repetition say it too.
        assert_eq!(text.matches("<table").count(), text.matches("<caption").count(), "{page}");
        for drawing in text.split("<svg").skip(1) {
            let tag = drawing.split('>').next().unwrap();
            assert!(tag.contains("aria-label=") || tag.contains("aria-hidden=\"true\""), "{page}: {tag}");
        }
        assert_eq!(text.matches("<img").count(), text.matches(" alt=\"").count(), "{page}");
    }
    // Two pages have two nonces.
    assert_ne!(cost_page().0, cost_page().0);
}

/// Every decision that `jaguar plan --explain` prints is on the page, with what was taken and what was refused.
#[test]
fn a_plan_shows_what_else_there_was() {
    let (_, _, compiled) = network();
    let network = &compiled.bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap();
    let why = explain(network, &plan, &[Kit::JAGUAR, Kit::CHEETAH], None);
    let subject = |explanation| cost::Subject {
        network,
        id: "x",
        plan: &plan,
        allowed: Allowed::default(),
        load: Load::single(2),
        site: None,
        backends: &[Kit::JAGUAR, Kit::CHEETAH],
        links: &[],
        explanation,
    };
    let page = cost::page(&subject(Some(&why))).unwrap();
    let all = why.rings.iter().chain(&why.activations);
    let all: Vec<_> = all.chain(why.layers.iter().flat_map(|layer| &layer.alternatives)).collect();
    let refused = all.iter().filter(|a| a.figures.is_none()).count();
    assert!(refused > 0 && !why.layers.is_empty(), "{why:?}");
    let part = page.split("What else there was").nth(1).unwrap();
    assert_eq!(part.matches("not possible: ").count(), refused);
    assert_eq!(part.matches(" (taken)</span>").count(), all.iter().filter(|a| a.taken).count());
    assert_eq!(part.matches("<details>").count(), why.layers.len());
    for what in ["N = 4096, q = 2^48", "20 bits", "cheetah"] {
        assert!(part.contains(what), "{what}");
    }
    // Without, the page says how to get it.
    assert!(cost::page(&subject(None)).unwrap().contains("jaguar plan --explain --report"));
}

/// The memory of both parties is on the page, under the load that was asked for.
#[test]
fn memory_is_told() {
    let (_, _, compiled) = network();
    let network = &compiled.bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap();
    let load = Load { clients: 3, kept: 2, threads: 4 };
    let subject = cost::Subject {
        network,
        id: "x",
        plan: &plan,
        allowed: Allowed::default(),
        load,
        site: None,
        backends: &[Kit::JAGUAR, Kit::CHEETAH],
        links: &[],
        explanation: None,
    };
    let page = cost::page(&subject).unwrap();
    let part = page.split("<h2 id=\"memory\">").nth(1).unwrap().split("</table>").next().unwrap();
    assert!(
        part.contains("3 clients at a time, 2 prepared queries kept for each, 4 threads a party"),
        "{part}"
    );
    for party in [memory(network, &plan, load).client, memory(network, &plan, load).server] {
        let total = format!("<td>{:.2}</td></tr>", party.total() as f64 / f64::from(1 << 20));
        assert!(part.contains(&total), "{total} in {part}");
    }
}

/// A query of several images says so, is put beside single queries, and beside backends that take as many images.
#[test]
fn a_batch_is_shown_beside_single_queries() {
    let page = batch_page();
    assert!(page.contains("a query of 16 images"));
    let (_, _, compiled) = network();
    let network = &compiled.bundle.model.network;
    let plan = Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap();
    let linear = plan.steps.iter().filter(|step| step.layer.is_some()).count();
    let part = page.split("<h2 id=\"batch\">").nth(1).unwrap().split("</table>").next().unwrap();
    assert_eq!(part.matches("<tr><th class=\"name\"").count(), linear);
    assert!(page.contains("takes no batches of images"));
    let image = |page: &str| page.matches("data-seconds=\"image\"").count();
    assert_eq!((image(&page), image(&cost_page().0)), (1, 0));
    assert!(!cost_page().0.contains("<h2 id=\"batch\">"));
}

/// The page of a network that was compiled with four inputs, without their pictures.
fn plain_page(compiled: &Compiled, layers: &[LayerStatistics], images: &[Image]) -> String {
    let found = compiled::Found::new(compiled, 0.01, vec![], vec![]);
    let model = &compiled.bundle.model;
    let subject =
        compiled::Subject { model, id: "x", found: &found, layers, images, inputs: &[], calibration: 4 };
    compiled::page(&subject).unwrap()
}

/// How pictures became tensors is said in words, whatever the options.
#[test]
fn preprocessing_is_in_words() {
    let (graph, images, mut compiled) = network();
    let (layers, outputs) =
        layers::compare(Cpu::detect(), &graph, &compiled.bundle.model, [&images[..4], &[]], &mut |_| ())
            .unwrap();
    for (resize, filter, words) in [
        ("exact", "bilinear", ["straight to the network", "antialiased, as Pillow and torchvision"]),
        ("256", "nearest", ["shorter side to 256 pixels", "the nearest one"]),
        ("crop-pct=0.875", "bicubic", ["over 0.875, then the centre", "as Pillow and timm"]),
        ("centre=0.5", "interpolate", ["the central square of 0.5", "as TensorFlow and Keras"]),
        ("exact", "lanczos", ["straight to", "Lanczos"]),
    ] {
        let image = &mut compiled.bundle.model.network.input.image;
        (image.resize, image.filter) = (resize.parse().unwrap(), filter.parse().unwrap());
        let page = plain_page(&compiled, &layers, &outputs);
        for word in words {
            assert!(page.contains(word), "{resize}, {filter}: {word}");
        }
    }
}

/// What labelled pictures chose stands beside what the bound on logits would have.
#[test]
fn both_rules_are_shown() {
    let (graph, images, mut compiled) = network();
    let (layers, outputs) =
        layers::compare(Cpu::detect(), &graph, &compiled.bundle.model, [&images[..4], &[]], &mut |_| ())
            .unwrap();
    let ruled = |activation_bits, right, lost, mib: u64| {
        let width = Width { activation_bits, hiding: compiled.bundle.model.network.hiding() };
        let counted = Counted { width, pictures: 1000, right, lost, won: 3, overflows: 0, kept: true };
        Ruled { width, error: 0.07, bytes: [mib << 20, (2 * mib) << 20], counted }
    };
    let (by_logits, by_class) = (ruled(17, 781, 2, 7), ruled(11, 779, 4, 5));
    let mut page = |by_class: Option<Ruled>| {
        let by_logits = by_logits.clone();
        compiled.classes =
            Some(Classes { pictures: 1000, float_right: 780, loss: 0.002, by_logits, by_class });
        plain_page(&compiled, &layers, &outputs)
    };
    let both = page(Some(by_class));
    for word in
        ["on 780 of which", "logits within 1.00 %", "at most 0.20 %", "77.9", "78.1", "5.00 MiB", "14.00 MiB"]
    {
        assert!(both.contains(word), "{word}");
    }
    let taken = |page: &str, rule: &str| {
        let row = page.split("<tr").find(|row| row.contains(rule)).unwrap().to_owned();
        row.contains("taken")
    };
    assert!(taken(&both, "of the pictures lost") && !taken(&both, "logits within"));
    assert!(taken(&page(None), "logits within"));
}

#[test]
fn what_is_no_trace_is_an_error() {
    for wrong in [json!({}), json!({ "traceEvents": 7 }), json!({ "traceEvents": [{ "ph": "X" }] })] {
        assert!(timeline::page(&wrong, "").is_err());
    }
    // Without queries, an empty page.
    assert!(timeline::page(&json!({ "traceEvents": [] }), "x").unwrap().contains("0 queries"));
}

#[test]
fn a_trace_is_shown_by_query_and_by_layer() {
    let page = timeline::page(&trace(), "model at server").unwrap();
    // All eight are in the table; six are drawn.
    assert_eq!(
        (page.matches("<h2 id=\"query-").count(), page.matches("Offline, before the input").count()),
        (6, 6)
    );
    assert!(page.contains("8 queries") && page.contains("The first 6 are drawn above."));
    assert!(page.contains("The server's times may be off by 0.50 ms"));
}

/// Two layers of one name are two rows; a hint belongs to the row of its layer.
#[test]
fn layers_of_one_name_are_told_apart() {
    let event = |name: &str, category: &str, operation: &str, start: u64| {
        json!({ "name": name, "cat": category, "ph": "X", "pid": 1, "tid": 1, "ts": start, "dur": 1_000,
            "args": { "operation": operation, "kind": "linear", "working_ms": 1.5, "bytes_up": 1 << 20 } })
    };
    let events = [
        event("query", "query", "", 0),
        event("hint of a", "hint", "conv 3x3/1", 0),
        event("a", "offline", "conv 3x3/1", 1_000),
        event("a", "offline", "relu", 2_000),
        event("a", "online", "relu", 3_000),
    ];
    let page = timeline::page(&json!({ "traceEvents": events }), "x").unwrap();
    let table = page.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let rows: Vec<&str> = table.split("<tr>").skip(1).collect();
    assert_eq!(rows.len(), 2, "{table}");
    let told = |row: &str, what: &[&str]| what.iter().all(|cell| row.contains(&format!(">{cell}</td>")));
    // Of both the client worked 3 ms: on the one offline alone, on the other online too.
    assert!(rows.iter().any(|row| told(row, &["conv 3x3/1", "3.00", "2.00"])), "{table}");
    assert!(rows.iter().any(|row| told(row, &["relu", "1.50", "2.00"])), "{table}");
}

/// Words have a contrast of 4.5 to what is behind them, marks one of 3 (WCAG 2.2, success criteria 1.4.3 and 1.4.11).
#[test]
fn colours_can_be_told_from_what_is_behind_them() {
    let light = |hex: &str| {
        let byte = |at: usize| match hex.len() {
            4 => 17 * u8::from_str_radix(&hex[at..=at], 16).unwrap(),
            _ => u8::from_str_radix(&hex[2 * at - 1..=2 * at], 16).unwrap(),
        };
        let linear = |at: usize| match f64::from(byte(at)) / 255.0 {
            v if v <= 0.04045 => v / 12.92,
            v => ((v + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * linear(1) + 0.7152 * linear(2) + 0.0722 * linear(3)
    };
    let contrast = |a: &str, b: &str| {
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    };
    assert!(
        (contrast("#fff", "#000000") - 21.0).abs() < 1e-9
            && (contrast("#777777", "#fff") - 4.48).abs() < 0.005
    );
    let style = include_str!("../templates/style.css");
    let of = |set: &'static str| -> HashMap<&str, &str> {
        let own = set.split('}').next().unwrap().split(';').filter_map(|line| line.trim().split_once(": "));
        own.filter_map(|(name, value)| Some((name.strip_prefix("--")?, value))).collect()
    };
    // Light; dark; paper. What the others leave out is as in the first.
    let sets: Vec<_> = style.split(":root {").skip(1).map(of).collect();
    assert_eq!(sets.iter().map(HashMap::len).collect::<Vec<_>>(), [15, 15, 5]);
    for (number, set) in sets.iter().enumerate() {
        let mut colours = sets[0].clone();
        colours.extend(set);
        for (name, colour) in &colours {
            let least = match *name {
                // What is behind, and lines that only part rows.
                "page" | "panel" | "line" => continue,
                "ink" | "soft" | "link" | "good" | "bad" => 4.5,
                _ => 3.0,
            };
            for behind in ["page", "panel"] {
                let found = contrast(colour, colours[behind]);
                assert!(found >= least, "set {number}: {name} on {behind}: {found:.2}");
            }
        }
    }
}

/// The page as the browser has it after its scripts ran; `None` where there is no browser.
fn in_browser(name: &str, page: &str, fragment: &str) -> Option<String> {
    Some(drawn_in_browser(name, page, fragment, None)?.0)
}

/// The same; and the window's pixels, if its size is given.
fn drawn_in_browser(
    name: &str,
    page: &str,
    fragment: &str,
    size: Option<[usize; 2]>,
) -> Option<(String, image::RgbImage)> {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|b| Command::new(b).arg("--version").output().is_ok_and(|o| o.status.success()));
    let Some(browser) = browser else {
        println!("skip: no Chromium: pages are not looked at in a browser");
        return None;
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("page.html");
    std::fs::write(&file, page).unwrap();
    let mut command = Command::new(browser);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    let picture = folder.join("drawn.png");
    if let Some([width, height]) = size {
        // (What is above and below a page takes some of the window.)
        command.args(["--hide-scrollbars", "--force-device-scale-factor=1"]);
        command.arg(format!("--window-size={width},{}", height + 200));
        command.arg(format!("--screenshot={}", picture.display()));
    }
    let output = command.arg(format!("file://{}{fragment}", file.display())).output().unwrap();
    let drawn = size.map(|_| image::open(&picture).map(image::DynamicImage::into_rgb8));
    let _ = std::fs::remove_dir_all(&folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = drawn.unwrap_or(Ok(image::RgbImage::new(0, 0))).unwrap();
    Some((String::from_utf8(output.stdout).unwrap(), drawn))
}

#[test]
fn no_name_runs_in_a_browser() {
    for (name, page) in pages() {
        let Some(shown) = in_browser(name, &page, "") else { return };
        let title = shown.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        assert!(!title.starts_with("owned"), "{name}: a script ran");
        assert_eq!(shown.matches("<script").count(), page.matches("<script").count(), "{name}");
        assert_eq!(shown.matches("<img").count(), page.matches("<img").count(), "{name}");
    }
}

/// Wide tables and charts move within their own place: no page is wider than its window, on a telephone or on a large screen.
#[test]
fn pages_fit_their_window() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fits-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let widths = [390, 1280];
    let mut all = vec![("batch", batch_page())];
    all.extend(pages());
    let mut frames = String::new();
    for (name, page) in &all {
        let nonce = page.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        // A page says itself how wide it is: another file may not look into it.
        let tell = format!(
            "<script nonce=\"{nonce}\">const d = document.documentElement;
            parent.postMessage(`{name} ${{d.clientWidth}} ${{d.scrollWidth}};`, '*')</script></body>"
        );
        let file = folder.join(format!("{name}.html"));
        std::fs::write(&file, page.replace("</body>", &tell)).unwrap();
        for width in widths {
            frames.push_str(&format!(
                "<iframe src=\"file://{}\" width=\"{width}\" height=\"800\"></iframe>",
                file.display()
            ));
        }
    }
    let outer = format!(
        "<!DOCTYPE html><title></title><script>onmessage = (m) => {{ document.title += m.data }}</script>{frames}"
    );
    let shown = in_browser("fits", &outer, "");
    let _ = std::fs::remove_dir_all(&folder);
    let Some(shown) = shown else { return };
    let title = shown.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    let mut told: Vec<&str> = title.split_terminator(';').collect();
    assert_eq!(told.len(), widths.len() * all.len(), "{title}");
    told.retain(|page| {
        let mut words = page.split(' ').skip(1);
        words.next() != words.next()
    });
    assert!(told.is_empty(), "page, width of the window, width of the page: {told:?}");
}

/// On a telephone, a table that goes on beyond the edge has a shadow there; at its end it has none. Where the shadow is taken away, that
/// is found.
#[test]
fn what_goes_on_beyond_an_edge_is_shown() {
    const WIDTH: usize = 360;
    const HEIGHT: usize = 300;
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("edges-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut pages: Vec<(&str, String)> = pages().into();
    pages.push(("batch", batch_page()));
    // What is drawn of each page: its widest table, at its beginning and at its end, and with the shadow taken away.
    let drawn = ["beginning", "end", "planted"];
    let mut frames = String::new();
    for (i, (_, page)) in pages.iter().enumerate() {
        let nonce = page.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        for (j, part) in drawn.into_iter().enumerate() {
            let place = i * drawn.len() + j;
            let tell = format!(
                "<script nonce=\"{nonce}\">
                const beyond = (e) => e.scrollWidth - e.clientWidth;
                const widest = [...document.querySelectorAll('.scroll')].sort((a, b) => beyond(b) - beyond(a))[0];
                document.body.replaceChildren(widest);
                if ('{part}' === 'planted') widest.style.background = 'none';
                if ('{part}' === 'end') widest.scrollLeft = widest.scrollWidth;
                const box = widest.getBoundingClientRect();
                parent.postMessage(`{place} ${{beyond(widest)}} ${{Math.round(box.top)}} ${{Math.round(box.bottom)}};`, '*')
                </script></body>"
            );
            let file = folder.join(format!("{place}.html"));
            std::fs::write(&file, page.replace("</body>", &tell)).unwrap();
            frames.push_str(&format!(
                "<iframe src=\"file://{}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" style=\"left: {}px; top: {}px\"></iframe>",
                file.display(),
                j * WIDTH,
                i * HEIGHT
            ));
        }
    }
    let outer = format!(
        "<!DOCTYPE html><title></title><style>iframe {{ position: absolute; border: 0 }}</style>
        <script>onmessage = (m) => {{ document.title += m.data }}</script>{frames}"
    );
    let size = [WIDTH * drawn.len(), HEIGHT * pages.len()];
    let shown = drawn_in_browser("edges", &outer, "", Some(size));
    let _ = std::fs::remove_dir_all(&folder);
    let Some((shown, picture)) = shown else { return };
    let title = shown.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    let mut told: Vec<Vec<usize>> = title
        .split_terminator(';')
        .map(|place| place.split(' ').map(|number| number.parse().unwrap()).collect())
        .collect();
    told.sort();
    assert_eq!(told.len(), pages.len() * drawn.len(), "{title}");
    for place in told {
        let [place, beyond, top, bottom] = place[..] else { panic!("{place:?}") };
        let (i, j) = (place / drawn.len(), place % drawn.len());
        assert!(beyond > 20, "{}: its widest table goes {beyond} pixels beyond the edge", pages[i].0);
        // A row is shaded where its last pixels are all another colour than the page, which is white.
        let rows = i * HEIGHT + top..i * HEIGHT + bottom.min(HEIGHT);
        let (count, end) = (rows.len(), (j + 1) * WIDTH);
        let shaded = |y: &usize| {
            (end - 3..end).all(|x| picture.get_pixel(x as u32, *y as u32).0.iter().all(|part| *part < 0xe8))
        };
        let part = rows.filter(shaded).count() as f64 / count as f64;
        let about = format!("{}, {}: {part:.2} of {count} rows", pages[i].0, drawn[j]);
        match drawn[j] {
            "beginning" => assert!(part > 0.6, "{about}"),
            "end" | "planted" => assert!(part < 0.2, "{about}"),
            other => unreachable!("{other}"),
        }
    }
}

/// The script's times over another link are those of the planner.
#[test]
fn the_script_calculates_as_the_planner_does() {
    let (page, slow) = cost_page();
    let Some(shown) = in_browser("slow", &page, "#slow") else { return };
    for (key, seconds) in ["offline", "online"].into_iter().zip(slow) {
        let marked = format!("data-seconds=\"{key}\" data-plan=\"0\">");
        let found: Vec<&str> = shown.split(&marked).skip(1).map(|s| s.split('<').next().unwrap()).collect();
        assert!(found.len() >= 2, "{key} is shown {} times", found.len());
        found.iter().for_each(|found| assert_eq!(*found, format!("{seconds:.2}"), "{key}"));
        // It is another number than over the link of the plan.
        assert!(!page.contains(&format!("{marked}{seconds:.2}<")), "{key}");
    }
    assert!(shown.contains("1.00 MB/s") && shown.contains("50.0 ms"));
}

/// What a page says without its script, and on paper, is what the script says of the same link.
#[test]
fn a_page_without_its_script_has_the_figures_of_its_link() {
    let (page, _) = cost_page();
    let words = |page: &str, mark: &str| -> Vec<String> {
        page.split(mark)
            .skip(1)
            .map(|s| s.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(words(&page, "<strong data-link="), ["1.00 GB/s", "0.01 ms"]);
    let layers = words(&page, "<td data-layer=");
    assert!(
        layers.iter().filter(|text| text.parse::<f64>().is_ok_and(|ms| ms > 0.0)).count() > 1,
        "{layers:?}"
    );
    let Some(shown) = in_browser("static", &page, "") else { return };
    for mark in ["<strong data-link=", "<td data-layer=", "<span data-seconds="] {
        assert_eq!(words(&shown, mark), words(&page, mark), "{mark}");
    }
}
