//! What comes out is what the integer reference says, at the stated cost.

use std::path::Path;

use jaguar::bundle::Bundle;
use jaguar::hint::blocks;
use jaguar::network::{DEFAULT_GUARD_BITS, Linear, Operators, Relu, argmax};
use jaguar::plan::predict::mean_extension_bytes;
use jaguar::plan::{Choices, Kit, Plan};
use jaguar::{Cpu, image_input, reference};
use jaguar_ring::he::params::Parameters;
use serde_json::Value;

use crate::process::{Process, Scratch, Server, jaguar, repository};
use crate::relay::Relay;
use crate::{WATCHDOG, assert_fails, tiny};

/// A compiled network, a server that serves it, and inputs.
pub struct Deployment {
    pub folder: Scratch,
    pub model: String,
    pub server: Server,
}

impl Deployment {
    #[track_caller]
    pub fn new(name: &str, serve: &[&str]) -> Self {
        let folder = Scratch::new(name);
        let model = tiny::compile(&folder);
        let server = Server::start(&model, serve, WATCHDOG);
        Self { folder, model, server }
    }

    /// A client that asks `address` about `inputs`, with a cache folder of this name.
    pub fn client(&self, address: &str, cache: &str, inputs: &[&str]) -> Process {
        let cache = self.folder.path(cache);
        let mut command = jaguar(&["predict", "--json", "--server", address, "--cache", &cache]);
        command.args(inputs);
        Process::start(command)
    }

    /// What the server answers, one JSON object per input.
    #[track_caller]
    pub fn ask(&self, cache: &str, inputs: &[&str]) -> Vec<Value> {
        // (Options have a value each.)
        let options = 2 * inputs.iter().filter(|i| i.starts_with("--")).count();
        answers(self.client(&self.server.address, cache, inputs), inputs.len() - options)
    }
}

/// The photograph that comes with the demo.
pub fn photo() -> String {
    repository("demo/photo.jpg")
}

#[track_caller]
pub fn answers(client: Process, count: usize) -> Vec<Value> {
    let output = client.finish(WATCHDOG).succeeded();
    let answers: Vec<Value> =
        output.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    assert_eq!(answers.len(), count, "{output}");
    answers
}

/// A number at a path such as `cost/online/bytes_up`.
#[track_caller]
pub fn number(answer: &Value, path: &str) -> u64 {
    let pointer = format!("/{path}");
    answer.pointer(&pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {answer}"))
}

pub fn logits(answer: &Value) -> Vec<i64> {
    let logits = answer["logits"].as_array().expect("logits");
    logits.iter().map(|l| l.as_i64().expect("integers")).collect()
}

/// One photograph, one drawing and one tensor in one session: JPEG, PNG, `.npy`.
#[test]
fn logits_are_the_references() {
    let it = Deployment::new("logits", &[]);
    let [drawing, tensor] = ["drawing.png", "tensor.npy"].map(|f| it.folder.path(f));
    std::fs::write(&drawing, tiny::png()).unwrap();
    let (file, values) = tiny::tensor();
    std::fs::write(&tensor, file).unwrap();
    let photo = photo();
    let answers = it.ask("cache", &[&photo, &drawing, &tensor]);

    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    let (network, bound) = (&bundle.model.network, tiny::worst_error(&bundle.model, Kit::JAGUAR));
    let pixels = |path: &str| {
        let picture = image::open(path).unwrap().into_rgb8();
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        image_input::tensor(&network.input.image, network.nodes[0].shape, picture.as_raw(), width, height)
            .unwrap()
    };
    for (answer, input) in answers.iter().zip([pixels(&photo), pixels(&drawing), values]) {
        let run = reference::run(
            Cpu::detect(),
            &bundle.model,
            &network.input.quantise(&input, network.activation_bits),
        )
        .unwrap();
        assert_eq!(run.total_overflows(), 0);
        let (got, want) = (logits(answer), run.output());
        assert_eq!(got.len(), tiny::CLASSES);
        for (got, want) in got.iter().zip(want) {
            assert!((got - want).abs() as f64 <= bound, "{got} and {want} differ by more than {bound}");
        }
        // The bound is a few hundredths of what the logits span: a wrong answer would not pass.
        let span = want.iter().max().unwrap() - want.iter().min().unwrap();
        assert!(bound < 0.05 * span as f64, "a bound of {bound} means nothing over {span}");

        assert_eq!(number(answer, "label") as usize, argmax(&got));
        let top = answer["top"].as_array().unwrap();
        assert_eq!(top.len(), 5);
        let label = number(answer, "label");
        assert_eq!(
            (number(&top[0], "class"), top[0]["name"].as_str().unwrap()),
            (label, &*format!("class-{label}"))
        );
        let scale = answer["logit_scales"][0].as_f64().unwrap();
        assert!((top[0]["logit"].as_f64().unwrap() - got[argmax(&got)] as f64 / scale).abs() < 1e-9);
        let probability: f64 = top.iter().map(|t| t["probability"].as_f64().unwrap()).sum();
        assert!((0.5..=1.0 + 1e-9).contains(&probability), "{probability}");
    }
    let inputs: Vec<&str> = answers.iter().map(|a| a["input"].as_str().unwrap()).collect();
    assert_eq!(inputs, [&photo, &drawing, &tensor]);
    assert!(answers[0]["model"].as_str().unwrap().contains(&bundle.id().to_string()));
}

/// Every layer against the reference on the very inputs that it had: `verify` fails unless all agree.
#[test]
fn verify_and_plan_accept_the_model() {
    let folder = Scratch::new("verify");
    let model = tiny::compile(&folder);
    let run = |arguments: &[&str]| Process::start(jaguar(arguments)).finish(WATCHDOG).succeeded();
    let checked = run(&["verify", &model, &photo(), &repository("demo/calibration")]);
    assert!(checked.contains("same class: 7/7"), "{checked}");
    let shown = run(&["plan", &model, "--measure", "off"]);
    for layer in ["conv 1", "relu 1", "max-pool 1", "conv 2", "conv 3"] {
        assert!(shown.contains(layer), "{shown}");
    }
}

/// Reduced-precision signs are asked for, and then named by every command that meets them.
#[test]
fn reduced_signs_are_never_silent() {
    let folder = Scratch::new("signs");
    let exact = tiny::compile(&folder);
    let run = |arguments: &[&str]| Process::start(jaguar(arguments)).finish(WATCHDOG).succeeded();
    let (source, model) = (folder.path("tiny.onnx"), folder.path("reduced.jaguar"));
    let (calibration, photo) = (repository("demo/calibration"), photo());
    let mut arguments = vec!["compile", &source, "--calibrate", &calibration, "--test", &photo, "-o", &model];
    arguments.extend(tiny::PREPARATION);
    arguments.extend(["--signs", "reduced", "--accuracy-bound", "2"]);
    let said = run(&arguments);
    assert!(said.contains("reduced-precision signs in") && said.contains("(bound 2 %)"), "{said}");
    assert!(said.contains("on 6 calibration inputs") && said.contains("on 1 test inputs"), "{said}");

    let [exact_bundle, bundle] =
        [&exact, &model].map(|m| Bundle::read(Path::new(m), &Operators::standard()).unwrap());
    let network = &bundle.model.network;
    assert!(network.reduced_signs() > 0 && exact_bundle.model.network.reduced_signs() == 0);
    let bytes = |network| {
        let plan = Plan::new(network, Choices::standard(network, Kit::JAGUAR)).unwrap();
        let cost = plan.nonlinear_cost();
        let making = mean_extension_bytes(plan.choices.instances, cost.from_client() + cost.from_server());
        cost.up + cost.down + cost.prepare_down + making
    };
    assert!(bytes(network) < bytes(&exact_bundle.model.network));

    let caveat = "reduced-precision signs in";
    assert!(
        run(&["plan", &model, "--measure", "off"]).contains(caveat)
            && !run(&["plan", &exact, "--measure", "off"]).contains(caveat)
    );
    let checked = run(&["verify", &model, &photo]);
    assert!(checked.contains(caveat) && checked.contains("same class: 1/1"), "{checked}");
    for (model, says) in [(&model, true), (&exact, false)] {
        let server = Server::start(model, &[], WATCHDOG);
        let cache = folder.path("cache");
        let ask = |more: &[&str]| {
            run(&[&["predict", &photo, "--server", &server.address, "--cache", &cache], more].concat())
        };
        assert_eq!(ask(&[]).contains(caveat), says);
        let answer: Value = serde_json::from_str(ask(&["--json"]).trim()).unwrap();
        assert_eq!(number(&answer, "reduced_signs") > 0, says);
    }
}

/// The width that calibration chooses is in the model, and every width tried is reported.
#[test]
fn activation_bits_can_be_left_to_calibration() {
    let folder = Scratch::new("width");
    tiny::compile(&folder);
    let (source, model) = (folder.path("tiny.onnx"), folder.path("narrow.jaguar"));
    let calibration = repository("demo/calibration");
    let mut arguments = vec!["compile", &source, "--calibrate", &calibration, "-o", &model];
    arguments.extend(tiny::PREPARATION);
    arguments.extend(["--activation-bits", "fewest", "--accuracy-bound", "5"]);
    let said = Process::start(jaguar(&arguments)).finish(WATCHDOG).succeeded();
    let network = Bundle::read(Path::new(&model), &Operators::standard()).unwrap().model.network;
    let guard_bits = network.guard_bits;
    let bits = network.activation_bits - guard_bits;
    let taken = format!("activations of {bits} + {guard_bits} bits: logits off by up to ");
    assert!((12..=16).contains(&bits) && said.trim().contains(&taken), "{said}");
    let mut tried = said.lines().filter(|line| line.contains(" bits: logits off by up to "));
    assert!(tried.next_back().is_some_and(|line| line.contains(&taken)), "{said}");
    assert!(said.contains("hidden units stay hidden for "), "{said}");
}

/// Rows and totals of the cost table belong together, and the totals are what really passed over the link.
#[test]
fn the_cost_table_adds_up() {
    let it = Deployment::new("cost", &[]);
    let relay = Relay::start(&it.server.address, u64::MAX);
    let answer = &answers(it.client(&relay.address, "cache", &[&photo()]), 1)[0];
    let cost = &answer["cost"];
    let rows = cost["rows"].as_array().unwrap();
    let rest = |stage: &str, what: &str| {
        let sum: u64 = rows.iter().map(|r| number(r, &format!("{stage}/{what}"))).sum();
        number(cost, &format!("{stage}/{what}")).checked_sub(sum).expect("no more in the rows than in all")
    };
    // Beside the layers: "query" and p0 up, the seed of B down.
    let params = Parameters::DEFAULT;
    let p0 = params.ring_dim() as u64 * u64::from(params.modulus_bits()) / 8;
    assert_eq!(rest("offline", "bytes_up"), p0 + 6);
    assert_eq!(rest("offline", "bytes_down"), 32);
    // Online: nothing up; down the server's share of the logits. Its report of its own times is no part of the query.
    assert_eq!(rest("online", "bytes_up"), 0);
    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    let plan =
        Plan::new(&bundle.model.network, Choices::standard(&bundle.model.network, Kit::JAGUAR)).unwrap();
    let result =
        (tiny::CLASSES as u64 * u64::from(plan.steps.last().unwrap().domain.modulus.bits())).div_ceil(8);
    assert_eq!(rest("online", "bytes_down"), result);
    // And all of it was predicted.
    for stage in ["offline", "online"] {
        for direction in ["bytes_up", "bytes_down"] {
            let [measured, predicted] =
                ["cost", "predicted"].map(|of| number(answer, &format!("{of}/{stage}/{direction}")));
            assert_eq!(measured, predicted, "{stage}, {direction}");
        }
    }
    assert_eq!(rest("online", "rounds"), 1);
    // A linear layer sends ciphertexts up and waits for nothing.
    for (row, step) in rows.iter().zip(&plan.steps).filter_map(|(r, s)| Some((r, s.layer.as_ref()?))) {
        assert_eq!(number(row, "online/bytes_up"), step.traffic().online.0 as u64);
        assert_eq!([number(row, "online/bytes_down"), number(row, "online/rounds")], [0, 0]);
    }
    // On the link there are frames, keep-alives and greetings beside.
    for (direction, passed) in ["bytes_up", "bytes_down"].iter().zip(relay.passed()) {
        let stages = ["model", "client", "offline", "online"];
        let stated: u64 = stages.iter().map(|p| number(cost, &format!("{p}/{direction}"))).sum();
        assert!(
            (stated..stated + stated / 50 + 2000).contains(&passed),
            "{direction}: {stated}, {passed} passed"
        );
    }
    assert!(number(cost, "client_peak_kib") > 1000 && number(cost, "server_peak_kib") > 1000);
}

#[test]
fn the_hint_is_fetched_once() {
    let it = Deployment::new("hint", &[]);
    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    let plan =
        Plan::new(&bundle.model.network, Choices::standard(&bundle.model.network, Kit::JAGUAR)).unwrap();
    let photo = photo();
    let first = it.ask("cache", &["--keep", "0", &photo, &photo]);
    let second = it.ask("cache", &[&photo]);
    let client = |a: &Value| number(a, "cost/client/bytes_down");
    // Each block comes with its hash.
    let hint = plan.hint_bytes() as u64 + 32 * blocks(&plan).len() as u64;
    assert_eq!(client(&first[0]) - client(&second[0]), hint);
    // The second query of a session finds everything there; masks and secrets are fresh all the same.
    for stage in ["model", "client"] {
        for bytes in ["bytes_up", "bytes_down", "rounds"] {
            assert_eq!(number(&first[1], &format!("cost/{stage}/{bytes}")), 0);
        }
    }
    assert!(number(&first[1], "cost/offline/bytes_up") > 0);
}

/// The hint alone, ahead of the first query.
#[test]
fn a_hint_is_fetched_alone() {
    let it = Deployment::new("fetch", &[]);
    let cache = it.folder.path("cache");
    let fetch = || {
        Process::start(jaguar(&["fetch", "--server", &it.server.address, "--cache", &cache]))
            .finish(WATCHDOG)
            .succeeded()
    };
    let (first, second) = (fetch(), fetch());
    assert!(first.contains("fetched the hint") && second.contains("was there"), "{first}{second}");
    let [with, without] =
        ["cache", "other"].map(|cache| number(&it.ask(cache, &[&photo()])[0], "cost/client/bytes_down"));
    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    let plan =
        Plan::new(&bundle.model.network, Choices::standard(&bundle.model.network, Kit::JAGUAR)).unwrap();
    assert_eq!(without - with, plan.hint_bytes() as u64 + 32 * blocks(&plan).len() as u64);
}

/// Several pictures go over two connections, one of which prepares while the other predicts; where the server has no place for
/// a second one, over one.
#[test]
fn pictures_are_prepared_ahead() {
    let mut it = Deployment::new("ahead", &[]);
    let photo = photo();
    let drawing = it.folder.path("drawing.png");
    std::fs::write(&drawing, tiny::png()).unwrap();
    let pictures = [&*photo, &*drawing, &*photo, &*drawing, &*photo];
    let two = it.ask("cache", &pictures);
    let one = it.ask("cache", &[&["--keep", "0"], &pictures[..]].concat());
    // Nearly the same sums: a linear layer rounds either way.
    for (a, b) in two.iter().zip(&one) {
        assert_eq!(a["input"], b["input"]);
        for (a, b) in logits(a).iter().zip(&logits(b)) {
            assert!((a - b).abs() < 64 << DEFAULT_GUARD_BITS, "{a} and {b}");
        }
    }
    // What is kept runs over a second connection, whose handshake counts with the first query.
    let kept = |answers: &[Value]| answers.iter().filter(|a| a["cost"].get("kept").is_some()).count();
    assert_eq!((kept(&two), kept(&one)), (pictures.len(), 0));
    let handshakes = |answers: &[Value]| number(&answers[0], "cost/model/bytes_up");
    assert!(handshakes(&two) > handshakes(&one));
    it.server.process.line_with("left", WATCHDOG);

    // A place for one only, and one that is taken: the first connection does it all.
    let small = Server::start(&it.model, &["--max-clients", "1"], WATCHDOG);
    let client = it.client(&small.address, "cache", &pictures);
    let finished = client.finish(WATCHDOG);
    assert!(finished.stderr.contains("note: no second connection") && finished.stderr.contains("busy"));
    assert_eq!(finished.succeeded().lines().count(), pictures.len());
}

/// A second connection that breaks off while it runs a picture is named, and the client connects anew.
#[test]
fn a_second_connection_that_breaks_is_opened_again() {
    let it = Deployment::new("ahead-cut", &[]);
    let photo = photo();
    let alone = &it.ask("cache", &[&photo])[0];
    // In the middle of the second picture's online stage.
    let setup = number(alone, "cost/model/bytes_up");
    let after = setup + number(alone, "cost/online/bytes_up") * 3 / 2;
    let address = crate::relay::cutting(&it.server.address, after);
    let finished = it.client(&address, "cache", &[&*photo; 3]).finish(WATCHDOG);
    assert!(finished.stderr.contains("note: the connection broke off"), "{}", finished.stderr);
    assert_eq!(finished.succeeded().lines().count(), 3);
}

/// The timeline is one that a trace viewer opens: its spans have what they need, nest, and are the network's, at both parties.
#[test]
fn a_timeline_of_both_parties() {
    let it = Deployment::new("trace", &[]);
    let trace = it.folder.path("trace.json");
    let photo = photo();
    let cost = &answers(it.client(&it.server.address, "cache", &["--trace", &trace, &photo, &photo]), 2)[0];
    let trace: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_else(|| panic!("{event}")).to_owned();
    let time = |event: &Value, key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{event}"));
    let (mut spans, mut bytes, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        let place = (time(event, "pid"), time(event, "tid"));
        match text(event, "ph").as_str() {
            "X" => {
                let (start, length) = (time(event, "ts"), time(event, "dur"));
                spans.push((place, start, start + length, text(event, "name"), text(event, "cat")));
                assert!(event["args"].is_object());
            }
            "C" => bytes.push((time(event, "ts"), ["up", "down"].map(|d| time(&event["args"], d)))),
            "M" => names.push((place, text(event, "name"), text(&event["args"], "name"))),
            other => panic!("{other} is not among the kinds of events that are written"),
        }
    }
    for (process, name) in [(1, "client"), (2, "server")] {
        assert!(names.contains(&((process, 0), "process_name".into(), name.into())), "{names:?}");
    }
    // Counters only grow, and end at what the rows of both queries add up to.
    assert!(bytes.is_sorted() && bytes.iter().map(|b| b.1[0]).is_sorted() && bytes.len() > 20);
    let hint: u64 =
        cost["cost"]["rows"].as_array().unwrap().iter().map(|r| number(r, "hint/bytes_down")).sum();
    assert!(hint > 0 && bytes.last().unwrap().1[1] > hint);
    // Two spans of one thread lie in one another, or apart.
    let places: std::collections::BTreeSet<_> = spans.iter().map(|s| s.0).collect();
    for place in &places {
        assert!(names.iter().any(|n| n.0 == *place && n.1 == "thread_name"), "{names:?}");
        let mut own: Vec<_> = spans.iter().filter(|s| s.0 == *place).collect();
        own.sort_by_key(|s| (s.1, std::cmp::Reverse(s.2)));
        let mut open: Vec<u64> = Vec::new();
        for (_, start, end, name, _) in own {
            open.retain(|outer| outer > start);
            assert!(open.iter().all(|outer| outer >= end), "{name} from {start} to {end} within {open:?}");
            open.push(*end);
        }
    }
    // Both parties do every layer of both queries in both stages; the first takes the hint along.
    let bundle = Bundle::read(Path::new(&it.model), &Operators::standard()).unwrap();
    for process in [1, 2] {
        let count = |name: &str, stage: &str| {
            spans.iter().filter(|s| s.0.0 == process && s.3 == name && s.4 == stage).count()
        };
        assert_eq!((count("query", "query"), count("before the input", "stage")), (2, 2));
        for node in bundle.model.network.nodes.iter().filter(|n| n.op.is::<Linear>() || n.op.is::<Relu>()) {
            // (A layer's work may come in pieces.)
            for stage in ["offline", "online"] {
                assert!(count(&node.name, stage) >= 2, "{} {stage}", node.name);
            }
            let fetched = usize::from(node.op.is::<Linear>());
            assert_eq!(count(&format!("hint of {}", node.name), "hint"), fetched);
        }
        assert!(count("waiting", "waiting") > 0, "somebody waits for a round trip, now and then");
    }
    // How far the server's clock may be off is said, and a query of the server lies within the client's by as much.
    let clocks = trace["otherData"]["server_clock"].as_array().unwrap();
    assert_eq!(clocks.len(), 2);
    let query = |process: u64| {
        let mut all: Vec<_> = spans.iter().filter(|s| s.0.0 == process && s.3 == "query").collect();
        all.sort_by_key(|s| s.1);
        all.into_iter().map(|s| [s.1 as f64, s.2 as f64])
    };
    for ((client, server), clock) in query(1).zip(query(2)).zip(clocks) {
        let off = clock["uncertainty_ms"].as_f64().unwrap() * 1e3 + 100.0;
        assert!(
            off < 1e6 && server[0] >= client[0] - off && server[1] <= client[1] + off,
            "{client:?} {server:?} {off}"
        );
    }
}

#[test]
fn two_clients_at_once() {
    let it = Deployment::new("two", &[]);
    let photo = photo();
    // Both are in the middle of a query before either gets on.
    let halfway = {
        let a = &it.ask("before", &[&photo])[0];
        let up = |stage: &str| number(a, &format!("cost/{stage}/bytes_up"));
        up("model") + up("client") + up("offline") + up("online") / 2
    };
    let relays = ["a", "b"].map(|cache| {
        let relay = Relay::start(&it.server.address, halfway);
        let client = it.client(&relay.address, cache, &[&photo]);
        (relay, client)
    });
    relays.iter().for_each(|(relay, _)| relay.wait(WATCHDOG));
    // A third uses the first one's hint meanwhile.
    it.ask("a", &[&photo]);
    relays.iter().for_each(|(relay, _)| relay.go_on());
    let labels = relays.map(|(_relay, client)| number(&answers(client, 1)[0], "label"));
    assert_eq!(labels[0], labels[1]);
}

#[test]
fn only_so_many_clients() {
    let it = Deployment::new("busy", &["--max-clients", "1"]);
    let photo = photo();
    // Strangers that say nothing take nobody's place.
    let strangers: Vec<_> =
        (0..10).map(|_| std::net::TcpStream::connect(&it.server.address).unwrap()).collect();
    it.ask("first", &[&photo]);
    let relay = Relay::start(&it.server.address, 500);
    let client = it.client(&relay.address, "first", &[&photo]);
    relay.wait(WATCHDOG);
    assert_fails(it.client(&it.server.address, "second", &[&photo]), &["busy", "later"]);
    relay.go_on();
    answers(client, 1);
    drop(strangers);
    // The place is free again, as soon as the server has seen the client leave.
    let left = || it.client(&it.server.address, "second", &[&photo]).finish(WATCHDOG).status.success();
    assert!((0..20).any(|_| left()));
}

#[test]
fn the_label_only() {
    let it = Deployment::new("label", &["--reveal", "label"]);
    let photo = photo();
    let answer = &it.ask("cache", &[&photo])[0];
    assert_eq!((answer.get("logits"), answer.get("top")), (None, None));
    let all = Server::start(&it.model, &[], WATCHDOG);
    let logits = &answers(it.client(&all.address, "cache", &[&photo]), 1)[0];
    assert_eq!(number(answer, "label"), number(logits, "label"));
    // As text.
    let cache = it.folder.path("cache");
    let command = jaguar(&["predict", "--server", &it.server.address, "--cache", &cache, &photo]);
    let text = Process::start(command).finish(WATCHDOG).succeeded();
    assert!(text.contains(&format!("class-{} (the server reveals the label only)", number(answer, "label"))));
}

/// Without `--json`: classes by name, and what it cost in a line; with `--costs` the table by layer, and the totals.
#[test]
fn text_for_people() {
    let mut it = Deployment::new("text", &[]);
    let cache = it.folder.path("cache");
    let photo = photo();
    let predict = |more: &[&str]| {
        let mut command =
            jaguar(&["predict", "--top", "3", "--server", &it.server.address, "--cache", &cache]);
        command.args(more).arg(&photo);
        Process::start(command).finish(WATCHDOG).succeeded()
    };
    let short = predict(&[]);
    assert_eq!(short.matches("class-").count(), 3, "{short}");
    // The model, an empty line, the picture's name, three classes, the cost.
    assert_eq!(short.lines().count(), 7, "{short}");
    let last = short.lines().last().unwrap();
    for part in ["s before the input", "s with it", "iB up", "iB down", "rounds", "the hint, once"] {
        assert!(last.contains(part), "{part} is missing: {last}");
    }
    let long = predict(&["--costs"]);
    for part in ["conv 1", "relu 1", "max-pool 2x2/2", "online, all", "offline", "peak memory: client"] {
        assert!(long.contains(part), "{part} is missing:\n{long}");
        assert!(!short.contains(part), "{part} is not for all:\n{short}");
    }
    assert!(!long.contains("the hint, once"), "{long}");
    it.server.process.line_with("answered a query", WATCHDOG);
    it.server.process.line_with("left", WATCHDOG);
}
