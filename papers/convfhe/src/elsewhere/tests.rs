//! A server's side and the other one, in two threads over a folder.

use std::sync::Mutex;
use std::thread;

use jaguar_ckks::{Context, SecretKey};
use jaguar_graph::network::{Filter, ImageSpec, Resize};
use jaguar_ring::cpu::Cpu;

use super::*;
use crate::keys::{make, make_secret};
use crate::model::Inputs;
use crate::network::tests::{inputs, small};
use crate::network::{Public, key_specs};
use crate::session::Facing;
use crate::sets::Set;

fn facing(name: &str, shape: [usize; 3]) -> Facing {
    let image = ImageSpec {
        resize: Resize::Exact,
        filter: Filter::Bilinear,
        bgr: false,
        mean: vec![0.0; shape[0]],
        factor: vec![1.0; shape[0]],
    };
    Facing {
        name: name.to_owned(),
        shape,
        layout_dims: vec![],
        channels_last: false,
        image,
        affine: vec![],
        parts: vec![],
        labels: vec![],
        first: None,
    }
}

static GO_ON: AtomicBool = AtomicBool::new(false);

/// A model in a file, a client's keys, an encrypted input, and the server's side.
struct Site {
    folder: PathBuf,
    elsewhere: Elsewhere,
    secret: SecretKey,
    public: Public,
    hash: [u8; 32],
    input: Vec<u8>,
}

impl Site {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("jaguar-elsewhere-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let set = Set::by_name("insecure-n10").unwrap();
        let samples = inputs(&small(), 3);
        let given = Inputs { samples: &samples, margin: 1.5, stress: &[], stress_margin: 1.0 };
        let (plan, _) = Compiled::calibrate(&set, small(), given).unwrap();
        let facing = facing(&small().name, small().input);
        let model = folder.join("model");
        Compiled::write(&set, &plan, facing, &model).unwrap();
        let id = Compiled::read(&model).unwrap().1;
        let public = plan.public(set.params()).unwrap();
        let context = Context::new(Cpu::detect(), set.params().clone(), 1).unwrap();
        let secret = make_secret(&context, &folder.join("secret")).unwrap();
        let hash = make(&context, &secret, &key_specs(&context).unwrap(), &folder.join("keys")).unwrap();
        let input = public.encrypt(&secret, &samples[0]).unwrap();
        let figures = Figures::new(&set, &plan, 1).unwrap();
        let elsewhere = Elsewhere::new(&folder.join("work"), (&model, id), figures, 2).unwrap();
        Self { folder, elsewhere, secret, public, hash, input }
    }

    fn path(&self, ticket: u8, kind: &str) -> PathBuf {
        self.folder.join("work").join(format!("{}.{kind}", hex(&[ticket; 32])))
    }

    /// The server asks, and waits.
    fn ask(&self, ticket: u8, stop: &AtomicBool) -> Result<Vec<u8>, Failure> {
        let keys = self.folder.join("keys");
        let mut evaluator = self.elsewhere.open(OfClient { path: &keys, hash: &self.hash }, stop)?;
        evaluator.answer((Ticket([ticket; 32]), &self.input), &mut |_, _| (), stop)
    }

    /// Waits until the task is there.
    fn task(&self, ticket: u8) -> PathBuf {
        let path = self.path(ticket, "task");
        while !path.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        path
    }

    /// Asks, and evaluates what was asked.
    fn answered(&self, ticket: u8) -> Result<Vec<u8>, Failure> {
        thread::scope(|scope| {
            let asked = scope.spawn(|| self.ask(ticket, &GO_ON));
            evaluate(&self.task(ticket), 1, || ()).unwrap();
            asked.join().unwrap()
        })
    }

    fn is_answer(&self, answer: &[u8]) {
        assert_eq!(self.public.decrypt(&self.secret, answer).unwrap().len(), self.public.outputs);
    }

    /// Names of what is left in the folder.
    fn left(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.join("work")).unwrap();
        names.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An evaluation that another process does gives an answer, and leaves nothing.
#[test]
fn what_is_evaluated_elsewhere_is_the_answer() {
    let it = Site::new("answer");
    assert_eq!((it.elsewhere.at_once(), it.elsewhere.is_here()), (2, false));
    it.is_answer(&it.answered(1).unwrap());
    assert_eq!(it.left(), [""; 0]);
    // Layers are told.
    let seen = Mutex::new(Vec::new());
    let keys = it.folder.join("keys");
    let mut evaluator = it.elsewhere.open(OfClient { path: &keys, hash: &it.hash }, &GO_ON).unwrap();
    thread::scope(|scope| {
        let mut progress = |done, of| seen.lock().unwrap().push((done, of));
        let evaluator = &mut evaluator;
        let input = &it.input;
        let asked = scope.spawn(move || evaluator.answer((Ticket([2; 32]), input), &mut progress, &GO_ON));
        let task = it.task(2);
        std::fs::write(it.path(2, "progress"), "[1,2]").unwrap();
        while seen.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        // Who was begun before, and is late, does no harm.
        evaluate(&task, 1, || ()).unwrap();
        it.is_answer(&asked.join().unwrap().unwrap());
        assert!(evaluate(&task, 1, || ()).unwrap_err().to_string().contains("there is none"));
    });
    assert_eq!(seen.lock().unwrap()[0], (1, 2));
    assert_eq!(it.left(), [""; 0]);
}

/// The server ends meanwhile: the evaluation goes on, and the next server has its answer, to the bit.
#[test]
fn the_next_server_has_what_the_last_one_asked_for() {
    let it = Site::new("restart");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let asked = scope.spawn(|| it.ask(3, &stop));
        it.task(3);
        stop.store(true, Ordering::Relaxed);
        assert!(asked.join().unwrap().unwrap_err().told.contains("stopped"));
    });
    evaluate(&it.path(3, "task"), 1, || ()).unwrap();
    let answer = std::fs::read(it.path(3, "answer")).unwrap();
    assert_eq!(it.ask(3, &GO_ON).unwrap(), answer, "it is not evaluated again");
    it.is_answer(&answer);
    assert_eq!(it.left(), [""; 0]);
}

/// What no other machine would do better is told to whom it concerns; all else leaves the task for another try.
#[test]
fn what_fails_is_told_or_tried_again() {
    let it = Site::new("failures");
    // Of the operator's: nothing is left beside the task.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| it.ask(4, &stop));
        it.task(4);
        stop.store(true, Ordering::Relaxed);
    });
    let (task, keys, model) = (it.path(4, "task"), it.folder.join("keys"), it.folder.join("model"));
    let fails = |part: &str| {
        let told = evaluate(&task, 1, || ()).unwrap_err().to_string();
        assert!(told.contains(part), "{part}: {told}");
        let mut left = it.left();
        left.sort();
        assert_eq!(left, ["input", "task"].map(|kind| format!("{}.{kind}", hex(&[4; 32]))));
    };
    let moved = |path: &Path, part: &str| {
        std::fs::rename(path, it.folder.join("away")).unwrap();
        fails(part);
        std::fs::rename(it.folder.join("away"), path).unwrap();
    };
    moved(&keys, "opening");
    moved(&model, "reading");
    let (words, text) = (std::fs::read(&task).unwrap(), std::fs::read_to_string(&model).unwrap());
    std::fs::write(&model, format!("{text} ")).unwrap();
    fails("and the task is for");
    std::fs::write(&model, text).unwrap();
    std::fs::write(&task, &words[1..]).unwrap();
    fails("no task of an evaluation");
    std::fs::write(&task, &words).unwrap();
    let wrong = evaluate(&it.folder.join("work/x.task"), 1, || ()).unwrap_err().to_string();
    assert!(wrong.contains("its name"), "{wrong}");
    // Of the client's.
    let mut bytes = std::fs::read(&keys).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&keys, bytes).unwrap();
    evaluate(&task, 1, || ()).unwrap();
    let failure = it.ask(4, &GO_ON).unwrap_err();
    assert!(failure.told.contains("spoilt keys: ") && failure.spoilt_keys, "{failure:?}");
    assert_eq!(it.left(), [""; 0]);
}

/// What others write is no more than bytes.
#[test]
fn what_is_no_answer_is_refused() {
    let it = Site::new("foreign");
    let found = |kind: &str, bytes: &[u8]| {
        std::fs::create_dir_all(it.folder.join("work")).unwrap();
        std::fs::write(it.path(5, "task"), "x").unwrap();
        std::fs::write(it.path(5, kind), bytes).unwrap();
        it.ask(5, &GO_ON)
    };
    // (Lengths are the desk's affair; no more is read than tells.)
    let long = vec![0; 3 * it.elsewhere.answer_bytes()];
    assert_eq!(found("answer", &long).unwrap().len(), it.elsewhere.answer_bytes() + 1);
    assert!(found("failure", b"{").unwrap_err().told.contains("ask its operator"));
    let told = found("failure", br#"{"told": "no", "detail": "never"}"#).unwrap_err();
    assert_eq!((told.told.as_str(), told.detail.as_str(), told.spoilt_keys), ("no", "never", false));
    // What is old goes with the next server.
    let old = it.path(6, "answer");
    std::fs::write(&old, "x").unwrap();
    let other = it.folder.join("work/notes.txt");
    std::fs::write(&other, "x").unwrap();
    for path in [&old, &other] {
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let Elsewhere { folder, model, model_id, figures, .. } = &it.elsewhere;
    Elsewhere::new(folder, (model, *model_id), figures.clone(), 1).unwrap();
    assert_eq!(it.left(), ["notes.txt"]);
}
