//! The report of the doctor for people: problems first, with the way to correct them.

use std::fmt::Write as _;

use crate::cli::output::{Paragraph, Screen, Tone, one_line};
use crate::config::format_took;
use crate::doctor::{DoctorReport, Finding, Severity};
use crate::text;

/// Width of the name of a check, with the space after it.
const NAME: usize = 15;

/// The column at which names begin.
const INDENT: usize = 2;

/// The headings, the most severe first.
const SECTIONS: [(Severity, &str, Tone); 3] = [
    (Severity::Problem, "Problems", Tone::Failure),
    (Severity::Warning, "Warnings", Tone::Warning),
    (Severity::Ok, "In order", Tone::Success),
];

/// Renders the report. Successful checks take one line each, unless it is `verbose`.
pub(super) fn text(report: &DoctorReport, verbose: bool, screen: &Screen) -> String {
    let mut text = String::new();
    for (severity, heading, tone) in SECTIONS {
        let mut findings = report.findings.iter().filter(|it| it.status == severity).peekable();
        if findings.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "{}", screen.styling.paint(tone, heading));
        for finding in findings {
            if severity == Severity::Ok && !verbose {
                text += &short_line(finding, screen);
            } else {
                text += &whole(finding, screen);
            }
            // Findings with a reason and a fix are easier to distinguish with some space.
            if severity != Severity::Ok {
                text.push('\n');
            }
        }
        if severity == Severity::Ok {
            text.push('\n');
        }
    }
    text + &verdict(report, verbose, screen)
}

fn verdict(report: &DoctorReport, verbose: bool, screen: &Screen) -> String {
    let (problems, warnings) = (report.count(Severity::Problem), report.count(Severity::Warning));
    let (tone, word) = match (problems, warnings) {
        (0, 0) => (Tone::Success, "healthy"),
        (0, _) => (Tone::Warning, "healthy"),
        _ => (Tone::Failure, "not healthy"),
    };
    let took = format_took(report.took);
    let word = screen.styling.paint(tone, word);
    let more = if verbose { "" } else { " (details: outlast doctor --verbose)" };
    let (problems, warnings) = (counted(problems, "problem"), counted(warnings, "warning"));
    format!("{word}: {problems}, {warnings}, {took}{more}\n")
}

fn counted(count: usize, what: &str) -> String {
    if count == 0 { format!("no {what}s") } else { text::counted(count, what) }
}

/// Returns the number of columns for the text beside the name of a check.
fn width(screen: &Screen) -> usize {
    screen.columns.saturating_sub(INDENT + NAME).max(20)
}

/// Renders the beginning of a finding, in one line.
fn short_line(finding: &Finding, screen: &Screen) -> String {
    let what = Paragraph::plain(&one_line(&finding.what));
    let width = width(screen);
    let (room, more) = if what.columns() > width { (width - 4, " ...") } else { (width, "") };
    let first = what.wrap(room, screen.styling).into_iter().next().unwrap_or_default();
    named(&finding.check, Tone::Plain, &format!("{first}{more}"), screen)
}

/// Renders a line that begins with the name of a check.
fn named(check: &str, tone: Tone, line: &str, screen: &Screen) -> String {
    let check = one_line(check);
    let padding = " ".repeat(NAME.saturating_sub(check.chars().count()).max(1));
    format!("{}{}{padding}{line}\n", " ".repeat(INDENT), screen.styling.paint(tone, &check))
}

/// Renders a whole finding: the problem, details, why it matters, and the fix.
fn whole(finding: &Finding, screen: &Screen) -> String {
    let Finding { check, what, details, why, fix, .. } = finding;
    let styling = screen.styling;
    let indent = " ".repeat(INDENT + NAME);
    // Further lines of a text are below the first one, after the prefix.
    let wrapped = |prefix: &str, text: &str| {
        let room = width(screen) - prefix.len();
        let lines = Paragraph::plain(&one_line(text)).wrap(room, styling);
        lines.join(&format!("\n{indent}{}", " ".repeat(prefix.len())))
    };
    let mut text = named(check, Tone::Strong, &wrapped("", what), screen);
    for detail in details {
        let _ = writeln!(text, "{indent}- {}", wrapped("- ", detail));
    }
    for (word, detail, tone) in [("why: ", why, Tone::Faint), ("fix: ", fix, Tone::Strong)] {
        if !detail.is_empty() {
            let _ =
                writeln!(text, "{indent}{}{}", styling.paint(tone, word), wrapped(word, detail));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::output::Styling;
    use crate::config::environment::ColorChoice;

    fn report(findings: Vec<Finding>) -> DoctorReport {
        DoctorReport { findings, took: Duration::from_millis(1500) }
    }

    fn screen(columns: usize, colours: ColorChoice) -> Screen {
        Screen { is_terminal: false, columns, rows: 24, styling: Styling::of(colours, false) }
    }

    #[test]
    fn problems_are_first_and_what_is_in_order_takes_one_line() {
        let findings = vec![
            Finding::ok("limits", "40 timers and limits, 2 of them changed, and more words")
                .with(["maxTurns 3".to_owned()]),
            Finding::warning("path", "two of them", "why it is", "remove one"),
            Finding::problem("mcp", "a\u{1b}[31m\nPROBLEM\u{202e} b", "it fails", "fix it")
                .with(["more of it".to_owned()]),
        ];
        let report = report(findings);
        let plain = screen(60, ColorChoice::Never);
        let wanted = "Problems\n  mcp            a [31m PROBLEM b\n                 - more of it\n\
            \u{20}                why: it fails\n                 fix: fix it\n\nWarnings\n  path   \
            \u{20}       two of them\n                 why: why it is\n                 fix: remove \
            one\n\nIn order\n  limits         40 timers and limits, 2 of them ...\n\n\
            not healthy: 1 problem, 1 warning, 1.5s (details: outlast doctor --verbose)\n";
        assert_eq!(text(&report, false, &plain), wanted);
        let verbose = text(&report, true, &plain);
        assert!(verbose.contains("changed,\n                 and more words\n"), "{verbose}");
        assert!(verbose.contains("                 - maxTurns 3\n"), "{verbose}");
        assert!(verbose.ends_with("not healthy: 1 problem, 1 warning, 1.5s\n"), "{verbose}");
    }

    #[test]
    fn colours_follow_the_severity() {
        let bad = report(vec![Finding::problem("mcp", "b", "w", "f")]);
        let coloured = text(&bad, false, &screen(80, ColorChoice::Always));
        assert!(coloured.starts_with("\u{1b}[31mProblems\u{1b}[0m\n  \u{1b}[1mmcp\u{1b}[0m  "));
        assert!(coloured.contains("\u{1b}[31mnot healthy\u{1b}[0m: 1 problem, no warnings"));
        let fine = text(&report(Vec::new()), false, &screen(80, ColorChoice::Always));
        assert!(fine.starts_with("\u{1b}[32mhealthy\u{1b}[0m: no problems, no warnings"), "{fine}");
    }
}
