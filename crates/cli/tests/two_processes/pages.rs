//! Pages that a newcomer follows, command by command, with a small network in place of the reader's or the demo's.

use std::io::Write;

use crate::WATCHDOG;
use crate::process::{Process, Scratch, Server, jaguar, repository};

/// A page's commands, and what they left.
struct Followed {
    folder: Scratch,
    /// The subcommand of each that ran.
    ran: Vec<String>,
    /// What each printed.
    printed: Vec<String>,
}

/// Runs each `jaguar` command in the page's blocks of shell, in its order. Files of demo/ are taken from `stand_ins` (name in the folder,
/// content) where they are there.
fn follow(name: &str, page: &str, stand_ins: &[(&str, Vec<u8>)]) -> Followed {
    let folder = Scratch::new(name);
    std::fs::create_dir_all(folder.path("demo")).unwrap();
    for (file, content) in stand_ins {
        std::fs::write(folder.path(file), content).unwrap();
    }
    let page = std::fs::read_to_string(repository(page)).unwrap();
    let blocks =
        page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().replace("\\\n", " "));
    let lines: Vec<String> = blocks.flat_map(|b| b.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let mut server: Option<Server> = None;
    let (mut ran, mut printed) = (Vec::new(), Vec::new());
    for line in lines.iter().filter(|line| line.starts_with("jaguar ")) {
        let mut words: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        ran.push(words[0].clone());
        if words[0] == "serve" {
            // (On an address that is free, and only here: then there is no certificate to pin.)
            server = Some(Server::start(&folder.path(&words[1]), &[], WATCHDOG));
            printed.push(String::new());
            continue;
        }
        if let Some(at) = words.iter().position(|word| word == "--pin") {
            words.drain(at..at + 2);
        }
        for word in &mut words {
            match word.strip_prefix("demo/") {
                Some(rest) if !std::path::Path::new(&folder.path(word)).exists() => {
                    *word = format!("{}/{rest}", repository("demo"));
                }
                Some(_) => {}
                None if word == "127.0.0.1:7447" || word == "server.example:7447" => {
                    word.clone_from(&server.as_ref().expect("a server that was started before").address);
                }
                None if word == "photo.jpg" => *word = repository("demo/photo.jpg"),
                None => {}
            }
        }
        // No test measures the machine, or writes into the user's cache.
        match words[0].as_str() {
            "plan" => words.extend(["--measure".into(), "off".into()]),
            "predict" => words.push("--no-cache".into()),
            _ => {}
        }
        let mut command = jaguar(&words.iter().map(String::as_str).collect::<Vec<_>>());
        command.current_dir(folder.path(""));
        let (process, mut stdin) = Process::start_with_input(command);
        if words.iter().any(|word| word == "--stdin") {
            writeln!(stdin, "{}", repository("demo/photo.jpg")).unwrap();
        }
        drop(stdin);
        printed.push(process.finish(WATCHDOG).succeeded());
    }
    Followed { folder, ran, printed }
}

fn tiny() -> Vec<u8> {
    std::fs::read(repository("python/jaguar/tests/tiny.onnx")).unwrap()
}

#[test]
fn the_start_page_runs() {
    let it = follow("start", "docs/start.md", &[("own.onnx", tiny())]);
    assert_eq!(it.ran, ["--version", "compile", "plan", "serve", "predict", "predict"]);
    for written in ["own.jaguar", "own.html", "plan.html", "trace.html", "answers.csv"] {
        assert!(std::fs::metadata(it.folder.path(written)).unwrap().len() > 0, "{written}");
    }
}

#[test]
fn the_tutorial_runs() {
    let labels = b"lamp\nchair\nespresso\ncup\n".to_vec();
    let stand_ins = [("demo/squeezenet1_1.onnx", tiny()), ("demo/labels.txt", labels)];
    let it = follow("tutorial", "docs/tutorial.md", &stand_ins);
    assert_eq!(it.ran, ["--version", "compile", "serve", "predict", "predict", "predict"]);
    let [.., first, costs, from_stdin] = &it.printed[..] else { panic!("{:?}", it.printed) };
    for answer in [first, costs, from_stdin] {
        assert!(["lamp", "chair", "espresso", "cup"].iter().any(|label| answer.contains(label)), "{answer}");
    }
    assert!(costs.contains("offline (before the input)") && costs.contains("peak memory"), "{costs}");
}
