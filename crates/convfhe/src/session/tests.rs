//! Sessions under a stand-in for the evaluation, which protects nothing: it sums up bytes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use jaguar_bundle::ModelId;
use jaguar_engine::{EngineError, one_round};
use jaguar_graph::network::{ImageSpec, Resize};
use jaguar_wire::{Channel, memory_pair};

use super::client::{Keys, Progress, Session};
use super::message::{CHUNK, From, Have, MAX_MESSAGE, Reply, Request};
use super::server::{Notice, Service, Sizes};
use super::*;

/// Three chunks, the last one short.
const KEYS: usize = 2 * CHUNK + 7;
const CIPHERTEXT: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jaguar-convfhe-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Names in the store, without the lock.
    fn kept(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.store()).unwrap();
        let mut names: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|n| n != "lock")
            .collect();
        names.sort();
        names
    }

    /// A client's keys, in a file.
    fn keys(&self, seed: u8) -> Own {
        let bytes: Vec<u8> = (0..KEYS).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 11) as u8 ^ seed).collect();
        let path = self.0.join(format!("keys-{seed}"));
        std::fs::write(&path, &bytes).unwrap();
        Own { path, hash: *blake3::hash(&bytes).as_bytes(), client: [seed; 32], bytes }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client.
struct Own {
    path: PathBuf,
    hash: [u8; 32],
    client: [u8; 32],
    bytes: Vec<u8>,
}

impl Own {
    fn offered(&self) -> Keys<'_> {
        Keys { path: &self.path, bytes: KEYS as u64, hash: self.hash }
    }

    fn expected(&self, input: &[u8; CIPHERTEXT]) -> Vec<u8> {
        (sum(&self.bytes) + sum(input)).to_le_bytes().to_vec()
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&b| u64::from(b)).sum()
}

/// Tells that an evaluation is half done, and waits for leave to go on.
struct Gate {
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

#[derive(Clone, Default)]
struct Sums {
    opened: Arc<AtomicUsize>,
    gate: Option<Arc<Gate>>,
}

struct Sum {
    keys: u64,
    gate: Option<Arc<Gate>>,
    stopped: Arc<AtomicUsize>,
}

fn failure(told: &str, spoilt_keys: bool) -> Failure {
    Failure { told: told.into(), detail: format!("in the log: {told}"), spoilt_keys }
}

impl Evaluation for Sums {
    fn open(&self, keys: &Path) -> Result<Box<dyn Evaluator>, Failure> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let bytes = std::fs::read(keys).map_err(|e| failure(&e.to_string(), false))?;
        if bytes[0] == 0xee {
            return Err(failure("these are no keys", true));
        }
        Ok(Box::new(Sum { keys: sum(&bytes), gate: self.gate.clone(), stopped: Arc::default() }))
    }

    fn answer_bytes(&self) -> usize {
        CIPHERTEXT
    }
}

impl Evaluator for Sum {
    fn stopper(&self) -> Stopper {
        let stopped = self.stopped.clone();
        Box::new(move || {
            stopped.store(1, Ordering::SeqCst);
        })
    }

    fn answer(&mut self, input: &[u8], progress: &mut dyn FnMut(u32, u32)) -> Result<Vec<u8>, Failure> {
        progress(1, 2);
        if let Some(gate) = &self.gate {
            gate.reached.lock().unwrap().send(()).unwrap();
            // (A test that is through lets everything pass.)
            let _ = gate.go_on.lock().unwrap().recv();
        }
        if self.stopped.load(Ordering::SeqCst) > 0 {
            return Err(failure("stopped", false));
        }
        if input[0] == 255 {
            return Err(failure("the first byte is 255", false));
        }
        progress(2, 2);
        let mut answer = (self.keys + sum(input)).to_le_bytes().to_vec();
        answer.truncate(if input[0] == 254 { 3 } else { CIPHERTEXT });
        Ok(answer)
    }
}

fn terms() -> Terms {
    let facing = Facing {
        name: "sums".into(),
        shape: [1, 2, 4],
        layout_dims: vec![],
        channels_last: false,
        image: ImageSpec { resize: Resize::Exact, bgr: false, mean: vec![0.0], factor: vec![1.0] },
        affine: vec![],
        parts: vec![],
        labels: vec![],
    };
    Terms {
        set: "insecure-sums".into(),
        public: "{}".into(),
        outputs: 1,
        facing,
        keep_answers: 60,
        memory: 0,
    }
}

/// A server, with what it logged.
struct Site {
    service: Service,
    logged: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn new(scratch: &Scratch, sums: Sums, quota: u64, limits: DeskLimits) -> Self {
        let store = KeyStore::open(&scratch.store(), KEYS as u64, quota).unwrap();
        let logged = Arc::<Mutex<Vec<String>>>::default();
        let log = logged.clone();
        let sizes = Sizes { keys: KEYS as u64, input: CIPHERTEXT, answer: CIPHERTEXT };
        let log = Box::new(move |text: &str| log.lock().unwrap().push(text.to_owned()));
        let about = (ModelId([7; 32]), terms(), sizes);
        Self { service: Service::new(about, store, Box::new(sums), limits, log).unwrap(), logged }
    }

    fn plain(scratch: &Scratch) -> Self {
        Self::new(scratch, Sums::default(), 10 * KEYS as u64, DeskLimits::default())
    }

    /// A session of `client`, and how it ended at the server.
    fn over<T>(
        &self,
        known: Option<Owner>,
        client: impl FnOnce(Channel) -> T,
    ) -> (T, Result<(), EngineError>) {
        let (ours, theirs) = memory_pair();
        thread::scope(|scope| {
            let server = scope.spawn(|| self.service.serve(theirs, known, &mut |_| ()));
            let result = client(ours);
            (result, server.join().expect("the server does not panic"))
        })
    }

    /// One whole session.
    fn ask(
        &self,
        own: &Own,
        inputs: &[[u8; CIPHERTEXT]],
    ) -> Result<(client::Given, Vec<Vec<u8>>), EngineError> {
        self.over(None, |channel| {
            let mut session = begin(channel, own)?;
            let given = session.give_keys(&own.offered(), &mut |_, _| ())?;
            let mut answers = Vec::new();
            for input in inputs {
                let ticket = session.send(input, true)?;
                answers.push(session.answer(&mut |_| ())?);
                session.received(ticket)?;
            }
            session.leave()?;
            Ok((given, answers))
        })
        .0
    }
}

fn begin(channel: Channel, own: &Own) -> Result<Session, EngineError> {
    let mut session = Session::open(channel)?;
    session.introduce(&own.client, CIPHERTEXT)?;
    Ok(session)
}

/// A gate, and this side of it.
fn gate() -> (Arc<Gate>, Receiver<()>, Sender<()>) {
    let ((reached, here), (go_on, there)) = (channel(), channel());
    (Arc::new(Gate { reached: Mutex::new(reached), go_on: Mutex::new(there) }), here, go_on)
}

#[track_caller]
fn says<T>(result: Result<T, EngineError>, part: &str) {
    let text = result.err().expect("a failure").to_string();
    assert!(text.contains(part), "{text:?} does not say {part:?}");
}

#[test]
fn keys_go_up_once_and_stay_after_a_restart() {
    let scratch = Scratch::new("once");
    let own = scratch.keys(1);
    let inputs = [[1; CIPHERTEXT], [2; CIPHERTEXT]];
    let want: Vec<Vec<u8>> = inputs.iter().map(|input| own.expected(input)).collect();
    for sent in [KEYS as u64, 0, 0] {
        // A server of its own each time.
        let site = Site::plain(&scratch);
        let (given, answers) = site.ask(&own, &inputs).unwrap();
        assert_eq!((given.sent, given.had), (sent, KEYS as u64 - sent));
        assert_eq!(answers, want);
    }
    let kept = scratch.kept();
    let [name] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(name.ends_with(".keys"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.store().join(name)), 0o600);
    assert_eq!(mode(&scratch.store()), 0o700);
    assert!(!name.contains("0101010101"), "what the client sent is no file's name");
}

/// What is loaded stays for the session: the second input does not wait for keys again.
#[test]
fn keys_are_read_once_a_session() {
    let scratch = Scratch::new("loaded");
    let sums = Sums::default();
    let opened = sums.opened.clone();
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    site.ask(&own, &[[1; CIPHERTEXT], [2; CIPHERTEXT], [3; CIPHERTEXT]]).unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 1);
    site.ask(&other, &[[1; CIPHERTEXT]]).unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 2);
}

#[test]
fn an_upload_goes_on_where_it_was_cut() {
    let scratch = Scratch::new("cut");
    let own = scratch.keys(1);
    let site = Site::plain(&scratch);
    // The client's disk fails behind a chunk and a half: it gives up, and tells.
    let short = scratch.0.join("short");
    std::fs::write(&short, &own.bytes[..CHUNK + CHUNK / 2]).unwrap();
    let (result, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own)?;
        session.give_keys(&Keys { path: &short, ..own.offered() }, &mut |_, _| ())
    });
    says(result, "reading");
    served.unwrap_err();
    assert!(matches!(scratch.kept().as_slice(), [part] if part.ends_with(".part")), "{:?}", scratch.kept());
    // Another server goes on; the connection just ends.
    drop(site);
    let site = Site::plain(&scratch);
    let mut told = Vec::new();
    let (given, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |done, all| told.push((done, all))).unwrap()
    });
    assert_eq!((given.had, given.sent), (CHUNK as u64, (KEYS - CHUNK) as u64));
    assert_eq!(told, [CHUNK, 2 * CHUNK, KEYS].map(|done| (done as u64, KEYS as u64)));
    says(served, "clos");
    assert!(matches!(scratch.kept().as_slice(), [keys] if keys.ends_with(".keys")));
    assert_eq!(site.ask(&own, &[[9; CIPHERTEXT]]).unwrap().1, [own.expected(&[9; CIPHERTEXT])]);
}

/// What is there of the keys may be damaged: they begin anew.
#[test]
fn a_damaged_part_is_sent_anew() {
    let scratch = Scratch::new("damaged");
    let own = scratch.keys(1);
    let site = Site::plain(&scratch);
    let short = scratch.0.join("short");
    std::fs::write(&short, &own.bytes[..CHUNK]).unwrap();
    let (result, _) = site.over(None, |channel| {
        begin(channel, &own)?.give_keys(&Keys { path: &short, ..own.offered() }, &mut |_, _| ())
    });
    result.unwrap_err();
    let part = scratch.store().join(&scratch.kept()[0]);
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let (given, answers) = site.ask(&own, &[[4; CIPHERTEXT]]).unwrap();
    assert_eq!((given.had, given.sent), (0, KEYS as u64));
    assert_eq!(answers, [own.expected(&[4; CIPHERTEXT])]);
}

/// A client that speaks for itself, after the handshake.
fn raw(channel: &mut Channel, own: &Own) {
    one_round::ask(channel, NAME, VERSION).unwrap();
    one_round::choose(channel, NAME, VERSION).unwrap();
    channel.send(&own.client).unwrap();
}

#[test]
fn lying_clients_are_told_and_nothing_of_theirs_stays() {
    let scratch = Scratch::new("liars");
    let own = scratch.keys(1);
    let site = Site::plain(&scratch);
    let keys = |bytes: u64, hash| Request::Keys { bytes, hash };
    type Lie<'a> = (&'a str, Box<dyn Fn(&mut Channel) + 'a>);
    let have = |channel: &mut Channel| channel.recv_message::<Have>("have", MAX_MESSAGE).unwrap();
    let all = KEYS as u64;
    let send = |channel: &mut Channel, bytes: &[u8], running: Option<[u8; 32]>| {
        let mut hasher = blake3::Hasher::new();
        for chunk in bytes.chunks(CHUNK) {
            hasher.update(chunk);
            // The other side may be gone.
            let _ = channel.send(chunk);
            let _ = channel.send(&running.unwrap_or(*hasher.finalize().as_bytes()));
        }
        let _ = channel.flush();
    };
    let lies: Vec<Lie<'_>> = vec![
        (
            "keys of 18446744073709551615 bytes",
            Box::new(|c| c.send_message(&keys(u64::MAX, own.hash)).unwrap()),
        ),
        ("keys of 5 bytes", Box::new(|c| c.send_message(&keys(5, own.hash)).unwrap())),
        (
            "keys that do not match their hash",
            Box::new(|c| {
                c.send_message(&keys(all, [9; 32])).unwrap();
                have(c);
                c.send_message(&From { offset: 0 }).unwrap();
                send(c, &own.bytes, None);
            }),
        ),
        (
            "damaged behind 0 bytes",
            Box::new(|c| {
                c.send_message(&keys(all, own.hash)).unwrap();
                have(c);
                c.send_message(&From { offset: 0 }).unwrap();
                send(c, &own.bytes, Some([3; 32]));
            }),
        ),
        (
            "from byte 12345",
            Box::new(|c| {
                c.send_message(&keys(all, own.hash)).unwrap();
                have(c);
                c.send_message(&From { offset: 12345 }).unwrap();
            }),
        ),
        (
            "an input before the keys",
            Box::new(|c| {
                c.send_message(&Request::Input { waits: true }).unwrap();
                c.send(&[0; CIPHERTEXT]).unwrap();
            }),
        ),
        ("at most 4096 bytes", Box::new(|c| c.send(&u32::MAX.to_le_bytes()).unwrap())),
        ("well-formed", Box::new(|c| c.send(&[1, 0, 0, 0, 99]).unwrap())),
    ];
    for (part, lie) in lies {
        let (told, served) = site.over(None, |mut channel| {
            raw(&mut channel, &own);
            lie(&mut channel);
            channel.flush().unwrap();
            loop {
                if let Err(told) = channel.recv(1) {
                    return told.to_string();
                }
            }
        });
        says(served, part);
        assert!(told.contains(part), "{told:?} does not say {part:?}");
        assert_eq!(scratch.kept(), [""; 0], "{part}");
    }
    assert_eq!(site.ask(&own, &[[1; CIPHERTEXT]]).unwrap().1.len(), 1, "others are not concerned");
}

/// A server that speaks for itself, behind the handshake.
fn against(
    lie: impl FnOnce(&mut Channel) + Send,
    client: impl FnOnce(Channel) -> Result<(), EngineError>,
) -> String {
    let (ours, mut theirs) = memory_pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            let parameters = jaguar_wire::encode(&terms());
            one_round::offer(&mut theirs, ModelId([7; 32]), (NAME, VERSION), &parameters).unwrap();
            theirs.recv(32).unwrap();
            lie(&mut theirs);
            let _ = theirs.flush();
        });
        client(ours).unwrap_err().to_string()
    })
}

#[test]
fn lying_servers_are_not_believed() {
    let scratch = Scratch::new("lying-server");
    let own = scratch.keys(1);
    let give = |channel| {
        begin(channel, &own)?.give_keys(&own.offered(), &mut |_, _| ())?;
        Ok(())
    };
    for (have, part) in [
        (Have { bytes: u64::MAX, hash: own.hash }, "it has 18446744073709551615 bytes"),
        (Have { bytes: KEYS as u64, hash: [0; 32] }, "it has 2097159 bytes"),
    ] {
        let text = against(
            |channel| {
                channel.recv_message::<Request>("keys", MAX_MESSAGE).unwrap();
                channel.send_message(&have).unwrap();
            },
            give,
        );
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    let text = against(
        |channel| {
            channel.recv_message::<Request>("keys", MAX_MESSAGE).unwrap();
            channel.send_message(&Have { bytes: 0, hash: *blake3::hash(b"").as_bytes() }).unwrap();
            channel.recv_message::<From>("from", MAX_MESSAGE).unwrap();
            channel.recv(KEYS + 3 * 32).unwrap();
            channel.send_message(&Have { bytes: 3, hash: own.hash }).unwrap();
        },
        give,
    );
    assert!(text.contains("acknowledges 3 bytes"), "{text}");
    let answer = |channel| {
        let mut session = begin(channel, &own)?;
        session.send(&[1; CIPHERTEXT], true)?;
        session.answer(&mut |_| ())?;
        Ok(())
    };
    for (reply, part) in [
        (Reply::Failed { reason: "a\nb\x1b".into() }, "the server has no answer: ab"),
        (Reply::Unknown, "no answer under this ticket"),
        // It announces an answer and ends.
        (Reply::Answer, "clos"),
    ] {
        let text = against(
            |channel| {
                channel.recv_message::<Request>("input", MAX_MESSAGE).unwrap();
                channel.recv(CIPHERTEXT).unwrap();
                channel.send_message(&Ticket([1; 32])).unwrap();
                channel.send_message(&reply).unwrap();
            },
            answer,
        );
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn terms_that_do_not_fit_together_are_refused() {
    type Change = fn(&mut Terms);
    let changes: [(&str, Change); 9] = [
        ("shape", |t| t.facing.shape = [1, usize::MAX, 2]),
        ("shape", |t| t.facing.shape = [0, 2, 2]),
        ("affine maps", |t| t.facing.affine = vec![(1.0, 0.0); 2]),
        ("preprocessing", |t| t.facing.image.mean = vec![]),
        ("labels", |t| t.facing.labels = vec![String::new(); 2]),
        ("no plain text", |t| t.facing.name = "a\x1b[2J".into()),
        ("no plain text", |t| t.facing.labels = vec!["a\nb".into()]),
        ("a parameter set called", |t| t.set = "../n16".into()),
        ("parts", |t| {
            let part = jaguar_graph::network::OutputPart {
                name: String::new(),
                dims: vec![7],
                finish: Default::default(),
            };
            t.facing.parts = vec![part];
        }),
    ];
    for (part, change) in changes {
        let mut changed = terms();
        change(&mut changed);
        let (ours, mut theirs) = memory_pair();
        let text = thread::scope(|scope| {
            scope.spawn(move || {
                let parameters = jaguar_wire::encode(&changed);
                one_round::offer(&mut theirs, ModelId([7; 32]), (NAME, VERSION), &parameters).unwrap_err();
            });
            Session::open(ours).err().expect("refused").to_string()
        });
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn those_used_longest_ago_make_place_and_are_sent_again() {
    let scratch = Scratch::new("quota");
    let site = Site::new(&scratch, Sums::default(), 2 * KEYS as u64 + 5, DeskLimits::default());
    let clients = [1, 2, 3].map(|seed| scratch.keys(seed));
    let sent = |n: usize| site.ask(&clients[n], &[[1; CIPHERTEXT]]).unwrap().0.sent > 0;
    assert!(sent(0) && sent(1), "new ones");
    assert!(!sent(0), "used again");
    assert!(sent(2), "takes the place of the second");
    assert_eq!(scratch.kept().len(), 2);
    assert!(!sent(0));
    assert!(sent(1), "had to go");
    assert_eq!(scratch.kept().len(), 2);
    // Other keys of one client replace its own.
    let other = Own { client: clients[1].client, ..scratch.keys(9) };
    assert!(site.ask(&other, &[]).unwrap().0.sent > 0);
    assert!(!sent(0));
}

#[test]
fn a_quota_that_is_in_use_or_too_small_is_told() {
    let scratch = Scratch::new("in-use");
    let site = Site::new(&scratch, Sums::default(), KEYS as u64, DeskLimits::default());
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    let (told, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        // As long as this session lasts, its keys stay.
        let busy = site.ask(&other, &[]).unwrap_err();
        session.leave().unwrap();
        busy
    });
    served.unwrap();
    assert!(told.to_string().contains("taken up by clients that use it now"), "{told}");
    assert!(site.ask(&other, &[]).unwrap().0.sent > 0, "its turn");
    drop(site);
    std::fs::remove_dir_all(scratch.store()).unwrap();
    let site = Site::new(&scratch, Sums::default(), KEYS as u64 - 1, DeskLimits::default());
    says(site.ask(&own, &[]), "--key-storage");
    assert_eq!(scratch.kept(), [""; 0]);
}

#[test]
fn a_folder_has_one_server() {
    let scratch = Scratch::new("locked");
    let _site = Site::plain(&scratch);
    let again = KeyStore::open(&scratch.store(), KEYS as u64, 1 << 30);
    assert!(matches!(again, Err(StoreError::Locked(_))));
}

#[test]
fn what_is_no_key_in_the_folder_is_removed_and_strange_files_stay() {
    let scratch = Scratch::new("tidy");
    std::fs::create_dir_all(scratch.store()).unwrap();
    let name = |kind| format!("{}-{}.{kind}", "ab".repeat(32), "cd".repeat(32));
    for (file, bytes) in [(name("keys"), 3), (name("part"), KEYS + 1), ("notes.txt".into(), 1)] {
        std::fs::write(scratch.store().join(file), vec![0; bytes]).unwrap();
    }
    let _site = Site::plain(&scratch);
    assert_eq!(scratch.kept(), ["notes.txt"]);
}

#[test]
fn an_answer_is_fetched_later_once_and_by_its_owner() {
    let scratch = Scratch::new("later");
    let site = Site::plain(&scratch);
    let (own, other) = (scratch.keys(1), scratch.keys(2));
    let input = [5; CIPHERTEXT];
    let (ticket, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        let ticket = session.send(&input, false).unwrap();
        session.leave().unwrap();
        ticket
    });
    served.unwrap();
    let fetch = |own: &Own, known, receives: bool| {
        site.over(known, |channel| {
            let mut session = begin(channel, own)?;
            session.collect(ticket)?;
            let answer = session.answer(&mut |_| ())?;
            if receives {
                session.received(ticket)?;
            }
            session.leave()?;
            Ok(answer)
        })
        .0
    };
    // Neither another client, nor one that shows a token and says the same.
    says(fetch(&other, None, true), "no answer under this ticket");
    says(fetch(&own, Some(Owner::known("token", "own")), true), "no answer under this ticket");
    // A connection that ended before all was there costs nothing.
    assert_eq!(fetch(&own, None, false).unwrap(), own.expected(&input));
    assert_eq!(fetch(&own, None, true).unwrap(), own.expected(&input));
    says(fetch(&own, None, true), "no answer under this ticket");
}

#[test]
fn who_shows_a_token_is_known_by_it_alone() {
    let scratch = Scratch::new("token");
    let site = Site::plain(&scratch);
    let own = scratch.keys(1);
    let moved = Own { client: [99; 32], ..scratch.keys(1) };
    let give = |own: &Own, name| {
        let (given, served) = site.over(Some(Owner::known("token", name)), |channel| {
            let mut session = begin(channel, own).unwrap();
            let given = session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
            session.leave().unwrap();
            given
        });
        served.unwrap();
        given.sent > 0
    };
    assert!(give(&own, "alice"));
    assert!(!give(&moved, "alice"), "whatever it draws");
    assert!(give(&own, "bob"), "even the same keys");
    assert!(Owner::known("token", "x") != Owner::known("certificate", "x"));
}

#[test]
fn answers_are_dropped_after_their_time() {
    let scratch = Scratch::new("old");
    let limits = DeskLimits { keep: Duration::ZERO, ..DeskLimits::default() };
    let site = Site::new(&scratch, Sums::default(), 10 * KEYS as u64, limits);
    says(site.ask(&scratch.keys(1), &[[1; CIPHERTEXT]]), "no answer under this ticket");
}

#[test]
fn inputs_wait_in_their_order_and_within_limits() {
    let scratch = Scratch::new("queue");
    let (gate, reached, go_on) = gate();
    let sums = Sums { gate: Some(gate), ..Sums::default() };
    let limits = DeskLimits { waiting: 3, waiting_of_one: 2, ..DeskLimits::default() };
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, limits);
    let (own, other, third) = (scratch.keys(1), scratch.keys(2), scratch.keys(3));
    let later = |own: &Own, inputs: &[u8]| {
        let (result, _) = site.over(None, |channel| {
            let mut session = begin(channel, own)?;
            session.give_keys(&own.offered(), &mut |_, _| ())?;
            inputs.iter().map(|&i| session.send(&[i; CIPHERTEXT], false)).collect::<Result<Vec<_>, _>>()
        });
        result
    };
    later(&own, &[1]).unwrap();
    reached.recv_timeout(PATIENCE).unwrap();
    says(later(&own, &[2, 3]), "2 inputs of this client wait already");
    let (result, served) = site.over(None, |channel| {
        let mut session = begin(channel, &other)?;
        session.give_keys(&other.offered(), &mut |_, _| ())?;
        session.send(&[7; CIPHERTEXT], true)?;
        says(later(&third, &[1]), "3 inputs wait already");
        for _ in 0..3 {
            go_on.send(()).unwrap();
        }
        let mut told = Vec::new();
        let answer = session.answer(&mut |progress| told.push(progress))?;
        session.leave()?;
        Ok::<_, EngineError>((answer, told))
    });
    served.unwrap();
    let (answer, told) = result.unwrap();
    assert_eq!(answer, other.expected(&[7; CIPHERTEXT]));
    // Two were before it; how much of what follows is seen depends on who is faster.
    assert_eq!(told[0], Progress::Queued(2));
    assert!(told.is_sorted_by_key(|p| match p {
        Progress::Queued(ahead) => (0, 9 - ahead),
        Progress::Layers(done, _) => (1, *done),
    }));
}

/// The connection ends while the answer is computed: it is there for the next session.
#[test]
fn a_cut_during_the_run_loses_nothing() {
    let scratch = Scratch::new("run-cut");
    let (gate, reached, go_on) = gate();
    let sums = Sums { gate: Some(gate), ..Sums::default() };
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let own = scratch.keys(1);
    let (ticket, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        let ticket = session.send(&[6; CIPHERTEXT], true).unwrap();
        reached.recv_timeout(PATIENCE).unwrap();
        ticket
    });
    // The session has ended, and the evaluation goes on.
    served.unwrap_err();
    go_on.send(()).unwrap();
    let (answer, _) = site.over(None, |channel| {
        let mut session = begin(channel, &own)?;
        session.collect(ticket)?;
        session.answer(&mut |_| ())
    });
    assert_eq!(answer.unwrap(), own.expected(&[6; CIPHERTEXT]));
}

#[test]
fn failures_of_the_evaluation_are_told_and_logged() {
    let scratch = Scratch::new("failures");
    let site = Site::plain(&scratch);
    let own = scratch.keys(1);
    says(site.ask(&own, &[[255; CIPHERTEXT]]), "the first byte is 255");
    says(site.ask(&own, &[[254; CIPHERTEXT]]), "an answer of 3 bytes");
    assert_eq!(site.ask(&own, &[[1; CIPHERTEXT]]).unwrap().0.sent, 0, "its keys were good");
    // Keys that are none do not stay.
    let mut bad = scratch.keys(2);
    bad.bytes[0] = 0xee;
    std::fs::write(&bad.path, &bad.bytes).unwrap();
    bad.hash = *blake3::hash(&bad.bytes).as_bytes();
    for _ in 0..2 {
        says(site.ask(&bad, &[[1; CIPHERTEXT]]), "these are no keys");
        assert_eq!(scratch.kept().iter().filter(|name| name.ends_with(".keys")).count(), 1);
    }
    assert_eq!(site.logged.lock().unwrap().len(), 4);
}

#[test]
fn who_waits_is_told_when_the_server_ends() {
    let scratch = Scratch::new("end");
    let (gate, reached, go_on) = gate();
    let sums = Sums { gate: Some(gate), ..Sums::default() };
    let site = Site::new(&scratch, sums, 10 * KEYS as u64, DeskLimits::default());
    let own = scratch.keys(1);
    let (result, served) = site.over(None, |channel| {
        let mut session = begin(channel, &own)?;
        session.give_keys(&own.offered(), &mut |_, _| ())?;
        session.send(&[1; CIPHERTEXT], true)?;
        reached.recv_timeout(PATIENCE).unwrap();
        drop(go_on);
        site.service.end();
        session.answer(&mut |_| ()).map(|_| ())
    });
    says(result, "shutting down");
    served.unwrap_err();
    says(site.ask(&own, &[[1; CIPHERTEXT]]), "shutting down");
}

#[test]
fn clients_of_the_other_protocol_are_told() {
    let scratch = Scratch::new("other");
    let site = Site::plain(&scratch);
    let (result, served) = site.over(None, |channel| {
        jaguar_engine::client::connect(channel, &jaguar_engine::client::Limits::default()).map(|_| ())
    });
    for result in [result, served] {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("interactive") && text.contains("one-round 'convfhe' version 1"), "{text}");
    }
}

#[test]
fn what_was_done_is_told() {
    let scratch = Scratch::new("notices");
    let site = Site::plain(&scratch);
    let own = scratch.keys(1);
    let (ours, theirs) = memory_pair();
    let notices = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut heard = Vec::new();
            site.service.serve(theirs, None, &mut |notice| heard.push(notice)).unwrap();
            heard
        });
        let mut session = begin(ours, &own).unwrap();
        session.give_keys(&own.offered(), &mut |_, _| ()).unwrap();
        session.send(&[1; CIPHERTEXT], true).unwrap();
        session.answer(&mut |_| ()).unwrap();
        session.collect(Ticket([0; 32])).unwrap();
        session.answer(&mut |_| ()).unwrap_err();
        session.leave().unwrap();
        server.join().unwrap()
    });
    let all = KEYS as u64;
    assert!(
        matches!(
            notices[..],
            [
                Notice::Keys { bytes, received },
                Notice::Asked { ahead: 0, stays: true },
                Notice::Answered { bytes: 8, .. },
                Notice::NoAnswer,
            ] if bytes == all && received == all
        ),
        "{notices:?}"
    );
}
