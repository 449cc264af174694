//! The available memory, and the number of times that it ran out.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::kernel_files::{EXPECTED_BYTES, read_kernel_text, read_kernel_value};

/// The file that reports the memory of the machine.
pub(super) const MACHINE: &str = "/proc/meminfo";

/// Control group hierarchies that can limit memory: name of the controller, mount point and file
/// with the limit. Version 2, version 2 mounted along with version 1, and version 1.
const CGROUPS: [(&str, &str, &str); 3] = [
    ("", "/sys/fs/cgroup", "memory.max"),
    ("", "/sys/fs/cgroup/unified", "memory.max"),
    ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];

/// The memory that this process and its children can have, in bytes: that of the machine, or the
/// limit of its control group if that is less. `None` if neither is known.
pub fn usable_memory() -> Option<u64> {
    let machine = read_kernel_value(MACHINE).ok().and_then(|text| bytes(&text, "MemTotal"));
    let limits = read_kernel_text("/proc/self/cgroup")
        .map_or(Vec::new(), |groups| groups.lines().flat_map(cgroup_limits).collect());
    limits.into_iter().chain(machine).min()
}

/// The limits of one line of `/proc/self/cgroup` and of the groups around it. A container may see
/// only the innermost part of the path.
fn cgroup_limits(line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let mounts = CGROUPS.iter().filter(|(name, ..)| controllers.split(',').any(|it| it == *name));
    let mut limits = Vec::new();
    for (_, mount, file) in mounts {
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let limit = read_kernel_value(Path::new(mount).join(group).join(file));
            // Without a limit the file contains `max`.
            limits.extend(limit.ok().and_then(|limit| limit.trim().parse::<u64>().ok()));
        }
    }
    limits
}

/// The number of processes that the kernel has killed since boot because memory ran out.
pub fn out_of_memory_kills() -> u64 {
    let counts = File::open("/proc/vmstat");
    let counts = counts.map(|file| BufReader::with_capacity(EXPECTED_BYTES, file));
    counts.ok().and_then(|counts| count_of("oom_kill", counts)).unwrap_or(0)
}

/// Reads up to a count and no further: the kernel computes all counts anew for each part.
fn count_of(name: &str, mut counts: impl BufRead) -> Option<u64> {
    let mut line = String::new();
    while counts.read_line(&mut line).ok()? > 0 {
        if let Some((found, count)) = line.trim_end().split_once(' ')
            && found == name
        {
            return count.parse().ok();
        }
        line.clear();
    }
    None
}

/// Returns a field in kB of a file of `/proc`, converted to bytes.
pub(super) fn bytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kilobytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_no_further_than_needed() {
        let mut counts = &b"oom_kill_early 1\noom_kill 7\nlater 2\n"[..];
        assert_eq!(count_of("oom_kill", &mut counts), Some(7));
        assert_eq!(counts, b"later 2\n");
        assert_eq!(count_of("oom_kill", counts), None);
    }
}
