//! Independent pieces of work on all threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

/// As [`each`]; `f` also gets what `room` makes, once or a few times a thread: room that items use after each other.
pub fn each_with<T: Send, R>(
    items: Vec<T>,
    room: impl Fn() -> R + Sync + Send,
    f: impl Fn(&mut R, T) + Sync + Send,
) {
    if rayon::current_num_threads() > 1 && items.len() > 1 {
        items.into_par_iter().for_each_init(room, f);
    } else {
        let mut room = room();
        items.into_iter().for_each(|item| f(&mut room, item));
    }
}

/// Runs `f` for each item, on the threads of the current rayon pool; on this one if there is only one.
pub fn each<T: Send>(items: Vec<T>, f: impl Fn(T) + Sync + Send) {
    each_with(items, || (), |(), item| f(item));
}

/// How many threads [`Task`]s run on: one where this thread belongs to a pool itself, which must not wait for its like.
pub fn count() -> usize {
    if rayon::current_thread_index().is_some() { 1 } else { rayon::current_num_threads() }
}

/// Work that a thread of the pool does, or who asks for its result before one has begun it.
pub struct Task<T>(Arc<Slot<T>>);

struct Slot<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

type Work<T> = Box<dyn FnOnce() -> T + Send>;

enum State<T> {
    Waiting(Work<T>),
    /// On some thread; or its result was taken.
    Running,
    Done(Result<T, Box<dyn Any + Send>>),
}

impl<T: Send + 'static> Task<T> {
    /// Begins `work` on another thread, when one is free. With one thread ([`count`]) it is done by who asks for its result.
    pub fn spawn(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let slot = Arc::new(Slot { state: Mutex::new(State::Waiting(Box::new(work))), done: Condvar::new() });
        if count() > 1 {
            let shared = Arc::clone(&slot);
            rayon::spawn(move || shared.run());
        }
        Self(slot)
    }

    /// Whether the result is there.
    pub fn is_done(&self) -> bool {
        matches!(*self.0.lock(), State::Done(_))
    }

    /// The result, as soon as it is there. If no thread has begun, this one does the work.
    ///
    /// # Panics
    /// As the work does.
    pub fn join(self) -> T {
        self.0.run();
        let mut state = self.0.lock();
        loop {
            match std::mem::replace(&mut *state, State::Running) {
                State::Done(Ok(result)) => return result,
                State::Done(Err(panic)) => resume_unwind(panic),
                State::Running | State::Waiting(_) => {
                    state = self.0.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work, unless it has been begun.
    fn run(&self) {
        let mut state = self.lock();
        if let State::Waiting(_) = *state {
            let State::Waiting(work) = std::mem::replace(&mut *state, State::Running) else {
                unreachable!("looked at")
            };
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(work));
            *self.lock() = State::Done(result);
            self.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_give_their_results_whoever_does_them() {
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let sums =
                pool.scope(|_| (0..100u64).map(|i| Task::spawn(move || i * i)).map(Task::join).sum::<u64>());
            assert_eq!(sums, 328_350);
        }
        let tasks: Vec<Task<u64>> = (0..100).map(|i| Task::spawn(move || i * i)).collect();
        assert_eq!(tasks.into_iter().map(Task::join).sum::<u64>(), 328_350);
    }

    #[test]
    fn a_panic_reaches_who_asks() {
        let task = Task::spawn(|| -> u8 { panic!("on purpose") });
        assert!(catch_unwind(AssertUnwindSafe(|| task.join())).is_err());
    }
}
