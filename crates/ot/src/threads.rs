//! Independent pieces of work on all threads.
//!
//! Sessions of one process share its pool. Each takes its share of the threads ([`share`]): with as many sessions at work ([`AtWork`]) as
//! there are threads, each does its work by itself, which takes less of a processor than to hand pieces about.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jaguar_wire::Clock;
use rayon::prelude::*;

/// Sessions at work.
static AT_WORK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread does a [`Task`].
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
    /// Who wants to know when other threads work for this one.
    static WATCH: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
}

/// A stretch of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worked {
    /// When it began, on the watcher's clock.
    pub start: Duration,
    /// How long it took.
    pub length: Duration,
}

/// When threads of the pool worked for one that watches, thread by thread.
struct Watch {
    clock: Arc<dyn Clock>,
    threads: Mutex<Vec<Vec<Worked>>>,
}

/// Shorter pauses of a thread are not told from work.
const SHORT_PAUSE: Duration = Duration::from_micros(50);

/// How many stretches of a thread are kept: bounds what a timeline takes.
const MAX_STRETCHES: usize = 1 << 13;

impl Watch {
    /// Does `work`, which another thread gave to this one.
    fn see<T>(watch: Option<&Self>, work: impl FnOnce() -> T) -> T {
        let (Some(watch), Some(thread)) = (watch, rayon::current_thread_index()) else { return work() };
        let start = watch.clock.now();
        let result = work();
        watch.note(thread, start, watch.clock.now());
        result
    }

    fn note(&self, thread: usize, start: Duration, end: Duration) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let count = threads.len().max(thread + 1);
        threads.resize_with(count, Vec::new);
        let own = &mut threads[thread];
        let (room, end) = (own.len() < MAX_STRETCHES, end.max(start));
        match own.last_mut() {
            Some(last) if start < last.start + last.length + SHORT_PAUSE => {
                last.length = end.saturating_sub(last.start)
            }
            Some(_) | None if room => own.push(Worked { start, length: end.saturating_sub(start) }),
            Some(_) | None => {}
        }
    }
}

/// From here on it is kept when threads of the pool work for this thread, on `clock`, until [`watched`].
pub fn watch(clock: Arc<dyn Clock>) {
    WATCH.set(Some(Arc::new(Watch { clock, threads: Mutex::default() })));
}

/// When each thread of the pool worked for this one since [`watch`], in order: the first 2^13 stretches, with pauses below 50 µs in
/// them. Nothing is kept any more.
pub fn watched() -> Vec<Vec<Worked>> {
    let watch = WATCH.take();
    watch.map_or_else(Vec::new, |watch| {
        std::mem::take(&mut *watch.threads.lock().unwrap_or_else(PoisonError::into_inner))
    })
}

fn watcher() -> Option<Arc<Watch>> {
    WATCH.with_borrow(Clone::clone)
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
        let watch = watcher();
        let seen = |room: &mut R, item| Watch::see(watch.as_deref(), || f(room, item));
        items.into_par_iter().with_min_len(piece.max(1)).for_each_init(room, seen);
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
            let (shared, watch) = (Arc::clone(&slot), watcher());
            rayon::spawn(move || Watch::see(watch.as_deref(), || shared.run()));
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

    /// A clock that goes on by a millisecond each time it is read.
    struct Steps(AtomicUsize);

    impl Clock for Steps {
        fn now(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(1, Ordering::SeqCst) as u64)
        }
    }

    /// All that other threads do for one that watches is seen, and nothing that they do for others.
    #[test]
    fn who_watches_sees_its_own_work() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let work = || each((0..50).collect(), |_: usize| ());
        let (seen, unseen) = pool.install(|| {
            watch(Arc::new(Steps(AtomicUsize::new(0))));
            work();
            let seen = watched();
            work();
            (seen, watched())
        });
        let length: Duration = seen.iter().flatten().map(|worked| worked.length).sum();
        assert!(length >= Duration::from_millis(50), "{length:?}");
        assert!(unseen.is_empty());
    }

    #[test]
    fn short_pauses_are_work_and_the_rest_is_bounded() {
        let watch = Watch { clock: Arc::new(Steps(AtomicUsize::new(0))), threads: Mutex::default() };
        let at = Duration::from_micros;
        watch.note(2, at(100), at(150));
        watch.note(2, at(160), at(200));
        watch.note(2, at(250), at(260));
        let all = || watch.threads.lock().unwrap().clone();
        let worked = |start, length| Worked { start: at(start), length: at(length) };
        assert_eq!(all(), [vec![], vec![], vec![worked(100, 100), worked(250, 10)]]);
        for i in 0..2 * MAX_STRETCHES as u64 {
            watch.note(0, at(1000 * i), at(1000 * i + 1));
        }
        assert_eq!(all()[0].len(), MAX_STRETCHES);
    }

    #[test]
    fn a_panic_reaches_who_asks() {
        let task = Task::spawn(|| -> u8 { panic!("on purpose") });
        assert!(catch_unwind(AssertUnwindSafe(|| task.join())).is_err());
    }
}
