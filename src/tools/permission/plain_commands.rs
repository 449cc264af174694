//! The commands that need no rule: a short list of programs and flags.

use super::super::shell_lexer::{ShellWord, SimpleCommand};

/// A command on the list, all of whose flags are on it, too.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlainCommand<'a> {
    pub(super) effect: PlainEffect,
    /// The words that may name files, and values of flags.
    pub(super) operands: Vec<&'a str>,
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

/// Programs whose first operand may be a pattern or a script.
const PATTERN_FIRST: &[&str] = &["egrep", "fgrep", "grep", "jq", "rg"];

/// Read-only commands of git, and whether they show contents of files.
#[rustfmt::skip]
const GIT_COMMANDS: &[(&[&str], PlainEffect)] = &[
    (&["branch", "describe", "ls-files", "ls-tree", "merge-base", "name-rev", "remote", "rev-list",
        "rev-parse", "shortlog", "show-ref", "status"], ReadsRepository),
    (&["blame", "cat-file", "diff", "grep", "log", "reflog", "show"], ReadsVersions),
];

/// Flags of `git log` with which it shows no contents of files.
#[rustfmt::skip]
const GIT_LOG_NAMES: &[&str] = &[
    "--all", "--decorate", "--graph", "--name-only", "--name-status", "--no-merges", "--oneline",
    "--shortstat", "--stat", "-n",
];

/// Recognizes a command that consists of literal words of the list.
pub(super) fn recognize(command: &SimpleCommand) -> Option<PlainCommand<'_>> {
    let (first, rest) = command.words.split_first()?;
    if command.words.iter().any(|word| !word.is_literal) {
        return None;
    }
    if first.raw == "git" {
        let mut words = rest.iter().map(|word| word.plain.as_str());
        let verb = words.by_ref().find(|word| *word != "--no-pager")?;
        let (flags, operands): (Vec<&str>, Vec<&str>) =
            words.partition(|word| word.starts_with('-'));
        let (_, effect) = GIT_COMMANDS.iter().find(|(verbs, _)| verbs.contains(&verb))?;
        let is_count = |flag: &str| flag[1..].bytes().all(|byte| byte.is_ascii_digit());
        let lists = flags.iter().all(|flag| GIT_LOG_NAMES.contains(flag) || is_count(flag));
        let effect = match verb {
            "log" if lists => ReadsRepository,
            // It shows the changed lines.
            "status" if flags.iter().any(|flag| flag.contains('v')) => ReadsVersions,
            _ => *effect,
        };
        return Some(PlainCommand { effect, operands, has_pattern: true });
    }
    let row = PROGRAMS.iter().find(|(names, ..)| names.contains(&first.raw.as_str()))?;
    let mut operands = operands(row, rest)?;
    let fits = match first.raw.as_str() {
        // Anything else sets the clock.
        "date" => operands.iter().all(|word| word.starts_with('+')),
        // It writes to the second file.
        "uniq" => operands.len() <= 1,
        "cd" => operands.len() == 1 && operands != ["-"],
        "sed" => operands.first().is_some_and(|script| edits_lines(script)),
        // `%n` sets a variable, as `-v` does.
        "printf" => rest.first().is_some_and(|format| {
            let mut conversions = format.plain.split('%').skip(1);
            let is_width =
                |letter: char| letter.is_ascii_digit() || " #+-.*'hjlLtz".contains(letter);
            !format.plain.starts_with('-')
                && !conversions.any(|rest| rest.trim_start_matches(is_width).starts_with('n'))
        }),
        _ => true,
    };
    let edits = first.raw == "sed" && rest.iter().any(|word| word.plain == "-i");
    let effect = if edits { Changes } else { row.4 };
    // The script of sed is not a file.
    let operands = operands.split_off(usize::from(first.raw == "sed" && fits));
    let has_pattern = PATTERN_FIRST.contains(&first.raw.as_str());
    fits.then_some(PlainCommand { effect, operands, has_pattern })
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
    let mut words = words.iter().map(|word| word.plain.as_str());
    while let Some(word) = words.next() {
        let flag = word.strip_prefix('-').filter(|flag| !flag.is_empty());
        let name = word.split_once('=').filter(|_| word.starts_with("--"));
        let name = name.map_or(word, |(name, _)| name);
        match flag {
            None => operands.push(word),
            Some(_) if *letters == ANY => {}
            // For programs without one-letter flags, words after it may still be flags.
            Some("-") if !letters.is_empty() => operands.extend(words.by_ref()),
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
