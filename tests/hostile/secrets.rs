//! Secrets under unusual names, of unusual shapes, and at unusual places.

use std::fs;
use std::time::Duration;

use outlast::process::LandlockSupport;
use outlast::rehearsal::Scenario;
use outlast::secrets::REDACTED;
use serde_json::{Value, json};

use crate::support::scratch::{files, write_file};
use crate::support::{FinishedProcess, RunBuilder, non_temporary_folder, serve};
use crate::tools::sandbox::singled_out;

/// Passed to commands by name, under names that tell nothing: name, value.
const PASSED: [(&str, &str); 10] = [
    ("WORD", "tulip"),
    ("SHORT", "zq7x"),
    ("PIN", "8391"),
    ("ADDRESS", "https://hidden.invalid/q"),
    ("PLACE", "/opt/hidden-place"),
    ("SENTENCE", "correct horse battery"),
    ("QUOTED", "qv\"wk\\c7'd"),
    ("ACCENTS", "gr\u{fc}\u{df}e"),
    ("INNER", "kvdn"),
    ("OUTER", "kvdn-and-more"),
];

/// Named like secrets.
const NAMED: [(&str, &str); 10] = [
    ("SENTRY_DSN", "https://k@sentry.invalid/1"),
    ("CONN_STRING", "Server=db;Uid=q"),
    ("SESSIONID", "b7rq"),
    ("DB_PASSWORD", "hunter2"),
    ("SMTP_PASS", "mornings"),
    ("MYSQL_PWD", "59275"),
    ("BASIC_AUTH", "me:we"),
    ("AZURE_SAS", "sv=1&sig=q"),
    ("LOGIN_JWT", "jj.tt"),
    ("SLACK_WEBHOOK_URL", "https://hooks.invalid/T/B"),
];

/// Values that stay, whatever their names: text without them would be useless.
const KEPT: [(&str, &str); 5] = [
    ("PASSED_FLAG", "true"),
    ("PASSED_SHORT", "abc"),
    ("UI_PASSWORD", "password"),
    ("BUILD_KEY", "0f3a9c51d2"),
    ("BUILD_COMMIT", "0f3a9c51d2"),
];

#[track_caller]
fn assert_hidden(what: &str, text: &str) {
    for (name, value) in PASSED.iter().chain(&NAMED) {
        let quoted = json!(value).to_string();
        for form in [*value, &quoted[1..quoted.len() - 1]] {
            let at = text.find(form);
            let near = at.map(|at| &text[text.floor_char_boundary(at.saturating_sub(60))..at]);
            assert!(at.is_none(), "{what} has {name}, {form}, after {near:?}");
        }
    }
}

fn words() -> String {
    let all = PASSED.iter().chain(&NAMED).chain(&KEPT);
    all.map(|(name, value)| format!("{name}: <{value}>\n")).collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn named_and_passed_values_are_masked_wherever_they_leave() {
    for format in ["text", "stream-json"] {
        let all = words();
        let server = serve(
            Scenario::new()
                .tool("Bash", json!({ "command": "cat leak; cat leak >&2; env; exit 3" }))
                .tool("Read", json!({ "file_path": "leak" }))
                .tool("Grep", json!({ "pattern": ".", "output_mode": "content" }))
                .and_thinking(&all)
                .reply(&all)
                .timing(Some(7), Duration::ZERO),
        );
        let mut run = RunBuilder::against(&server)
            .args(["Do it.", "--output-format", format, "--log-detail"])
            .args(["--result-file", "result.json"])
            .args(["--pass-env", "PASSED_FLAG,PASSED_SHORT"]);
        for (name, value) in PASSED.iter().chain(&NAMED).chain(&KEPT) {
            run = run.env(name, value);
        }
        if format == "stream-json" {
            run = run.args(["--include-partial-messages"]);
        }
        for (name, _) in PASSED {
            run = run.args(["--pass-env", name]);
        }
        fs::write(run.work().join("leak"), &all).expect("a file");
        let ended = run.run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        // What is printed is no tool input: no pid, port or time may look like a PIN.
        let stdout = match format {
            "text" => ended.stdout.clone(),
            _ => texts(&ended),
        };
        assert_hidden("standard output", &stdout);
        assert_hidden(
            "the result",
            &fs::read_to_string(ended.work().join("result.json"))
                .expect("it is there")
                .replace("8391", REDACTED),
        );
        for path in files(&ended.config()) {
            let text =
                String::from_utf8_lossy(&fs::read(&path).expect("it can be read")).into_owned();
            let texts: String = text.lines().map(strings).collect();
            assert_hidden(&path.display().to_string(), &texts);
        }
        for request in server.requests() {
            let told = request.body["messages"].as_array().cloned().unwrap_or_default();
            let results = told.iter().filter(|message| message["role"] == "user");
            let text: String = results.map(|message| message["content"].to_string()).collect();
            assert_hidden("a request", &text);
        }
        assert_hidden("the pieces of the stream", &deltas(&stdout_frames(&ended, format)));
        for (name, value) in KEPT {
            assert!(stdout.contains(&format!("{name}: <{value}>")), "{name} stays: {stdout}");
        }
        let pid_free = ended.stderr.replace("8391", REDACTED);
        assert_hidden("standard error", &pid_free);
    }
}

/// All strings of a line of JSON, without ids and checksums; other lines whole.
fn strings(line: &str) -> String {
    fn walk(value: &Value, all: &mut String) {
        match value {
            Value::String(text) => {
                all.push_str(text);
                all.push('\n');
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, all)),
            Value::Object(members) => members
                .iter()
                .filter(|(name, _)| !name.to_lowercase().contains("id"))
                .filter(|(name, _)| !["timestamp", "crc"].contains(&name.as_str()))
                .for_each(|(_, item)| walk(item, all)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let Ok(value) = serde_json::from_str(line) else { return line.to_owned() };
    let mut all = String::new();
    walk(&value, &mut all);
    all
}

fn stdout_frames(ended: &FinishedProcess, format: &str) -> Vec<Value> {
    if format == "text" { Vec::new() } else { ended.frames() }
}

/// The joined pieces of a stream.
fn deltas(frames: &[Value]) -> String {
    let deltas = || frames.iter().map(|frame| &frame["event"]["delta"]);
    let joined =
        |member: &str| -> String { deltas().filter_map(|delta| delta[member].as_str()).collect() };
    ["text", "thinking", "partial_json"].map(joined).join("\n")
}

fn texts(ended: &FinishedProcess) -> String {
    ended.stdout.lines().map(strings).collect()
}

#[tokio::test]
async fn variables_of_secrets_are_dropped_and_others_stay() {
    const SECRET: [(&str, &str); 26] = [
        ("SENTRY_DSN", "https://k@sentry.invalid/1"),
        ("DSN", "x"),
        ("CONN_STRING", "x"),
        ("DB_CONNECTION_STRING", "x"),
        ("SQLCONNSTR_main", "x"),
        ("SESSIONID", "x"),
        ("PHPSESSID", "x"),
        ("AOC_COOKIE", "x"),
        ("COOKIES", "x"),
        ("AZURE_DEVOPS_EXT_PAT", "x"),
        ("MY_JWT", "x"),
        ("SLACK_WEBHOOK_URL", "https://hooks.invalid/x"),
        ("SSH_PASSPHRASE", "x"),
        ("UNLOCK_PASSCODE", "x"),
        ("MYSQL_PWD", "x"),
        ("AUTH", "me:we"),
        ("npm_config__auth", "bWU6d2U="),
        ("HTTP_BEARER", "x"),
        ("STORAGE_SAS", "x"),
        ("WIFI_PSK", "x"),
        ("AWS_CREDS", "x"),
        ("WALLET_MNEMONIC", "x"),
        ("apiKey", "x"),
        ("GH_TOKEN", "x"),
        ("my_secret_thing", "x"),
        ("HARMLESS", concat!("ghp_", "0123456789abcdefghijABCDEFGHIJ012345")),
    ];
    const OPEN: [(&str, &str); 16] = [
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("XDG_SESSION_ID", "3"),
        ("TERM_SESSION_ID", "w0t0p0"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus"),
        ("DESKTOP_SESSION", "gnome"),
        ("KUBECONFIG", "/etc/kube"),
        ("DATABASE_URL", "postgres://localhost/test"),
        ("REDIS_URL", "redis://localhost"),
        ("REQUIRE_AUTH", "true"),
        ("WEBHOOK_PORT", "8080"),
        ("OLDPWD", "/tmp"),
        ("MAX_TOKENS", "4000"),
        ("PATTERN", "x"),
        ("AUTHOR", "me"),
        ("KEYBOARD", "us"),
        ("DISPATCH", "x"),
    ];
    let command = json!({ "command": "env | sed 's/=.*//' > names" });
    let server = serve(Scenario::new().tool("Bash", command).reply("Done."));
    let flags = ["Do it.", "--output-format", "stream-json", "--child-env", "scrub"];
    let mut run = RunBuilder::against(&server).args(flags);
    for (name, value) in SECRET.iter().chain(&OPEN) {
        run = run.env(name, value);
    }
    let ended = run.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let names = fs::read_to_string(ended.work().join("names")).expect("it was written");
    let has = |name: &str| names.lines().any(|line| line == name);
    let init = ended.frames().into_iter().find(|frame| frame["subtype"] == "init").expect("init");
    let dropped = init["dropped_env"].to_string();
    for (name, _) in SECRET {
        assert!(!has(name), "a command sees {name}");
        assert!(dropped.contains(&format!("\"{name}\"")), "{name} is told: {dropped}");
    }
    for (name, _) in OPEN {
        assert!(has(name), "a command misses {name}: {dropped}");
    }
}

/// Places below the home folder that hold credentials or what was typed.
const PLACES: [&str; 41] = [
    ".claude.json",
    ".claude/.credentials.json",
    ".config/github-copilot/hosts.json",
    ".config/gh/hosts.yml",
    ".pulumi/credentials.json",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".lesshst",
    ".viminfo",
    ".local/share/fish/fish_history",
    ".netrc",
    ".pgpass",
    ".docker/config.json",
    ".config/rclone/rclone.conf",
    ".config/op/config",
    ".config/stripe/config.toml",
    ".config/configstore/firebase-tools.json",
    ".terraform.d/credentials.tfrc.json",
    ".local/share/keyrings/login.keyring",
    ".supabase/access-token",
    ".aliyun/config.json",
    ".gitcookies",
    ".dbt/profiles.yml",
    ".config/openstack/clouds.yaml",
    ".minikube/profiles/minikube/client.key",
    ".config/syncthing/key.pem",
    ".local/share/gopass/stores/root/x",
    ".foundry/keystores/x",
    ".config/httpie/sessions/host/me.json",
    ".local/state/nvim/shada/main.shada",
    ".continue/config.yaml",
    // By their names alone.
    ".new_client_history",
    ".newtool/credentials.json",
    ".config/newtool/access-token",
    ".config/newtool/auth.json",
    ".local/share/newtool/ca-key.pem",
];

#[tokio::test]
async fn credential_files_and_histories_are_not_read() {
    let home = non_temporary_folder();
    for place in PLACES {
        write_file(&home.path().join(place), format!("found-{place}\n"));
    }
    fs::write(home.path().join(".npmrc"), "found-npmrc\n").expect("a file");
    for folder in ["project", ".dotfiles/.git", ".newtool/docs"] {
        fs::create_dir_all(home.path().join(folder)).expect("a folder can be made");
    }
    // In checkouts, and files about credentials.
    let sources = ["project/token.json", ".dotfiles/secrets.yml", ".newtool/credentials.rs"];
    for place in sources {
        fs::write(home.path().join(place), format!("open-{place}\n")).expect("a file");
    }
    fs::write(home.path().join(".gitconfig"), "[user]\nname = found-git\n").expect("a file");
    // Named in the command, each would be refused by a rule before the kernel is asked.
    let read = "while read -r place; do cat \"$HOME/$place\"; done < places; \
                cat \"$HOME/.npmrc\" \"$HOME/project/token.json\" \
                \"$HOME/.dotfiles/secrets.yml\" \"$HOME/.newtool/credentials.rs\"; \
                git config --global user.name";
    let mut scenario = Scenario::new().tool("Bash", json!({ "command": read }));
    for place in PLACES {
        scenario = scenario.and_tool("Read", json!({ "file_path": home.path().join(place) }));
    }
    let grep = json!({ "pattern": "found-", "path": home.path(), "output_mode": "content" });
    let server = serve(scenario.tool("Grep", grep).reply("Done."));
    let config = home.path().join("config").display().to_string();
    let run = RunBuilder::bare(&server.base_url())
        .env("HOME", &home.path().display().to_string())
        .env("OUTLAST_CONFIG_DIR", &config)
        .args(["Do it.", "--allowedTools", "Bash,Read,Grep", "--output-format", "stream-json"])
        .args(["--sandbox-network", "off"]);
    fs::write(run.work().join("places"), PLACES.join("\n") + "\n").expect("a file");
    let ended = run.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let results: Vec<String> = ended
        .frames()
        .iter()
        .filter(|frame| frame["type"] == "user")
        .map(|frame| frame["message"]["content"].to_string())
        .collect();
    let holds = LandlockSupport::probe().abi > 0;
    let (bash, others) = results.split_first().expect("results");
    for place in PLACES {
        let mark = format!("found-{place}");
        assert!(!holds || !bash.contains(&mark), "a command reads {place}");
        for other in others {
            assert!(!other.contains(&mark), "a tool reads {place}: {other}");
        }
    }
    assert!(bash.contains("found-npmrc") && bash.contains("found-git"), "tools still work: {bash}");
    for place in sources {
        assert!(bash.contains(&format!("open-{place}")), "no credential: {place}: {bash}");
    }
    if holds {
        let init = ended.frames().into_iter().find(|frame| frame["subtype"] == "init");
        let exposed = &init.expect("init")["sandbox"]["exposed"];
        let exposed: Vec<String> = serde_json::from_value(exposed.clone()).expect("texts");
        assert_eq!(singled_out(&exposed), Vec::<&str>::new());
    }
}
