//! Reads YAML as JSON. Pure.

use serde_json::Value;
use serde_saphyr::{Options, UserMessageFormatter, options};

/// Reason that a text is not YAML, or not YAML that JSON can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlError {
    /// Line and column, counted from 1.
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) why: String,
}

/// Reads the only document of a text.
///
/// # Errors
/// It is not YAML, or it has elements that JSON does not: keys that are not scalars, duplicate
/// keys, a second document; or it is larger than the budget of the parser, aliases included.
pub(super) fn parse(text: &str) -> Result<Value, YamlError> {
    // In YAML 1.2, `yes`, `on` and `1_000` are texts.
    let options: Options = options! {
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let (line, column) =
            error.location().map_or((1, 1), |place| (place.line(), place.column()));
        let why = error.render_with_formatter(&UserMessageFormatter);
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        YamlError {
            line: number(line),
            column: number(column),
            why: why.split(" at line ").next().unwrap_or_default().to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DEPTH_MAX: usize = 64;

    #[test]
    fn yaml_is_read_as_json() {
        let text = "# words\nname: on\n'quoted': \"a\\tb\"\ncount: 42\nratio: -1.5e3\nhex: 0x1f\n\
                    octal: 0o17\nbig: 18446744073709551615\ndate: 2026-01-02\nversion: 1.2.3\n\
                    dash: -x\ncomma: 1_000\nyes: true\nno: ~\nnothing:\ntext: !!str 7\nlist:\n  - a\n  - [b, {c: d}]\n\
                    block: |\n  one\n  two\nfolded: >-\n  one\n  two\n";
        let wanted = json!({
            "name": "on", "quoted": "a\tb", "count": 42, "ratio": -1500.0, "hex": 31, "octal": 15,
            "big": u64::MAX, "date": "2026-01-02", "version": "1.2.3", "dash": "-x", "comma": "1_000", "yes": true,
            "no": null, "nothing": null, "text": "7", "list": ["a", ["b", { "c": "d" }]],
            "block": "one\ntwo\n", "folded": "one two",
        });
        assert_eq!(parse(text), Ok(wanted));
        assert_eq!(parse(""), Ok(Value::Null));
        assert_eq!(parse("a: &x [1]\nb: *x\n"), Ok(json!({ "a": [1], "b": [1] })));
        assert_eq!(parse("---\na: b\n...\n"), Ok(json!({ "a": "b" })));
    }

    #[test]
    fn what_json_cannot_express_is_an_error_with_its_place() {
        let deep = format!("a: {}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        // Each line has ten times the nodes of the one before it.
        let line = |number: u32| {
            format!("k{number}: &a{number} [{}]\n", format!("*a{}, ", number - 1).repeat(10))
        };
        let bomb = "k0: &a0 [x]\n".to_owned() + &(1..9).map(line).collect::<String>();
        for (text, line, column, why) in [
            ("a: 1\nb: 2\na: 3\n", 3, 1, "duplicate mapping key `a`"),
            ("a: *x\n", 1, 4, "reference to unknown value"),
            ("a: 1\n? [b]\n: c\n", 2, 3, "expected string"),
            ("a: 1\n---\nb: 2\n", 3, 1, "only single YAML document"),
            ("a: [1, 2\n", 1, 4, "unclosed bracket"),
            (&deep, 1, DEPTH_MAX + 3, "too complex"),
            (&bomb, 7, 10, "too complex"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text}: {error:?}");
            assert!(
                error.why.contains(why) && !error.why.contains(" at line "),
                "{text}: {error:?}"
            );
        }
    }
}
