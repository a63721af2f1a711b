//! Progress bars on a terminal; where there is none, lines of what takes long, or nothing.

use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use jaguar::progress::Progress;
use jaguar::reports::terminal::table::bytes;
use jaguar::signs::SearchStage;
use jaguar::wire::Stage;

/// Shows the stage, the layer, and how far it is; and how much of the hint is there while it comes.
pub struct Bars {
    bar: Option<(ProgressBar, BarKind)>,
    /// The layer that is being prepared.
    layer: String,
    quiet: bool,
    warnings: Vec<String>,
    /// One bar for all inputs, in place of those above.
    many: Option<Many>,
}

/// How far many inputs are: a bar on a terminal, elsewhere a line now and then.
struct Many {
    bar: ProgressBar,
    since: Instant,
    told: Instant,
    /// How many inputs are answered, and how many there are.
    done: u64,
    of: u64,
}

/// How often a line tells how far many inputs are, where there is no terminal.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

#[derive(PartialEq, Eq, Clone, Copy)]
enum BarKind {
    /// Bytes that travel once, under a title.
    Bytes(&'static str),
    Layers(Stage),
}

impl Bars {
    /// Bars on standard error (`quiet`: none).
    pub fn new(quiet: bool) -> Self {
        Self { bar: None, layer: String::new(), quiet, warnings: Vec::new(), many: None }
    }

    /// One bar for `of` inputs.
    pub fn of_many(of: u64) -> Self {
        let template = "inputs [{bar:30}] {pos}/{len} ({elapsed}, {eta} left) {msg}";
        let style =
            ProgressStyle::with_template(template).expect("a well-formed template").progress_chars("=> ");
        let bar = ProgressBar::new(of).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        let now = Instant::now();
        Self { many: Some(Many { bar, since: now, told: now, done: 0, of }), ..Self::new(false) }
    }

    /// So many of so many inputs are done (answered or not).
    pub fn inputs(&mut self, done: u64, of: u64) {
        let Some(many) = &mut self.many else { return };
        (many.done, many.of) = (done, of);
        many.bar.set_length(of);
        many.bar.set_position(done);
        if !stderr().is_terminal() && many.told.elapsed() >= NOW_AND_THEN {
            many.told = Instant::now();
            eprintln!("inputs, {done}/{of}, {:.0} s ...", many.since.elapsed().as_secs_f64());
        }
    }

    /// Seconds since the first of many inputs began.
    pub fn seconds(&self) -> f64 {
        self.many.as_ref().map_or(0.0, |many| many.since.elapsed().as_secs_f64())
    }

    /// Prints a line to standard error, above the bar if there is one.
    pub fn line(&self, text: &str) {
        match (&self.bar, &self.many) {
            (Some((bar, _)), _) | (None, Some(Many { bar, .. })) => bar.suspend(|| eprintln!("{text}")),
            (None, None) => eprintln!("{text}"),
        }
    }

    /// The warnings since this was last asked.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Removes the bar, so that other output may follow.
    pub fn finish(&mut self) {
        if let Some((bar, _)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// So many bytes are there of what travels under this title.
    pub fn bytes(&mut self, title: &'static str, done: u64, total: u64) {
        if let Some(bar) = self.bar(BarKind::Bytes(title), total) {
            bar.set_position(done);
        }
    }

    /// Removes the bar of all inputs too.
    pub fn end(&mut self) {
        self.finish();
        if let Some(many) = self.many.take() {
            many.bar.finish_and_clear();
        }
    }

    fn bar(&mut self, kind: BarKind, total: u64) -> Option<&ProgressBar> {
        if self.quiet || self.many.is_some() {
            return None;
        }
        if self.bar.as_ref().is_none_or(|(_, k)| *k != kind) {
            self.finish();
            let (title, count) = match kind {
                BarKind::Bytes(title) => (title, "{bytes}/{total_bytes}, {bytes_per_sec}"),
                BarKind::Layers(Stage::Offline) => ("preparing ", "{pos}/{len} {msg}"),
                BarKind::Layers(Stage::Online) => ("predicting", "{pos}/{len} {msg}"),
                BarKind::Layers(_) => ("getting ready", "{pos}/{len} {msg}"),
            };
            self.bar = Some((bar(title, count, total), kind));
        }
        self.bar.as_ref().map(|(bar, _)| bar)
    }
}

fn bar(title: &str, count: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{title} [{{bar:30}}] {count} ({{elapsed}})"))
        .expect("a well-formed template")
        .progress_chars("=> ");
    let bar = ProgressBar::new(total).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The steps of a command on standard error: a spinner on a terminal, elsewhere a line each, and more while one lasts.
#[derive(Default)]
pub struct Steps {
    what: String,
    now: Option<Phasing>,
}

enum Phasing {
    Spinner(ProgressBar),
    Lines { end: Sender<()>, thread: JoinHandle<()>, done: Arc<Mutex<String>> },
}

/// How long a step may be silent where there is no terminal.
const SILENCE: Duration = Duration::from_secs(2);

impl Steps {
    /// What is done from here on.
    pub fn begin(&mut self, what: impl Into<String>) {
        self.finish();
        let what = what.into();
        self.what.clone_from(&what);
        self.now = Some(if stderr().is_terminal() {
            let style =
                ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("a well-formed template");
            let spinner = ProgressBar::new_spinner().with_style(style).with_message(what);
            spinner.enable_steady_tick(Duration::from_millis(200));
            Phasing::Spinner(spinner)
        } else {
            eprintln!("{what} ...");
            let (end, ended) = channel();
            let start = Instant::now();
            let done = Arc::new(Mutex::new(String::new()));
            let so_far = Arc::clone(&done);
            let thread = thread::spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SILENCE) {
                    let done = so_far.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    eprintln!("{what}{done}, {:.0} s ...", start.elapsed().as_secs_f64());
                }
            });
            Phasing::Lines { end, thread, done }
        });
    }

    /// Shows that `done` of `of` pieces are done.
    pub fn done(&self, done: usize, of: usize) {
        let so_far = format!(", {done}/{of}");
        match &self.now {
            Some(Phasing::Spinner(spinner)) => spinner.set_message(format!("{}{so_far}", self.what)),
            Some(Phasing::Lines { done, .. }) => {
                *done.lock().unwrap_or_else(PoisonError::into_inner) = so_far;
            }
            None => {}
        }
    }

    /// Removes the spinner, so that other output may follow.
    pub fn finish(&mut self) {
        match self.now.take() {
            Some(Phasing::Spinner(spinner)) => spinner.finish_and_clear(),
            Some(Phasing::Lines { end, thread, .. }) => {
                drop(end);
                let _ = thread.join();
            }
            None => {}
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The search for the bits that signs may leave out.
pub struct Search {
    bar: Option<(ProgressBar, usize)>,
}

impl Search {
    /// A search of which nothing is shown until it begins.
    pub fn new() -> Self {
        Self { bar: None }
    }

    /// Shows which choice of bits is tried, and how far that is.
    pub fn stage(&mut self, stage: SearchStage) {
        let (number, title, done, of) = match stage {
            SearchStage::Layers(done, of) => (0, "measuring layers ".to_owned(), done, of),
            SearchStage::Check(number, done, of) => (number, format!("checking choice {number}"), done, of),
        };
        if self.bar.as_ref().is_none_or(|(_, n)| *n != number) {
            self.finish();
            self.bar = Some((bar(&title, "{pos}/{len}", of as u64), number));
        }
        if let Some((bar, _)) = &self.bar {
            bar.set_position(done as u64);
        }
    }

    /// Removes the bar, so that other output may follow.
    pub fn finish(&mut self) {
        if let Some((bar, _)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bars {
    fn step(&mut self, stage: Stage, index: usize, total: usize, name: &str) {
        if let Some(bar) = self.bar(BarKind::Layers(stage), total as u64) {
            bar.set_position(index as u64 + 1);
            bar.set_message(name.to_owned());
        }
        name.clone_into(&mut self.layer);
        if index + 1 == total {
            self.finish();
        }
    }

    fn hint(&mut self, done: u64, total: u64) {
        if let Some(many) = &self.many {
            let text = format!("hint {} of {}", bytes(done), bytes(total));
            many.bar.set_message(if done < total { text } else { String::new() });
            return;
        }
        match &self.bar {
            // The hint comes layer by layer while the layers are prepared.
            Some((bar, BarKind::Layers(Stage::Offline))) => {
                let hint = format!("{}, hint {} of {}", self.layer, bytes(done), bytes(total));
                bar.set_message(hint);
            }
            _ if done < total => self.bytes("fetching the hint (once)", done, total),
            _ => self.finish(),
        }
    }

    fn note(&mut self, text: &str) {
        self.line(&format!("note: {text}"));
    }

    fn warning(&mut self, text: &str) {
        self.line(&format!("warning: {text}"));
        self.warnings.push(text.to_owned());
    }
}
