//! A text file in memory: its text, and changes of parts of it that keep all other bytes.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

use super::encoding::{self, NoSuchCharacter, TextFormat};
use super::text::NUL_SIGN;

/// The text of a file, and the bytes that it was read from.
pub(super) struct TextFile {
    bytes: Vec<u8>,
    pub(super) text: String,
    pub(super) style: FileStyle,
    /// The end of each line, including its line feed, as offsets in the text and in the bytes.
    lines: Vec<(usize, usize)>,
}

/// The format of a file, which changes of it keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStyle {
    pub(super) format: TextFormat,
    /// The line ends of most lines. `None`: line feeds.
    pub(super) ends: Option<LineEnds>,
}

/// The format that a file had when it was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormerStyle {
    Unknown,
    /// The file is still as it was written.
    Unchanged(FileStyle),
    /// The file has changed since.
    Changed(FileStyle),
}

impl FormerStyle {
    /// The known format of a file, if its bytes do not decide against it.
    fn applies_to(self, bytes: &[u8]) -> Option<FileStyle> {
        match self {
            Self::Unknown => None,
            Self::Unchanged(style) => Some(style),
            Self::Changed(style) => {
                let TextFormat { encoding, has_bom } = style.format;
                // ASCII leaves open which encoding the file has.
                let is_open = bytes.is_ascii() && !bytes.contains(&0);
                let can_be = is_open && !has_bom && encoding.is_ascii_compatible();
                can_be.then_some(style)
            }
        }
    }
}

/// The reason that a change cannot be written in the encoding of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwritable {
    #[error("{0}. Leave it out, or convert the file first, for example with iconv in Bash")]
    Character(#[from] NoSuchCharacter),
    #[error(
        "line {line} holds bytes that are no {encoding}, which the change would damage: use sed \
         or a script in Bash for that line"
    )]
    Damaged { line: usize, encoding: &'static str },
}

impl TextFile {
    /// Decodes the bytes of a file. A change may have removed the last sign of its format, so that
    /// of the file before the change applies where the bytes leave it open. `None`: it is not text.
    pub(super) fn new(bytes: Vec<u8>, former: FormerStyle) -> Option<Self> {
        let former = former.applies_to(&bytes);
        let detect = || encoding::FileStart::read(&mut bytes.as_slice()).ok()?.format;
        let format = former.map_or_else(detect, |former| Some(former.format))?;
        let style = FileStyle { format, ends: None };
        let mut file = Self { bytes: Vec::new(), text: String::new(), style, lines: Vec::new() };
        // Each line is decoded by itself, so that one with damage leaves the others as they are.
        let mut from = 0;
        while from < bytes.len() {
            let end = line_end(&bytes, from, format);
            file.text.push_str(&encoding::decode(format, &bytes[from..end]));
            file.lines.push((file.text.len(), end));
            from = end;
        }
        file.bytes = bytes;
        let has_ends = file.text.contains(['\n', '\r']);
        file.style.ends = match former.filter(|_| !has_ends) {
            Some(former) => former.ends,
            None => LineEnds::of(&file.text),
        };
        Some(file)
    }

    /// Returns the bytes of the file with all `from` replaced by `to`.
    ///
    /// # Errors
    /// The encoding cannot hold the change, or a line to be changed is damaged.
    pub(super) fn replace(&self, from: &str, to: &str) -> Result<Vec<u8>, Unwritable> {
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for (start, _) in self.text.match_indices(from) {
            let first = self.line_of(start);
            let last = self.line_of(start + from.len().saturating_sub(1));
            match groups.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(*end),
                Some(_) | None => groups.push((first, last)),
            }
        }
        let (mut made, mut copied) = (Vec::with_capacity(self.bytes.len()), 0);
        for (first, last) in groups {
            let (text, bytes) = self.span(first, last);
            let old = &self.text[text];
            if encoding::encode(self.style.format.encoding, old)? != self.bytes[bytes.clone()] {
                let encoding = self.style.format.encoding.name();
                return Err(Unwritable::Damaged { line: first + 1, encoding });
            }
            made.extend_from_slice(&self.bytes[copied..bytes.start]);
            made.extend(encoding::encode(self.style.format.encoding, &old.replace(from, to))?);
            copied = bytes.end;
        }
        made.extend_from_slice(&self.bytes[copied..]);
        Ok(made)
    }

    fn line_of(&self, offset: usize) -> usize {
        self.lines.partition_point(|(end, _)| *end <= offset)
    }

    /// Returns the lines from `first` to `last`, as parts of the text and of the bytes.
    fn span(&self, first: usize, last: usize) -> (Range<usize>, Range<usize>) {
        let end = |line: usize| self.lines.get(line).copied().unwrap_or((0, 0));
        let (from, to) = (first.checked_sub(1).map_or((0, 0), end), end(last));
        (from.0..to.0, from.1..to.1)
    }

    /// Encodes new content in the format of the file: with its line ends, if most are alike, and
    /// its byte order mark.
    pub(super) fn restyle(&self, content: &str) -> Result<Vec<u8>, Unwritable> {
        let mut content = content.to_owned();
        if let Some(ends) = self.style.ends.filter(|_| !content.contains('\r')) {
            content = content.replace('\n', ends.text());
        }
        if self.style.format.has_bom && !content.starts_with('\u{feff}') {
            content.insert(0, '\u{feff}');
        }
        if self.text.contains('\0') && !self.text.contains(NUL_SIGN) {
            content = content.replace(NUL_SIGN, "\0");
        }
        Ok(encoding::encode(self.style.format.encoding, &content)?)
    }

    /// Names the format that the file keeps when it is replaced. Empty for UTF-8 with line feeds.
    pub(super) fn style_name(&self) -> String {
        style_name(self.style.format, self.style.ends)
    }
}

/// Returns the text of a file as Read shows it: with line feeds, without a byte order mark, and
/// with a sign for NUL. Carriage returns before line feeds stay.
pub(super) fn as_read(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let has_feeds = text.contains('\n');
    let is_as_read = !text.contains('\0') && (has_feeds || !text.contains('\r'));
    if is_as_read {
        return text.into();
    }
    let text = text.replace('\0', NUL_SIGN);
    if has_feeds { text.into() } else { text.replace('\r', "\n").into() }
}

fn line_end(bytes: &[u8], from: usize, format: TextFormat) -> usize {
    if !format.is_utf_16() {
        let at = memchr(b'\n', &bytes[from..]);
        return at.map_or(bytes.len(), |at| from + at + 1);
    }
    let feed = encoding::encode(format.encoding, "\n").unwrap_or_default();
    let at = bytes[from..].chunks(2).position(|unit| unit == feed);
    at.map_or(bytes.len(), |at| from + at * 2 + 2)
}

/// The line ends of a file, unless they are line feeds alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnds {
    CarriageReturnLineFeed,
    /// The line ends of old Macintosh programs.
    CarriageReturn,
}

impl LineEnds {
    /// The line ends of most lines of a text.
    fn of(text: &str) -> Option<Self> {
        let feeds = text.matches('\n').count();
        let pairs = text.matches("\r\n").count();
        Self::of_counts(feeds, pairs).or_else(|| {
            let is_old = feeds == 0 && text.contains('\r');
            is_old.then_some(Self::CarriageReturn)
        })
    }

    /// The line ends of most lines, if `pairs` of the line feeds follow a carriage return.
    pub(super) fn of_counts(feeds: usize, pairs: usize) -> Option<Self> {
        (pairs * 2 > feeds).then_some(Self::CarriageReturnLineFeed)
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::CarriageReturnLineFeed => "\r\n",
            Self::CarriageReturn => "\r",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::CarriageReturnLineFeed => "CRLF line ends",
            Self::CarriageReturn => "CR line ends",
        }
    }
}

/// Names the unusual parts of the format of a file.
pub(super) fn style_name(format: TextFormat, ends: Option<LineEnds>) -> String {
    let format = Some(format).filter(|format| *format != TextFormat::UTF_8);
    let names = [format.map(|format| format.to_string()), ends.map(|ends| ends.name().to_owned())];
    names.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use encoding_rs::{SHIFT_JIS, UTF_8, UTF_16LE, WINDOWS_1252};
    use proptest::prelude::*;

    use super::*;

    fn file(bytes: &[u8]) -> TextFile {
        TextFile::new(bytes.to_vec(), FormerStyle::Unknown).expect("text")
    }

    #[test]
    fn a_change_leaves_all_other_bytes_as_they_are() {
        // before, from, to, after
        let table: [(&[u8], &str, &str, &[u8]); 6] = [
            (b"a\xff\nb ab\n", "b", "c", b"a\xff\nc ac\n"),
            (b"\xff\xfea\0\n\0b\0", "b", "\u{e9}", b"\xff\xfea\0\n\0\xe9\0"),
            (b"caf\xe9\nab\nna\xefve\n", "ab\nna", "", b"caf\xe9\n\xefve\n"),
            (b"\xef\xbb\xbfa\r\nb", "a\r\nb", "c", b"\xef\xbb\xbfc"),
            (b"a\0b\nc", "c", "d", b"a\0b\nd"),
            (b"aaa\n\nb", "a\n\n", "", b"aab"),
        ];
        for (before, from, to, after) in table {
            let made = file(before).replace(from, to).unwrap();
            assert_eq!(made, after, "{:?}", String::from_utf8_lossy(&made));
        }
        // Two ways to write one character: the library writes the other.
        let (usual, other) = (b"\x81\xca \x93\xfa\x96\x7b\x8c\xea\x82\xcc\n", b"\xee\xf9 b\n");
        let mixed = [&usual[..], b"ab\n", other].concat();
        let made = file(&mixed).replace("ab", "AB").unwrap();
        assert_eq!(made, [&usual[..], b"AB\n", other].concat());
    }

    #[test]
    fn what_the_encoding_cannot_hold_is_refused() {
        let japanese = encoding::encode(SHIFT_JIS, "日本語のテキスト\n").unwrap();
        let error = file(&japanese).replace("日", "€").unwrap_err();
        assert!(error.to_string().starts_with("Shift_JIS has no '€' (U+20AC)."), "{error}");
        let error = file("ü\n".as_bytes()).replace("ü", "€");
        assert_eq!(error, Ok("€\n".into()));
        let damaged = [b"a\xff\n", "größer\n".as_bytes()].concat();
        let error = file(&damaged).replace("a", "b").unwrap_err();
        assert_eq!(error, Unwritable::Damaged { line: 1, encoding: "UTF-8" });
    }

    #[test]
    fn a_replaced_file_keeps_its_style() {
        let wide = |text: &str| encoding::encode(UTF_16LE, text).unwrap();
        // before, content, after
        let table: [(Vec<u8>, &str, Vec<u8>); 8] = [
            (b"a\nb\n".to_vec(), "c\nd\n", b"c\nd\n".to_vec()),
            (b"a\r\nb\r\n".to_vec(), "c\nd", b"c\r\nd".to_vec()),
            (b"a\r\nb\r\nc\n".to_vec(), "c\nd", b"c\r\nd".to_vec()),
            (b"a\r\nb\nc\n".to_vec(), "c\nd", b"c\nd".to_vec()),
            (b"a\r\n".to_vec(), "c\r\nd\n", b"c\r\nd\n".to_vec()),
            (b"a\rb\r".to_vec(), "c\nd\n", b"c\rd\r".to_vec()),
            (wide("\u{feff}a\r\n"), "c\n", wide("\u{feff}c\r\n")),
            (b"\xef\xbb\xbf".to_vec(), "\u{feff}c", b"\xef\xbb\xbfc".to_vec()),
        ];
        for (before, content, after) in table {
            assert_eq!(file(&before).restyle(content), Ok(after), "{before:?} {content:?}");
        }
    }

    #[test]
    fn the_former_format_applies_where_the_bytes_leave_it_open() {
        let style = |encoding| FileStyle {
            format: TextFormat { encoding, has_bom: false },
            ends: Some(LineEnds::CarriageReturnLineFeed),
        };
        let (latin, wide) = (style(WINDOWS_1252), style(UTF_16LE));
        // former, before, content, after
        let table: [(FormerStyle, &[u8], &str, &[u8]); 9] = [
            (FormerStyle::Changed(latin), b"a", "\u{fc}\n", b"\xfc\r\n"),
            (FormerStyle::Changed(latin), b"", "\u{fc}\n", b"\xfc\r\n"),
            (FormerStyle::Changed(latin), b"a\n", "\u{fc}\n", b"\xfc\n"),
            (FormerStyle::Changed(latin), "\u{fc}\r\n".as_bytes(), "\u{fc}", "\u{fc}".as_bytes()),
            (FormerStyle::Unchanged(latin), b"\xc3\xbc", "\u{fc}", b"\xfc"),
            (FormerStyle::Changed(wide), b"a", "b", b"b"),
            (FormerStyle::Unchanged(wide), b"a\0", "b", b"b\0"),
            (FormerStyle::Unknown, b"a", "\u{fc}\n", "\u{fc}\n".as_bytes()),
            (FormerStyle::Changed(style(UTF_8)), b"\xfc\n", "\u{fc}", b"\xfc"),
        ];
        for (former, before, content, after) in table {
            let file = TextFile::new(before.to_vec(), former).expect("text");
            assert_eq!(file.restyle(content).as_deref(), Ok(after), "{former:?} {before:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn bytes_outside_of_the_changed_lines_stay(
            mut lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..12),
            at in any::<prop::sample::Index>(),
        ) {
            for line in &mut lines {
                line.retain(|byte| *byte != b'\n');
            }
            let at = at.index(lines.len() + 1);
            lines.insert(at, b"#needle#".to_vec());
            let before = lines.join(&b'\n');
            lines[at] = b"found".to_vec();
            if let Some(file) = TextFile::new(before.clone(), FormerStyle::Unknown)
                && !file.style.format.is_utf_16()
            {
                let after = file.replace("#needle#", "found").unwrap();
                assert_eq!(after, lines.join(&b'\n'));
            }
        }
    }
}
