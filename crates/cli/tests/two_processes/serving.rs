//! Several models behind one port, each with its clients; read again while clients are served.

use std::io::Write;

use serde_json::Value;

use crate::connections::{client, fingerprint, token};
use crate::operation::{figure, figure_becomes, metrics_of, page, signal};
use crate::predictions::{answers, photo};
use crate::process::{Process, Scratch, Server, jaguar};
use crate::{WATCHDOG, assert_fails, tiny};

/// `jaguar serve` with these arguments alone, listening on a port that the system chooses.
#[track_caller]
pub fn serve(arguments: &[&str]) -> Server {
    let mut command = jaguar(&["serve", "--listen", "127.0.0.1:0", "--measure", "off"]);
    command.args(arguments);
    let mut process = Process::start(command);
    let line = process.line_with("listening on ", WATCHDOG);
    Server { address: line.rsplit(' ').next().expect("an address").to_owned(), process }
}

/// The first word of the label that an answer begins with: which model it is of.
pub fn word(answer: &Value) -> &str {
    answer["top"][0]["name"].as_str().and_then(|name| name.split('-').next()).expect("a class")
}

/// Two models in the folder `models`: `cats` and `dogs`.
#[track_caller]
pub fn two(folder: &Scratch) -> String {
    std::fs::create_dir_all(folder.path("models")).expect("a folder");
    for name in ["cats", "dogs"] {
        tiny::compile_as(folder, &format!("models/{name}.jaguar"), name);
    }
    folder.path("models")
}

#[test]
fn two_models_have_a_client_each_over_tls() {
    let folder = Scratch::new("two-models");
    two(&folder);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| token(&folder, name));
    let config = folder.path("jaguar.toml");
    // Paths begin at the file's folder.
    let text = "tls = 'on'\ncache = 'server'\ntokens = 'tokens'\nmetrics = '127.0.0.1:0'\n\
                [models.cats]\nfile = 'models/cats.jaguar'\nclients = ['alice']\n\
                [models.dogs]\nfile = 'models/dogs.jaguar'\nreveal = 'label'\nclients = ['alice', 'bob']\n\
                [clients.alice]\nmodels = ['cats']\n";
    std::fs::write(&config, text).expect("written");
    let mut server = serve(&["--config", &config]);
    let (pin, metrics) = (fingerprint(&mut server), metrics_of(&mut server));
    let with = |token: &str, more: &[&str]| {
        client(&folder, &server.address, &[&["--pin", &pin, "--token-file", token][..], more].concat())
    };
    // Each has one model, and need not name it.
    let cats = answers(with(&alice, &[]), 1).remove(0);
    assert_eq!(word(&cats), "cats");
    let dogs = answers(with(&bob, &["--model", "dogs"]), 1).remove(0);
    assert_eq!(
        (dogs["label"].as_u64(), dogs["top"].as_array()),
        (cats["label"].as_u64(), None),
        "the label only"
    );
    assert_fails(
        with(&alice, &["--model", "dogs"]),
        &["this server has no model 'dogs' for this client, which may use cats"],
    );
    assert_fails(with(&bob, &["--model", "cats"]), &["no model 'cats' for this client, which may use dogs"]);
    assert_fails(with(&carol, &[]), &["this server has no model for this client; its operator"]);
    assert_fails(with(&bob, &["--model", "two words"]), &["'two words' is no model's name"]);
    server.process.line_with("prepared the model dogs", WATCHDOG);
    for (name, want) in [
        ("jaguar_queries_total{model=\"cats\"}", 1.0),
        ("jaguar_queries_total{model=\"dogs\"}", 1.0),
        ("jaguar_model_ready{model=\"cats\"}", 1.0),
        ("jaguar_refusals_total{reason=\"no-such-model\"}", 2.0),
        ("jaguar_refusals_total{reason=\"no-model\"}", 1.0),
    ] {
        figure_becomes(&metrics, name, want);
    }
    assert_eq!(page(&metrics, "/ready/dogs"), ("HTTP/1.1 200 OK".into(), "ready\n".into()));
    assert!(page(&metrics, "/ready/birds").0.contains("404"));
}

#[test]
fn a_folder_of_models_has_their_names() {
    let folder = Scratch::new("folder-of-models");
    let models = two(&folder);
    let server = serve(&[&models]);
    let ask = |more: &[&str]| client(&folder, &server.address, more);
    assert_fails(ask(&[]), &["this server has several models: name one of cats, dogs (--model)"]);
    for name in ["cats", "dogs"] {
        assert_eq!(word(&answers(ask(&["--model", name]), 1)[0]), name);
    }
    assert_fails(ask(&["--model", "birds"]), &["no model 'birds' for this client, which may use cats, dogs"]);
    let fails = |arguments: &[&str], parts: &[&str]| {
        let mut command = jaguar(&["serve", "--listen", "127.0.0.1:0", "--measure", "off"]);
        command.args(arguments);
        assert_fails(Process::start(command), parts);
    };
    fails(&[], &["no model", "--config"]);
    let empty = folder.path("empty");
    std::fs::create_dir(&empty).expect("a folder");
    fails(&[&empty], &[&empty, "no compiled model"]);
    let other = folder.path("cats.jaguar");
    std::fs::copy(folder.path("models/cats.jaguar"), &other).expect("copied");
    fails(&[&models, &other], &["two models are called 'cats'", &other]);
    let odd = folder.path("two words.jaguar");
    std::fs::rename(&other, &odd).expect("renamed");
    fails(&[&odd], &["'two words' is no model's name", "--config"]);
    std::fs::write(folder.path("models/broken.jaguar"), "nonsense").expect("written");
    fails(&[&models], &["model broken", "broken.jaguar"]);
}

#[test]
fn a_reload_leaves_sessions_the_model_that_they_have() {
    let folder = Scratch::new("reload");
    let models = two(&folder);
    let mut server = serve(&[&models, "--metrics", "127.0.0.1:0"]);
    let metrics = metrics_of(&mut server);
    let reloads = |result: &str| {
        let (_, text) = page(&metrics, "/metrics");
        let total = figure(&text, &format!("jaguar_reloads_total{{result=\"{result}\"}}"));
        (total, figure(&text, "jaguar_last_reload_successful"))
    };
    let ask = |name: &str| client(&folder, &server.address, &["--model", name]);
    let cache = folder.path("cache");
    let stays = [
        "predict",
        "--json",
        "--server",
        &server.address,
        "--cache",
        &cache,
        "--model",
        "cats",
        "--stdin",
        "--keep",
        "0",
    ];
    let (mut session, mut input) = Process::start_with_input(jaguar(&stays));
    writeln!(input, "{}", photo()).expect("it reads");
    session.line_with("cats-", WATCHDOG);

    // Another model under the name of one, one more, and one less.
    tiny::compile_as(&folder, "models/cats.jaguar", "lions");
    tiny::compile_as(&folder, "models/birds.jaguar", "birds");
    std::fs::remove_file(folder.path("models/dogs.jaguar")).expect("there");
    assert_eq!(reloads("ok"), (0.0, 1.0));
    signal(&server.process, "-HUP");
    server.process.line_with("reloaded: 2 models are new, 0 as before, 1 gone, 0 failed", WATCHDOG);
    assert_eq!(reloads("ok"), (1.0, 1.0));
    assert_eq!(word(&answers(ask("cats"), 1)[0]), "lions");
    assert_eq!(word(&answers(ask("birds"), 1)[0]), "birds");
    assert_fails(ask("dogs"), &["no model 'dogs' for this client, which may use birds, cats"]);
    assert!(!page(&metrics, "/metrics").1.contains("jaguar_model_ready{model=\"dogs\"}"));
    // The session that was there has the model that it began with.
    writeln!(input, "{}", photo()).expect("it reads");
    drop(input);
    let said = session.finish(WATCHDOG).succeeded();
    let labels: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(labels.iter().map(word).collect::<Vec<_>>(), ["cats", "cats"]);

    // A file that is none: what was there before is served, and the others are reloaded.
    std::fs::write(folder.path("models/cats.jaguar"), "nonsense").expect("written");
    tiny::compile_as(&folder, "models/birds.jaguar", "eagles");
    signal(&server.process, "-HUP");
    server.process.line_with("reloaded: 1 models are new, 0 as before, 0 gone, 1 failed", WATCHDOG);
    server.process.line_with("the one that was there before is served", WATCHDOG);
    assert_eq!(reloads("failed"), (1.0, 0.0));
    assert_eq!(word(&answers(ask("cats"), 1)[0]), "lions");
    assert_eq!(word(&answers(ask("birds"), 1)[0]), "eagles");
    assert_eq!(page(&metrics, "/ready").1, "ready\n");

    // Mended, all is well; what did not change is not read anew.
    std::fs::remove_file(folder.path("models/cats.jaguar")).expect("there");
    tiny::compile_as(&folder, "models/cats.jaguar", "tigers");
    signal(&server.process, "-HUP");
    server.process.line_with("reloaded: 1 models are new, 1 as before, 0 gone, 0 failed", WATCHDOG);
    assert_eq!(reloads("ok"), (2.0, 1.0));
    assert_eq!(word(&answers(ask("cats"), 1)[0]), "tigers");
}

#[test]
fn a_changed_configuration_counts_after_a_reload_and_a_broken_one_changes_nothing() {
    let folder = Scratch::new("reload-config");
    two(&folder);
    let config = folder.path("jaguar.toml");
    let write = |text: &str| std::fs::write(&config, text).expect("written");
    let cats = "[models.cats]\nfile = 'models/cats.jaguar'\n";
    write(cats);
    let mut server = serve(&["--config", &config]);
    let ask = |more: &[&str]| client(&folder, &server.address, more);
    assert_eq!(word(&answers(ask(&[]), 1)[0]), "cats");

    write(&format!(
        "max-session-bytes = '100K'\nlog = 'json'\n{cats}[models.dogs]\nfile = 'models/dogs.jaguar'\n"
    ));
    signal(&server.process, "-HUP");
    server.process.line_with("reloaded: 1 models are new, 1 as before", WATCHDOG);
    server.process.line_with("log has changed: that takes a restart", WATCHDOG);
    assert_fails(ask(&["--model", "dogs"]), &["102400 bytes"]);

    write("max-session-bytes = '1G'\nmodel-file = 'x'\n");
    signal(&server.process, "-HUP");
    let line = server.process.line_with("nothing is reloaded", WATCHDOG);
    for part in ["jaguar.toml:2: there is no option 'model-file'; 'model-files' may be meant", "stays"] {
        assert!(line.contains(part), "{line}");
    }
    assert_fails(ask(&["--model", "dogs"]), &["102400 bytes"]);
}
