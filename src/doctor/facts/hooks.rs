//! Finds hooks whose programs do not exist or cannot be run.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::super::ConfiguredHook;
use crate::hooks::{HookCommand, HookHandler};
use crate::process::{find_program, is_interpreter, program_name};
use crate::secrets::Variables;

/// Shell builtins and keywords, which need no program.
const BUILT_IN: [&str; 41] = [
    "!", ".", ":", "alias", "builtin", "case", "cd", "coproc", "declare", "echo", "eval", "exit",
    "export", "false", "for", "function", "if", "let", "local", "popd", "printf", "pushd", "read",
    "readonly", "return", "select", "set", "shift", "shopt", "source", "test", "trap", "true",
    "type", "typeset", "ulimit", "umask", "unset", "until", "wait", "while",
];

/// Commands whose argument is another command.
const WRAPPERS: [&str; 5] = ["command", "env", "exec", "nohup", "time"];

/// Interpreters that also run packages and tasks.
const PACKAGE_INTERPRETERS: [&str; 2] = ["bun", "deno"];

/// Flags of interpreters without a value.
const FLAGS: [&str; 8] = ["-u", "-B", "-E", "-I", "-S", "-s", "-O", "-x"];

/// Extensions of scripts, for names without a folder.
const EXTENSIONS: [&str; 8] = ["cjs", "js", "mjs", "pl", "py", "rb", "sh", "ts"];

/// Maximum number of bytes that are read for the `#!` line of a script.
const SHEBANG_MAX: u64 = 256;

/// The reason why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookObstacle {
    Missing,
    /// It is not executable, or is a folder.
    NotExecutable,
    /// The interpreter of its `#!` line does not exist.
    NoInterpreter(String),
    /// Its lines end in CR LF, so that its `#!` line is not valid.
    CarriageReturn,
}

/// A hook that cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenHook {
    pub event: &'static str,
    pub program: String,
    pub obstacle: HookObstacle,
    pub source: String,
    /// True if its failure denies the calls that it guards (`failClosed`).
    pub guard: bool,
}

/// Finds hooks whose programs do not exist or cannot be run. Hooks whose program depends on the
/// shell are left out.
pub fn find_broken_hooks(
    hooks: &[ConfiguredHook],
    cwd: &Path,
    home: Option<&Path>,
    variables: &Variables,
) -> Vec<BrokenHook> {
    let broken = |ConfiguredHook { handler, project }: &ConfiguredHook| {
        let project = project.as_deref().unwrap_or(cwd);
        let context = HookContext { cwd, project, home, variables };
        let files = context.files(&handler.command);
        let (program, obstacle) = files.into_iter().find_map(|file| context.obstacle(file))?;
        let HookHandler { event, ref source, fail_closed: guard, .. } = *handler;
        let (event, source) = (event.name(), source.clone());
        Some(BrokenHook { event, program, obstacle, source, guard })
    };
    hooks.iter().filter_map(broken).collect()
}

/// A file that a hook needs.
#[derive(Debug, PartialEq, Eq)]
enum NeededFile {
    /// A program.
    ToRun(String),
    /// A script for a shell or another interpreter.
    ToRead(String),
}

/// The context in which hooks run.
struct HookContext<'a> {
    cwd: &'a Path,
    project: &'a Path,
    home: Option<&'a Path>,
    variables: &'a Variables,
}

impl HookContext<'_> {
    /// Returns the program of a hook and its script argument, as far as they can be determined
    /// without a shell.
    fn files(&self, command: &HookCommand) -> Vec<NeededFile> {
        let (words, is_shell) = match command {
            HookCommand::Program { path, arguments } => {
                let project = self.project.display().to_string();
                let words = std::iter::once(path.display().to_string());
                let words = words.chain(arguments.iter().cloned());
                (words.map(|one| one.replace("${CLAUDE_PROJECT_DIR}", &project)).collect(), false)
            }
            HookCommand::Script(script) | HookCommand::Bash(script) => {
                (first_command(script), true)
            }
            HookCommand::Callback { .. } => return Vec::new(),
        };
        // `env` accepts assignments before its program.
        let is_wrapper = |word: &&String| WRAPPERS.contains(&word.as_str()) || is_assignment(word);
        let wrappers = words.iter().take_while(is_wrapper).count();
        // A new PATH may lead to another program.
        if words[..wrappers].iter().any(|word| word.starts_with("PATH=")) {
            return Vec::new();
        }
        let expand =
            |word: &String| if is_shell { self.expanded(word) } else { Some(word.clone()) };
        let mut words = words[wrappers..].iter().map(expand).peekable();
        let Some(Some(program)) = words.next() else { return Vec::new() };
        if BUILT_IN.contains(&program.as_str()) || program.starts_with('-') || program.is_empty() {
            return Vec::new();
        }
        let name = program_name(&program);
        let runs_another = is_interpreter(&name) || PACKAGE_INTERPRETERS.contains(&name.as_str());
        while words.next_if(|word| word.as_deref().is_some_and(|it| FLAGS.contains(&it))).is_some()
        {
        }
        let script = words.next().flatten().filter(|word| runs_another && is_script(word));
        [NeededFile::ToRun(program)].into_iter().chain(script.map(NeededFile::ToRead)).collect()
    }

    /// Expands the variables and the home folder in a word. `None`: it depends on the shell.
    fn expanded(&self, word: &str) -> Option<String> {
        let is_pattern = |text: &str| text.contains(['*', '?', '[', '{']);
        let mut pieces = word.split('$');
        let first = pieces.next().filter(|first| !is_pattern(first))?;
        let mut text = match first.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => self.value("HOME")? + rest,
            Some(_) => return None,
            None => first.to_owned(),
        };
        for piece in pieces {
            let (name, rest) = match piece.strip_prefix('{') {
                Some(braced) => braced.split_once('}')?,
                None => piece.split_at(piece.find(ends_name).unwrap_or(piece.len())),
            };
            if is_pattern(rest) {
                return None;
            }
            text.push_str(&self.value(name)?);
            text.push_str(rest);
        }
        Some(text)
    }

    fn value(&self, name: &str) -> Option<String> {
        match name {
            "CLAUDE_PROJECT_DIR" => Some(self.project.display().to_string()),
            "PWD" => Some(self.cwd.display().to_string()),
            "HOME" => self.home.map(|home| home.display().to_string()),
            _ => {
                let value = self.variables.get(OsStr::new(name))?.to_str()?;
                // A shell splits it into words, unless it is in quotes.
                (!value.contains(char::is_whitespace)).then(|| value.to_owned())
            }
        }
    }

    fn obstacle(&self, file: NeededFile) -> Option<(String, HookObstacle)> {
        let obstacle = match &file {
            NeededFile::ToRun(name) => self.program_obstacle(name),
            NeededFile::ToRead(name) => self.script_obstacle(name),
        }?;
        let (NeededFile::ToRun(name) | NeededFile::ToRead(name)) = file;
        Some((name, obstacle))
    }

    fn script_obstacle(&self, name: &str) -> Option<HookObstacle> {
        let path = self.cwd.join(name);
        if !path.is_file() {
            return Some(HookObstacle::Missing);
        }
        // Other interpreters accept CR LF.
        let is_shell = path.extension().is_some_and(|extension| extension == "sh");
        let line = first_line(&path).filter(|line| is_shell && line.ends_with('\r'));
        line.map(|_| HookObstacle::CarriageReturn)
    }

    fn program_obstacle(&self, name: &str) -> Option<HookObstacle> {
        let path = if name.contains('/') { Some(self.cwd.join(name)) } else { self.find(name) };
        let Some(path) = path else { return Some(HookObstacle::Missing) };
        let Ok(facts) = path.metadata() else { return Some(HookObstacle::Missing) };
        if !facts.is_file() || facts.permissions().mode() & 0o111 == 0 {
            return Some(HookObstacle::NotExecutable);
        }
        let line = first_line(&path)?;
        let line = line.strip_prefix("#!")?;
        if line.ends_with('\r') {
            return Some(HookObstacle::CarriageReturn);
        }
        let mut words = line.split_whitespace();
        let interpreter = words.next()?;
        // `env` searches the interpreter by its name.
        let name = words.next().filter(|word| {
            interpreter.ends_with("/env") && !word.starts_with('-') && !word.contains('=')
        });
        let missing = if Path::new(interpreter).exists() {
            name.filter(|name| self.find(name).is_none())
        } else {
            Some(interpreter)
        };
        missing.map(|name| HookObstacle::NoInterpreter(name.to_owned()))
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.variables.get(OsStr::new("PATH")).map(OsString::as_os_str);
        find_program(&[name], path.unwrap_or_default(), Path::new("/nowhere"))
    }
}

/// Returns the words of the first command of a script, unexpanded. Empty if only a shell can
/// determine them.
fn first_command(script: &str) -> Vec<String> {
    let script = script.replace("\\\n", "");
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let line = script.lines().map(str::trim).find(is_code).unwrap_or_default();
    // If this character is in quotes, they are not closed before it, which `shlex` rejects.
    let end = line.find([';', '&', '|', '<', '>']).unwrap_or(line.len());
    let (command, rest) = line.split_at(end);
    // A separate number before a redirection is the descriptor.
    let before = command.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let is_word = before.is_empty() || before.ends_with(char::is_whitespace);
    let command = if is_word && rest.starts_with(['<', '>']) { before } else { command };
    if command.contains(['(', '`']) {
        return Vec::new();
    }
    shlex::split(command).unwrap_or_default()
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && !name.contains(ends_name)
}

/// Returns true if a letter cannot be part of the name of a variable.
fn ends_name(letter: char) -> bool {
    !letter.is_ascii_alphanumeric() && letter != '_'
}

fn is_script(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(OsStr::to_str);
    !word.starts_with('-')
        && (word.contains('/') || extension.is_some_and(|it| EXTENSIONS.contains(&it)))
}

/// Reads the first line, including a carriage return at its end.
fn first_line(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(SHEBANG_MAX).read_to_end(&mut start).ok()?;
    let line = start.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_programs_and_scripts_are_found_without_a_shell() {
        let run = |word: &str| NeededFile::ToRun(word.to_owned());
        let read = |word: &str| NeededFile::ToRead(word.to_owned());
        let table = [
            ("./check.sh --fast", vec![run("./check.sh")]),
            ("\"$CLAUDE_PROJECT_DIR\"/x.sh", vec![run("/w/x.sh")]),
            ("\"$CLAUDE_PROJECT_DIR/a b.sh\" x", vec![run("/w/a b.sh")]),
            ("${CLAUDE_PROJECT_DIR}/x.sh", vec![run("/w/x.sh")]),
            ("~/x.py", vec![run("/h/x.py")]),
            ("'/a b'/c\\ d", vec![run("/a b/c d")]),
            ("python3 ./x.py", vec![run("python3"), read("./x.py")]),
            ("python3 -u x.py", vec![run("python3"), read("x.py")]),
            ("node -e 'x'", vec![run("node")]),
            ("jq -r .x", vec![run("jq")]),
            ("jq . | ./x", vec![run("jq")]),
            ("jq", vec![run("jq")]),
            ("KEY=1 \\\n OTHER=\"$UNKNOWN\" x 2> /dev/null", vec![run("x")]),
            ("exec env A=b ./x;", vec![run("./x")]),
            ("# why\n./x # how", vec![run("./x")]),
            ("cd /x && y", vec![]),
            ("$HOOK x", vec![]),
            ("$(which x)", vec![]),
            ("*.sh", vec![]),
            ("PATH=/x y", vec![]),
            ("(cd x; y)", vec![]),
            ("f() { y; }; f", vec![]),
            ("declare -a a; y", vec![]),
            ("if x; then y; fi", vec![]),
            ("! ./x", vec![]),
            ("KEY=1; ./x", vec![]),
            ("KEY=1\n./x", vec![]),
            ("KEY=$(y) ./x", vec![]),
            ("env PATH=/x y", vec![]),
            ("~other/x", vec![]),
            ("./x{a,b}", vec![]),
            ("${HOOK:-./x}", vec![]),
            ("$'./x'", vec![]),
            ("\n\n\t./x\n./y", vec![run("./x")]),
            ("./x $(y) z", vec![]),
            ("./x `y` z", vec![]),
            ("./x \"$(y)\" z", vec![]),
            ("./x>log 2>&1", vec![run("./x")]),
            ("./x&", vec![run("./x")]),
            ("./x && if y; then z; fi", vec![run("./x")]),
            ("python3 $FLAGS ./x.py", vec![run("python3")]),
            ("python3 2>/dev/null ./x.py", vec![run("python3")]),
            ("exec 2>&1\n./x", vec![]),
            ("2>/dev/null ./x", vec![]),
            ("./x2>log", vec![run("./x2")]),
            ("bun ./x.ts", vec![run("bun"), read("./x.ts")]),
            ("deno run -A ./x.ts", vec![run("deno")]),
            ("sh \"./it's.sh\"", vec![run("sh"), read("./it's.sh")]),
            ("\"a\\\"b\\c\"/d", vec![run("a\"b\\c/d")]),
            ("'a;b' c", vec![]),
            ("$LONG x", vec![]),
            ("python3.13 \"$SHORT.py\"", vec![run("python3.13"), read("s.py")]),
            ("[ -e x ] && ./y", vec![]),
            ("'unended", vec![]),
            ("", vec![]),
        ];
        let variables = [("LONG", "a b"), ("SHORT", "s")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let variables = Variables::from_iter(variables);
        let context = HookContext {
            cwd: Path::new("/w"),
            project: Path::new("/w"),
            home: Some(Path::new("/h")),
            variables: &variables,
        };
        for (script, wanted) in table {
            let command = HookCommand::Script(script.to_owned());
            assert_eq!(context.files(&command), wanted, "{script}");
        }
    }
}
