//! Any settings, variables and command line: a run, or a mistake that is named.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::{Tape, folder, work};
use outlast::cli::args::{self, CliRequest};
use outlast::cli::settings;
use outlast::journal::Terms;

const VARIABLES: [&str; 15] = [
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "API_TIMEOUT_MS",
    "BASH_DEFAULT_TIMEOUT_MS",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES",
    "HTTPS_PROXY",
    "MAX_THINKING_TOKENS",
    "NO_PROXY",
    "OUTLAST_FALLBACK_MODEL",
    "OUTLAST_MAX_DURATION",
    "OUTLAST_UNATTENDED_RETRY",
];

fn resolve(words: &[&str], variables: BTreeMap<OsString, OsString>) {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let Ok(CliRequest::Run(args)) = args::parse(&words) else { return };
    match settings::resolve(&args, variables, work(), &Terms::default()) {
        Ok(settings) => {
            assert!(!settings.chain.links.is_empty(), "a run needs a model");
            let shown = format!(
                "{:?}",
                (&settings.endpoint, &settings.chain, settings.all_warnings().collect::<Vec<_>>(),)
            );
            assert!(!shown.contains("sk-secret-0123456789"), "{shown}");
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.trim().is_empty());
            assert!(!said.contains("sk-secret-0123456789"), "{said}");
        }
    }
}

fn home() -> BTreeMap<OsString, OsString> {
    BTreeMap::from([
        ("HOME".into(), folder().join("home").into()),
        ("ANTHROPIC_API_KEY".into(), "sk-secret-0123456789".into()),
    ])
}

pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    match mode % 3 {
        0 => {
            // Anything that does not begin like JSON is the name of a file.
            let text = format!("{{{}", String::from_utf8_lossy(rest));
            resolve(&["hi", "--settings", &text], home());
        }
        1 => {
            let words = String::from_utf8_lossy(rest);
            let words: Vec<String> = words.split('\0').map(str::to_owned).collect();
            // Only taken apart: what it names is not looked at.
            let _ = args::parse(&words);
        }
        _ => {
            let (mut tape, mut variables) = (Tape(rest), home());
            while !tape.is_over() {
                let name = *tape.pick(&VARIABLES);
                variables.insert(name.into(), tape.text(60).replace('\0', "").into());
            }
            resolve(&["hi"], variables);
        }
    }
}
