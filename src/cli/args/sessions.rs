//! The flags of `outlast sessions`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `outlast sessions`.
#[derive(Clone, Debug, Default, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SessionsArgs {
    #[command(subcommand)]
    pub action: Option<SessionsAction>,
    #[command(flatten)]
    pub list: ListSessionsArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SessionsAction {
    /// List the sessions, the last used first (the default)
    List(ListSessionsArgs),
    /// Print what happened in a session
    Show(ShowSessionArgs),
    /// Write a session as JSON
    Export(ExportSessionArgs),
    /// Delete sessions; at least one of the limits is needed
    Prune(PruneSessionsArgs),
}

#[derive(Clone, Debug, Default, Args)]
pub struct ListSessionsArgs {
    /// The sessions of all projects, not only of the working directory
    #[arg(long)]
    pub all_projects: bool,
    /// The maximum number of sessions; 0 for all. Default: 20, or all with --json
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON Lines: an object for each session
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ShowSessionArgs {
    /// The ID of a session, the beginning of its ID, its name, or `latest`
    #[arg(value_name = "ID", default_value = "latest")]
    pub id: String,
    /// Print everything: complete texts and tool output, tool input, thinking
    #[arg(long)]
    pub full: bool,
    /// Print only the last N messages and what follows them
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
}

#[derive(Clone, Debug, Args)]
pub struct ExportSessionArgs {
    /// The ID of a session, the beginning of its ID, its name, or `latest`
    #[arg(value_name = "ID")]
    pub id: String,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The format: a JSON document with the sub-agents, or the lines of the session's file as
    /// recorded
    #[arg(long, value_enum, default_value_t, ignore_case = true)]
    pub format: ExportFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    #[default]
    Json,
    Jsonl,
}

#[derive(Clone, Debug, Default, Args)]
pub struct PruneSessionsArgs {
    /// Delete sessions that were last used before this time, such as 30d or 12h
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub older_than: Option<Duration>,
    /// Keep the newest N sessions. Alone: delete all other finished sessions
    #[arg(long, value_name = "N")]
    pub keep: Option<usize>,
    /// Delete the oldest sessions until the rest is not larger than this, such as 500M or 1G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_size: Option<u64>,
    /// The sessions of all projects, not only of the working directory
    #[arg(long)]
    pub all_projects: bool,
    /// Only report what would be deleted
    #[arg(long)]
    pub dry_run: bool,
}

/// The reason that a limit of a list is invalid, as the end of a sentence that quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidLimit {
    #[error("is not an age; write it like 30d or 12h")]
    Age,
    #[error("is not a size; write it like 500M or 1G")]
    Size,
}

pub(super) fn parse_age(text: &str) -> Result<Duration, InvalidLimit> {
    humantime::parse_duration(text.trim()).map_err(|_error| InvalidLimit::Age)
}

/// Reads an amount of bytes in units of 1024: `500M`, `1G`, `2GiB`.
fn parse_size(text: &str) -> Result<u64, InvalidLimit> {
    let text = text.trim();
    let digits = text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let power = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => Some(0),
        "K" => Some(1),
        "M" => Some(2),
        "G" => Some(3),
        "T" => Some(4),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(power);
    let bytes = bytes.and_then(|(number, power)| number.checked_mul(1024_u64.pow(power)));
    bytes.ok_or(InvalidLimit::Size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        for (text, bytes) in
            [("0", 0), ("7", 7), ("2k", 2048), ("1GiB", 1 << 30), (" 3 MB ", 3 << 20)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "1X", "1.5G", "99999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
