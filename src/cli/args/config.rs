//! The flags of `outlast config`.

use clap::{Args, Subcommand};

/// Arguments of `outlast config`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub action: Option<ConfigAction>,
    /// Print only settings that are not at their defaults
    #[arg(long)]
    pub changed: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Print the JSON Schema of a settings file, for editors
    #[arg(long, conflicts_with_all = ["json", "changed", "flags"])]
    pub schema: bool,
    /// Flags of `outlast run` that outrank the rest, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// Write a settings file with every setting in a comment, at its default
    Init(InitConfigArgs),
    /// Print the value of one setting
    Get(GetSettingArgs),
}

#[derive(Clone, Debug, Args)]
pub struct InitConfigArgs {
    /// Write the user's file, ~/.outlast/settings.json (the default)
    #[arg(long, conflicts_with = "project")]
    pub user: bool,
    /// Write the file of the project in this folder, .outlast/settings.json
    #[arg(long)]
    pub project: bool,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Args)]
pub struct GetSettingArgs {
    /// The name of a setting: maxTurns, or permissions.allow
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Print one JSON object with the value and its source
    #[arg(long)]
    pub json: bool,
    /// Flags of `outlast run` that outrank the rest, after `--`
    #[arg(last = true, value_name = "OPTIONS")]
    pub flags: Vec<String>,
}
