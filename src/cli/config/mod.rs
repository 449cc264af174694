//! `outlast config`: the settings in force, each with its source; their schema; and a template of a
//! settings file.

mod init;
mod report;

use serde_json::json;
use strsim::osa_distance;
use tokio::time::timeout;

use crate::config::fold::EffectiveValue;
use crate::config::registry;
use crate::config::schema;
use crate::doctor::CHECK_MAX;
use crate::process::file_reads;
use crate::secrets::{KnownSecrets, Redactor};

use super::args::{self, ConfigAction, ConfigArgs, GetSettingArgs};
use super::doctor::shown;
use super::output::{Screen, one_line};
use super::run::ProcessContext;
use super::sessions::until_signal;
use super::settings::{self, SettingsSurvey};
use super::stdout::print_report;
use super::usage::UsageError;

/// Maximum number of names that an error suggests.
const NEAR_MAX: usize = 3;
/// Minimum length of a part of a name that is recognized.
const PART_MIN: usize = 4;
/// The distance of a name that contains the requested one. Names with typos are nearer.
const PART_DISTANCE: usize = 4;

/// Prints the settings. The exit code is 2 if a run could not begin with them.
///
/// # Errors
/// The flags after `--` are wrong, a file cannot be written, or a signal came.
pub(super) async fn config(args: ConfigArgs, context: ProcessContext) -> Result<u8, UsageError> {
    if args.schema {
        print_report(&format!("{:#}\n", schema::schema()))?;
        return Ok(0);
    }
    match &args.action {
        Some(ConfigAction::Init(init)) => init::init(init, &context),
        Some(ConfigAction::Get(get)) => get_setting(get, &read_survey(&get.flags, context).await?),
        None => {
            let screen = Screen::of_stdout(&context.variables);
            let survey = read_survey(&args.flags, context).await?;
            print_all(&args, &survey, &screen)
        }
    }
}

/// Reads all settings, as a run with these flags would.
///
/// # Errors
/// The flags are wrong, reading a file does not end, or a signal came.
pub(super) async fn read_survey(
    flags: &[String],
    ProcessContext { variables, cwd, signals, .. }: ProcessContext,
) -> Result<SettingsSurvey, UsageError> {
    let run = args::run_flags(flags)?;
    let read = move || Ok(settings::survey(&run, &variables, &cwd));
    let survey = timeout(CHECK_MAX, until_signal(&signals, read)).await;
    survey.unwrap_or_else(|_| Err(timeout_error()))
}

fn timeout_error() -> UsageError {
    let file = file_reads::oldest_pending_read();
    let file = file.map_or("a file".to_owned(), |path| path.display().to_string());
    let seconds = CHECK_MAX.as_secs_f32();
    UsageError::new(format!(
        "the settings could not be read within {seconds} s: {file} does not come to its end; see \
         whether it is a pipe, or on a disk that hangs"
    ))
}

fn print_all(
    args: &ConfigArgs,
    survey: &SettingsSurvey,
    screen: &Screen,
) -> Result<u8, UsageError> {
    let redactor = Redactor::new(KnownSecrets::new(survey.secrets()));
    if args.json {
        let mut object = report::object(survey, args.changed);
        redactor.redact_json(&mut object);
        print_report(&format!("{object}\n"))?;
    } else {
        print_report(&redactor.redact(&report::text(survey, args.changed, screen)))?;
    }
    Ok(if survey.inputs.mistakes.is_empty() { 0 } else { 2 })
}

/// Prints the value of one setting, or of each one in an object of settings.
fn get_setting(args: &GetSettingArgs, survey: &SettingsSurvey) -> Result<u8, UsageError> {
    if let Some(mistakes) = UsageError::all(&survey.inputs.mistakes) {
        return Err(mistakes);
    }
    let below = format!("{}.", args.key);
    let is_wanted = |one: &&EffectiveValue| one.name == args.key || one.name.starts_with(&below);
    let found: Vec<&EffectiveValue> = survey.effective.iter().filter(is_wanted).collect();
    if found.is_empty() {
        return Err(unknown_setting(&args.key, survey));
    }
    let mut text = String::new();
    for one in &found {
        let value = one_line(&shown(&one.value));
        let line = if args.json {
            json!(one).to_string()
        } else if found.len() == 1 {
            value
        } else {
            format!("{} = {value}", one.name)
        };
        text.extend([line.as_str(), "\n"]);
    }
    let redactor = Redactor::new(KnownSecrets::new(survey.secrets()));
    print_report(&redactor.redact(&text))?;
    Ok(0)
}

/// Returns the error for a key without a value: it is not a setting, or an empty object of
/// settings.
fn unknown_setting(key: &str, survey: &SettingsSurvey) -> UsageError {
    let shown: String = key.chars().take(60).collect();
    if let Some(setting) = registry::find(key).filter(|setting| setting.form_of.is_some()) {
        let other = setting.form_of.unwrap_or_default();
        return UsageError::new(format!("{key} is another way to say {other}; ask for {other}"));
    }
    if registry::find(key).is_some() {
        return UsageError::new(format!("no member of {key} is set"));
    }
    let wanted = key.trim_start_matches('-').to_lowercase();
    let names = survey.effective.iter().map(|one| one.name.as_str());
    let mut near: Vec<(usize, &str)> =
        names.filter_map(|name| Some((distance(&wanted, name)?, name))).collect();
    near.sort_unstable();
    if near.first().is_some_and(|(distance, _)| *distance < PART_DISTANCE) {
        near.retain(|(distance, _)| *distance < PART_DISTANCE);
    }
    let near: Vec<&str> = near.into_iter().map(|(_, name)| name).take(NEAR_MAX).collect();
    let hint = if near.is_empty() {
        "outlast config lists all, and outlast help settings describes them".to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    };
    UsageError::new(format!("no setting is named {shown:?}; {hint}"))
}

/// Returns the distance of a name from the requested one, ignoring capitals and dashes. `None`: too
/// far. A part of the name counts as near: `budget` for `maxBudgetUsd`.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let (name, wanted) = (name.to_lowercase(), wanted.replace(['-', '_'], ""));
    let last = name.rsplit('.').next().unwrap_or_default();
    let by_spelling = [name.as_str(), last].map(|it| (osa_distance(&wanted, it), it.len()));
    let by_spelling = by_spelling.into_iter().filter(|(far, length)| *far <= (length / 4).min(3));
    let by_part = (wanted.len() >= PART_MIN && name.contains(&wanted)).then_some(PART_DISTANCE);
    by_spelling.map(|(far, _)| far).chain(by_part).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_suggested_by_its_spelling_or_a_part_of_its_name() {
        for (wanted, name, is_near) in [
            ("budget", "maxBudgetUsd", true),
            ("max-turns", "maxTurns", true),
            ("maxturn", "maxTurns", true),
            ("nope", "sandbox.mode", false),
            ("modee", "sandbox.mode", true),
            ("a", "maxTurns", false),
        ] {
            assert_eq!(distance(wanted, name).is_some(), is_near, "{wanted} {name}");
        }
    }
}
