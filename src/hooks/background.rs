//! Hooks that request to continue in the background: `{"async": true}` as their first output.

use std::time::Duration;

use serde_json::{Deserializer, Value};

use super::echo::GivenText;
use super::named_files;

/// The longest time that a hook may request in the background.
const LIMIT_MAX: Duration = Duration::from_hours(1);

/// The longest output that is searched for a request, in bytes.
const OPENING_MAX: usize = 4 << 10;

/// A request to continue in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// The time limit from then on. `None` keeps the configured timeout.
    pub(super) limit: Option<Duration>,
}

/// The beginning of a hook's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// A request to continue in the background.
    Release(Release),
    /// Anything else.
    Other,
    /// Not enough output yet to decide.
    Incomplete,
}

impl Opening {
    /// Classifies the beginning of the output of a hook with this input: a request that only
    /// repeats the input, or the beginning of a file that it names, does not count.
    pub(super) fn of_hook(output: &[u8], input: &Value) -> Self {
        let opening = Self::classify(output);
        let is_repeated = matches!(opening, Self::Release(_)) && has_request(input);
        if is_repeated { Self::Other } else { opening }
    }

    /// Classifies the beginning of a hook's output, which may repeat its input.
    pub(super) fn classify(output: &[u8]) -> Self {
        let output = output.strip_prefix(b"\xef\xbb\xbf").unwrap_or(output).trim_ascii_start();
        let begins = output.first().is_none_or(|first| *first == b'{');
        if !begins || output.len() > OPENING_MAX {
            return Self::Other;
        }
        match Deserializer::from_slice(output).into_iter::<Value>().next() {
            Some(Ok(value)) if value["async"] == true => Self::Release(Release {
                limit: value["asyncTimeout"]
                    .as_u64()
                    .map(|millis| Duration::from_millis(millis).min(LIMIT_MAX)),
            }),
            Some(Err(error)) if error.is_eof() => Self::Incomplete,
            Some(Ok(_) | Err(_)) => Self::Other,
            None => Self::Incomplete,
        }
    }
}

/// Returns true if the input of a hook, or the beginning of a file that it names, has a request to
/// continue in the background. Reads the files.
pub(super) fn has_request(input: &Value) -> bool {
    let requests = |text: String| {
        let end = text.floor_char_boundary(OPENING_MAX);
        matches!(Opening::classify(&text.as_bytes()[..end]), Opening::Release(_))
    };
    GivenText::of(input).has_background_request() || named_files::texts(input).any(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_leading_async_object_requests_the_background() {
        let release = |millis: Option<u64>| {
            Opening::Release(Release { limit: millis.map(Duration::from_millis) })
        };
        let rows = [
            ("", Opening::Incomplete),
            (" \n", Opening::Incomplete),
            ("{\"async\"", Opening::Incomplete),
            ("{\"async\":true", Opening::Incomplete),
            ("{\"async\":true}", release(None)),
            ("\u{feff}{\"async\":true}\n", release(None)),
            ("\n{\n  \"async\": true\n}\nmore words", release(None)),
            ("{\"async\":true,\"asyncTimeout\":1500}\n", release(Some(1_500))),
            ("{\"async\":true,\"asyncTimeout\":999999999999}", release(Some(3_600_000))),
            ("{\"async\":true,\"asyncTimeout\":\"long\"}", release(None)),
            ("{\"async\":false}\n{\"async\":true}", Opening::Other),
            ("{\"async\":\"true\"}", Opening::Other),
            ("{\"decision\":\"block\"}", Opening::Other),
            ("{ oops", Opening::Other),
            ("working\n{\"async\":true}", Opening::Other),
            ("[{\"async\":true}]", Opening::Other),
        ];
        for (output, wanted) in rows {
            assert_eq!(Opening::classify(output.as_bytes()), wanted, "{output:?}");
        }
        let echo = serde_json::json!({ "tool_input": { "command": "{\"async\": true}\nrm x" } });
        for (input, wanted) in [(echo, Opening::Other), (Value::Null, release(None))] {
            assert_eq!(Opening::of_hook(b"{\"async\":true}\nrm x", &input), wanted);
        }
        let folder = tempfile::tempdir().unwrap();
        let files = [("first", Opening::Other), ("other", release(None)), ("none", release(None))];
        for (name, text) in [("first", "{\"async\": true}\nrest"), ("other", "x = {async: true}")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        for (name, wanted) in files {
            let call = serde_json::json!({ "command": format!("cat {name}") });
            let cwd = folder.path().to_string_lossy();
            let input = serde_json::json!({ "cwd": cwd, "tool_input": call });
            assert_eq!(Opening::of_hook(b"{\"async\": true}", &input), wanted, "{name}");
        }
        let long = format!("{{\"async\":true,\"x\":\"{}\"}}", "x".repeat(OPENING_MAX));
        assert_eq!(Opening::classify(long.as_bytes()), Opening::Other);
    }
}
