//! Lines that only store, print or record their here-documents, so that nothing runs their text.

use super::super::shell_lexer::{ShellWord, SimpleCommand};
use super::plain_commands::PlainEffect::{
    Changes, ChangesFolder, Prints, Reads, ReadsRepository, ReadsVersions, Transfers,
};
use super::plain_commands::recognize;

/// True if no command of a line can run the text of its here-documents. Each command has to be
/// known, also those without a here-document: `cat <<'E' | sh` runs it, and so does `cat > x <<'E'`
/// with `sh x` behind it.
pub(super) fn keeps_documents(parts: &[SimpleCommand]) -> bool {
    parts.iter().all(stores) || parts.iter().all(records)
}

/// True for `cat > FILE`, `tee FILE` and what runs no other program.
fn stores(part: &SimpleCommand) -> bool {
    match recognize(part).map(|known| known.effect) {
        Some(Prints | Reads | ChangesFolder | Changes | Transfers) => true,
        // git runs programs that its settings name, which the line may have written.
        Some(ReadsRepository | ReadsVersions) => false,
        None => is_literal(part) && is_tee_or_chmod(part),
    }
}

fn is_tee_or_chmod(part: &SimpleCommand) -> bool {
    match words(part).as_slice() {
        ["tee", rest @ ..] => {
            rest.iter().all(|word| !word.starts_with('-') || matches!(*word, "-a" | "--append"))
        }
        ["chmod", ..] => true,
        _ => false,
    }
}

/// True if the command cannot turn its input into a file that git runs, and does not read names of
/// files from it. `git commit` records it as the message.
fn records(part: &SimpleCommand) -> bool {
    let writes = part.writes.iter().any(|word| word.plain != "/dev/null");
    let has_input = part.has_document || part.is_piped;
    let is_known = match words(part).as_slice() {
        ["git", "commit" | "tag", rest @ ..] => {
            !rest.iter().any(|word| word.starts_with("--pathspec"))
        }
        ["gh", "issue" | "pr", ..] => true,
        ["git", "add" | "push", ..] => !has_input,
        ["git", ..] => !has_input && recognize(part).is_some(),
        _ => recognize(part)
            .is_some_and(|known| matches!(known.effect, Prints | Reads | ChangesFolder)),
    };
    is_known && !writes && is_literal(part)
}

fn words(part: &SimpleCommand) -> Vec<&str> {
    part.words.iter().map(|word| word.raw.as_str()).collect()
}

fn is_literal(part: &SimpleCommand) -> bool {
    part.words.iter().all(ShellWord::is_literal)
}
