//! Hints: fetched once, resumed, shared between sessions.

use std::collections::HashSet;
use std::time::Duration;

use super::*;

/// The hint of the only model in `cache`.
fn hint_in(cache: &Scratch) -> std::path::PathBuf {
    std::fs::read_dir(cache.0.join("hints")).unwrap().next().unwrap().unwrap().path()
}

/// Hears of the hint only.
struct HintProgress(Vec<(u64, u64)>);

impl crate::progress::Progress for HintProgress {
    fn step(&mut self, _: jaguar_wire::Stage, _: usize, _: usize, _: &str) {}
    fn hint(&mut self, done: u64, total: u64) {
        self.0.push((done, total));
    }
}

/// A download that was cut off goes on where it ended, whether a query takes the hint on its way or it is fetched alone.
#[test]
fn the_hint_is_resumed() {
    let cache = Scratch::new("resume");
    let service = service(everything());
    let x = input(6, 3 * 17 * 15);
    let fetch = |with_query: bool| {
        let mut progress = HintProgress(Vec::new());
        let (there, served) = session(&service, |channel| {
            let mut ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
            let there = ready.hint();
            if with_query {
                ready = ready.prepare_query(&mut progress).unwrap().run(&x, &mut NoProgress).unwrap().2;
            } else {
                ready = ready.fetch_hint(&mut progress).unwrap();
            }
            assert_eq!(ready.hint(), (there.1, there.1));
            // Nothing is missing now: asking again brings nothing.
            let steps = progress.0.len();
            ready.fetch_hint(&mut progress).unwrap().leave().unwrap();
            assert_eq!(progress.0.len(), steps);
            there
        });
        served.unwrap();
        (there, progress.0)
    };
    let ((done, total), heard) = fetch(true);
    assert_eq!((done, total), (0, service.plan().hint_bytes() as u64));
    assert_eq!(heard.len(), crate::hint::blocks(service.plan()).len());
    assert!(heard.is_sorted() && heard.last() == Some(&(total, total)));
    let file = hint_in(&cache);
    let whole = std::fs::read(&file).unwrap();
    // Cut in the middle of a block, and then with a damaged byte: what is sound stays.
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle] ^= 1;
    for (broken, with_query) in [
        (&whole[..middle], true),
        (&whole[..middle], false),
        (&damaged, true),
        (&damaged, false),
        (&[], false),
    ] {
        std::fs::write(&file, broken).unwrap();
        let ((done, total), heard) = fetch(with_query);
        assert_eq!(done > 0, !broken.is_empty(), "resumed at {done} of {total}");
        assert!(done < total && heard[0].0 > done);
        let again = std::fs::read(&file).unwrap();
        if !broken.is_empty() {
            assert_eq!(again, whole, "the same bytes whenever they are fetched");
        }
    }
}

/// A connection that ends, or carries a flipped bit, in the middle of a first query's hint: what came before it is kept, the
/// next query takes the rest, and gets the right answer.
#[test]
fn a_first_query_that_was_cut_off_leaves_its_hint() {
    let x = input(6, 3 * 17 * 15);
    let service = service(everything());
    let blocks = crate::hint::blocks(service.plan());
    let total: u64 = blocks.iter().map(|b| b.bytes as u64).sum();
    // How many bytes the client receives before and with the hint.
    let attempt = |cache: &Scratch, fault: Fault| {
        let (a, b) = memory_transports();
        let (recorder, transcript) = Recorder::hashing(a);
        thread::scope(|scope| {
            let server = scope.spawn(|| service.serve(Channel::new(b), &mut |_| ()));
            let mut before = 0;
            let result = connect(Channel::new(Faulty::new(recorder, fault)), &Limits::default())
                .and_then(|connected| connected.prepare_client(&cache.0))
                .and_then(|ready| {
                    before = transcript.lengths().1;
                    ready.prepare_query(&mut NoProgress)
                });
            let after = transcript.lengths().1;
            let result = result.and_then(|prepared| {
                let (prediction, report, ready) = prepared.run(&x, &mut NoProgress)?;
                ready.leave()?;
                Ok((prediction, report))
            });
            let _ = server.join().unwrap();
            (before, after, result)
        })
    };
    let clean = Scratch::new("cut-clean");
    let (before, after, sound) = attempt(&clean, Fault::Silence(u64::MAX));
    let (Prediction::Logits(sound), _) = sound.unwrap() else { panic!("logits were asked for") };
    assert!(after - before > total);
    let whole = std::fs::read(hint_in(&clean)).unwrap();
    let (mut kept, mut noticed) = (Vec::new(), 0);
    for twelfth in 0..12 {
        let cache = Scratch::new(&format!("cut-{twelfth}"));
        let byte = before + (after - before) * twelfth / 12 + 100;
        let fault =
            if twelfth % 2 == 0 { Fault::CutReceived(byte) } else { Fault::FlipReceived { byte, bit: 3 } };
        let error = attempt(&cache, fault).2.map(|_| ());
        if twelfth % 2 == 0 {
            assert!(error.is_err(), "cut at byte {byte} of {after}");
        } else if let Err(error) = error {
            // A bit of the hint is noticed at once; elsewhere it may only spoil the result.
            assert!(error.to_string().contains("arrived damaged"), "{error}");
            noticed += 1;
        }
        let file = hint_in(&cache);
        let held = std::fs::read(&file).unwrap();
        if twelfth % 2 == 0 {
            kept.push(held.len());
        }
        let (_, _, answer) = attempt(&cache, Fault::Silence(u64::MAX));
        let (Prediction::Logits(logits), report) = answer.unwrap() else { panic!("logits were asked for") };
        assert!(logits.iter().zip(&sound).all(|(a, b)| (a - b).abs() < 64), "{logits:?} {sound:?}");
        // Only what was missing came, and every block that was there stayed.
        let missing: u64 = (whole.len() - held.len()) as u64;
        assert_eq!(report.client.bytes_down - setup_bytes(&service, &clean), missing);
        assert_eq!(std::fs::read(&file).unwrap()[..held.len()], held);
    }
    assert!(kept.is_sorted() && kept[0] < kept[5], "{kept:?}");
    assert!(noticed > 0);
}

/// What a client receives in the client stage when its hint is complete.
fn setup_bytes(service: &Service, cache: &Scratch) -> u64 {
    let (report, served) = session(service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        let prepared = ready.prepare_query(&mut NoProgress).unwrap();
        let (_, report, ready) = prepared.run(&[0; 3 * 17 * 15], &mut NoProgress).unwrap();
        ready.leave().unwrap();
        report
    });
    served.unwrap();
    report.client.bytes_down
}

/// Any number of processes may use a complete hint; while one fetches, the others are told.
#[test]
fn the_hint_file_is_shared_when_complete() {
    let cache = Scratch::new("share");
    let service = service(everything());
    let place = HintPlace::from(&cache.0);
    let open = || Hint::open(&place, service.model(), service.plan(), [1; 32], &mut NoProgress);
    let fetching = open().unwrap();
    let Err(error) = open() else { panic!("two processes fetch into one file") };
    assert!(error.to_string().contains("being fetched"), "{error}");
    drop(fetching);
    let (_, served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&cache.0).unwrap();
        assert!(open().is_err());
        let ready = ready.fetch_hint(&mut NoProgress).unwrap();
        let mut other = open().unwrap();
        assert_eq!(other.have(), other.blocks().len());
        assert_eq!(other.nonce(), open().unwrap().nonce());
        let first = other.blocks()[0].node;
        assert!(!other.layer(first).unwrap().is_empty());
        ready.leave().unwrap();
    });
    served.unwrap();
}

/// A file of a caller's: bytes in memory, of which there may be so many.
#[derive(Clone, Default)]
pub(super) struct Plain {
    bytes: Arc<std::sync::Mutex<Vec<u8>>>,
    most: usize,
}

impl Plain {
    pub(super) fn of(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    pub(super) fn opened(&self) -> HintPlace {
        let file = self.clone();
        HintPlace::Opened(Arc::new(move || Some(Box::new(file.clone()) as Box<dyn crate::hint::HintFile>)))
    }
}

impl crate::hint::HintFile for Plain {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        let all = self.bytes.lock().unwrap();
        let there = all.get(at as usize..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(there.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        let mut all = self.bytes.lock().unwrap();
        assert_eq!(at as usize, all.len(), "nothing but the end is written");
        if all.len() + bytes.len() > self.most {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        all.extend_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, len: u64) -> std::io::Result<()> {
        self.bytes.lock().unwrap().truncate(len as usize);
        Ok(())
    }

    fn complete(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn remove(&mut self) {
        self.bytes.lock().unwrap().clear();
    }

    fn name(&self) -> String {
        "a file of the test's".into()
    }
}

/// A small hint is read from its file by the first two queries of a session, and checked by both; then it is in memory.
#[test]
fn a_small_hint_stays_in_memory_from_the_second_reading_on() {
    let service = service(everything());
    let file = Plain::of(1 << 30);
    let (_, served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(file.opened()).unwrap();
        ready.fetch_hint(&mut NoProgress).unwrap().leave().unwrap();
    });
    served.unwrap();
    let open =
        || Hint::open(&file.opened(), service.model(), service.plan(), [1; 32], &mut NoProgress).unwrap();
    let (mut hint, mut once) = (open(), open());
    let node = hint.blocks()[0].node;
    let first = hint.layer(node).unwrap();
    assert_eq!(once.layer(node).unwrap(), first);
    assert_eq!(hint.layer(node).unwrap(), first);
    // One byte of the first block becomes another one.
    file.bytes.lock().unwrap()[200] ^= 1;
    assert_eq!(hint.layer(node).unwrap(), first);
    let error = once.layer(node).expect_err("one reading is not enough").to_string();
    assert!(error.contains("is damaged"), "{error}");
}

/// A hint in a file that the caller opens is that of the cache folder: the same bytes, checked alike. What the file does not take is
/// done without.
#[test]
fn a_hint_is_kept_in_a_file_that_the_caller_opens() {
    let service = service(everything());
    let x = input(6, 3 * 17 * 15);
    let whole = service.plan().hint_bytes() as u64;
    // How many bytes of hint were there before, and what came.
    let ask = |place: HintPlace| {
        let (came, served) = session(&service, |channel| {
            let ready = connect(channel, &Limits::default()).unwrap().prepare_client(place).unwrap();
            let (there, total) = ready.hint();
            assert_eq!(total, whole);
            let (prediction, _, ready) =
                ready.prepare_query(&mut NoProgress).unwrap().run(&x, &mut NoProgress).unwrap();
            ready.leave().unwrap();
            let Prediction::Logits(logits) = prediction else { panic!("logits were asked for") };
            (there, logits)
        });
        served.unwrap();
        came
    };
    let (_, sound) = ask(HintPlace::Memory);
    let right = |logits: Vec<i64>| logits.iter().zip(&sound).all(|(a, b)| (a - b).abs() < 64);
    let file = Plain::of(1 << 30);
    for there in [0, whole] {
        let (before, logits) = ask(file.opened());
        assert_eq!(before, there);
        assert!(right(logits));
    }
    let kept = file.bytes.lock().unwrap().clone();
    for (what, change) in [
        ("a damaged byte", (|bytes| *bytes.last_mut().unwrap() ^= 1) as fn(&mut Vec<u8>)),
        ("a part", |bytes| bytes.truncate(bytes.len() / 2)),
        ("another model's", |bytes| bytes[8] ^= 1),
        ("a part of a head", |bytes| bytes.truncate(100)),
        ("too much", |bytes| bytes.extend_from_slice(&[7; 999])),
    ] {
        change(&mut file.bytes.lock().unwrap());
        let (before, logits) = ask(file.opened());
        assert_eq!(before == whole, what == "too much", "{what}: {before}");
        assert!(right(logits), "{what}");
        assert_eq!(file.bytes.lock().unwrap().len(), kept.len(), "{what}");
        assert_eq!(ask(file.opened()).0, whole, "{what}");
    }
    for most in [0, 100, kept.len() / 2, kept.len() - 1] {
        let full = Plain::of(most);
        let (before, logits) = ask(full.opened());
        assert_eq!(before, 0);
        assert!(right(logits), "{most}");
        assert!(full.bytes.lock().unwrap().is_empty(), "{most}: nothing that is of no use stays");
    }
    assert!(right(ask(HintPlace::Opened(Arc::new(|| None))).1));
}

/// A clock that stands still until a test moves it.
#[derive(Default)]
struct TestClock(std::sync::atomic::AtomicU64);

impl jaguar_wire::Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

/// Two hints at once, then one a minute: who is beyond that hears when to come back, whatever it calls itself, and before
/// any of the hint is computed.
#[test]
fn hints_are_made_at_a_pace() {
    let number = |n| std::num::NonZeroU32::new(n).unwrap();
    let limits = crate::server::Limits { hints_at_once: number(2), hints_per_hour: number(60) };
    let service = service(everything()).with_limits(limits);
    let clock = Arc::new(TestClock::default());
    // With a name of its own, or that of the hint in a folder; `Ok` is how many bytes of hint came.
    let ask = |place: HintPlace, with_query: bool| -> Result<u64, String> {
        let (client_end, server_end) = memory_transports();
        let client_end = Channel::new(client_end);
        let server_end = Channel::with_clock(server_end, clock.clone());
        thread::scope(|scope| {
            let server = scope.spawn(|| service.serve(server_end, &mut |_| ()));
            let mut heard = HintProgress(Vec::new());
            let result = connect(client_end, &Limits::default())
                .and_then(|connected| connected.prepare_client(place))
                .and_then(|ready| match with_query {
                    true => ready.prepare_query(&mut heard).map(|_| ()),
                    false => ready.fetch_hint(&mut heard)?.leave(),
                });
            let served = server.join().unwrap();
            let came = heard.0.last().map_or(0, |&(done, _)| done);
            match result {
                Ok(()) => Ok(came),
                Err(e) => {
                    assert!(matches!(served, Err(EngineError::HintsSpent { .. })), "{served:?}");
                    assert_eq!(came, 0, "nothing is computed in vain");
                    Err(e.to_string())
                }
            }
        })
    };
    let whole = service.plan().hint_bytes() as u64;
    // Who asks for nothing spends nothing.
    let (left, served) = session(&service, |channel| {
        connect(channel, &Limits::default()).unwrap().prepare_client(HintPlace::Memory).unwrap().leave()
    });
    left.and(served).unwrap();
    let cache = Scratch::new("pace");
    assert_eq!(ask(HintPlace::from(&cache.0), false), Ok(whole));
    assert_eq!(ask(HintPlace::Memory, true), Ok(whole));
    for with_query in [false, true] {
        let refused = ask(HintPlace::Memory, with_query).unwrap_err();
        assert!(refused.contains("come back in 60 s"), "{refused}");
    }
    // A client with its hint asks for none.
    assert_eq!(ask(HintPlace::from(&cache.0), true), Ok(0));
    // A client that has lost its hint, and asks under its old name.
    let file = hint_in(&cache);
    let sound = std::fs::read(&file).unwrap();
    std::fs::write(&file, &sound[..sound.len() - service.plan().hint_bytes()]).unwrap();
    assert!(ask(HintPlace::from(&cache.0), false).unwrap_err().contains("come back in 60 s"));
    clock.0.store(60, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(ask(HintPlace::from(&cache.0), false), Ok(whole));
    assert_eq!(std::fs::read(&file).unwrap(), sound);
    assert!(ask(HintPlace::Memory, false).is_err());
}

/// What a server sends to a client with this name, of this model, is part of the protocol: a client that was cut off goes on with
/// a server of the same version, and a hint on its disk serves for years.
#[test]
fn the_bytes_of_a_hint_are_those_of_the_protocol_version() {
    // Every figure is written down here, so that nothing but the protocol can change the bytes.
    let mut b = Builder::new([2, 6, 5]);
    let spec = Linear {
        out_channels: 3,
        kernel: [3, 2],
        stride: [1, 2],
        dilation: [1, 1],
        pads: [1, 0, 1, 1],
        groups: 1,
        shift: 12,
        max_exponent: 1,
        blocks: None,
    };
    let conv = b.add(Op::new(spec), &[0], [3, 6, 3]);
    let weights = (0..36).map(|i| i * 37 % 401 - 200).collect();
    let bias = Bias::PerChannel(vec![1000, -2000, 30_000]);
    b.weights[conv] = Some(Weights { weights, exponents: vec![0, 1, 0], bias });
    // A secret of 32 times 9 in place of the fresh one, which ends the file.
    let folder = Scratch::new("known-hint");
    let path = folder.0.join("model.jaguar");
    b.bundle().write(&path).unwrap();
    let mut file = std::fs::read(&path).unwrap();
    let end = file.len();
    file[end - 32..].fill(9);
    let hash = blake3::hash(&file[40..]);
    file[8..40].copy_from_slice(hash.as_bytes());
    std::fs::write(&path, &file).unwrap();
    let service = service(Bundle::read(&path, kit().operators()).unwrap());
    let place = HintPlace::from(&folder.0);
    drop(Hint::open(&place, service.model(), service.plan(), [7; 32], &mut NoProgress).unwrap());
    let (_, served) = session(&service, |channel| {
        let ready = connect(channel, &Limits::default()).unwrap().prepare_client(&folder.0).unwrap();
        ready.fetch_hint(&mut NoProgress).unwrap().leave().unwrap();
    });
    served.unwrap();
    let mut hint = Hint::open(&place, service.model(), service.plan(), [8; 32], &mut NoProgress).unwrap();
    assert_eq!(hint.nonce(), [7; 32]);
    let bytes = hint.layer(conv).unwrap();
    assert_eq!(bytes.len(), service.plan().hint_bytes());
    assert_eq!(
        (PROTOCOL_VERSION, blake3::hash(&bytes).to_hex().as_str()),
        (36, "5acc2bd964343a17c27a438552b80b3e694c416254012cff1c7d671dd16f3a9e"),
        "the bytes of hints have changed: raise jaguar_plan::PROTOCOL_VERSION, then record version and hash here"
    );
}

/// Another layout of the same model names other zero-encryptions: their difference would cancel.
#[test]
fn hint_keys_follow_the_layout() {
    let bundle = everything();
    let network = &bundle.model.network;
    let plans = [(2048, 48), (2048, 47), (4096, 48)].map(|(ring_dim, modulus_bits)| {
        let choices = Choices { ring_dim, modulus_bits, ..standard(&bundle) };
        Plan::new(network, choices).unwrap().hint_digest()
    });
    let keys: HashSet<_> = plans.iter().map(|p| *bundle.hint_key(&[7; 32], p)).collect();
    assert_eq!(keys.len(), 3);
    assert_ne!(*bundle.hint_key(&[7; 32], &plans[0]), *bundle.hint_key(&[8; 32], &plans[0]));
    assert_eq!(*bundle.hint_key(&[7; 32], &plans[0]), *bundle.hint_key(&[7; 32], &plans[0]));
}

/// Other digits change what passes online, and leave a client's hint as it is.
#[test]
fn the_digits_of_comparisons_do_not_concern_the_hint() {
    let bundle = everything();
    let plan = |digit| {
        let standard = standard(&bundle);
        let digits = vec![digit; standard.digits.len()];
        Plan::new(&bundle.model.network, Choices { digits, ..standard }).unwrap()
    };
    let (three, four) = (plan(3), plan(4));
    assert_eq!(three.hint_digest(), four.hint_digest());
    assert_ne!(three.digest(), four.digest());
    let (three, four) = (three.nonlinear_cost(), four.nonlinear_cost());
    assert!(three.up + three.down < four.up + four.down && three.client_rounds > four.client_rounds);
}
