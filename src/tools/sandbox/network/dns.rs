//! Answers DNS queries (RFC 1035). Pure: no other server is queried.

use std::net::Ipv4Addr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameAnswer {
    Address(Ipv4Addr),
    /// There is no such name.
    Unknown,
    /// The resolver has no address left.
    Failure,
}

const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: u8 = 63;

/// Bits of the third and fourth byte of a message.
const RESPONSE: u8 = 0x80;
const OPERATION: u8 = 0x78;
const RECURSION_WANTED: u8 = 0x01;
const RECURSION_OFFERED: u8 = 0x80;

const TYPE_ADDRESS: [u8; 2] = [0, 1];
const CLASS_INTERNET: [u8; 2] = [0, 1];
/// A reference to the name in the question.
const NAME_OF_QUESTION: [u8; 2] = [0xc0, 12];
/// The time for which an address is valid, in seconds.
const LIFETIME: [u8; 4] = [0, 0, 0, 60];

const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// Answers a message. `None`: it is not a query, so the connection is closed. Queries for anything
/// but an IPv4 address of a known name have empty answers.
pub(super) fn respond(
    message: &[u8],
    mut look_up: impl FnMut(&str) -> NameAnswer,
) -> Option<Vec<u8>> {
    let (header, rest) = message.split_at_checked(HEADER_BYTES)?;
    let (operation, is_response) = (header[2] & OPERATION, header[2] & RESPONSE != 0);
    if is_response {
        return None;
    }
    let reply = |code: u8, question: &[u8], answer: &[u8]| {
        let flags = [RESPONSE | operation | header[2] & RECURSION_WANTED, RECURSION_OFFERED | code];
        let counts =
            [0, u8::from(!question.is_empty()), 0, u8::from(!answer.is_empty()), 0, 0, 0, 0];
        Some([&header[..2], &flags, &counts, question, answer].concat())
    };
    if operation != 0 {
        return reply(NOT_IMPLEMENTED, &[], &[]);
    }
    let Some(question) = Question::parse(rest).filter(|_| header[4..6] == [0, 1]) else {
        return reply(FORMAT_ERROR, &[], &[]);
    };
    let question_bytes = &rest[..question.length];
    match look_up(&question.name) {
        NameAnswer::Address(address) if question.is_for_address => {
            let record = [
                &NAME_OF_QUESTION[..],
                &TYPE_ADDRESS,
                &CLASS_INTERNET,
                &LIFETIME,
                &[0, 4],
                &address.octets(),
            ];
            reply(NO_ERROR, question_bytes, &record.concat())
        }
        NameAnswer::Address(_) => reply(NO_ERROR, question_bytes, &[]),
        NameAnswer::Unknown => reply(NO_SUCH_NAME, question_bytes, &[]),
        NameAnswer::Failure => reply(SERVER_FAILURE, question_bytes, &[]),
    }
}

struct Question {
    /// In lower case, without a dot at the end.
    name: String,
    is_for_address: bool,
    /// In bytes.
    length: usize,
}

impl Question {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (mut at, mut labels) = (0, Vec::new());
        loop {
            let length = *bytes.get(at)?;
            at += 1;
            if length == 0 {
                break;
            }
            // References to other names are not accepted.
            if length > LABEL_BYTES_MAX || at > NAME_BYTES_MAX {
                return None;
            }
            let label = bytes.get(at..at + usize::from(length))?;
            at += usize::from(length);
            let is_plain = label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.');
            labels.push(str::from_utf8(label).ok().filter(|_| is_plain)?.to_ascii_lowercase());
        }
        let kind = bytes.get(at..at + 4)?;
        let is_for_address = kind == [TYPE_ADDRESS, CLASS_INTERNET].concat();
        Some(Self { name: labels.join("."), is_for_address, length: at + 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).expect("a short label"));
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    fn known(name: &str) -> NameAnswer {
        match name {
            "a.example" => NameAnswer::Address(ADDRESS),
            "full.example" => NameAnswer::Failure,
            _ => NameAnswer::Unknown,
        }
    }

    #[test]
    fn a_known_name_has_an_ipv4_address_and_nothing_else() {
        for kind in 0..300u16 {
            let query = question("A.Example", kind);
            let answer = respond(&query, known).expect("an answer");
            assert_eq!(answer[..4], [7, 8, 0x81, 0x80], "{kind}");
            assert_eq!(answer[4..12], [0, 1, 0, u8::from(kind == 1), 0, 0, 0, 0], "{kind}");
            assert_eq!(answer[12..query.len()], query[12..], "{kind}");
            let record = &answer[query.len()..];
            match kind {
                1 => assert_eq!(record, [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, 9]),
                _ => assert!(record.is_empty(), "{kind}"),
            }
        }
    }

    #[test]
    fn unknown_names_do_not_exist_and_full_tables_fail() {
        for (name, code) in [("b.example", 3), ("a.example.b", 3), ("full.example", 2)] {
            for kind in [1, 28, 12, 65] {
                let answer = respond(&question(name, kind), known).expect("an answer");
                assert_eq!(answer[3], 0x80 | code, "{name} {kind}");
                assert_eq!(answer[6..8], [0, 0], "{name} {kind}");
            }
        }
        let question = question("a.example", 1);
        let chaos = [&question[..question.len() - 1], &[3]].concat();
        assert_eq!(respond(&chaos, known).expect("an answer")[6..8], [0, 0]);
    }

    #[test]
    fn malformed_messages_have_no_answer_and_never_panic() {
        let whole = question("a.example", 1);
        for length in 0..whole.len() {
            let answer = respond(&whole[..length], known);
            assert_eq!(
                answer.map(|answer| answer[3] & 0xf),
                (length >= 12).then_some(1),
                "{length}"
            );
        }
        let with = |at: usize, byte: u8| {
            let mut message = whole.clone();
            message[at] = byte;
            respond(&message, known).map(|answer| answer[3] & 0xf)
        };
        assert_eq!(with(2, 0x81), None, "a response");
        assert_eq!(with(2, 0x09), Some(4), "another operation");
        assert_eq!(with(5, 2), Some(1), "two questions");
        assert_eq!(with(12, 0xc0), Some(1), "a reference");
        assert_eq!(with(13, b'.'), Some(1), "a dot in a label");
        assert_eq!(with(13, 0xff), Some(1), "not ASCII");
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                with(at, byte);
            }
        }
        let endless = [&whole[..12], &[1, b'a'].repeat(400)].concat();
        assert_eq!(respond(&endless, known).map(|answer| answer[3] & 0xf), Some(1));
    }
}
