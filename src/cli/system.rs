//! The system prompt: the built-in one or the user's, and the facts of the run.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::config::Config;
use crate::process::{checkout_root, file_reads};
use crate::recovery::Moment;
use crate::tools::{AcceptanceSettings, STRUCTURED_OUTPUT};

use super::settings::SystemPrompt;
use super::timestamps::{WallTime, format_duration};

const BUILT_IN_PROMPT: &str = include_str!("system_prompt.md");

/// Facts about the environment of the run for the model. Collected once, so that the text stays
/// identical byte for byte: the server caches the prompt.
#[derive(Clone, Debug)]
pub struct EnvironmentFacts<'a> {
    pub cwd: &'a Path,
    pub config: &'a Config,
    /// `2026-11-21`: without the time of day, which would be outdated at the second turn.
    pub date: String,
    git: OnceCell<String>,
}

impl<'a> EnvironmentFacts<'a> {
    pub fn new(cwd: &'a Path, config: &'a Config, now: &WallTime) -> Self {
        let date = now.at.to_zoned(now.zone.clone()).strftime("%Y-%m-%d").to_string();
        Self { cwd, config, date, git: OnceCell::new() }
    }

    /// Returns the facts, a line each.
    pub fn text(&self) -> String {
        let mut text = String::from("\nFacts of this run\n");
        let mut fact = |name: &str, value: &str| {
            let _ = writeln!(text, "- {name}: {value}");
        };
        fact("Working folder", &self.cwd.display().to_string());
        for directory in &self.config.permissions.additional_directories {
            fact("Also yours to work in", &directory.display().to_string());
        }
        fact("Date", &self.date);
        fact("Platform", &format!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
        fact("Git", self.git.get_or_init(|| git(self.cwd)));
        fact("Limits", &self.bounds());
        text
    }

    fn bounds(&self) -> String {
        let turns = match self.config.limits.budgets.turns {
            Some(1) => "1 turn".to_owned(),
            Some(turns) => format!("{turns} turns"),
            None => "turns not counted".to_owned(),
        };
        let money = match self.config.max_budget_usd {
            Some(money) => money.to_string(),
            None => "money not counted".to_owned(),
        };
        let time = match self.config.limits.deadline {
            Some(deadline) => {
                format_duration(Moment::default().until(deadline).max(Duration::from_secs(1)))
            }
            None => "no deadline".to_owned(),
        };
        format!("{turns}, {money}, {time}")
    }
}

/// Returns the system prompt of a run. A prompt of the user is used as it is, without facts. An
/// empty prompt does not replace that of an agent, since the SDKs send one if their user gives
/// none.
pub fn compose(prompt: &SystemPrompt, facts: &EnvironmentFacts<'_>) -> String {
    let is_own = |own: &&String| prompt.role.is_none() || !own.trim().is_empty();
    let mut text = match prompt.replaced.as_ref().filter(is_own) {
        Some(own) => own.clone(),
        None => {
            prompt.role.as_deref().unwrap_or(BUILT_IN_PROMPT).trim_end().to_owned()
                + "\n"
                + &facts.text()
        }
    };
    if let Some(more) = &prompt.appended {
        add_paragraph(&mut text, more);
    }
    text
}

/// Adds a part as a paragraph of its own: the list of skills, the memory files.
pub fn add_part(mut text: String, part: Option<String>) -> String {
    if let Some(part) = part {
        add_paragraph(&mut text, &part);
    }
    text
}

fn add_paragraph(text: &mut String, paragraph: &str) {
    if !text.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    text.push_str(paragraph);
}

/// Adds the acceptance checks to a system prompt, since the model cannot guess them.
pub fn add_acceptance_checks(mut text: String, demands: &AcceptanceSettings) -> String {
    let mut add = |sentence: &str| add_paragraph(&mut text, sentence);
    if let Some(requirement) = &demands.requirement {
        add(&format!(
            "When you say that you are done, this command is run, and the task is complete only \
             if it passes:\n{}",
            requirement.command
        ));
    }
    if demands.schema.is_some() {
        add(&format!(
            "Give the final answer by calling {STRUCTURED_OUTPUT}, when everything else is done: \
             an answer in plain text does not count."
        ));
    }
    text
}

/// Describes the git repository of a folder, read from its files: starting git would take longer
/// than all else before the first request.
fn git(cwd: &Path) -> String {
    let Some(root) = checkout_root(cwd) else { return "not a repository".to_owned() };
    let dot_git = root.join(".git");
    let folder = match first_line(&dot_git) {
        // A worktree or a submodule: a file with the path of the folder.
        Some(pointer) => root.join(pointer.trim_start_matches("gitdir:").trim()),
        None => dot_git,
    };
    let head = first_line(&folder.join("HEAD")).unwrap_or_default();
    match head.strip_prefix("ref: refs/heads/") {
        Some(branch) => format!("repository at {}, on branch {branch}", root.display()),
        None if head.is_empty() => format!("repository at {}", root.display()),
        None => format!("repository at {}, no branch checked out", root.display()),
    }
}

/// Returns the first line of a small git file. The repository is untrusted, so the file may be
/// large or special.
fn first_line(path: &Path) -> Option<String> {
    const LARGEST: u64 = 4096;
    let text = String::from_utf8(file_reads::read_regular(path, LARGEST).ok()?).ok()?;
    let line = text.lines().next().unwrap_or_default().trim();
    (!line.chars().any(char::is_control)).then(|| line.to_owned())
}
