//! The flags of settings, made from the registry, and the values that they assign.

use std::collections::BTreeMap;

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use serde_json::{Value, json};

use super::kinds::FlagForm;
use super::registry::{find, settings};
use super::setting::{Setting, SettingFlag};
use super::settings::{LIMITS, MODEL, THINKING_TOKENS, TOOLS};
use crate::types::PermissionMode;

/// A flag that assigns one value to a setting that has a flag of its own, or none.
struct Shorthand {
    long: &'static str,
    heading: &'static str,
    help: &'static str,
    key: &'static str,
    value: fn() -> Value,
}

const SHORTHANDS: [Shorthand; 4] = [
    Shorthand {
        long: "no-fallback",
        heading: MODEL,
        help: "Do not use fallback models",
        key: "fallbackModel",
        value: || json!([]),
    },
    Shorthand {
        long: "no-auto-compact",
        heading: MODEL,
        help: "Do not summarise the conversation before it gets too long",
        key: "autoCompactEnabled",
        value: || json!(false),
    },
    Shorthand {
        long: "no-shared-limits",
        heading: LIMITS,
        help: "Do not share rate-limit state with other runs on this host",
        key: "sharedLimits",
        value: || json!(false),
    },
    Shorthand {
        long: "dangerously-skip-permissions",
        heading: TOOLS,
        help: "Like --permission-mode bypassPermissions",
        key: "permissions.defaultMode",
        value: || json!(PermissionMode::BypassPermissions),
    },
];

/// Flags that hosts send, and that the help leaves out.
const HIDDEN: [&str; 3] = ["dead-path-timeout", "max-thinking-tokens", "thinking-display"];

/// The flag for the mode of thinking. Its effect depends on `maxThinkingTokens`.
const THINKING: &str = "thinking";

/// The flags of settings that were given, by the names of the flags.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags {
    given: BTreeMap<&'static str, Vec<String>>,
}

/// A value that a flag assigns to a setting.
#[derive(Clone, Debug)]
pub struct FlagValue {
    pub setting: &'static Setting,
    /// Without the dashes.
    pub flag: &'static str,
    pub value: Value,
}

impl SettingFlags {
    /// Returns the texts that were given with a flag.
    pub fn texts(&self, flag: &str) -> &[String] {
        self.given.get(flag).map_or(&[], Vec::as_slice)
    }

    pub fn has(&self, flag: &str) -> bool {
        self.given.contains_key(flag)
    }

    /// Returns true if the flag of a setting was given, so that its variables have no effect.
    pub(super) fn outrank_variables(&self, setting: &Setting) -> bool {
        let assigns = |text: &String| !setting.is_unset_by(&json!(text));
        let is_given = |flag: SettingFlag| self.texts(flag.long).last().is_some_and(assigns);
        !setting.is_joined && setting.flag.is_some_and(is_given)
    }

    /// Adds a flag, unless it was given.
    pub fn give_default(&mut self, flag: &'static str, text: &str) {
        self.given.entry(flag).or_insert_with(|| vec![text.to_owned()]);
    }

    /// Sets a flag, or removes it.
    pub fn replace(&mut self, flag: &'static str, text: Option<String>) {
        match text {
            Some(text) => drop(self.given.insert(flag, vec![text])),
            None => drop(self.given.remove(flag)),
        }
    }

    /// Adds to the values that were given with a flag.
    pub fn extend(&mut self, flag: &'static str, texts: impl IntoIterator<Item = String>) {
        let mut texts = texts.into_iter().peekable();
        if texts.peek().is_some() {
            self.given.entry(flag).or_default().extend(texts);
        }
    }

    /// Removes the flags of settings that other sources determine.
    pub fn remove(&mut self, is_determined: impl Fn(&Setting) -> bool) {
        let thinking = find("maxThinkingTokens").map(|setting| (THINKING, setting));
        let flags = settings().iter().filter_map(|setting| Some((setting.flag?.long, setting)));
        let short = SHORTHANDS.iter().filter_map(|it| Some((it.long, find(it.key)?)));
        for (flag, setting) in flags.chain(short).chain(thinking) {
            if is_determined(setting) {
                self.given.remove(flag);
            }
        }
    }

    /// Returns the values of all flags. Flags that outrank others follow them. Collects the
    /// mistakes in them.
    pub fn values(&self, mistakes: &mut Vec<String>) -> Vec<FlagValue> {
        let mut values = Vec::new();
        for setting in settings() {
            let Some(SettingFlag { long, .. }) = setting.flag else { continue };
            let Some(texts) = self.given.get(long) else { continue };
            match setting.from_texts(texts) {
                Ok(value) => values.push(FlagValue { setting, flag: long, value }),
                Err(why) => mistakes.push(format!("--{long}: {why}")),
            }
        }
        for shorthand in SHORTHANDS.iter().filter(|shorthand| self.has(shorthand.long)) {
            values.extend(find(shorthand.key).map(|setting| FlagValue {
                setting,
                flag: shorthand.long,
                value: (shorthand.value)(),
            }));
        }
        values
    }

    /// Returns the flags of settings that a session does not keep, each with its values; `None`:
    /// the flag takes no value.
    pub fn not_kept(&self) -> Vec<(&'static str, Option<String>)> {
        let is_kept = |key: &str| find(key).is_some_and(|setting| setting.kept.is_some());
        let flags = settings().iter().filter(|setting| setting.kept.is_none());
        let flags = flags
            .filter_map(|setting| Some((setting.flag?.long, setting.form() != FlagForm::Switch)));
        let short = SHORTHANDS.iter().filter(|shorthand| !is_kept(shorthand.key));
        let short = short.map(|shorthand| (shorthand.long, false));
        let given = flags.chain(short).chain([(THINKING, true)]).filter(|(flag, _)| self.has(flag));
        let words = given.flat_map(|(flag, has_value)| {
            let values = self.texts(flag).iter().map(|text| Some(text.clone()));
            let values = if has_value { values.collect() } else { vec![None] };
            values.into_iter().map(move |value| (flag, value))
        });
        words.collect()
    }

    /// Returns the mode that `--thinking` names.
    pub fn thinking_mode(&self) -> Option<&str> {
        self.texts(THINKING).last().map(String::as_str)
    }
}

/// Returns the budget that a mode of `--thinking` sets. `has_budget` is true if another source sets
/// a budget.
pub fn thinking_budget(mode: &str, has_budget: bool) -> Option<FlagValue> {
    let tokens = match &*mode.to_ascii_lowercase() {
        "disabled" => 0,
        "adaptive" => return None,
        _ if has_budget => return None,
        _ => THINKING_TOKENS,
    };
    let setting = find("maxThinkingTokens")?;
    Some(FlagValue { setting, flag: THINKING, value: tokens.into() })
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let own = settings().iter().filter_map(argument);
        let short = SHORTHANDS.iter().map(|shorthand| {
            let flag = Arg::new(shorthand.long).long(shorthand.long).action(ArgAction::SetTrue);
            let flag = flag.help(shorthand.help).help_heading(shorthand.heading);
            if shorthand.long == "no-fallback" {
                flag.conflicts_with("fallback-model")
            } else {
                flag
            }
        });
        let thinking = Arg::new(THINKING)
            .long(THINKING)
            .value_name("MODE")
            .value_parser(["enabled", "adaptive", "disabled"])
            .ignore_case(true)
            .hide_possible_values(true)
            .help("The mode of thinking: enabled, adaptive or disabled")
            .help_heading(MODEL);
        command.args(own).args(short).arg(thinking)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns the flag of a setting for the parser.
fn argument(setting: &'static Setting) -> Option<Arg> {
    let SettingFlag { long, alias, value_name, heading } = setting.flag?;
    let mut meaning = first_part(&setting.meaning);
    // The texts of all its flags count.
    if setting.form() == FlagForm::Repeated {
        meaning.push_str("; may be repeated");
    }
    let default = setting.shown_default().filter(|_| setting.form() != FlagForm::Switch);
    // The manual, which shows the long help, has the defaults in its table of settings.
    let flag = Arg::new(long)
        .long(long)
        .alias(alias.unwrap_or(long))
        .help(default.map_or(meaning.clone(), |default| format!("{meaning} [default: {default}]")))
        .long_help(meaning)
        .hide(HIDDEN.contains(&long))
        .help_heading(heading);
    if setting.form() == FlagForm::Switch {
        return Some(flag.action(ArgAction::SetTrue));
    }
    let flag = flag.value_name(value_name);
    if setting.form() == FlagForm::Repeated {
        return Some(flag.action(ArgAction::Append).allow_negative_numbers(true));
    }
    let choices = setting.choices();
    Some(if choices.is_empty() {
        let read = |text: &str| setting.from_texts(&[text.to_owned()]).map(|_| text.to_owned());
        flag.value_parser(ValueParser::new(read)).allow_negative_numbers(true)
    } else {
        flag.value_parser(PossibleValuesParser::new(choices)).ignore_case(true)
    })
}

/// Returns the part of a setting's meaning that the help shows: up to the first semicolon or the
/// end of the sentence.
fn first_part(meaning: &str) -> String {
    let end = [meaning.find("; "), meaning.find(". ")].into_iter().flatten().min();
    meaning[..end.unwrap_or(meaning.len())].trim_end_matches('.').to_owned()
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let flags = settings().iter().filter_map(|setting| setting.flag).map(|flag| flag.long);
        let all = flags.chain(SHORTHANDS.iter().map(|it| it.long)).chain([THINKING]);
        let is_given = |long: &&str| matches.value_source(long) == Some(ValueSource::CommandLine);
        let texts = |long: &str| {
            let raw = matches.try_get_raw(long).ok().flatten().into_iter().flatten();
            raw.map(|text| text.to_string_lossy().into_owned()).collect()
        };
        let mut given = BTreeMap::new();
        for long in all.filter(is_given) {
            given.insert(long, texts(long));
        }
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.given.extend(Self::from_arg_matches(matches)?.given);
        Ok(())
    }
}
