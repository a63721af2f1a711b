//! How long a piece of work had a core, counted over all threads that do it.
//!
//! Work may run on the threads of a rayon pool while its caller waits: oblivious transfers do so, bin by bin. So the
//! time of the calling thread alone is not the time of the work. [`Start`] counts in one of two ways, and never less
//! than all of it:
//!
//! - **on a thread of a pool of one** ([`alone`]) it counts this thread: all that is given to the pool runs on it too.
//!   So two parties of one process are told apart, each in a pool of its own;
//! - **elsewhere** it counts the whole process, whatever else that does meanwhile.
//!
//! What is given to threads outside of rayon (`std::thread`) is counted in the second way only.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

/// Runs `work` on a pool of one thread, so that a [`Start`] in it counts that work and no other.
///
/// # Errors
/// When no thread can be started.
pub fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, ThreadPoolBuildError> {
    Ok(ThreadPoolBuilder::new().num_threads(1).build()?.install(work))
}

/// How long something took.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// By the clock on the wall.
    pub elapsed: Duration,
    /// On cores, all threads that did it together.
    pub busy: Duration,
}

impl Span {
    /// Of work in which a party waited so long for its peer: how long it was at work. That is the time on cores, which other work on the
    /// machine does not add to. Where the system counts that in steps too long for it, it is the time by the clock without the waiting.
    pub fn at_work(&self, waited: Duration) -> Duration {
        if *FINE { self.busy } else { self.elapsed.saturating_sub(waited) }
    }
}

/// Whether time on cores is counted in steps of less than this. (Some systems count ticks of 4 or 10 ms.)
static FINE: LazyLock<bool> = LazyLock::new(|| cfg!(unix) && is_fine(|| spent(Counted::Thread)));
const FINE_STEP: Duration = Duration::from_micros(100);

/// Whether a clock that runs shows steps of less than [`FINE_STEP`]. Asks it for as long as it takes to move, twice.
fn is_fine(mut clock: impl FnMut() -> Duration) -> bool {
    let mut next =
        |from: Duration| std::iter::repeat_with(&mut clock).find(|&now| now != from).unwrap_or(from);
    let first = next(Duration::ZERO);
    let second = next(first);
    next(second) - second < FINE_STEP
}

/// Whose time on cores is counted.
#[derive(Clone, Copy, Debug)]
enum Counted {
    /// This thread's.
    Thread,
    /// That of all threads of the process.
    Process,
}

/// The beginning of a [`Span`].
#[derive(Clone, Copy, Debug)]
pub struct Start {
    at: Instant,
    counted: Counted,
    busy: Duration,
}

impl Start {
    /// Begins to count.
    pub fn now() -> Self {
        let single = rayon::current_thread_index().is_some() && rayon::current_num_threads() == 1;
        let counted = if single { Counted::Thread } else { Counted::Process };
        Self { at: Instant::now(), counted, busy: spent(counted) }
    }

    /// What was counted until now; to be asked on the thread where it began.
    pub fn span(&self) -> Span {
        Span { elapsed: self.at.elapsed(), busy: spent(self.counted).saturating_sub(self.busy) }
    }
}

/// What `f` gives, and how long it took.
pub fn timed<T>(f: impl FnOnce() -> T) -> (Span, T) {
    let start = Start::now();
    let value = f();
    (start.span(), value)
}

/// Time on cores so far.
#[cfg(unix)]
fn spent(counted: Counted) -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(match counted {
        Counted::Thread => ClockId::ThreadCPUTime,
        Counted::Process => ClockId::ProcessCPUTime,
    });
    // Neither is ever below zero.
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Time by the clock: nobody has looked at what other systems count.
#[cfg(not(unix))]
fn spent(_: Counted) -> Duration {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGIN.elapsed()
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    const WORK: Duration = Duration::from_millis(30);

    /// Keeps this thread's core busy until it had [`WORK`] of it.
    fn work() {
        let begin = spent(Counted::Thread);
        while spent(Counted::Thread) - begin < WORK {
            std::hint::spin_loop();
        }
    }

    /// The caller waits, and threads of a pool do the work: all of it counts.
    #[test]
    fn work_on_a_pool_counts() {
        let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let own = spent(Counted::Thread);
        let (span, ()) = timed(|| pool.install(|| (0..3).into_par_iter().for_each(|_| work())));
        assert!(span.busy >= 3 * WORK, "{span:?}");
        // What the calling thread had of a core does not tell.
        assert!(spent(Counted::Thread) - own < WORK);
        // On a thread of that pool, too.
        let (span, ()) = pool.install(|| timed(|| (0..3).into_par_iter().for_each(|_| work())));
        assert!(span.busy >= 3 * WORK, "{span:?}");
    }

    #[test]
    fn ticks_are_no_fine_clock() {
        let steps = |each: u64| {
            let mut asked = 0;
            move || {
                asked += 1;
                Duration::from_micros(1 + asked / 1000 * each)
            }
        };
        assert!(is_fine(steps(1)) && is_fine(steps(99)));
        assert!(!is_fine(steps(4000)) && !is_fine(steps(100)));
    }

    /// Waiting does not count, in either way.
    #[test]
    fn work_is_told_from_waiting() {
        let (span, ()) = alone(|| {
            timed(|| {
                std::thread::sleep(4 * WORK);
                work();
            })
        })
        .unwrap();
        let at_work = span.at_work(span.elapsed.saturating_sub(WORK));
        assert!(at_work >= WORK && at_work < 4 * WORK, "{at_work:?} of {span:?}");
    }

    /// A party that is alone is not charged for another one.
    #[test]
    fn parties_in_pools_of_one_are_told_apart() {
        let party = |times: usize| alone(move || timed(|| (0..times).into_par_iter().for_each(|_| work())).0);
        let (many, few) = std::thread::scope(|scope| {
            let many = scope.spawn(|| party(4).unwrap());
            (many.join().unwrap(), party(1).unwrap())
        });
        assert!(many.busy >= 4 * WORK && few.busy >= WORK, "{many:?}, {few:?}");
        let (together, ()) = std::thread::scope(|scope| {
            let other = scope.spawn(|| (0..8).for_each(|_| work()));
            let own = alone(|| timed(work)).unwrap();
            other.join().unwrap();
            own
        });
        assert!(together.busy < 8 * WORK, "{together:?}");
    }
}
