//! Threads: each is a worker of the page with an instance of the module of its own, in the same memory.
//!
//! WebAssembly makes no threads, so JavaScript starts the workers, and each comes here for its work.

use std::sync::{Condvar, Mutex, PoisonError};

use rayon::{ThreadBuilder, ThreadPoolBuilder};

/// Threads of the pool that no worker has taken yet.
static OPEN: Mutex<Vec<ThreadBuilder>> = Mutex::new(Vec::new());
static COME: Condvar = Condvar::new();

/// Makes the pool of `count` threads, and waits until as many workers have come to [`work`].
pub fn begin(count: usize) -> Result<(), rayon::ThreadPoolBuildError> {
    let spawn = |thread| {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        COME.notify_one();
        Ok(())
    };
    ThreadPoolBuilder::new().num_threads(count).spawn_handler(spawn).build_global()
}

/// Is one of the pool's threads, for as long as the page is there.
pub fn work() {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = loop {
        match open.pop() {
            Some(thread) => break thread,
            None => open = COME.wait(open).unwrap_or_else(PoisonError::into_inner),
        }
    };
    drop(open);
    thread.run();
}
