//! The output of a server that is not protocol, for error messages.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::secrets::Redactor;

use super::sanitize::{sanitize_end, sanitize_start};

/// The most bytes of a server's other output that are kept.
const OUTPUT_BYTES_MAX: usize = 4096;

/// The most lines of that output that a message quotes.
const QUOTED_LINES_MAX: usize = 10;

/// The most characters of that output that a message quotes.
const QUOTED_CHARS_MAX: usize = 500;

/// The last output of a server that is not protocol: its stderr, and invalid lines of its stdout.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerOutput(Arc<Mutex<OutputTail>>);

#[derive(Debug, Default)]
struct OutputTail {
    bytes: VecDeque<u8>,
    /// True if the beginning was cut off.
    truncated: bool,
    /// The reason that outlast closed the connection. Later output is about the broken pipe.
    fault: Option<&'static str>,
    /// The end of the program, once it is known.
    exit: Option<ExitStatus>,
}

impl ServerOutput {
    pub(super) fn append(&self, bytes: &[u8]) {
        let mut output = self.0.lock();
        let skipped = bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
        output.bytes.extend(&bytes[skipped..]);
        let excess = output.bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
        output.bytes.drain(..excess);
        output.truncated |= skipped + excess > 0;
    }

    pub(super) fn set_fault(&self, fault: &'static str) {
        self.0.lock().fault = Some(fault);
    }

    pub(super) fn set_exit(&self, exit: Option<ExitStatus>) {
        self.0.lock().exit = exit;
    }

    /// The reason, if outlast closed the connection.
    pub(super) fn fault(&self) -> Option<&'static str> {
        self.0.lock().fault
    }

    /// Adds the last output, or else the exit status, to the description of an end: what happened,
    /// and why.
    pub(super) fn describe_end(&self, what: &str, why: &str, redactor: &Redactor) -> String {
        if let Some(fault) = self.fault() {
            return format!("{what}: {fault}");
        }
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let exit = self.0.lock().exit;
        match (self.last_lines(redactor), exit) {
            (Some(lines), _) => format!("{what}{why} (its output: {lines})"),
            (None, Some(exit)) => format!("{what}{why} ({exit})"),
            (None, None) => format!("{what}{why}"),
        }
    }

    /// The last lines, joined to one, for messages. Runtimes print the reason of a crash some lines
    /// before the last one.
    fn last_lines(&self, redactor: &Redactor) -> Option<String> {
        let mut output = self.0.lock();
        let text = String::from_utf8_lossy(output.bytes.make_contiguous()).into_owned();
        // Before the text is split into lines: a secret may have several.
        let text = redactor.redact(&text);
        let text = if output.truncated { after_cut_key(&text) } else { &text };
        let lines = text.lines().enumerate().filter(|(_, line)| is_worth_quoting(line));
        let quoted = lines.map(|(index, line)| {
            let is_cut = output.truncated && index == 0;
            if is_cut { sanitize_end(line, redactor) } else { sanitize_start(line, redactor) }
        });
        let (mut lines, mut length) = (VecDeque::new(), 0);
        for line in quoted.collect::<Vec<_>>().into_iter().rev().take(QUOTED_LINES_MAX) {
            length += line.chars().count();
            if length > QUOTED_CHARS_MAX && !lines.is_empty() {
                break;
            }
            lines.push_front(line);
        }
        (!lines.is_empty()).then(|| lines.into_iter().collect::<Vec<_>>().join(" / "))
    }
}

/// The text after the end of a key whose beginning was cut off.
fn after_cut_key(text: &str) -> &str {
    const END: &str = "-----END";
    let Some(end) = text.find(END).filter(|end| !text[..*end].contains("-----BEGIN")) else {
        return text;
    };
    text[end..].split_once('\n').map_or("", |(_, rest)| rest)
}

/// True for lines other than stack frames, rulers, caret lines and the version of Node.js.
fn is_worth_quoting(line: &str) -> bool {
    let line = line.trim();
    let is_drawn = line.chars().all(|letter| "-+|=~^_ ".contains(letter));
    !is_drawn && !line.starts_with("at ") && !line.starts_with("Node.js v")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::secrets::KnownSecrets;

    #[test]
    fn a_secret_whose_beginning_was_cut_off_is_masked() {
        let (output, secret) = (ServerOutput::default(), "correct-horse-battery");
        let redactor = Redactor::new(KnownSecrets::new([secret]));
        let line = format!("{secret}{}", "x".repeat(OUTPUT_BYTES_MAX - 7));
        output.append(line.as_bytes());
        let shown = output.last_lines(&redactor).expect("a line");
        assert!(shown.chars().all(|letter| letter == 'x'), "{shown}");
        output.append(format!("\nwith {secret}\n").as_bytes());
        let shown = output.last_lines(&redactor).expect("two lines");
        assert!(shown.ends_with("x / with [redacted]"), "{shown}");
    }

    #[test]
    fn a_secret_of_several_lines_is_masked() {
        let redactor = Redactor::new(KnownSecrets::new(["first half\nsecond half"]));
        let output = ServerOutput::default();
        output.append(b"bad key:\nfirst half\nsecond half\n");
        assert_eq!(output.last_lines(&redactor).as_deref(), Some("bad key: / [redacted]"));
        // A key whose first line was dropped.
        let lines = format!(
            "{}\n-----END PRIVATE KEY-----\nbad key\n",
            "QUJD\n".repeat(OUTPUT_BYTES_MAX / 4)
        );
        let output = ServerOutput::default();
        output.append(lines.as_bytes());
        assert_eq!(output.last_lines(&Redactor::default()).as_deref(), Some("bad key"));
    }

    #[test]
    fn the_reason_of_an_end_is_quoted_though_it_is_not_in_the_last_line() {
        let numbered = |numbers: std::ops::Range<usize>| numbers.map(|at| format!("line {at}"));
        let (long, many) = ("x".repeat(400), numbered(0..20).collect::<Vec<_>>().join("\n"));
        let last_ten = numbered(10..20).collect::<Vec<_>>().join(" / ");
        for (output, quoted) in [
            (
                "/srv/index.js:3\n    throw new Error('X is not set')\n    ^\n\nError: X is not set\n    \
                 at Object.<anonymous> (/srv/index.js:3:11)\n\nNode.js v20.20.2\n",
                "/srv/index.js:3 / throw new Error('X is not set') / Error: X is not set",
            ),
            (
                "  +-+---------------- 1 ----------------\n    | ValueError: X is not set\n    \
                 +------------------------------------\n",
                "+-+---------------- 1 ---------------- / | ValueError: X is not set",
            ),
            (&format!("{long}\n{long}\n"), &"x".repeat(300)),
            (&many, &last_ten),
        ] {
            let quotation = ServerOutput::default();
            quotation.append(output.as_bytes());
            let lines = quotation.last_lines(&Redactor::default());
            assert_eq!(lines.as_deref(), Some(quoted));
        }
        assert_eq!(ServerOutput::default().last_lines(&Redactor::default()), None);
    }

    #[test]
    fn a_program_without_output_is_described_by_its_exit_status() {
        let (output, redactor) = (ServerOutput::default(), Redactor::default());
        assert_eq!(output.describe_end("it ended", "", &redactor), "it ended");
        output.set_exit(Some(ExitStatus::from_raw(9)));
        assert_eq!(
            output.describe_end("it ended", "", &redactor),
            "it ended (signal: 9 (SIGKILL))"
        );
        output.append(b"out of memory\n");
        let wanted = "it ended (its output: out of memory)";
        assert_eq!(output.describe_end("it ended", "", &redactor), wanted);
    }
}
