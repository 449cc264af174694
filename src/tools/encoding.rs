//! Encodings of text files: detection, and conversion from and to UTF-8.
//!
//! A byte order mark takes precedence. Without one, valid UTF-8 is UTF-8, text with a NUL in every
//! second byte is UTF-16, and the encoding of other text is guessed from its letters.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufReader, Chain, Cursor, Read, Seek, SeekFrom};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{DecoderResult, Encoding, ISO_8859_4, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use encoding_rs_io::{DecodeReaderBytes, DecodeReaderBytesBuilder};
use memchr::memchr;

use super::text;

/// The size of the sample from which an encoding is guessed, in bytes.
const SAMPLE_BYTES: usize = 64 << 10;

/// The part of a file that is searched for its first non-ASCII character, in bytes.
const ASCII_BYTES_MAX: usize = 16 << 20;

/// The number of bytes for which a text in a guessed encoding may have one control character.
const BYTES_PER_CONTROL: usize = 5_000;

/// The encoding of the characters of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextFormat {
    pub(super) encoding: &'static Encoding,
    pub(super) has_bom: bool,
}

impl TextFormat {
    pub(super) const UTF_8: Self = Self { encoding: UTF_8, has_bom: false };

    pub(super) fn is_utf_8(self) -> bool {
        self.encoding == UTF_8
    }

    pub(super) fn is_utf_16(self) -> bool {
        self.encoding == UTF_16LE || self.encoding == UTF_16BE
    }
}

impl Display for TextFormat {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let bom = if self.has_bom { " with a byte order mark" } else { "" };
        write!(formatter, "{}{bom}", self.encoding.name())
    }
}

/// The first bytes of a file, and the format of its text.
pub(super) struct FileStart {
    pub(super) head: Vec<u8>,
    /// `None`: the file does not begin as text.
    pub(super) format: Option<TextFormat>,
    /// The length of the part of the file that was read.
    pub(super) consumed: u64,
}

impl FileStart {
    /// Reads the beginning of a file, and continues while the file is ASCII.
    pub(super) fn read(file: &mut impl Read) -> io::Result<Self> {
        // A vector that grows would take a system call for each step.
        let mut head = Vec::with_capacity(SAMPLE_BYTES);
        file.take(SAMPLE_BYTES as u64).read_to_end(&mut head)?;
        let mut start = Self { format: detect(&head), consumed: head.len() as u64, head };
        let is_open = !start.is_whole() && start.head.is_ascii();
        if is_open && start.format.is_some_and(TextFormat::is_utf_8) {
            let (sample, consumed) = first_beyond_ascii(file)?;
            start.consumed += consumed;
            start.format = detect_text(&sample).or(start.format);
        }
        Ok(start)
    }

    /// True if the file has no more bytes than `head`.
    pub(super) fn is_whole(&self) -> bool {
        self.head.len() < SAMPLE_BYTES
    }

    /// Decodes the whole file. `rest` is the file after the `consumed` bytes that were read. The
    /// buffer is first filled with a whole block, from which line ends can be judged: a decoder
    /// returns as little as one character at first.
    pub(super) fn text<R: Read + Seek>(
        self,
        mut rest: R,
        format: TextFormat,
    ) -> io::Result<TextReader<R>> {
        let head = self.head.len() as u64;
        if self.consumed > head {
            rest.seek(SeekFrom::Start(head))?;
        }
        let mut decoder = DecodeReaderBytesBuilder::new()
            .encoding(Some(format.encoding).filter(|_| !format.is_utf_8()))
            .utf8_passthru(true)
            .strip_bom(true)
            .bom_sniffing(format.is_utf_8() && format.has_bom)
            .build(Cursor::new(self.head).chain(rest));
        let mut block = Vec::with_capacity(SAMPLE_BYTES);
        decoder.by_ref().take(SAMPLE_BYTES as u64).read_to_end(&mut block)?;
        Ok(BufReader::with_capacity(SAMPLE_BYTES, Cursor::new(block).chain(decoder)))
    }
}

/// A reader of a file as UTF-8, without a byte order mark. Invalid UTF-8 is passed on unchanged.
pub(super) type TextReader<R> = BufReader<Chain<Cursor<Vec<u8>>, Decoder<R>>>;

type Decoder<R> = DecodeReaderBytes<Chain<Cursor<Vec<u8>>, R>, Vec<u8>>;

/// Returns true if CR alone ends the lines of a text, judged by its first block.
pub(super) fn has_old_line_ends(block: &[u8]) -> bool {
    // A line feed may follow the CR at the end of a block.
    let is_cut = block.len() >= SAMPLE_BYTES;
    let known = if is_cut { block.strip_suffix(b"\r").unwrap_or(block) } else { block };
    memchr(b'\n', known).is_none() && memchr(b'\r', known).is_some()
}

/// Returns a sample that begins with the first non-ASCII byte, and the number of bytes read to find
/// it.
fn first_beyond_ascii(file: &mut impl Read) -> io::Result<(Vec<u8>, u64)> {
    let (mut sample, mut consumed) = (Vec::new(), 0);
    let mut chunk = vec![0; SAMPLE_BYTES];
    while sample.len() < SAMPLE_BYTES && (consumed < ASCII_BYTES_MAX || !sample.is_empty()) {
        let length = file.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        consumed += length;
        let read = &chunk[..length];
        let from = match (sample.is_empty(), read.is_ascii()) {
            (false, _) => 0,
            (true, true) => length,
            (true, false) => read.iter().position(|byte| !byte.is_ascii()).unwrap_or(length),
        };
        sample.extend_from_slice(&read[from..]);
    }
    sample.truncate(SAMPLE_BYTES);
    Ok((sample, consumed as u64))
}

/// Detects the format of a text from its beginning. `None`: it is not text.
pub(super) fn detect(start: &[u8]) -> Option<TextFormat> {
    if let Some((encoding, length)) = Encoding::for_bom(start) {
        let is_text = encoding == UTF_8 || is_utf_16(encoding, &start[length..], 10);
        return is_text.then_some(TextFormat { encoding, has_bom: true });
    }
    let wide = |encoding: &&'static Encoding| start.len() > 3 && is_utf_16(encoding, start, 0);
    if start.contains(&0)
        && let Some(encoding) = [UTF_16LE, UTF_16BE].into_iter().find(wide)
    {
        return Some(TextFormat { encoding, has_bom: false });
    }
    detect_text(start)
}

/// Like [`detect`], for a part of a text in which each ASCII character is one byte.
fn detect_text(sample: &[u8]) -> Option<TextFormat> {
    let is_utf_8 = match std::str::from_utf8(sample) {
        Ok(_) => true,
        // A character may be cut at the end.
        Err(error) => error.error_len().is_none() && sample.len() == SAMPLE_BYTES,
    };
    if is_utf_8 || is_mostly_utf_8(sample) {
        return (!text::is_binary(sample)).then_some(TextFormat::UTF_8);
    }
    let is_plain = text::controls(sample) <= (sample.len() / BYTES_PER_CONTROL).max(1);
    let encoding = is_plain.then(|| guess(sample)).flatten();
    let damaged = (!text::is_binary(sample)).then_some(TextFormat::UTF_8);
    encoding.map(|encoding| TextFormat { encoding, has_bom: false }).or(damaged)
}

/// True if there are non-ASCII characters, at least as many as invalid bytes.
fn is_mostly_utf_8(sample: &[u8]) -> bool {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in sample.utf8_chunks() {
        valid += chunk.valid().chars().filter(|letter| !letter.is_ascii()).count();
        invalid += chunk.invalid().len();
    }
    valid > 0 && valid >= invalid
}

fn guess(sample: &[u8]) -> Option<&'static Encoding> {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, false);
    // ISO-8859-4 is no longer written, and texts with few accents look like it.
    let guess = Some(detector.guess(None, Utf8Detection::Deny)).filter(|it| *it != ISO_8859_4);
    guess.into_iter().chain([WINDOWS_1252]).find(|encoding| reads_as_text(encoding, sample))
}

/// True if these bytes are UTF-16 text with at most `bad_percent` percent of damaged and control
/// characters. If none are allowed, more than half of the characters must be ASCII.
fn is_utf_16(encoding: &'static Encoding, bytes: &[u8], bad_percent: usize) -> bool {
    let units = utf_16_units(encoding, bytes);
    let (mut all, mut bad, mut ascii) = (0, 0, 0);
    for letter in char::decode_utf16(units) {
        all += 1;
        match letter {
            Ok(letter) if letter.is_ascii() => {
                let is_bad = u8::try_from(letter).is_ok_and(text::is_control);
                bad += usize::from(is_bad);
                ascii += usize::from(!is_bad);
            }
            Ok('\u{fffe}' | '\u{ffff}') | Err(_) => bad += 1,
            Ok(_) => {}
        }
    }
    // A pair of units may be cut at the end.
    let bad = bad - usize::from(bad > 0 && bytes.len() == SAMPLE_BYTES);
    bad * 100 <= all * bad_percent && (bad_percent > 0 || ascii * 2 > all)
}

fn utf_16_units(encoding: &'static Encoding, bytes: &[u8]) -> impl Iterator<Item = u16> {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().map(move |pair| {
        if encoding == UTF_16LE { u16::from_le_bytes(*pair) } else { u16::from_be_bytes(*pair) }
    })
}

/// True if a sample is plausible in this encoding: it has no errors, and mostly letters beyond
/// ASCII.
fn reads_as_text(encoding: &'static Encoding, sample: &[u8]) -> bool {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let room = decoder.max_utf8_buffer_length_without_replacement(sample.len());
    let mut text = String::with_capacity(room.unwrap_or_default());
    let (result, _) = decoder.decode_to_string_without_replacement(sample, &mut text, false);
    let (mut letters, mut signs, mut unreadable) = (0, 0, 0);
    for letter in text.chars().filter(|letter| !letter.is_ascii()) {
        let is_unreadable = letter.is_control() || letter == char::REPLACEMENT_CHARACTER;
        unreadable += usize::from(is_unreadable);
        letters += usize::from(letter.is_alphanumeric());
        signs += usize::from(!letter.is_alphanumeric());
    }
    let mostly_letters = letters >= signs || signs * 3 < text.chars().count();
    result == DecoderResult::InputEmpty && unreadable == 0 && mostly_letters
}

/// Decodes bytes, with damaged characters replaced by U+FFFD.
pub(super) fn decode(format: TextFormat, bytes: &[u8]) -> String {
    if format.is_utf_8() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    format.encoding.decode_without_bom_handling(bytes).0.into_owned()
}

/// Decodes a text of unknown encoding, as the tools read files. `None`: it is not text.
pub fn decode_text(bytes: Vec<u8>) -> Option<String> {
    // Reading from memory does not fail.
    let format = FileStart::read(&mut bytes.as_slice()).ok()?.format;
    match (format, String::from_utf8(bytes)) {
        (Some(format), Ok(text)) if format.is_utf_8() => Some(text),
        (Some(format), Ok(text)) => Some(decode(format, text.as_bytes())),
        (Some(format), Err(error)) => {
            let text = decode(format, error.as_bytes());
            Some(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
        }
        (None, text) => text.ok(),
    }
}

/// The error for a character that an encoding does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} has no {letter:?} (U+{:04X})", encoding.name(), u32::from(*letter))]
pub(super) struct NoSuchCharacter {
    encoding: &'static Encoding,
    letter: char,
}

/// Encodes a text.
pub(super) fn encode(encoding: &'static Encoding, text: &str) -> Result<Vec<u8>, NoSuchCharacter> {
    if encoding == UTF_8 {
        return Ok(text.as_bytes().to_vec());
    }
    // For UTF-16, the encoder of the library writes UTF-8 instead.
    if encoding == UTF_16LE {
        return Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
    }
    if encoding == UTF_16BE {
        return Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect());
    }
    let (bytes, _, is_unmappable) = encoding.encode(text);
    if !is_unmappable {
        return Ok(bytes.into_owned());
    }
    let is_missing = |letter: &char| encoding.encode(letter.encode_utf8(&mut [0; 4])).2;
    let letter = text.chars().find(is_missing).unwrap_or(char::REPLACEMENT_CHARACTER);
    Err(NoSuchCharacter { encoding, letter })
}

#[cfg(test)]
mod tests {
    use encoding_rs::{
        BIG5, EUC_JP, EUC_KR, GBK, KOI8_R, SHIFT_JIS, WINDOWS_1250, WINDOWS_1251, WINDOWS_1253,
    };

    use super::*;

    const RUSSIAN: &str = "Привет мир\nab\n";
    const CZECH: &str = "// Příliš žluťoučký kůň úpěl ďábelské ódy\nint main() { return 0; }\n";

    fn encoded(encoding: &'static Encoding, text: &str) -> Vec<u8> {
        encode(encoding, text).unwrap()
    }

    fn name(bytes: &[u8]) -> Option<String> {
        detect(bytes).map(|format| format.to_string())
    }

    #[test]
    fn the_encoding_of_a_text_is_found() {
        let utf_16 = |encoding, text: &str| encoded(encoding, text);
        let table: [(Vec<u8>, Option<&str>); 23] = [
            (b"".to_vec(), Some("UTF-8")),
            (b"plain\n".to_vec(), Some("UTF-8")),
            ("größer 漢字".into(), Some("UTF-8")),
            ("\u{feff}x".into(), Some("UTF-8 with a byte order mark")),
            (utf_16(UTF_16LE, "\u{feff}hi\r\n"), Some("UTF-16LE with a byte order mark")),
            (utf_16(UTF_16BE, "\u{feff}日本\n"), Some("UTF-16BE with a byte order mark")),
            (utf_16(UTF_16LE, "int x;\r\n// ä\r\n"), Some("UTF-16LE")),
            (utf_16(UTF_16BE, "int x;\r\n"), Some("UTF-16BE")),
            (encoded(SHIFT_JIS, "日本語のテキスト\nab\n"), Some("Shift_JIS")),
            (encoded(EUC_JP, "日本語のテキスト\nab\n"), Some("EUC-JP")),
            (encoded(WINDOWS_1251, RUSSIAN), Some("windows-1251")),
            (encoded(KOI8_R, "Привет мир, это текст\n"), Some("KOI8-U")),
            (encoded(WINDOWS_1250, CZECH), Some("windows-1250")),
            (encoded(WINDOWS_1253, "Γειά σου Κόσμε\n"), Some("windows-1253")),
            (encoded(GBK, "简体中文文本文件\n"), Some("GBK")),
            (encoded(BIG5, "繁體中文的文字檔案\n"), Some("Big5")),
            (encoded(EUC_KR, "한국어 텍스트 파일\n"), Some("EUC-KR")),
            (encoded(WINDOWS_1252, "naïve café, 5 €\n"), Some("windows-1252")),
            (encoded(WINDOWS_1252, "“quoted” – it’s"), Some("windows-1252")),
            (encoded(WINDOWS_1252, "naive naïve"), Some("windows-1252")),
            (b"\x7fELF\0\0\0".to_vec(), None),
            ((0..=255).collect(), None),
            (b"\x80".repeat(50), None),
        ];
        for (bytes, expected) in table {
            assert_eq!(name(&bytes).as_deref(), expected, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn text_with_a_nul_or_a_damaged_letter_is_still_text() {
        for bytes in [
            b"sep = \"\0\";\n".to_vec(),
            b"a\0bc\0d\0".to_vec(),
            [&b"Gr\xfc\xdfe "[..], "größer, schöner".as_bytes()].concat(),
            [&b"\x1f\x8b\x01\0\0\xff\xd8\n"[..], &b"plain text\n".repeat(20)].concat(),
        ] {
            assert_eq!(name(&bytes).as_deref(), Some("UTF-8"), "{bytes:?}");
        }
    }

    #[test]
    fn every_encoding_is_written_as_it_was_read() {
        for encoding in [UTF_8, UTF_16LE, UTF_16BE, SHIFT_JIS, GBK, WINDOWS_1251] {
            let text = if encoding == WINDOWS_1251 { RUSSIAN } else { "本 x\r\n" };
            let bytes = encoded(encoding, text);
            assert_eq!(decode(TextFormat { encoding, has_bom: false }, &bytes), text);
        }
        let error = encode(SHIFT_JIS, "日 €").unwrap_err();
        assert_eq!(error.to_string(), "Shift_JIS has no '€' (U+20AC)");
    }

    #[test]
    fn letters_late_in_a_file_decide_too() {
        let mut bytes = b"int x;\n".repeat(100_000);
        bytes.extend(encoded(WINDOWS_1251, RUSSIAN));
        let start = FileStart::read(&mut bytes.as_slice()).unwrap();
        assert_eq!(start.format.map(|format| format.encoding), Some(WINDOWS_1251));
        assert_eq!(start.consumed, bytes.len() as u64);
        let mut whole = String::new();
        let mut rest = Cursor::new(&bytes);
        rest.set_position(start.consumed);
        let format = start.format.unwrap();
        start.text(rest, format).unwrap().read_to_string(&mut whole).unwrap();
        assert!(whole.starts_with("int x;\n") && whole.ends_with(RUSSIAN), "{}", whole.len());
        assert_eq!(whole.matches("int x;").count(), 100_000);
        bytes.truncate(300_000);
        bytes.extend("größer".as_bytes());
        let start = FileStart::read(&mut bytes.as_slice()).unwrap();
        assert_eq!(start.format, Some(TextFormat::UTF_8));
    }
}
