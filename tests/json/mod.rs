//! The reader for the JSON of other programs: whatever they can write is read.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use outlast_core::json::{NESTING_MAX, STACK_BYTES, decode, read, read_str, to_line};
use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};
use serde_json::{Map, Value, json};

/// The levels of lists in a value, and what the innermost holds.
fn levels(value: &Value) -> (usize, &Value) {
    let (mut depth, mut inner) = (0, value);
    while let Value::Array(items) = inner {
        depth += 1;
        match items.first() {
            Some(item) => inner = item,
            None => break,
        }
    }
    (depth, inner)
}

#[test]
fn nesting_is_read_to_any_depth() {
    let check = || {
        for depth in [127, 128, 1_000, NESTING_MAX, NESTING_MAX + 1, 3_000_000] {
            let text = format!("{}\"\\ud83d]\"{}", "[".repeat(depth), "]".repeat(depth));
            let value = read_str::<Value>(&text).unwrap();
            let (found, inner) = levels(&value);
            assert_eq!(found, depth.min(NESTING_MAX));
            let inner = inner.as_str().expect("text");
            let more = depth - found;
            let wanted = format!("{}\"\\ud83d]\"{}", "[".repeat(more), "]".repeat(more));
            assert_eq!(inner, if more == 0 { "\u{fffd}]" } else { &wanted });
        }
        // Handled as all values are: copied, compared, written, and taken into types.
        let text =
            format!("{}{}", "{\"a\":[".repeat(NESTING_MAX / 2), "]}".repeat(NESTING_MAX / 2));
        let value = read_str::<Value>(&text).unwrap();
        assert_eq!(value.clone(), value);
        assert_eq!(value.to_string(), text);
        assert!(serde_json::from_value::<Vec<u8>>(value).is_err());
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(check).expect("a thread").join().expect("no overflow");
    let unclosed = "[".repeat(3_000_000);
    assert!(read_str::<serde::de::IgnoredAny>(&unclosed).is_err());
}

/// Values of all kinds.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        proptest::strategy::Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\u{0}-\u{ff}\u{2028}\u{2029}\\\\\"]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Text that is almost JSON.
fn almost_json() -> impl Strategy<Value = String> {
    let parts = prop_oneof![
        "[\\[\\]{}:, \"\\\\]".prop_map(String::from),
        "(\\\\u[dD][89a-fA-F][0-9a-f]{1,2}|\\\\u|NaN|-?Infinity|-|1e999|\\\\|\"|[0-9]{1,5}|[a-zé])",
    ];
    prop::collection::vec(parts, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn valid_json_is_read_as_it_is(value in values()) {
        let line = to_line(&value);
        assert_eq!(line.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count(), 1);
        assert_eq!(read::<Value>(line.as_bytes()).unwrap(), value);
        // The same by the way of repair.
        let marked = format!("\u{feff}{line}");
        assert_eq!(read::<Value>(marked.as_bytes()).unwrap(), value);
        assert_eq!(read_str::<Value>(&marked).unwrap(), value);
        let halves = format!("[{line},\"\\udc00\"]");
        assert_eq!(read_str::<Value>(&halves).unwrap(), json!([value, "\u{fffd}"]));
    }

    #[test]
    fn no_input_makes_the_reader_fail_otherwise_than_by_an_error(text in almost_json(), bytes: Vec<u8>) {
        let _ = (read_str::<Value>(&text), read::<Value>(&bytes), decode(&bytes));
        // What the strict reader takes is read in the same way.
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            assert_eq!(read_str::<Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn bytes_in_strings_are_read_whatever_they_are(bytes: Vec<u8>) {
        let text: Vec<u8> = bytes.into_iter().filter(|byte| !b"\"\\".contains(byte)).collect();
        let json = [b"{\"a\": \"", text.as_slice(), b"\"}"].concat();
        let value = read::<Value>(&json).unwrap();
        assert_eq!(value["a"].as_str().unwrap(), String::from_utf8_lossy(&text));
    }
}

/// Runs a script that writes JSON lines, each followed by what its own reader makes of it. `None`: the
/// program is missing.
fn written_by(program: &str, script: &str) -> Option<Vec<Vec<u8>>> {
    let mut child =
        Command::new(program).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let script = script.to_owned();
    let feeder = thread::spawn(move || stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().expect("it is waited for");
    feeder.join().expect("no panic").expect("it reads its script");
    assert!(output.status.success(), "{program}: {:?}", output.status);
    Some(output.stdout.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
}

/// Checks lines that a program wrote, in pairs: what it writes for a value, and the same value as a list of
/// the code units of its text, or `null` where only the reading counts.
fn check_written(program: &'static str, script: &'static str) {
    let check = move || compare_written(program, script);
    let reader = thread::Builder::new().stack_size(STACK_BYTES).spawn(check).expect("a thread");
    reader.join().expect("all is read");
}

fn compare_written(program: &str, script: &str) {
    let Some(lines) = written_by(program, script) else { return };
    let (mut pairs, mut rest) = (0, lines.as_slice());
    while let [line, units, more @ ..] = rest {
        let shown = String::from_utf8_lossy(line);
        let value =
            read::<Value>(line).unwrap_or_else(|error| panic!("{program}: {error}: {shown}"));
        let units: Option<Vec<u16>> = serde_json::from_slice(units).expect("numbers");
        if let Some(units) = units {
            assert_eq!(value["text"].as_str(), Some(&*String::from_utf16_lossy(&units)), "{shown}");
        }
        (pairs, rest) = (pairs + 1, more);
    }
    assert!(pairs > 1_000, "{program}: {pairs}");
}

#[test]
fn whatever_json_stringify_of_node_writes_is_read() {
    check_written(
        "node",
        r#"
        const units = [0xd83d, 0xde00, 0xd800, 0xdfff, 0x41, 0x22, 0x5c, 0x0a, 0, 0x85, 0x2028, 0xfeff, 0xfffe, 0xe9];
        let seed = 7; const next = n => (seed = (seed * 48271) % 2147483647) % n;
        for (let i = 0; i < 1500; i++) {
            const text = Array.from({length: next(8)}, () => units[next(units.length)]);
            const s = String.fromCharCode(...text);
            console.log(JSON.stringify({text: s, [s]: [1e308 * 10, NaN, -0, 1e21, 5e-324, next(9)]}));
            console.log(JSON.stringify(text));
        }
        for (const depth of [127, 128, 500, 2000]) {
            let deep = []; for (let i = 0; i < depth; i++) deep = i % 2 ? [deep] : {a: deep};
            console.log(JSON.stringify(deep)); console.log("null");
        }
        "#,
    );
}

#[test]
fn whatever_json_dumps_of_python_writes_is_read() {
    check_written(
        "python3",
        r#"
import json, random, sys
random.seed(7)
out = sys.stdout.buffer
units = [0xd83d, 0xde00, 0xd800, 0xdfff, 0x41, 0x22, 0x5c, 0x0a, 0, 0x85, 0x2028, 0xfeff, 0xe9]
odd = [float("nan"), float("inf"), float("-inf"), 1e308, 2**64, -2**70, 10**400, -0.0, 5e-324]
def put(value, units, **how):
    out.write(json.dumps(value, **how).encode("utf-8", "surrogatepass") + b"\n" + json.dumps(units).encode() + b"\n")
for i in range(1500):
    text = [random.choice(units) for _ in range(random.randrange(8))]
    s = "".join(map(chr, text))
    put({"text": s, s: random.choice(odd)}, text)
    put([s, {s: odd}], None, ensure_ascii=False)
deep = []
for i in range(900):
    deep = [deep] if i % 2 else {"a": deep}
put(deep, None)
"#,
    );
}
