//! Judges facts. Nothing is looked at here that was not looked at before.

pub mod credentials;
pub mod hooks;
pub mod machine;
pub mod servers;
pub mod service;
pub mod settings;
pub mod store;

use std::ffi::OsStr;

use super::facts::install::{Install, Kind};
use super::facts::shell::Shadow;
use super::finding::Finding;
use super::{Known, Scene};

/// Version, path, kind of installation, and the others on PATH.
pub fn installation(scene: &Scene, facts: &Install) -> Vec<Finding> {
    let mut findings = vec![
        Finding::ok(
            "version",
            format!(
                "outlast {}, commit {}, called as {:?}",
                scene.version, scene.commit, scene.called
            ),
        ),
        Finding::ok("installation", format!("{} ({})", facts.binary.display(), facts.kind.name())),
    ];
    findings.push(on_path(facts));
    findings.push(updates(facts));
    findings
}

fn on_path(facts: &Install) -> Finding {
    let wins = facts.on_path.first();
    let listed: Vec<String> =
        facts.on_path.iter().map(|(at, _)| at.display().to_string()).collect();
    let this = facts.binary.display();
    match wins {
        None => Finding::warning(
            "path",
            format!("no outlast is on PATH; this one is {this}"),
            "scripts that call outlast by its name do not find it",
            format!("add its folder to PATH, or call it as {this}"),
        ),
        Some((at, real)) if *real != facts.binary => Finding::warning(
            "path",
            format!("PATH leads to another outlast, {}, and not to this one, {this}", at.display()),
            "scripts run that one, which may have another version",
            format!("remove one of them, or put the folder of {this} first on PATH"),
        ),
        Some((at, _)) if listed.len() > 1 => Finding::warning(
            "path",
            format!(
                "{} installations on PATH: {}; {} wins",
                listed.len(),
                listed.join(", "),
                at.display()
            ),
            "an update of one of them changes nothing for whoever runs another one",
            format!("keep one, and remove {}", listed[1..].join(", ")),
        ),
        Some((at, _)) => {
            Finding::ok("path", format!("PATH leads to this one, by {}", at.display()))
        }
    }
}

/// Told and never done: outlast does not update itself.
fn updates(facts: &Install) -> Finding {
    let folder = facts.binary.parent().unwrap_or(&facts.binary).display();
    let how = match facts.kind {
        Kind::Development => "build it anew",
        Kind::Cargo => "install it anew with cargo",
        Kind::NpmLocal | Kind::NpmGlobal => "update it with npm",
        Kind::Native => "put the new binary in its place",
        Kind::Package(_) => "update it with its package manager",
    };
    if facts.writable || matches!(facts.kind, Kind::Package(_)) {
        return Finding::ok("updates", format!("outlast never updates itself; to update, {how}"));
    }
    Finding::warning(
        "updates",
        format!("{folder} cannot be written to by this user"),
        "an update needs another user's rights",
        format!("as a user who may write there, {how}"),
    )
}

/// Searching is built in.
pub fn search(ripgrep: Option<&str>) -> Vec<Finding> {
    let beside = ripgrep.map_or_else(
        || "no rg on PATH, and none is needed".to_owned(),
        |ripgrep| format!("not used: {ripgrep}"),
    );
    vec![Finding::ok("search", format!("search is built in; {beside}"))]
}

/// Shell files that give the name another meaning.
pub fn shell(shadows: &[Shadow]) -> Vec<Finding> {
    let told = |shadow: &Shadow| {
        let (file, line) = (shadow.file.display(), shadow.line);
        Finding::warning(
            "shell",
            format!("{file}:{line}: the {} outlast shadows the program", shadow.what),
            "typed in a shell, the name means something else than in a script",
            format!("remove line {line} of {file}, or call the program by its path"),
        )
    };
    if shadows.is_empty() {
        return vec![Finding::ok("shell", "no alias or function shadows outlast")];
    }
    shadows.iter().map(told).collect()
}

/// Variables that nobody reads.
fn strange(known: &Known) -> impl Iterator<Item = Finding> {
    known.strange_variables.iter().map(|name| {
        Finding::warning(
            "environment",
            format!("outlast reads no variable {name}"),
            "whoever set it counts on something that does not happen",
            "see ENVIRONMENT in outlast(1) for its spelling, or unset it",
        )
    })
}

/// Variables that are right each for itself, and wrong together.
pub fn environment(known: &Known) -> Vec<Finding> {
    let get = |name: &str| {
        let value = known.variables.get(OsStr::new(name))?.to_str()?.trim();
        (!value.is_empty()).then_some(value)
    };
    let mut findings = Vec::new();
    let mut warn = |what: &str, why: &str, fix: &str| {
        findings.push(Finding::warning("environment", what, why, fix));
    };
    let has = |name: &str| get(name).is_some();
    if has("ANTHROPIC_API_KEY") && has("ANTHROPIC_AUTH_TOKEN") {
        warn(
            "both ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN are set",
            "only the token is used, and it decides who pays",
            "unset the one that is not meant",
        );
    }
    if has("ANTHROPIC_BASE_URL") && known.credentials.is_empty() {
        warn(
            "ANTHROPIC_BASE_URL is set, and no credential",
            "most servers refuse requests without one",
            "set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, unless the server wants none",
        );
    }
    let named = |names: [&'static str; 2]| names.into_iter().find(|name| has(name));
    let proxy = named(["HTTPS_PROXY", "https_proxy"])
        .or(named(["HTTP_PROXY", "http_proxy"]))
        .or(named(["ALL_PROXY", "all_proxy"]));
    let except = named(["NO_PROXY", "no_proxy"]).and_then(get).unwrap_or_default();
    let spares = ["localhost", "127.0.0.1", "127.", "*"];
    if let Some(proxy) = proxy
        && !except
            .split([',', ' '])
            .any(|entry| spares.iter().any(|one| entry.trim().starts_with(one)))
    {
        warn(
            &format!("{proxy} is set, and NO_PROXY does not name localhost"),
            "outlast reaches this machine directly, but commands that it runs may ask the proxy \
             for servers on this machine",
            "add localhost,127.0.0.1,::1 to NO_PROXY",
        );
    }
    if !has("HOME") {
        warn(
            "HOME is not set",
            "commands and other tools do not find their settings, and outlast has to guess its own",
            "set HOME, or OUTLAST_CONFIG_DIR for outlast alone",
        );
    }
    findings.extend(strange(known));
    if findings.is_empty() {
        findings.push(Finding::ok("environment", "no variables contradict each other"));
    }
    findings
}
