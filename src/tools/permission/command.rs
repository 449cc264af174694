//! Judges a command line: as a whole, by every way to say it, and part by part.

use std::path::Path;

use super::super::catalog::Tool;
use super::super::places::Place;
use super::chores::{self, Grounds};
use super::errand::Errand;
use super::footing::Footing;
use super::judge::{Critical, Permissions, by_asking};
use super::mode::PermissionMode;
use super::rule::Rule;
use super::script::{self, Joint, Simple, Unsure, Word};
use super::shred;
use super::tree;
use super::wrapper::{self, Overlook};

impl Permissions {
    pub(super) fn command(
        &self,
        command: &str,
        cwd: &Path,
        find: &dyn Fn(&str, &Path) -> Place,
    ) -> Result<(), String> {
        let reading = Reading::of(command);
        self.forbidden_command(command, &reading)?;
        let errand = || Errand::new(self, find, cwd);
        errand().forbidden_paths(command, &reading.sure)?;
        let ruinous = || self.is_ruinous(command, &reading, cwd, 0);
        if self.critical == Critical::Kept && ruinous() {
            return Err("Bash may not remove a system folder, the home folder or the working \
                        directory: no rule allows that"
                .to_string());
        }
        if self.mode == PermissionMode::BypassPermissions {
            return Ok(());
        }
        let all = self.allow.iter().any(|rule| {
            rule.is_all_of(Tool::Bash) || rule.is_about_command(command) && !has_wildcard(rule)
        });
        if all && self.mode != PermissionMode::Plan {
            return Ok(());
        }
        if let Some(Unsure(why)) = reading.doubt {
            return Err(format!(
                "Bash needs permission: {why}, so rules for single commands cannot be applied. Use \
                 plain commands, or start with --allowedTools Bash"
            ));
        }
        reading.sure.iter().try_for_each(|parts| errand().allowed(parts))
    }

    fn forbidden_command(&self, command: &str, reading: &Reading) -> Result<(), String> {
        let forms = forms(command, reading, 0);
        let about = |rule: &&Rule| forms.iter().any(|form| rule.is_about_command(form));
        if let Some(rule) = self.deny.iter().find(about) {
            return Err(format!("this command is denied by the rule `{}`", rule.text));
        }
        if let Some(rule) = self.ask.iter().find(about) {
            return Err(by_asking(Tool::Bash, rule));
        }
        let mut rules = self.deny.iter().chain(&self.ask);
        match rules.find(|rule| rule.is_about_commands()) {
            Some(rule) if hides_a_name(command, reading, 0) => Err(format!(
                "nobody can tell which command this runs before it runs, and the rule `{}` is to \
                 hold: write the command's name out",
                rule.text
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn is_ruinous(&self, command: &str, reading: &Reading, cwd: &Path, depth: usize) -> bool {
        let within = |words: &[Word]| {
            let inner = wrapper::script_within(words).filter(|_| depth < DEPTH_MAX);
            inner.is_some_and(|inner| self.is_ruinous(&inner, &Reading::of(&inner), cwd, depth + 1))
        };
        for parts in &reading.sure {
            let mut footing = Footing::new(cwd);
            for part in parts {
                for words in wrapper::suspects(&part.words) {
                    let plain: Vec<&str> = words.iter().map(|word| word.plain.as_str()).collect();
                    if within(words) || self.ruins(&plain, &footing, cwd) {
                        return true;
                    }
                }
                footing.pass(part, |folder, base| chores::flatten(&base.join(folder)));
            }
        }
        reading.is_compound && self.shreds_ruin(command, cwd)
    }

    fn ruins(&self, words: &[&str], footing: &Footing, cwd: &Path) -> bool {
        let grounds = Grounds { home: self.home.as_deref(), work: [cwd, &self.cwd] };
        footing.bases().iter().any(|base| chores::is_ruinous(words, base, grounds))
            || footing.is_lost() && chores::removes_from_here(words)
    }

    /// The same of all that could be a command, standing wherever one could go.
    fn shreds_ruin(&self, command: &str, cwd: &Path) -> bool {
        let pieces = shred::shred(command);
        let moves = pieces.iter().filter_map(|piece| match piece.as_slice() {
            [name, folder, ..] if name == "cd" => Some(chores::flatten(&cwd.join(folder))),
            _ => None,
        });
        let footing = Footing::anywhere(moves.chain([cwd.to_path_buf()]).collect());
        pieces.iter().any(|piece| {
            let words: Vec<&str> = piece.iter().map(String::as_str).collect();
            let suspects = wrapper::suspects(&words);
            suspects.into_iter().any(|words| self.ruins(words, &footing, cwd))
        })
    }
}

/// How deep scripts in words of scripts are looked into.
const DEPTH_MAX: usize = 8;

/// What a command line is made of, as far as that is sure.
struct Reading {
    /// The lists of its parts by everyone who could take it apart, once if they agree. There are
    /// two readers because each may be wrong: every list has to be allowed, and none denied.
    sure: Vec<Vec<Simple>>,
    /// Why nothing can be allowed part by part.
    doubt: Option<Unsure>,
    /// Whether our own splitter found more in it than plain commands. Then all that could be a
    /// command counts as one for the rules that forbid.
    is_compound: bool,
}

impl Reading {
    fn of(command: &str) -> Self {
        let (own, parsed) = (script::split(command), tree::split(command));
        let (is_compound, doubt) = (own.is_err(), parsed.as_ref().err().copied());
        let sure = match (own, parsed) {
            // Only our own knows what runs after which.
            (Ok(own), Ok(parsed)) if are_same(&own, &parsed) => vec![own],
            (own, parsed) => own.into_iter().chain(parsed).collect(),
        };
        Self { sure, doubt, is_compound }
    }
}

/// Whether two lists of parts differ at most in how the parts follow each other.
fn are_same(one: &[Simple], other: &[Simple]) -> bool {
    let commands = |parts: &[Simple]| -> Vec<Simple> {
        parts.iter().map(|part| Simple { then: Joint::Other, ..part.clone() }).collect()
    };
    commands(one) == commands(other)
}

/// Whether some part runs what only the shell knows the name of: `$X`, `/bin/r?`.
fn hides_a_name(command: &str, reading: &Reading, depth: usize) -> bool {
    let hidden = reading.sure.iter().flatten().any(|part| {
        let words = wrapper::unwrap(&part.words, Overlook::All);
        let within = wrapper::script_within(words).filter(|_| depth < DEPTH_MAX);
        wrapper::hides_a_name(&part.words, |word| word.expands || word.globs)
            || within.is_some_and(|inner| hides_a_name(&inner, &Reading::of(&inner), depth + 1))
    });
    let shreds = || shred::commands(command);
    hidden || reading.is_compound && shreds().iter().any(|words| wrapper::may_hide_a_name(words))
}

/// All the ways to say the same command, for rules that must not be dodged.
fn forms(command: &str, reading: &Reading, depth: usize) -> Vec<String> {
    let mut forms = vec![command.trim().to_string()];
    for part in reading.sure.iter().flatten() {
        forms.extend([part.text(), script::plain(&part.words)]);
        for suspect in wrapper::suspects(&part.words) {
            forms.push(script::plain(suspect));
            if let Some(within) = wrapper::script_within(suspect).filter(|_| depth < DEPTH_MAX) {
                forms.extend(self::forms(&within, &Reading::of(&within), depth + 1));
            }
        }
    }
    if reading.is_compound {
        let pieces = shred::shred(command);
        let suspects = pieces.iter().flat_map(|piece| wrapper::suspects(piece));
        forms.extend(suspects.map(|words| words.join(" ")));
    }
    let by_name: Vec<String> = forms
        .iter()
        .filter_map(|form| {
            let (name, rest) = form.split_once(' ').unwrap_or((form, ""));
            name.contains('/').then(|| format!("{} {rest}", chores::base_name(name)))
        })
        .collect();
    forms.extend(by_name);
    forms
}

fn has_wildcard(rule: &Rule) -> bool {
    rule.text.contains('*')
}
