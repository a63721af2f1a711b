//! A process that is killed uses nothing again: no correlation, no mask, no key of a query. Client and server are two
//! processes; one of them is killed (SIGKILL) in the middle of a session and started anew. All that both have sent is
//! recorded on its way. Of the masked values, ciphertexts and corrections in it, nothing comes twice
//! (`jaguar_wire::double::repeats`). The same check finds processes whose randomness is fixed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use jaguar_engine::bundle::Bundle;
use jaguar_engine::client::{Limits, Reveal, connect};
use jaguar_engine::progress::NoProgress;
use jaguar_engine::server::Service;
use jaguar_plan::Choices;
use jaguar_ring::prg::with_insecure_fixed_randomness;
use jaguar_wire::Channel;
use jaguar_wire::double::repeats::{Repeat, Repeats};
use jaguar_wire::double::{Frozen, Recorder};
use jaguar_wire::tcp::{self, Listener, Tcp};

use super::networks::{bundle, input, kit};

const WATCHDOG: Duration = Duration::from_secs(300);

/// Bytes of a greeting: the first line, whether there is a binding, and it, a wait. The client's has a token's length behind
/// it.
const GREETING: usize = 16 + 33 + 2 + 1;

/// The client's choice, with the digest of its plan and its name, is shorter than this.
const ACCEPTANCE: usize = 112;

// ---- The processes ----

/// Not a test of its own: what a child process runs.
#[test]
#[ignore = "run by the tests beside it, as a process"]
fn role() {
    let Ok(role) = std::env::var("JAGUAR_FAULT_ROLE") else { return };
    let told = |name: &str| std::env::var(name).expect("told");
    // Every process is its own thread's: one stream of randomness for a client, one for each connection of a server.
    let weak = std::env::var("JAGUAR_FAULT_WEAK").is_ok_and(|roles| roles.contains(&role));
    let run = move |work: &mut dyn FnMut()| match weak {
        true => with_insecure_fixed_randomness([7; 32], work),
        false => work(),
    };
    let folder = PathBuf::from(told("JAGUAR_FAULT_FOLDER"));
    match &*role {
        "server" => {
            let bundle = Bundle::read(&folder.join("model"), kit().operators()).expect("a model");
            let backend = kit().backend(&told("JAGUAR_FAULT_BACKEND")).expect("a backend");
            let choices = Choices::standard(&bundle.model.network, backend);
            let service = Arc::new(Service::new(bundle, choices, Reveal::Logits).expect("a service"));
            let listener = Listener::bind("127.0.0.1:0").expect("a port");
            println!("\nlistening on {}", listener.address().expect("bound"));
            while let Ok(incoming) = listener.accept() {
                let service = Arc::clone(&service);
                thread::spawn(move || {
                    let Ok(tcp) = incoming.greet(tcp::Options::default()) else { return };
                    let mut tcp = Some(tcp);
                    run(&mut || {
                        let tcp = tcp.take().expect("once");
                        // (Times that it measures are zeros: they are no randomness.)
                        let channel = Channel::with_clock(tcp, Arc::new(Frozen::default()));
                        let _ = service.serve(channel, &mut |_| ());
                    });
                });
            }
        }
        _ => run(&mut || {
            let tcp = Tcp::connect(&*told("JAGUAR_FAULT_SERVER"), tcp::Options::default()).expect("a server");
            let connected = connect(&kit(), Channel::new(tcp), &Limits::default()).expect("greeted");
            let ready = connected.prepare_client(folder.join("cache")).expect("set up");
            let mut ready = ready.fetch_hint(&mut NoProgress).expect("a hint");
            if role == "client" {
                // One input all the time: masks alone make the messages differ.
                let (next, kept) = ready.keep_query(&mut NoProgress).expect("kept");
                let prepared = next.prepare_query(&mut NoProgress).expect("prepared");
                let (_, _, next) = prepared.run(&input(0), &mut NoProgress).expect("an answer");
                let kept = kept.expect("room");
                ready = next.run_kept(kept, &input(0), &mut NoProgress).expect("an answer").2;
            }
            ready.leave().expect("left");
            println!("\ndone");
        }),
    }
}

/// A child, killed when dropped.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(role: &str, folder: &Path, more: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "killed::role", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("JAGUAR_FAULT_ROLE", role).env("JAGUAR_FAULT_FOLDER", folder).envs(more.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { child, lines }
    }

    /// What stands behind `start` in a line of its output.
    fn line(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(WATCHDOG).expect("it says so before it ends");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

// ---- What is on its way ----

/// The payloads of the data frames that each side has sent, the client first.
type Recording = Arc<Mutex<[Vec<Vec<u8>>; 2]>>;

/// Passes one connection on to `server`, and records it. After `stop` = (side, frames) of a side's frames nothing
/// passes any more, and `reached` hears of it.
fn relay(server: &str, stop: Option<(usize, usize)>) -> (String, Recording, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let (recording, server) = (Recording::default(), server.to_owned());
    let (tell, reached) = channel();
    let record = Arc::clone(&recording);
    thread::spawn(move || {
        let Ok((client, _)) = listener.accept() else { return };
        let Ok(server) = TcpStream::connect(server) else { return };
        for (side, from, to) in [(0, &client, &server), (1, &server, &client)] {
            from.set_nodelay(true).expect("a socket");
            let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
            let (record, tell) = (Arc::clone(&record), tell.clone());
            let stop = stop.filter(|stop| stop.0 == side).map(|stop| stop.1);
            thread::spawn(move || {
                let _ = pass(side, &from, &to, &record, stop);
                if stop.is_some_and(|stop| locked(&record)[side].len() >= stop) {
                    let _ = tell.send(());
                    // Until the killed process's socket closes.
                    let _ = (&from).read_to_end(&mut Vec::new());
                }
                let _ = to.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
            });
        }
    });
    (address, recording, reached)
}

fn locked(recording: &Recording) -> std::sync::MutexGuard<'_, [Vec<Vec<u8>>; 2]> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pass(
    side: usize,
    mut from: &TcpStream,
    mut to: &TcpStream,
    record: &Recording,
    stop: Option<usize>,
) -> std::io::Result<()> {
    let mut greeting = vec![0; GREETING];
    from.read_exact(&mut greeting)?;
    to.write_all(&greeting)?;
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let [kind, len @ ..] = head;
        let mut payload = vec![0; u32::from_le_bytes(len) as usize];
        from.read_exact(&mut payload)?;
        let data = kind == 1;
        if data {
            locked(record)[side].push(payload.clone());
        }
        if data && stop.is_some_and(|stop| locked(record)[side].len() >= stop) {
            return Ok(());
        }
        to.write_all(&head)?;
        to.write_all(&payload)?;
    }
}

/// What comes twice in the recordings. What every session begins with is public and left out: so many bytes of each side.
fn repeated(recordings: &[Recording], public: [usize; 2]) -> Vec<Repeat> {
    let mut repeats = Repeats::new();
    let mut found = Vec::new();
    for (number, recording) in recordings.iter().enumerate() {
        for ((messages, start), side) in locked(recording).iter().zip(public).zip(["client", "server"]) {
            let sent = messages.concat();
            // (One that was killed may have sent less.)
            found.extend(
                repeats.look(format!("the {side} in recording {number}"), sent.get(start..).unwrap_or(&[])),
            );
        }
    }
    found
}

// ---- The runs ----

/// A model in a folder, and its server.
struct Site {
    folder: PathBuf,
    backend: String,
    weak: &'static str,
    server: Process,
    address: String,
}

impl Site {
    fn new(backend: &str, weak: &'static str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("jaguar-killed-{}-{backend}-{weak}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        bundle(None).write(&folder.join("model")).expect("written");
        let (server, address) = Self::serve(&folder, backend, weak);
        Self { folder, backend: backend.into(), weak, server, address }
    }

    fn serve(folder: &Path, backend: &str, weak: &str) -> (Process, String) {
        let process = Process::start(
            "server",
            folder,
            &[("JAGUAR_FAULT_BACKEND", backend), ("JAGUAR_FAULT_WEAK", weak)],
        );
        let address = process.line("listening on ");
        (process, address)
    }

    fn restart(&mut self) {
        (self.server, self.address) = Self::serve(&self.folder, &self.backend, self.weak);
    }

    fn client(&self, role: &str, address: &str) -> Process {
        Process::start(
            role,
            &self.folder,
            &[("JAGUAR_FAULT_SERVER", address), ("JAGUAR_FAULT_WEAK", self.weak)],
        )
    }

    /// How many bytes each side sends before anything of its own: a greeting and the network; a greeting and the acceptance.
    fn public(&self) -> [usize; 2] {
        let tcp = Tcp::connect(&*self.address, tcp::Options::default()).expect("a server");
        let (recorder, transcript) = Recorder::new(tcp);
        let connected = connect(&kit(), Channel::new(recorder), &Limits::default()).expect("greeted");
        let (sent, received) = transcript.lengths();
        drop(connected);
        [sent as usize + ACCEPTANCE, received as usize]
    }

    /// A session to its end.
    fn whole(&self, role: &str) -> Recording {
        let (address, recording, _) = relay(&self.address, None);
        let client = self.client(role, &address);
        client.line("done");
        recording
    }

    /// A session in which `victim` (0: the client) is killed once `side` has sent so many messages.
    fn killed(&mut self, victim: usize, stop: (usize, usize)) -> Recording {
        let (address, recording, reached) = relay(&self.address, Some(stop));
        let mut client = self.client("client", &address);
        reached.recv_timeout(WATCHDOG).expect("it sends as much");
        if victim == 0 {
            client.kill();
        } else {
            self.server.kill();
            // The client ends by itself; what it still sends counts too.
            let _ = client.child.wait();
            self.restart();
        }
        recording
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Kills at `points` places of a session for each side that sends and each side that dies, with a whole session after
/// each. Returns how many were killed, and what came twice.
fn kill_at(backend: &str, weak: &'static str, points: usize) -> (usize, Vec<Repeat>) {
    let mut site = Site::new(backend, weak);
    // The hint, and with it the client's name, is there before: it is the same whenever it comes.
    site.whole("fetch");
    let public = site.public();
    let sound = site.whole("client");
    let lengths = locked(&sound).each_ref().map(Vec::len);
    let mut recordings = vec![sound];
    let mut killed = 0;
    for (side, messages) in lengths.into_iter().enumerate() {
        for point in 0..points {
            for victim in [0, 1] {
                let stop = 1 + (messages - 1) * (2 * point + 1) / (2 * points);
                recordings.push(site.killed(victim, (side, stop)));
                recordings.push(site.whole("client"));
                killed += 1;
            }
        }
    }
    (killed, repeated(&recordings, public))
}

fn nothing_comes_again(backends: &[&str], points: usize) {
    let _one = super::ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = 0;
    for backend in backends {
        let (killed, found) = kill_at(backend, "", points);
        assert_eq!(killed, 4 * points, "{backend}");
        assert!(found.is_empty(), "{backend}: {} pieces come again, first {}", found.len(), found[0]);
        all += killed;
    }
    println!("{all} processes were killed");
}

#[test]
fn a_killed_process_uses_nothing_again() {
    nothing_comes_again(&["jaguar"], 2);
}

#[test]
#[ignore = "hundreds of processes"]
fn no_killed_process_uses_anything_again() {
    nothing_comes_again(&["jaguar", "cheetah", "fregata-hme", "fregata-cheetah", "fregata-jaguar"], 8);
}

/// The check finds what it looks for: a client, a server, both, that begin with the same randomness whenever they are
/// started.
#[test]
fn fixed_randomness_is_found() {
    let _one = super::ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for weak in ["client", "server"] {
        let (_, found) = kill_at("jaguar", weak, 1);
        assert!(found.len() > 100, "a {weak} with fixed randomness: {} pieces come again", found.len());
    }
}
