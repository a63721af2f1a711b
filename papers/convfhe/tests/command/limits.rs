//! What one client may take: inputs that wait, queries of a day, sessions, and room for keys. Each limit is reached once.

use super::*;
use crate::connections::token;
use crate::operation::{figure_becomes, metrics_of};
use crate::rules::far_from_midnight;

/// A server that tells clients apart by tokens, and alice and bob.
struct Known {
    server: Server,
    metrics: String,
    pin: String,
    tokens: [String; 2],
}

impl Known {
    #[track_caller]
    fn new(it: &Site, fhe: &str, options: &[&str]) -> Self {
        let tokens = ["alice", "bob"].map(|name| token(&it.scratch, name));
        let mut known = Self {
            server: Self::serve(it, fhe, options),
            metrics: String::new(),
            pin: String::new(),
            tokens,
        };
        known.metrics = metrics_of(&mut known.server);
        known.pin = fingerprint(&mut known.server);
        known
    }

    #[track_caller]
    fn serve(it: &Site, fhe: &str, options: &[&str]) -> Server {
        let (tokens, cache) = (it.scratch.path("tokens"), it.scratch.path("certificate"));
        let own = ["--tls", "on", "--cache", &cache, "--tokens", &tokens, "--metrics", "127.0.0.1:0"];
        it.serve_by(fhe, &[&own[..], options].concat())
    }

    /// A client of this name, with these options and inputs.
    fn ask(&self, it: &Site, client: &str, options: &[&str]) -> Process {
        let token = &self.tokens[usize::from(client != "alice")];
        let shown = ["--pin", &self.pin, "--token-file", token];
        it.predict(&self.server.address, client, &[&shown[..], options].concat())
    }

    /// So many clients have been turned away for this reason.
    #[track_caller]
    fn turned_away(&self, reason: &str, times: u32) {
        let figure = format!("jaguar_refusals_total{{reason=\"{reason}\"}}");
        figure_becomes(&self.metrics, &figure, times.into());
    }
}

#[test]
fn inputs_of_one_client_leave_room_for_others() {
    let Some(it) = Site::new("limits-waiting") else { return };
    let known = Known::new(&it, &it.stopping(), &[]);
    let first = it.inputs[0].as_str();
    let all: Vec<&str> = ["--detach"].into_iter().chain(it.inputs.iter().map(String::as_str)).collect();
    assert_eq!(lines(known.ask(&it, "alice", &all)).len(), 4);
    let told = "4 inputs of this client wait already, and no more may; come back in 60 seconds or more";
    assert_fails(known.ask(&it, "alice", &["--detach", first]), &[told]);
    known.turned_away("not-done", 1);
    assert_eq!(lines(known.ask(&it, "bob", &["--detach", first])).len(), 1);
    figure_becomes(&known.metrics, "jaguar_one_round_keys_bytes_total", 2.0 * KEYS as f64);
    figure_becomes(&known.metrics, "jaguar_failures_total", 0.0);
}

#[test]
fn queries_of_a_day_are_limited_and_the_next_server_knows_them() {
    far_from_midnight();
    let Some(it) = Site::new("limits-queries") else { return };
    let options = ["--max-queries-per-client-and-day", "2"];
    let mut known = Known::new(&it, it.fhe, &options);
    let spent = "this client has asked the 2 queries that it may ask in a day (UTC); come back in ";
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    let third = known.ask(&it, "alice", &inputs[..3]).finish(WATCHDOG);
    assert!(!third.status.success() && third.stderr.contains(spent), "{}", third.stderr);
    assert_eq!(third.stdout.lines().count(), 2, "{}", third.stdout);
    assert_fails(known.ask(&it, "alice", &inputs[..1]), &[spent, " seconds"]);
    known.turned_away("queries-spent", 2);
    assert_eq!(lines(known.ask(&it, "bob", &inputs[..1])).len(), 1);
    figure_becomes(&known.metrics, "jaguar_one_round_answers_total", 3.0);

    known.server.process.kill();
    known.server = Known::serve(&it, it.fhe, &options);
    assert_fails(known.ask(&it, "alice", &inputs[..1]), &[spent]);
    assert_eq!(lines(known.ask(&it, "bob", &inputs[..1])).len(), 1);
    assert_fails(known.ask(&it, "bob", &inputs[..1]), &[spent]);
}

#[test]
fn sessions_of_one_client_are_limited() {
    let Some(it) = Site::new("limits-sessions") else { return };
    let known = Known::new(&it, &it.stopping(), &["--max-sessions-per-client", "1"]);
    let waits = known.ask(&it, "alice", &[&it.inputs[0]]);
    let evaluation = stopped_evaluation(known.server.process.id);
    let told =
        "1 sessions of this client are open, and no more are at once; try again later, in 10 seconds or more";
    assert_fails(known.ask(&it, "alice", &[&it.inputs[1]]), &[told]);
    known.turned_away("client-busy", 1);
    assert_eq!(lines(known.ask(&it, "bob", &["--detach", &it.inputs[2]])).len(), 1);
    signal("CONT", evaluation);
    assert_eq!(lines(waits).len(), 1);
}

/// Keys that are in use do not make room, and who finds none hears when to come back.
#[test]
fn room_for_keys_comes_back() {
    let Some(it) = Site::new("limits-keys") else { return };
    let known = Known::new(&it, &it.stopping(), &["--key-storage", "40M"]);
    let asked = lines(known.ask(&it, "alice", &["--detach", &it.inputs[0]]));
    let evaluation = stopped_evaluation(known.server.process.id);
    let told = "taken up by clients that use it now; come back in 60 seconds or more";
    assert_fails(known.ask(&it, "bob", &[&it.inputs[1]]), &["--key-storage", told]);
    known.turned_away("not-done", 1);
    signal("CONT", evaluation);
    lines(known.ask(&it, "alice", &["--ticket", asked[0]["ticket"].as_str().unwrap()]));
    let bob = known.ask(&it, "bob", &[&it.inputs[1]]);
    signal("CONT", stopped_evaluation(known.server.process.id));
    assert_eq!(lines(bob)[0]["cost"]["keys_sent"], KEYS);
    assert_eq!(it.kept().len(), 1, "alice's keys made room");
}
