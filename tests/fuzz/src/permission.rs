//! Any command: what is denied stays denied wherever it stands, and nothing slips in behind what
//! is allowed.

use std::cell::OnceCell;

use super::{Tape, toolbox};
use outlast::tools::{PermissionMode, Toolbox};
use outlast::transcript::ToolCall;
use serde_json::json;

/// The name of a program that no rule allows and one denies.
const EVIL: &str = "zz";

struct Judges {
    /// Harmless commands only.
    plain: Toolbox,
    /// Harmless ones, and `ok`.
    allowing: Toolbox,
    /// Everything but `zz`.
    denying: Toolbox,
    planning: Toolbox,
    bypassing: Toolbox,
}

thread_local! {
    static JUDGES: OnceCell<Judges> = const { OnceCell::new() };
}

fn admits(tools: &Toolbox, command: &str) -> bool {
    let input = json!({ "command": command });
    let call = ToolCall { id: "toolu_1".to_owned(), name: "Bash".to_owned(), input };
    tools.admit(&call).is_ok()
}

const PIECES: [&str; 72] = [
    "ok",
    "zz",
    "ls",
    "echo",
    "cat",
    "cd",
    "src",
    "test",
    "printf",
    "git",
    "status",
    "time",
    "if",
    "then",
    "fi",
    "{",
    "}",
    "(",
    ")",
    "$(",
    "`",
    "\"",
    "'",
    "$'",
    "$[",
    "]",
    "\\",
    "\n",
    ";",
    "&",
    "&&",
    "|",
    "||",
    ">",
    "<",
    "<<",
    "<<<",
    ">&",
    "#",
    " ",
    " ",
    " ",
    "-v",
    "a[",
    "!",
    "$X",
    "X=1",
    "command",
    "else ",
    "elif ",
    "for i in ",
    "while ",
    "until ",
    "do ",
    "; done",
    "case x in ",
    "x) ",
    ";; ",
    "esac",
    "f() ",
    "function f ",
    "; }",
    "; then ",
    "; fi",
    "<(",
    ">(",
    "${X:-",
    "<<'E'\n",
    "\nE\n",
    "$((",
    "[[ ",
    " ]]",
];

fn command(data: &[u8]) -> String {
    let Some((mode, rest)) = data.split_first() else { return String::new() };
    if mode & 1 == 0 {
        return String::from_utf8_lossy(rest).into_owned();
    }
    let mut tape = Tape(rest);
    let mut command = String::new();
    while !tape.is_over() {
        let piece = *tape.pick(&PIECES);
        // Depth that random bytes do not reach.
        let times = if tape.below(16) == 0 { 1 << tape.below(12) } else { 1 };
        command.push_str(&piece.repeat(times));
    }
    command
}

pub fn run(data: &[u8]) {
    let command = command(data);
    JUDGES.with(|judges| {
        use PermissionMode::{BypassPermissions, Default, Plan};
        let judges = judges.get_or_init(|| Judges {
            plain: toolbox(Default, &[], &[]),
            allowing: toolbox(Default, &["Bash(ok *)"], &[]),
            denying: toolbox(BypassPermissions, &[], &["Bash(zz *)"]),
            planning: toolbox(Plan, &["Bash(ok *)"], &[]),
            bypassing: toolbox(BypassPermissions, &[], &[]),
        });
        let allowed = admits(&judges.allowing, &command);
        if admits(&judges.plain, &command) {
            assert!(allowed, "a rule that allows took something away: {command:?}");
        }
        if admits(&judges.planning, &command) {
            assert!(admits(&judges.plain, &command), "planning does more: {command:?}");
        }
        if admits(&judges.denying, &command) {
            assert!(admits(&judges.bypassing, &command), "a denial allows: {command:?}");
        }
        if allowed {
            for joined in [
                format!("{command}\n{EVIL} x"),
                format!("{EVIL} x\n{command}"),
                format!("{EVIL} x; {command}"),
                format!("{EVIL} x && {command}"),
                format!("{EVIL} x | {command}"),
                format!("( {command}\n{EVIL} x )"),
                format!("echo \"$({EVIL} x)\"; {command}"),
                format!("if {EVIL} x; then ls; fi\n{command}"),
                format!("{command}\nfor i in a; do {EVIL} x; done"),
                format!("case a in a) {EVIL} x;; esac\n{command}"),
                format!("f() {{ {EVIL} x; }}\n{command}"),
                format!("cat <({EVIL} x)\n{command}"),
                format!("echo ${{X:-$({EVIL} x)}}\n{command}"),
                format!("{command}\nsh <<< '{EVIL} x'"),
                format!("{command}\necho '{EVIL} x' | bash"),
                format!("{command}\nenv -S'{EVIL} x'"),
                format!("{command}\nfind . -exec sh -c '{EVIL} x' \\;"),
            ] {
                assert!(!admits(&judges.allowing, &joined), "it slipped in: {joined:?}");
                assert!(!admits(&judges.denying, &joined), "denied, and run: {joined:?}");
            }
            // Deny rules stop what is written plainly.
            for hidden in [
                format!("{command}\nsource <(echo {EVIL} x)"),
                format!("{command}\ngit -c alias.x='!{EVIL} x' x"),
                format!("{command}\nGIT_PAGER='{EVIL} x' git log"),
                format!("{command}\nawk 'BEGIN {{ system(\"{EVIL} x\") }}'"),
                format!("{command}\nsed '1e {EVIL} x' src"),
                format!("{command}\nalias ls='{EVIL} x'; ls"),
            ] {
                assert!(!admits(&judges.allowing, &hidden), "it slipped in: {hidden:?}");
            }
        }
    });
}
