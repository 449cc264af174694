//! Commands that take all memory.

use std::fs;

use outlast::process::usable_memory;
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use crate::support::rotation::rotating_part;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The memory limit of commands: low, so that the tests are quick and safe.
const BOUND: &str = "96MiB";

/// Takes 2 GiB, a little at a time so that it can be seen at it, in the words of Python.
const HOG: &str = "held = [b'x' * (1 << 20) for _ in range(2048)]";

fn python(program: &str) -> String {
    format!(
        "exec python3 -I -S -c \"\nimport ctypes, mmap, os, signal, threading, time\n{program}\""
    )
}

/// Each takes far more than its bound, in another way.
fn hogs() -> Vec<(&'static str, String)> {
    let hog = python(HOG);
    let plain = |command: &str| command.to_owned();
    vec![
        ("brace expansion", plain("echo {1..90000000} | tail -c 1")),
        ("doubled variable", plain("word=x; while :; do word=$word$word; done")),
        ("pipe into tail", plain("head -c 3G /dev/zero | tail")),
        ("sort buffer", plain("yes | head -c 2G | sort -S 2G | tail -n 1")),
        ("awk", plain("awk 'BEGIN { word = \"x\"; while (1) word = word word }'")),
        ("one process", hog.clone()),
        ("own session", format!("setsid bash -c '{}' & wait", hog.replace('\'', "'\\''"))),
        ("daemon", format!("(setsid bash -c '{}' &) ; sleep 1000", hog.replace('\'', "'\\''"))),
        (
            "many processes",
            python(
                "for _ in range(32):\n  if not os.fork():\n    held = b'x' * (8 << 20)\n    break\n\
                 signal.pause()",
            ),
        ),
        (
            "shared mapping",
            python(
                "shared = mmap.mmap(-1, 2 << 30)\n\
                 while shared.tell() < 2 << 30: shared.write(b'x' * (1 << 20))",
            ),
        ),
        (
            "file in memory, mapped",
            python(
                "file = open('/dev/shm/outlast-%d' % os.getpid(), 'w+b'); os.unlink(file.name)\n\
                 file.truncate(1 << 30); shared = mmap.mmap(file.fileno(), 1 << 30)\n\
                 while shared.tell() < 1 << 30: shared.write(b'x' * (1 << 20))",
            ),
        ),
        (
            "file in memory, written",
            python(
                "file = os.memfd_create('x')\nfor _ in range(2048): os.write(file, b'x' * (1 << 20))",
            ),
        ),
        (
            "without a first thread",
            python(&format!(
                "def take():\n  {HOG}\n\
                 threading.Thread(target=take).start()\n\
                 ctypes.CDLL(None).syscall(60, 0)"
            )),
        ),
        ("memory hidden", python(&format!("ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n{HOG}"))),
    ]
}

fn trial(server: &str) -> RunBuilder {
    let trial = RunBuilder::bare(server).args(["Do it."]).env("OUTLAST_COMMAND_MEMORY", BOUND);
    trial.args(["--allowedTools", "Bash", "--output-format", "stream-json", "--verbose"])
}

/// The result of each call.
fn told(ended: &FinishedProcess) -> Vec<(String, Value)> {
    let frames = ended.frames();
    let results = frames.iter().filter(|frame| frame["type"] == "user");
    results
        .filter(|frame| frame["message"]["content"][0]["type"] == "tool_result")
        .map(|frame| {
            let block = &frame["message"]["content"][0];
            let text = block["content"]
                .as_str()
                .map_or_else(|| block["content"].to_string(), str::to_owned);
            (text, frame["tool_use_result"].clone())
        })
        .collect()
}

#[tokio::test]
async fn a_command_that_takes_too_much_memory_is_ended_and_the_run_goes_on() {
    let hogs = rotating_part(hogs(), 3);
    let mut scenario = Scenario::new();
    for (_, command) in &hogs {
        scenario = scenario.tool("Bash", json!({ "command": command, "timeout": 60_000 }));
    }
    let server = serve(scenario.reply("Done."));
    let ended = trial(&server.base_url()).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = told(&ended);
    assert_eq!(told.len(), hogs.len());
    for ((name, _), (text, detail)) in hogs.iter().zip(told) {
        let begin = "Out of memory: the command was stopped when it took";
        assert!(
            text.contains(begin) && text.contains("commandMemory (96.00 MiB)"),
            "{name}: {text}"
        );
        assert_eq!(detail["memory_exceeded"], true, "{name}: {detail}");
    }
}

/// All of the memory is touched, and held for a while, so that it is measured several times.
const WHILE: &str = "held.count(b'y')\ntime.sleep(0.3)";

#[tokio::test]
async fn a_command_below_the_bound_is_not_ended_however_many_processes_share_its_memory() {
    let pool = format!(
        "held = b'x' * (36 << 20)\nworkers = 0\nwhile workers < 8 and os.fork(): workers += 1\n{WHILE}"
    );
    let shared = format!(
        "held = mmap.mmap(-1, 36 << 20)\nfor _ in range(36): held.write(b'x' * (1 << 20))\nworkers = 0\n\
         while workers < 8 and os.fork(): workers += 1\n{}",
        WHILE.replace("held.count(b'y')", "held.find(b'y')")
    );
    let reserved = format!(
        "held = b'x' * (56 << 20); far = mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE | 0x4000)\n{WHILE}"
    );
    let several = "head -c 32M /dev/zero | tail -c 1 | tr '\\0' a; echo; head -c 24M /dev/zero | tail -c 23M | wc -c";
    let commands = [
        (python(&pool), ""),
        (python(&shared), ""),
        (python(&reserved), ""),
        (several.to_owned(), "a\n24117248"),
    ];
    let mut scenario = Scenario::new();
    for (command, _) in &commands {
        scenario = scenario.tool("Bash", json!({ "command": command }));
    }
    let server = serve(scenario.reply("Done."));
    let ended = trial(&server.base_url()).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for ((command, output), (text, detail)) in commands.iter().zip(told(&ended)) {
        assert_eq!(
            (&detail["memory_exceeded"], &detail["exit_code"]),
            (&json!(false), &json!(0)),
            "{command}: {text}"
        );
        assert_eq!(
            detail["stdout"].as_str().map(str::trim_end),
            Some(*output),
            "{command}: {text}"
        );
    }
}

/// The kernel ends commands first when memory runs out, and neither outlast nor its helpers.
#[tokio::test]
async fn a_command_is_the_first_choice_of_the_kernel_and_cannot_change_that() {
    let command = "cat /proc/self/oom_score_adj; echo 0 2> /dev/null > /proc/self/oom_score_adj; \
                   setsid cat /proc/self/oom_score_adj; process=$PPID; \
                   for helper in init supervisor outlast; do cat /proc/$process/oom_score_adj; \
                   process=$(ps -o ppid= -p $process | tr -d ' '); done";
    let server = serve(Scenario::new().tool("Bash", json!({ "command": command })).reply("Done."));
    let ended = trial(&server.base_url()).run().await;
    let own = fs::read_to_string("/proc/self/oom_score_adj").expect("Linux has it");
    let own = own.trim();
    let told = told(&ended);
    assert_eq!(told[0].0, format!("1000\n1000\n{own}\n{own}\n{own}"), "{ended:?}");
}

#[tokio::test]
async fn of_several_commands_the_one_that_takes_most_is_ended() {
    let takes =
        |mebibytes: u32, then: &str| python(&format!("held = b'x' * ({mebibytes} << 20)\n{then}"));
    let background = |command: String| json!({ "command": command, "run_in_background": true });
    let small = takes(36, "open('ready', 'w'); signal.pause()");
    let large = format!("until [ -e ready ]; do sleep 0.01; done; {}", takes(68, "signal.pause()"));
    let scenario = Scenario::new()
        .tool("Bash", background(small))
        .tool("Bash", json!({ "command": large }))
        .tool("Bash", background(python(HOG)))
        .tool("BashOutput", json!({ "bash_id": "bash_2", "timeout": 60_000 }))
        .tool("KillShell", json!({ "shell_id": "bash_1" }))
        .reply("Done.");
    let server = serve(scenario);
    let ended = trial(&server.base_url()).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = told(&ended);
    let begin = "Out of memory: the command was stopped when it took";
    assert!(
        told[1].0.starts_with(begin) && told[1].0.contains("this one took most"),
        "{}",
        told[1].0
    );
    assert!(
        told[3].0.contains("all commands together took more memory than the setting"),
        "{}",
        told[3].0
    );
    assert_eq!(told[3].1["status"], "memory_exceeded");
    assert!(
        told[4].0.contains("was stopped after") && told[4].0.contains("as you asked"),
        "{}",
        told[4].0
    );
    let result = ended.result();
    let states =
        result["background"].as_array().expect("a list").iter().map(|task| &task["status"]);
    assert_eq!(states.collect::<Vec<_>>(), ["killed", "memory_exceeded"]);
}

#[tokio::test]
async fn the_command_that_must_pass_has_the_same_bound() {
    let server = serve(Scenario::new().reply("Done."));
    let requirement = python(HOG);
    let flags = ["--require", &requirement, "--settings", r#"{"requireRetries": 0}"#];
    let ended = trial(&server.base_url()).args(flags).run().await;
    let text = ended.result().to_string();
    assert!(text.contains("was stopped when it took") && text.contains("commandMemory"), "{text}");
}

#[tokio::test]
async fn the_bound_is_shown_and_what_is_none_is_refused() {
    let shown = |ended: &FinishedProcess| {
        let config = ended.frames().pop().expect("one object");
        let settings = config["settings"].as_array().expect("a list").iter();
        let row =
            settings.into_iter().find(|row| row["name"] == "commandMemory").expect("it is listed");
        (row["value"].clone(), row["origin"].clone())
    };
    let usual = RunBuilder::bare("http://127.0.0.1:1").args(["config", "--json"]).run().await;
    let bytes = usable_memory().expect("Linux tells") / 4 * 3;
    let bytes = bytes - bytes % (1 << 20);
    let (value, origin) = shown(&usual);
    let shown_text = value.as_str().expect("a text");
    let digits = shown_text.trim_end_matches(char::is_alphabetic);
    let unit = match &shown_text[digits.len()..] {
        "" => 1,
        "KB" => 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => panic!("{other}"),
    };
    assert_eq!(digits.parse::<u64>().ok().map(|number| number * unit), Some(bytes), "{value}");
    assert_eq!(origin, "default");
    let set = RunBuilder::bare("http://127.0.0.1:1").env("OUTLAST_COMMAND_MEMORY", "512MB");
    let (value, origin) = shown(&set.args(["config", "--json"]).run().await);
    assert_eq!((value, origin), (json!("500000KiB"), json!("env OUTLAST_COMMAND_MEMORY")));
    for (size, part) in
        [("0", "at least 64MiB"), ("much", "\"much\" is not an"), ("-1", "\"-1\" is not an")]
    {
        let settings = format!(r#"{{"commandMemory": "{size}"}}"#);
        let args = ["Do it.", "--settings", &settings];
        let ended = RunBuilder::bare("http://127.0.0.1:1").args(args).run().await;
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{size}: {ended:?}");
        assert!(ended.stderr.contains(part), "{size}: {ended:?}");
    }
}
