//! How many queries one client may ask in a day. (Limits of inputs that wait, and of room for keys, have their tests in `session`, where
//! an evaluation can be held.)

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
    fn new(it: &Site, options: &[&str]) -> Self {
        let tokens = ["alice", "bob"].map(|name| token(&it.scratch, name));
        let mut known =
            Self { server: Self::serve(it, options), metrics: String::new(), pin: String::new(), tokens };
        known.metrics = metrics_of(&mut known.server);
        known.pin = fingerprint(&mut known.server);
        known
    }

    #[track_caller]
    fn serve(it: &Site, options: &[&str]) -> Server {
        let (tokens, cache) = (it.scratch.path("tokens"), it.scratch.path("certificate"));
        let own = ["--tls", "on", "--cache", &cache, "--tokens", &tokens, "--metrics", "127.0.0.1:0"];
        it.serve(&[&own[..], options].concat())
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

/// The server cannot see how many there are.
#[test]
fn an_input_counts_as_the_images_that_it_has_room_for() {
    far_from_midnight();
    let it = Site::compiled("limits-images", &tiny::vector_onnx(), &[tiny::VECTOR], &["--images", "2"]);
    let known = Known::new(&it, &["--max-queries-per-client-and-day", "5"]);
    let inputs: Vec<&str> = it.inputs.iter().map(String::as_str).collect();
    assert_eq!(lines(known.ask(&it, "alice", &inputs[..3])).len(), 3);
    assert_fails(known.ask(&it, "alice", &inputs[..1]), &["has asked the 5 queries"]);
}

#[test]
fn queries_of_a_day_are_limited_and_the_next_server_knows_them() {
    far_from_midnight();
    let it = Site::new("limits-queries");
    let options = ["--max-queries-per-client-and-day", "2"];
    let mut known = Known::new(&it, &options);
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
    known.server = Known::serve(&it, &options);
    assert_fails(known.ask(&it, "alice", &inputs[..1]), &[spent]);
    assert_eq!(lines(known.ask(&it, "bob", &inputs[..1])).len(), 1);
    assert_fails(known.ask(&it, "bob", &inputs[..1]), &[spent]);
}
