//! The flags of `outlast batch`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::usage::UsageError;
use crate::config::values;
use crate::recovery::Money;

/// Arguments of `outlast batch`.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "outlast batch TASKS [OPTIONS] [-- OPTIONS of outlast run]\n       outlast batch status|collect TASKS|DIR [OPTIONS]"
)]
pub struct BatchArgs {
    #[command(subcommand)]
    pub action: Option<BatchAction>,
    #[command(flatten)]
    pub start: StartBatchArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum BatchAction {
    /// List every task of a batch with its state
    Status(BatchStatusArgs),
    /// Merge the results of a batch
    Collect(CollectBatchArgs),
    /// Run one task; every engine starts this command
    Worker(BatchWorkerArgs),
}

/// The engine that runs the tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BatchEngine {
    /// Processes on this machine.
    #[default]
    Local,
    /// An array job, by `sbatch`.
    Slurm,
    /// An Indexed Job, by `kubectl`.
    #[value(alias = "k8s")]
    Kubernetes,
    /// A matrix of CI jobs, as JSON.
    Matrix,
}

#[derive(Clone, Debug, Args)]
pub struct StartBatchArgs {
    /// The tasks, a JSON object on each line; or the folder of a batch, to continue it
    #[arg(value_name = "TASKS")]
    pub tasks: Option<PathBuf>,
    /// The engine that runs the tasks
    #[arg(long, value_enum, value_name = "ENGINE", default_value_t, ignore_case = true)]
    pub engine: BatchEngine,
    /// Print the engine's script, manifest or matrix without submitting it
    #[arg(long)]
    pub render: bool,
    /// The id of the batch. Default: the file's name and a hash of the tasks
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// The folder of the batch. Default: batch/ID beside the sessions
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Maximum number of tasks at a time. Default here: the number of processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Maximum number of attempts at a task that ends with 75 or without a result
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub attempts: u32,
    /// The pause before a second attempt, unless the service named a time; it doubles
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::duration)]
    pub retry_after: Duration,
    /// The time limit of the whole batch, on this machine or in Kubernetes
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub max_duration: Option<Duration>,
    /// The cost limit of all tasks together; divided before the first task begins
    #[arg(long, value_name = "USD", value_parser = values::dollars)]
    pub max_budget_usd: Option<Money>,
    /// Run failed tasks again
    #[arg(long)]
    pub retry_failed: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,
    /// The path of outlast on the machines of the engine. Default: this program; outlast in
    /// Kubernetes
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// A word for the command line of sbatch or kubectl; may be repeated
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub submit_arg: Vec<String>,
    /// Kubernetes: the image of the containers
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Kubernetes: an existing volume claim. Default: a new one
    #[arg(long, value_name = "NAME")]
    pub claim: Option<String>,
    /// Kubernetes: the secret whose entries are variables of the workers
    #[arg(long, value_name = "NAME", default_value = "outlast")]
    pub secret: String,
    /// Flags of `outlast run` for every task, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub struct BatchStatusArgs {
    /// The file of the tasks, the folder of the batch, or its id
    #[arg(value_name = "TASKS|DIR")]
    pub batch: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct CollectBatchArgs {
    /// The file of the tasks, the folder of the batch, or its id
    #[arg(value_name = "TASKS|DIR")]
    pub batch: PathBuf,
    /// Format of the merged results. Default: by the extension of FILE, or else json
    #[arg(long, value_enum, value_name = "FORMAT", ignore_case = true)]
    pub format: Option<CollectFormat>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl CollectBatchArgs {
    /// Returns the requested format, or the one that the extension of the output file implies.
    ///
    /// # Errors
    /// The extension is not that of a format for merged results.
    pub fn format(&self) -> Result<CollectFormat, UsageError> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let extension = self.output.as_deref().and_then(Path::extension);
        let extension = extension.map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            None | Some("" | "json") => Ok(CollectFormat::Json),
            Some("jsonl" | "ndjson") => Ok(CollectFormat::Jsonl),
            Some("txt" | "text" | "log") => Ok(CollectFormat::Table),
            Some("md" | "markdown") => Ok(CollectFormat::Markdown),
            Some("xml") => Ok(CollectFormat::Junit),
            Some("html" | "htm") => Ok(CollectFormat::Html),
            Some(other) => Err(UsageError::new(format!(
                "--output: results are not merged to the format {other:?}; end the name in .json, \
                 .jsonl, .txt, .md, .xml or .html, or name a --format"
            ))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CollectFormat {
    /// One object with a summary
    Json,
    /// A line for each task with its complete result
    Jsonl,
    /// A report on the sessions of the tasks, as text for a terminal
    #[value(aliases = ["text", "txt"])]
    Table,
    /// The report for a step summary or a comment
    #[value(alias = "md")]
    Markdown,
    /// The report with a test case for each task
    #[value(alias = "xml")]
    Junit,
    /// The report as one page
    Html,
}

#[derive(Clone, Debug, Args)]
pub struct BatchWorkerArgs {
    /// The folder of a batch, or the file of its plan
    #[arg(value_name = "DIR")]
    pub batch: PathBuf,
    /// The number of the task. Default: from the variable of the engine
    #[arg(long, value_name = "N")]
    pub index: Option<usize>,
    /// Folder for the results, if not that of the plan
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The process that ends this one with it
    #[arg(long, value_name = "PID", hide = true)]
    pub parent: Option<u32>,
    /// The SHA-256 of the plan, without which the task is not run
    #[arg(long, value_name = "DIGEST", hide = true)]
    pub plan: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_says_the_format_of_merged_results_unless_a_flag_does() {
        let format = |name: &str, format| {
            let (batch, output) = (PathBuf::from("b"), Some(PathBuf::from(name)));
            CollectBatchArgs { batch, format, output }.format()
        };
        assert!(format("a.pdf", None).is_err(), "there is no such format");
        assert_eq!(format("a.pdf", Some(CollectFormat::Html)), Ok(CollectFormat::Html));
        for (name, expected) in [
            ("a", CollectFormat::Json),
            ("a.json", CollectFormat::Json),
            ("a.JSONL", CollectFormat::Jsonl),
            ("b/a.md", CollectFormat::Markdown),
            ("a.xml", CollectFormat::Junit),
            ("a.html", CollectFormat::Html),
            ("a.txt", CollectFormat::Table),
        ] {
            assert_eq!(format(name, None), Ok(expected), "{name}");
            let extension = name.rsplit_once('.').map_or("json", |(_, extension)| extension);
            assert_eq!(CollectFormat::from_str(extension, true), Ok(expected), "{name}");
        }
        assert_eq!(format("a.html", Some(CollectFormat::Json)), Ok(CollectFormat::Json));
    }
}
