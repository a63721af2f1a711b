//! What happens where the system has no memory left: a line that says so, and an exit code, in place of an abort.
//!
//! The standard library has no stable way to be told of that but an allocator of one's own.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;

#[global_allocator]
static ALLOCATOR: Told = Told;

/// Where memory comes from: the system's allocator.
#[cfg(not(target_env = "musl"))]
static SOURCE: std::alloc::System = std::alloc::System;

/// In the static program: musl's own allocator has one lock for all threads.
#[cfg(target_env = "musl")]
static SOURCE: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An allocator that ends the program when there is no memory.
struct Told;

// SAFETY: all memory is another allocator's, under the same layouts.
unsafe impl GlobalAlloc for Told {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { SOURCE.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { SOURCE.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { SOURCE.realloc(at, layout, size) }, size)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { SOURCE.dealloc(at, layout) }
    }
}

/// Gives memory that is free back to the system. (The system's allocator keeps what lies below anything that is in use: gigabytes,
/// behind an evaluation on ciphertexts.)
#[allow(
    dead_code,
    reason = "only protocols of one round have so much, and the program may be built without them"
)]
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it is thread-safe (malloc_trim(3)), and touches nothing that is in use.
        let _ = unsafe { malloc_trim(0) };
    }
}

/// Keeps more of the memory that is free, for what takes and frees a network's values again and again: the system's allocator gives it back
/// each time, and has to fetch and clear it anew.
pub fn keep() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        const TRIM_THRESHOLD: c_int = -1;
        const MMAP_THRESHOLD: c_int = -3;
        // SAFETY: it sets a number, or says that it does not take it (mallopt(3)).
        let taken = |parameter, bytes| unsafe { mallopt(parameter, bytes) } != 0;
        // (Older ones take 32 MiB at most. The second would fix the first where it happens to be, so it goes after it.)
        if taken(MMAP_THRESHOLD, 1 << 30) || taken(MMAP_THRESHOLD, 1 << 25) {
            taken(TRIM_THRESHOLD, 1 << 30);
        }
    }
}

fn checked(at: *mut u8, size: usize) -> *mut u8 {
    if at.is_null() {
        // Nothing here allocates.
        let _ = writeln!(
            std::io::stderr(),
            "error: the system has no memory for {size} bytes more; `jaguar plan` says how much a model needs"
        );
        end();
    }
    at
}

/// Ends without what is registered to be done at the end: that may need memory.
#[cfg(unix)]
fn end() -> ! {
    signal_hook::low_level::exit(1)
}

#[cfg(not(unix))]
fn end() -> ! {
    std::process::exit(1)
}
