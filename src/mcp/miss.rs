//! What the library's errors mean. Its types do not tell all of it; its words have to.

use rmcp::service::{ClientInitializeError, ServiceError};

use super::state::Loss;

pub(super) fn loss_over_http(error: &ClientInitializeError) -> Loss {
    let text = chain(error);
    if error.is_authorization_required() || wants_login(&text) {
        Loss::NeedsAuth("it wants a login".to_owned())
    } else if ["400", "403", "404", "405", "410"].iter().any(|code| {
        // Two wordings of the library's.
        text.contains(&format!("({code} ")) || text.contains(&format!("HTTP {code}"))
    }) {
        Loss::Final(text.chars().take(300).collect())
    } else {
        Loss::Passing(text.chars().take(300).collect())
    }
}

/// An error and what it comes from, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    // The library's own names say nothing to people.
    match text.split_once("] error: ") {
        Some((_, rest)) => rest.to_owned(),
        None => text,
    }
}

fn wants_login(text: &str) -> bool {
    ["Auth required", "authorization required", "(401 ", "HTTP 401", "Insufficient scope"]
        .iter()
        .any(|words| text.contains(words))
}

/// How servers and the library say that a session is forgotten.
const FORGOTTEN: [&str; 3] = ["session not found", "session expired", "no valid session"];

/// What became of a call that was not answered, or the words that came instead of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Miss {
    /// The connection is gone. Whether the call had an effect is unknown.
    Lost(String),
    /// The server has forgotten the session, and has not looked at the call.
    Expired,
    NeedsAuth,
    /// The server answered with an error of its own.
    Refused(String),
}

pub(super) fn miss(error: &ServiceError) -> Miss {
    if let ServiceError::McpError(error) = error {
        let text = error.message.to_lowercase();
        let is_about = |words: &str| text.contains(words);
        let forgotten = FORGOTTEN.into_iter().any(is_about)
            || text.contains("session") && error.code.0 == -32001;
        return if forgotten && [-32000, -32001].contains(&error.code.0) {
            Miss::Expired
        } else {
            Miss::Refused(error.message.to_string())
        };
    }
    let text = chain(error);
    let lower = text.to_lowercase();
    let short = text.chars().take(300).collect();
    if FORGOTTEN.into_iter().any(|words| lower.contains(words)) {
        Miss::Expired
    } else if wants_login(&text) {
        Miss::NeedsAuth
    } else if text.contains("HTTP 4") {
        // It answers, so the connection stands.
        Miss::Refused(short)
    } else {
        Miss::Lost(short)
    }
}
