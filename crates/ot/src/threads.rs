//! Independent pieces of work on all threads.

use rayon::prelude::*;

/// Runs `f` for each item, on the threads of the current rayon pool; on this one if there is only one.
pub fn each<T: Send>(items: Vec<T>, f: impl Fn(T) + Sync + Send) {
    if rayon::current_num_threads() > 1 && items.len() > 1 {
        items.into_par_iter().for_each(f);
    } else {
        items.into_iter().for_each(f);
    }
}
