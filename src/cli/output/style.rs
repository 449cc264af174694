//! Colours of text for people.

use crate::config::environment::ColorChoice;

/// Kind of a text, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// Detail that most readers skip.
    Faint,
    /// Headings, and emphasis in a text.
    Strong,
    Success,
    Warning,
    Failure,
}

impl Tone {
    /// All tones with a colour.
    const COLOURED: [Self; 5] =
        [Self::Faint, Self::Strong, Self::Success, Self::Warning, Self::Failure];

    /// Returns the control sequence that begins the colour.
    fn sequence(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Faint => Some("\u{1b}[2m"),
            Self::Strong => Some("\u{1b}[1m"),
            Self::Success => Some("\u{1b}[32m"),
            Self::Warning => Some("\u{1b}[33m"),
            Self::Failure => Some("\u{1b}[31m"),
        }
    }
}

/// The control sequence that ends a colour.
const RESET: &str = "\u{1b}[0m";

/// The choice between coloured and plain text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Styling {
    colours: bool,
}

impl Styling {
    pub fn of(choice: ColorChoice, is_terminal: bool) -> Self {
        let colours = match choice {
            ColorChoice::Auto => is_terminal,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Self { colours }
    }

    pub fn is_plain(self) -> bool {
        !self.colours
    }

    /// Colours a text, which contains no control characters.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        match tone.sequence().filter(|_| self.colours) {
            Some(begin) => format!("{begin}{text}{RESET}"),
            None => text.to_owned(),
        }
    }
}

/// Returns the length of the control sequence of [`Styling::paint`] at the beginning of a text, if
/// there is one.
pub(super) fn leading_sequence(text: &str) -> Option<usize> {
    let mut known = Tone::COLOURED.into_iter().filter_map(Tone::sequence).chain([RESET]);
    known.find(|sequence| text.starts_with(sequence)).map(str::len)
}
