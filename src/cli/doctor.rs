//! `outlast doctor`: what the settings come to, told to the doctor, and the report.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write};
use std::time::SystemTime;

use serde_json::Value;

use crate::agent::Clock;
use crate::doctor::{self, How, Known, Scene, Server};
use crate::hooks::HookSettings;
use crate::model::{self, Address, Secret};
use crate::secrets::{KnownSecrets, Mask};

use super::args::{self, DoctorArgs};
use super::assemble;
use super::environment;
use super::run::{World, interrupted};
use super::settings::{self, Credential, FileState, SettingsFile, Survey};
use super::usage::UsageError;
use super::version::{COMMIT, SCHEMA_VERSION, VERSION};

/// The limits that are shown, by their names in settings.
const SHOWN: [&str; 18] = [
    "connectTimeout",
    "firstByteTimeout",
    "streamIdleTimeout",
    "streamProgressTimeout",
    "requestTimeout",
    "deadPathTimeout",
    "stdinTimeout",
    "heartbeatInterval",
    "bashTimeout",
    "bashMaxTimeout",
    "backgroundLifetime",
    "backgroundWait",
    "maxRetries",
    "maxRetryWait",
    "unattendedRetry",
    "maxTurns",
    "maxDuration",
    "maxBudgetUsd",
];

/// Examines this machine and prints the report. The exit code is 1 if there are problems.
///
/// # Errors
/// The flags after `--` are wrong, or somebody interrupted.
pub(super) async fn doctor(args: &DoctorArgs, world: World) -> Result<u8, UsageError> {
    let (run, given) = args::run_flags(&args.flags)?;
    let World { variables, cwd, signals, .. } = world;
    let scene = Scene {
        version: VERSION,
        commit: COMMIT,
        home: environment::home(&variables),
        config_dir: environment::config_dir(&variables),
        called: env::args().next().unwrap_or_default(),
        offline: args.offline,
        variables: variables.clone(),
        cwd: cwd.clone(),
    };
    let secrets = KnownSecrets::new(crate::tools::secret_values(&variables));
    let learned = secrets.clone();
    let know = move || {
        let survey = settings::survey(&run, &given, &variables, &cwd);
        for secret in survey.secrets() {
            learned.learn(&secret);
        }
        known(survey, &learned)
    };
    let report = tokio::select! {
        biased;
        interrupt = signals.first() => return Err(interrupted(interrupt)),
        report = doctor::examine(&scene, know) => report,
    };
    let mask = Mask::new(secrets);
    let text = if args.json {
        let mut object = doctor::json(&report, SCHEMA_VERSION);
        object["version"] = VERSION.into();
        object["commit"] = COMMIT.into();
        mask.hide_json(&mut object);
        format!("{object}\n")
    } else {
        mask.hide(&doctor::text(&report))
    };
    say(&text)?;
    Ok(u8::from(!report.is_healthy()))
}

/// Prints a report, which somebody is to read.
///
/// # Errors
/// It could not be written.
pub(super) fn say(text: &str) -> Result<(), UsageError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| UsageError::new(format!("standard output cannot be written: {error}")))
}

/// The survey as the doctor needs it.
fn known(survey: Survey, secrets: &KnownSecrets) -> Known {
    let (hooks, bad_hooks) = hooks(&survey.files);
    let files = survey.files.iter().filter(|file| file.state != FileState::Absent);
    let files = files.map(|file| (file.path.clone(), state(file.state))).collect();
    let ignored = survey.ignored.iter().map(|one| {
        let key = one.key.as_ref().map_or(String::new(), |key| format!(" {key}"));
        format!("{}{key} ({})", one.file, one.why)
    });
    let limits = survey.effective.iter().filter(|one| SHOWN.contains(&one.name.as_str()));
    let limits = limits.map(|one| (one.name.clone(), shown(&one.value), one.origin.clone()));
    let credentials = survey.credentials.iter();
    let (endpoint, login_expired) = endpoint(&survey, secrets);
    Known {
        files,
        ignored: ignored.collect(),
        limits: limits.collect(),
        credentials: credentials
            .map(|(kind, source)| ((*kind).to_owned(), source.clone()))
            .collect(),
        login_expired,
        needs_credential: survey.needs_credential,
        endpoint: Some(endpoint),
        model: crate::model::resolve_alias(&survey.model).to_owned(),
        hooks,
        bad_hooks,
        servers: survey.servers.as_deref().map(servers).unwrap_or_default(),
        mistakes: survey.mistakes,
        // What is ignored is listed by itself.
        warnings: survey.warnings.into_iter().filter(|line| !line.contains("ignored")).collect(),
        variables: survey.variables,
    }
}

/// Where to ask, with what. A login is used as it stands: to renew it would change it.
fn endpoint(survey: &Survey, secrets: &KnownSecrets) -> (model::Endpoint, bool) {
    let mut endpoint = assemble::endpoint(&survey.endpoint, Clock::start(1.0));
    endpoint.secrets = secrets.clone();
    let mut expired = false;
    if let Credential::OAuth { login, .. } = &survey.endpoint.credential {
        expired =
            login.access.is_none() || login.expires.is_some_and(|end| end < SystemTime::now());
        let token = login.access.as_ref().map_or("", Secret::reveal);
        endpoint.credential = match token {
            "" => model::Credential::None,
            token => model::Credential::Bearer(Secret::new(token)),
        };
    }
    (endpoint, expired)
}

fn state(state: FileState) -> &'static str {
    match state {
        FileState::Absent => "absent",
        FileState::Used => "used",
        FileState::Untrusted => "not trusted: only what forbids is used",
        FileState::Broken => "broken",
    }
}

/// A value in one line.
pub(super) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// How many hooks there are for each event, and which will not run.
fn hooks(files: &[SettingsFile]) -> (Vec<(String, usize)>, Vec<String>) {
    let (mut counts, mut bad) = (BTreeMap::new(), Vec::new());
    for file in files.iter().filter(|file| !file.hooks.is_null()) {
        match HookSettings::read(&file.hooks, &file.path) {
            Ok(hooks) => {
                for handler in &hooks.handlers {
                    *counts.entry(handler.event.name().to_owned()).or_insert(0) += 1;
                }
                let skipped = hooks.skipped.iter();
                bad.extend(skipped.map(|one| format!("{}: {}: {}", file.path, one.place, one.why)));
            }
            Err(error) => bad.push(format!("{}: {error}", file.path)),
        }
    }
    (counts.into_iter().collect(), bad)
}

/// The servers that a list names. Of commands only the program is told, of addresses only whose
/// they are: the rest may hold secrets.
fn servers(content: &[u8]) -> Vec<Server> {
    let source = ".mcp.json".to_owned();
    let wrong = |name: &str, why: &str| Server {
        name: name.to_owned(),
        source: source.clone(),
        how: How::Wrong(why.to_owned()),
    };
    let Ok(list) = serde_json::from_slice::<Value>(content) else {
        return vec![wrong("all servers", "the file is no valid JSON")];
    };
    let Some(servers) = list.get("mcpServers").and_then(Value::as_object) else {
        return vec![wrong("all servers", "the file has no object \"mcpServers\"")];
    };
    let server = |(name, server): (&String, &Value)| {
        let text = |key: &str| server.get(key).and_then(Value::as_str);
        let how = match (text("command"), text("url").map(Address::parse)) {
            (Some(program), _) => How::Program(program.to_owned()),
            (None, Some(Ok(address))) => How::Address(address.origin()),
            (None, Some(Err(_))) => How::Wrong("its \"url\" is no address".to_owned()),
            (None, None) => How::Wrong("it has neither \"command\" nor \"url\"".to_owned()),
        };
        let name = name.chars().take(64).collect();
        Server { name, source: source.clone(), how }
    };
    servers.iter().map(server).collect()
}
