//! The commands that need no rule: a short list of programs and flags.

use super::super::shell_lexer::{Expansion, ShellWord, SimpleCommand};
use super::super::shell_wrappers::timed_command;

/// A command on the list, all of whose flags are on it, too.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlainCommand<'a> {
    pub(super) effect: PlainEffect,
    /// The words that may name files, and values of flags. For a pattern of file names, the folder in
    /// which it is looked for.
    pub(super) operands: Vec<&'a str>,
    /// The folder in which it works, if it names one.
    pub(super) folder: Option<&'a str>,
    /// True if the first operand may be a pattern or a script instead.
    pub(super) has_pattern: bool,
}

/// The effect of a plain command on its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainEffect {
    /// Prints them, or information that does not come from files.
    Prints,
    /// Reads them, and what is below them.
    Reads,
    /// Reads names in a repository. git may run programs that a checkout configures.
    ReadsRepository,
    /// Reads former versions of files, which git keeps under other names.
    ReadsVersions,
    /// Makes its operand the working directory.
    ChangesFolder,
    /// Creates, changes or removes them.
    Changes,
    /// Copies or moves all but the last to the last.
    Transfers,
}

use PlainEffect::{
    Changes, ChangesFolder, Prints, Reads, ReadsRepository, ReadsVersions, Transfers,
};

/// Programs, one-letter flags, one-letter flags with a value, other flags, effect. Digits are flags
/// of every program. Flags that write, run a program, follow links, or take the names of further
/// files from a file are left out.
type Row =
    (&'static [&'static str], &'static str, &'static str, &'static [&'static str], PlainEffect);

/// The flags of a program that takes every word as text.
const ANY: &str = "*";

#[rustfmt::skip]
const PROGRAMS: &[Row] = &[
    (&["echo", "true", "false", ":"], ANY, "", &[], Prints),
    (&["basename", "dirname", "type", "which", "whoami", "nproc", "seq", "sleep"], "as", "", &[
        "--all"], Prints),
    (&["printf"], ANY, "", &[], Prints),
    (&["tee"], "ai", "", &[], Prints),
    (&["pwd"], "LP", "", &[], Prints),
    (&["id", "uname"], "Ggimnoprsuva", "", &[], Prints),
    (&["date"], "uRI", "", &["--iso-8601", "--utc"], Prints),
    (&["tr"], "cdst", "", &["--complement", "--delete", "--squeeze-repeats"], Prints),
    (&["cd"], "", "", &[], ChangesFolder),
    (&["ls"], "ABCFGNQRSUXZabcdfghiklmnopqrstuvx", "ITw", &[
        "--all", "--color", "--directory", "--human-readable", "--recursive", "--sort"], Reads),
    (&["cat"], "AETbenstuv", "", &["--number", "--show-all"], Reads),
    (&["head", "tail"], "qvz", "cns", &["--bytes", "--lines", "--quiet"], Reads),
    (&["wc"], "Lclmw", "", &["--bytes", "--chars", "--lines", "--words"], Reads),
    (&["cut"], "nsz", "bcdf", &["--characters", "--delimiter", "--fields"], Reads),
    (&["nl", "tac", "rev", "fold", "expand"], "brpst", "adfhilnvw", &[], Reads),
    (&["column"], "etx", "NRclos", &["--separator", "--table"], Reads),
    (&["paste"], "sz", "d", &[], Reads),
    (&["sort"], "CMRVbcdfghimnrsuz", "Skt", &[
        "--field-separator", "--key", "--numeric-sort", "--reverse", "--unique"], Reads),
    (&["uniq"], "Dcdiuz", "fsw", &["--count", "--repeated", "--unique"], Reads),
    (&["stat"], "Lft", "c", &["--dereference", "--format", "--printf"], Reads),
    (&["file"], "bikL", "", &["--brief", "--mime-type"], Reads),
    (&["du"], "0PSabchklmsx", "Bdt", &[
        "--all", "--apparent-size", "--exclude", "--human-readable", "--max-depth", "--summarize",
        "--total"], Reads),
    (&["realpath", "readlink"], "ELPefmnqsvz", "", &["--canonicalize"], Reads),
    (&["md5sum", "sha1sum", "sha256sum", "cksum"], "btz", "", &["--binary", "--tag"], Reads),
    (&["cmp", "comm"], "bilsz", "n", &["--silent", "--quiet"], Reads),
    (&["diff"], "BENZabcdeinpqstuwy", "CIUWx", &[
        "--brief", "--color", "--ignore-all-space", "--side-by-side", "--unified"], Reads),
    (&["grep", "egrep", "fgrep"], "EFGHILPTUZabchilnoqrsvwxyz", "ABCem", &[
        "--after-context", "--before-context", "--color", "--context", "--count", "--exclude",
        "--exclude-dir", "--files-with-matches", "--fixed-strings", "--ignore-case", "--include",
        "--invert-match", "--line-number", "--max-count", "--only-matching", "--perl-regexp",
        "--quiet", "--recursive", "--regexp", "--word-regexp"], Reads),
    (&["rg"], "FHINSchilnopsvwx", "ABCTegmt", &[
        "--color", "--count", "--files", "--files-with-matches", "--glob", "--hidden",
        "--ignore-case", "--line-number", "--type"], Reads),
    (&["jq"], "CMRSacejnrs", "", &[
        "--compact-output", "--exit-status", "--raw-output", "--slurp", "--sort-keys"], Reads),
    (&["tree"], "adfhpsDFQC", "ILP", &["--dirsfirst"], Reads),
    (&["find"], "", "", &[
        "-a", "-and", "-cmin", "-ctime", "-daystart", "-depth", "-empty", "-executable", "-false",
        "-gid", "-group", "-iname", "-ipath", "-iregex", "-links", "-ls", "-maxdepth", "-mindepth",
        "-mmin", "-mount", "-mtime", "-name", "-newer", "-newermt", "-not", "-o", "-or", "-path",
        "-perm", "-print", "-print0", "-printf", "-prune", "-quit", "-readable", "-regex",
        "-regextype", "-size", "-true", "-type", "-uid", "-user", "-wholename", "-writable",
        "-xdev"], Reads),
    (&["test", "["], "", "", &[
        "-a", "-b", "-c", "-d", "-e", "-ef", "-eq", "-f", "-ge", "-gt", "-h", "-le", "-L", "-lt",
        "-n", "-ne", "-nt", "-o", "-ot", "-p", "-r", "-s", "-w", "-x", "-z"], Reads),
    (&["sed"], "", "", &["-E", "-i", "-n", "-r"], Reads),
    (&["mkdir"], "pv", "m", &["--parents"], Changes),
    (&["touch"], "acm", "", &[], Changes),
    (&["rm", "rmdir"], "dfiprv", "", &["--force", "--recursive"], Changes),
    (&["mv"], "fnv", "", &["--force"], Transfers),
    (&["cp"], "fnpv", "", &["--force"], Transfers),
];

/// Options of the shell that make it stricter, or print what it runs.
const OPTIONS: &[&str] = &["errexit", "nounset", "pipefail", "xtrace"];

/// Programs whose first operand may be a pattern or a script.
const PATTERN_FIRST: &[&str] = &["egrep", "fgrep", "grep", "jq", "rg"];

/// Programs that read only their input if no operand names a file.
const FILTERS: &[&str] = &[
    "cat", "column", "cut", "egrep", "fgrep", "fold", "grep", "head", "nl", "paste", "rev", "sed",
    "sort", "tac", "tail", "tee", "tr", "uniq", "wc",
];

/// Programs that write nothing and run nothing, whatever their flags: the name of a file that a
/// pattern stands for may look like one.
const HARMLESS: &[&str] = &[
    "cat",
    "cksum",
    "cmp",
    "du",
    "egrep",
    "fgrep",
    "grep",
    "head",
    "jq",
    "ls",
    "md5sum",
    "sha1sum",
    "sha256sum",
    "stat",
    "tail",
    "wc",
];

/// Read-only commands of git, and whether they show contents of files.
#[rustfmt::skip]
const GIT_COMMANDS: &[(&[&str], PlainEffect)] = &[
    (&["branch", "check-ignore", "describe", "ls-files", "ls-tree", "merge-base", "name-rev", "remote", "rev-list",
        "rev-parse", "shortlog", "show-ref", "status"], ReadsRepository),
    (&["blame", "cat-file", "diff", "grep", "log", "reflog", "show"], ReadsVersions),
];

/// Flags of `git log` with which it shows no contents of files.
#[rustfmt::skip]
const GIT_LOG_NAMES: &[&str] = &[
    "--all", "--decorate", "--graph", "--name-only", "--name-status", "--no-merges", "--oneline",
    "--shortstat", "--stat", "-n",
];

/// Flags with which `git tag` lists.
const GIT_TAG_LISTS: &[&str] = &["-l", "--list", "-n", "--contains", "--merged", "--points-at"];

/// Recognizes a command that consists of words of the list: literal ones, and patterns of file names
/// for programs that only read.
pub(super) fn recognize(command: &SimpleCommand) -> Option<PlainCommand<'_>> {
    let words = timed_command(&command.words);
    let is_timed = words.len() < command.words.len();
    let (first, rest) = words.split_first().filter(|(first, _)| first.is_literal())?;
    let known = match first.raw.as_str() {
        "git" => of_git(rest),
        "command" => of_command(rest),
        // Behind a timer, they would be programs.
        name @ ("exit" | "set" | "wait") if !is_timed => of_shell(name, rest),
        name => of_list(name, rest),
    }?;
    let may_be_timed = matches!(known.effect, Prints | Reads | ReadsRepository | ReadsVersions);
    (may_be_timed || !is_timed).then_some(known)
}

/// `command -v NAME` tells which program a name stands for.
fn of_command(words: &[ShellWord]) -> Option<PlainCommand<'_>> {
    let tells = matches!(words.first()?.raw.as_str(), "-v" | "-V");
    let fits = tells && words.iter().all(ShellWord::is_literal);
    let (operands, folder, has_pattern) = (Vec::new(), None, false);
    fits.then_some(PlainCommand { effect: Prints, operands, folder, has_pattern })
}

/// The words of the shell itself that end it, wait, or make it stricter.
fn of_shell<'a>(name: &str, words: &'a [ShellWord]) -> Option<PlainCommand<'a>> {
    let is_number = |word: &ShellWord| {
        let is_digits = word.plain.bytes().all(|byte| byte.is_ascii_digit());
        let is_status = word.expansion == Expansion::Status && word.plain.starts_with('$');
        is_status || word.is_literal() && is_digits && !word.plain.is_empty()
    };
    let fits = match name {
        "exit" => words.len() <= 1 && words.iter().all(is_number),
        "wait" => words.iter().all(is_number),
        // Without arguments, it prints all variables.
        _ => !words.is_empty() && sets_options(words),
    };
    let (operands, folder, has_pattern) = (Vec::new(), None, false);
    fits.then_some(PlainCommand { effect: Prints, operands, folder, has_pattern })
}

/// True if the words of `set` are flags that end the shell at errors, or print what it runs.
fn sets_options(words: &[ShellWord]) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let flags = word.raw.strip_prefix(['-', '+']).filter(|flags| !flags.is_empty());
        let Some(flags) = flags.filter(|_| word.is_literal()) else { return false };
        let letters = flags.strip_suffix('o');
        let option = letters.and_then(|_| words.next());
        let is_known = |option: &ShellWord| OPTIONS.contains(&option.raw.as_str());
        let named = letters.is_none() || option.is_some_and(is_known);
        if !named || !letters.unwrap_or(flags).chars().all(|letter| "eux".contains(letter)) {
            return false;
        }
    }
    true
}

fn of_git(words: &[ShellWord]) -> Option<PlainCommand<'_>> {
    if !words.iter().all(ShellWord::is_literal) {
        return None;
    }
    let mut words = words.iter().map(|word| word.plain.as_str());
    let mut folder = None;
    let verb = loop {
        match words.next()? {
            "--no-pager" => {}
            "-C" if folder.is_none() => folder = Some(words.next()?),
            verb => break verb,
        }
    };
    let next = words.clone().next();
    let (flags, operands): (Vec<&str>, Vec<&str>) = words.partition(|word| word.starts_with('-'));
    let is_count = |flag: &str| flag[1..].bytes().all(|byte| byte.is_ascii_digit());
    let lists = flags.iter().all(|flag| GIT_LOG_NAMES.contains(flag) || is_count(flag));
    let listed = GIT_COMMANDS.iter().find(|(verbs, _)| verbs.contains(&verb));
    let effect = match (verb, next) {
        ("log", _) if lists => ReadsRepository,
        // It shows the changed lines.
        ("status", _) if flags.iter().any(|flag| flag.contains('v')) => ReadsVersions,
        ("--version", None) => Prints,
        ("stash", Some("list")) if lists => ReadsRepository,
        ("worktree", Some("list")) => ReadsRepository,
        ("tag", Some("-l" | "--list")) => {
            flags.iter().all(|flag| GIT_TAG_LISTS.contains(flag)).then_some(ReadsRepository)?
        }
        _ => listed?.1,
    };
    Some(PlainCommand { effect, operands, folder, has_pattern: true })
}

fn of_list<'a>(name: &str, rest: &'a [ShellWord]) -> Option<PlainCommand<'a>> {
    let row = row_of(name)?;
    let is_known = |word: &ShellWord| match word.expansion {
        Expansion::Nothing => true,
        Expansion::Status => matches!(name, "echo" | "printf"),
        Expansion::Files => HARMLESS.contains(&name) && is_only_operand(row, &word.plain),
        Expansion::Other => false,
    };
    if !rest.iter().all(is_known) {
        return None;
    }
    let mut operands = operands(row, rest)?;
    let fits = match name {
        // Anything else sets the clock.
        "date" => operands.iter().all(|word| word.starts_with('+')),
        // It writes to the second file.
        "uniq" => operands.len() <= 1,
        "tee" => operands.iter().all(|word| *word == "/dev/null"),
        "cd" => operands.len() == 1 && operands != ["-"],
        "sed" => operands.first().is_some_and(|script| edits_lines(script)),
        "printf" => rest.first().is_some_and(prints_only),
        _ => true,
    };
    let edits = name == "sed" && rest.iter().any(|word| word.plain == "-i");
    let effect = if edits { Changes } else { row.4 };
    // The script of sed is not a file.
    let operands = operands.split_off(usize::from(name == "sed" && fits));
    let has_pattern = PATTERN_FIRST.contains(&name);
    // What a pattern or a script is must not depend on the names of files.
    let first = rest.iter().find(|word| !word.plain.starts_with('-'));
    let is_certain = !has_pattern || first.is_none_or(ShellWord::is_literal);
    (fits && is_certain).then_some(PlainCommand { effect, operands, folder: None, has_pattern })
}

fn row_of(name: &str) -> Option<&'static Row> {
    PROGRAMS.iter().find(|(names, ..)| names.contains(&name))
}

/// True if a format of printf is no flag, and sets no variable, as `%n` and `-v` do.
fn prints_only(format: &ShellWord) -> bool {
    let mut conversions = format.plain.split('%').skip(1);
    let is_width = |letter: char| letter.is_ascii_digit() || " #+-.*'hjlLtz".contains(letter);
    !format.plain.starts_with('-')
        && (format.is_literal() || !format.plain.contains('%'))
        && !conversions.any(|rest| rest.trim_start_matches(is_width).starts_with('n'))
}

/// Returns the text before the first wildcard. A quoted one is taken for one, too.
fn before_wildcard(pattern: &str) -> &str {
    &pattern[..pattern.find(['*', '?', '[']).unwrap_or(pattern.len())]
}

/// True if all that a pattern of file names stands for is below a folder that it names, or is the
/// value of one flag, as in `--include=*.c`.
fn is_only_operand(row: &Row, pattern: &str) -> bool {
    let begin = before_wildcard(pattern);
    let flag = begin.split_once('=').map_or(begin, |(flag, _)| flag);
    let is_value = flag.len() < begin.len() && row.3.contains(&flag);
    is_value || !begin.starts_with('-') && !pattern[begin.len()..].contains("..")
}

/// The file that an operand names, or the folder in which a pattern is looked for.
fn place_of(word: &ShellWord) -> &str {
    if word.expansion != Expansion::Files {
        return &word.plain;
    }
    let begin = before_wildcard(&word.plain);
    begin.rfind('/').map_or(".", |end| &begin[..=end])
}

/// True if a command on the list reads only its input, and opens no file.
pub(super) fn is_filter(command: &SimpleCommand) -> bool {
    let Some((first, rest)) = command.words.split_first() else { return false };
    let name = first.raw.as_str();
    let Some((_, _, valued, ..)) = row_of(name).filter(|_| FILTERS.contains(&name)) else {
        return false;
    };
    let is_open = |word: &ShellWord| word.plain != "/dev/null";
    let is_read = recognize(command).is_some_and(|known| matches!(known.effect, Prints | Reads));
    let opens = command.reads.iter().chain(&command.writes).any(is_open);
    if !is_read || opens || !rest.iter().all(ShellWord::is_literal) {
        return false;
    }
    let is_grep = name.ends_with("grep");
    let (mut operands, mut has_pattern) = (0, !is_grep && name != "sed");
    let mut words = rest.iter().map(|word| word.plain.as_str());
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            None => operands += 1,
            // The pattern of grep, or standard input.
            Some("") => operands += usize::from(is_grep && !has_pattern && operands == 0),
            Some("-") => operands += words.by_ref().count(),
            Some(flag) if flag.starts_with('-') => {
                has_pattern |= word.starts_with("--regexp");
                if word.starts_with("--rec") {
                    return false;
                }
            }
            Some(flag) => {
                let at = flag.find(|letter| valued.contains(letter));
                let (alone, value) = flag.split_at(at.unwrap_or(flag.len()));
                has_pattern |= is_grep && value.starts_with('e');
                if is_grep && alone.contains('r') {
                    return false;
                }
                // The value is the next word.
                if value.len() == 1 {
                    words.next();
                }
            }
        }
    }
    // What tr and tee name is no file that they read.
    matches!(name, "tr" | "tee") || operands <= usize::from(!has_pattern)
}

/// True if a script of sed is an address and `p`, `d`, `q` or `s`: other commands of sed write
/// files and run programs.
fn edits_lines(script: &str) -> bool {
    let is_number = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '$');
    let mut command = script.trim_start_matches(is_number);
    while let Some(pattern) = command.strip_prefix('/') {
        let Some((pattern, rest)) = pattern.split_once('/') else { return false };
        if pattern.contains(['\\', '[']) {
            return false;
        }
        command = rest.trim_start_matches(is_number);
    }
    let mut change = command.strip_prefix('s').unwrap_or_default().chars();
    let Some(mark) = change.next().filter(char::is_ascii_punctuation) else {
        return matches!(command, "p" | "d" | "q");
    };
    let is_flag = |flag: char| "gpiI".contains(flag) || flag.is_ascii_digit();
    let parts: Vec<&str> = change.as_str().split(mark).collect();
    mark != '\\'
        && !script.contains('\n')
        && matches!(parts.as_slice(), [_, _, flags] if flags.chars().all(is_flag))
}

/// Returns the words that are not flags. `None` if a flag is not on the list.
fn operands<'a>(row: &Row, words: &'a [ShellWord]) -> Option<Vec<&'a str>> {
    let (_, letters, valued, others, _) = row;
    let mut operands = Vec::new();
    let mut words = words.iter();
    while let Some(next) = words.next() {
        let word = next.plain.as_str();
        let flag = word.strip_prefix('-').filter(|flag| !flag.is_empty());
        let name = word.split_once('=').filter(|_| word.starts_with("--"));
        let name = name.map_or(word, |(name, _)| name);
        match flag {
            None => operands.push(place_of(next)),
            Some(_) if *letters == ANY => {}
            // For programs without one-letter flags, words after it may still be flags.
            Some("-") if !letters.is_empty() => operands.extend(words.by_ref().map(place_of)),
            Some(_) if others.contains(&name) => {}
            Some(flag) => {
                // The rest after a flag with a value is the value.
                let end = flag.find(|letter| valued.contains(letter)).unwrap_or(flag.len());
                let is_known = |letter: char| letters.contains(letter) || letter.is_ascii_digit();
                flag[..end].chars().all(is_known).then_some(())?;
            }
        }
    }
    Some(operands)
}
