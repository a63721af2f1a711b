//! One-round sessions, both roles. Nothing here encrypts.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use jaguar_compile::samples::{Axes, Source};
use jaguar_convfhe::Compiled;
use jaguar_convfhe::session::client::{Keys, Session};
use jaguar_convfhe::session::server::{Service, Sizes};
use jaguar_convfhe::session::{
    DeskLimits, Evaluation, Evaluator, Facing, Failure, KeyStore, OfClient, Terms, Ticket,
};
use jaguar_engine::EngineError;
use jaguar_graph::bundle::ModelId;
use jaguar_graph::network::{Filter, ImageSpec, Resize};
use jaguar_wire::{Channel, encode, memory_transports};

use crate::doubles::{Recording, Replay};
use crate::files::scratch;
use crate::script::Script;
use crate::{Bound, Target, fixed};

/// A chunk and a bit.
const KEYS: usize = (1 << 20) + 7;
const CIPHERTEXT: usize = 8;

pub(crate) fn targets() -> Vec<Target> {
    let bound = Bound { fixed: 16 << 20, per_byte: 1 << 12 };
    // Terms may ask for an input of 2^24 values, to which a picture is brought.
    let large = Bound { fixed: 512 << 20, per_byte: 1 << 12 };
    vec![
        Target {
            name: "one-round-client",
            run: client,
            seeds: session_seeds,
            bound,
            longest: 1024,
            tried: 60,
        },
        Target {
            name: "one-round-server",
            run: server,
            seeds: session_seeds,
            bound,
            longest: 1024,
            tried: 60,
        },
        Target {
            name: "one-round-terms",
            run: offered,
            seeds: || vec![terms()],
            bound: large,
            longest: 4096,
            tried: 2000,
        },
        Target { name: "one-round-model", run: model, seeds: model_seeds, bound, longest: 4096, tried: 1000 },
        Target { name: "one-round-kept", run: kept, seeds: kept_seeds, bound, longest: 2048, tried: 60 },
    ]
}

/// Adds up.
struct Sums;

impl Evaluation for Sums {
    fn open(&self, _keys: OfClient<'_>, _stop: &AtomicBool) -> Result<Box<dyn Evaluator>, Failure> {
        Ok(Box::new(Self))
    }

    fn answer_bytes(&self) -> usize {
        CIPHERTEXT
    }
}

impl Evaluator for Sums {
    fn answer(
        &mut self,
        (_, input): (Ticket, &[u8]),
        progress: &mut dyn FnMut(u32, u32),
        _stop: &AtomicBool,
    ) -> Result<Vec<u8>, Failure> {
        progress(1, 2);
        let failure = Failure { told: "no".into(), detail: "no".into(), spoilt_keys: input[0] == 254 };
        if input[0] >= 254 { Err(failure) } else { Ok(input.to_vec()) }
    }
}

fn facing() -> Facing {
    let image = ImageSpec {
        resize: Resize::Exact,
        filter: Filter::Bilinear,
        bgr: false,
        mean: vec![0.0],
        factor: vec![1.0],
    };
    Facing {
        name: "sums".into(),
        shape: [1, 2, 4],
        layout_dims: vec![],
        channels_last: false,
        image,
        affine: vec![(1.0, 0.5)],
        parts: vec![],
        labels: vec!["one".into()],
        first: None,
    }
}

fn some_terms() -> Terms {
    let public = "{\"outputs\": 1}".into();
    Terms { set: "insecure-sums".into(), public, outputs: 1, facing: facing(), keep_answers: 60, memory: 0 }
}

/// What a server would offer.
pub(crate) fn terms() -> Vec<u8> {
    encode(&some_terms())
}

fn service() -> Service {
    let store = KeyStore::open(&scratch().join("keys"), KEYS as u64, 8 * KEYS as u64).expect("a folder");
    let sizes = Sizes { keys: KEYS as u64, input: CIPHERTEXT, answer: CIPHERTEXT };
    let limits = DeskLimits { keep: Duration::from_secs(1), ..DeskLimits::default() };
    let about = (ModelId([7; 32]), some_terms(), sizes);
    Service::new(about, store, Box::new(Sums), limits, Box::new(|_| ())).expect("a server")
}

/// The client's part: keys, an input for which it waits, one whose answer it collects.
fn converse(channel: Channel) -> Result<(), EngineError> {
    static FILE: LazyLock<(std::path::PathBuf, [u8; 32])> = LazyLock::new(|| {
        let path = scratch().join("client-keys");
        let keys = vec![5; KEYS];
        fs::write(&path, &keys).expect("the folder takes files");
        (path, *blake3::hash(&keys).as_bytes())
    });
    let mut session = Session::open(channel)?;
    session.introduce(&[3; 32], CIPHERTEXT)?;
    let keys = Keys { path: &FILE.0, bytes: KEYS as u64, hash: FILE.1 };
    session.give_keys(&keys, &mut |_, _| ())?;
    session.send(&[1; CIPHERTEXT], true)?;
    session.answer(&mut |_| ())?;
    let ticket = session.send(&[2; CIPHERTEXT], false)?;
    session.collect(ticket)?;
    session.answer(&mut |_| ())?;
    session.collect(Ticket([0; 32]))?;
    let _ = session.answer(&mut |_| ());
    session.leave()
}

/// What was recorded: what each party heard.
struct Recorded {
    service: Service,
    client: Vec<Vec<u8>>,
    server: Vec<Vec<u8>>,
}

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let service = service();
        let (a, b) = memory_transports();
        let ((a, client), (b, server)) = (Recording::new(a), Recording::new(b));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                fixed(2, || service.serve(Channel::new(b), (None, None), &|| Ok(()), &mut |_| ()))
                    .expect("a sound session")
            });
            let asking = scope.spawn(|| fixed(3, || converse(Channel::new(a))).expect("a sound session"));
            asking.join().expect("no panic");
            serving.join().expect("no panic");
        });
        Recorded { service, client: client.chunks(), server: server.chunks() }
    })
}

fn session_seeds() -> Vec<Vec<u8>> {
    let change = |kind: u8, at: u8| vec![kind | 0x80, 0, at, 0x55, 0xaa, 3, 0xff, 0xff, 0xff, 0xff];
    let positions = [0, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0, 0xff];
    (0..8).flat_map(|kind| positions.map(|at| change(kind, at))).chain([vec![]]).collect()
}

/// Changes to what the client hears.
fn client(input: &[u8]) {
    let mut chunks = recorded().client.clone();
    Script::new(input).change(&mut chunks);
    let _ = converse(Replay::channel(chunks));
}

/// Changes to what the server hears.
fn server(input: &[u8]) {
    let mut chunks = recorded().server.clone();
    Script::new(input).change(&mut chunks);
    // In a thread of its own, where randomness is real: the service lives on, and may draw no ticket twice.
    std::thread::scope(|scope| {
        let serve =
            || recorded().service.serve(Replay::channel(chunks), (None, None), &|| Ok(()), &mut |_| ());
        let _ = scope.spawn(serve).join().expect("no panic");
    });
}

/// Terms, and what a client does with them.
fn offered(input: &[u8]) {
    let Ok(terms) = jaguar_wire::decode::<Terms>("terms", input) else { return };
    if terms.check().is_err() {
        return;
    }
    let facing = &terms.facing;
    let axes = Axes { dims: &facing.layout_dims, channels_last: facing.channels_last };
    let picture = Source::Pixels { rgb: (0..3 * 8 * 9).collect(), width: 9, height: 8 };
    if let Ok(tensor) = picture.tensor(&facing.image, facing.shape, axes) {
        facing.mapped(tensor);
    }
}

/// A model's file.
fn model(input: &[u8]) {
    let path = scratch().join("model.convfhe");
    fs::write(&path, input).expect("the folder takes files");
    let _ = Compiled::read(&path);
}

fn model_seeds() -> Vec<Vec<u8>> {
    let facing = "{\"name\":\"sums\",\"shape\":[1,2,4],\"layout_dims\":[],\"channels_last\":false,\"image\":{\"resize\":\"Exact\",\
                  \"filter\":\"Bilinear\",\"bgr\":false,\"mean\":[0.0],\"factor\":[1.0]},\"affine\":[[1.0,0.5]],\"parts\":[],\
                  \"labels\":[\"one\"]}";
    let jaguar = format!(
        "{{\"format\":1,\"set\":\"insecure-sums\",\"public\":\"{{}}\",\"outputs\":1,\"facing\":{facing}}}"
    );
    vec![format!("{{\"layers\":[[1,2.5]],\"jaguar\":{jaguar}}}").into_bytes()]
}

/// Bytes of keys where a folder of them is read.
const SHORT_KEYS: u64 = 40;

/// A server's folder of clients' keys, of inputs and of answers.
fn keys_folder() -> std::path::PathBuf {
    scratch().join("kept-keys")
}

/// A server that has just found `keys_folder`.
fn started() -> Result<Service, EngineError> {
    let store = KeyStore::open(&keys_folder(), SHORT_KEYS, 4 * SHORT_KEYS)
        .map_err(|e| EngineError::Input(e.to_string()))?;
    let sizes = Sizes { keys: SHORT_KEYS, input: CIPHERTEXT, answer: CIPHERTEXT };
    let ever = Duration::from_secs(1 << 40);
    let limits = DeskLimits { keep: ever, wait: ever, ..DeskLimits::default() };
    Service::new((ModelId([7; 32]), some_terms(), sizes), store, Box::new(Sums), limits, Box::new(|_| ()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a record has the ticket that its file is named after: behind the head's length and the model.
const TICKET_AT: usize = 4 + 32;

/// Files in a server's folder: of each a byte that says what it is, a length, and its content. A record's checksum is right, and
/// its name is the one that it says, unless a bit is set.
fn kept(input: &[u8]) {
    let folder = keys_folder();
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("queue")).expect("a folder");
    let mut script = Script::new(input);
    for _ in 0..8 {
        if script.is_empty() {
            break;
        }
        let (kind, length) = (script.byte(), script.word());
        let content = script.bytes(length % 512);
        let path = match kind & 3 {
            0 | 1 => {
                let ticket = content.get(TICKET_AT..TICKET_AT + 32).unwrap_or(&[1; 32]);
                let ticket = if kind & 0x20 == 0 { hex(ticket) } else { hex(&[2; 32]) };
                folder
                    .join("queue")
                    .join(format!("{ticket}.{}", if kind & 0x40 == 0 { "ticket" } else { "part" }))
            }
            2 => {
                // As many owners as bits, and two shares.
                let [owner, hash, share] = [kind >> 6, kind >> 4 & 3, kind >> 3 & 1];
                let end = if kind & 4 == 0 { "keys" } else { "part" };
                let [owner, hash, share] = [hex(&[owner; 32]), hex(&[hash; 32]), hex(&[share; 8])];
                folder.join(format!("{owner}-{hash}-{share}.{end}"))
            }
            _ => {
                let name: String = content.iter().take(150).map(|&byte| char::from(byte & 0x7f)).collect();
                folder.join(format!("a{}", name.replace(['/', '\0'], "-")))
            }
        };
        let whole = kind & 0x80 == 0 && kind & 3 < 2;
        let sum = if whole { blake3::hash(content).as_bytes().to_vec() } else { Vec::new() };
        // (Two may have one name.)
        fs::write(path, [content, &sum[..]].concat()).expect("the folder takes files");
    }
    let service = started().expect("whatever is there, the folder can be read");
    let _ = service.stock();
    drop(service);
    // What it left is sound: the next one finds it.
    drop(started().expect("what a server left"));
}

/// A session whose answers nobody fetches: one, and a failure.
fn kept_seeds() -> Vec<Vec<u8>> {
    let _ = fs::remove_dir_all(keys_folder());
    let service = started().expect("a folder");
    let path = scratch().join("short-keys");
    fs::write(&path, [5; SHORT_KEYS as usize]).expect("the folder takes files");
    let hash = *blake3::hash(&[5; SHORT_KEYS as usize]).as_bytes();
    let (a, b) = memory_transports();
    std::thread::scope(|scope| {
        scope.spawn(|| service.serve(Channel::new(b), (None, None), &|| Ok(()), &mut |_| ()));
        let converse = || -> Result<(), EngineError> {
            let mut session = Session::open(Channel::new(a))?;
            session.introduce(&[3; 32], CIPHERTEXT)?;
            session.give_keys(&Keys { path: &path, bytes: SHORT_KEYS, hash }, &mut |_, _| ())?;
            for first in [1, 254] {
                session.send(&[first; CIPHERTEXT], true)?;
                let _ = session.answer(&mut |_| ());
            }
            session.leave()
        };
        // (The failure may end it.)
        let _ = converse();
    });
    drop(service);
    let mut seeds = Vec::new();
    for file in fs::read_dir(keys_folder().join("queue")).expect("it is there") {
        let file = fs::read(file.expect("an entry").path()).expect("a record");
        let content = &file[..file.len() - 32];
        seeds.push([&[0], &(content.len() as u16).to_le_bytes()[..], content].concat());
    }
    assert!(!seeds.is_empty(), "a record is kept");
    seeds.push([&[2, 40, 0][..], &[5; 40], &[0x46, 9, 0], &[5; 9], &[0xc2, 40, 0], &[6; 40]].concat());
    let all = seeds.concat();
    seeds.push(all);
    seeds.push(b"\x03\x05\0b.part\x42\x02\0ab".to_vec());
    seeds
}
