//! The topics of `outlast help`: pages, and sections of them.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use strsim::osa_distance;

use crate::cli::usage::UsageError;

/// Other names of pages and sections, and the page of a section whose heading is on several pages.
/// Any section is also found by its heading.
const ALIASES: [(&str, &str); 33] = [
    ("actions", "ci"),
    ("aws", "clouds"),
    ("azure", "clouds"),
    ("bedrock", "clouds"),
    ("budget", "result#costs"),
    ("claude", "compatibility"),
    ("container", "recipes#in-a-container"),
    ("cost", "result#costs"),
    ("credential", "credentials"),
    ("cron", "recipes#a-nightly-job"),
    ("docker", "recipes#in-a-container"),
    ("env", "environment"),
    ("exit", "exit-status"),
    ("exit-code", "exit-status"),
    ("exit-codes", "exit-status"),
    ("fallback", "settings#models"),
    ("flags", "options"),
    ("foundry", "clouds"),
    ("github", "ci"),
    ("gitlab", "ci"),
    ("kubernetes", "batch#kubernetes"),
    ("permissions", "security#permissions"),
    ("proxy", "outlast#network"),
    ("resume", "sessions"),
    ("retries", "recovery"),
    ("retry", "recovery"),
    ("sandbox", "security#sandbox"),
    ("slurm", "batch#slurm"),
    ("stdin", "standard-input"),
    ("timeout", "timers"),
    ("timeouts", "timers"),
    ("variables", "environment"),
    ("vertex", "clouds"),
];

/// The sections that the list of topics names.
const LISTED: [(&str, &str); 7] = [
    ("exit-codes", "what each exit code means"),
    ("environment", "every variable that is read"),
    ("options", "every option, as a table"),
    ("credentials", "where the API key is from"),
    ("permissions", "what the model may do, and how to allow more"),
    ("signals", "how a run ends early"),
    ("examples", "command lines to copy"),
];

/// The pages of the manual. A test compares them with the folder.
const PAGES: [&str; 19] = [
    include_str!("../../../man/outlast-agents.7.md"),
    include_str!("../../../man/outlast-batch.7.md"),
    include_str!("../../../man/outlast-ci.7.md"),
    include_str!("../../../man/outlast-clouds.7.md"),
    include_str!("../../../man/outlast-compatibility.7.md"),
    include_str!("../../../man/outlast-hooks.7.md"),
    include_str!("../../../man/outlast-host.7.md"),
    include_str!("../../../man/outlast-mcp.7.md"),
    include_str!("../../../man/outlast-network.7.md"),
    include_str!("../../../man/outlast-recipes.7.md"),
    include_str!("../../../man/outlast-recovery.7.md"),
    include_str!("../../../man/outlast-rehearse.7.md"),
    include_str!("../../../man/outlast-report.7.md"),
    include_str!("../../../man/outlast-result.7.md"),
    include_str!("../../../man/outlast-scenario.5.md"),
    include_str!("../../../man/outlast-security.7.md"),
    include_str!("../../../man/outlast-sessions.7.md"),
    include_str!("../../../man/outlast-settings.5.md"),
    include_str!("../../../man/outlast.1.md"),
];

/// A manual page, whose first line is `# outlast-hooks(7): what it is about`.
struct ManualPage {
    /// The name without the section: `outlast-hooks`.
    name: &'static str,
    /// The name with the section: `outlast-hooks(7)`.
    title: &'static str,
    about: &'static str,
    text: &'static str,
}

/// A part of a page, from its heading to the next one that is not below it.
struct PageSection {
    /// The heading as a topic: `exit-status`.
    slug: String,
    text: &'static str,
}

/// The pages, in the order of their sections of the manual.
fn pages() -> Vec<ManualPage> {
    let page = |text: &'static str| {
        let (title, about) = text.lines().next()?.strip_prefix("# ")?.split_once(": ")?;
        let (name, section) = title.split_once('(')?;
        Some((section, ManualPage { name, title, about, text }))
    };
    let mut pages: Vec<_> = PAGES.into_iter().filter_map(page).collect();
    pages.sort_unstable_by_key(|(section, page)| (*section, page.name));
    pages.into_iter().map(|(_, page)| page).collect()
}

impl ManualPage {
    /// The name by which `outlast help` finds it: `hooks` for outlast-hooks(7).
    fn topic(&self) -> &'static str {
        self.name.strip_prefix("outlast-").unwrap_or(self.name)
    }

    fn sections(&self) -> Vec<PageSection> {
        let mut headings: Vec<(HeadingLevel, usize, String)> = Vec::new();
        let mut is_heading = false;
        for (event, range) in Parser::new_ext(self.text, Options::ENABLE_TABLES).into_offset_iter()
        {
            if let Event::Start(Tag::Heading { level, .. }) = event {
                headings.push((level, range.start, String::new()));
                is_heading = true;
            } else if let Event::End(TagEnd::Heading(_)) = event {
                is_heading = false;
            } else if let (Event::Text(text) | Event::Code(text), true, Some(last)) =
                (event, is_heading, headings.last_mut())
            {
                last.2.push_str(&text);
            }
        }
        let section =
            |(index, (level, start, heading)): (usize, &(HeadingLevel, usize, String))| {
                let after = headings.iter().skip(index + 1).find(|(other, _, _)| other <= level);
                let end = after.map_or(self.text.len(), |(_, start, _)| *start);
                PageSection { slug: slug(heading), text: self.text[*start..end].trim_end() }
            };
        // The first heading is the title.
        headings.iter().enumerate().skip(1).map(section).collect()
    }
}

/// Normalises a topic as typed, or a heading: lower case, with a dash in place of other characters.
fn slug(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|one: char| !one.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// Returns the page of a topic (`hooks`, `outlast-hooks` or `outlast-hooks(7)`), or else a section
/// (`exit-codes`), as Markdown.
pub(in crate::cli) fn find(topic: &str) -> Option<String> {
    let name = topic.split('(').next().unwrap_or_default();
    let pages = pages();
    let page_named =
        |name: &str| pages.iter().find(|page| page.name == name || page.topic() == name);
    if let Some(page) = page_named(name) {
        return Some(page.text.to_owned());
    }
    let wanted = slug(topic);
    let alias = ALIASES.iter().find(|(alias, _)| *alias == wanted);
    let wanted = alias.map_or(wanted.as_str(), |(_, section)| section);
    if let Some(page) = page_named(wanted) {
        return Some(page.text.to_owned());
    }
    let (page, wanted) = wanted.split_once('#').unwrap_or(("", wanted));
    let is_page = |other: &&ManualPage| page.is_empty() || page == other.topic();
    pages.iter().filter(is_page).find_map(|page| {
        let section = page.sections().into_iter().find(|section| section.slug == wanted)?;
        let (title, whole) = (page.title, page.topic());
        Some(format!("{}\n\n(from {title}: outlast help {whole})\n", section.text))
    })
}

/// Lists the topics, as `outlast help` does. `commands` have help of their own.
pub(in crate::cli) fn contents(commands: &[&str]) -> String {
    let widest = topic_names().into_iter().map(str::len).max().unwrap_or_default();
    let line = |(topic, about)| format!("  {topic:<widest$}  {about}\n");
    let pages: String = pages().iter().map(|page| line((page.topic(), page.about))).collect();
    let sections: String = LISTED.into_iter().map(line).collect();
    format!(
        "outlast help TOPIC prints a page of the manual.\n\nPages:\n{pages}\n\
         Sections, found by any heading of a page:\n{sections}\n\
         Commands, with their options:\n  {}\n\n\
         A summary: outlast -h. All options: outlast --help.\n",
        commands.join(", ")
    )
}

/// Returns the pages that name a flag or a setting, most frequent mention first. The pages with the
/// tables of all flags and settings are left out.
pub(in crate::cli) fn pages_naming(names: &[String]) -> Vec<&'static str> {
    let is_part = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
    };
    let mentions = |text: &str, name: &str| {
        let found = text.match_indices(name);
        let is_whole = found.filter(|(at, _)| {
            let (mut before, mut after) = (text[..*at].chars(), text[at + name.len()..].chars());
            let next = after.next();
            // A full stop ends a sentence, unless the name continues after it.
            let continues = is_part(next) && (next != Some('.') || is_part(after.next()));
            !is_part(before.next_back()) && !continues
        });
        is_whole.count()
    };
    let with_tables = ["outlast", "settings"];
    let pages = pages().into_iter().filter(|page| !with_tables.contains(&page.topic()));
    let counted = pages.map(|page| {
        let count: usize = names.iter().map(|name| mentions(page.text, name)).sum();
        (std::cmp::Reverse(count), page.topic())
    });
    let mut counted: Vec<_> = counted.filter(|(count, _)| count.0 > 0).collect();
    counted.sort_unstable();
    counted.into_iter().map(|(_, topic)| topic).collect()
}

/// Returns the topics for completions: pages and the listed sections.
pub(in crate::cli) fn topic_names() -> Vec<&'static str> {
    let pages = pages().into_iter().map(|page| page.topic());
    pages.chain(LISTED.iter().map(|(topic, _)| *topic)).collect()
}

/// Returns the error for a topic that does not exist, with the topics that may be meant. `names`
/// are those of commands, flags and settings.
pub(in crate::cli) fn unknown_topic(topic: &str, names: &[&str]) -> UsageError {
    let shown: String = topic.chars().take(60).collect();
    let wanted = slug(topic);
    let sections = pages().iter().flat_map(ManualPage::sections).collect::<Vec<_>>();
    let known = topic_names().into_iter().chain(ALIASES.iter().map(|(alias, _)| *alias));
    let known = known.chain(names.iter().copied());
    let known = known.chain(sections.iter().map(|section| section.slug.as_str()));
    let mut near: Vec<(usize, &str)> = known
        .map(|name| (osa_distance(&wanted, name), name))
        .filter(|(distance, name)| *distance <= (name.len().max(3) / 3).min(3))
        .collect();
    near.sort_unstable();
    near.dedup();
    let names: Vec<&str> = near.into_iter().map(|(_, name)| name).take(3).collect();
    let hint = match names[..] {
        [] => "outlast help lists the topics".to_owned(),
        _ => format!("did you mean {}? outlast help lists the topics", names.join(" or ")),
    };
    UsageError::new(format!(
        "no page, section, command, flag or setting is named {shown:?}; {hint}"
    ))
}
