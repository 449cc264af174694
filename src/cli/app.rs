//! From the process's arguments to its exit code.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use tokio::runtime::{self, Runtime};
use uuid::Uuid;

use crate::process::forbid_dumps;
use crate::secrets::{KnownSecrets, Mask};
use crate::tools::secret_values;

use super::args::{self, OutputFormat, Request, Wanted};
use super::environment::Variables;
use super::output::{refused, write_result_file};
use super::panics;
use super::rehearse;
use super::run::{self, World};
use super::usage::{Cause, UsageError};

/// Does what the command line says. Whatever happens, there is exactly one result.
pub fn main() -> ExitCode {
    panics::keep();
    forbid_dumps();
    let raw: Vec<OsString> = env::args_os().skip(1).collect();
    let wanted = Wanted::of(&raw);
    let code = match panics::caught(|| obey(raw)) {
        Some(Ok(code)) => code,
        Some(Err(error)) => refuse(&error, &wanted),
        None => {
            let what = format!("outlast itself broke: {}; please report this", panics::last());
            refuse(&UsageError::of(Cause::Internal, what), &wanted)
        }
    };
    ExitCode::from(code)
}

fn obey(raw: Vec<OsString>) -> Result<u8, UsageError> {
    match args::parse(&args::from_os(raw)?)? {
        Request::Print(text) => {
            print(&text);
            Ok(0)
        }
        Request::Run(args) => {
            let world = world()?;
            with_runtime(run::run(&args, world, &|_, _| Vec::new()))
        }
        Request::Rehearse(args) => {
            let world = world()?;
            with_runtime(rehearse::rehearse(&args, world))
        }
    }
}

/// What is read from the process, once.
fn world() -> Result<World, UsageError> {
    let variables: Variables = env::vars_os().collect::<BTreeMap<_, _>>();
    let cwd = env::current_dir().map_err(|error| {
        UsageError::new(format!("the working folder cannot be read: {error}; change to another"))
    })?;
    Ok(World { variables, cwd })
}

fn with_runtime(work: impl Future<Output = Result<u8, UsageError>>) -> Result<u8, UsageError> {
    let runtime: Runtime =
        runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(
            |error| UsageError::of(Cause::Internal, format!("no thread could be started: {error}")),
        )?;
    let ended = runtime.block_on(work);
    // A thread that still reads standard input must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Prints what was asked for. A reader that has gone has seen enough.
pub(super) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Says why nothing was begun: a line for people, and an object for programs.
fn refuse(error: &UsageError, wanted: &Wanted) -> u8 {
    let mask = Mask::new(KnownSecrets::new(secret_values(&env::vars_os().collect())));
    let _ = writeln!(io::stderr().lock(), "outlast: {}", mask.hide(&error.to_string()));
    let mut object = refused(error, "", &Uuid::new_v4().to_string());
    mask.hide_json(&mut object);
    let object = object.to_string();
    match wanted.format {
        OutputFormat::Text => {}
        OutputFormat::Json | OutputFormat::StreamJson => print(&format!("{object}\n")),
    }
    if let Some(path) = &wanted.result_file {
        // That it cannot be written may be the very mistake that was just told.
        let _ = write_result_file(path, &object);
    }
    error.verdict().exit_code()
}
