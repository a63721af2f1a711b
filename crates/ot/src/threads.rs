//! Independent pieces of work on all threads.

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
