//! Too little memory is said before anything runs, by both parties, with what would fit.

use std::io::Write;
use std::process::Command;

use crate::WATCHDOG;
use crate::predictions::{Deployment, photo};
use crate::process::{Process, Scratch, jaguar};

/// So many prepared queries of the small network would hold 1.4 GB.
const MANY: &str = "20000";

/// `command` with a limit on its addresses, in KiB.
fn limited(kib: u64, command: &Command) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &kib.to_string()]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

/// `command` on a machine that says it has so much memory left, where the system lets a test pretend that (it needs name spaces).
fn on_a_machine_with(kib: u64, folder: &Scratch, command: &Command) -> Option<Command> {
    let fake = folder.path("meminfo");
    std::fs::write(&fake, format!("MemTotal: {kib} kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\n"))
        .unwrap();
    let pretend = |program: &str| {
        let mut shell = Command::new("unshare");
        let script = format!("mount --bind '{fake}' /proc/meminfo && exec \"$0\" \"$@\"");
        shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, program]);
        shell
    };
    if !pretend("true").output().is_ok_and(|output| output.status.success()) {
        println!("skip: this system lets no test pretend that it has little memory");
        return None;
    }
    let mut shell = pretend(&command.get_program().to_string_lossy());
    shell.args(command.get_args());
    Some(shell)
}

#[test]
fn a_limit_of_the_process_is_told_with_what_would_fit() {
    let it = Deployment::new("ulimit", &[]);
    // (The limit is one of addresses, and each thread takes many.)
    let ask =
        ["predict", "--server", &it.server.address, "--no-cache", "--threads", "2", "--keep", MANY, &photo()];
    let asked = Process::start(limited(1_200_000, &jaguar(&ask))).finish(WATCHDOG);
    let told = asked.stderr.clone();
    asked.succeeded();
    for part in [
        "warning: the client takes about ",
        "left below the limit of this process (ulimit)",
        "What would fit: --keep ",
    ] {
        assert!(told.contains(part), "{part:?}: {told}");
    }
    // Without a limit, none is named.
    let asked = Process::start(jaguar(&ask)).finish(WATCHDOG);
    assert!(!asked.stderr.contains("limit of this process"), "{}", asked.stderr);
}

#[test]
fn a_machine_with_little_memory_is_told() {
    let it = Deployment::new("little", &[]);
    let room = 30_000;
    let ask = jaguar(&["predict", "--server", &it.server.address, "--no-cache", &photo()]);
    let Some(ask) = on_a_machine_with(room, &it.folder, &ask) else { return };
    let asked = Process::start(ask).finish(WATCHDOG);
    let told = asked.stderr.clone();
    asked.succeeded();
    assert!(
        told.contains("warning: the client takes about ")
            && told.contains("29.30 MiB are free on this machine"),
        "{told}"
    );
    assert!(told.contains("No single option makes it fit"), "{told}");

    // The server says it before it listens.
    let serve = jaguar(&["serve", &it.model, "--listen", "127.0.0.1:0", "--measure", "off"]);
    let serve = on_a_machine_with(room, &it.folder, &serve).expect("it did before");
    let mut served = Process::start(serve);
    served.line_with("listening on", WATCHDOG);
    served.kill();
    let told = served.finish(WATCHDOG).stderr;
    assert!(
        told.contains("warning: the server takes about ") && told.contains("are free on this machine"),
        "{told}"
    );
}

/// Where a limit leaves no room for two sessions, the second is told so, and the first goes on.
#[test]
fn sessions_have_what_a_limit_of_the_process_leaves() {
    let folder = Scratch::new("own-limit");
    let model = crate::tiny::compile(&folder);
    // What may be kept takes nearly all of what the limit leaves: one session is tried.
    let serve = jaguar(&[
        "serve",
        &model,
        "--listen",
        "127.0.0.1:0",
        "--measure",
        "off",
        "--threads",
        "2",
        "--keep-memory",
        "100G",
    ]);
    let mut process = Process::start(limited(4_000_000, &serve));
    let line = process.line_with("listening on ", WATCHDOG);
    let address = line.rsplit(' ').next().expect("an address").to_owned();
    process.line_with("sessions may take ", WATCHDOG);
    let cache = folder.path("cache");
    let (mut first, mut input) = Process::start_with_input(jaguar(&[
        "predict", "--json", "--server", &address, "--cache", &cache, "--stdin", "--keep", "0",
    ]));
    writeln!(input, "{}", photo()).expect("it reads");
    first.line_with("class-", WATCHDOG);
    let second = ["predict", "--server", &address, "--cache", &cache, "--keep", "0", &photo()];
    crate::assert_fails(Process::start(jaguar(&second)), &["the server's memory for sessions is taken"]);
    writeln!(input, "{}", photo()).expect("it reads");
    drop(input);
    assert_eq!(first.finish(WATCHDOG).succeeded().lines().count(), 2);
    process.kill();
    let told = process.finish(WATCHDOG).stderr;
    assert!(told.contains("not even one session fits the memory that is left below the limit"), "{told}");
}
