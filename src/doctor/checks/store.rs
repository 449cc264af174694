//! Checks the session store.

use crate::text::counted;

use super::super::facts::store::SessionStoreFacts;
use super::super::finding::{Finding, format_bytes};

/// Minimum free space without a warning, in bytes: with less, a run may fill the disk.
const ROOM_MIN: u64 = 200 << 20;

/// Minimum free space that is not a problem, in bytes: less hardly holds a journal.
const ROOM_NONE: u64 = 10 << 20;

/// Minimum number of free inodes: a disk with fewer is practically full.
const FILES_MIN: u64 = 100;

/// Maximum number of unfinished sessions that are listed.
const NAMED_MAX: usize = 3;

/// Reports whether sessions can be stored, how many there are, and unfinished ones.
pub fn check_store(facts: &SessionStoreFacts) -> Vec<Finding> {
    let mut findings = vec![check_writable(facts)];
    findings.extend(facts.free.map(|free| check_disk_space(facts, free)));
    findings.extend(facts.free_files.and_then(|free| check_inodes(facts, free)));
    let store = &facts.store;
    let at_least = if store.partial { "at least " } else { "" };
    let size = format_bytes(store.bytes);
    findings.push(Finding::ok(
        "sessions",
        format!("{at_least}{}, {size}", counted(store.sessions, "session")),
    ));
    let left = store.unfinished.len();
    if left > 0 {
        let ids = store.unfinished.iter().take(NAMED_MAX).map(|open| open.id.to_string());
        let mut ids: Vec<String> = ids.collect();
        if left > NAMED_MAX {
            ids.push(format!("{} more", left - NAMED_MAX));
        }
        let newest = store.unfinished.first().map_or("ID", |open| open.id.as_str());
        findings.push(Finding::warning(
            "sessions",
            format!("{} left open by a crash: {}", counted(left, "session"), ids.join(", ")),
            "the runs were killed before they had recorded their end; their work is incomplete",
            format!(
                "see what was done with outlast sessions show {newest}, whose last line is the \
                 command to go on, or delete old ones with outlast sessions prune --all-projects \
                 --older-than 30d"
            ),
        ));
    }
    findings
}

fn check_writable(facts: &SessionStoreFacts) -> Finding {
    let (folder, tried) = (facts.folder.display(), facts.tried.display());
    match &facts.unwritable {
        None => Finding::ok("store", format!("sessions are kept in {folder}")),
        Some(why) => {
            let fix = if facts.is_folder {
                format!("make room on the disk of {tried}, give this user the right to write there")
            } else {
                format!("move the file {tried} away")
            };
            Finding::problem(
                "store",
                format!("sessions cannot be kept in {folder}: {tried}: {why}"),
                "a run that is cut off cannot be resumed, and no login can be renewed",
                format!("{fix}, or name another folder in OUTLAST_CONFIG_DIR"),
            )
        }
    }
}

fn check_disk_space(facts: &SessionStoreFacts, free: u64) -> Finding {
    let (folder, left) = (facts.tried.display(), format_bytes(free));
    let what = format!("{left} left on the disk of {folder}");
    let why = "journals and long outputs cannot be kept once it is full";
    let fix = "make room on that disk, or name another folder in OUTLAST_CONFIG_DIR";
    match free {
        0..ROOM_NONE => Finding::problem("disk", what, why, fix),
        ROOM_NONE..ROOM_MIN => Finding::warning("disk", what, why, fix),
        ROOM_MIN.. => Finding::ok("disk", what),
    }
}

/// Reports a disk with too few free inodes, which may still have free space.
fn check_inodes(facts: &SessionStoreFacts, free: u64) -> Option<Finding> {
    let folder = facts.tried.display();
    (free < FILES_MIN).then(|| {
        Finding::problem(
            "disk",
            format!("the disk of {folder} takes only {} more", counted(free, "file")),
            "no journal can be created once it takes none, despite free space (inodes)",
            "remove files on that disk, or name another folder in OUTLAST_CONFIG_DIR",
        )
    })
}
