//! The members at the start of a line, read without parsing the line: readers skip the lines that
//! they ignore, and those are the largest ones.

/// The type of our own records, as it is written.
const OUR_RECORD: &[u8] = br#""outlast""#;

/// The length of the part that contains the type of a line, even if the working directory has the
/// longest path.
const HEAD_BYTES: usize = 6 << 10;

/// Iterates over the members of a JSON object, each with its name and its value as they are
/// written: with quotes and escapes. Ends at anything but JSON without blanks, or after
/// [`HEAD_BYTES`].
pub(super) struct HeadMembers<'a> {
    /// The head of the line from the end of the last member on.
    rest: &'a [u8],
}

impl<'a> HeadMembers<'a> {
    pub(super) fn of(line: &'a [u8]) -> Self {
        Self { rest: &line[..line.len().min(HEAD_BYTES)] }
    }

    /// Advances to the next member with this name, and returns its value.
    pub(super) fn value(&mut self, wanted: &[u8]) -> Option<&'a [u8]> {
        self.find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }

    /// Returns true if a member with this name comes next.
    pub(super) fn is_before(&self, name: &str) -> bool {
        let rest =
            self.rest.strip_prefix(b",\"").and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b"\":"))
    }
}

impl<'a> Iterator for HeadMembers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (b'{' | b',', member) = self.rest.split_first()? else { return None };
        let (name, rest) = member.strip_prefix(b"\"")?.split_at(text_length(member)? - 2);
        let value = rest.strip_prefix(b"\":")?;
        let (value, rest) = value.split_at(value_length(value)?);
        self.rest = rest;
        Some((name, value))
    }
}

/// Returns the kind of one of our own records, as it is written. `None` for other lines.
pub(super) fn record_kind(line: &[u8]) -> Option<&[u8]> {
    let mut members = HeadMembers::of(line);
    members.value(b"type").filter(|kind| *kind == OUR_RECORD)?;
    members.value(b"kind")
}

/// The length of the string at the start, with its quotes. `None`: there is none, or it is cut off.
fn text_length(json: &[u8]) -> Option<usize> {
    let mut at = json.starts_with(b"\"").then_some(1)?;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The length of the value at the start. `None`: it is cut off.
fn value_length(json: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match json.get(at)? {
            b'"' => at += text_length(&json[at..])? - 1,
            b'[' | b'{' => depth += 1,
            b',' | b']' | b'}' if depth == 0 => return Some(at),
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_a_line_are_read_up_to_the_end_of_its_head() {
        let line =
            br#"{"a":{"type":"no","b":[1,"]}"]},"\"c\\":"\\\"","type":"x","e":-1.5,"f":null}"#;
        let members: Vec<_> = HeadMembers::of(line)
            .map(|(name, value)| [name, value].map(|it| str::from_utf8(it).unwrap()))
            .collect();
        assert_eq!(
            members,
            [
                ["a", r#"{"type":"no","b":[1,"]}"]}"#],
                [r#"\"c\\"#, r#""\\\"""#],
                ["type", r#""x""#],
                ["e", "-1.5"],
                ["f", "null"],
            ]
        );
        let mut members = HeadMembers::of(line);
        assert_eq!(members.value(b"type"), Some(&b"\"x\""[..]));
        assert!(members.is_before("e") && !members.is_before("f") && !members.is_before(""));
        for none in
            [&b""[..], b"{", b"{}", b"{ \"a\":1}", b"{\"a\" :1}", b"{\"a\":\"", b"[1]", b"{\"a\":1"]
        {
            assert_eq!(HeadMembers::of(none).next(), None, "{none:?}");
        }
        let long = format!(r#"{{"a":"{}","type":"x"}}"#, "a".repeat(HEAD_BYTES));
        assert_eq!(HeadMembers::of(long.as_bytes()).next(), None);
    }

    #[test]
    fn only_our_own_records_have_a_kind() {
        let kind =
            |line: &'static str| record_kind(line.as_bytes()).map(|it| str::from_utf8(it).unwrap());
        assert_eq!(kind(r#"{"type":"outlast","v":1,"kind":"end","reason":"x"}"#), Some(r#""end""#));
        assert_eq!(kind(r#"{"type":"user","kind":"end"}"#), None);
        assert_eq!(kind(r#"{"a":{"type":"outlast","kind":"end"}}"#), None);
        assert_eq!(kind(r#"{"type":"outlast","v":1,"a":{"kind":"end"}}"#), None);
    }
}
