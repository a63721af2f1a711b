//! Many inputs in one run: rows of a CSV file, a run that goes on with one; and the pages that commands write.

use crate::predictions::{Deployment, photo};
use crate::process::{Process, Scratch, Server, jaguar, repository};
use crate::{WATCHDOG, assert_fails, tiny};

/// A broken picture has a row with its error, an answer has its class; a second run asks for what is missing only.
#[test]
fn a_folder_becomes_rows_and_a_second_run_goes_on() {
    let it = Deployment::new("rows", &[]);
    let pictures = it.folder.path("pictures");
    std::fs::create_dir_all(&pictures).unwrap();
    for i in 0..5 {
        std::fs::write(format!("{pictures}/{i}.png"), tiny::png()).unwrap();
    }
    std::fs::write(format!("{pictures}/2.png"), "no picture").unwrap();
    let csv = it.folder.path("answers.csv");
    let cache = it.folder.path("cache");
    let ask = |more: &[&str]| {
        let mut command =
            jaguar(&["predict", "--server", &it.server.address, "--cache", &cache, "--csv", &csv, &pictures]);
        command.args(more);
        Process::start(command)
    };
    let rows = || -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(&csv).unwrap();
        let (header, rows) = text.split_once('\n').unwrap();
        assert_eq!(
            header,
            "input,label,class,probability,offline_seconds,online_seconds,bytes_up,bytes_down,error"
        );
        rows.lines().map(|row| row.splitn(9, ',').map(str::to_owned).collect()).collect()
    };
    let first = ask(&[]).finish(WATCHDOG);
    assert_eq!(first.status.code(), Some(1), "{}", first.stderr);
    assert!(first.stdout.contains("4 of 5 inputs answered"), "{}", first.stdout);
    assert!(first.stderr.contains("error: 1 of 5 inputs could not be used"), "{}", first.stderr);
    let found = rows();
    assert_eq!(found.len(), 5);
    for (i, row) in found.iter().enumerate() {
        assert!(row[0].ends_with(&format!("/{i}.png")), "{row:?}");
        if i == 2 {
            assert!(
                row[8].contains("neither an image nor a tensor") && row[1..8].iter().all(String::is_empty)
            );
        } else {
            assert_eq!((&row[2], &*row[8]), (&format!("class-{}", row[1]), ""));
            assert!((0.0..=1.0).contains(&row[3].parse::<f64>().unwrap()));
            assert!(row[6].parse::<u64>().unwrap() > 0);
        }
    }
    // What is there is not overwritten unasked.
    assert_fails(ask(&[]), &["--csv", "answers.csv", "--resume"]);
    // Row 1 is cut off and picture 2 mended: these two are asked for, and nothing else.
    let text = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&csv, format!("{}\n{}", [0, 1, 3, 4, 5].map(|i| lines[i]).join("\n"), &lines[2][..20]))
        .unwrap();
    std::fs::write(format!("{pictures}/2.png"), tiny::png()).unwrap();
    let second = ask(&["--resume"]).finish(WATCHDOG).succeeded();
    assert!(second.contains("3 have an answer already"), "{second}");
    assert!(second.contains("2 of 2 inputs answered"), "{second}");
    let mut names: Vec<String> = rows().into_iter().map(|row| row[0].clone()).collect();
    names.sort();
    assert_eq!(names, [0, 1, 2, 3, 4].map(|i| format!("{pictures}/{i}.png")));
    // Nothing is left to ask.
    let third = ask(&["--resume"]).finish(WATCHDOG).succeeded();
    assert_eq!(third.trim(), "5 have an answer already");
}

/// Each command writes its page, beside what it prints.
#[test]
fn pages_are_written() {
    let it = Deployment::new("pages", &[]);
    let page = |name: &str| it.folder.path(name);
    let read = |name: &str| std::fs::read_to_string(page(name)).unwrap();
    let run = |arguments: &[&str]| Process::start(jaguar(arguments)).finish(WATCHDOG).succeeded();
    let printed = run(&["plan", &it.model, "--calibrate", "off", "--report", &page("plan.html")]);
    assert!(printed.contains("wrote ") && read("plan.html").contains("What each backend would cost"));
    let trace = page("trace.html");
    run(&["predict", "--server", &it.server.address, "--no-cache", "--trace", &trace, &photo()]);
    let shown = read("trace.html");
    assert!(shown.contains("demo/photo.jpg") && shown.contains("Online, with the input"));
    // (What the computer calls its folders is left out.)
    assert!(!shown.contains(&repository("demo")));
    let refused = ["plan", &it.model, "--report", &page("plan.txt")];
    crate::fails(&refused, &["--report", ".html"]);
    crate::fails(&["plan", &it.model, "--report", &page("nowhere/plan.html")], &["is no folder"]);
}

/// Each `jaguar` command of docs/start.md, in its order: with another network in place of the reader's own, and the server's port.
#[test]
fn the_start_page_runs() {
    let folder = Scratch::new("start");
    let page = std::fs::read_to_string(repository("docs/start.md")).unwrap();
    std::fs::copy(repository("python/jaguar/tests/tiny.onnx"), folder.path("own.onnx")).unwrap();
    let demo = repository("demo");
    let blocks =
        page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().replace("\\\n", " "));
    let lines: Vec<String> = blocks.flat_map(|b| b.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let mut server = None;
    let mut ran = Vec::new();
    for line in lines.iter().filter(|line| line.starts_with("jaguar ")) {
        let mut words: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        ran.push(words[0].clone());
        if words[0] == "serve" {
            let model = folder.path(&words[1]);
            server = Some(Server::start(&model, &[], WATCHDOG));
            continue;
        }
        for word in &mut words {
            if let Some(rest) = word.strip_prefix("demo/") {
                *word = format!("{demo}/{rest}");
            } else if word == "127.0.0.1:7447" {
                word.clone_from(&server.as_ref().expect("a server that was started before").address);
            }
        }
        // No test measures the machine, or writes into the user's cache.
        match ran.last().unwrap().as_str() {
            "plan" => words.extend(["--calibrate".into(), "off".into()]),
            "predict" => words.push("--no-cache".into()),
            _ => {}
        }
        let mut command = jaguar(&words.iter().map(String::as_str).collect::<Vec<_>>());
        command.current_dir(folder.path(""));
        Process::start(command).finish(WATCHDOG).succeeded();
    }
    assert_eq!(ran, ["--version", "compile", "plan", "serve", "predict", "predict"]);
    for written in ["own.jaguar", "own.html", "plan.html", "trace.html", "answers.csv"] {
        assert!(std::fs::metadata(folder.path(written)).unwrap().len() > 0, "{written}");
    }
}
