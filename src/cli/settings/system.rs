//! The user's system prompt.

use std::path::PathBuf;

use super::SystemPrompt;
use crate::cli::args::ModelArgs;
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
