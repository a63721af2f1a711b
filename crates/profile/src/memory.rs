//! How much memory this machine has for one more program.

use std::fs;
use std::path::{Path, PathBuf};

use jaguar_plan::memory::{Bound, Room};

/// What this machine has left for a new program, within the limits of this process and of its control groups. None where the
/// system does not tell (it is Linux that does).
pub fn room() -> Option<Room> {
    room_below(Path::new("/"))
}

/// As [`room`], with the system's files in a folder.
fn room_below(root: &Path) -> Option<Room> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = available(&read(&root.join("proc/meminfo"))?)?;
    let machine = Room { bytes: machine, bound: Bound::Machine };
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let left = folders(&root.join("sys/fs/cgroup"), &groups).into_iter().filter_map(|folder| left(&folder));
    let group = left.min().map(|bytes| Room { bytes, bound: Bound::ControlGroup });
    let process = below_limits(
        &read(&root.join("proc/self/limits")).unwrap_or_default(),
        &read(&root.join("proc/self/status")).unwrap_or_default(),
    );
    let process = process.map(|bytes| Room { bytes, bound: Bound::Process });
    [Some(machine), group, process].into_iter().flatten().min_by_key(|room| room.bytes)
}

/// Bytes that this process may still take below its own limits: of its addresses (`ulimit -v`) and of its data (`ulimit -d`). What is
/// reserved and never used counts as taken, so it is rather too little. None where there is no limit.
fn below_limits(limits: &str, status: &str) -> Option<u64> {
    let limit = |name: &str| -> Option<u64> {
        let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let used = |name: &str| -> Option<u64> {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    [("Max address space", "VmSize:"), ("Max data size", "VmData:")]
        .into_iter()
        .filter_map(|(name, taken)| Some(limit(name)?.saturating_sub(used(taken)?)))
        .min()
}

/// Bytes of "MemAvailable".
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The folders of the control groups that bound memory: the process's own and those above it.
fn folders(mount: &Path, groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let base = match controllers {
            "" => mount.to_owned(),
            _ if controllers.split(',').any(|name| name == "memory") => mount.join("memory"),
            _ => continue,
        };
        // A container may see its own group as the root, under another path than its line says.
        let path = Path::new(path.trim_start_matches('/'));
        folders.extend(path.ancestors().map(|path| base.join(path)));
    }
    folders
}

/// Bytes that a group may still take; None where it has no limit. What it holds of files can be given back.
fn left(folder: &Path) -> Option<u64> {
    let number =
        |name: &str| -> Option<u64> { fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok() };
    let (limit, used) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?),
        // The first version writes a number near 2^63 for none.
        None => {
            let limit = number("memory.limit_in_bytes").filter(|&limit| limit < 1 << 60)?;
            (limit, number("memory.usage_in_bytes")?)
        }
    };
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse::<u64>().ok())
    };
    let files = of("total_inactive_file").or_else(|| of("inactive_file")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files, removed when dropped.
    struct System(PathBuf);

    impl System {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("jaguar-room-{}-{name}", std::process::id()));
            for (path, content) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for System {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:    4000 kB\n");

    fn group(bytes: u64) -> Option<Room> {
        Some(Room { bytes, bound: Bound::ControlGroup })
    }

    #[test]
    fn without_a_limit_the_machine_bounds() {
        let machine = Some(Room { bytes: 4000 << 10, bound: Bound::Machine });
        assert_eq!(room_below(&System::new("plain", &[MEMINFO]).0), machine);
        let unlimited = System::new(
            "unlimited",
            &[
                MEMINFO,
                ("proc/self/cgroup", "0::/a\n"),
                ("sys/fs/cgroup/a/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.current", "5\n"),
            ],
        );
        assert_eq!(room_below(&unlimited.0), machine);
        assert_eq!(room_below(&System::new("nothing", &[]).0), None);
    }

    #[test]
    fn the_narrowest_group_bounds_and_files_do_not_count() {
        let system = System::new(
            "two",
            &[
                MEMINFO,
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/memory.max", "900000\n"),
                ("sys/fs/cgroup/a/memory.current", "500000\n"),
                ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.current", "1\n"),
            ],
        );
        assert_eq!(room_below(&system.0), group(500_000));
        // More used than allowed, as when a limit was lowered.
        fs::write(system.0.join("sys/fs/cgroup/a/b/memory.max"), "0").unwrap();
        assert_eq!(room_below(&system.0), group(0));
    }

    #[test]
    fn limits_of_the_process_bound_too() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max data size             unlimited            unlimited            bytes     \n\
                      Max address space         3000000              unlimited            bytes     \n";
        let status = "Name:\tjaguar\nVmPeak:\t    2000 kB\nVmSize:\t    1000 kB\nVmData:\t     300 kB\n";
        let system =
            System::new("limits", &[MEMINFO, ("proc/self/limits", limits), ("proc/self/status", status)]);
        let process = |bytes| Some(Room { bytes, bound: Bound::Process });
        assert_eq!(room_below(&system.0), process(3_000_000 - (1000 << 10)));
        let data = limits.replacen("unlimited  ", "400000     ", 1);
        fs::write(system.0.join("proc/self/limits"), data).unwrap();
        assert_eq!(room_below(&system.0), process(400_000 - (300 << 10)));
        // Where it has more than the machine, that is what bounds.
        fs::write(system.0.join("proc/self/limits"), limits.replace("3000000", "3000000000000")).unwrap();
        assert_eq!(room_below(&system.0).map(|room| room.bound), Some(Bound::Machine));
    }

    #[test]
    fn groups_of_the_first_version_and_containers_that_see_their_own_as_root() {
        let system = System::new(
            "first",
            &[
                MEMINFO,
                ("proc/self/cgroup", "4:cpu,memory:/docker/123\n1:name=systemd:/x\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n"),
                ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n"),
            ],
        );
        assert_eq!(room_below(&system.0), group(450_000));
        fs::write(system.0.join("sys/fs/cgroup/memory/memory.limit_in_bytes"), "9223372036854771712")
            .unwrap();
        assert_eq!(room_below(&system.0).map(|room| room.bound), Some(Bound::Machine));
    }
}
