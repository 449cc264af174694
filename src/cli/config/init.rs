//! `outlast config init`: a settings file with each setting in a comment, at its default.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use crate::cli::args::InitConfigArgs;
use crate::cli::output::{Paragraph, Styling};
use crate::cli::run::ProcessContext;
use crate::cli::stdout::print_report;
use crate::cli::usage::UsageError;
use crate::config::{Setting, environment, registry};

/// The width of the comments.
const COLUMNS: usize = 96;

const INTRODUCTION: &str = "\
// Settings of outlast. Each is in a comment, at its default; without the // it is in force.
// outlast config --changed shows what is in force, outlast help settings explains the rest.
";

/// The kind of a settings file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    /// It may hold secrets. Its folder may be a link of the user.
    OfUser,
    /// Its folder belongs to a checkout, which may contain any link.
    OfProject,
}

impl FileKind {
    /// The modes of the file and of its folder, before the umask.
    fn modes(self) -> (u32, u32) {
        match self {
            Self::OfUser => (0o600, 0o700),
            Self::OfProject => (0o666, 0o777),
        }
    }
}

/// Writes the file.
///
/// # Errors
/// It exists already, or cannot be written.
pub(super) fn init(args: &InitConfigArgs, context: &ProcessContext) -> Result<u8, UsageError> {
    let (path, kind) = if args.project {
        (context.cwd.join(".outlast/settings.json"), FileKind::OfProject)
    } else {
        (environment::config_dir(&context.variables).join("settings.json"), FileKind::OfUser)
    };
    let shown = path.display();
    write(&path, &template(), args.force, kind).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            let what = format!("{shown} exists already; edit it, or replace it with --force");
            return UsageError::new(what);
        }
        let hint = if path.ancestors().take(2).any(is_link) {
            "edit the file that the link leads to, or remove the link"
        } else {
            "see whether its folder belongs to you and its disk has room"
        };
        UsageError::new(format!("{shown} cannot be written: {error}; {hint}"))
    })?;
    print_report(&format!(
        "wrote {shown}: every setting in a comment, so nothing changes until you edit it\n"
    ))?;
    Ok(0)
}

/// Writes a file completely or not at all. Links are not followed: one in a checkout may lead
/// anywhere.
fn write(path: &Path, text: &str, replaces: bool, kind: FileKind) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    if kind == FileKind::OfProject {
        check_no_link(folder)?;
    }
    check_no_link(path)?;
    let facts = fs::symlink_metadata(path).ok();
    if facts.is_some() && !replaces {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if facts.is_some_and(|facts| facts.is_dir()) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let (file_mode, folder_mode) = kind.modes();
    DirBuilder::new().recursive(true).mode(folder_mode).create(folder)?;
    let mut file = tempfile::Builder::new()
        .prefix(".settings-")
        .permissions(Permissions::from_mode(file_mode))
        .tempfile_in(folder)
        // The library's messages name the temporary file.
        .map_err(|error| error.kind())?;
    file.as_file_mut().write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    let written = if replaces { file.persist(path) } else { file.persist_noclobber(path) };
    written.map(drop).map_err(|error| error.error)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink())
}

fn check_no_link(path: &Path) -> io::Result<()> {
    if is_link(path) {
        let text = format!("{} is a symbolic link, which is not followed", path.display());
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Returns the content of the file. Objects of settings are not in comments, so that the user only
/// has to enable lines in them.
pub(super) fn template() -> String {
    let mut text = format!("{INTRODUCTION}{{\n");
    let mut open: Vec<String> = Vec::new();
    for (topic, settings) in registry::topics() {
        close(&mut text, &mut open, 0);
        let _ = writeln!(text, "\n  // ---- {topic} ----");
        for setting in settings.iter().filter(|setting| setting.form_of.is_none()) {
            let mut path = setting.path();
            let name = path.pop().unwrap_or_default();
            let common = open.iter().zip(&path).take_while(|(one, other)| one == other).count();
            close(&mut text, &mut open, common);
            for outer in path.split_off(common) {
                let indent = "  ".repeat(open.len() + 1);
                let _ = writeln!(text, "\n{indent}\"{outer}\": {{");
                open.push(outer);
            }
            add_setting(&mut text, setting, &name, open.len() + 1);
        }
    }
    close(&mut text, &mut open, 0);
    text.push_str("}\n");
    text
}

/// Closes the open objects, except for the outermost `count`.
fn close(text: &mut String, open: &mut Vec<String>, count: usize) {
    while open.len() > count {
        open.pop();
        let _ = writeln!(text, "{}}},", "  ".repeat(open.len() + 1));
    }
}

fn add_setting(text: &mut String, setting: &Setting, name: &str, depth: usize) {
    let indent = "  ".repeat(depth);
    let flag = setting.flag.map(|flag| format!("Flag: --{}.", flag.long));
    let variables: Vec<&str> = setting.variables.iter().map(|variable| variable.name).collect();
    let variables = (!variables.is_empty()).then(|| format!("Variable: {}.", variables.join(", ")));
    let default = setting.default.is_null().then(|| setting.shown_default()).flatten();
    let default = default.map(|default| format!("Default: {default}."));
    let takes = format!("Takes {}.", setting.takes);
    let facts = [Some(takes), default, flag, variables].into_iter().flatten();
    let facts = facts.collect::<Vec<_>>().join(" ");
    text.push('\n');
    for part in [setting.meaning.as_str(), &facts] {
        for line in Paragraph::plain(part).wrap(COLUMNS - indent.len(), Styling::default()) {
            let _ = writeln!(text, "{indent}// {line}");
        }
    }
    let _ = writeln!(text, "{indent}// \"{name}\": {},", setting.default);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;

    #[test]
    fn the_template_is_valid_with_and_without_its_comments() {
        let text = template();
        let empty = file::parse_bytes("f", text.as_bytes()).expect("valid");
        assert!(empty.warnings.is_empty(), "{:?}", empty.warnings);
        // Like a file in which the user has enabled all settings.
        let lines = text.lines().map(|line| match line.trim_start().strip_prefix("// \"") {
            Some(rest) if rest.contains("\": ") && rest.ends_with(',') => format!("\"{rest}"),
            Some(_) | None => line.to_owned(),
        });
        let all = lines.collect::<Vec<_>>().join("\n");
        let full = file::parse_bytes("f", all.as_bytes());
        let full = full.unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{all}"));
        assert!(full.warnings.is_empty(), "{:?}", full.warnings);
        for setting in registry::settings().iter().filter(|setting| setting.form_of.is_none()) {
            let pointer = format!("/{}", setting.key.replace('.', "/"));
            assert!(full.value.pointer(&pointer).is_some(), "{} is not there", setting.key);
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
