//! Quotes words for a POSIX shell.

/// Quotes a word, unless the shell reads it unchanged.
pub fn quoted_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=@%+,".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes the words of a command line.
pub fn quoted_command<I: IntoIterator<Item = S>, S: AsRef<str>>(words: I) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| quoted_word(word.as_ref())).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_a_shell_would_change_are_quoted() {
        for (word, quoted) in [
            ("", "''"),
            ("--jobs=4", "--jobs=4"),
            ("/a b", "'/a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("~", "'~'"),
        ] {
            assert_eq!(quoted_word(word), quoted);
        }
        assert_eq!(quoted_command(["outlast", "batch", "my tasks"]), "outlast batch 'my tasks'");
    }
}
