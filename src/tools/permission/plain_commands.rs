//! The commands that need no rule: a short list of programs and flags.
//!
//! The kernel confines these commands, too (`tools/sandbox/plain.rs`): it holds what they read and
//! write. The list keeps out what the kernel does not hold everywhere: programs that flags start,
//! signals, clocks and names of hosts. A command that could only fail in the sandbox is refused
//! here, and the refusal names the rule that would allow it.

use super::super::shell_lexer::{Expansion, ShellWord, SimpleCommand};
use super::super::shell_wrappers::timed_command;
use super::jq;

/// A command on the list, all of whose flags are on it, too.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlainCommand<'a> {
    pub(super) effect: PlainEffect,
    /// The words that may name files, and values of flags. For a pattern of file names, the folder
    /// in which it is looked for.
    pub(super) operands: Vec<&'a str>,
    /// The folder in which it works, if it names one.
    pub(super) folder: Option<&'a str>,
    /// True if the first operand may be a pattern or a script instead.
    pub(super) has_pattern: bool,
}

impl PlainCommand<'_> {
    /// A command without operands that are files.
    fn printing() -> Self {
        Self { effect: Prints, operands: Vec::new(), folder: None, has_pattern: false }
    }
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

impl PlainEffect {
    /// True if the command changes nothing, not even the working directory.
    pub(super) fn only_reads(self) -> bool {
        self.runs_git() || matches!(self, Prints | Reads)
    }

    pub(super) fn runs_git(self) -> bool {
        matches!(self, ReadsRepository | ReadsVersions)
    }
}

/// A program of the list. Flags that write, run a program, follow links, or take the names of
/// further files from a file are left out.
struct Row {
    names: &'static [&'static str],
    /// One-letter flags. Digits are flags of every program.
    letters: &'static str,
    /// One-letter flags with a value.
    valued: &'static str,
    others: &'static [&'static str],
    effect: PlainEffect,
}

const fn row(
    names: &'static [&'static str],
    letters: &'static str,
    valued: &'static str,
    others: &'static [&'static str],
    effect: PlainEffect,
) -> Row {
    Row { names, letters, valued, others, effect }
}

/// The flags of a program that takes every word as text.
const ANY: &str = "*";

#[rustfmt::skip]
const PROGRAMS: &[Row] = &[
    row(&["echo", "printf", "true", "false", ":"], ANY, "", &[], Prints),
    row(&["basename", "dirname", "type", "which", "whoami", "nproc", "seq", "sleep"], "as", "", &[
        "--all"], Prints),
    row(&["tee"], "ai", "", &[], Prints),
    row(&["pwd"], "LP", "", &[], Prints),
    row(&["id", "uname"], "Ggimnoprsuva", "", &[], Prints),
    row(&["date"], "uR", "Id", &[
        "--date", "--iso-8601", "--rfc-3339", "--rfc-email", "--universal", "--utc"], Prints),
    row(&["hostname"], "fs", "", &[], Prints),
    row(&["tr"], "cdst", "", &["--complement", "--delete", "--squeeze-repeats"], Prints),
    row(&["cd"], "", "", &[], ChangesFolder),
    row(&["ls"], "ABCFGNQRSUXZabcdfghiklmnopqrstuvx", "ITw", &[
        "--all", "--color", "--directory", "--human-readable", "--recursive", "--sort"], Reads),
    row(&["cat"], "AETbenstuv", "", &["--number", "--show-all"], Reads),
    row(&["head", "tail"], "qvz", "cns", &["--bytes", "--lines", "--quiet"], Reads),
    row(&["wc"], "Lclmw", "", &["--bytes", "--chars", "--lines", "--words"], Reads),
    row(&["cut"], "nsz", "bcdf", &["--characters", "--delimiter", "--fields"], Reads),
    row(&["nl", "tac", "rev", "fold", "expand"], "brpst", "adfhilnvw", &[], Reads),
    row(&["column"], "etx", "NRclos", &["--separator", "--table"], Reads),
    row(&["paste"], "sz", "d", &[], Reads),
    row(&["sort"], "CMRVbcdfghimnrsuz", "Skt", &[
        "--field-separator", "--key", "--numeric-sort", "--reverse", "--unique"], Reads),
    row(&["uniq"], "Dcdiuz", "fsw", &["--count", "--repeated", "--unique"], Reads),
    row(&["stat"], "Lft", "c", &["--dereference", "--format", "--printf"], Reads),
    row(&["file"], "bikL", "", &["--brief", "--mime-type"], Reads),
    row(&["du"], "0PSabchklmsx", "Bdt", &[
        "--all", "--apparent-size", "--exclude", "--human-readable", "--max-depth", "--summarize",
        "--total"], Reads),
    row(&["realpath", "readlink"], "ELPefmnqsvz", "", &["--canonicalize"], Reads),
    row(&["base32", "base64"], "di", "w", &["--decode", "--ignore-garbage", "--wrap"], Reads),
    row(&["od"], "abcdfiloxv", "AjNtw", &["--format", "--address-radix", "--read-bytes"], Reads),
    row(&["strings"], "afow", "enst", &["--all", "--bytes", "--radix"], Reads),
    // Its flags cannot be joined: `-ps` takes no value.
    row(&["xxd"], "", "", &["-a", "-b", "-c", "-e", "-g", "-i", "-l", "-p", "-s", "-u"], Reads),
    row(&["md5sum", "sha1sum", "sha256sum", "cksum"], "btz", "", &["--binary", "--tag"], Reads),
    row(&["cmp", "comm"], "bilsz", "n", &["--silent", "--quiet"], Reads),
    row(&["diff"], "BENZabcdeinpqstuwy", "CIUWx", &[
        "--brief", "--color", "--ignore-all-space", "--side-by-side", "--unified"], Reads),
    row(&["grep", "egrep", "fgrep"], "EFGHILPTUZabchilnoqrsvwxyz", "ABCem", &[
        "--after-context", "--before-context", "--color", "--context", "--count", "--exclude",
        "--exclude-dir", "--files-with-matches", "--fixed-strings", "--ignore-case", "--include",
        "--invert-match", "--line-number", "--max-count", "--only-matching", "--perl-regexp",
        "--quiet", "--recursive", "--regexp", "--word-regexp", "--basic-regexp", "--byte-offset",
        "--extended-regexp", "--files-without-match", "--initial-tab", "--line-buffered",
        "--line-regexp", "--no-filename", "--no-ignore-case", "--no-messages", "--null",
        "--null-data", "--silent", "--text", "--with-filename"], Reads),
    row(&["rg"], "FHINSchilnopsvwx", "ABCTegmt", &[
        "--color", "--count", "--files", "--files-with-matches", "--glob", "--hidden",
        "--ignore-case", "--line-number", "--type"], Reads),
    row(&["jq"], "CMRSacejnrs", "", &[
        "--arg", "--argjson", "--ascii-output", "--color-output", "--compact-output",
        "--exit-status", "--join-output", "--monochrome-output", "--null-input", "--raw-input",
        "--raw-output", "--slurp", "--sort-keys", "--tab"], Reads),
    row(&["tree"], "adfhpsDFQC", "ILP", &["--dirsfirst"], Reads),
    row(&["find"], "", "", &[
        "-a", "-and", "-cmin", "-ctime", "-daystart", "-depth", "-empty", "-executable", "-false",
        "-gid", "-group", "-iname", "-ipath", "-iregex", "-links", "-ls", "-maxdepth", "-mindepth",
        "-mmin", "-mount", "-mtime", "-name", "-newer", "-newermt", "-not", "-o", "-or", "-path",
        "-perm", "-print", "-print0", "-printf", "-prune", "-quit", "-readable", "-regex",
        "-regextype", "-size", "-true", "-type", "-uid", "-user", "-wholename", "-writable",
        "-xdev"], Reads),
    row(&["test", "["], "", "", &[
        "-a", "-b", "-c", "-d", "-e", "-ef", "-eq", "-f", "-ge", "-gt", "-h", "-le", "-L", "-lt",
        "-n", "-ne", "-nt", "-o", "-ot", "-p", "-r", "-s", "-w", "-x", "-z"], Reads),
    row(&["sed"], "", "", &["-e", "-E", "-En", "-Ene", "-i", "-n", "-ne", "-nE", "-r"], Reads),
    row(&["mkdir"], "pv", "m", &["--parents"], Changes),
    row(&["touch"], "acm", "", &[], Changes),
    row(&["rm", "rmdir"], "dfiprv", "", &["--force", "--recursive"], Changes),
    row(&["mv"], "fnv", "", &["--force"], Transfers),
    row(&["cp"], "fnpv", "", &["--force"], Transfers),
];

/// Options of the shell that make it stricter, or print what it runs.
const OPTIONS: &[&str] = &["errexit", "nounset", "pipefail", "xtrace"];

/// Flags of sed before a script.
const SED_SCRIPTS: &[&str] = &["e", "ne", "Ene"];

/// Programs whose first operand may be a pattern or a script.
const PATTERN_FIRST: &[&str] = &["egrep", "fgrep", "grep", "jq", "rg"];

/// Programs that read only their input if no operand names a file.
const FILTERS: &[&str] = &[
    "base32", "base64", "cat", "column", "cut", "egrep", "fgrep", "fold", "grep", "head", "jq",
    "nl", "paste", "rev", "sed", "sort", "tac", "tail", "tee", "tr", "uniq", "wc",
];

/// Programs that write nothing and run nothing, whatever their flags: among the names that a
/// pattern matches, one may look like a flag.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "cat", "cksum", "cmp", "du", "egrep", "fgrep", "grep", "head", "jq", "ls", "md5sum", "sha1sum",
    "sha256sum", "stat", "tail", "wc",
];

/// Read-only commands of git, and whether they show contents of files.
#[rustfmt::skip]
const GIT_COMMANDS: &[(&[&str], PlainEffect)] = &[
    (&["branch", "check-ignore", "describe", "ls-files", "ls-tree", "merge-base", "name-rev", "remote", "rev-list",
        "rev-parse", "shortlog", "show-ref", "status"], ReadsRepository),
    (&["blame", "cat-file", "diff", "for-each-ref", "grep", "log", "reflog", "show"], ReadsVersions),
];

/// Flags of `git log` with which it shows no contents of files.
#[rustfmt::skip]
const GIT_LOG_NAMES: &[&str] = &[
    "--all", "--decorate", "--graph", "--name-only", "--name-status", "--no-merges", "--oneline",
    "--shortstat", "--stat", "-n",
];

/// Flags with which `git tag` lists.
const GIT_TAG_LISTS: &[&str] = &["-l", "--list", "-n", "--contains", "--merged", "--points-at"];

/// Flags with which `git tag` lists if no word follows.
const GIT_TAG_ORDERS: &[&str] = &["--sort=", "--format=", "--column"];

/// Flags with which `git config` prints settings, and what it may print with them.
const GIT_CONFIG_READS: &[&str] = &["--get", "--get-all", "--get-regexp", "--list", "-l"];
#[rustfmt::skip]
const GIT_CONFIG_FLAGS: &[&str] = &[
    "--local", "--name-only", "--null", "--show-origin", "--show-scope", "--type=bool",
    "--type=int", "--type=path", "-z",
];

/// Beginnings of names that are set in repositories.
const GIT_CONFIG_OWN: &[&str] = &["branch.", "remote.", "submodule."];

/// Recognizes a command that consists of words of the list: literal ones, and patterns of file
/// names for programs that only read.
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
    (known.effect.only_reads() || !is_timed).then_some(known)
}

/// `command -v NAME` prints the program that a name stands for.
fn of_command(words: &[ShellWord]) -> Option<PlainCommand<'_>> {
    let names_program = matches!(words.first()?.raw.as_str(), "-v" | "-V");
    (names_program && words.iter().all(ShellWord::is_literal)).then(PlainCommand::printing)
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
    fits.then(PlainCommand::printing)
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
        // With `-v`, it shows the changed lines.
        ("status", _) if flags.iter().any(|flag| flag.contains('v')) => ReadsVersions,
        ("--version", None) => Prints,
        ("stash", Some("list")) if lists => ReadsRepository,
        ("worktree", Some("list")) => ReadsRepository,
        ("tag", _) if operands.is_empty() && flags.iter().all(|flag| lists_tags(flag)) => {
            ReadsRepository
        }
        ("config", Some(_)) if reads_settings(&flags, &operands) => ReadsVersions,
        ("tag", Some("-l" | "--list")) => {
            flags.iter().all(|flag| GIT_TAG_LISTS.contains(flag)).then_some(ReadsRepository)?
        }
        _ => listed?.1,
    };
    Some(PlainCommand { effect, operands, folder, has_pattern: true })
}

fn lists_tags(flag: &str) -> bool {
    GIT_TAG_LISTS.contains(&flag) || GIT_TAG_ORDERS.iter().any(|begin| flag.starts_with(begin))
}

/// True if `git config` prints settings of the repository: those of the user are not read, so only
/// with `--local`, or for names that are set there. A name alone has a dot, other words are
/// subcommands.
fn reads_settings(flags: &[&str], operands: &[&str]) -> bool {
    let (reads, others): (Vec<_>, Vec<_>) =
        flags.iter().partition(|flag| GIT_CONFIG_READS.contains(flag));
    let is_name = matches!(operands, [name] if name.contains('.'));
    let is_own = |name: &&str| GIT_CONFIG_OWN.iter().any(|begin| name.starts_with(begin));
    others.iter().all(|flag| GIT_CONFIG_FLAGS.contains(flag))
        && (!reads.is_empty() || is_name)
        && (flags.contains(&"--local") || operands.first().is_some_and(is_own))
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
    let ends_in = |flag: &str, valued: &str| {
        let at = flag.find(|letter| row.valued.contains(letter));
        at.is_some_and(|at| flag.len() == at + 1 && valued.contains(&flag[at..]))
    };
    let fits = match name {
        // Anything else sets the clock. The value of `-I` is in the same word.
        "date" => files(rest, |flag| ends_in(flag, "d")).iter().all(|word| word.starts_with('+')),
        // It writes to the second file.
        "uniq" => files(rest, |flag| ends_in(flag, "fsw")).len() <= 1,
        "xxd" => files(rest, |flag| ["c", "g", "l", "s"].contains(&flag)).len() <= 1,
        // It sets the name.
        "hostname" => operands.is_empty(),
        // Others are files with further flags.
        "strings" => !operands.iter().any(|word| word.starts_with('@')),
        "tee" => operands.iter().all(|word| *word == "/dev/null"),
        "cd" => operands.len() == 1 && operands != ["-"],
        "sed" => {
            let (scripts, files) = scripts_and_files(rest);
            operands = files;
            !scripts.is_empty() && scripts.into_iter().all(edits_lines)
        }
        "printf" => rest.first().is_some_and(prints_only),
        _ => true,
    };
    let edits = name == "sed" && rest.iter().any(|word| word.plain == "-i");
    let effect = if edits { Changes } else { row.effect };
    let has_pattern = PATTERN_FIRST.contains(&name);
    // The word that is the pattern or script must not depend on the names of files.
    let first = rest.iter().find(|word| !word.plain.starts_with('-'));
    // With these flags of jq, the first words are not the script.
    let is_named = |word: &ShellWord| ["--arg", "--argjson"].contains(&word.plain.as_str());
    let is_certain = if rest.iter().any(is_named) {
        rest.iter().all(ShellWord::is_literal)
    } else {
        !has_pattern || first.is_none_or(ShellWord::is_literal)
    };
    (fits && is_certain).then_some(PlainCommand { effect, operands, folder: None, has_pattern })
}

/// The words that are neither flags nor values of flags. `takes_next` tells whether the value of a
/// flag, which is given without its first dash, is the next word.
fn files(words: &[ShellWord], takes_next: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut files = Vec::new();
    let mut words = words.iter().map(|word| word.plain.as_str());
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            None | Some("") => files.push(word),
            Some("-") => files.extend(words.by_ref()),
            Some(flag) if takes_next(flag) => drop(words.next()),
            Some(_) => {}
        }
    }
    files
}

/// The scripts of sed, and its files: without `-e`, the first word is the script.
fn scripts_and_files(words: &[ShellWord]) -> (Vec<&str>, Vec<&str>) {
    let is_before = |flag: &str| SED_SCRIPTS.contains(&flag);
    let flags =
        words.windows(2).filter(|pair| pair[0].plain.strip_prefix('-').is_some_and(is_before));
    let mut scripts: Vec<&str> = flags.map(|pair| pair[1].plain.as_str()).collect();
    let mut files = files(words, is_before);
    if scripts.is_empty() && !files.is_empty() {
        scripts.push(files.remove(0));
    }
    (scripts, files)
}

fn row_of(name: &str) -> Option<&'static Row> {
    PROGRAMS.iter().find(|row| row.names.contains(&name))
}

/// True if a format of printf only prints: `%n` and the flag `-v` set variables.
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
    let is_value = flag.len() < begin.len() && row.others.contains(&flag);
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
    let Some(Row { valued, .. }) = row_of(name).filter(|_| FILTERS.contains(&name)) else {
        return false;
    };
    let is_open = |word: &ShellWord| word.plain != "/dev/null";
    let is_read = recognize(command).is_some_and(|known| known.effect.only_reads());
    let opens = command.reads.iter().chain(&command.writes).any(is_open);
    if !is_read || opens || !rest.iter().all(ShellWord::is_literal) {
        return false;
    }
    if name == "jq" {
        return jq::reads_input_only(rest);
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
    // The operands of tr and tee are not files that they read.
    matches!(name, "tr" | "tee") || operands <= usize::from(!has_pattern)
}

/// True if a script of sed is an address and `p`, `d`, `q`, `=` or `s`, or several of these with
/// semicolons: other commands of sed write files and run programs.
fn edits_lines(script: &str) -> bool {
    let mut rest = script;
    loop {
        match after_command(rest).map(str::trim_start) {
            None => return false,
            Some("") => break,
            Some(next) => match next.strip_prefix(';') {
                // Versions of sed disagree on where a bracket ends.
                Some(next) if !script.contains(['[', '\n']) => rest = next.trim_start(),
                Some(_) | None => return false,
            },
        }
    }
    true
}

/// Returns the text after a command of sed. `None` if it may have another effect than to print,
/// omit or replace text.
fn after_command(script: &str) -> Option<&str> {
    let is_number = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '$');
    let mut command = script.trim_start_matches(is_number);
    while let Some(pattern) = command.strip_prefix('/') {
        let (pattern, rest) = pattern.split_once('/')?;
        if pattern.contains(['\\', '[']) {
            return None;
        }
        command = rest.trim_start_matches(is_number);
    }
    let Some(change) = command.strip_prefix('s') else {
        return command.strip_prefix(['p', 'd', 'q', '=']);
    };
    let delimiter = change.chars().next().filter(char::is_ascii_punctuation)?;
    let (pattern, rest) = change[1..].split_once(delimiter)?;
    let (replacement, rest) = rest.split_once(delimiter)?;
    // A backslash before the delimiter makes it part of the text.
    let escapes = |part: &str| part.len() - part.trim_end_matches('\\').len();
    let is_whole = [pattern, replacement].iter().all(|part| escapes(part) % 2 == 0);
    let is_flag = |flag: char| "gpiI".contains(flag) || flag.is_ascii_digit();
    let is_plain = delimiter != '\\' && !pattern.contains('\n') && !replacement.contains('\n');
    (is_whole && is_plain).then(|| rest.trim_start_matches(is_flag))
}

/// Returns the words that are not flags. `None` if a flag is not on the list.
fn operands<'a>(row: &Row, words: &'a [ShellWord]) -> Option<Vec<&'a str>> {
    let Row { letters, valued, others, .. } = row;
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
