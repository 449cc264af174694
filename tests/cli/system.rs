//! The system prompt.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use outlast::cli::settings::SystemPrompt;
use outlast::cli::system::{EnvironmentFacts, compose};
use outlast::cli::timestamps::WallTime;
use outlast::config::Config;
use outlast::recovery::{Moment, Money};

fn at(instant: &str) -> WallTime {
    WallTime { at: instant.parse().expect("an instant"), zone: TimeZone::UTC }
}

fn told(cwd: &Path, now: &WallTime, prompt: &SystemPrompt) -> String {
    let mut config = Config { max_budget_usd: Money::from_dollars(0.5), ..Config::default() };
    config.limits.budgets.turns = Some(20);
    config.limits.deadline = Some(Moment::default().after(Duration::from_mins(45)));
    config.permissions.additional_directories = vec![PathBuf::from("/more")];
    compose(prompt, &EnvironmentFacts::new(cwd, &config, now))
}

#[test]
fn the_system_prompt_is_short_and_contains_the_run_facts() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("deep/inside");
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    std::fs::write(folder.path().join(".git/HEAD"), "ref: refs/heads/topic/x\n").unwrap();
    let text = told(&inside, &at("2026-11-21T14:00:00Z"), &SystemPrompt::default());
    assert!(text.len() < 3_000, "{} bytes", text.len());
    let cwd = inside.display().to_string();
    for part in
        [cwd.as_str(), "/more", "2026-11-21", "branch topic/x", "20 turns", "$0.5000", "45m"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn the_system_prompt_is_byte_identical_within_a_day() {
    let cwd = Path::new("/");
    let prompt = SystemPrompt::default();
    let morning = told(cwd, &at("2026-11-21T00:00:01Z"), &prompt);
    assert_eq!(morning, told(cwd, &at("2026-11-21T23:59:59Z"), &prompt));
    assert!(morning.contains("not a repository"));
}

#[test]
fn a_user_system_prompt_replaces_the_default_and_may_be_empty() {
    let (cwd, now) = (Path::new("/"), at("2026-11-21T14:00:00Z"));
    let own = |replaced: &str, appended: Option<&str>| SystemPrompt {
        replaced: Some(replaced.to_owned()),
        appended: appended.map(ToOwned::to_owned),
        ..SystemPrompt::default()
    };
    assert_eq!(told(cwd, &now, &own("", None)), "");
    assert_eq!(told(cwd, &now, &own("Mine.", Some("More."))), "Mine.\n\nMore.");
    let agent = SystemPrompt { role: Some("You lead.".to_owned()), ..own("", None) };
    assert!(told(cwd, &now, &agent).starts_with("You lead.\n"));
    assert_eq!(told(cwd, &now, &SystemPrompt { role: agent.role, ..own("Mine.", None) }), "Mine.");
    let added = SystemPrompt { appended: Some("More.".to_owned()), ..SystemPrompt::default() };
    let text = told(cwd, &now, &added);
    assert!(text.starts_with("You are outlast") && text.ends_with("\n\nMore."), "{text}");
}
