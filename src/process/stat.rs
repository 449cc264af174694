//! Reads `/proc/PID/stat`.

use std::fs;
use std::io;
use std::ops::Range;

use nix::unistd::Pid;

use super::kernel_files::read_kernel_file;

/// The fields of a living process that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: Pid,
    pub(super) group: Pid,
    /// True if its first thread has ended and others run: then its own folder shows no memory.
    pub(super) is_headless: bool,
    /// Its resident memory in pages, including shared pages and those of files.
    pub(super) resident: u64,
    /// The time of its start, in clock ticks since the boot.
    pub(super) start: u64,
}

/// The ids of all processes.
///
/// # Errors
/// `/proc` cannot be listed.
pub(super) fn process_ids() -> io::Result<impl Iterator<Item = Pid>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw)))
}

/// All living processes. Empty if `/proc` cannot be listed.
pub(super) fn all() -> impl Iterator<Item = (Pid, Stat)> {
    let ids = process_ids().into_iter().flatten();
    ids.filter_map(|process| Some((process, of(process)?)))
}

/// The fields of a process. `None` if it has ended.
pub(super) fn of(process: Pid) -> Option<Stat> {
    parse(&read_kernel_file(format!("/proc/{process}/stat")).ok()?)
}

/// Parses the text of a `stat` file. `None` for a process that has ended.
pub(super) fn parse(stat: &[u8]) -> Option<Stat> {
    let fields: Vec<&str> = fields(stat)?.collect();
    let number = |field: usize| fields.get(field)?.parse::<i64>().ok();
    let pid = |field| number(field)?.try_into().ok().map(Pid::from_raw);
    let has_ended = matches!(*fields.first()?, "Z" | "X");
    // The first thread of a process can end before the others, which continue to run.
    let is_headless = has_ended && number(17).is_some_and(|threads| threads > 1);
    if has_ended && !is_headless {
        return None;
    }
    let resident = number(21).and_then(|pages| pages.try_into().ok()).unwrap_or(0);
    let began = number(19).and_then(|ticks| ticks.try_into().ok()).unwrap_or(0);
    Some(Stat { parent: pid(1)?, group: pid(2)?, is_headless, resident, start: began })
}

/// The fields after the name of the program: the first one is the state.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    // The name is in brackets, and may contain anything, also brackets.
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    Some(str::from_utf8(&stat[name_ends + 1..]).ok()?.split_whitespace())
}

/// Parses the parent of a process, which may have ended without being waited for. Allocates
/// nothing.
pub(super) fn parent(stat: &[u8]) -> Option<i32> {
    fields(stat)?.nth(1)?.parse().ok()
}

/// The address range of a process's arguments. The kernel shows it only to the process itself, and
/// to a process that may trace it.
pub(super) fn argument_range(stat: &[u8]) -> Option<Range<u64>> {
    let mut fields = fields(stat)?.skip(45);
    let range = fields.next()?.parse().ok()?..fields.next()?.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// The start time of a living process, in clock ticks since the boot: with the pid, this identifies
/// it. `None` if there is no such process, or no `/proc`.
pub fn process_start(pid: u32) -> Option<u64> {
    Some(of(Pid::from_raw(pid.try_into().ok()?))?.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_file_is_parsed_whatever_the_program_name_contains() {
        let (parent, group) = (Pid::from_raw(7), Pid::from_raw(8));
        let wanted = Some(Stat { parent, group, is_headless: false, resident: 0, start: 0 });
        assert_eq!(parse(b"12 (sh) S 7 8 8 0 -1"), wanted);
        assert_eq!(parse(b"12 (a) Z 1 (b) R 7 8 8 0 -1"), wanted);
        for text in [&b"12 (sh) Z 7 8 8"[..], b"12 (sh) X 7 8", b"12 (sh) S 7", b"12", b""] {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn a_process_lives_on_without_its_first_thread() {
        let rest = "8 8 0 -1 4 0 0 0 0 0 0 0 0 20 0 THREADS 0 99 8192 77 1";
        let stat = |state: &str, threads: &str| {
            parse(format!("12 (a) {state} 7 {rest}").replace("THREADS", threads).as_bytes())
        };
        let running = stat("S", "2").expect("it runs");
        assert_eq!((running.is_headless, running.resident, running.start), (false, 77, 99));
        assert!(stat("Z", "2").expect("its other thread runs").is_headless);
        assert_eq!(stat("Z", "1"), None);
    }
}
