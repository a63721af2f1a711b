//! Servers that are killed, and what the next one goes on with.

use super::*;
use jaguar::network::Operators;

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
    fn serve(&self, it: &Site) -> (Process, [usize; 2]) {
        let mut command = jaguar(&["serve", &it.model, "--listen", &self.socket, "--protocol", "convfhe"]);
        command.args(["--key-dir", &it.scratch.path("server"), "--grace", "0"]);
        let mut process = Process::start(command);
        let line = process.line_with("goes on with ", WATCHDOG);
        let number = |behind: &str| -> usize {
            let from = line.split(behind).nth(1).unwrap_or_else(|| panic!("{behind:?}: {line}"));
            from.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"))
        };
        let found = [number("goes on with "), number("inputs and ")];
        process.line_with("listening on ", WATCHDOG);
        (process, found)
    }

    /// Sends inputs and leaves.
    #[track_caller]
    fn leave(&self, it: &Site, client: &str, inputs: &[&str]) -> Vec<String> {
        let asked = lines(it.predict(&self.socket, client, &[&["--detach"], inputs].concat()));
        asked.iter().map(|line| line["ticket"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    fn fetch(&self, it: &Site, client: &str, ticket: &str) -> Vec<f64> {
        let fetched = lines(it.predict(&self.socket, client, &["--ticket", ticket]));
        it.forgotten(ticket);
        logits(&fetched[0])
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

/// An evaluation may be through before its server is killed: then its answer is what the next one goes on with.
#[test]
fn a_killed_server_s_inputs_are_evaluated_by_the_next_one() {
    let it = Site::new("restart-inputs");
    let seat = Seat::new(&it);
    let (server, found) = seat.serve(&it);
    assert_eq!(found, [0, 0]);
    // One is computed, one waits.
    let first = seat.leave(&it, "alice", &[&it.inputs[0]]);
    let second = seat.leave(&it, "bob", &[&it.inputs[1]]);
    let queue: Vec<_> = std::fs::read_dir(it.scratch.path("server/insecure-n10/queue"))
        .unwrap()
        .map(|f| f.unwrap())
        .filter(|file| file.file_name().to_string_lossy().ends_with(".ticket"))
        .collect();
    assert_eq!(queue.len(), 2);
    kill(server);
    assert!(queue.iter().all(|file| file.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
    let (server, [inputs, answers]) = seat.serve(&it);
    assert_eq!(inputs + answers, 2);
    is_near(&it, 0, &seat.fetch(&it, "alice", &first[0]));
    is_near(&it, 1, &seat.fetch(&it, "bob", &second[0]));
    for (client, ticket) in [("alice", &first[0]), ("bob", &second[0])] {
        seat.gone(&it, client, ticket);
    }
    kill(server);
    assert_eq!(seat.serve(&it).1, [0, 0]);
}

#[test]
fn a_killed_server_s_answers_are_given_by_the_next_one() {
    let it = Site::new("restart-answers");
    let seat = Seat::new(&it);
    let (server, _) = seat.serve(&it);
    let tickets = seat.leave(&it, "client", &[&it.inputs[0], &it.inputs[1]]);
    // The second answer is there, so the first one is.
    is_near(&it, 1, &seat.fetch(&it, "client", &tickets[1]));
    kill(server);
    let (server, found) = seat.serve(&it);
    assert_eq!(found, [0, 1], "nothing is computed again");
    is_near(&it, 0, &seat.fetch(&it, "client", &tickets[0]));
    seat.gone(&it, "client", &tickets[0]);
    seat.gone(&it, "client", &tickets[1]);
    kill(server);
    assert_eq!(seat.serve(&it).1, [0, 0]);
}

/// Who waits when a server ends is told its ticket, and the next server goes on. (Or has its answer, if that was through just then.)
#[test]
fn who_waits_at_the_end_comes_back_with_its_ticket() {
    let it = Site::new("restart-waiting");
    let seat = Seat::new(&it);
    let (mut server, _) = seat.serve(&it);
    let client = it.predict(&seat.socket, "client", &[&it.inputs[2]]);
    server.line_with("an encrypted input", WATCHDOG);
    signal("TERM", server.id);
    let told = client.finish(WATCHDOG);
    server.finish(WATCHDOG).succeeded();
    if !told.status.success() {
        assert!(told.stderr.contains("shutting down"), "{}", told.stderr);
        let (_server, [inputs, answers]) = seat.serve(&it);
        assert_eq!(inputs + answers, 1);
        is_near(&it, 2, &seat.fetch(&it, "client", &ticket_of(&told.stderr)));
    }
}

/// The ticket that a client names when it does not get its answer.
#[track_caller]
fn ticket_of(stderr: &str) -> String {
    let ticket = stderr.split("--ticket ").nth(1).and_then(|rest| rest.split(' ').next());
    ticket.unwrap_or_else(|| panic!("no ticket: {stderr}")).to_owned()
}
