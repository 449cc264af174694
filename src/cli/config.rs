//! `outlast config`: the settings in force, each with where it comes from; or their schema.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::config::fold::EffectiveValue;
use crate::config::repository::IgnoredSetting;
use crate::config::schema;
use crate::doctor::CHECK_MAX;
use crate::process::file_reads;
use crate::secrets::{KnownSecrets, Redactor};

use super::args::{self, ConfigArgs};
use super::doctor::shown;
use super::output::one_line;
use super::prompts::PromptLibrary;
use super::run::ProcessContext;
use super::settings::{self, FileState, SettingsFile, SettingsSurvey};
use super::stdout::print_report;
use super::usage::{UsageError, UsageErrorKind};
use super::version::SCHEMA_VERSION;

/// Prints the settings. The exit code is 2 when a run would not begin with them.
///
/// # Errors
/// The flags after `--` are wrong, or a signal came.
pub(super) async fn config(args: ConfigArgs, world: ProcessContext) -> Result<u8, UsageError> {
    if args.schema {
        print_report(&format!("{:#}\n", schema::schema()))?;
        return Ok(0);
    }
    let run = args::run_flags(&args.flags)?;
    let ProcessContext { variables, cwd, signals, .. } = world;
    let working = tokio::task::spawn_blocking(move || settings::survey(&run, &variables, &cwd));
    let survey = tokio::select! {
        biased;
        interrupt = signals.first() => return Err(UsageError::interrupted(interrupt)),
        survey = timeout(CHECK_MAX, working) => survey.map_err(|_| late())?.map_err(|error| {
            UsageError::of(UsageErrorKind::Internal, format!("outlast itself broke: {error}"))
        })?,
    };
    let mask = Redactor::new(KnownSecrets::new(survey.secrets()));
    if args.json {
        let mut object = object(&survey);
        mask.redact_json(&mut object);
        print_report(&format!("{object}\n"))?;
    } else {
        print_report(&mask.redact(&text(&survey)))?;
    }
    Ok(if survey.mistakes.is_empty() { 0 } else { 2 })
}

fn late() -> UsageError {
    let file = file_reads::oldest_pending_read();
    let file = file.map_or("a file".to_owned(), |path| path.display().to_string());
    let seconds = CHECK_MAX.as_secs_f32();
    UsageError::new(format!(
        "the settings could not be read within {seconds} s: {file} does not come to its end; see \
         whether it is a pipe, or on a disk that hangs"
    ))
}

fn text(survey: &SettingsSurvey) -> String {
    let mut text = String::new();
    for one in &survey.effective {
        let value = one_line(&shown(&one.value));
        let _ = writeln!(text, "{} = {value}  ({})", one.name, one_line(&one.origin));
    }
    for file in survey.files.iter().filter(|file| file.state != FileState::Absent) {
        let _ = writeln!(text, "file: {}  ({})", one_line(&file.path), file.state.describe());
    }
    for (kind, name, file) in named(&survey.library) {
        let _ = writeln!(text, "{kind}: {}  ({})", one_line(name), one_line(file));
    }
    for (key, place) in &survey.foreign {
        let _ = writeln!(text, "unknown: {place}: {key} is another tool's, and has no effect");
    }
    for warning in survey.all_warnings() {
        let _ = writeln!(text, "warning: {}", one_line(warning));
    }
    for mistake in &survey.mistakes {
        let _ = writeln!(text, "error: {}", one_line(mistake));
    }
    text
}

/// Lists agents, commands and skills by name, and their files.
fn named(library: &PromptLibrary) -> Vec<(&'static str, &str, &str)> {
    let agents = library.agents.iter().map(|it| ("agent", &it.definition.name, &it.file));
    let commands = library.commands.iter().map(|it| (it.kind.word(), &it.name, &it.file));
    agents.chain(commands).map(|(kind, name, file)| (kind, name.as_str(), file.as_str())).collect()
}

fn object(survey: &SettingsSurvey) -> Value {
    let setting = |one: &EffectiveValue| json!({ "name": one.name, "value": one.value, "origin": one.origin });
    let ignored =
        |one: &IgnoredSetting| json!({ "file": one.file, "key": one.key, "why": one.why });
    let file = |file: &SettingsFile| json!({ "path": file.path, "state": file.state.describe() });
    let definition = |(kind, name, file): (&str, &str, &str)| json!({ "kind": kind, "name": name, "file": file });
    let foreign = survey.foreign.iter().map(|(key, place)| json!({ "key": key, "place": place }));
    json!({
        "type": "config",
        "schema_version": SCHEMA_VERSION,
        "files": survey.files.iter().map(file).collect::<Vec<_>>(),
        "settings": survey.effective.iter().map(setting).collect::<Vec<_>>(),
        "definitions": named(&survey.library).into_iter().map(definition).collect::<Vec<_>>(),
        "unknown": foreign.collect::<Vec<_>>(),
        "ignored_settings": survey.ignored.iter().map(ignored).collect::<Vec<_>>(),
        "warnings": survey.all_warnings().collect::<Vec<_>>(),
        "errors": survey.mistakes,
    })
}
