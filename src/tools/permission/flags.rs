//! Lists the flags with which well-known commands still only read, or only change the files in
//! their arguments. An unlisted flag may write, run a program, follow links or read unchecked
//! files.

use super::splitter::ShellWord;

/// The flags of a command that are known to be harmless.
struct Flags {
    /// One-letter flags without a value.
    letters: &'static str,
    /// One-letter flags with a value.
    valued: &'static str,
    /// One-letter flags whose value is a file and must be a separate word.
    files: &'static str,
    /// Long flags: `x`, or `x=` with a value, or `x?` with an optional value. Abbreviations are not
    /// accepted: some mean a different flag in another implementation.
    words: &'static [&'static str],
}

/// The parsed arguments of a command, all of whose flags are harmless.
#[derive(Default)]
pub(super) struct FlagLine<'a> {
    pub(super) operands: Vec<&'a ShellWord>,
    /// Words that are values of flags.
    pub(super) values: Vec<&'a ShellWord>,
    letters: Vec<char>,
    words: Vec<&'a str>,
}

/// What a flag expects in the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagValue {
    Nothing,
    Value,
    File,
}

impl<'a> FlagLine<'a> {
    /// Parses a command's arguments. Returns `None` if a flag is unknown.
    pub(super) fn parse_args(name: &str, rest: &'a [ShellWord]) -> Option<Self> {
        let flags = match name {
            "find" => return Self::parse_expression(rest, FIND_TESTS, FIND_COMPARISONS),
            "test" | "[" => return Self::parse_expression(rest, TESTS, &[]),
            _ => flags_of(name)?,
        };
        let mut line = Self::default();
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            if word.plain == "--" {
                // Even if a rule names a file like this word, a flag of that name is not a file.
                line.operands.extend(words.by_ref());
                let is_plain = |word: &&ShellWord| !is_flag(&word.plain);
                return line.operands.iter().all(is_plain).then_some(line);
            }
            if !is_flag(&word.plain) {
                line.operands.push(word);
                continue;
            }
            let next = match word.plain.strip_prefix("--") {
                Some(long) => line.take_word(&flags, long)?,
                None => line.take_letters(&flags, &word.plain[1..])?,
            };
            if next != FlagValue::Nothing {
                line.take_value(words.next()?, next)?;
            }
        }
        Some(line)
    }

    /// Parses the arguments of `find` or `test`, in which each test is one word.
    fn parse_expression(rest: &'a [ShellWord], alone: &[&str], valued: &[&str]) -> Option<Self> {
        let mut line = Self::default();
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            let text = word.plain.as_str();
            if valued.contains(&text) {
                let value = words.next().filter(|value| !value.globs)?;
                let is_mode = text == "-perm";
                (is_mode || is_number(&value.plain) || !is_flag(&value.plain)).then_some(())?;
                line.values.push(value);
            } else if !is_flag(text) || is_number(text) {
                line.operands.push(word);
            } else if !alone.contains(&text) {
                return None;
            }
        }
        Some(line)
    }

    /// Whether a flag was given, in its short or its long form.
    pub(super) fn has(&self, letter: char, word: &str) -> bool {
        self.letters.contains(&letter) || self.words.contains(&word)
    }

    fn take_word(&mut self, flags: &Flags, said: &'a str) -> Option<FlagValue> {
        let (name, value) =
            said.split_once('=').map_or((said, None), |(name, value)| (name, Some(value)));
        self.words.push(name);
        let known = |end: &str| flags.words.iter().any(|word| word.strip_suffix(end) == Some(name));
        match value {
            Some(_) => (known("=") || known("?")).then_some(FlagValue::Nothing),
            None if known("=") => Some(FlagValue::Value),
            None => (known("?") || known("")).then_some(FlagValue::Nothing),
        }
    }

    fn take_letters(&mut self, flags: &Flags, said: &str) -> Option<FlagValue> {
        for (at, letter) in said.char_indices() {
            self.letters.push(letter);
            let is_last = at + letter.len_utf8() == said.len();
            if flags.valued.contains(letter) {
                return Some(if is_last { FlagValue::Value } else { FlagValue::Nothing });
            }
            if flags.files.contains(letter) {
                return is_last.then_some(FlagValue::File);
            }
            flags.letters.contains(letter).then_some(())?;
        }
        Some(FlagValue::Nothing)
    }

    /// Rejects a shell pattern: it would become several words, of which only the first is the
    /// value.
    fn take_value(&mut self, value: &'a ShellWord, next: FlagValue) -> Option<()> {
        let is_number = next == FlagValue::Value && is_number(&value.plain);
        (!value.globs && (is_number || !is_flag(&value.plain))).then(|| self.values.push(value))
    }
}

fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word != "-"
}

/// Whether the word is a negative number, possibly with a unit.
fn is_number(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

#[rustfmt::skip]
const FIND_TESTS: &[&str] = &[
    "-P", "-a", "-and", "-daystart", "-depth", "-empty", "-executable", "-false", "-ls", "-mount",
    "-nogroup", "-noleaf", "-not", "-nouser", "-o", "-or", "-print", "-print0", "-prune", "-quit",
    "-readable", "-true", "-writable", "-xdev",
];

#[rustfmt::skip]
const FIND_COMPARISONS: &[&str] = &[
    "-amin", "-anewer", "-atime", "-cmin", "-cnewer", "-ctime", "-gid", "-group", "-ilname",
    "-iname", "-inum", "-ipath", "-iregex", "-iwholename", "-links", "-lname", "-maxdepth",
    "-mindepth", "-mmin", "-mtime", "-name", "-newer", "-newermt", "-path", "-perm", "-printf",
    "-regex", "-regextype", "-samefile", "-size", "-type", "-uid", "-user", "-wholename",
];

#[rustfmt::skip]
const TESTS: &[&str] = &[
    "-G", "-L", "-N", "-O", "-S", "-a", "-b", "-c", "-d", "-e", "-ef", "-eq", "-f", "-g", "-ge",
    "-gt", "-h", "-k", "-le", "-lt", "-n", "-ne", "-nt", "-o", "-ot", "-p", "-r", "-s", "-t", "-u",
    "-w", "-x", "-z",
];

fn flags_of(name: &str) -> Option<Flags> {
    let looks = file_info_flags(name).or_else(|| line_flags(name)).or_else(|| compare_flags(name));
    let (letters, valued, files, words) = looks.or_else(|| file_change_flags(name))?;
    Some(Flags { letters, valued, files, words })
}

type FlagRow = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// Commands that report on files and folders. None of these follows links below a folder.
#[rustfmt::skip]
fn file_info_flags(name: &str) -> Option<FlagRow> {
    Some(match name {
        "ls" => ("1ABCFGNQRSUXZabcdfghiklmnopqrstuvx", "ITw", "", &[
            "all", "almost-all", "author", "block-size=", "classify?", "color?", "directory",
            "escape", "file-type", "format=", "full-time", "group-directories-first", "hide=",
            "human-readable", "hyperlink?", "ignore-backups", "ignore=", "indicator-style=",
            "inode", "kibibytes", "literal", "no-group", "numeric-uid-gid", "quote-name",
            "quoting-style=", "recursive", "reverse", "si", "size", "sort=", "time-style=", "time=",
            "width=", "zero",
        ]),
        "stat" => ("Lft", "c", "", &[
            "cached=", "dereference", "file-system", "format=", "printf=", "terse",
        ]),
        "du" => ("0PSabchklmsx", "Bdt", "X", &[
            "all", "apparent-size", "block-size=", "bytes", "count-links", "exclude=",
            "human-readable", "inodes", "max-depth=", "null", "one-file-system", "separate-dirs",
            "si", "summarize", "threshold=", "time-style=", "time?", "total",
        ]),
        "df" => ("HPThiklm", "Btx", "", &[
            "all", "block-size=", "exclude-type=", "human-readable", "inodes", "local", "output?",
            "portability", "print-type", "si", "total", "type=",
        ]),
        "realpath" => ("ELPemqsz", "", "", &[
            "canonicalize-existing", "canonicalize-missing", "logical", "no-symlinks", "physical",
            "quiet", "strip", "zero",
        ]),
        "readlink" => ("efmnqsvz", "", "", &[
            "canonicalize", "canonicalize-existing", "canonicalize-missing", "no-newline", "quiet",
            "silent", "verbose", "zero",
        ]),
        // `-c` reads the names of more files from a file.
        "md5sum" | "sha1sum" | "sha256sum" => ("btz", "", "", &["binary", "tag", "text", "zero"]),
        "cksum" => ("z", "al", "", &[
            "algorithm=", "base64", "length=", "raw", "tag", "untagged", "zero",
        ]),
        _ => return None,
    })
}

/// Commands that print lines, or parts of them.
#[rustfmt::skip]
fn line_flags(name: &str) -> Option<FlagRow> {
    Some(match name {
        "cat" => ("AETbenstuv", "", "", &[
            "number", "number-nonblank", "show-all", "show-ends", "show-nonprinting", "show-tabs",
            "squeeze-blank",
        ]),
        "head" => ("0123456789qvz", "cn", "", &[
            "bytes=", "lines=", "quiet", "silent", "verbose", "zero-terminated",
        ]),
        "tail" => ("0123456789Ffqrvz", "cns", "", &[
            "bytes=", "follow?", "lines=", "pid=", "quiet", "retry", "silent", "sleep-interval=",
            "verbose", "zero-terminated",
        ]),
        "wc" => ("Lclmw", "", "", &[
            "bytes", "chars", "lines", "max-line-length", "total=", "words",
        ]),
        "cut" => ("nsz", "bcdf", "", &[
            "bytes=", "characters=", "complement", "delimiter=", "fields=", "only-delimited",
            "output-delimiter=", "zero-terminated",
        ]),
        "nl" => ("p", "bdfhilnsvw", "", &[
            "body-numbering=", "no-renumber", "number-format=", "number-separator=",
            "number-width=", "starting-line-number=",
        ]),
        "tac" => ("br", "s", "", &["before", "regex", "separator="]),
        "rev" => ("", "", "", &[]),
        "column" => ("etx", "NRclos", "", &[
            "fillrows", "output-separator=", "output-width=", "separator=", "table",
            "table-columns=", "table-right=",
        ]),
        "paste" => ("sz", "d", "", &["delimiters=", "serial", "zero-terminated"]),
        "jq" => ("CMRSacejnrs", "", "", &[
            "ascii-output", "color-output", "compact-output", "exit-status", "indent=",
            "join-output", "monochrome-output", "null-input", "raw-input", "raw-output",
            "raw-output0", "seq", "slurp", "sort-keys", "stream", "tab", "unbuffered",
        ]),
        // `-R` follows links that it encounters, `-f` reads patterns from a file.
        "grep" | "egrep" | "fgrep" => ("0123456789EFGHILPTUZabchilnoqrsvwxyz", "ABCem", "f", &[
            "after-context=", "basic-regexp", "before-context=", "binary", "binary-files=",
            "byte-offset", "color?", "colour?", "context=", "count", "exclude-dir=", "exclude=",
            "extended-regexp", "files-with-matches", "files-without-match", "fixed-strings",
            "group-separator=", "ignore-case", "include=", "initial-tab", "invert-match", "label=",
            "line-buffered", "line-number", "line-regexp", "max-count=", "no-filename",
            "no-group-separator", "no-ignore-case", "no-messages", "null", "null-data",
            "only-matching", "perl-regexp", "quiet", "recursive", "regexp=", "silent", "text",
            "with-filename", "word-regexp",
        ]),
        _ => return None,
    })
}

/// Commands that sort and compare lines. `diff -l` runs another program, `sort -o` writes.
#[rustfmt::skip]
fn compare_flags(name: &str) -> Option<FlagRow> {
    Some(match name {
        "diff" => ("0123456789BENZabcdeinpqstuwy", "CFIUWx", "", &[
            "brief", "color?", "context?", "ed", "exclude=", "expand-tabs", "ignore-all-space",
            "ignore-blank-lines", "ignore-case", "ignore-matching-lines=", "ignore-space-change",
            "ignore-tab-expansion", "ignore-trailing-space", "initial-tab", "label=", "left-column",
            "minimal", "new-file", "no-dereference", "normal", "report-identical-files",
            "show-c-function", "show-function-line=", "side-by-side", "speed-large-files",
            "strip-trailing-cr", "suppress-common-lines", "tabsize=", "text", "unified?", "width=",
        ]),
        "cmp" => ("bls", "in", "", &[
            "bytes=", "ignore-initial=", "print-bytes", "quiet", "silent", "verbose",
        ]),
        "comm" => ("123iz", "", "", &[
            "check-order", "nocheck-order", "output-delimiter=", "total", "zero-terminated",
        ]),
        "sort" => ("CMRVbcdfghimnrsuz", "Skt", "", &[
            "batch-size=", "buffer-size=", "check?", "debug", "dictionary-order",
            "field-separator=", "general-numeric-sort", "human-numeric-sort", "ignore-case",
            "ignore-leading-blanks", "ignore-nonprinting", "key=", "merge", "month-sort",
            "numeric-sort", "parallel=", "random-sort", "reverse", "sort=", "stable", "unique",
            "version-sort", "zero-terminated",
        ]),
        "uniq" => ("Dcdiuz", "fsw", "", &[
            "all-repeated?", "check-chars=", "count", "group?", "ignore-case", "repeated",
            "skip-chars=", "skip-fields=", "unique", "zero-terminated",
        ]),
        _ => return None,
    })
}

/// Commands that create, move or remove files. Left out: `cp -L` and `-H` read the targets of
/// links, and `-t` names the destination in the value of a flag.
#[rustfmt::skip]
fn file_change_flags(name: &str) -> Option<FlagRow> {
    Some(match name {
        "mkdir" => ("pv", "m", "", &[]),
        "touch" => ("acfhm", "d", "r", &[]),
        "rm" => ("Rdfirv", "", "", &[]),
        "rmdir" => ("pv", "", "", &[]),
        "mv" => ("Tfinuv", "", "", &[]),
        "cp" => ("PRTadfinpruvx", "", "", &[]),
        _ => return None,
    })
}
