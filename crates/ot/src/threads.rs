//! Independent pieces of work on all threads.
//!
//! Sessions of one process share its pool. Each takes its share of the threads ([`share`]): with as many sessions at work ([`AtWork`]) as
//! there are threads, each does its work by itself, which takes less of a processor than to hand pieces about.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::prelude::*;

/// Sessions at work.
static AT_WORK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread does a [`Task`].
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// A session that is at work, until it is dropped.
pub struct AtWork(());

impl AtWork {
    /// Another one.
    pub fn begin() -> Self {
        AT_WORK.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How many threads of the current rayon pool this one may give work to: those of a session at work, or one within a [`Task`], which
/// has its like beside it.
pub fn share() -> usize {
    if IN_TASK.get() {
        return 1;
    }
    (rayon::current_num_threads() / AT_WORK.load(Ordering::SeqCst).max(1)).max(1)
}

/// As [`each`]; `f` also gets what `room` makes, once or a few times a thread: room that items use after each other.
pub fn each_with<T: Send, R>(
    items: Vec<T>,
    room: impl Fn() -> R + Sync + Send,
    f: impl Fn(&mut R, T) + Sync + Send,
) {
    let share = share();
    if share > 1 && items.len() > 1 {
        // (Several pieces a thread, since some are longer.)
        let piece = if share < rayon::current_num_threads() { items.len() / (2 * share) } else { 1 };
        items.into_par_iter().with_min_len(piece.max(1)).for_each_init(room, f);
    } else {
        let mut room = room();
        items.into_iter().for_each(|item| f(&mut room, item));
    }
}

/// Runs `f` for each item, on this session's [`share`] of the threads of the current rayon pool; on this one if that is only one.
pub fn each<T: Send>(items: Vec<T>, f: impl Fn(T) + Sync + Send) {
    each_with(items, || (), |(), item| f(item));
}

/// How many threads [`Task`]s run on: one where this thread belongs to a pool itself, which must not wait for its like.
pub fn count() -> usize {
    if rayon::current_thread_index().is_some() { 1 } else { share() }
}

/// Work that a thread of the pool does, or who asks for its result before one has begun it.
pub struct Task<T>(Arc<Slot<T>>);

struct Slot<T> {
    state: Mutex<State<T>>,
    done: Condvar,
    /// The work has ended, though its result may have been taken.
    ended: AtomicBool,
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
        let state = Mutex::new(State::Waiting(Box::new(work) as Work<T>));
        let slot = Arc::new(Slot { state, done: Condvar::new(), ended: AtomicBool::new(false) });
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

/// A value in the making: by a [`Task`], or there already.
pub struct Later<T> {
    task: Mutex<Option<Task<T>>>,
    made: OnceLock<T>,
}

impl<T: Send + 'static> Later<T> {
    /// Made by a task.
    pub fn by(task: Task<T>) -> Self {
        Self { task: Mutex::new(Some(task)), made: OnceLock::new() }
    }

    /// The value, as soon as it is there.
    ///
    /// # Panics
    /// As the work does.
    pub fn get(&self) -> &T {
        self.made.get_or_init(|| {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
            task.expect("asked for once").join()
        })
    }

    /// As [`get`](Self::get).
    ///
    /// # Panics
    /// As the work does.
    pub fn get_mut(&mut self) -> &mut T {
        self.get();
        self.made.get_mut().expect("made")
    }

    /// As [`get`](Self::get).
    ///
    /// # Panics
    /// As the work does.
    pub fn into_inner(self) -> T {
        self.get();
        self.made.into_inner().expect("made")
    }
}

impl<T> From<T> for Later<T> {
    fn from(value: T) -> Self {
        Self { task: Mutex::new(None), made: OnceLock::from(value) }
    }
}

/// Tasks that were begun, of which no more than a few for each thread are to be under way: each holds what it works on.
#[derive(Default)]
pub struct UnderWay(VecDeque<Arc<dyn Wait>>);

/// Something that can be waited for.
trait Wait: Send + Sync {
    fn wait(&self);
}

impl UnderWay {
    /// How many may be: one for each thread, and one that waits.
    pub fn most() -> usize {
        count() + 1
    }

    /// Begins `work` as a task. If too many are under way, waits for the first, or does it.
    pub fn spawn<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        while self.0.len() >= Self::most() {
            self.0.pop_front().expect("some are").wait();
        }
        let task = Task::spawn(work);
        self.0.push_back(Arc::clone(&task.0) as Arc<dyn Wait>);
        task
    }
}

impl<T: Send> Wait for Slot<T> {
    fn wait(&self) {
        self.run();
        let mut state = self.lock();
        while let (State::Running, false) = (&*state, self.ended.load(Ordering::SeqCst)) {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
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
            let within = IN_TASK.replace(true);
            let result = catch_unwind(AssertUnwindSafe(work));
            IN_TASK.set(within);
            let mut state = self.lock();
            *state = State::Done(result);
            self.ended.store(true, Ordering::SeqCst);
            drop(state);
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

    /// As many as may be are under way, and each gives its result whenever it is asked for.
    #[test]
    fn no_more_tasks_are_under_way_than_may_be() {
        let running = Arc::new(AtomicUsize::new(0));
        let mut under_way = UnderWay::default();
        let tasks: Vec<Later<usize>> = (0..200)
            .map(|i| {
                let begun = Arc::clone(&running);
                begun.fetch_add(1, Ordering::SeqCst);
                let task = under_way.spawn(move || {
                    running_less(&begun);
                    i
                });
                assert!(running.load(Ordering::SeqCst) <= UnderWay::most() + 1);
                Later::by(task)
            })
            .collect();
        assert_eq!(tasks.iter().map(|task| *task.get()).sum::<usize>(), 19_900);
        assert_eq!(tasks.into_iter().map(Later::into_inner).sum::<usize>(), 19_900);
        assert_eq!(running.load(Ordering::SeqCst), 0);
    }

    fn running_less(running: &AtomicUsize) {
        running.fetch_sub(1, Ordering::SeqCst);
    }

    /// As many pieces at once as the share has threads; the results are the same.
    #[test]
    fn sessions_share_the_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        pool.install(|| {
            let sum = |share: usize| {
                assert_eq!(super::share(), share);
                let sum = AtomicUsize::new(0);
                each((1..=1000).collect(), |i| {
                    sum.fetch_add(i, Ordering::SeqCst);
                });
                assert_eq!(sum.into_inner(), 500_500);
            };
            sum(4);
            let one = AtWork::begin();
            sum(4);
            let more = [AtWork::begin(), AtWork::begin()];
            sum(1);
            drop(one);
            sum(2);
            drop(more);
            sum(4);
            // Within a task there is only this thread.
            assert_eq!(Task::spawn(super::share).join(), 1);
        });
    }

    #[test]
    fn a_panic_reaches_who_asks() {
        let task = Task::spawn(|| -> u8 { panic!("on purpose") });
        assert!(catch_unwind(AssertUnwindSafe(|| task.join())).is_err());
    }
}
