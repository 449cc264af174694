//! The bytes that keys consist of, and checks that exclude ordinary text. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The minimum length of the longest line of a private key, in bytes.
const KEY_LINE_MIN: usize = 40;

pub(super) fn alnum(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

pub(super) fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

pub(super) fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

pub(super) fn digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

pub(super) fn hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

pub(super) fn any_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

pub(super) fn word(byte: u8) -> bool {
    alnum(byte) || byte == b'_'
}

/// URL-safe base64.
pub(super) fn url_safe(byte: u8) -> bool {
    word(byte) || byte == b'-'
}

pub(super) fn dotted(byte: u8) -> bool {
    url_safe(byte) || byte == b'.'
}

pub(super) fn base64(byte: u8) -> bool {
    alnum(byte) || b"+/=".contains(&byte)
}

pub(super) fn base64ish(byte: u8) -> bool {
    dotted(byte) || b"+/=~".contains(&byte)
}

pub(super) fn percent(byte: u8) -> bool {
    base64ish(byte) || byte == b'%'
}

pub(super) fn path(byte: u8) -> bool {
    url_safe(byte) || byte == b'/'
}

/// Characters between a name and its value, as in `"name": "value"`.
pub(super) fn separator(byte: u8) -> bool {
    b" \t\"'`:=>,\\".contains(&byte)
}

pub(super) fn user(byte: u8) -> bool {
    dotted(byte) || b"%+~!$&*".contains(&byte)
}

pub(super) fn password(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"@/\"'`\\<>[]{}()|^#?:".contains(&byte)
}

/// True for the bytes of a PEM block, also if its line ends are escaped for JSON.
pub(super) fn pem(byte: u8) -> bool {
    base64(byte) || b" \t\r\n\\".contains(&byte)
}

pub(super) fn anything(_: &[u8]) -> bool {
    true
}

pub(super) fn any_digit(key: &[u8]) -> bool {
    key.iter().any(u8::is_ascii_digit)
}

pub(super) fn mixed_case(key: &[u8]) -> bool {
    key.iter().any(u8::is_ascii_uppercase) && key.iter().any(u8::is_ascii_lowercase)
}

pub(super) fn mixed(key: &[u8]) -> bool {
    mixed_case(key) && (any_digit(key) || key.contains(&b'='))
}

/// True if a block contains a line of a key. Text about keys has the markers, too.
pub(super) fn has_key_line(block: &[u8]) -> bool {
    let lines = block.split(|byte| !base64(*byte) && *byte != b'\\');
    lines.map(<[u8]>::len).max().is_some_and(|longest| longest >= KEY_LINE_MIN)
}

/// True if the base64 text encodes a user and a password.
pub(super) fn basic_login(text: &[u8]) -> bool {
    STANDARD.decode(text).is_ok_and(|login| {
        login.contains(&b':') && login.iter().all(|byte| (b' '..=b'~').contains(byte))
    })
}

/// True if the value is not a placeholder such as `$PASSWORD`, `%s`, `password` or `***`.
pub(super) fn is_not_placeholder(password: &[u8]) -> bool {
    let is_place = matches!(password.first(), Some(b'$' | b'%'))
        || ["password", "pass"].iter().any(|word| password.eq_ignore_ascii_case(word.as_bytes()));
    !is_place && password.iter().any(|byte| *byte != b'*')
}
