//! An allocator that counts: how many bytes of the heap one input took at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of live bytes.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that are allocated.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The most that were since the last measurement began.
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn take(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn give(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call is the system allocator's own; the counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        give(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there for a moment.
        take(size);
        // SAFETY: as above.
        let block = unsafe { System.realloc(block, layout, size) };
        give(layout.size());
        block
    }
}

/// Runs `f`. Returns by how many bytes the heap grew at most meanwhile, whichever thread asked for them. One measurement at a
/// time.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = f();
    (result, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}
