//! Measures the memory that jobs take.
//!
//! The measurement includes the memory that the kernel accounts to a process: its private pages,
//! its part of the pages that it shares (so that pages inherited by a pool of workers count once),
//! the swapped-out part of both, and files in memory that it holds open. It does not include files
//! that were written to a tmpfs and closed, which belong to no process, and buffers of pipes and
//! sockets, which are not listed: both have limits of their own.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, SysconfVar, sysconf};

use super::memory::{MACHINE, bytes};
use super::stat::{self, Stat};
use super::tree;

/// The size of a block of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

/// The names of open files that are in memory, as links in `/proc` show them.
const MEMORY_FILES: [&[u8]; 3] = [b"/memfd:", b"/dev/shm/", b"/SYSV"];

/// The processes of a job.
type JobTree = [(Pid, Stat)];

/// The memory that jobs take.
pub(super) struct MemoryTaken {
    /// The bytes of each job, by job init process.
    pub(super) jobs: Vec<(Pid, u64)>,
    /// The sum of all jobs, in bytes.
    pub(super) sum: u64,
}

/// Measures the memory of jobs, which are given by their job init processes. The measurement is
/// exact only if the sum may exceed `bound`, as that takes longer. Otherwise the sum is an upper
/// bound. A process that starts or ends meanwhile may be missing.
pub(super) fn measure(jobs: &[Pid], bound: u64) -> MemoryTaken {
    let trees = jobs.iter().map(|job| (*job, tree::listed_below(*job)));
    let trees: Vec<(Pid, Vec<(Pid, Stat)>)> = trees.collect();
    let of_each = |measure: &dyn Fn(&JobTree) -> u64| {
        let jobs = trees.iter().map(|(job, processes)| (*job, measure(processes)));
        let jobs: Vec<(Pid, u64)> = jobs.collect();
        let sum = jobs.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        MemoryTaken { jobs, sum }
    };
    let machine = fs::read_to_string(MACHINE).unwrap_or_default();
    let system = |key| bytes(&machine, key).unwrap_or(0);
    // Resident pages include neither files in memory nor swapped-out pages.
    let shared = system("Shmem");
    let swapped = system("SwapTotal").saturating_sub(system("SwapFree"));
    let mut taken = of_each(&resident);
    taken.sum = taken.sum.saturating_add(shared + swapped);
    if taken.sum <= bound { taken } else { of_each(&|processes| taken_by(processes, shared)) }
}

/// The resident pages of these processes in bytes, including shared pages and pages of files. The
/// size of a process without its first thread is unknown, and counts as the largest number.
fn resident(processes: &JobTree) -> u64 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let size = size.and_then(|size| size.try_into().ok()).unwrap_or(4096);
    let of_one = |(_, stat): &(Pid, Stat)| {
        if stat.is_headless { u64::MAX } else { stat.resident.saturating_mul(size) }
    };
    processes.iter().map(of_one).fold(0, u64::saturating_add)
}

/// The memory that these processes take together, in bytes. `shared` is all shared memory of the
/// system.
fn taken_by(processes: &JobTree, shared: u64) -> u64 {
    let (mut private, mut mapped, mut files) = (0, 0, HashMap::new());
    for (process, stat) in processes {
        let Some(folder) = folder(*process, stat) else { continue };
        let rollup = fs::read_to_string(folder.join("smaps_rollup")).unwrap_or_default();
        let swapped = bytes(&rollup, "SwapPss").unwrap_or(0);
        if let Some(own) = bytes(&rollup, "Pss_Anon") {
            private += own + swapped;
            mapped += bytes(&rollup, "Pss_Shmem").unwrap_or(0);
        } else {
            // An older kernel does not separate pages of files; a process that protects its memory
            // (`PR_SET_DUMPABLE`) shows only its resident pages.
            let known = (!stat.is_headless).then(|| resident(&[(*process, *stat)]));
            private += bytes(&rollup, "Pss").map(|own| own + swapped).or(known).unwrap_or(0);
        }
        files.extend(memory_files(&folder));
    }
    // A file in memory may be open, mapped or both.
    private + mapped.max(files.into_values().sum()).min(shared)
}

/// The folder in `/proc` that shows the memory of a process: the folder of another thread if the
/// first one has ended.
fn folder(process: Pid, stat: &Stat) -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    if !stat.is_headless {
        return Some(folder);
    }
    let lives = |thread: &PathBuf| {
        let stat = fs::read(thread.join("stat")).ok().and_then(|stat| stat::parse(&stat));
        stat.is_some_and(|stat| !stat.is_headless)
    };
    fs::read_dir(folder.join("task")).ok()?.flatten().map(|entry| entry.path()).find(lives)
}

/// The open files of a process that are in memory: their sizes by device and number.
fn memory_files(folder: &Path) -> Vec<((u64, u64), u64)> {
    let Ok(descriptors) = fs::read_dir(folder.join("fd")) else { return Vec::new() };
    let size = |entry: fs::DirEntry| {
        let path = entry.path();
        let target = fs::read_link(&path).ok()?;
        // Other files are not examined: they may be on a disk that hangs.
        if !MEMORY_FILES.iter().any(|name| target.as_os_str().as_bytes().starts_with(name)) {
            return None;
        }
        let file = fs::metadata(path).ok()?;
        Some(((file.dev(), file.ino()), file.blocks() * BLOCK))
    };
    descriptors.flatten().filter_map(size).collect()
}
