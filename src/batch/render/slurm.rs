//! The array script for Slurm.

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
    let parallel = jobs.map_or_else(String::new, |jobs| format!("%{jobs}"));
    let log = folder.engine().join("slurm-%a.log");
    let program = quoted_word(&program.display().to_string());
    let batch = quoted_word(&folder.path().display().to_string());
    let restarts = attempts.saturating_sub(1);
    format!(
        "#!/bin/sh\n\
         #SBATCH --job-name={name}\n\
         #SBATCH --array={ranges}{parallel}\n\
         #SBATCH --ntasks=1\n\
         #SBATCH --requeue\n\
         #SBATCH --open-mode=append\n\
         #SBATCH --output={log}\n\
         \n\
         # Rendered by outlast batch. Each element runs one task, and may be started again at any\n\
         # time: the task is resumed, or its result repeated if there is one.\n\
         {program} batch worker {batch}\n\
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
    let ranges = open.chunk_by(|index, next| *next == index + 1).map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        [] | [_] => range.iter().map(usize::to_string).collect(),
    });
    ranges.collect::<Vec<_>>().join(",")
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
