//! Reads agents, commands and skills as far as their files are trusted.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::MemorySources;
use crate::cli::args::RunArgs;
use crate::cli::front_matter;
use crate::cli::plugins::Plugin;
use crate::cli::prompts::{FileTrust, LibrarySearch, PromptLibrary};
use crate::config::environment::{self, Variables};
use crate::config::first_reading::DefinitionOwner;
use crate::config::repository::{UNTRUSTED, script_reason};
use crate::config::trust::Trust;

/// The reason for withholding fields of an agent, a command or a skill.
const WRITTEN_LATER: &str = "it was written after the session began";

/// Reads agents, commands, skills and output styles. With `--safe-mode`, only those of plugins are
/// read; with `--bare`, only skills of plugins are listed
/// for the model.
pub(super) fn read(
    args: &RunArgs,
    variables: &Variables,
    cwd: &Path,
    (memory, trust): (&MemorySources, &Trust),
    (plugins, added): (&[Plugin], &[PathBuf]),
) -> PromptLibrary {
    let finds = !args.compatibility.safe_mode;
    let own = (memory.user && finds).then(|| environment::own_folders(variables));
    let first = args.session.first_reading.as_ref();
    let is_new = |owner: DefinitionOwner, text: &str| {
        first.is_some_and(|first| first.is_new_definition(owner, text))
    };
    let changed = || FileTrust::Untrusted(WRITTEN_LATER.to_owned());
    let search = LibrarySearch {
        cwd,
        own: own.unwrap_or_default(),
        plugins,
        added: if memory.project && finds { added } else { &[] },
        project: memory.project && finds,
        trust: &|text| {
            let is_new = is_new(DefinitionOwner::Project, text);
            if is_new { changed() } else { definition_trust(text, cwd, trust) }
        },
        plugin_trust: &|text| {
            let is_new = is_new(DefinitionOwner::Plugin, text);
            if is_new { changed() } else { FileTrust::Trusted }
        },
        anywhere: memory.trusted,
        commands: !args.prompts.disable_slash_commands,
        lists_skills: !args.compatibility.bare,
    };
    search.read()
}

/// Returns the trust in a file of the repository that defines an agent, a command or a skill.
fn definition_trust(text: &str, cwd: &Path, trust: &Trust) -> FileTrust {
    let fields = front_matter::fields(&text.replace("\r\n", "\n")).ok().flatten();
    let hooks = fields.as_ref().and_then(|fields| fields.value("hooks"));
    match trust.covers_commands(text.as_bytes(), &json!({ "hooks": hooks }), cwd) {
        Ok(true) => FileTrust::Trusted,
        Ok(false) => FileTrust::Untrusted(UNTRUSTED.to_owned()),
        Err(script) => FileTrust::Untrusted(script_reason(&script, cwd)),
    }
}
