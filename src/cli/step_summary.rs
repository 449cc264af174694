//! The summary of a step of GitHub Actions: a report on the run, and an annotation of its failure.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::RunOutcome;
use crate::history::{HistoryContents, read_history};
use crate::journal::{ModelTotals, SessionId, locate_session};
use crate::process::HeldFolder;
use crate::report::{
    Answer, ConversationChanges, JournalDamage, SessionOutcome, SessionReport, SessionSubject,
    SpendSummary, TimeSpent, ToolCounts, WorkDone, shortened_prompt,
};

use super::output::{ResultReport, one_line};
use super::report::document::ReportDocument;
use super::report::markdown;
use super::run::RunJob;
use super::sessions::SessionsContext;

/// Time limit for reading the journal, and for writing the summary.
const STEP_LIMIT: Duration = Duration::from_millis(1500);

/// Like [`STEP_LIMIT`], after an interrupt: the process has to end soon.
const INTERRUPTED_STEP_LIMIT: Duration = Duration::from_millis(300);

/// The size above which GitHub drops the whole summary of a step, in bytes.
const SUMMARY_MAX: u64 = 1 << 20;

/// Mode of a new summary file, from which the umask is taken.
const MODE_BEFORE_UMASK: u32 = 0o666;

/// The summary file of a step. Its folder is opened before the first command runs, which could
/// replace it.
#[derive(Clone, Debug)]
pub struct StepSummaryFile {
    name: OsString,
    /// `None`: there was no such folder.
    folder: Option<Arc<HeldFolder>>,
}

impl StepSummaryFile {
    pub fn new(path: &Path) -> Self {
        let folder = path.parent().map(|folder| {
            HeldFolder::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        });
        let folder = folder.and_then(Result::ok);
        Self { name: path.file_name().unwrap_or_default().to_owned(), folder: folder.map(Arc::new) }
    }

    /// Appends to a regular file. A program of the run may have put something else in its place. A
    /// line that an earlier program left open is ended, or the heading would be a part of it.
    ///
    /// # Errors
    /// There is something else, it would become too large, or it cannot be written.
    fn append(&self, text: &str) -> io::Result<()> {
        let no_folder = || io::Error::other("its folder cannot be opened");
        let folder = self.folder.as_ref().ok_or_else(no_folder)?;
        let mut file = folder.append(&self.name, MODE_BEFORE_UMASK)?;
        let facts = file.metadata()?;
        if !facts.is_file() || facts.nlink() > 1 {
            return Err(io::Error::other("it is not a regular file"));
        }
        let separator = if facts.len() > 0 { "\n" } else { "" };
        let text = format!("{separator}{text}");
        if facts.len().saturating_add(text.len() as u64) > SUMMARY_MAX {
            let what =
                "with this report it would have more than 1 MiB, and GitHub would drop all of it";
            return Err(io::Error::other(what));
        }
        file.write_all(text.as_bytes())
    }
}

impl RunJob {
    /// Returns the summary file of a step of GitHub Actions, if the run reports to one. A host
    /// reports on its turns itself.
    fn reports_to_step(&self) -> Option<&StepSummaryFile> {
        self.settings.output.files.step_summary.as_ref().filter(|_| self.host.is_none())
    }

    /// Annotates a failed run, for the list of errors of the job.
    pub(super) fn annotate(&self, report: &ResultReport<'_>) {
        if self.reports_to_step().is_none() || !report.verdict().is_error() {
            return;
        }
        let errors = self.shared.redactor.redact(&report.errors().join(" "));
        let title = format!("outlast: {}", report.outcome.reason.name());
        self.shared.stderr.send(&error_command(&title, &errors));
    }

    /// Appends a report on the run to the summary of the step. It takes little time, and a failure
    /// is a warning: neither changes how the run ended.
    pub(super) async fn write_step_summary(&self, report: &ResultReport<'_>) {
        let Some(file) = self.reports_to_step().cloned() else { return };
        let is_hurried = self.signals.interrupt().is_some();
        let limit = if is_hurried { INTERRUPTED_STEP_LIMIT } else { STEP_LIMIT };
        let settings = std::sync::Arc::clone(&self.settings);
        let context = SessionsContext::new(&settings.variables, &settings.cwd);
        let id = SessionId::parse(report.session_id).filter(|_| settings.persist);
        let reading = tokio::task::spawn_blocking(move || {
            let file = locate_session(context.place(), &id?).ok()?;
            Some(SessionReport::of(&read_history(&file, HistoryContents::WithoutOutputs).ok()?))
        });
        let read = tokio::time::timeout(limit, reading).await;
        // A missing, unreadable or very long journal does not prevent a report.
        let found = read.ok().and_then(Result::ok).flatten();
        let text = self.step_summary(found, report);
        let writing = tokio::task::spawn_blocking(move || file.append(&text));
        let written = match tokio::time::timeout(limit, writing).await {
            Ok(Ok(written)) => written,
            Ok(Err(_panic)) => Err(io::Error::other("outlast has a defect")),
            Err(_late) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        if let Err(error) = written {
            self.shared.warn(&format!("GITHUB_STEP_SUMMARY could not be written: {error}"));
        }
    }

    fn step_summary(&self, found: Option<SessionReport>, report: &ResultReport<'_>) -> String {
        let settings = &self.settings;
        let mut session = found.unwrap_or_else(|| {
            let prompt = settings.prompt.argument.as_deref().map(shortened_prompt);
            let subject = SessionSubject {
                id: report.session_id.to_owned(),
                project: Some(settings.cwd.clone()),
                prompt,
                processes: 1,
                ..SessionSubject::default()
            };
            of_outcome(report.outcome, subject)
        });
        // The journal has no record of what happened after the run.
        session.outcome = SessionOutcome::Ended(report.outcome.reason);
        // The notes contain the error, with advice.
        session.error = None;
        let context = SessionsContext::new(&settings.variables, &settings.cwd);
        let mut document = ReportDocument::of_session(&context, &session);
        document.notes.splice(0..0, report.errors());
        let resume = report.resume_command();
        document.notes.extend(resume.map(|command| format!("To go on where it ended: {command}")));
        self.shared.redactor.redact(&format!("{}\n", markdown::render(&document)))
    }
}

/// Reports on a run without a journal.
fn of_outcome(outcome: &RunOutcome, subject: SessionSubject) -> SessionReport {
    let stats = &outcome.stats;
    let recovery = stats.recovery.totals();
    let models = stats.by_model.iter().map(|model| ModelTotals {
        model: model.model.clone(),
        usage: model.usage,
        cost: model.cost,
    });
    let spent = outcome.session_cost().unwrap_or(outcome.costs.spent.amount);
    let tools = stats.tools;
    let without_success = tools.failed + tools.denied + tools.abandoned;
    SessionReport {
        subject,
        outcome: SessionOutcome::Ended(outcome.reason),
        error: None,
        turns: stats.turns,
        time: TimeSpent {
            worked: stats.duration,
            retries: recovery.waited.saturating_sub(recovery.shared_limits.waited),
            shared_limits: recovery.shared_limits.waited,
            background: Duration::ZERO,
        },
        spending: SpendSummary::new(spent, outcome.costs.unsettled, models.collect()),
        tools: ToolCounts {
            succeeded: tools.calls.saturating_sub(without_success),
            failed: tools.failed,
            not_run: tools.denied,
            running: 0,
            unknown: tools.abandoned,
        },
        recoveries: stats.recovery.records().collect(),
        changes: ConversationChanges {
            model_switches: u32::try_from(stats.models.len().saturating_sub(1)).unwrap_or(u32::MAX),
            compactions: recovery.compactions,
        },
        agents: Vec::new(),
        damage: JournalDamage::default(),
        work: WorkDone { answer: answer(outcome), ..WorkDone::default() },
    }
}

fn answer(outcome: &RunOutcome) -> Option<Answer> {
    let structured = outcome.acceptance.structured_output.as_ref();
    let structured = structured.map(|answer| Answer::Structured(format!("{answer:#}")));
    let text = Some(outcome.text.trim()).filter(|text| !text.is_empty());
    structured.or_else(|| text.map(|text| Answer::Text(text.to_owned())))
}

/// A workflow command that annotates an error. Its text cannot end it, or begin another.
pub(super) fn error_command(title: &str, message: &str) -> String {
    let data = |text: &str| {
        let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
        one_line(&text)
    };
    let title = data(title).replace(':', "%3A").replace(',', "%2C");
    format!("::error title={title}::{}", data(message))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_text_of_an_annotation_cannot_begin_another_command() {
        let command = error_command(
            "outlast: a,b",
            "100 %0A::error::x\r\n::set-env name=A::b\u{1b}[0m ##vso[x]y",
        );
        assert_eq!(
            command,
            "::error title=outlast%3A a%2Cb::100 %250A::error::x%0D%0A::set-env name=A::b [0m # #vso[x]y"
        );
        assert_eq!(command.lines().count(), 1);
    }

    #[test]
    fn a_summary_is_appended_to_a_regular_file_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("summary.md");
        let append = |path: &Path, text: &str| StepSummaryFile::new(path).append(text);
        append(&path, "one\n").expect("a new file");
        append(&path, "two\n").expect("the same file");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "one\n\ntwo\n");
        let full = folder.path().join("full");
        fs::write(&full, vec![b'x'; (1 << 20) - 5]).expect("a file");
        assert!(append(&full, "three").is_err(), "the service would drop all of it");
        append(&full, "four").expect("it fits");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        assert!(append(&fifo, "x").is_err(), "it does not wait for a reader");
        let link = folder.path().join("link");
        symlink(&path, &link).expect("a link");
        assert!(append(&link, "x").is_err());
        fs::hard_link(&path, folder.path().join("second")).expect("a second name");
        assert!(append(&path, "x").is_err());
    }

    /// A command may replace the folder during the run.
    #[test]
    fn the_folder_of_a_summary_is_the_one_at_the_start() {
        let root = tempfile::tempdir().expect("a folder");
        let [own, moved, other] = ["own", "moved", "other"].map(|name| root.path().join(name));
        for folder in [&own, &other] {
            fs::create_dir(folder).expect("a folder");
        }
        let summary = StepSummaryFile::new(&own.join("summary.md"));
        fs::rename(&own, &moved).expect("it is moved");
        symlink(&other, &own).expect("a link");
        summary.append("text").expect("the folder is there");
        assert_eq!(fs::read_to_string(moved.join("summary.md")).expect("it is there"), "text");
        assert!(!other.join("summary.md").exists());
        let none = StepSummaryFile::new(&root.path().join("none/summary.md"));
        assert!(none.append("text").is_err());
    }
}
