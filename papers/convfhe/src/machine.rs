//! Memory of this machine.

/// Memory that the system can give now, and all that it has, in bytes; none where it does not say.
pub fn memory() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some([of("MemAvailable:")?, of("MemTotal:")?])
}

/// Memory that this process has now, in bytes; 0 where the system does not say.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// What is said, with numbers, if `what` takes `need` bytes of memory and fewer are free.
pub(crate) fn too_small(what: &str, need: u64, memory: Option<[u64; 2]>) -> Option<String> {
    let free = memory.map(|[free, _]| free).filter(|&free| free < need)?;
    let [need, free] = [need, free].map(|bytes| bytes as f64 / 1e9);
    Some(format!("{what} takes about {need:.1} GB of memory, and {free:.1} GB are free"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_in_numbers() {
        assert_eq!(too_small("an evaluation", 5 << 30, Some([6 << 30, 8 << 30])), None);
        assert_eq!(too_small("an evaluation", 5 << 30, None), None);
        let told = too_small("an evaluation", 5_900_000_000, Some([1_240_000_000, 8 << 30])).unwrap();
        assert_eq!(told, "an evaluation takes about 5.9 GB of memory, and 1.2 GB are free");
    }
}
