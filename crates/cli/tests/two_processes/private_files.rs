//! What commands write, nobody but its owner can read: models, keys, hints, tokens, answers, pages. With an open umask.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::connections::fingerprint;
use crate::predictions::photo;
use crate::process::{Process, Scratch, Server, jaguar, repository};
use crate::{WATCHDOG, tiny};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// The same command where files are made for all to read unless it says otherwise, whatever the tests are run with.
fn with_open_umask(command: Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 022; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    shell
}

/// Writes a secret into a file that its owner alone may use.
pub fn write_secret(path: &str, secret: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, secret).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("our own file");
}

/// Without a word about modes a file is open to all: else this test would find nothing.
#[test]
fn an_open_umask_is_one() {
    let folder = Scratch::new("open-umask");
    let mut touch = Command::new("touch");
    touch.arg(folder.path("x"));
    assert!(with_open_umask(touch).status().unwrap().success());
    let mode = std::fs::metadata(folder.path("x")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o644);
}

#[track_caller]
fn run(arguments: &[&str]) -> String {
    Process::start(with_open_umask(jaguar(arguments))).finish(WATCHDOG).succeeded()
}

#[test]
fn every_file_that_a_command_writes_is_its_owners() {
    let folder = Scratch::new("private-files");
    // What the commands read lies elsewhere.
    let sources = Scratch::new("private-sources");
    std::fs::write(sources.path("tiny.onnx"), tiny::onnx()).unwrap();
    let at = |name: &str| folder.path(name);
    let calibration = repository("demo/calibration");
    let (model, cache, tokens) = (at("tiny.jaguar"), at("cache"), at("tokens"));
    let (source, report) = (sources.path("tiny.onnx"), at("compiled.html"));
    let mut compile =
        vec!["compile", &source, "--calibrate", &calibration, "-o", &model, "--report", &report];
    compile.extend(tiny::PREPARATION);
    run(&compile);
    run(&["plan", &model, "--measure", "off", "--report", &at("plan.html")]);
    let token = run(&["token", "alice", "--tokens", &tokens]);
    write_secret(&sources.path("token"), &token);

    // A certificate that is made and kept; the hint; answers as rows; times as a page and as JSON.
    let server_cache = at("server-cache");
    let mut serve = vec!["serve", &model, "--listen", "127.0.0.1:0", "--measure", "off", "--tls", "on"];
    serve.extend(["--cache", &server_cache, "--tokens", &tokens]);
    let mut server = Server::of(with_open_umask(jaguar(&serve)), WATCHDOG);
    let (pin, photo, token) = (fingerprint(&mut server), photo(), sources.path("token"));
    let ask = |cache: &str, more: &[&str]| {
        let mut arguments =
            vec!["predict", "--server", &server.address, "--pin", &pin, "--token-file", &token];
        arguments.extend(["--cache", cache, &photo]);
        arguments.extend(more);
        run(&arguments)
    };
    ask(&cache, &["--csv", &at("answers.csv")]);
    ask(&cache, &["--trace", &at("trace.html")]);
    ask(&cache, &["--trace", &at("trace.json")]);
    run(&[
        "fetch",
        "--server",
        &server.address,
        "--pin",
        &pin,
        "--token-file",
        &token,
        "--cache",
        &at("fetched"),
    ]);

    let mut all = Vec::new();
    files(Path::new(&at(".")), &mut all);
    let open: Vec<String> = all
        .iter()
        .filter_map(|path| {
            let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            (mode & 0o077 != 0).then(|| format!("{} {mode:o}", path.display()))
        })
        .collect();
    assert!(open.is_empty(), "{open:#?}");
    // All of them were looked at.
    let kinds: BTreeSet<&str> = all.iter().filter_map(|path| path.extension()?.to_str()).collect();
    for kind in ["jaguar", "html", "json", "csv", "hint", "pem"] {
        assert!(kinds.contains(kind), "no file of kind {kind}: {all:#?}");
    }
    assert!(all.len() >= 9, "{all:#?}");
}
