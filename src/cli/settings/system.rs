//! The user's system prompt, and the output style that is added to it.

use std::io;
use std::path::{Path, PathBuf};

use super::SystemPrompt;
use super::inputs::Inputs;
use crate::cli::prompts::OutputStyle;
use crate::cli::usage::UsageError;
use crate::process::file_reads;
use crate::tools::decode_text;

/// Maximum size of a file with a system prompt, in bytes: more than a context window.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads the system prompt from the flags, and from the files that they name, and adds the output
/// style, except with `--safe-mode`. Also returns a warning, if no style has this name.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn resolve(inputs: &Inputs) -> Result<(SystemPrompt, Option<String>), UsageError> {
    let model = &inputs.args.model;
    let either = |text: &Option<String>, flag: &str, file: &Option<PathBuf>| match (text, file) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => read_text(path).map(Some).map_err(|error| {
            UsageError::new(format!(
                "{flag} {}: cannot be read: {error}; name a readable text file",
                path.display()
            ))
        }),
        (None, None) => Ok(None),
    };
    let mut system = SystemPrompt {
        replaced: either(&model.system_prompt, "--system-prompt-file", &model.system_prompt_file)?,
        appended: either(
            &model.append_system_prompt,
            "--append-system-prompt-file",
            &model.append_system_prompt_file,
        )?,
        role: None,
    };
    if inputs.args.compatibility.safe_mode {
        return Ok((system, None));
    }
    let styles = &inputs.sources.library.styles;
    let warning = add_style(&mut system, &inputs.config.output_style, styles);
    Ok((system, warning))
}

/// Reads a text in any encoding that the tools read, without its byte order mark.
fn read_text(path: &Path) -> io::Result<String> {
    let bytes = file_reads::read_named(path, FILE_BYTES_MAX)?;
    let text = decode_text(bytes).ok_or_else(|| io::Error::other("it is not text"))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}

/// The name of the style without a text.
const DEFAULT_STYLE: &str = "default";

/// Adds the text of an output style. Without a style of that name, returns a warning.
fn add_style(system: &mut SystemPrompt, name: &str, styles: &[OutputStyle]) -> Option<String> {
    if name.eq_ignore_ascii_case(DEFAULT_STYLE) {
        return None;
    }
    let by_file = styles.iter().find(|style| style.name.eq_ignore_ascii_case(name));
    let is_titled = |title: &String| title.eq_ignore_ascii_case(name);
    let by_title = || styles.iter().find(|style| style.title.as_ref().is_some_and(is_titled));
    let Some(style) = by_file.or_else(by_title) else {
        return Some(format!(
            "the setting outputStyle names {name:?}, and there is no such file output-styles/*.md in \
             .claude, .outlast or the user's own folder; it has no effect"
        ));
    };
    let texts = [Some(style.text.clone()), system.appended.take()];
    system.appended = Some(texts.into_iter().flatten().collect::<Vec<_>>().join("\n\n"));
    None
}
