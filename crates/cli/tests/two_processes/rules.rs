//! Limits by client: each is reached once, and what is told then.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jaguar::client::{Limits, connect_to};
use jaguar::hint::HintPlace;
use jaguar::net::{Dialer, Token, tls};
use jaguar::progress::NoProgress;
use jaguar::wire::{Channel, framed};

use crate::connections::{Authority, client, fingerprint, token};
use crate::operation::{figure, figure_becomes, metrics_of, page};
use crate::predictions::{answers, photo};
use crate::process::{Process, Scratch, Server, jaguar};
use crate::serving::{serve, two, word};
use crate::{WATCHDOG, assert_fails, tiny};

/// A server with tokens, and a client of it.
struct Site {
    folder: Scratch,
    server: Server,
    pin: String,
}

impl Site {
    #[track_caller]
    fn new(name: &str, clients: &[&str], options: &[&str]) -> (Self, Vec<String>) {
        let folder = Scratch::new(name);
        let models = two(&folder);
        let tokens = clients.iter().map(|name| token(&folder, name)).collect();
        let arguments: Vec<&str> = [models.as_str()].into_iter().chain(options.iter().copied()).collect();
        let (server, pin) = Self::start(&folder, &arguments);
        (Self { folder, server, pin }, tokens)
    }

    #[track_caller]
    fn start(folder: &Scratch, options: &[&str]) -> (Server, String) {
        let (cache, tokens) = (folder.path("server"), folder.path("tokens"));
        let fixed = ["--tls", "on", "--cache", &cache, "--tokens", &tokens];
        let mut server = serve(&[&fixed[..], options].concat());
        let pin = fingerprint(&mut server);
        (server, pin)
    }

    fn ask(&self, token: &str, more: &[&str]) -> Process {
        let known = ["--pin", &self.pin, "--token-file", token, "--keep", "0"];
        client(&self.folder, &self.server.address, &[&known[..], more].concat())
    }
}

/// Waits until nobody is served any more: a client may be gone before its place is free.
fn nobody_is_there(metrics: &str) {
    figure_becomes(metrics, "jaguar_clients", 0.0);
}

/// Waits where a day (UTC) is about to end, for it would end what a test has counted.
pub fn far_from_midnight() {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_secs();
    let left = 86_400 - seconds % 86_400;
    if left < 300 {
        std::thread::sleep(Duration::from_secs(left + 1));
    }
}

#[test]
fn queries_of_a_day_are_limited_and_a_restart_knows_them() {
    far_from_midnight();
    let options = ["--max-queries-per-client-and-day", "2"];
    let (mut it, tokens) = Site::new("queries", &["alice", "bob"], &options);
    let [alice, bob] = [&tokens[0], &tokens[1]];
    for name in ["cats", "dogs"] {
        assert_eq!(word(&answers(it.ask(alice, &["--model", name]), 1)[0]), name);
    }
    let spent =
        ["this client has asked the 2 queries that it may ask in a day (UTC); come back in ", " seconds"];
    assert_fails(it.ask(alice, &["--model", "cats"]), &spent);
    // Within a session too.
    let photos = [photo(), photo(), photo()];
    let three: Vec<&str> = photos.iter().map(String::as_str).chain(["--model", "cats"]).collect();
    let (cache, at) = (it.folder.path("cache"), it.server.address.clone());
    let mut command = jaguar(&[
        "predict",
        "--server",
        &at,
        "--cache",
        &cache,
        "--pin",
        &it.pin,
        "--token-file",
        bob,
        "--keep",
        "0",
    ]);
    command.args(three);
    let finished = Process::start(command).finish(WATCHDOG);
    assert!(!finished.status.success() && finished.stderr.contains(spent[0]), "{}", finished.stderr);
    assert_eq!(finished.stdout.matches("cats-").count() / 5, 2, "{}", finished.stdout);

    // Killed at once, and started again.
    it.server.process.kill();
    let file = it.folder.path("server/queries");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    }
    let text = std::fs::read_to_string(&file).expect("there");
    for line in ["1 cats alice", "1 dogs alice", "2 cats bob"] {
        assert!(text.lines().any(|l| l == line), "{text}");
    }
    let models = it.folder.path("models");
    (it.server, it.pin) = Site::start(&it.folder, &[&[models.as_str()][..], &options].concat());
    assert_fails(it.ask(alice, &["--model", "cats"]), &spent);
    // Another server that would count in the same file.
    let (cache, tokens) = (it.folder.path("server"), it.folder.path("tokens"));
    let mut other = vec![
        "serve",
        &models,
        "--listen",
        "127.0.0.1:0",
        "--measure",
        "off",
        "--cache",
        &cache,
        "--tokens",
        &tokens,
    ];
    other.extend(options);
    assert_fails(Process::start(jaguar(&other)), &[&file, "another server counts there", "--counts"]);
    // A file that is none is not taken for one.
    it.server.process.kill();
    std::fs::write(&file, "nonsense").expect("written");
    assert_fails(Process::start(jaguar(&other)), &[&file, "does not begin with"]);
}

/// A client that has queries prepared, and leaves without asking, has used them: it saw their masks.
#[test]
fn what_is_prepared_counts() {
    far_from_midnight();
    let options = ["--max-queries-per-client-and-day", "2", "--metrics", "127.0.0.1:0"];
    let (mut it, tokens) = Site::new("prepared-counts", &["alice", "bob"], &options);
    let metrics = metrics_of(&mut it.server);
    let stays = |token: &str| {
        let cache = it.folder.path("cache");
        let mut command = jaguar(&["predict", "--json", "--server", &it.server.address, "--cache", &cache]);
        command.args(["--pin", &it.pin, "--token-file", token, "--model", "cats", "--stdin", "--keep", "4"]);
        Process::start_with_input(command)
    };
    let counted = |line: &str| {
        let text = std::fs::read_to_string(it.folder.path("server/queries")).expect("there");
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    };
    // Alice has two prepared of the four that she would like, and is told no more of it than that.
    let (client, input) = stays(&tokens[0]);
    figure_becomes(&metrics, "jaguar_queries_prepared_total{model=\"cats\"}", 2.0);
    figure_becomes(&metrics, "jaguar_queries_not_kept_total{model=\"cats\"}", 1.0);
    counted("2 cats alice");
    drop(input);
    client.finish(WATCHDOG).succeeded();
    nobody_is_there(&metrics);
    let (client, _input) = stays(&tokens[0]);
    let spent = "this client has asked the 2 queries that it may ask in a day (UTC); come back in ";
    assert_fails(client, &[spent]);
    figure_becomes(&metrics, "jaguar_queries_prepared_total{model=\"cats\"}", 2.0);
    // Bob asks with his two, and has had them then.
    let (mut client, mut input) = stays(&tokens[1]);
    figure_becomes(&metrics, "jaguar_queries_not_kept_total{model=\"cats\"}", 2.0);
    for number in 0..2 {
        writeln!(input, "{}", photo()).expect("it reads");
        client.line_with(&format!("\"kept\":{number}"), WATCHDOG);
    }
    counted("2 cats bob");
    writeln!(input, "{}", photo()).expect("it reads");
    drop(input);
    let finished = client.finish(WATCHDOG);
    assert!(!finished.status.success() && finished.stderr.contains(spent), "{}", finished.stderr);
    let told = "note: the server prepares no more queries for this client today";
    assert!(finished.stderr.contains(told), "{}", finished.stderr);
    counted("2 cats bob");
}

/// Bob, with alice's ticket: the server tells them apart by their tokens, or by their certificates.
#[test]
fn a_ticket_is_of_no_use_to_others() {
    let (it, tokens) = Site::new("tickets", &["alice", "bob"], &[]);
    let trust = tls::Trust::Pin(it.pin.parse().expect("a fingerprint"));
    let shown = |token: &str| {
        let client = tls::Client::new(&trust, None).expect("a pin");
        let token = Token::read(Path::new(token)).expect("a token");
        Dialer::new(it.server.address.parse().expect("an address")).with_tls(client).with_token(token)
    };
    not_for_others(tokens.iter().map(|token| shown(token)).collect(), "cats");

    let folder = Scratch::new("tickets-of-certificates");
    let models = two(&folder);
    let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(&folder, name));
    let [certificate, key] = ours.sign(&folder, "inference.example");
    let server =
        serve(&[&models, "--tls-cert", &certificate, "--tls-key", &key, "--client-ca", &theirs.file]);
    let trust = tls::Trust::Authorities(ours.file.clone().into());
    // (Their common names are equal, and their fingerprints are not.)
    let shown = |name: &str| {
        let [certificate, key] = theirs.sign(&folder, name);
        let shows = Some((Path::new(&certificate), Path::new(&key)));
        let client = tls::Client::new(&trust, shows).expect("a certificate");
        let client = client.expecting("inference.example").expect("a name");
        Dialer::new(server.address.parse().expect("an address")).with_tls(client)
    };
    not_for_others(["alice", "bob"].map(shown).into(), "cats");
}

/// Two clients, by how they connect: the first one's ticket is of use to it only.
#[track_caller]
fn not_for_others(dialers: Vec<Dialer>, model: &str) {
    let connect = |dialer: &Dialer| {
        let connection = dialer.connect(framed::Options::default()).expect("let in");
        connect_to(&jaguar::plan::Kit::standard(), Channel::new(connection), Some(model), &Limits::default())
            .expect("greeted")
    };
    let [alice, bob] = &dialers[..] else { panic!("two") };
    let ready = connect(alice).prepare_client(HintPlace::Memory).expect("set up");
    let (ready, kept) = ready.keep_query(&mut NoProgress).expect("kept");
    kept.expect("room");
    let (ticket, ready) = ready.ticket().expect("a ticket");
    let refused = connect(bob).join(&ticket).err().expect("it is alice's").to_string();
    assert!(refused.contains("this ticket was given to another client"), "{refused}");
    let runner = connect(alice).join(&ticket).expect("her own");
    assert_eq!(runner.server_keeps().queries, 1);
    runner.leave().and_then(|()| ready.leave()).expect("left");
}

#[test]
fn a_model_and_a_client_may_have_limits_of_their_own() {
    far_from_midnight();
    let folder = Scratch::new("own-limits");
    two(&folder);
    let [alice, bob] = ["alice", "bob"].map(|name| token(&folder, name));
    let config = folder.path("jaguar.toml");
    let text = "max-sessions-per-client = 1\n\
                [models.cats]\nfile = 'models/cats.jaguar'\nmax-queries-per-client-and-day = 1\n\
                [models.dogs]\nfile = 'models/dogs.jaguar'\n\
                [clients.bob]\nmax-sessions = 2\nmax-queries-per-day = 0\n";
    std::fs::write(&config, text).expect("written");
    let (server, pin) = Site::start(&folder, &["--config", &config, "--metrics", "127.0.0.1:0"]);
    let mut it = Site { folder, server, pin };
    let metrics = metrics_of(&mut it.server);
    answers(it.ask(&alice, &["--model", "cats"]), 1);
    nobody_is_there(&metrics);
    assert_fails(
        it.ask(&alice, &["--model", "cats"]),
        &["this client has asked the 1 queries that it may ask model 'cats' in a day (UTC); come back in "],
    );
    assert_fails(it.ask(&bob, &["--model", "dogs"]), &["has asked the 0 queries"]);
    nobody_is_there(&metrics);

    // One session of alice's that stays, and another.
    let cache = it.folder.path("cache");
    let stays = [
        "predict",
        "--json",
        "--server",
        &it.server.address,
        "--cache",
        &cache,
        "--pin",
        &it.pin,
        "--token-file",
        &alice,
    ];
    let mut command = jaguar(&stays);
    command.args(["--model", "dogs", "--stdin", "--keep", "0"]);
    let (mut session, mut input) = Process::start_with_input(command);
    writeln!(input, "{}", photo()).expect("it reads");
    session.line_with("dogs-", WATCHDOG);
    assert_fails(
        it.ask(&alice, &["--model", "dogs"]),
        &[
            "1 sessions of this client are open, and no more are at once; try again later, in 10 seconds or more",
        ],
    );
    drop(input);
    session.finish(WATCHDOG).succeeded();
    nobody_is_there(&metrics);
    answers(it.ask(&alice, &["--model", "dogs"]), 1);
    for reason in ["model-queries-spent", "queries-spent", "client-busy"] {
        figure_becomes(&metrics, &format!("jaguar_refusals_total{{reason=\"{reason}\"}}"), 1.0);
    }
}

#[test]
fn sessions_have_a_bound_of_memory() {
    let folder = Scratch::new("memory");
    let model = tiny::compile(&folder);
    let mut server = serve(&[&model, "--metrics", "127.0.0.1:0"]);
    let metrics = metrics_of(&mut server);
    let cache = folder.path("cache");
    let held = |server: &Server| {
        let stays =
            ["predict", "--json", "--server", &server.address, "--cache", &cache, "--stdin", "--keep", "0"];
        let (mut session, mut input) = Process::start_with_input(jaguar(&stays));
        writeln!(input, "{}", photo()).expect("it reads");
        session.line_with("class-", WATCHDOG);
        (session, input)
    };
    let session = held(&server);
    let one = figure(&page(&metrics, "/metrics").1, "jaguar_session_memory_bytes");
    assert!(one > 1e5, "{one}");
    drop(session);

    // Room for one, and a half.
    let bound = (one * 1.5) as u64;
    let mut server = serve(&[&model, "--max-memory", &bound.to_string(), "--metrics", "127.0.0.1:0"]);
    let metrics = metrics_of(&mut server);
    let (first, input) = held(&server);
    assert_fails(
        client(&folder, &server.address, &["--keep", "0"]),
        &[
            &format!(
                "the server's memory for sessions is taken ({bound} bytes, of which this one needs {one})"
            ),
            "try again later, in 10 seconds or more",
        ],
    );
    // Who would wait stands in the line, and whoever probes hears that nobody is served at once.
    let waiting = client(&folder, &server.address, &["--keep", "0", "--wait", "300"]);
    figure_becomes(&metrics, "jaguar_waiting", 1.0);
    assert!(page(&metrics, "/ready").0.contains("503"));
    drop(input);
    first.finish(WATCHDOG).succeeded();
    answers(waiting, 1);
    nobody_is_there(&metrics);
    // A model for which there is never room is not served.
    let serve = ["serve", &model, "--listen", "127.0.0.1:0", "--measure", "off", "--max-memory", "1K"];
    assert_fails(Process::start(jaguar(&serve)), &["--max-memory 1.0 KiB is too little for one session"]);
}

#[test]
fn an_address_has_its_share_of_hints() {
    let folder = Scratch::new("address-hints");
    let model = tiny::compile(&folder);
    let mut server = serve(&[&model, "--new-hints-per-address-and-hour", "1", "--backends", "jaguar"]);
    let fetch = |cache: &str| {
        let cache = folder.path(cache);
        Process::start(jaguar(&["fetch", "--server", &server.address, "--cache", &cache]))
    };
    fetch("one").finish(WATCHDOG).succeeded();
    assert_fails(
        fetch("other"),
        &["the server has made as many hints for this client as it may for now: come back in ", " s"],
    );
    fetch("one").finish(WATCHDOG).succeeded();
    server.process.line_with("turned away: the server has made as many hints for this client", WATCHDOG);
}

#[test]
fn a_file_of_counts_that_cannot_be_written_keeps_no_server_from_starting() {
    far_from_midnight();
    let blocked = Scratch::new("unwritable");
    std::fs::write(blocked.path("file"), "").expect("written");
    let counts = blocked.path("file/queries");
    let options = ["--max-queries-per-client-and-day", "1", "--counts", &counts, "--metrics", "127.0.0.1:0"];
    let (mut it, tokens) = Site::new("unwritable-counts", &["alice"], &options);
    it.server
        .process
        .line_with(&format!("a restart would forget a query: counting queries in {counts}"), WATCHDOG);
    let metrics = metrics_of(&mut it.server);
    answers(it.ask(&tokens[0], &["--model", "cats"]), 1);
    figure_becomes(&metrics, "jaguar_queries_not_counted_total", 1.0);
    assert_fails(
        it.ask(&tokens[0], &["--model", "cats"]),
        &["has asked the 1 queries that it may ask in a day"],
    );
}

#[test]
fn rules_need_clients_that_show_who_they_are() {
    let folder = Scratch::new("rules-need");
    let model = tiny::compile(&folder);
    let config = folder.path("jaguar.toml");
    std::fs::write(&config, "[clients.alice]\nmodels = ['tinny']\n").expect("written");
    let serve = |more: &[&str]| {
        let mut command = jaguar(&["serve", &model, "--listen", "127.0.0.1:0", "--measure", "off"]);
        command.args(more);
        Process::start(command)
    };
    for option in ["--max-sessions-per-client", "--max-queries-per-client-and-day"] {
        assert_fails(serve(&[option, "3"]), &["limits by client need --tokens or --client-ca"]);
    }
    assert_fails(
        serve(&["--config", &config]),
        &["jaguar.toml:1: models: there is no model 'tinny'; 'tiny' may be meant"],
    );
}
