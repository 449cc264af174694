//! `outlast rehearse`: runs the real agent loop over real HTTP, against a scripted model server.

mod choice;
mod isolation;
mod listing;
mod recorded;

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use parking_lot::Mutex;
use serde_json::json;

use crate::config::environment::CONFIG_FOLDER;
use crate::rehearsal::{
    ObservedOutcome, RehearsalServer, RequestRetention, Scenario, ScratchFolder, ServerOptions,
};

use super::args::{self, CliRequest, RehearseArgs, RunArgs};
use super::host;
use super::output::print_message;
use super::run::ProcessContext;
use super::stdout::{print, print_report};
use super::usage::{UsageError, UsageErrorKind};
use choice::ChosenScenario;

/// Exit codes above this mean that a signal ended the run.
const SIGNAL_BASE: u8 = 128;

/// A running scenario: its server, and the scratch folders of the run.
struct RehearsalRun {
    server: RehearsalServer,
    scratch: ScratchFolder,
}

/// Rehearses, or serves a rehearsal for another program.
///
/// # Errors
/// It could not begin.
pub(super) async fn rehearse(
    args: &RehearseArgs,
    context: ProcessContext,
) -> Result<u8, UsageError> {
    if args.list {
        print_report(&if args.json { listing::json() } else { listing::text() })?;
        return Ok(0);
    }
    // Errors in the flags are reported before the setup.
    args::parse(&args.flags)?;
    let chosen = choice::choose(args, &context).await?;
    if args.print || args.save.is_some() {
        chosen.report_omissions();
        match &args.save {
            Some(path) => save(path, &chosen.text)?,
            None => print_report(&chosen.text)?,
        }
        return Ok(0);
    }
    if args.serve {
        chosen.report_omissions();
        let is_recorded = args.record.is_some();
        let retention = if is_recorded { RequestRetention::Whole } else { RequestRetention::Heads };
        let rehearsal = RehearsalRun::start(chosen.scenario, args.port, retention)?;
        return rehearsal.serve(args, context).await;
    }
    run(chosen, args, context).await
}

/// Runs a scenario, and reports the exit code and whether it was the expected one.
async fn run(
    chosen: ChosenScenario,
    args: &RehearseArgs,
    mut context: ProcessContext,
) -> Result<u8, UsageError> {
    let rehearsal = RehearsalRun::start(chosen.scenario.clone(), None, RequestRetention::Heads)?;
    let request = rehearsal.run_args(args)?;
    if let CliRequest::Print(text) | CliRequest::Manual(text) = request {
        return print(&text).map(|()| 0);
    }
    if let CliRequest::Help(text) = request {
        return print(&text.to_string()).map(|()| 0);
    }
    let CliRequest::Run(run) = request else {
        return Err(UsageError::new("only runs can be rehearsed; leave out the second word"));
    };
    if run.session.directory.is_some() {
        return Err(UsageError::new("a rehearsal works in a folder of its own; leave -C out"));
    }
    if !run.output.quiet {
        chosen.report_omissions();
        report_clock(chosen.scenario.time_scale);
    }
    isolation::redirect(&mut context, &rehearsal, &run);
    let has_flags = !args.flags.is_empty();
    let passed = Mutex::new(None);
    let exit_check = |code: u8, reason: &str| {
        let deviations = rehearsal.check(code, reason, has_flags);
        if deviations.is_empty() {
            *passed.lock() = Some(code);
        }
        deviations
    };
    let code = if run.output.is_driven_by_host() {
        Box::pin(host::drive(&run, context, &exit_check)).await?
    } else {
        Box::pin(super::run::run(&run, context, &exit_check)).await?
    };
    // After a failure the result has reported the reason.
    if *passed.lock() == Some(code) && !run.output.quiet {
        let Scenario { name, expect, .. } = rehearsal.server.scenario();
        let how = if rehearsal.is_interrupted(code) {
            ", interrupted"
        } else if has_flags {
            "; with flags after -- only the requests are checked"
        } else if expect.exit.is_none() && expect.terminal_reason.is_none() {
            "; the scenario expects no particular end"
        } else {
            ", as expected"
        };
        print_message(&format!("rehearsed {name}: exit {code}{how}"));
    }
    Ok(code)
}

impl RehearsalRun {
    /// Creates the scenario's files and starts its server.
    fn start(
        scenario: Scenario,
        port: Option<u16>,
        retention: RequestRetention,
    ) -> Result<Self, UsageError> {
        let failed = |what: &'static str| {
            move |error: io::Error| {
                UsageError::new(format!("{what} could not be created for the rehearsal: {error}"))
            }
        };
        let scratch = ScratchFolder::create(&scenario).map_err(failed("the scratch folder"))?;
        let options = ServerOptions {
            port: port.unwrap_or(0),
            time_scale: None,
            cwd: Some(scratch.path().to_path_buf()),
            retention,
        };
        let server = RehearsalServer::start(scenario, options)
            .map_err(failed("a server on a port of loopback"))?;
        scratch.fill_in(&server).map_err(failed("the files of the scenario"))?;
        Ok(Self { server, scratch })
    }

    /// Serves the scenario until a signal arrives, which is the normal end.
    async fn serve(&self, args: &RehearseArgs, context: ProcessContext) -> Result<u8, UsageError> {
        print(&format!("{}\n", self.server.base_url()))?;
        for (name, server) in self.server.others() {
            print(&format!("{name} {}\n", server.base_url()))?;
        }
        context.signals.first().await;
        self.finish_serving(args.record.as_deref())
    }

    /// Builds the command line of the run from the scenario and the user's flags.
    fn run_args(&self, args: &RehearseArgs) -> Result<CliRequest, UsageError> {
        let scenario = self.server.scenario();
        let scale = format!("--time-scale={}", scenario.time_scale);
        // A rehearsal leaves nothing behind. The user's settings are ignored unless flags after
        // `--` request them: they may lead to real services, or fetch a real key.
        let isolated =
            ["run", &scale, "--no-session-persistence", "--setting-sources=", "--no-shared-limits"];
        let mut words = isolated.map(str::to_owned).to_vec();
        words.extend(scenario.args.iter().map(|arg| self.server.fill_in(arg)));
        words.extend_from_slice(&args.flags);
        let mut request = args::parse(&words)?;
        if let CliRequest::Run(run) = &mut request {
            self.add_defaults(run);
        }
        Ok(request)
    }

    fn add_defaults(&self, run: &mut RunArgs) {
        let has_input = run.output.stdin || run.output.is_driven_by_host();
        if run.prompt.is_none() && !has_input {
            run.prompt = Some(self.server.fill_in(&self.server.scenario().prompt));
        }
        // An empty flag outranks the setting.
        run.flags.give_default("api-key-helper", "");
        if !run.flags.has("fallback-model") {
            run.flags.give_default("no-fallback", "true");
        }
        run.session.state_folder = Some(self.scratch.home().join(CONFIG_FOLDER));
    }

    /// Writes the requests to `record`, and returns the exit code: an error if the real service
    /// would have rejected one.
    fn finish_serving(&self, record: Option<&Path>) -> Result<u8, UsageError> {
        if let Some(path) = record {
            let servers = [&self.server].into_iter().chain(self.server.others().map(|it| it.1));
            let requests = servers.flat_map(RehearsalServer::requests);
            let lines = requests
                .map(|request| json!({ "path": request.path, "body": request.body }).to_string());
            fs::write(path, lines.chain([String::new()]).collect::<Vec<_>>().join("\n")).map_err(
                |error| {
                    UsageError::new(format!("--record {}: {error}; name another", path.display()))
                },
            )?;
        }
        match self.joined(&self.server.violations()).as_slice() {
            [] => Ok(0),
            faults => Err(UsageError::of(UsageErrorKind::RehearsalFailed, faults.join("; "))),
        }
    }

    /// Returns the deviations from the expectations of the scenario, as one sentence. Flags of the
    /// user may change the end of a run, so with them only the requests are checked.
    fn check(&self, code: u8, reason: &str, has_flags: bool) -> Vec<String> {
        if has_flags || self.is_interrupted(code) {
            return self.joined(&self.server.violations());
        }
        let outcome = ObservedOutcome {
            exit: i32::from(code),
            // A host gets no terminal reason.
            terminal_reason: (!reason.is_empty()).then_some(reason),
            folder: self.scratch.path(),
            stderr: None,
        };
        self.joined(&self.server.verify(&outcome))
    }

    /// Returns true if the user stopped the run: a signal ended it that the scenario does not
    /// expect.
    fn is_interrupted(&self, code: u8) -> bool {
        code > SIGNAL_BASE && self.server.scenario().expect.exit != Some(i32::from(code))
    }

    /// Joins deviations to one sentence with the name of the scenario.
    fn joined(&self, deviations: &[String]) -> Vec<String> {
        let name = &self.server.scenario().name;
        let joined = || format!("rehearsal {name}: {}", deviations.join("; "));
        Vec::from_iter((!deviations.is_empty()).then(joined))
    }
}

/// Reports on a terminal that the clock is scaled. Otherwise, a wait of minutes that ends within a
/// second would look like a defect.
fn report_clock(time_scale: f64) {
    if time_scale > 1.0 && io::stderr().is_terminal() {
        print_message(&format!("the clock of this rehearsal runs {time_scale} times as fast"));
    }
}

/// Writes a scenario to a new file.
fn save(path: &Path, text: &str) -> Result<(), UsageError> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let is_there = error.kind() == io::ErrorKind::AlreadyExists;
        let what =
            if is_there { "it exists, and would be overwritten" } else { &error.to_string() };
        UsageError::new(format!("--save {}: {what}; name another file", path.display()))
    })
}
