//! Many inputs in one run: rows of a CSV file, a run that goes on with one; and the pages that commands write.

use crate::predictions::{Deployment, photo};
use crate::process::{Process, jaguar, repository};
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
    let printed = run(&["plan", &it.model, "--measure", "off", "--report", &page("plan.html")]);
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
