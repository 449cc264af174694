//! `outlast mcp login NAME` and `mcp logout NAME`: the logins of the user at MCP servers.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::mcp::{
    HttpAddress, LoginEnvironment, LoginError, LoginFolder, LoginState, LoginWay, OAuthSettings,
    PendingLogin, ServerAddress, ServerConfig, begin_login,
};
use crate::secrets::{KnownSecrets, Redactor};

use super::args::ServerLoginArgs;
use super::output::{one_line, print_message};
use super::settings::SettingsSurvey;
use super::signals::SignalState;
use super::stdout;
use super::usage::UsageError;
use super::web::http_clients;

/// The time limit of a login without `--wait`.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The time between two lines that report the wait.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The variable with the secret of a client whose entry has only its identifier.
const CLIENT_SECRET: &str = "MCP_CLIENT_SECRET";

/// Logs the user in at a server. The exit code is 1 if that fails.
///
/// # Errors
/// There is no such server or no terminal, or a signal came.
pub(super) async fn login(
    args: &ServerLoginArgs,
    survey: &SettingsSurvey,
    signals: &SignalState,
) -> Result<u8, UsageError> {
    let name = args.server.as_str();
    let mut address = address_of(name, survey)?.clone();
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(UsageError::new(
            "outlast mcp login needs a person at a terminal; where there is none, give the entry of \
             the server \"oauth\" with \"clientId\" and \"clientSecret\", or a token in \"headers\"",
        ));
    }
    add_client_secret(&mut address.oauth, survey);
    let secrets = KnownSecrets::new(survey.secrets());
    let redactor = Redactor::new(secrets.clone());
    let environment = LoginEnvironment {
        config_dir: survey.inputs.config_dir.clone(),
        http: http_clients(&survey.endpoint),
        secrets,
        redactor: redactor.clone(),
    };
    let way = if args.device { LoginWay::Device } else { LoginWay::Browser };
    let working = log_in(name, &address, &environment, way, args.wait.unwrap_or(WAIT_MAX));
    let ended = tokio::select! {
        biased;
        interrupt = signals.first() => return Err(UsageError::interrupted(interrupt)),
        ended = working => ended?,
    };
    match ended {
        Ok(()) => {
            stdout::print(&format!("Logged in at {}; runs renew it.\n", one_line(name)))?;
            Ok(0)
        }
        Err(error) => {
            print_message(&redactor.redact(&format!("no login at {name:?}: {error}")));
            Ok(1)
        }
    }
}

async fn log_in(
    name: &str,
    address: &HttpAddress,
    environment: &LoginEnvironment,
    way: LoginWay,
    wait: Duration,
) -> Result<Result<(), LoginError>, UsageError> {
    let pending = match begin_login(name, address, way, environment).await {
        Ok(pending) => pending,
        Err(error) => return Ok(Err(error)),
    };
    stdout::print(&instructions(&pending))?;
    let end = Instant::now() + wait;
    let mut next = Instant::now() + HEARTBEAT;
    let finishing = timeout_at(end, pending.finish());
    tokio::pin!(finishing);
    loop {
        tokio::select! {
            finished = &mut finishing => {
                let seconds = wait.as_secs();
                let late = || LoginError::new(format!(
                    "the browser did not come back within {seconds} s; try again, with --wait 15m \
                     for more time"
                ));
                return Ok(finished.unwrap_or_else(|_| Err(late())));
            }
            () = sleep_until(next) => {
                next += HEARTBEAT;
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                print_message(&format!("waiting for the login in the browser, for {left} s more"));
            }
        }
    }
}

fn instructions(pending: &PendingLogin) -> String {
    let page = pending.page();
    match (pending.code(), pending.port()) {
        (Some(code), _) => {
            format!("Open this page in a browser, and type the code {code}:\n\n  {page}\n\n")
        }
        (None, port) => {
            let port = port.unwrap_or_default();
            format!(
                "Open this page in a browser on this machine, and log in there:\n\n  {page}\n\nFor a \
                 browser on another machine, open the way back first: ssh -L {port}:localhost:{port} \
                 THIS-MACHINE; or try --device.\n"
            )
        }
    }
}

/// Removes the login at a server. The exit code is 1 if there is none.
///
/// # Errors
/// There is no such server, or the login cannot be removed.
pub(super) fn logout(name: &str, survey: &SettingsSurvey) -> Result<(String, u8), UsageError> {
    let url = &address_of(name, survey)?.url;
    let folder = LoginFolder::within(&survey.inputs.config_dir);
    let name = one_line(name);
    match folder.remove(&name, url) {
        Ok(true) => {
            Ok((format!("Removed the login at {name}. Its tokens end by themselves.\n"), 0))
        }
        Ok(false) => Ok((format!("there is no login at {name}\n"), 1)),
        Err(error) => {
            let why = format!("the login at {name} cannot be removed: {error}");
            Err(UsageError::new(why))
        }
    }
}

/// Returns the transport of a server and the state of its login, without a request to the server.
pub(super) fn state(name: &str, survey: &SettingsSurvey) -> Option<String> {
    let server = survey.servers.iter().find(|server| server.name == name)?;
    Some(match &server.place {
        ServerAddress::Program { .. } => "stdio".to_owned(),
        ServerAddress::Host => "in the host".to_owned(),
        ServerAddress::Http(address) => {
            let kind = address.kind.name();
            format!("{kind}, {}", login_state(&server.name, address, survey))
        }
    })
}

fn login_state(name: &str, address: &HttpAddress, survey: &SettingsSurvey) -> String {
    if address.helper.is_some() {
        return "headers of a command".to_owned();
    }
    if !address.takes_login() {
        return "token in its headers".to_owned();
    }
    let is_client = address.oauth.as_ref().is_some_and(|oauth| oauth.client_secret.is_some());
    match LoginFolder::within(&survey.inputs.config_dir).state(name, &address.url) {
        LoginState::LoggedIn { is_renewable: true, .. } => "logged in".to_owned(),
        LoginState::LoggedIn { ends: Some(end), .. } if end <= SystemTime::now() => {
            format!("login has ended: outlast mcp login {name}")
        }
        LoginState::LoggedIn { ends: Some(end), .. } => {
            let end = Timestamp::try_from(end).map(|end| end.strftime("%Y-%m-%d %H:%M UTC"));
            let end = end.map_or_else(|_| "later".to_owned(), |end| end.to_string());
            format!("logged in until {end}, not renewable")
        }
        LoginState::LoggedIn { ends: None, .. } => "logged in, not renewable".to_owned(),
        LoginState::Client | LoginState::None if is_client => "logs in as a client".to_owned(),
        LoginState::Client | LoginState::None => "no login".to_owned(),
        LoginState::Unreadable(why) => format!("login cannot be read: {why}"),
    }
}

fn address_of<'a>(name: &str, survey: &'a SettingsSurvey) -> Result<&'a HttpAddress, UsageError> {
    let missing = || {
        let known = survey.servers.iter().map(|server: &ServerConfig| server.name.as_str());
        let known: Vec<&str> = known.collect();
        let known = if known.is_empty() { "none is set".to_owned() } else { known.join(", ") };
        UsageError::new(format!("no MCP server is named {name:?} (there are: {known})"))
    };
    let server = survey.servers.iter().find(|server| server.name == name).ok_or_else(missing)?;
    match &server.place {
        ServerAddress::Http(address) if address.takes_login() => Ok(address),
        ServerAddress::Http(_) => Err(UsageError::new(format!(
            "the MCP server {name:?} gets its token from its \"headers\" or \"headersHelper\", not \
             from a login; remove those to log in"
        ))),
        ServerAddress::Program { .. } | ServerAddress::Host => Err(UsageError::new(format!(
            "the MCP server {name:?} has no \"url\", and only those have logins"
        ))),
    }
}

/// Adds the secret in the variable, if the server's entry has a client id without a secret.
fn add_client_secret(oauth: &mut Option<OAuthSettings>, survey: &SettingsSurvey) {
    let secret = survey.inputs.variables.get(OsStr::new(CLIENT_SECRET)).and_then(|it| it.to_str());
    if let Some(oauth) = oauth
        && oauth.client_id.is_some()
        && oauth.client_secret.is_none()
    {
        oauth.client_secret = secret.filter(|it| !it.is_empty()).map(ToOwned::to_owned);
    }
}
