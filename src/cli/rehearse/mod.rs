//! `outlast rehearse`: the real loop over real HTTP, against a server that plays a script.

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
use super::output::{TerminalFilter, one_line};
use super::run::ProcessContext;
use super::stdout::{print, print_report};
use super::usage::{UsageError, UsageErrorKind};
use choice::ChosenScenario;

/// Exit codes above this are those of runs that a signal ended.
const SIGNAL_BASE: u8 = 128;

/// A running scenario: its server, and the scratch folders to work in.
struct RehearsalRun {
    server: RehearsalServer,
    scratch: ScratchFolder,
}

/// Rehearses, or serves a rehearsal for another program.
///
/// # Errors
/// It could not begin.
pub(super) async fn rehearse(args: &RehearseArgs, world: ProcessContext) -> Result<u8, UsageError> {
    if args.list {
        print_report(&if args.json { listing::json() } else { listing::text() })?;
        return Ok(0);
    }
    // Errors in the flags are reported before the setup.
    args::parse(&args.flags)?;
    let chosen = choice::choose(args, &world).await?;
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
        let stage = RehearsalRun::start(chosen.scenario, args.port, retention)?;
        return serve(stage, args, world).await;
    }
    run(chosen, args, world).await
}

/// Runs a scenario, and reports the exit code and whether it was the expected one.
async fn run(
    chosen: ChosenScenario,
    args: &RehearseArgs,
    mut world: ProcessContext,
) -> Result<u8, UsageError> {
    let stage = RehearsalRun::start(chosen.scenario.clone(), None, RequestRetention::Heads)?;
    let request = stage.run_args(args)?;
    if let CliRequest::Print(text) | CliRequest::Manual(text) = request {
        print(&text)?;
        return Ok(0);
    }
    if let CliRequest::Help(text) = request {
        print(&text.to_string())?;
        return Ok(0);
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
    isolation::redirect(&mut world, &stage, &run);
    let own_flags = !args.flags.is_empty();
    let passed = Mutex::new(None);
    let exit_check = |code: u8, reason: &str| {
        let faults = stage.check(code, reason, own_flags);
        if faults.is_empty() {
            *passed.lock() = Some(code);
        }
        faults
    };
    let code = if run.output.is_driven_by_host() {
        Box::pin(host::drive(&run, world, &exit_check)).await?
    } else {
        Box::pin(super::run::run(&run, world, &exit_check)).await?
    };
    // After a failure the result has reported the reason.
    if *passed.lock() == Some(code) && !run.output.quiet {
        let expect = &stage.server.scenario().expect;
        let how = if stage.is_interrupted(code) {
            ", interrupted"
        } else if own_flags {
            "; with flags after -- only the requests are checked"
        } else if expect.exit.is_none() && expect.terminal_reason.is_none() {
            "; the scenario expects no particular end"
        } else {
            ", as expected"
        };
        say(&format!("rehearsed {}: exit {code}{how}", stage.server.scenario().name));
    }
    Ok(code)
}

/// Serves a scenario until a signal arrives, which is the normal end.
async fn serve(
    stage: RehearsalRun,
    args: &RehearseArgs,
    world: ProcessContext,
) -> Result<u8, UsageError> {
    print(&format!("{}\n", stage.server.base_url()))?;
    for (name, server) in stage.server.others() {
        print(&format!("{name} {}\n", server.base_url()))?;
    }
    world.signals.first().await;
    stage.finish_serving(args.record.as_deref())
}

impl RehearsalRun {
    /// Creates the scenario's files and starts its server.
    fn start(
        scenario: Scenario,
        port: Option<u16>,
        retention: RequestRetention,
    ) -> Result<Self, UsageError> {
        let broken = |what: &str, error: io::Error| {
            UsageError::new(format!("{what} could not be had for the rehearsal: {error}"))
        };
        let scratch =
            ScratchFolder::create(&scenario).map_err(|error| broken("a scratch folder", error))?;
        let options = ServerOptions {
            port: port.unwrap_or(0),
            time_scale: None,
            cwd: Some(scratch.path().to_path_buf()),
            retention,
        };
        let server = RehearsalServer::start(scenario, options)
            .map_err(|error| broken("a port on loopback", error))?;
        scratch.fill_in(&server).map_err(|error| broken("the scratch folder", error))?;
        Ok(Self { server, scratch })
    }

    /// Builds the command line of the run from the scenario and the user's flags.
    fn run_args(&self, args: &RehearseArgs) -> Result<CliRequest, UsageError> {
        let scenario = self.server.scenario();
        let scale = format!("--time-scale={}", scenario.time_scale);
        // A rehearsal leaves nothing behind. The user's settings are ignored unless asked for after
        // `--`: they may lead to real services, or fetch a real key.
        let alone = ["--no-session-persistence", "--setting-sources=", "--no-shared-limits"];
        let alone = alone.map(str::to_owned);
        let begin = [vec!["run".to_owned(), scale], alone.to_vec()].concat();
        let own = scenario.args.iter().map(|arg| self.server.fill_in(arg)).collect();
        let mut request = args::parse(&[begin, own, args.flags.clone()].concat())?;
        if let CliRequest::Run(run) = &mut request {
            self.complete(run);
        }
        Ok(request)
    }

    fn complete(&self, run: &mut RunArgs) {
        let is_asked = run.output.stdin || run.output.is_driven_by_host();
        if run.prompt.is_none() && !is_asked {
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
            let lines =
                requests.map(|it| format!("{}\n", json!({ "path": it.path, "body": it.body })));
            fs::write(path, lines.collect::<Vec<_>>().concat()).map_err(|error| {
                UsageError::new(format!("--record {}: {error}; name another", path.display()))
            })?;
        }
        match self.named(self.server.violations()).as_slice() {
            [] => Ok(0),
            faults => Err(UsageError::of(UsageErrorKind::RehearsalFailed, faults.join("; "))),
        }
    }

    /// Returns the deviations from what the scenario expects, as one sentence. Flags of the user
    /// may change how a run ends, so then only the requests are checked.
    fn check(&self, code: u8, reason: &str, own_flags: bool) -> Vec<String> {
        if own_flags || self.is_interrupted(code) {
            return self.named(self.server.violations());
        }
        let outcome = ObservedOutcome {
            exit: i32::from(code),
            // A host gets no terminal reason.
            terminal_reason: (!reason.is_empty()).then_some(reason),
            folder: self.scratch.path(),
            stderr: None,
        };
        self.named(self.server.verify(&outcome))
    }

    /// Returns true if a signal ended the run that the scenario does not send: the user stopped it.
    fn is_interrupted(&self, code: u8) -> bool {
        code > SIGNAL_BASE && self.server.scenario().expect.exit != Some(i32::from(code))
    }

    fn named(&self, faults: Vec<String>) -> Vec<String> {
        let name = &self.server.scenario().name;
        if faults.is_empty() {
            faults
        } else {
            vec![format!("rehearsal {name}: {}", faults.join("; "))]
        }
    }
}

/// Reports on a terminal that the clock is scaled. A user would take a wait of minutes that is over
/// in a second for a mistake.
fn report_clock(time_scale: f64) {
    if time_scale > 1.0 && io::stderr().is_terminal() {
        say(&format!("the clock of this rehearsal runs {time_scale} times as fast"));
    }
}

/// Writes a scenario to a new file.
fn save(path: &Path, text: &str) -> Result<(), UsageError> {
    let shown = path.display();
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let what = if error.kind() == io::ErrorKind::AlreadyExists {
            "it exists, and would be overwritten".to_owned()
        } else {
            error.to_string()
        };
        UsageError::new(format!("--save {shown}: {what}; name another file"))
    })
}

/// Prints a line to standard error.
fn say(line: &str) {
    let mut stderr = TerminalFilter::messages(io::stderr().lock());
    // Standard error may not be read.
    let _ = stderr.write_all(format!("outlast: {}\n", one_line(line)).as_bytes());
}
