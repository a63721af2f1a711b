//! What the command and the benchmarks share as programs for people: lines on standard output, tables, and the options that
//! several of them have.

pub mod table;

use std::io::Write;

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

/// Limits the threads of the linear layers and the preparation; 0 leaves it to the number of cores.
///
/// # Errors
/// When the threads were started already, or cannot be.
pub fn set_threads(threads: usize) -> Result<(), rayon::ThreadPoolBuildError> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()
}

/// Prints a line to standard output. Who closes it early (`| head`) has seen enough: then the program ends.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::print(format_args!($($text)*)) };
}

/// What [`say!`] calls.
pub fn print(line: std::fmt::Arguments<'_>) {
    if writeln!(std::io::stdout().lock(), "{line}").is_err() {
        std::process::exit(0);
    }
}
