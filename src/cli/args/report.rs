//! The flags of `outlast report`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::sessions::parse_age;
use crate::cli::usage::UsageError;

/// Arguments of `outlast report`.
#[derive(Clone, Debug, Default, Args)]
pub struct ReportArgs {
    /// IDs of sessions, beginnings of IDs, names, or `latest` (the default)
    #[arg(value_name = "SESSION", conflicts_with_all = ["all", "all_projects", "since"])]
    pub sessions: Vec<String>,
    /// Report on all sessions of the working directory
    #[arg(long)]
    pub all: bool,
    /// Report on all sessions of all folders
    #[arg(long)]
    pub all_projects: bool,
    /// Only sessions that were used within this time, such as 7d or 12h; alone: of the working
    /// directory
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub since: Option<Duration>,
    /// The format. Default: by the extension of --output (.md, .json, .xml, .html), or else table
    #[arg(long, value_enum, ignore_case = true)]
    pub format: Option<ReportFormat>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Text for a terminal
    #[default]
    #[value(aliases = ["text", "txt"])]
    Table,
    /// For a step summary or a comment
    #[value(alias = "md")]
    Markdown,
    /// For programs
    Json,
    /// A test case for each session, for CI systems
    #[value(alias = "xml")]
    Junit,
    /// One self-contained page with a timeline
    Html,
}

impl ReportArgs {
    /// Returns the requested format, or the one that the extension of the output file implies.
    ///
    /// # Errors
    /// The extension is not that of a report format.
    pub fn format(&self) -> Result<ReportFormat, UsageError> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let extension = self.output.as_deref().and_then(Path::extension);
        let extension = extension.map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            None | Some("" | "txt" | "text" | "log") => Ok(ReportFormat::Table),
            Some("md" | "markdown") => Ok(ReportFormat::Markdown),
            Some("json") => Ok(ReportFormat::Json),
            Some("xml") => Ok(ReportFormat::Junit),
            Some("html" | "htm") => Ok(ReportFormat::Html),
            Some(other) => Err(UsageError::new(format!(
                "--output: there is no report in the format {other:?}; end the name in .txt, .md, .json, \
                 .xml or .html, or name a --format"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_says_the_format_unless_a_flag_does() {
        let format = |name: &str, format| {
            let output = Some(PathBuf::from(name));
            ReportArgs { format, output, ..ReportArgs::default() }.format()
        };
        assert!(format("a.pdf", None).is_err(), "there is no such report");
        assert_eq!(format("a.pdf", Some(ReportFormat::Html)), Ok(ReportFormat::Html));
        let table = [
            ("a.HTML", ReportFormat::Html),
            ("b/a.md", ReportFormat::Markdown),
            ("a.json", ReportFormat::Json),
            ("a.xml", ReportFormat::Junit),
            ("a.txt", ReportFormat::Table),
            ("html", ReportFormat::Table),
        ];
        for (name, expected) in table {
            assert_eq!(format(name, None), Ok(expected), "{name}");
            let extension = name.rsplit('.').next().unwrap_or_default();
            let is_named = ReportFormat::from_str(extension, true) == Ok(expected);
            assert!(is_named || name == "html", "{name}");
        }
        assert_eq!(format("a.html", Some(ReportFormat::Json)), Ok(ReportFormat::Json));
        assert_eq!(ReportArgs::default().format(), Ok(ReportFormat::Table));
    }
}
