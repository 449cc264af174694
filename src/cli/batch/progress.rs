//! Shows the progress of a batch: a bar on a terminal, lines elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::batch::{
    BatchEvent, BatchFolder, BatchObserver, BatchPlan, BatchStop, BatchSummary, NextAttempt,
    SILENCE_MAX, TaskCounts, TaskOutcome, TaskReport, TaskState,
};
use crate::cli::error_report::mask_of;
use crate::cli::output::{TerminalFilter, one_line, status_target};
use crate::cli::timestamps::{format_duration, format_elapsed};
use crate::config::environment::{self, Variables};
use crate::recovery::Spending;
use crate::text::shortened;

/// Maximum time without a line on standard error.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// Maximum length of the reason of a failure in a line, in characters.
const REASON_MAX: usize = 300;

/// Shows the events of a batch.
pub(super) struct BatchProgress<'a> {
    plan: &'a BatchPlan,
    /// Maximum number of tasks that run in parallel, unless the service throttles them.
    jobs: usize,
    bar: Option<ProgressBar>,
    /// True if every task is reported, not only those that need attention.
    is_detailed: bool,
    done: usize,
    failed: usize,
    costs: HashMap<usize, Spending>,
    /// Start times of the running tasks, by index.
    begun: BTreeMap<usize, Instant>,
    /// Tasks that another process is working on.
    busy: BTreeSet<usize>,
    last_line: Instant,
}

impl<'a> BatchProgress<'a> {
    pub(super) fn new(
        folder: &BatchFolder,
        plan: &'a BatchPlan,
        jobs: usize,
        variables: &Variables,
    ) -> Self {
        let summary = BatchSummary::gather(folder, plan);
        let cost = |report: &TaskReport<'_>| {
            Some((report.task.index, report.outcome.as_ref()?.spending()))
        };
        let is_terminal = io::stderr().is_terminal();
        let is_dumb = variables.get(std::ffi::OsStr::new("TERM")).is_some_and(|it| it == "dumb");
        Self {
            plan,
            jobs,
            bar: (is_terminal && !is_dumb).then(|| new_bar(plan.tasks.len())),
            is_detailed: is_terminal || environment::is_ci(variables),
            done: summary.count(TaskState::Done),
            failed: summary.count(TaskState::Failed),
            costs: summary.tasks.iter().filter_map(cost).collect(),
            begun: BTreeMap::new(),
            busy: BTreeSet::new(),
            last_line: Instant::now(),
        }
    }

    /// Reports the tasks that earlier processes have finished.
    pub(super) fn begin(&mut self) {
        let (all, ended) = (self.plan.tasks.len(), self.done + self.failed);
        let batch = &self.plan.batch;
        if ended == all {
            let tasks = match all {
                1 => format!("the task of batch {batch} has"),
                all => format!("all {all} tasks of batch {batch} have"),
            };
            self.print(&format!("{tasks} a result already; to run anew, give another --id"));
        } else if ended > 0 && self.is_detailed {
            self.print(&format!("batch {batch} goes on: {ended} of {all} results are there"));
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn print(&mut self, line: &str) {
        self.last_line = Instant::now();
        if let Some(bar) = &self.bar {
            return bar.println(message(line));
        }
        print_message(line);
    }

    /// Formats the figures: `12/50 done · 1 failed · 4 running · $0.31`.
    fn figures(&self, running: usize) -> String {
        let mut sum = Spending::default();
        self.costs.values().for_each(|cost| sum += *cost);
        let cost = sum.as_cost();
        let failed = match self.failed {
            0 => String::new(),
            count => format!(" · {count} failed"),
        };
        format!("{}/{} done{failed} · {running} running · {cost}", self.done, self.plan.tasks.len())
    }

    fn name(&self, index: usize) -> String {
        match self.plan.tasks.get(index) {
            Some(task) if task.id != task.name => format!("task {index} ({})", task.id),
            Some(_) | None => format!("task {index}"),
        }
    }

    fn ended(&mut self, index: usize, outcome: Option<&TaskOutcome>, next: NextAttempt) {
        let took = self.begun.remove(&index).map_or(Duration::ZERO, |begun| begun.elapsed());
        let took = format_elapsed(took);
        if let Some(outcome) = outcome {
            self.costs.insert(index, outcome.spending());
        }
        let name = self.name(index);
        let next = match next {
            NextAttempt::In(wait) => format!("; it is tried again in {}", format_duration(wait)),
            NextAttempt::Never => "; it is not tried again now".to_owned(),
            NextAttempt::BatchEnds => String::new(),
        };
        let Some(outcome) = outcome else {
            return self.print(&format!("{name} ended without a result after {took}{next}"));
        };
        let (reason, code) = (outcome.reason().unwrap_or("not started"), outcome.exit_code);
        let error = outcome.error().map(|error| shortened(error, REASON_MAX, "..."));
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        let why = format!("{reason} (exit code {code}){error}");
        match outcome.state() {
            TaskState::Done => {
                self.done += 1;
                if self.is_detailed {
                    let cost = outcome.spending().as_cost();
                    self.print(&format!("{name} is done after {took}, {cost}"));
                }
            }
            TaskState::Failed => {
                self.failed += 1;
                self.print(&format!("{name} failed after {took}: {why}"));
            }
            TaskState::Running
            | TaskState::Unfinished
            | TaskState::Submitted
            | TaskState::Missing => {
                self.print(&format!("{name} was cut off after {took}: {why}{next}"));
            }
        }
    }

    /// Describes the progress: the figures, the next attempt or the throttling, and the longest
    /// running task.
    fn status(
        &self,
        counts: TaskCounts,
        parallelism: usize,
        next_start: Option<Duration>,
    ) -> String {
        let mut line = self.figures(counts.running);
        if counts.running < parallelism
            && let Some(wait) = next_start
        {
            line = format!("{line} · next attempt in {}", format_duration(wait));
        } else if counts.waiting > 0 && parallelism < self.jobs {
            let jobs = self.jobs;
            line = format!("{line} · the service throttles: {parallelism} of {jobs} at a time");
        }
        if let Some((index, begun)) = self.begun.iter().min_by_key(|(_, begun)| **begun) {
            let for_time = format_elapsed(begun.elapsed());
            line = format!("{line} · longest: {} for {for_time}", self.name(*index));
        } else if let Some(index) = self.busy.first() {
            line = format!("{line} · another process has {}", self.name(*index));
        }
        line
    }

    fn tick(&mut self, counts: TaskCounts, parallelism: usize, next_start: Option<Duration>) {
        let line = self.status(counts, parallelism, next_start);
        if let Some(bar) = &self.bar {
            bar.set_position(u64::try_from(self.done + self.failed).unwrap_or(0));
            bar.set_message(line);
        } else if self.last_line.elapsed() >= SILENCE_LIMIT {
            self.print(&line);
        }
    }
}

impl BatchObserver for BatchProgress<'_> {
    fn observe(&mut self, event: &BatchEvent<'_>) {
        match event {
            BatchEvent::Started { index, attempt } => {
                self.begun.insert(*index, Instant::now());
                self.busy.remove(index);
                if *attempt > 1 && self.is_detailed {
                    let name = self.name(*index);
                    self.print(&format!("{name} begins attempt {attempt}"));
                }
            }
            BatchEvent::Busy { index, is_given_up: true } => {
                self.begun.remove(index);
                self.busy.remove(index);
                let name = self.name(*index);
                self.print(&format!(
                    "{name} is held by a process that has shown no sign of life for {}; it is left \
                     to that process. End it, and start the batch again",
                    format_elapsed(SILENCE_MAX)
                ));
            }
            BatchEvent::Busy { index, is_given_up: false } => {
                self.begun.remove(index);
                if self.busy.insert(*index) {
                    let name = self.name(*index);
                    self.print(&format!(
                        "{name} is still being worked on by another process; waiting"
                    ));
                }
            }
            BatchEvent::StartFailed { index, error } => {
                let name = self.name(*index);
                self.print(&format!("{name} could not be started: {error}"));
            }
            BatchEvent::Ended { index, outcome, next } => {
                self.ended(*index, *outcome, *next);
            }
            BatchEvent::Tick { counts, parallelism, next_start } => {
                self.tick(*counts, *parallelism, *next_start);
            }
            BatchEvent::Stopping { stop, running } => {
                let why = match stop {
                    BatchStop::Interrupted(interrupt) => interrupt.cause(),
                    BatchStop::Late => "the time of the batch is used up",
                };
                let requested = match running {
                    1 => "1 running task is asked to end".to_owned(),
                    running => format!("{running} running tasks are asked to end"),
                };
                self.print(&format!("{why}; {requested}"));
            }
        }
    }
}

/// Prints a line to standard error.
pub(super) fn print_message(line: &str) {
    let mut stderr = TerminalFilter::messages(io::stderr().lock());
    // If standard error is not read, the summary and the exit code are enough.
    let _ = stderr.write_all(format!("{}\n", message(line)).as_bytes());
}

/// A line for people, in which secrets are masked: it may quote errors, flags and other programs.
fn message(line: &str) -> String {
    let redactor = mask_of(&std::env::vars_os().collect());
    format!("outlast: {}", one_line(&redactor.redact(line)))
}

fn new_bar(tasks: usize) -> ProgressBar {
    let length = u64::try_from(tasks).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(length), status_target());
    let style = ProgressStyle::with_template("{spinner} [{bar:20}] {wide_msg}")
        .expect("the template is a constant")
        .progress_chars("#>-");
    bar.set_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_do_not_show_keys() {
        let line = message(concat!(
            "sbatch: the key ghp_",
            "abcdefghijklmnopqrstuvwxyz0123456789 is wrong"
        ));
        assert!(
            line.starts_with("outlast: sbatch: the key ") && !line.contains("abcdef"),
            "{line}"
        );
    }

    pub(in super::super) fn plan(ids: &[&str]) -> BatchPlan {
        let task = |(index, id): (usize, &&str)| {
            json!({ "index": index, "id": id, "name": format!("b-{index}"), "line": index + 1,
                "session_id": uuid::Uuid::nil(), "prompt": "p", "cwd": null, "git": null,
                "flags": [], "limits": {} })
        };
        let tasks: Vec<_> = ids.iter().enumerate().map(task).collect();
        let plan = json!({ "version": 1, "batch": "b", "source": "tasks", "cwd": null, "flags": [],
            "max_budget_usd": null, "engine": [], "tasks": tasks });
        serde_json::from_value(plan).expect("a plan")
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_names_what_the_batch_waits_for() {
        let plan = plan(&["b-0", "lint", "docs"]);
        let folder = tempfile::tempdir().expect("a folder");
        let folder = BatchFolder::new(folder.path().to_owned());
        let mut shown = BatchProgress::new(&folder, &plan, 2, &Variables::default());
        let status = |shown: &BatchProgress<'_>, running, next| {
            shown.status(TaskCounts { running, ..TaskCounts::default() }, 2, next)
        };
        let soon = Some(Duration::from_secs(5));
        assert_eq!(status(&shown, 0, soon), "0/3 done · 0 running · $0.0000 · next attempt in 5s");
        let one = "0/3 done · 1 running · $0.0000 · next attempt in 5s";
        assert_eq!(status(&shown, 1, soon), one, "one of two runs, and the reason is named");
        let throttled = TaskCounts { running: 1, waiting: 1, given_up: 0 };
        let reason = "0/3 done · 1 running · $0.0000 · the service throttles: 1 of 2 at a time";
        assert_eq!(shown.status(throttled, 1, soon), reason);
        shown.observe(&BatchEvent::Busy { index: 2, is_given_up: false });
        let held = "0/3 done · 0 running · $0.0000 · another process has task 2 (docs)";
        assert_eq!(status(&shown, 0, None), held);
        shown.observe(&BatchEvent::Started { index: 1, attempt: 1 });
        tokio::time::advance(Duration::from_secs(61)).await;
        shown.observe(&BatchEvent::Started { index: 0, attempt: 1 });
        let both = "0/3 done · 2 running · $0.0000 · longest: task 1 (lint) for 1m01s";
        assert_eq!(status(&shown, 2, None), both);
        shown.observe(&BatchEvent::Busy { index: 1, is_given_up: true });
        let one = "0/3 done · 1 running · $0.0000 · longest: task 0 for 0s";
        assert_eq!(status(&shown, 1, None), one);
    }
}
