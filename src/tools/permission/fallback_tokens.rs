//! Splits commands that cannot be parsed reliably into fallback tokens, for deny rules. It errs on
//! the side of too many tokens.

/// Keywords that a command directly follows.
const OPENERS: &[&str] = &["if", "then", "else", "elif", "while", "until", "do", "!", "{"];

/// Whether a command may directly follow a word.
pub(super) fn is_opener(word: &str) -> bool {
    OPENERS.contains(&word)
}

/// The pieces of a command that is split at every character that could begin another command, both
/// with quotes and without.
pub(super) struct FallbackTokens {
    /// The distinct spellings of the command.
    texts: Vec<String>,
}

impl FallbackTokens {
    pub(super) fn of(command: &str) -> Self {
        let bare = |text: &str| text.replace(['\\', '\'', '"'], "");
        let joined = join_lines(command);
        let mut texts: Vec<String> = Vec::new();
        for text in [command.to_owned(), bare(command), bare(&joined), joined] {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        Self { texts }
    }

    /// The words of each piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Vec<&str>> {
        let at = |letter: char| {
            matches!(
                letter,
                ';' | '|' | '&' | '\n' | '(' | ')' | '`' | '<' | '>' | '{' | '}' | '"' | '\''
            )
        };
        let pieces = self.texts.iter().flat_map(move |text| text.split(at));
        pieces.map(|piece| words(piece).collect::<Vec<_>>()).filter(|words| !words.is_empty())
    }
}

/// Joins continued lines. In a comment a backslash does not continue the line, so callers check the
/// text both with and without joining.
fn join_lines(command: &str) -> String {
    command.replace("\\\n", "")
}

/// The pieces that begin where the shell expects a command. Quotes are ignored.
pub(super) fn commands(command: &str) -> Vec<Vec<String>> {
    let joined = join_lines(command);
    let mut pieces = command_pieces(command);
    if joined != command {
        pieces.extend(command_pieces(&joined));
    }
    pieces
}

fn command_pieces(command: &str) -> Vec<Vec<String>> {
    let (mut pieces, mut piece) = (Vec::new(), String::new());
    let mut begins = true;
    // What each open parenthesis began: a substitution is part of a word, which continues after it.
    let mut substitutes: Vec<bool> = Vec::new();
    let mut ticks = false;
    // The patterns of a `case` end with an unmatched closing parenthesis.
    let has_patterns = command.contains("case");
    let mut letters = command.chars().peekable();
    while let Some(letter) = letters.next() {
        let next_begins = match letter {
            ';' | '|' | '&' | '\n' => true,
            // As in `function f { x; }`; any other brace is part of a word.
            '{' if letters.peek().is_some_and(|next| next.is_whitespace()) => true,
            '(' => {
                substitutes.push(piece.ends_with(['$', '<', '>']));
                true
            }
            ')' => !substitutes.pop().unwrap_or(false) || has_patterns,
            // A nested substitution. Whether it begins or ends here does not matter.
            '`' if piece.ends_with('\\') => true,
            '`' => {
                ticks = !ticks;
                ticks
            }
            _ => {
                piece.push(letter);
                continue;
            }
        };
        let ended = std::mem::take(&mut piece);
        if std::mem::replace(&mut begins, next_begins) {
            pieces.push(words(&ended).map(str::to_owned).collect());
        }
    }
    if begins {
        pieces.push(words(&piece).map(str::to_owned).collect());
    }
    pieces
}

/// The words of a piece, without the keywords before its command.
fn words(piece: &str) -> impl Iterator<Item = &str> {
    let words = piece.trim().trim_end_matches('$').split_whitespace();
    words.skip_while(|word| is_opener(word))
}
