//! The user's system prompt, and the output style that is added to it.

use std::path::PathBuf;

use super::SystemPrompt;
use crate::cli::args::ModelArgs;
use crate::cli::prompts::OutputStyle;
use crate::cli::usage::UsageError;
use crate::process::file_reads;

/// Reads it from the flags, and from the files that they name.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn resolve(model: &ModelArgs) -> Result<SystemPrompt, UsageError> {
    let either = |text: &Option<String>, flag: &str, file: &Option<PathBuf>| match (text, file) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => file_reads::read_to_string(path).map(Some).map_err(|error| {
            UsageError::new(format!(
                "{flag} {}: cannot be read: {error}; name a readable text file",
                path.display()
            ))
        }),
        (None, None) => Ok(None),
    };
    Ok(SystemPrompt {
        replaced: either(&model.system_prompt, "--system-prompt-file", &model.system_prompt_file)?,
        appended: either(
            &model.append_system_prompt,
            "--append-system-prompt-file",
            &model.append_system_prompt_file,
        )?,
        role: None,
    })
}

/// The name of the style that adds nothing.
const DEFAULT_STYLE: &str = "default";

/// Adds the text of an output style. Without a style of that name, returns a warning.
pub(super) fn add_style(
    system: &mut SystemPrompt,
    name: &str,
    styles: &[OutputStyle],
) -> Option<String> {
    if name.eq_ignore_ascii_case(DEFAULT_STYLE) {
        return None;
    }
    let Some(style) = styles.iter().find(|style| style.name.eq_ignore_ascii_case(name)) else {
        return Some(format!(
            "the setting outputStyle names {name:?}, and there is no file output-styles/{name}.md \
             in .claude, .outlast or the user's own folder; it has no effect"
        ));
    };
    let texts = [Some(style.text.clone()), system.appended.take()];
    system.appended = Some(texts.into_iter().flatten().collect::<Vec<_>>().join("\n\n"));
    None
}
