//! `jaguar doctor`: alone, with a model, with a server, and with each of the things that can be wrong.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::connections::{Authority, fingerprint};
use crate::process::{Process, Scratch, Server, jaguar};
use crate::{WATCHDOG, tiny};

/// What the doctor says in JSON, and whether it found nothing that fails.
fn doctor(folder: &Scratch, options: &[&str]) -> (Value, bool) {
    let cache = folder.path("cache");
    let mut command = jaguar(&["doctor", "--json", "--cache", &cache]);
    command.args(options);
    read(command)
}

fn read(command: Command) -> (Value, bool) {
    let finished = Process::start(command).finish(WATCHDOG);
    let said: Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", finished.stdout, finished.stderr));
    let failures = said["failures"].as_u64().expect("a number");
    assert_eq!(finished.status.code(), Some(i32::from(failures > 0)), "{}", finished.stderr);
    assert_eq!(finished.stderr.contains("checks failed"), failures > 0, "{}", finished.stderr);
    (said, failures == 0)
}

/// The findings of a check.
fn of<'a>(said: &'a Value, check: &str) -> Vec<&'a Value> {
    said["findings"].as_array().expect("a list").iter().filter(|finding| finding["check"] == check).collect()
}

/// The one finding of a check has this verdict, and says each of `parts`.
#[track_caller]
fn assert_found(said: &Value, check: &str, verdict: &str, parts: &[&str]) {
    let found = of(said, check);
    let [finding] = found.as_slice() else { panic!("not one {check}: {said:#}") };
    assert_eq!(finding["verdict"], verdict, "{finding:#}");
    for part in parts {
        assert!(finding["found"].as_str().expect("text").contains(part), "{finding:#} does not say {part:?}");
    }
    // What to do is said where there is something to do.
    assert_eq!(finding["advice"].is_string(), verdict != "ok", "{finding:#}");
}

#[test]
fn a_sound_machine_a_model_and_a_server() {
    let folder = Scratch::new("doctor");
    let (model, kept) = (tiny::compile(&folder), folder.path("server"));
    let (said, sound) = doctor(&folder, &[&model]);
    assert!(sound, "{said:#}");
    for (check, part) in [
        ("program", "wire version 3"),
        ("clock", "20"),
        ("cache", "will be made"),
        ("model", "tiny"),
        ("model memory", "fits"),
    ] {
        assert_found(&said, check, "ok", &[part]);
    }
    assert!(of(&said, "link").is_empty(), "no server was named");
    // Over TCP, with TLS, and over WebSockets.
    let plain = Server::start(&model, &[], WATCHDOG);
    let mut secret = Server::start(&model, &["--tls", "on", "--cache", &kept], WATCHDOG);
    let pin = fingerprint(&mut secret);
    let cases: [(&str, &[&str], &[&str]); 4] = [
        (&plain.address, &[], &[]),
        (&format!("ws://{}/x", plain.address), &[], &["websocket"]),
        (&secret.address, &["--pin", &pin], &["tls", "server certificate"]),
        (
            &format!("wss://{}/", secret.address),
            &["--pin", &pin],
            &["tls", "server certificate", "websocket"],
        ),
    ];
    for (address, options, more) in cases {
        let (said, sound) = doctor(&folder, &[&["--server", address][..], options].concat());
        assert!(sound, "{said:#}");
        for check in ["connection", "greeting", "query memory"].iter().chain(more) {
            assert_found(&said, check, "ok", &[]);
        }
        assert_found(&said, "session", "ok", &["tiny", "all logits"]);
        assert_found(&said, "hint", "ok", &["once"]);
        // (How fast loopback is on a busy machine is not what is tested.)
        assert!(
            of(&said, "link")[0]["found"].as_str().is_some_and(|found| found.contains("MB/s")),
            "{said:#}"
        );
    }
    // For people: the same, in lines.
    let mut command = jaguar(&["doctor", "--cache", &folder.path("cache"), "--server", &plain.address]);
    command.env("NO_COLOR", "1");
    let text = Process::start(command).finish(WATCHDOG).succeeded();
    assert!(text.lines().any(|line| line.starts_with("ok") && line.contains("greeting")), "{text}");
}

#[test]
fn servers_that_cannot_be_reached() {
    let folder = Scratch::new("doctor-unreachable");
    let (model, kept) = (tiny::compile(&folder), folder.path("server"));
    let look = |options: &[&str]| {
        let (said, sound) = doctor(&folder, options);
        assert!(!sound, "{said:#}");
        said
    };
    // A closed port: nobody listens where somebody did.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    assert_found(&look(&["--server", &closed]), "connection", "fail", &[&closed, "refused"]);
    assert_found(&look(&["--server", "no-port"]), "address", "fail", &["host:port"]);
    assert_found(&look(&["--server", "nowhere.invalid:7447"]), "address", "fail", &["nowhere.invalid"]);
    // A wrong pin; no pin; TLS off; and no TLS where there is none.
    let mut secret = Server::start(&model, &["--tls", "on", "--cache", &kept], WATCHDOG);
    let (pin, at) = (fingerprint(&mut secret), secret.address.clone());
    let wrong = "1".repeat(64);
    assert_found(&look(&["--server", &at, "--pin", &wrong]), "tls", "fail", &["not the pinned one", &pin]);
    let websocket = format!("wss://{at}/");
    assert_found(
        &look(&["--server", &websocket, "--pin", &wrong]),
        "tls",
        "fail",
        &["not the pinned one", &pin],
    );
    assert_found(&look(&["--server", &at, "--tls", "on"]), "tls", "fail", &["nothing tells whose", &pin]);
    assert_found(&look(&["--server", &at]), "session", "fail", &["TLS only"]);
    let plain = Server::start(&model, &[], WATCHDOG);
    let clear = &plain.address;
    assert_found(&look(&["--server", clear, "--pin", &pin]), "tls", "fail", &["speaks in the clear"]);
    // Not a server of Jaguar's: its own metrics.
    let mut measured = Server::start(&model, &["--metrics", "127.0.0.1:0"], WATCHDOG);
    let metrics = crate::operation::metrics_of(&mut measured);
    assert_found(&look(&["--server", &format!("ws://{metrics}/")]), "websocket", "fail", &["HTTP"]);
    // A server that lets nobody in without a token.
    let tokens = folder.path("tokens");
    Process::start(jaguar(&["token", "alice", "--tokens", &tokens])).finish(WATCHDOG).succeeded();
    let closed_to_strangers = Server::start(&model, &["--tokens", &tokens], WATCHDOG);
    let said = look(&["--server", &closed_to_strangers.address]);
    assert_found(&said, "session", "fail", &["nobody in without a token"]);
}

#[test]
fn certificates_that_have_expired() {
    let folder = Scratch::new("doctor-expired");
    let model = tiny::compile(&folder);
    let authority = Authority::new(&folder, "authority");
    let [old, old_key] = authority.sign_until(&folder, "old.example", Some(2001));
    let [future, future_key] = authority.sign_until(&folder, "localhost", Some(4000));
    std::fs::set_permissions(&old_key, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    // As the server's operator.
    let (said, sound) = doctor(&folder, &["--tls-cert", &old, "--tls-key", &old_key]);
    assert!(!sound);
    assert_found(
        &said,
        "certificate",
        "fail",
        &["not valid any more", "old.example", "2000-01-01 to 2001-01-01"],
    );
    let (said, sound) = doctor(&folder, &["--tls-cert", &old, "--tls-key", &future_key]);
    assert!(!sound);
    assert_found(&said, "certificate", "fail", &[&old]);
    let (said, sound) = doctor(&folder, &["--tls-cert", &future, "--tls-key", &future_key]);
    assert!(!sound);
    assert_found(&said, "certificate", "fail", &["not valid yet", "localhost"]);
    // As a client of it.
    let mut server = Server::start(&model, &["--tls-cert", &old, "--tls-key", &old_key], WATCHDOG);
    let pin = fingerprint(&mut server);
    let named = ["--server", &server.address, "--ca", &authority.file, "--server-name", "old.example"];
    let (said, sound) = doctor(&folder, &named);
    assert!(!sound);
    assert_found(&said, "tls", "fail", &["not valid any more", "clock"]);
    // Pinned, its date does not matter.
    let (said, sound) = doctor(&folder, &["--server", &server.address, "--pin", &pin]);
    assert!(sound, "{said:#}");
    assert_found(&said, "server certificate", "ok", &[&pin]);
}

#[test]
fn folders_files_and_handles() {
    let folder = Scratch::new("doctor-files");
    // A file in the place of the folder, and a folder that is mounted read-only.
    std::fs::write(folder.path("file"), "in the way").expect("written");
    let said = read({
        let mut command = jaguar(&["doctor", "--json"]);
        command.args(["--cache", &folder.path("file/cache")]);
        command
    });
    assert!(!said.1);
    assert_found(&said.0, "cache", "fail", &["file/cache", "cannot be written"]);
    let cache = folder.path("cache");
    std::fs::create_dir_all(format!("{cache}/tls")).expect("made");
    let apart = Command::new("unshare").args(["-m", "true"]).output();
    if apart.is_ok_and(|output| output.status.success()) {
        let script = format!(
            "mount --bind '{cache}' '{cache}' && mount -o remount,bind,ro '{cache}' && exec \"$0\" \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args([
            "-m",
            "sh",
            "-c",
            &script,
            env!("CARGO_BIN_EXE_jaguar"),
            "doctor",
            "--json",
            "--cache",
            &cache,
        ]);
        let (said, sound) = read(command);
        assert!(!sound);
        assert_found(&said, "cache", "fail", &[&cache, "Read-only"]);
    } else {
        println!("skip: this user may not mount anything");
    }
    // Keys, tokens and a model that others may read.
    let (model, tokens, token) = (tiny::compile(&folder), folder.path("tokens"), folder.path("token"));
    let given = Process::start(jaguar(&["token", "alice", "--tokens", &tokens])).finish(WATCHDOG).succeeded();
    std::fs::write(&token, given).expect("written");
    let mode = |path: &str, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own file");
    };
    let options = ["--tokens", &tokens, "--token-file", &token, &model];
    mode(&token, 0o600);
    mode(&model, 0o600);
    let (said, sound) = doctor(&folder, &options);
    assert!(sound, "{said:#}");
    assert_found(&said, "secrets", "ok", &["2 files"]);
    mode(&token, 0o640);
    mode(&model, 0o644);
    let (said, sound) = doctor(&folder, &options);
    assert!(!sound);
    let secrets = of(&said, "secrets");
    let bad = secrets.iter().find(|finding| finding["verdict"] == "fail").expect("a failure");
    assert!(
        bad["found"].as_str().is_some_and(|found| found.contains(&token) && found.contains("640")),
        "{bad:#}"
    );
    assert_found(&said, "model secrecy", "warn", &[&model, "644"]);
    mode(&token, 0o600);
    std::fs::write(&token, "nonsense").expect("written");
    std::fs::write(&tokens, "nonsense").expect("written");
    let (said, sound) = doctor(&folder, &options);
    assert!(!sound);
    assert_found(&said, "token", "fail", &[&token]);
    assert_found(&said, "tokens", "fail", &["line 1"]);
    let (said, sound) = doctor(&folder, &[&token]);
    assert!(!sound);
    assert_found(&said, "model", "fail", &[&token]);
    // Few handles.
    let few = |limit: u32| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_jaguar"), "doctor", "--json", "--cache", &cache]);
        read(command).0
    };
    assert_found(&few(64), "handles", "fail", &["64 files"]);
    assert_found(&few(256), "handles", "warn", &["256 files"]);
    assert_found(&few(1024), "handles", "ok", &["1024 files"]);
}
