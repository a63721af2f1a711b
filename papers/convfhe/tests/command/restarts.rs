//! Servers that are killed, and what the next one goes on with.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;
use crate::relay::copy;
use jaguar::network::Operators;

/// Relays to `server`. Returns where clients connect to, and what cuts all connections that there are.
fn severable(server: &str) -> (String, impl Fn()) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let server = server.to_owned();
    let sockets = Arc::<Mutex<Vec<TcpStream>>>::default();
    let all = sockets.clone();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { return };
            let clone = |socket: &TcpStream| socket.try_clone().expect("a socket");
            let back = (clone(&server), clone(&client));
            all.lock().expect("no panic").extend([clone(&server), clone(&client)]);
            thread::spawn(move || copy(back.0, back.1, &AtomicU64::new(0), &mut |_| ()));
            thread::spawn(move || copy(client, server, &AtomicU64::new(0), &mut |_| ()));
        }
    });
    let cut = move || {
        for socket in sockets.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    };
    (address, cut)
}

/// A server on a Unix socket, so that the next one is at the same address.
struct Seat {
    socket: String,
}

impl Seat {
    fn new(it: &Site) -> Self {
        Self { socket: format!("unix:{}", it.scratch.path("socket")) }
    }

    /// Serves by this program; it goes on with so many inputs and answers.
    #[track_caller]
    fn serve(&self, it: &Site, fhe: &str, [inputs, answers]: [usize; 2]) -> Process {
        let mut command = jaguar(&["serve", &it.model, "--listen", &self.socket, "--protocol", "convfhe"]);
        command.args(["--fhe-program", fhe, "--key-dir", &it.scratch.path("server"), "--grace", "0"]);
        let mut process = Process::start(command);
        process.line_with(&format!("goes on with {inputs} inputs and {answers} answers"), WATCHDOG);
        process.line_with("listening on ", WATCHDOG);
        process
    }

    /// Sends inputs and leaves.
    #[track_caller]
    fn leave(&self, it: &Site, client: &str, inputs: &[&str]) -> Vec<String> {
        let asked = lines(it.predict(&self.socket, client, &[&["--detach"], inputs].concat()));
        asked.iter().map(|line| line["ticket"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    fn fetch(&self, it: &Site, client: &str, ticket: &str) -> Vec<f64> {
        logits(&lines(it.predict(&self.socket, client, &["--ticket", ticket]))[0])
    }

    fn gone(&self, it: &Site, client: &str, ticket: &str) {
        let fetched = it.predict(&self.socket, client, &["--ticket", ticket]);
        assert_fails(fetched, &["no answer under this ticket"]);
    }
}

/// Kills a server, without a word.
fn kill(mut server: Process) {
    server.kill();
}

#[track_caller]
fn is_near(it: &Site, input: usize, got: &[f64]) {
    let graph =
        import_file(Path::new(&it.scratch.path("vector.onnx")), &Options::new(&Operators::standard()))
            .unwrap();
    let (want, tolerance) = (graph.forward(Cpu::detect(), &value(input)).unwrap(), tolerance(&it.model));
    for (got, want) in got.iter().zip(want) {
        assert!((got - f64::from(want)).abs() <= tolerance, "{got} is not {want}, within {tolerance}");
    }
}

#[test]
fn a_killed_server_s_inputs_are_evaluated_by_the_next_one() {
    let Some(it) = Site::new("restart-inputs") else { return };
    let seat = Seat::new(&it);
    let server = seat.serve(&it, &it.stopping(), [0, 0]);
    // One is computed, one waits.
    let first = seat.leave(&it, "alice", &[&it.inputs[0]]);
    let evaluation = stopped_evaluation(server.id);
    let second = seat.leave(&it, "bob", &[&it.inputs[1]]);
    let queue: Vec<_> = std::fs::read_dir(it.scratch.path("server/insecure-n10/queue"))
        .unwrap()
        .map(|f| f.unwrap())
        .collect();
    assert_eq!(queue.len(), 2);
    assert!(queue.iter().all(|file| file.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
    kill(server);
    signal("CONT", evaluation);
    gone(evaluation);
    let server = seat.serve(&it, it.fhe, [2, 0]);
    is_near(&it, 0, &seat.fetch(&it, "alice", &first[0]));
    is_near(&it, 1, &seat.fetch(&it, "bob", &second[0]));
    for (client, ticket) in [("alice", &first[0]), ("bob", &second[0])] {
        seat.gone(&it, client, ticket);
    }
    kill(server);
    drop(seat.serve(&it, it.fhe, [0, 0]));
}

#[test]
fn a_killed_server_s_answers_are_given_by_the_next_one() {
    let Some(it) = Site::new("restart-answers") else { return };
    let seat = Seat::new(&it);
    let server = seat.serve(&it, it.fhe, [0, 0]);
    let tickets = seat.leave(&it, "client", &[&it.inputs[0], &it.inputs[1]]);
    // The second answer is there, so the first one is.
    is_near(&it, 1, &seat.fetch(&it, "client", &tickets[1]));
    kill(server);
    // The next one computes nothing.
    let server = seat.serve(&it, &it.stopping(), [0, 1]);
    is_near(&it, 0, &seat.fetch(&it, "client", &tickets[0]));
    seat.gone(&it, "client", &tickets[0]);
    seat.gone(&it, "client", &tickets[1]);
    kill(server);
    drop(seat.serve(&it, it.fhe, [0, 0]));
}

/// Who waits when a server ends is told its ticket, and the next server goes on.
#[test]
fn who_waits_at_the_end_comes_back_with_its_ticket() {
    let Some(it) = Site::new("restart-waiting") else { return };
    let seat = Seat::new(&it);
    let server = seat.serve(&it, &it.stopping(), [0, 0]);
    let client = it.predict(&seat.socket, "client", &[&it.inputs[2]]);
    stopped_evaluation(server.id);
    signal("TERM", server.id);
    let told = client.finish(WATCHDOG);
    assert!(!told.status.success() && told.stderr.contains("shutting down"), "{}", told.stderr);
    server.finish(WATCHDOG).succeeded();
    let _server = seat.serve(&it, it.fhe, [1, 0]);
    is_near(&it, 2, &seat.fetch(&it, "client", &ticket_of(&told.stderr)));
}

/// The ticket that a client names when it does not get its answer.
#[track_caller]
fn ticket_of(stderr: &str) -> String {
    let ticket = stderr.split("--ticket ").nth(1).and_then(|rest| rest.split(' ').next());
    ticket.unwrap_or_else(|| panic!("no ticket: {stderr}")).to_owned()
}

#[test]
fn a_cut_during_the_run_costs_nothing() {
    let Some(it) = Site::new("run-cut") else { return };
    let server = it.serve_by(&it.stopping(), &[]);
    let (at, cut) = severable(&server.address);
    let client = it.predict(&at, "client", &[&it.inputs[0]]);
    let evaluation = stopped_evaluation(server.process.id);
    cut();
    let told = client.finish(WATCHDOG);
    assert!(!told.status.success(), "{}", told.stdout);
    signal("CONT", evaluation);
    let answer = lines(it.predict(&at, "client", &["--ticket", &ticket_of(&told.stderr)]));
    is_near(&it, 0, &logits(&answer[0]));
}
