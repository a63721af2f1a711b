//! What the command and the benchmarks share as programs for people: lines on standard output, tables, and the options
//! that several of them have.

pub mod table;

pub use crate::say;

use std::error::Error;
use std::io::{self, Write};

/// The most threads that may be asked for.
const MAX_THREADS: usize = 1024;

/// A number of threads, for the command line: 0 (one per core) to 1024.
///
/// # Errors
/// What is needed instead, in words.
pub fn thread_count(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|n| *n <= MAX_THREADS);
    threads.ok_or_else(|| format!("a number up to {MAX_THREADS} is needed (0: one per core)"))
}

/// A count, for the command line: 1 or more.
///
/// # Errors
/// What is needed instead, in words.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("a number is needed".into()),
    }
}

/// A number of bytes, for the command line: `500M`, `2G`, `1.5GiB`, or plain bytes. Units are powers of 1024.
///
/// # Errors
/// What is needed instead, in words.
pub fn size(text: &str) -> Result<u64, String> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let letter = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit);
    let shift = match letter {
        "" => Some(0),
        "K" | "k" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        _ => None,
    };
    let number = number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    match (number, shift) {
        (Some(number), Some(shift)) if number < 2f64.powi(62 - shift) => {
            Ok((number * 2f64.powi(shift)) as u64)
        }
        _ => Err("a size is needed, such as 500M or 2G".into()),
    }
}

/// Bytes that a thread takes when it starts: its stack, and what signals and the allocator put beside it.
const THREAD_BYTES: usize = 5 << 19;

/// Limits the threads of the linear layers and the preparation; 0 leaves it to the number of cores.
///
/// # Errors
/// When the threads were started already, or cannot be: there is no memory for them, say.
pub fn set_threads(threads: usize) -> io::Result<()> {
    let failed =
        |why: &dyn std::fmt::Display| io::Error::other(format!("starting the threads that compute: {why}"));
    let count = if threads == 0 { std::thread::available_parallelism()?.get() } else { threads };
    // A thread that finds no memory for what it begins with ends the process by a panic. So room for all is looked for first.
    let mut room = Vec::<u8>::new();
    let found = room.try_reserve_exact(count.saturating_mul(THREAD_BYTES));
    // (An allocation that nobody sees would be optimised away.)
    drop(std::hint::black_box(room));
    found.map_err(|_| failed(&format!("there is no memory for {count}")))?;
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().map_err(|e| failed(&e))
}

/// How many threads the linear layers and the preparation have.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Prints a line to standard output. Who closes it early (`| head`) has seen enough: then the program ends. Where the line cannot
/// be written for another reason (a full disk), the program fails: what it was asked for is lost.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::terminal::print(format_args!($($text)*)) };
}

/// What [`say!`] calls.
pub fn print(line: std::fmt::Arguments<'_>) {
    if let Err(e) = writeln!(std::io::stdout().lock(), "{line}") {
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        let _ = writeln!(std::io::stderr(), "error: writing to standard output: {e}");
        std::process::exit(1);
    }
}

/// The error and its causes. Most errors here tell their cause themselves, at the end of their text or inside of it:
/// what was said is not said again.
pub fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let said = error.to_string();
        if text.is_empty() {
            text = said;
        } else if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::{in_one_line, size};

    /// An error with a text of its own, and a cause.
    #[derive(Debug)]
    struct Because(&'static str, Option<Box<Because>>);

    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Because {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn an_error_says_its_causes_once() {
        let why = || Because("the disk is full", None);
        let because = |text, cause| Because(text, Some(Box::new(cause)));
        for (error, said) in [
            (why(), "the disk is full"),
            (because("writing the hint", why()), "writing the hint: the disk is full"),
            // Those that tell their cause themselves.
            (because("writing the hint: the disk is full", why()), "writing the hint: the disk is full"),
            (because("the disk is full, found by this side", why()), "the disk is full, found by this side"),
            (
                because("fetching", because("the disk is full (at layer 3)", why())),
                "fetching: the disk is full (at layer 3)",
            ),
        ] {
            assert_eq!(in_one_line(&error), said);
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1000),
            ("3K", 3072),
            ("500M", 500 << 20),
            ("1.5GiB", 3 << 29),
            ("2GB", 2 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1T", "M5", "1e400", "9999999999999G", "nan", "1 G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
