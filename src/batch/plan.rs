//! The plan of a batch: the resolved tasks, in a file that every worker reads.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::recovery::Money;
use crate::text::hex;

use super::budget::{BudgetError, divide};
use super::task_file::{GitSource, TaskLine};

/// Version of the plan format.
pub const PLAN_VERSION: u64 = 1;

/// Maximum length of a batch id: with an index, it must be a valid name in Kubernetes and Slurm.
const ID_MAX: usize = 48;

/// Maximum length of the file name's part at the beginning of a derived id, in characters.
const STEM_MAX: usize = 24;

/// Length of the content hash's part at the end of a derived id, in bytes.
const HASH_BYTES: usize = 4;

/// The plan of a batch, which all of its workers read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchPlan {
    pub version: u64,
    pub batch: String,
    /// The task file.
    pub source: PathBuf,
    /// Working directory of tasks that name none. `None`: each of these has its own folder.
    pub cwd: Option<PathBuf>,
    /// Flags of `outlast run` that apply to every task.
    pub flags: Vec<String>,
    pub max_budget_usd: Option<f64>,
    /// The flags that select the engine, to continue the batch there. Empty: the local engine.
    pub engine: Vec<String>,
    pub tasks: Vec<PlannedTask>,
}

/// One task of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    pub index: usize,
    /// The id in the task file, or else the name.
    pub id: String,
    /// `<batch>-<index>`.
    pub name: String,
    pub session_id: Uuid,
    /// Line number in the task file.
    pub line: usize,
    pub prompt: String,
    pub cwd: Option<PathBuf>,
    pub git: Option<GitSource>,
    pub flags: Vec<String>,
    pub limits: PlannedLimits,
}

/// The limits of a task, as flag values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedLimits {
    pub max_turns: Option<u32>,
    pub max_budget_usd: Option<String>,
    pub max_duration: Option<String>,
}

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The id of the batch. `None`: it is derived from the content.
    pub id: Option<String>,
    pub source: PathBuf,
    pub cwd: Option<PathBuf>,
    pub flags: Vec<String>,
    pub max_budget: Option<Money>,
    pub engine: Vec<String>,
    pub tasks: Vec<TaskLine>,
}

/// The reason why a plan cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("is not a plan of a batch: {0}")]
    Invalid(serde_json::Error),
    #[error("is a plan of version {0}, written by a newer outlast; use that one")]
    Newer(u64),
}

/// True if a text is a valid batch id: lower-case letters, digits, and dashes that are not at an
/// end. Every engine accepts such a job name.
pub fn is_batch_id(id: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    (1..=ID_MAX).contains(&id.len())
        && id.chars().all(|letter| is_letter(letter) || letter == '-')
        && id.starts_with(is_letter)
        && id.ends_with(is_letter)
}

impl BatchPlan {
    /// Plans a batch. Equal requests give equal plans.
    ///
    /// # Errors
    /// The budget cannot be divided.
    pub fn new(request: PlanRequest) -> Result<Self, BudgetError> {
        let batch = request.id.clone().unwrap_or_else(|| derived_id(&request));
        let limits: Vec<_> = request.tasks.iter().map(|task| task.limits.max_budget).collect();
        let shares = match request.max_budget {
            Some(total) => divide(total, &limits)?.into_iter().map(Some).collect(),
            None => limits,
        };
        let lines = request.tasks.into_iter().zip(shares).enumerate();
        let tasks =
            lines.map(|(index, (line, share))| planned(&batch, index, line, share)).collect();
        Ok(Self {
            version: PLAN_VERSION,
            batch,
            source: request.source,
            cwd: request.cwd,
            flags: request.flags,
            max_budget_usd: request.max_budget.map(Money::as_dollars),
            engine: request.engine,
            tasks,
        })
    }

    /// Returns the SHA-256 of the plan, by which a worker recognizes it.
    pub fn digest(&self) -> String {
        let text = serde_json::to_vec(self)
            .expect("the plan was read from JSON or written as JSON before");
        hex(&Sha256::digest(text))
    }

    /// Parses a plan.
    ///
    /// # Errors
    /// The text is not a plan, or a newer outlast wrote it.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        let Versioned { version } = serde_json::from_str(text).map_err(PlanError::Invalid)?;
        if version > PLAN_VERSION {
            return Err(PlanError::Newer(version));
        }
        serde_json::from_str(text).map_err(PlanError::Invalid)
    }

    /// Returns the tasks of this plan that differ from those with the same index in the other one,
    /// not counting their shares of the budget.
    pub fn changed_tasks(&self, other: &Self) -> impl Iterator<Item = &PlannedTask> {
        let pairs = self.tasks.iter().zip(&other.tasks);
        pairs.filter(|(task, other)| task.work() != other.work()).map(|(task, _)| task)
    }
}

impl PlannedTask {
    /// Returns the id in the task file. `None`: the line has none.
    fn id_in_file(&self) -> Option<&str> {
        (self.id != self.name).then_some(&*self.id)
    }

    /// Returns all that the user wrote about the task, except for its share of the budget.
    fn work(&self) -> impl PartialEq {
        let PlannedLimits { max_turns, max_duration, .. } = &self.limits;
        (
            self.id_in_file(),
            &self.prompt,
            &self.cwd,
            &self.git,
            &self.flags,
            max_turns,
            max_duration,
        )
    }
}

fn planned(batch: &str, index: usize, line: TaskLine, share: Option<Money>) -> PlannedTask {
    let name = format!("{batch}-{index}");
    PlannedTask {
        index,
        id: line.id.unwrap_or_else(|| name.clone()),
        session_id: session_id(&name),
        name,
        line: line.line,
        prompt: line.prompt,
        cwd: line.cwd,
        git: line.git,
        flags: line.flags,
        limits: PlannedLimits {
            max_turns: line.limits.max_turns,
            max_budget_usd: share.map(exact_dollars),
            max_duration: line.limits.max_duration,
        },
    }
}

/// Formats an amount in decimal digits, rounded down to a millionth of a dollar.
fn exact_dollars(amount: Money) -> String {
    let micro = amount.as_pico_dollars() / 1_000_000;
    format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

/// Returns the session id of a task: a UUID that is derived from its name.
fn session_id(name: &str) -> Uuid {
    let hash = Sha256::digest(format!("outlast batch\0{name}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

/// Returns a batch id that is derived from the file name, the tasks, the working directories and
/// the flags. It does not depend on the budget or the engine.
fn derived_id(request: &PlanRequest) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    };
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    add(&path(&request.cwd).unwrap_or_default());
    request.flags.iter().for_each(|flag| add(flag));
    for task in &request.tasks {
        add("task");
        add(task.id.as_deref().unwrap_or_default());
        add(&task.prompt);
        add(&path(&task.cwd).unwrap_or_default());
        let git = task.git.as_ref();
        add(git.map_or("", |git| &git.repository));
        add(git.and_then(|git| git.reference.as_deref()).unwrap_or_default());
        task.flags.iter().for_each(|flag| add(flag));
        add(&task.limits.max_turns.map(|turns| turns.to_string()).unwrap_or_default());
        add(task.limits.max_duration.as_deref().unwrap_or_default());
    }
    let digits = hex(&hash.finalize()[..HASH_BYTES]);
    match stem(&request.source) {
        stem if stem.is_empty() => format!("b-{digits}"),
        stem => format!("{stem}-{digits}"),
    }
}

/// Returns the file name without its extension, reduced to the characters that an id may have.
fn stem(source: &std::path::Path) -> String {
    let name = source.file_stem().map(|name| name.to_string_lossy().to_ascii_lowercase());
    let name = name.unwrap_or_default();
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let joined = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    joined.chars().take(STEM_MAX).collect::<String>().trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::read_tasks;

    fn request(source: &str, tasks: &str) -> PlanRequest {
        PlanRequest {
            id: None,
            source: source.into(),
            cwd: Some("/work".into()),
            flags: Vec::new(),
            max_budget: None,
            engine: Vec::new(),
            tasks: read_tasks("t", tasks, ("/work".as_ref(), None)).expect("good tasks"),
        }
    }

    fn plan(source: &str, tasks: &str) -> BatchPlan {
        BatchPlan::new(request(source, tasks)).expect("no budget")
    }

    const ONE: &str = r#"{"prompt": "One."}"#;

    #[test]
    fn the_id_follows_from_the_work_and_not_from_the_money() {
        let first = plan("/a/My Tasks.jsonl", ONE);
        assert!(
            first.batch.starts_with("my-tasks-") && is_batch_id(&first.batch),
            "{}",
            first.batch
        );
        assert_eq!(plan("/b/My Tasks.jsonl", &format!("\n{ONE}\n")).batch, first.batch);
        assert_ne!(plan("/a/My Tasks.jsonl", r#"{"prompt": "Two."}"#).batch, first.batch);
        let mut dearer = request("/a/My Tasks.jsonl", ONE);
        dearer.max_budget = Money::from_dollars(2.0);
        let dearer = BatchPlan::new(dearer).expect("enough");
        assert_eq!(dearer.batch, first.batch);
        assert_eq!(dearer.changed_tasks(&first).count(), 0);
        assert_eq!(dearer.tasks[0].limits.max_budget_usd.as_deref(), Some("2.000000"));
        assert!(is_batch_id(&plan("/_.jsonl", ONE).batch));
    }

    #[test]
    fn sessions_differ_by_batch_and_index_and_are_the_same_each_time() {
        let one = plan("t", &format!("{ONE}\n{ONE}"));
        let ids: Vec<_> = one.tasks.iter().map(|task| task.session_id).collect();
        assert_ne!(ids[0], ids[1]);
        let again: Vec<_> =
            plan("t", &format!("{ONE}\n{ONE}")).tasks.iter().map(|task| task.session_id).collect();
        assert_eq!(ids, again);
    }

    #[test]
    fn a_plan_is_read_as_it_was_written_and_a_newer_one_is_refused() {
        let plan = plan("t", r#"{"prompt": "One.", "git": {"repository": "r", "ref": "v1"}}"#);
        let text = serde_json::to_string(&plan).expect("it is plain data");
        assert_eq!(BatchPlan::parse(&text).expect("a plan"), plan);
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert!(matches!(BatchPlan::parse(&newer), Err(PlanError::Newer(2))));
        assert!(matches!(BatchPlan::parse("{}"), Err(PlanError::Invalid(_))));
    }

    #[test]
    fn every_task_that_differs_is_found_also_under_another_id() {
        let two = r#"{"prompt": "Two."}"#;
        let plan = |tasks: &[&str]| plan("t", &tasks.join("\n"));
        let (one, other) = (plan(&[ONE, two, ONE, two]), plan(&[ONE, ONE, ONE, ONE, ONE]));
        assert_ne!(one.batch, other.batch);
        let lines = |(one, two): (&BatchPlan, &BatchPlan)| {
            one.changed_tasks(two).map(|task| task.line).collect::<Vec<_>>()
        };
        assert_eq!(lines((&one, &other)), [2, 4]);
        assert_eq!(lines((&other, &one)), [2, 4]);
        let named = plan(&[r#"{"id": "a", "prompt": "One."}"#]);
        assert_eq!(lines((&named, &one)), [1], "an id is part of the work");
    }

    #[test]
    fn ids_are_names_that_every_engine_accepts() {
        for id in ["a", "nightly-2026", "1"] {
            assert!(is_batch_id(id), "{id}");
        }
        for id in ["", "-a", "a-", "A", "a_b", "a/b", "ä", &"x".repeat(49)] {
            assert!(!is_batch_id(id), "{id}");
        }
    }
}
