//! The command as a child process, under a watchdog, and the server as one that says where it listens.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(5);

/// A folder of one test, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// `name` must be unique among the tests of one process.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jaguar-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    /// A path in the folder, as text, since most are arguments.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file of the repository.
pub fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).display().to_string()
}

/// The command with these arguments.
pub fn jaguar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jaguar"));
    command.args(arguments);
    command
}

/// What a process wrote and how it ended.
pub struct Finished {
    pub stdout: String,
    pub stderr: String,
    pub status: ExitStatus,
}

impl Finished {
    /// What it printed; the test fails unless it succeeded.
    #[track_caller]
    pub fn succeeded(self) -> String {
        assert!(self.status.success(), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self.stdout
    }
}

type Text = Arc<Mutex<String>>;

/// A running process. It is killed at the end; whatever way it ended, it must not have panicked.
pub struct Process {
    pub id: u32,
    child: Child,
    stdout: Text,
    stderr: Text,
    readers: Vec<JoinHandle<()>>,
    shown: String,
}

impl Process {
    /// Starts it, with both outputs captured and nothing to read.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self::spawn(command)
    }

    /// Starts it, with both outputs captured; it reads what is written to the other value, until that is dropped.
    #[allow(dead_code, reason = "not every test binary has a process that reads")]
    pub fn start_with_input(mut command: Command) -> (Self, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut process = Self::spawn(command);
        let input = process.child.stdin.take().expect("piped");
        (process, input)
    }

    fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
        let (stdout, stderr) = (Text::default(), Text::default());
        let readers = vec![
            capture(child.stdout.take().expect("piped"), &stdout),
            capture(child.stderr.take().expect("piped"), &stderr),
        ];
        Self { id: child.id(), child, stdout, stderr, readers, shown }
    }

    /// Waits for a line on standard output that contains `text`, and returns it.
    #[track_caller]
    pub fn line_with(&mut self, text: &str, limit: Duration) -> String {
        let line = self.line_or_end(text, limit);
        let said = || format!("{}\n{}{}", self.shown, read(&self.stdout), read(&self.stderr));
        line.unwrap_or_else(|| panic!("ended before {text:?}: {}", said()))
    }

    /// As [`line_with`](Self::line_with); none if the process ends without it.
    #[track_caller]
    pub fn line_or_end(&mut self, text: &str, limit: Duration) -> Option<String> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.child.try_wait().expect("our own child").is_some();
            // A last line without its end may be cut in the middle.
            let whole = |s: &str| s.rfind('\n').map_or(String::new(), |end| s[..end].to_owned());
            let found = whole(&read(&self.stdout)).lines().find(|l| l.contains(text)).map(str::to_owned);
            if found.is_some() || ended {
                return found;
            }
            let said = || format!("{}\n{}{}", self.shown, read(&self.stdout), read(&self.stderr));
            assert!(Instant::now() < deadline, "no {text:?} within {limit:?}: {}", said());
            thread::sleep(POLL);
        }
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                break status;
            }
            if Instant::now() >= deadline {
                let said = format!("{}{}", read(&self.stdout), read(&self.stderr));
                panic!("process {} still runs after {limit:?}: {}\n{said}", self.id, self.shown);
            }
            thread::sleep(POLL);
        };
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader that ends with its pipe");
        }
        Finished { stdout: read(&self.stdout), stderr: read(&self.stderr), status }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if !thread::panicking() {
            for text in [&self.stdout, &self.stderr] {
                let text = read(text);
                assert!(!text.contains("panicked at"), "{}\n{text}", self.shown);
            }
        }
    }
}

fn read(text: &Text) -> String {
    text.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn capture(mut pipe: impl Read + Send + 'static, into: &Text) -> JoinHandle<()> {
    let into = Arc::clone(into);
    thread::spawn(move || {
        let (mut buffer, mut all) = ([0; 1 << 16], Vec::new());
        while let Ok(n @ 1..) = pipe.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
            *into.lock().unwrap_or_else(PoisonError::into_inner) = String::from_utf8_lossy(&all).into_owned();
        }
    })
}

/// `jaguar serve`, listening.
pub struct Server {
    pub process: Process,
    /// `127.0.0.1:port`.
    pub address: String,
}

impl Server {
    /// Serves the compiled `model` on a port that the system chooses.
    #[track_caller]
    pub fn start(model: &str, arguments: &[&str], limit: Duration) -> Self {
        // The default plan: what this machine takes is not what is tested, and nothing outside a test's folder is touched.
        let mut command = jaguar(&["serve", model, "--listen", "127.0.0.1:0", "--measure", "off"]);
        command.args(arguments);
        Self::of(command, limit)
    }

    /// Of a command that serves, on a port that the system chooses.
    #[track_caller]
    pub fn of(command: Command, limit: Duration) -> Self {
        let mut process = Process::start(command);
        let line = process.line_with("listening on ", limit);
        let address = line.rsplit(' ').next().expect("an address at the end").to_owned();
        Self { process, address }
    }

    /// As [`start`](Self::start), with a log that is JSON.
    #[allow(dead_code, reason = "not every test binary reads logs")]
    #[track_caller]
    pub fn start_logging(model: &str, arguments: &[&str], limit: Duration) -> Self {
        let mut command = jaguar(&["serve", model, "--listen", "127.0.0.1:0", "--measure", "off"]);
        command.args(arguments);
        let mut process = Process::start(command);
        let line = process.line_with("\"listening\"", limit);
        let address = line.split("\"address\":\"").nth(1).and_then(|rest| rest.split('"').next());
        Self { address: address.expect("an address").to_owned(), process }
    }
}
