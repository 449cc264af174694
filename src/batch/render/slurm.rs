//! The array script for Slurm.

use std::fmt::Write as _;
use std::path::Path;

use crate::batch::folder::BatchFolder;
use crate::batch::plan::BatchPlan;
use crate::text::quoted_word;

/// Renders the script for `sbatch`, with one array element for each open task. An element with exit
/// code 75 is requeued until it has had `attempts` starts; any other exit code is final.
pub fn array_script(
    plan: &BatchPlan,
    folder: &BatchFolder,
    open: &[usize],
    program: &Path,
    jobs: Option<u32>,
    attempts: u32,
) -> String {
    let at_once = jobs.map_or_else(String::new, |jobs| format!("%{jobs}"));
    let log = folder.engine().join("slurm-%a.log");
    let worker = quoted_word(&program.display().to_string());
    let place = quoted_word(&folder.path().display().to_string());
    let restarts = attempts.saturating_sub(1);
    format!(
        "#!/bin/sh\n\
         #SBATCH --job-name={name}\n\
         #SBATCH --array={ranges}{at_once}\n\
         #SBATCH --ntasks=1\n\
         #SBATCH --requeue\n\
         #SBATCH --open-mode=append\n\
         #SBATCH --output={log}\n\
         \n\
         # Rendered by outlast batch. Each element runs one task, and may be started again at any\n\
         # time: the task is resumed, or its result repeated if there is one.\n\
         {worker} batch worker {place}\n\
         code=$?\n\
         \n\
         # 75: trying later makes sense. Where slurm.conf has RequeueExit=75 this is not needed.\n\
         if [ \"$code\" -eq 75 ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {restarts} ]; then\n\
         \x20 scontrol requeue \"${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID\"\n\
         fi\n\
         exit \"$code\"\n",
        name = plan.batch,
        ranges = ranges(open),
        log = quoted_directive(&log),
    )
}

/// Formats indexes as Slurm ranges: `0-3,7`.
fn ranges(open: &[usize]) -> String {
    let mut text = String::new();
    let mut rest = open.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while rest.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // A string accepts every write.
        let _ = if last == first {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    text
}

/// Quotes the value of an `#SBATCH` directive: in double quotes, with backslash escapes.
fn quoted_directive(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains([' ', '\'', '"', '\\']) {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges() {
        for (open, text) in
            [(&[0, 1, 2, 3][..], "0-3"), (&[0, 2, 3, 7], "0,2-3,7"), (&[5], "5"), (&[], "")]
        {
            assert_eq!(ranges(open), text);
        }
    }
}
