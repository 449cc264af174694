//! Lines of commands by a grammar, with damage: what the rules admit as one line, they admit as each
//! command that bash makes of it, word by word, and as each file that bash opens for writing.
//!
//! `COMMANDS=100000` tries more lines; `SEED=17` takes one.

use std::collections::HashMap;

use outlast::tools::{PermissionMode, ToolSettings};

use super::bash_oracle::{BashOracle, Effects};
use crate::support::rotation::number;
use crate::support::seeds::first_seed;
use crate::tools::bench::Bench;

const FILES: [&str; 3] = ["a", "b", "secret"];

/// Programs that are files in a folder, too.
const PROGRAMS: [&str; 4] = ["alpha", "beta", "gamma", "git"];

#[rustfmt::skip]
const NAMES: [&str; 30] = [
    "beta", "beta", "beta", "beta", "beta", "beta", "beta", "echo", "echo", "ls", "git", "git status", "git push", "git -c", "echo", "printf",
    "cd", "pwd", "true", "test", "[", "ls", "cat", "grep", "sort", "find", "sed", "rm", "alpha",
    "bin/beta",
];

#[rustfmt::skip]
const ARGUMENTS: [&str; 38] = [
    "a", "b", "secret", "sub", "sub/x", "x", "-n", "-v", "-r", "--", "-", "1", "22", "evil",
    "alpha", "gamma", "x=y", "a:b", "$X", "$E", "${X}", "\"$X\"", "*", "?", "[ab]", "{a,b}", "~",
    "-la", "%s", "1,2p", "-name", "]", "status", "'a; gamma'", "\"a & gamma\"", "a#b", "\\;", "é",
];

#[rustfmt::skip]
const WRAPPERS: [&str; 12] = [
    "timeout 5", "nice", "nice -n 1", "nohup", "stdbuf -o0", "command", "builtin", "time", "env",
    "NO_COLOR=1", "X=1", "xargs",
];

#[rustfmt::skip]
const REDIRECTIONS: [&str; 26] = [
    ">/dev/null", "2>&1", "2>/dev/null", ">b", ">>b", "> new", "&>b", "&>>b", ">|b", ">&b", ">&2",
    "<a", "< secret", "2>b", ">secret", "1>&2", ">&-", "12>b",
    ">$Y", ">&$Y",
    "<<'E'", "<<'E'", "<<-\"E\"", "<< \\E", "3<<'F'", "<<E",
];

/// Texts that follow a line with a here-document.
const BODIES: [&str; 12] = [
    "x\nE\n",
    "alpha\nE\n",
    "$(alpha)\nE\n",
    "x\n\tE\n",
    "E x\nE\n",
    "`alpha`\nF\nE\n",
    "x\\\nE\n",
    "E\nF\n",
    "F\nx\nE\n",
    "'\nE\n",
    "x\nE",
    "E)\nE\n",
];

/// Words that are texts.
const TEXTS: [&str; 6] = [
    "\"$(cat <<'E'\nx\nE\n)\"",
    "\"$(cat <<'E'\n$(alpha)\nE\n)\"",
    "\"$(cat <<-'E'\n\t`alpha`\n\tE\n)\"",
    "\"a$(cat <<'E'\n'\n\nE\n)b\"",
    "\"$(cat <<'E'\nE)\nE\n)\"",
    "\"$(cat <<'E'\nx\nE\n; alpha)\"",
];

const OPERATORS: [&str; 10] = [";", "&&", "||", "|", "|&", "&", "\n", " # x\n", "\\\n&&", ";\n"];

/// Words that are inserted anywhere.
#[rustfmt::skip]
const DAMAGE: [&str; 84] = [
    "$(alpha)", "`alpha`", "$(", "`", ")", "\"", "'", "\\", "\\\n", "\n", "#", " #", ";", "&", "|",
    "<", ">", "<<E\n", "<<<", "<(", ">(", ">&", "&>", "<&", "<>", "{", "}", "(", ")", "[", "]", "$",
    "${", "$'", "$\"", "$[", "$((", "))", "*", "?", "~", "!", "=", "+=", "-", "1", "2", " ", "\t",
    "\r", "\u{a0}", "\u{b}", "\u{85}", "\u{2028}", "\u{3000}", "; alpha", "| gamma", "\nalpha\n",
    " if ", " then ", "; fi", " do ", "; done", " time ", " coproc ", " function ", " eval ",
    " exec ", " a[", "${X:-", "@(", "%n",
    "<<'E'", "<<-'E'", "\nE\n", "\n\tE\n", "E)", "$(cat <<'E'\n", "\nE\n)", "CI[a=1 ", "]=1 ",
    "\"a\nE\n\"", "$?", "${PIPESTATUS[0]}",
];

struct Dice(u64);

impl Dice {
    /// Neighbouring seeds have to differ from the first number on.
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }

    /// A text, written in one of the ways that mean the same, or nearly the same.
    fn spelled(&mut self, text: &str) -> String {
        if !self.one_in(4) || text.contains([' ', '$', '"', '\'', '\\']) {
            return text.to_owned();
        }
        let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
        match self.below(7) {
            0 => format!("'{text}'"),
            1 => format!("\"{text}\""),
            2 => format!("\\{text}"),
            3 => format!("{first}''{rest}"),
            4 => format!("{first}\\\n{rest}"),
            5 => format!("{first}\"{rest}\""),
            _ => format!("$'{text}'"),
        }
    }

    fn simple(&mut self) -> String {
        let mut words = Vec::new();
        if self.one_in(6) {
            words.push(self.pick(&WRAPPERS).to_owned());
        }
        let name = self.pick(&NAMES);
        words.push(self.spelled(name));
        for _ in 0..self.below(4) {
            let argument = self.pick(&ARGUMENTS);
            words.push(self.spelled(argument));
        }
        if self.one_in(12) {
            words.push(self.pick(&TEXTS).to_owned());
        }
        if self.one_in(5) {
            let at = self.below(words.len() + 1);
            words.insert(at, self.pick(&REDIRECTIONS).to_owned());
        }
        let blank = if self.one_in(12) { "\t" } else { " " };
        words.join(blank)
    }

    fn line(&mut self) -> String {
        let mut line = self.simple();
        while self.one_in(3) {
            let (operator, next) = (self.pick(&OPERATORS), self.simple());
            let blank = if self.one_in(3) { "" } else { " " };
            line = format!("{line}{blank}{operator}{blank}{next}");
        }
        let documents = line.matches("<<").count() - line.matches("(cat <<").count();
        for at in 0..documents {
            let begin = if at == 0 { "\n" } else { "" };
            line = format!("{line}{begin}{}", self.pick(&BODIES));
        }
        if documents > 0 && self.one_in(2) {
            line = format!("{line}{}", self.simple());
        }
        for _ in 0..[0, 0, 0, 1, 1, 2][self.below(6)] {
            let ends: Vec<usize> =
                line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
            let (one, other) = (ends[self.below(ends.len())], ends[self.below(ends.len())]);
            let piece = line[one.min(other)..one.max(other)].to_owned();
            match self.below(8) {
                0 if piece.len() < 6 => line.replace_range(one.min(other)..one.max(other), ""),
                1 => line.insert_str(one, &piece),
                _ => line.insert_str(one, self.pick(&DAMAGE)),
            }
        }
        line
    }
}

/// Tools with rules, and what they said of a command before.
struct Judge {
    bench: Bench,
    known: HashMap<String, bool>,
}

impl Judge {
    fn with(mode: PermissionMode, allow: &[&str], deny: &[&str]) -> Self {
        let texts = |rules: &[&str]| rules.iter().map(ToString::to_string).collect();
        let bench = Bench::with(|settings: &mut ToolSettings| {
            (settings.permissions.mode, settings.permissions.allow, settings.permissions.deny) =
                (mode, texts(allow), texts(deny));
        });
        for file in FILES {
            bench.file(file, "-\n");
        }
        for program in PROGRAMS {
            bench.file(&format!("bin/{program}"), "");
        }
        std::fs::create_dir(bench.cwd.join("sub")).expect("a new folder");
        Self { bench, known: HashMap::new() }
    }

    fn admits(&self, line: &str) -> bool {
        self.bench.admits(line)
    }

    /// Whether it admits each effect by itself; else the first that it does not.
    fn refuses(&mut self, effects: &Effects) -> Option<String> {
        let commands = effects
            .commands
            .iter()
            .map(|words| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        let files = effects.written.iter().map(|file| format!("echo x > {}", quoted(file)));
        let mut all = commands.chain(files);
        all.find(|text| {
            if let Some(is_admitted) = self.known.get(text) {
                return !is_admitted;
            }
            let is_admitted = self.admits(text);
            self.known.insert(text.clone(), is_admitted);
            !is_admitted
        })
    }
}

/// A word that means this text and nothing else.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./,:%+@=".contains(letter);
    if ["[", "]"].contains(&word) || !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Lines of earlier seeds that were admitted and ran another command.
const FOUND: [&str; 3] = ["12&>>b beta", "12345678901>b beta", "[ ] 1>&2"];

#[test]
fn what_bash_makes_of_an_admitted_line_is_admitted_command_by_command() {
    use PermissionMode::{AcceptEdits, Default};
    let rules = ["Bash(beta *)", "Bash(git status *)", "Bash(git push)"];
    let mut judges = [
        Judge::with(Default, &[], &[]),
        Judge::with(Default, &rules, &["Bash(beta evil *)"]),
        Judge::with(AcceptEdits, &rules, &["Edit(secret)"]),
    ];
    let mut oracle = BashOracle::start(&FILES, &PROGRAMS);
    let count = number("COMMANDS").unwrap_or(1_000);
    let seed = number("SEED");
    let first = seed.unwrap_or_else(|| first_seed(count));
    let count = if seed.is_some() { 1 } else { count };
    let (mut admitted, mut ran) = (0, 0);
    let random = (first..first + count).map(|seed| (seed, Dice::of(seed).line()));
    for (seed, line) in FOUND.map(|line| (0, line.to_owned())).into_iter().chain(random) {
        let admits = judges.each_ref().map(|judge| judge.admits(&line));
        if admits == [false; 3] {
            continue;
        }
        admitted += 1;
        let effects = oracle.run(&line);
        ran += effects.commands.len();
        // A rule that denies a command denies what is written, not what it expands to.
        let expands = line.contains(['$', '*', '?', '[', '{', '~']);
        let is_judged = [admits[0], admits[1] && !expands, admits[2]];
        for (judge, _) in judges.iter_mut().zip(is_judged).filter(|(_, is_judged)| *is_judged) {
            let refused = judge.refuses(&effects);
            assert_eq!(refused, None, "SEED={seed}: {line:?} was admitted: {effects:?}");
        }
    }
    // Lines that are refused prove nothing.
    let has_enough = admitted > count / 10 && ran > 0;
    assert!(has_enough || count < 100, "{admitted} of {count}, {ran} commands");
}

#[test]
fn the_oracle_tells_what_bash_runs_and_writes() {
    let mut oracle = BashOracle::start(&FILES, &PROGRAMS);
    let mut runs = |line: &str| {
        let Effects { mut commands, mut written } = oracle.run(line);
        commands.sort_unstable();
        written.sort_unstable();
        (commands.iter().map(|words| words.join("|")).collect::<Vec<_>>(), written)
    };
    let cases: [(&str, &[&str], &[&str]); 12] = [
        ("beta 'x y' \"$X\"", &["beta|x y|a b; gamma"], &[]),
        ("echo a$(alpha 1); unknown {a,b}", &["alpha|1", "echo|ax", "unknown|a|b"], &[]),
        ("timeout 5 beta x; env -i /bin/true; nice gamma", &["beta|x", "gamma"], &[]),
        ("./bin/beta x | cat", &["./bin/beta|x", "cat"], &[]),
        ("xargs alpha <a", &["alpha|-"], &[]),
        ("eval 'alpha x'; exec gamma", &["alpha|x", "gamma"], &[]),
        ("echo >new; beta >> a; >secret", &["beta", "echo"], &["a", "new", "secret"]),
        ("[ x ] && test y || alpha; false || true &", &["[|x|]", "alpha", "false", "test|y"], &[]),
        ("if true; then alpha; fi", &["alpha", "true"], &[]),
        ("alpha '", &[], &[]),
        ("exit 3", &[], &[]),
        ("cd sub; ls", &["cd|sub", "ls"], &[]),
    ];
    for (line, commands, written) in cases {
        let wanted = (
            commands.iter().map(ToString::to_string).collect(),
            written.iter().map(ToString::to_string).collect(),
        );
        assert_eq!(runs(line), wanted, "{line}");
    }
}
