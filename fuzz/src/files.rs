//! What files hold, whoever wrote them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jaguar_compile::samples::labelled::labelled;
use jaguar_compile::samples::{Source, npy};
use jaguar_engine::client::connect;
use jaguar_engine::hint::{Hint, HintPlace};
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_graph::bundle::{Bundle, ModelId};
use jaguar_graph::import::{Options, import_file};
use jaguar_graph::network::{Filter, Operators, Resize};
use jaguar_net::tls::{Client, Fingerprint, Server, Trust};
use jaguar_net::{Address, Token, TokenFile};
use jaguar_plan::{Choices, Kit, Plan};
use jaguar_serve::foreign::open_queries;
use jaguar_wire::memory_pair;

use crate::configuration::{ConfigFile, Value, unknown};
use crate::script::Script;
use crate::{Bound, Target, fixed, models};

/// A folder for this process, in memory where there is such.
pub(crate) fn scratch() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("jaguar-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for scratch files");
        folder
    });
    &FOLDER
}

/// Removes what was written: for whoever ends.
pub fn clean_up() {
    let _ = fs::remove_dir_all(scratch());
}

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch().join(name);
    fs::write(&path, bytes).expect("the folder takes files");
    path
}

pub(crate) fn targets() -> Vec<Target> {
    let small = Bound { fixed: 2 << 20, per_byte: 256 };
    let target =
        |name, run, seeds, bound, (longest, tried)| Target { name, run, seeds, bound, longest, tried };
    vec![
        target("bundle", bundle, bundle_seeds, Bound { fixed: 64 << 20, per_byte: 1 << 10 }, (4096, 1000)),
        target("hint", hint, hint_seeds, Bound { fixed: 16 << 20, per_byte: 1 << 12 }, (1024, 100)),
        target("onnx", onnx, onnx_seeds, Bound { fixed: 1 << 30, per_byte: 1 << 12 }, (16384, 1000)),
        // 2^24 pixels, whatever the input: 128 MiB with four channels of 16 bits, and 48 MiB with three of 8.
        target(
            "picture",
            picture,
            picture_seeds,
            Bound { fixed: 256 << 20, per_byte: 1 << 12 },
            (8192, 1000),
        ),
        target("npy", tensor, tensor_seeds, small, (4096, 1000)),
        target("labels", labels, label_seeds, small, (4096, 1000)),
        target("tokens", tokens, token_seeds, small, (4096, 1000)),
        target("certificates", certificates, certificate_seeds, small, (4096, 1000)),
        target("options", options, option_seeds, small, (256, 2000)),
        target("configuration", configuration, configuration_seeds, small, (4096, 1000)),
        target("counts", counts, count_seeds, small, (1024, 300)),
    ]
}

/// A byte: whether the file comes as it is, or is the body behind a right head.
fn bundle(input: &[u8]) {
    let mut script = Script::new(input);
    let (how, body) = (script.byte(), script.rest());
    let whole = [b"JAGUAR\0\x07", &blake3::hash(body).as_bytes()[..], body].concat();
    let path = file("model.jaguar", if how & 1 == 0 { body } else { &whole });
    let Ok(bundle) = Bundle::read(&path, models::kit().operators()) else { return };
    let _ = bundle.guarded(8);
}

fn bundle_seeds() -> Vec<Vec<u8>> {
    let path = scratch().join("seed.jaguar");
    let bodies = [models::short(), models::everything()].map(|model| {
        models::bundle(model).write(&path).expect("the folder takes files");
        fs::read(&path).expect("it was written")
    });
    bodies.iter().flat_map(|whole| [[&[0], &whole[..]].concat(), [&[1], &whole[40..]].concat()]).collect()
}

/// A hint, complete, in its file; and the plan that it is of.
struct Complete {
    plan: Plan,
    model: ModelId,
    path: PathBuf,
    bytes: Vec<u8>,
}

fn complete() -> Complete {
    let bundle = models::bundle(models::short());
    let choices = Choices::standard(&bundle.model.network, Kit::JAGUAR);
    let model = bundle.id();
    let service = Service::new(bundle, choices, jaguar_engine::Reveal::Logits).expect("a server");
    let folder = scratch().join("hints");
    let (client, server) = memory_pair();
    std::thread::scope(|scope| {
        scope.spawn(|| service.serve(server, &mut |_| ()));
        let connected = connect(&models::kit(), client, &jaguar_engine::client::Limits::default())
            .expect("a sound session");
        let ready = connected.prepare_client(&folder).expect("a sound session");
        ready.fetch_hint(&mut NoProgress).and_then(|ready| ready.leave()).expect("a sound session");
    });
    let mut found = Vec::new();
    let mut folders = vec![folder.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    let path = found.into_iter().find(|path| path.extension().is_some_and(|e| e == "hint")).expect("a hint");
    let bytes = fs::read(&path).expect("it was written");
    Complete { plan: service.plan().clone(), model, path, bytes }
}

/// Changes to a complete hint's file.
fn hint(input: &[u8]) {
    static COMPLETE: LazyLock<Complete> =
        LazyLock::new(|| std::thread::spawn(|| fixed(4, complete)).join().expect("it goes well"));
    let Complete { plan, model, path, bytes } = &*COMPLETE;
    let mut chunks = vec![bytes.clone()];
    Script::new(input).change(&mut chunks);
    fs::write(path, chunks.concat()).expect("the folder takes files");
    let folder = HintPlace::from(scratch().join("hints"));
    let Ok(mut hint) = Hint::open(&folder, *model, plan, [5; 32], &mut NoProgress) else { return };
    for node in 0..plan.steps.len() {
        if hint.of_node(node).end <= hint.have() {
            let _ = hint.layer(node);
        }
    }
}

fn hint_seeds() -> Vec<Vec<u8>> {
    let change = |kind: u8, at: u8| vec![kind | 0x80, 0, 0, 0, at, 0x55, 3, 0xff, 0xff, 0xff, 0xff];
    (0..8).flat_map(|kind| [0, 1, 0x40, 0x80, 0xff].map(|at| change(kind, at))).chain([vec![]]).collect()
}

/// An ONNX file: imported, and brought to the form of one-round sessions.
fn onnx(input: &[u8]) {
    let Ok(graph) = import_file(&file("model.onnx", input), &Options::new(&Operators::standard())) else {
        return;
    };
    let _ = jaguar_convfhe::describe(&graph, 4.0);
    let _ = jaguar_convfhe::last_layers(&graph, 1);
}

/// Files of a folder of the repository, the short ones.
fn of_repository(folder: &str, extension: &str, longest: u64) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("a folder of the repository")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .filter(|path| fs::metadata(path).is_ok_and(|about| about.len() <= longest))
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a readable file")).collect()
}

fn onnx_seeds() -> Vec<Vec<u8>> {
    of_repository("crates/graph/tests/fixtures", "onnx", 12 << 10)
}

fn picture(input: &[u8]) {
    let _ = Source::picture(input);
}

/// A picture of each format, 4 x 3 or smaller.
fn picture_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        b"P6\n4 3\n255\n0123456789012345678901234567890123456789".to_vec(),
        b"P2\n2 2\n15\n0 1\n2 15\n".to_vec(),
        b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\nabcdef".to_vec(),
    ];
    seeds.extend(of_repository("fuzz/pictures", "bin", 1 << 12));
    seeds
}

fn tensor(input: &[u8]) {
    let _ = npy::read(input);
}

fn tensor_seeds() -> Vec<Vec<u8>> {
    let seed = |descr: &str, shape: &str, data: usize| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &vec![1; data]]
            .concat()
    };
    let types = ["<f2", "<f4", "<f8", "|u1", "|b1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"];
    types.iter().map(|descr| seed(descr, "(2, 3)", 6 * (descr.as_bytes()[2] - b'0') as usize)).collect()
}

/// A byte that says the columns; then a list.
fn labels(input: &[u8]) {
    let mut script = Script::new(input);
    let name = ["list.txt", "list.csv", "list.tsv"][usize::from(script.byte()) % 3];
    let path = file(name, script.rest());
    let names = ["cat", "dog", "a bird"].map(String::from);
    let _ = labelled(&path, &names, 3);
    let _ = labelled(&path, &[], 10);
}

fn label_seeds() -> Vec<Vec<u8>> {
    let lists = [
        "a.png cat\n# none\nb c.png\ta bird\n",
        "path,label\na.png,2\n\"b,c.png\",\"dog\"\n",
        "a.png\tdog\n",
    ];
    lists.iter().zip(0..).map(|(list, how)| [&[how], list.as_bytes()].concat()).collect()
}

/// A server's file of tokens, and a client's.
fn tokens(input: &[u8]) {
    let path = file("tokens", input);
    if let Ok(tokens) = TokenFile::open(&path) {
        let _ = tokens.find(input);
    }
    let _ = Token::read(&path);
    let _ = TokenFile::add(&path, "somebody");
}

fn token_seeds() -> Vec<Vec<u8>> {
    let path = scratch().join("seed-tokens");
    let _ = fs::remove_file(&path);
    let token = TokenFile::add(&path, "somebody-else").expect("a name");
    vec![
        fs::read(&path).expect("it was written"),
        token.secret_text().as_bytes().to_vec(),
        b"# none\n\n".to_vec(),
    ]
}

/// Certificates and a key, in one file.
fn certificates(input: &[u8]) {
    let path = file("some.pem", input);
    let _ = Server::from_files(&path, &path, Some(&path));
    let _ = Client::new(&Trust::Authorities(path.clone()), Some((&path, &path)));
}

fn certificate_seeds() -> Vec<Vec<u8>> {
    let folder = scratch().join("tls");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    Server::made(&folder, None).expect("a certificate");
    let [certificate, key] =
        ["certificate.pem", "key.pem"].map(|name| fs::read(folder.join(name)).expect("it was written"));
    vec![[&certificate[..], &key].concat(), certificate, key]
}

/// What people write on command lines, and addresses that come from files.
fn options(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = text.parse::<Address>().map(|address| (address.is_local(), address.to_string()));
    let _ =
        (text.parse::<Fingerprint>(), text.parse::<Token>(), text.parse::<Resize>(), text.parse::<Filter>());
    let _ = text.parse::<jaguar_convfhe::Polynomial>();
    static CLIENT: LazyLock<Client> =
        LazyLock::new(|| Client::new(&Trust::Nobody, None).expect("it reads no file"));
    let _ = CLIENT.clone().expecting(text).is_some();
    let _ = models::kit().backend(text).map_err(|e| e.to_string());
}

/// Texts as they are.
fn as_inputs(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn option_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "localhost:7800",
        "[::1]:7800",
        "unix:/run/jaguar",
        "crop-pct=0.875",
        "centre=0.5",
        "224",
        "bicubic",
        "hyena",
    ];
    as_inputs(&texts)
}

/// A configuration file of `jaguar serve`. (The program is no library: its reader is compiled in here as it is.)
fn configuration(input: &[u8]) {
    let Ok(file) = ConfigFile::read(&file("jaguar.toml", input)) else { return };
    assert_eq!(file.folder, scratch());
    let tables = file.models.iter().chain(&file.clients);
    let named = tables.clone().map(|table| (&table.name, &table.place));
    let entries = file.options.iter().chain(tables.flat_map(|table| &table.entries));
    for (key, place) in named.chain(entries.clone().map(|entry| (&entry.key, &entry.place))) {
        let known = ["listen", "max-clients", "backends"];
        let _ = (unknown("no option", key, known), place.to_string());
        assert!(place.line > 0 && place.file.starts_with(scratch()));
    }
    for entry in entries {
        assert!(matches!(entry.value, Value::List(_)) || entry.value.texts().len() == 1);
    }
}

fn configuration_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "listen = '[::]:7800'\nmax-clients = 4 # four\nquiet = true\nmax-seconds = 1.5\n",
        "[models.a]\nfile = \"a.jaguar\"\nbackends = ['x', 'y']\n[clients.'Alice W']\nmax-sessions = 2\n",
        "a = \"\"\"\nlong\"\"\"\nb = 0x10\n\"c.d\" = 1979-05-27T07:32:00Z\n[[models]]\n",
        "models.a.clients = [\"\\u00e9\", 3]\nclients = { b = { c = 1e5 } }\n",
    ];
    as_inputs(&texts)
}

/// A server's file of today's queries.
fn counts(input: &[u8]) {
    let path = file("queries", input);
    if open_queries(path.clone()).is_ok() {
        // It was written as it was understood: that is understood too.
        open_queries(path).expect("a file of this program");
    }
}

fn count_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "jaguar queries 1\nday 20780\n12 resnet-18 alice\n3 resnet-18 Bob B\n",
        "jaguar queries 1\nday 18446744073709551615\n18446744073709551615 a b\n0 a c\n",
        "jaguar queries 1\nday 9999999\n1 a \n1  b\n1 a b\n1 a b\n",
    ];
    as_inputs(&texts)
}
