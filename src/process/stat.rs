//! Reads `/proc/PID/stat`.

use nix::unistd::Pid;

/// The fields of a living process that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: Pid,
    pub(super) group: Pid,
}

/// Parses the text of a `stat` file. `None` for a process that has ended.
pub(super) fn parse(stat: &[u8]) -> Option<Stat> {
    // The name, in brackets, may hold anything, brackets included.
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[name_ends + 1..].split(|byte| *byte == b' ').skip(1);
    let state = fields.next()?;
    if matches!(state, b"Z" | b"X") {
        return None;
    }
    let mut pid = || str::from_utf8(fields.next()?).ok()?.parse().ok().map(Pid::from_raw);
    Some(Stat { parent: pid()?, group: pid()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_file_is_parsed_whatever_the_program_name_contains() {
        let (parent, group) = (Pid::from_raw(7), Pid::from_raw(8));
        let wanted = Some(Stat { parent, group });
        assert_eq!(parse(b"12 (sh) S 7 8 8 0 -1"), wanted);
        assert_eq!(parse(b"12 (a) Z 1 (b) R 7 8 8 0 -1"), wanted);
        for text in [&b"12 (sh) Z 7 8 8"[..], b"12 (sh) X 7 8", b"12 (sh) S 7", b"12", b""] {
            assert_eq!(parse(text), None);
        }
    }
}
