//! The record of a batch's submission to an engine, so that a batch is not submitted twice.

use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::folder::{BatchFolder, BatchFolderError, remove_if_exists, replace_file};

const FILE: &str = "submission.json";

/// An engine that queues and runs a submitted batch on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterEngine {
    Slurm,
    Kubernetes,
}

/// The last submission of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    pub engine: ClusterEngine,
    /// The job id of Slurm, or the name of the Kubernetes Job.
    pub job: String,
    /// Arguments for the engine's program that select the cluster: `-M NAME`, `--namespace=NAME`.
    #[serde(default)]
    pub target: Vec<String>,
    /// Time in RFC 3339.
    pub at: String,
    /// Indexes of the submitted tasks.
    pub tasks: Vec<usize>,
}

impl Submission {
    pub fn new(engine: ClusterEngine, job: String, target: Vec<String>, tasks: &[usize]) -> Self {
        Self { engine, job, target, at: Timestamp::now().to_string(), tasks: tasks.to_vec() }
    }

    /// Parses the output of `sbatch`: `Submitted batch job 4242 on cluster c2`, or with
    /// `--parsable` `4242;c2`. `None`: it names no job, as with `--test-only`.
    pub fn of_sbatch(printed: &str, tasks: &[usize]) -> Option<Self> {
        let is_number =
            |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let found = printed.lines().find_map(|line| {
            if let Some(rest) = line.trim().strip_prefix("Submitted batch job ") {
                let (job, cluster) = rest.split_once(" on cluster ").unwrap_or((rest, ""));
                return is_number(job).then_some((job, cluster));
            }
            let (job, cluster) = line.trim().split_once(';').unwrap_or((line.trim(), ""));
            is_number(job).then_some((job, cluster))
        });
        let (job, cluster) = found?;
        let target = match cluster {
            "" => Vec::new(),
            cluster => vec!["-M".to_owned(), cluster.to_owned()],
        };
        Some(Self::new(ClusterEngine::Slurm, job.to_owned(), target, tasks))
    }

    /// Returns the command that shows the job. Its program has no path.
    pub fn look_up(&self) -> Vec<String> {
        self.command(match self.engine {
            ClusterEngine::Slurm => &["squeue", "-j"],
            ClusterEngine::Kubernetes => &["kubectl", "get", "job"],
        })
    }

    /// Returns the command that removes the job.
    pub fn removal(&self) -> Vec<String> {
        self.command(match self.engine {
            ClusterEngine::Slurm => &["scancel"],
            ClusterEngine::Kubernetes => &["kubectl", "delete", "job"],
        })
    }

    fn command(&self, words: &[&str]) -> Vec<String> {
        let words = words.iter().copied().chain([&*self.job]);
        words.chain(self.target.iter().map(String::as_str)).map(str::to_owned).collect()
    }
}

impl BatchFolder {
    /// Returns the path of the file of the last submission.
    pub fn submission_path(&self) -> PathBuf {
        self.path().join(FILE)
    }

    /// Reads the last submission. `None`: there was none, or its file is damaged.
    pub fn submission(&self) -> Option<Submission> {
        serde_json::from_str(&fs::read_to_string(self.submission_path()).ok()?).ok()
    }

    /// Records a submission. After a crash, the earlier record or this one is there: without one, a
    /// batch that was paid for would be submitted again.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record_submission(&self, submission: &Submission) -> Result<(), BatchFolderError> {
        replace_file(self.submission_path(), || Ok(serde_json::to_string(submission)? + "\n"))
    }

    /// Removes the record of the last submission, whose job no longer exists in the engine.
    ///
    /// # Errors
    /// The file cannot be removed. A missing file is not an error.
    pub fn remove_submission(&self) -> Result<(), BatchFolderError> {
        remove_if_exists(self.submission_path())
    }

    /// True if a worker has begun a task, or the batch was submitted to an engine. A batch whose
    /// files were only printed was not started.
    pub fn was_started(&self) -> bool {
        self.path().join("tasks").is_dir() || self.submission_path().is_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_read_from_what_sbatch_prints() {
        for (printed, job) in [
            ("Submitted batch job 4242\n", Some(("4242", &[][..]))),
            ("Submitted batch job 7 on cluster c2\n", Some(("7", &["-M", "c2"]))),
            ("a note of the site\nSubmitted batch job 7\n", Some(("7", &[]))),
            ("4242\n", Some(("4242", &[]))),
            ("4242;c2\n", Some(("4242", &["-M", "c2"]))),
            ("sbatch: Job 12 to start at 2026-01-01\n", None),
            ("", None),
        ] {
            let read = Submission::of_sbatch(printed, &[0, 2]);
            let words = read.as_ref().map(|it| (it.job.as_str(), it.target.clone()));
            let wanted =
                job.map(|(job, words)| (job, words.iter().map(ToString::to_string).collect()));
            assert_eq!(words, wanted, "{printed}");
            assert!(read.is_none_or(|it| it.tasks == [0, 2]), "{printed}");
        }
    }

    /// A process that is killed while it writes a record must not lose the earlier one.
    #[test]
    fn a_record_is_replaced_and_never_changed_in_place() {
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let folder = BatchFolder::new(scratch.path().to_owned());
        let [first, second] =
            ["7", "8"].map(|job| Submission::of_sbatch(job, &[0]).expect("a job"));
        folder.record_submission(&first).expect("it can be written");
        let beside = scratch.path().join("beside");
        fs::hard_link(folder.submission_path(), &beside).expect("the same file system");
        folder.record_submission(&second).expect("it can be written");
        assert_eq!(folder.submission(), Some(second));
        let kept = fs::read_to_string(beside).expect("it is kept");
        assert_eq!(serde_json::from_str::<Submission>(&kept).expect("it is whole"), first);
    }

    #[test]
    fn a_submission_is_read_as_it_was_recorded_and_makes_a_batch_a_started_one() {
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let folder = BatchFolder::new(scratch.path().to_owned());
        assert!(!folder.was_started() && folder.submission().is_none());
        let submission = Submission::of_sbatch("7;c2", &[1]).expect("a job");
        folder.record_submission(&submission).expect("it can be written");
        assert_eq!(folder.submission(), Some(submission.clone()));
        assert!(folder.was_started());
        assert_eq!(submission.look_up(), ["squeue", "-j", "7", "-M", "c2"]);
        assert_eq!(submission.removal(), ["scancel", "7", "-M", "c2"]);
    }
}
