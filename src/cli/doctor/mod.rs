//! `outlast doctor`: resolves the settings, runs the checks, and prints the report.

mod profile;
mod report;

use std::env;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Uid;
use serde_json::Value;

use crate::doctor::{
    self, ConfiguredHook, ConfiguredServer, DoctorContext, DoctorReport, Finding, ResolvedConfig,
    ServerTransport,
};
use crate::hooks::HookSettings;
use crate::mcp::{HttpAddress, McpTimers, ServerAddress, ServerConfig, Servers};
use crate::model::{BaseUrl, HelperCommand};
use crate::secrets::{KnownSecrets, Redactor};

use super::args::{self, DoctorArgs};
use super::dry_run::{DryRun, dry_run};
use super::model_endpoints::{add_endpoints, first_endpoint};
use super::output::Screen;
use super::run::ProcessContext;
use super::settings::{self, FileState, Settings, SettingsFile, SettingsSurvey, empty_variables};
use super::stdout::print_report;
use super::timestamps::format_duration;
use super::usage::UsageError;
use super::version::{COMMIT, SCHEMA_VERSION, VERSION};
use crate::config::environment::{self, Variables};
use crate::config::known_variables::variable_names;
use crate::config::registry;
use crate::config::values::{self, InvalidValue};
use crate::types::PermissionMode;
use strsim::osa_distance;

/// The limits that are shown in addition to all durations, by their names in settings.
const SHOWN: [&str; 7] = [
    "maxRetries",
    "unattendedRetry",
    "maxTurns",
    "maxBudgetUsd",
    "tokenBudget",
    "maxCompactions",
    "commandMemory",
];

/// Examines this machine and prints the report. The exit code is 1 if there are problems.
///
/// # Errors
/// The flags after `--` are wrong, or a signal came.
pub(super) async fn doctor(
    args: &DoctorArgs,
    ProcessContext { variables, cwd, signals, .. }: ProcessContext,
) -> Result<u8, UsageError> {
    let run = args::run_flags(&args.flags)?;
    let screen = Screen::of_stdout(&variables);
    let context = DoctorContext {
        version: VERSION,
        commit: COMMIT,
        home: environment::home(&variables),
        config_dir: environment::config_dir(&variables),
        program_name: env::args_os().next().unwrap_or_default().to_string_lossy().into_owned(),
        offline: args.offline,
        variables: variables.clone(),
        cwd: cwd.clone(),
    };
    let secrets = KnownSecrets::new(crate::tools::secret_values(&variables, None));
    let found_secrets = secrets.clone();
    let read_config = move || {
        let survey = settings::survey(&run, &variables, &cwd);
        for secret in survey.secrets() {
            found_secrets.add(&secret);
        }
        let dry_run = dry_run(&run, &variables, &cwd, &found_secrets);
        let profile = profile::examine(*run, &survey, (&variables, &cwd), &found_secrets);
        // Errors that prevent every run are reported separately.
        let profile = profile.map_err(|error| error.to_string());
        let is_known = |error: &String| dry_run.as_ref().is_err_and(|it| it.to_string() == *error);
        let profile = Some(profile).filter(|profile| !profile.as_ref().is_err_and(is_known));
        ResolvedConfig { profile, ..doctor_input(survey, dry_run, &found_secrets) }
    };
    let report = tokio::select! {
        biased;
        interrupt = signals.first() => return Err(UsageError::interrupted(interrupt)),
        report = doctor::run_checks(&context, read_config) => report,
    };
    let redactor = Redactor::new(secrets);
    let text = if args.json {
        let mut object = doctor::json(&report, SCHEMA_VERSION);
        object["version"] = VERSION.into();
        object["commit"] = COMMIT.into();
        redactor.redact_json(&mut object);
        format!("{object}\n")
    } else {
        redactor.redact(&report::text(&report, args.verbose, &screen))
    };
    print_report(&text)?;
    Ok(u8::from(!report.is_healthy()))
}

/// Reports that the system gives the process too few files or threads for any check. The exit code
/// is 1.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn report_no_runtime(
    args: &DoctorArgs,
    variables: &Variables,
    error: &io::Error,
) -> Result<u8, UsageError> {
    let (limit, fix) = if error.kind() == io::ErrorKind::WouldBlock {
        let fix = "end other processes, or raise ulimit -u, TasksMax= of a service or the pids limit \
                   of a container, and run doctor again";
        ("there is no room for another thread".to_owned(), fix)
    } else {
        let open_files = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _hard)| soft);
        let fix =
            "raise it with ulimit -n 1024, or LimitNOFILE= of a service, and run doctor again";
        (format!("ulimit -n (open files) is {open_files}"), fix)
    };
    let finding = Finding::problem(
        "limits",
        format!("outlast cannot start its threads: {error}; {limit}"),
        "no run can begin, and nothing else was checked",
        fix,
    );
    let report = DoctorReport { findings: vec![finding], took: Duration::ZERO };
    let text = if args.json {
        format!("{}\n", doctor::json(&report, SCHEMA_VERSION))
    } else {
        report::text(&report, args.verbose, &Screen::of_stdout(variables))
    };
    print_report(&text)?;
    Ok(1)
}

/// Converts the survey for the doctor, and adds the facts about the run that would begin.
fn doctor_input(
    survey: SettingsSurvey,
    dry_run: Result<DryRun, UsageError>,
    secrets: &KnownSecrets,
) -> ResolvedConfig {
    let (hooks, bad_hooks) = hooks(&survey.inputs.sources.files);
    let files = survey.inputs.sources.files.iter().filter(|file| file.state != FileState::Absent);
    let files = files.map(|file| (file.path.clone(), file.state.describe())).collect();
    let ignored = survey.inputs.sources.ignored.iter().map(|one| {
        let key = one.key.as_ref().map_or(String::new(), |key| format!(" {key}"));
        format!("{}{key} ({})", one.file, one.why)
    });
    let off = survey.effective.iter().find(|one| one.name == "disableAllHooks");
    let hooks_off = off.is_some_and(|one| one.value == true);
    let mut known = ResolvedConfig {
        files,
        ignored: ignored.collect(),
        limits: limits(&survey),
        credentials: survey.credentials.clone(),
        needs_credential: survey.needs_credential,
        ca_files: survey.endpoint.connection.ca_files.clone(),
        endpoints: vec![first_endpoint(&survey, secrets)],
        broken: broken(&survey.inputs.sources.files),
        heartbeat: survey.inputs.config.limits.heartbeat,
        mcp_wait: McpTimers::default().wait,
        hooks,
        bad_hooks,
        hooks_off,
        unknown_variables: unknown_variables(&survey),
        mistakes: survey.inputs.mistakes,
        // Ignored settings and servers are listed separately.
        warnings: survey.warnings,
        variables: survey.inputs.variables,
        ..ResolvedConfig::default()
    };
    match dry_run {
        Ok(DryRun { settings, servers, sandbox_gaps, helper_is_confined }) => {
            known.exposed = sandbox_gaps.exposed;
            known.helper_is_confined = helper_is_confined;
            add_run_findings(&mut known, settings, servers, secrets);
        }
        Err(error) => {
            known.run_unavailable = true;
            for line in error.lines() {
                if !known.mistakes.iter().any(|known| known == line) {
                    known.mistakes.push(line.to_owned());
                }
            }
        }
    }
    known
}

/// Adds the errors that appear only when a run is built.
fn add_run_findings(
    known: &mut ResolvedConfig,
    settings: Settings,
    servers: Servers,
    secrets: &KnownSecrets,
) {
    known.bypasses_as_root = settings.config.permissions.mode == PermissionMode::BypassPermissions
        && Uid::effective().is_root();
    known.heartbeat = settings.config.limits.heartbeat;
    add_endpoints(known, &settings, secrets);
    known.servers = configured_servers(&settings);
    known.mcp_wait = settings.mcp.timers.wait;
    known.mcp_servers = Arc::new(servers);
    // The survey covers the files only.
    known.bad_servers = settings.mcp.warnings;
    // The check of the variables reports an empty one, too, with the remedy.
    let empty = empty_variables(&settings.endpoint.credential, &settings.variables);
    for warning in settings.warnings {
        if !known.warnings.contains(&warning) && empty.as_ref() != Some(&warning) {
            known.warnings.push(warning);
        }
    }
}

/// Lists the settings files that cannot be parsed.
fn broken(files: &[SettingsFile]) -> Vec<String> {
    let broken = files.iter().filter(|file| file.state == FileState::Broken);
    broken.map(|file| file.path.clone()).collect()
}

/// Returns unknown variables, each with the known one that may be meant: names with a prefix of
/// outlast, and names within edit distance two of a variable of the service.
fn unknown_variables(survey: &SettingsSurvey) -> Vec<(String, Option<&'static str>)> {
    let own = survey.unknown_variables.iter().map(|name| (name.clone(), closest_variable(name)));
    let is_known = |name: &str| variable_names().any(|known| known == name);
    let names = survey.inputs.variables.keys().filter_map(|name| name.to_str());
    let of_service = names.filter(|name| {
        let prefixes = ["ANTHROPIC_", "ANTRHOPIC_", "ANTROPIC_", "CLAUDE_CODE_"];
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && !is_known(name)
    });
    let of_service =
        of_service.filter_map(|name| Some((name.to_owned(), Some(closest_variable(name)?))));
    own.chain(of_service).collect()
}

/// Returns the known variable within edit distance two of this name.
fn closest_variable(name: &str) -> Option<&'static str> {
    let plain = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
    let near =
        variable_names().map(|known| (osa_distance(&plain(name), &plain(known)), known)).min();
    near.filter(|(distance, _)| *distance <= 2).map(|(_, known)| known)
}

/// Parses the value of a variable.
type ReadDuration = fn(&str) -> Result<Duration, InvalidValue>;

/// Lists every timer and limit in force, with its provenance.
fn limits(survey: &SettingsSurvey) -> Vec<(String, String, String)> {
    let is_timer = |name: &str| registry::find(name).is_some_and(|setting| setting.is_duration);
    let wanted = |name: &str| is_timer(name) || SHOWN.contains(&name);
    let limits = survey.effective.iter().filter(|one| wanted(&one.name));
    let limits = limits.map(|one| (one.name.clone(), shown(&one.value), one.origin.clone()));
    // These have a variable and no setting.
    let usual = McpTimers::default();
    let helper = HelperCommand::new("").ttl;
    let by_variable: [(&str, Duration, ReadDuration); 4] = [
        ("MCP_TIMEOUT", usual.wait, values::millis),
        ("OUTLAST_MCP_START_TIMEOUT", usual.start, values::millis),
        ("MCP_TOOL_TIMEOUT", usual.call, values::millis),
        ("CLAUDE_CODE_API_KEY_HELPER_TTL_MS", helper, values::millis_or_none),
    ];
    let by_variable = by_variable.into_iter().map(|(name, usual, read)| {
        let given = survey.inputs.variables.get(OsStr::new(name)).and_then(|text| text.to_str());
        let given = given.and_then(|text| read(text.trim()).ok());
        let origin = if given.is_some() { format!("env {name}") } else { "default".to_owned() };
        (name.to_owned(), format_duration(given.unwrap_or(usual)), origin)
    });
    limits.chain(by_variable).collect()
}

/// Formats a value in one line.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Lists the hooks, and why others will not run.
fn hooks(files: &[SettingsFile]) -> (Vec<ConfiguredHook>, Vec<String>) {
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    for file in files.iter().filter(|file| !file.hooks.is_null()) {
        // An invalid hook is reported with the mistakes of the settings.
        let Ok(hooks) = HookSettings::parse(&file.hooks, &file.path) else { continue };
        found.extend(hooks.handlers.into_iter().map(|handler| {
            let project = file.project.clone();
            ConfiguredHook { handler, project }
        }));
        let skipped = hooks.skipped.iter();
        bad.extend(skipped.map(|one| format!("{}: {}: {}", file.path, one.place, one.why)));
    }
    (found, bad)
}

/// Lists the MCP servers. Only the program of a command and the origin of an address are shown: the
/// rest may hold secrets.
fn configured_servers(settings: &Settings) -> Vec<ConfiguredServer> {
    let server = |config: &ServerConfig| {
        let how = match &config.place {
            ServerAddress::Program { command, .. } => ServerTransport::Program(command.clone()),
            ServerAddress::Host => ServerTransport::Host,
            ServerAddress::Http(HttpAddress { url, .. }) => ServerTransport::Address(
                BaseUrl::parse(url).map_or("an address".to_owned(), |at| at.origin()),
            ),
        };
        let source = settings.mcp.places.get(&config.name).cloned().unwrap_or_default();
        ConfiguredServer {
            name: config.name.clone(),
            source,
            how,
            disabled: config.disabled,
            login_advice: config.place.login_advice(&config.name),
        }
    };
    settings.mcp.servers.iter().map(server).collect()
}
