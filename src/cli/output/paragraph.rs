//! Text that is wrapped to a width, with tones.

use std::borrow::Cow;

use console::measure_text_width;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm, wrap};

use super::style::{Styling, Tone};

/// A text whose words have tones. It contains no control characters except white space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paragraph {
    pieces: Vec<(Tone, String)>,
}

/// Text between two spaces, in pieces by tone.
type Word = Vec<(Tone, String)>;

impl Paragraph {
    pub fn of(tone: Tone, text: &str) -> Self {
        let mut paragraph = Self::default();
        paragraph.push(tone, text);
        paragraph
    }

    pub fn plain(text: &str) -> Self {
        Self::of(Tone::Plain, text)
    }

    /// Adds text without a space before it.
    pub fn push(&mut self, tone: Tone, text: &str) {
        if !text.is_empty() {
            self.pieces.push((tone, text.to_owned()));
        }
    }

    /// Adds another paragraph without a space before it.
    pub fn append(&mut self, mut other: Self) {
        self.pieces.append(&mut other.pieces);
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(|(_, text)| text.trim().is_empty())
    }

    /// Returns the width of the paragraph in one line, in columns.
    pub fn columns(&self) -> usize {
        let words = self.words();
        let texts = words.iter().flatten().map(|(_, text)| columns_of(text));
        texts.sum::<usize>() + words.len().saturating_sub(1)
    }

    fn words(&self) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let mut is_open = false;
        for (tone, text) in &self.pieces {
            for (index, part) in text.split(char::is_whitespace).enumerate() {
                is_open &= index == 0;
                if part.is_empty() {
                    continue;
                }
                match words.last_mut().filter(|_| is_open) {
                    Some(word) => word.push((*tone, part.to_owned())),
                    None => words.push(vec![(*tone, part.to_owned())]),
                }
                is_open = true;
            }
        }
        words
    }

    /// Returns the lines of at most `width` columns. A longer word is not broken: it may be a path
    /// or a command, which the user copies.
    pub fn wrap(&self, width: usize, styling: Styling) -> Vec<String> {
        let shown = |word: &Word| {
            word.iter().map(|(tone, text)| styling.paint(*tone, text)).collect::<String>()
        };
        let text = self.words().iter().map(shown).collect::<Vec<_>>().join(" ");
        let options = Options::new(width)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation)
            .wrap_algorithm(WrapAlgorithm::FirstFit);
        wrap(&text, options).into_iter().map(Cow::into_owned).collect()
    }
}

/// Returns the width on a terminal, in columns, of a text without control characters.
pub fn columns_of(text: &str) -> usize {
    measure_text_width(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::environment::ColorChoice;

    #[test]
    fn words_are_wrapped_by_their_columns_and_keep_their_tones() {
        let mut text = Paragraph::plain("see the ");
        text.push(Tone::Strong, "manual page");
        text.push(Tone::Plain, ", 日本 or a-very-long-word");
        assert_eq!(
            text.wrap(12, Styling::default()),
            ["see the", "manual page,", "日本 or", "a-very-long-word"]
        );
        assert_eq!(text.columns(), 45);
        let coloured = text.wrap(80, Styling::of(ColorChoice::Always, false));
        assert_eq!(
            coloured,
            ["see the \u{1b}[1mmanual\u{1b}[0m \u{1b}[1mpage\u{1b}[0m, 日本 or a-very-long-word"]
        );
        assert!(Paragraph::plain(" ").is_empty() && !text.is_empty());
    }
}
