//! Runs the commands of users that print credentials of a cloud.

use std::fmt::Display;
use std::time::Duration;

use serde_json::Value;

use super::super::fault::missing_credential;
use super::super::helper::HelperCommand;
use crate::json;
use crate::process::Supervisor;
use crate::recovery::Fault;

/// Timeout of a command that prints credentials.
const PRINT_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout of a command that logs in, perhaps with the help of a user.
const LOGIN_TIMEOUT: Duration = Duration::from_mins(3);

/// A command that prints credentials.
pub(super) fn printing(command: &str) -> HelperCommand {
    HelperCommand { limit: PRINT_TIMEOUT, ..HelperCommand::new(command) }
}

/// Runs a command that prints JSON. `name` is the setting that configures it.
pub(super) async fn printed_json(
    name: &str,
    helper: HelperCommand,
    supervisor: &Supervisor,
) -> Result<Value, Box<Fault>> {
    let printed = helper.output(supervisor).await.map_err(|error| failed(name, &error))?;
    json::read(&printed).map_err(|_| failed(name, &"printed no JSON object"))
}

/// Runs a command that renews a login. Its output is discarded.
pub(super) async fn run_login(
    name: &str,
    command: &str,
    supervisor: &Supervisor,
) -> Result<(), Box<Fault>> {
    let helper = HelperCommand { limit: LOGIN_TIMEOUT, ..HelperCommand::new(command) };
    helper.output(supervisor).await.map(drop).map_err(|error| failed(name, &error))
}

fn failed(name: &str, what: &dyn Display) -> Box<Fault> {
    missing_credential("cloud_command_failed", format!("the command of {name} {what}"))
}
