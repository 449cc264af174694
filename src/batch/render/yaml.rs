//! Renders JSON values as YAML in block style, which users can edit.

use serde_json::Value;
use serde_saphyr::ser_options;

/// Renders one document.
pub fn render_yaml(value: &Value) -> String {
    // Block scalars fold long texts: spaces at the folds are invisible, and easy to lose in an
    // editor.
    let options = ser_options! { compact_list_indent: false, prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).expect("YAML can express all of JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_in_block_style() {
        let value = json!({
            "kind": "Job", "empty": {}, "none": [], "number": 3,
            "list": [{ "a": "x", "b": ["1", "no"] }, "plain", []],
            "text": "a: b\n\"c\" # ä", "odd": "\u{7f}\u{85}\u{9b}\u{2028}\u{feff}\u{ffff}😀",
        });
        let wanted = "kind: Job\nempty: {}\nnone: []\nnumber: 3\nlist:\n  - a: x\n    b:\n      \
                      - \"1\"\n      - \"no\"\n  - plain\n  - []\ntext: \"a: b\\n\\\"c\\\" # ä\"\n\
                      odd: \"\\x7F\\N\\x9B\\L\\uFEFF\\uFFFF😀\"\n";
        assert_eq!(render_yaml(&value), wanted);
        let read: Value = serde_saphyr::from_str(&render_yaml(&value)).expect("it is YAML");
        assert_eq!(read, value);
    }
}
