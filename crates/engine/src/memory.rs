//! How much memory this process took.

/// The most memory that this process ever held, in KiB; 0 where the system does not say, and without the feature `files`.
pub fn peak_kib() -> u64 {
    #[cfg(feature = "files")]
    return std::fs::read_to_string("/proc/self/status").ok().and_then(|s| peak_in(&s)).unwrap_or(0);
    #[cfg(not(feature = "files"))]
    0
}

/// The entry of a Linux process's status.
#[cfg(feature = "files")]
fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
