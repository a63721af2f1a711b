//! Where options come from, and what is told of those that cannot be.

use crate::process::{Process, Scratch, jaguar};
use crate::{WATCHDOG, assert_fails};

/// `jaguar config show` with these arguments, and an environment.
fn show(arguments: &[&str], environment: &[(&str, &str)]) -> Process {
    let mut command = jaguar(&["config", "show"]);
    command.args(arguments).envs(environment.iter().copied());
    Process::start(command)
}

/// The line of an option, and where it comes from.
#[track_caller]
fn line(text: &str, key: &str) -> (String, String) {
    let found = text.lines().find(|line| line.trim_start_matches("# ").starts_with(&format!("{key} =")));
    let (line, source) =
        found.and_then(|line| line.rsplit_once("  # ")).unwrap_or_else(|| panic!("{key}: {text}"));
    (line.trim().to_owned(), source.to_owned())
}

#[test]
fn flags_come_before_the_environment_that_before_the_file_and_that_before_defaults() {
    let folder = Scratch::new("precedence");
    let config = folder.path("a.toml");
    let text = "max-clients = 1\nmax-idle = 1\nmax-stalled = 1\ntokens = 'b.tokens'\nreveal = 'label'\n\
                backends = ['jaguar', 'cheetah']\n[models.a]\nfile = 'c.jaguar'\nhide-for = 100\nclients = ['x y']\n\
                [clients.'x y']\nmax-sessions = 7\n";
    std::fs::write(&config, text).expect("written");
    let environment = [
        ("JAGUAR_MAX_CLIENTS", "2"),
        ("JAGUAR_MAX_IDLE", "2"),
        ("JAGUAR_MODEL_FILES", "one:two words"),
        ("JAGUAR_LOG", ""),
    ];
    let said = show(&["--config", &config, "--max-clients", "3"], &environment).finish(WATCHDOG).succeeded();
    let (file, folder_of) = (|n: usize| format!("{config}:{n}"), |name: &str| folder.path(name));
    for (key, want, source) in [
        ("max-clients", "max-clients = 3".to_owned(), "command line".to_owned()),
        ("max-idle", "max-idle = 2".into(), "JAGUAR_MAX_IDLE".into()),
        ("max-stalled", "max-stalled = 1".into(), file(3)),
        ("tokens", format!("tokens = \"{}\"", folder_of("b.tokens")), file(4)),
        ("reveal", "reveal = \"label\"".into(), file(5)),
        ("backends", "backends = [\"jaguar\", \"cheetah\"]".into(), file(6)),
        ("model-files", "model-files = [\"one\", \"two words\"]".into(), "JAGUAR_MODEL_FILES".into()),
        ("log", "log = \"text\"".into(), "default".into()),
        ("max-memory", "# max-memory =".into(), "not set".into()),
        ("file", format!("file = \"{}\"", folder_of("c.jaguar")), file(7)),
        ("hide-for", "hide-for = 100".into(), file(9)),
        ("max-sessions", "max-sessions = 7".into(), file(11)),
    ] {
        // (A model's own options stand behind those for all.)
        let part =
            if ["file", "hide-for"].contains(&key) { said.split("[models.a]").nth(1) } else { Some(&*said) };
        assert_eq!(line(part.expect("a model"), key), (want, source));
    }
    // In the environment alone.
    let said = show(&[], &[("JAGUAR_CONFIG", &config), ("JAGUAR_REVEAL", "logits")]);
    let said = said.finish(WATCHDOG).succeeded();
    assert_eq!(line(&said, "max-clients"), ("max-clients = 1".into(), file(1)));
    assert_eq!(line(&said, "reveal").1, "JAGUAR_REVEAL");
    // What is printed is a file that says the same.
    let again = folder.path("again.toml");
    std::fs::write(&again, &said).expect("written");
    let shown = show(&["--config", &again], &[]).finish(WATCHDOG).succeeded();
    let bare = |text: &str| -> Vec<String> {
        text.lines()
            .map(|l| l.rsplit_once("  # ").map_or(l, |(line, _)| line).trim_end().to_owned())
            .collect()
    };
    assert_eq!(bare(&shown), bare(&said));
}

#[test]
fn what_cannot_be_is_told_with_its_place() {
    let folder = Scratch::new("config-errors");
    let config = folder.path("a.toml");
    let fails = |text: &str, parts: &[&str]| {
        std::fs::write(&config, text).expect("written");
        assert_fails(show(&["--config", &config], &[]), parts);
    };
    fails("\nmax-client = 3\n", &["a.toml:2: there is no option 'max-client'; 'max-clients' may be meant"]);
    fails("config = 'b.toml'\n", &["a.toml:1: there is no option 'config'"]);
    fails("max-clients = 'many'\n", &["a.toml:1: max-clients: 'many' is not possible: a number is needed"]);
    fails("max-clients = [1, 2]\n", &["a.toml:1: max-clients: one value is needed, not a list"]);
    fails("log = 'xml'\n", &["a.toml:1: log: 'xml' is not possible (possible: text, json)"]);
    fails("log = true\n", &["a.toml:1: log: a text, a number or a list is needed"]);
    fails("a = \n", &["a.toml:1: "]);
    fails(
        "[models.a]\nfiel = 'x'\n",
        &["a.toml:2: there is no option of a model 'fiel'; 'file' may be meant"],
    );
    fails(
        "[models.a]\nreveal = 'all'\n",
        &["a.toml:2: reveal: 'all' is not possible (possible: logits, label)"],
    );
    fails("[models.'a b']\nfile = 'x'\n", &["a.toml:1: 'a b' is no model's name"]);
    fails(
        "[clients.a]\nmodel = []\n",
        &["a.toml:2: there is no option of a client 'model'; 'models' may be meant"],
    );
    fails("[clients.a]\nmax-sessions = 0\n", &["a.toml:2: max-sessions: at least 1"]);
    let none = folder.path("none.toml");
    assert_fails(show(&["--config", &none], &[]), &["reading the configuration", &none, "No such file"]);
    let wrong = [("JAGUAR_MAX_CLIENTS", "0")];
    assert_fails(show(&[], &wrong), &["JAGUAR_MAX_CLIENTS: max-clients: '0' is not possible: at least 1"]);
}

/// The file that comes with the source is sound.
#[test]
fn the_example_is_a_configuration() {
    let example = crate::process::repository("packaging/jaguar.toml");
    let said = show(&["--config", &example], &[]).finish(WATCHDOG).succeeded();
    assert!(said.contains("[models.") && said.contains("[clients."), "{said}");
}

#[test]
fn options_of_the_other_protocol_are_refused_wherever_they_are_set() {
    let folder = Scratch::new("other-protocol");
    let config = folder.path("a.toml");
    let fails = |text: &str, arguments: &[&str], environment: &[(&str, &str)], parts: &[&str]| {
        std::fs::write(&config, text).expect("written");
        assert_fails(show(&[&["--config", &config], arguments].concat(), environment), parts);
    };
    let convfhe = ["--protocol", "convfhe"];
    fails(
        "",
        &["--key-dir", "x"],
        &[],
        &["--key-dir is for --protocol convfhe", "interactive (the default)"],
    );
    fails("", &convfhe, &[("JAGUAR_KEEP_QUERIES", "1")], &["JAGUAR_KEEP_QUERIES: --keep-queries is for"]);
    let at = |line: usize| format!("{config}:{line}");
    let text = "protocol = 'convfhe'\nreveal = 'label'\n";
    fails(text, &[], &[], &[&format!("{}: --reveal is for --protocol interactive", at(2)), &at(1)]);
    let text = "[models.a]\nfile = 'x'\nbackends = ['jaguar']\n";
    fails(text, &convfhe, &[], &[&format!("{}: backends is for --protocol interactive", at(3))]);
    // What is printed leaves them out, so it can be read again.
    let said = show(&convfhe, &[]).finish(WATCHDOG).succeeded();
    assert!(said.contains("keep-answers") && !said.contains("keep-queries"), "{said}");
    std::fs::write(&config, &said).expect("written");
    show(&["--config", &config], &[]).finish(WATCHDOG).succeeded();
}
