//! Sanitizes text from servers for messages: masked, on one line, and short.

use crate::secrets::Redactor;

/// The most characters of a quoted text.
const LONGEST: usize = 300;

/// The beginning of a text. Secrets are masked before the cut, since half a secret could not be
/// recognised later.
pub(super) fn sanitize_start(text: &str, redactor: &Redactor) -> String {
    sanitized(text, redactor).chars().take(LONGEST).collect()
}

/// The end of a text whose beginning was cut off, possibly in the middle of a secret.
pub(super) fn sanitize_end(text: &str, redactor: &Redactor) -> String {
    let line = sanitized(text, redactor);
    let excess = line.chars().count().saturating_sub(LONGEST);
    line.chars().skip(excess).collect()
}

fn sanitized(text: &str, redactor: &Redactor) -> String {
    redactor.redact(text.trim()).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::KnownSecrets;

    #[test]
    fn a_secret_across_the_cut_is_hidden_whole() {
        let secret = "correct-horse-battery";
        let redactor = Redactor::new(KnownSecrets::new([secret]));
        for before in LONGEST - secret.len()..=LONGEST {
            let padding = "x".repeat(before);
            for shown in [
                sanitize_start(&format!("{padding}{secret} and more"), &redactor),
                sanitize_end(&format!("{secret}{padding}"), &redactor),
            ] {
                let start = shown.find(|letter| letter != 'x').unwrap_or(shown.len());
                let rest = shown[start..].trim_end_matches('x');
                assert!("[redacted] and more".contains(rest), "{before}: {rest}");
            }
        }
    }

    #[test]
    fn quoted_server_text_is_one_line_of_limited_length() {
        let redactor = Redactor::default();
        assert_eq!(sanitize_start(" short\nand \u{1b}stout ", &redactor), "short and  stout");
        assert_eq!(sanitize_start(&"ö".repeat(1_000), &redactor), "ö".repeat(LONGEST));
        let end = format!("{}end", "x".repeat(1_000));
        assert!(sanitize_end(&end, &redactor).ends_with("end"));
        assert_eq!(sanitize_end(&end, &redactor).len(), LONGEST);
    }
}
