//! Values that the kernel reports, most of them in small files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// The initial buffer for a file that the kernel generates when it is read. The reported size of
/// such a file is 0, for which [`std::fs::read`] would begin with reads of 32 bytes.
pub(super) const EXPECTED_BYTES: usize = 4_096;
/// Maximum size of a file.
const BYTES_MAX: u64 = 64 << 20;

/// Reads a file of `/proc` or `/sys`.
///
/// # Errors
/// Those of [`std::fs::read`].
pub fn read_kernel_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(EXPECTED_BYTES);
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// Reads a text file of `/proc` or `/sys`.
///
/// # Errors
/// Those of [`std::fs::read_to_string`].
pub(super) fn read_kernel_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read_kernel_file(path)?).map_err(io::Error::other)
}

/// Reads a file of `/proc` or `/sys` that has a single value, or the beginning of one that the
/// kernel makes as a whole: by one read, since a second one would only find the end.
///
/// # Errors
/// Those of [`std::fs::read_to_string`].
pub fn read_kernel_value(path: impl AsRef<Path>) -> io::Result<String> {
    let mut content = vec![0; EXPECTED_BYTES];
    let length = File::open(path)?.read(&mut content)?;
    content.truncate(length);
    String::from_utf8(content).map_err(io::Error::other)
}

/// The id of the current boot of this machine. `None` if the kernel reports none.
pub fn boot_id() -> Option<&'static str> {
    static KNOWN: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let text = read_kernel_value("/proc/sys/kernel/random/boot_id").ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    };
    KNOWN.get_or_init(read).as_deref()
}

/// The time since the boot of this machine, including time spent asleep. `None` if the kernel
/// has no such clock.
pub fn since_boot() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};

    Some(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_read_whole() {
        let maps = std::fs::read_to_string("/proc/self/mountinfo").expect("it is readable");
        assert_eq!(read_kernel_text("/proc/self/mountinfo").expect("it is readable"), maps);
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is there");
        assert_eq!(boot_id(), Some(id.trim()));
        assert!(read_kernel_file("/proc/missing").is_err());
        assert_eq!(read_kernel_value("/proc/sys/kernel/random/boot_id").expect("it is there"), id);
        assert!(read_kernel_value("/proc/missing").is_err());
        let memory = read_kernel_value("/proc/meminfo").expect("it is readable");
        assert!(memory.starts_with("MemTotal:"), "{memory}");
        let uptime = || {
            let text = read_kernel_text("/proc/uptime").expect("it is readable");
            text.split(' ')
                .next()
                .and_then(|seconds| seconds.parse::<f64>().ok())
                .expect("a number")
        };
        let (before, now, after) = (uptime(), since_boot(), uptime());
        let now: f64 = now.expect("the kernel has this clock").as_secs_f64();
        // The file has two decimals.
        assert!((before - 0.01..after + 0.02).contains(&now), "{before} {now} {after}");
    }
}
