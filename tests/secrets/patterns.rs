//! Key patterns: each matches its keys anywhere in a text, and no similar text.

use std::collections::BTreeSet;

use outlast_core::secrets::{KEY_PATTERNS, KnownSecrets, PASSWORD_IN_URL, REDACTED, Redactor};

use super::examples;

fn redactor() -> Redactor {
    Redactor::default()
}

#[test]
fn every_key_pattern_has_an_example_and_is_redacted_anywhere() {
    let shown: BTreeSet<&str> = examples().iter().map(|example| example.name).collect();
    let known: BTreeSet<&str> = KEY_PATTERNS.iter().map(|shape| shape.name).collect();
    assert_eq!(shown, known, "each shape has its example");
    assert!(known.len() >= 20);
    for example in examples() {
        for (before, after) in [
            ("", ""),
            ("the key is ", ", keep it"),
            ("\"", "\""),
            ("{\\\"key\\\": \\\"", "\\\"}"),
            ("line\\n", "\\nline"),
            ("KEY=", "\nNEXT=1"),
            ("\u{1b}[01;31m", "\u{1b}[m"),
            ("größe: ", " – und mehr"),
        ] {
            let before = if example.name == "Telegram bot token" { "" } else { before };
            let text = format!("{before}{}{after}", example.text);
            let hidden = redactor().redact(&text);
            assert!(!hidden.contains(&example.secret), "{}: {hidden}", example.name);
            assert!(hidden.contains(REDACTED), "{}: {hidden}", example.name);
            assert!(hidden.starts_with(before) && hidden.ends_with(after), "{hidden}");
            assert_eq!(redactor().redact(&hidden), hidden, "what is hidden stays as it is");
        }
        assert!(Redactor::detect_key_kind(example.text.as_bytes()).is_some(), "{}", example.name);
    }
}

#[test]
fn a_key_beside_a_password_in_an_address_decides_the_kind_wherever_it_stands() {
    let (key, address) = (format!("ghp_{}", "aB3".repeat(12)), "http://u:pa55word@host/x");
    let kind = |text: &str| Redactor::detect_key_kind(text.as_bytes());
    assert_eq!(kind(address), Some(PASSWORD_IN_URL));
    let alone = kind(&key);
    assert!(alone.is_some() && alone != Some(PASSWORD_IN_URL));
    for text in [format!("{key} {address}"), format!("{address} {key}")] {
        assert_eq!(kind(&text), alone, "{text}");
    }
}

#[test]
fn the_text_that_introduces_a_secret_is_kept() {
    for example in examples().iter().filter(|example| example.text != example.secret) {
        let hidden = redactor().redact(&example.text);
        let (before, after) = example.text.split_once(&example.secret).expect("it is in there");
        let block = example.name.ends_with("private key");
        let (before, after) =
            if block { (before.trim_end(), after.trim_start()) } else { (before, after) };
        assert_eq!(hidden, format!("{before}{REDACTED}{after}"), "{}", example.name);
    }
}

#[test]
fn a_key_in_json_across_lines_or_truncated_is_redacted() {
    for example in examples().iter().filter(|example| example.name == "private key") {
        let json = serde_json::Value::from(example.text.as_str()).to_string();
        let line = example.secret.lines().next().expect("a line");
        let hidden = redactor().redact(&json);
        assert!(!hidden.contains(line), "{hidden}");
        assert!(serde_json::from_str::<String>(&hidden).is_ok(), "{hidden}");
        let (torn, _) = example.text.split_at(example.text.len() / 2);
        assert!(!redactor().redact(torn).contains(line), "{torn}");
    }
}

#[test]
fn a_preceding_letter_or_a_wrong_length_is_not_a_key() {
    for example in examples().iter().filter(|example| example.text == example.secret) {
        let text = format!("x{}", example.text);
        let inner = Redactor::detect_key_kind(text.as_bytes());
        assert!(inner.is_none(), "{text} is taken for a {inner:?}");
    }
    for short in ["AKIA", "ghp_", "sk-", "SK", "eyJ", "npm_config_registry", "sk-ant-", "hf_"] {
        assert_eq!(redactor().redact(short), short);
    }
}

#[test]
fn known_secret_values_are_redacted_in_every_encoding() {
    let value = "p\"q\\r+s/t=uvw xyz-0123456789";
    let known = KnownSecrets::new([value]);
    let redactor = Redactor::new(known.clone());
    let json = serde_json::Value::from(value).to_string();
    let twice = serde_json::Value::from(json.as_str()).to_string();
    let address = "p%22q%5Cr%2Bs%2Ft%3Duvw%20xyz-0123456789";
    for form in [value, json.trim_matches('"'), twice.trim_matches('"'), address] {
        let hidden = redactor.redact(&format!("see {form} there"));
        assert!(!hidden.contains("uvw"), "{form}: {hidden}");
    }
    // As `user:token` in a header, whatever the user's name.
    for user in ["", "a", "ab", "abc"] {
        let text = base64(&format!("{user}:{value}!"));
        let hidden = redactor.redact(&format!("x={text}"));
        assert!(hidden.contains(REDACTED) && hidden.len() < text.len(), "{hidden}");
    }
    assert!(!format!("{known:?}").contains("0123456789"));
}

#[test]
fn known_secret_values_are_redacted_as_other_languages_escape_them() {
    let redactor =
        Redactor::new(KnownSecrets::new(["wo/rd<&>gr\u{fc}\"\u{1f511}x", "Zq~~~???>>>k9abcX??>>"]));
    for form in [
        // Go, PHP, Python, HTML.
        "wo/rd\\u003c\\u0026\\u003egr\u{fc}\\\"\u{1f511}x",
        "wo\\/rd<&>gr\\u00fc\\\"\\ud83d\\udd11x",
        "wo/rd<&>gr\\u00fc\\\"\\ud83d\\udd11x",
        "wo/rd&lt;&amp;&gt;gr\u{fc}&quot;\u{1f511}x",
        // Base64 for addresses.
        "WnF-fn4_Pz8-Pj5rOWFiY1g_Pz4-",
        // Hexadecimal: xxd -p, PostgreSQL, od, openssl.
        "5a717e7e7e3f3f3f3e3e3e6b39616263583f3f3e3e",
        "5A717E7E7E3F3F3F3E3E3E6B39616263583F3F3E3E",
        "5a 71 7e 7e 7e 3f 3f 3f 3e 3e 3e 6b 39 61 62 63 58 3f 3f 3e 3e",
        "5a:71:7e:7e:7e:3f:3f:3f:3e:3e:3e:6b:39:61:62:63:58:3f:3f:3e:3e",
        "5A:71:7E:7E:7E:3F:3F:3F:3E:3E:3E:6B:39:61:62:63:58:3F:3F:3E:3E",
    ] {
        assert_eq!(redactor.redact(&format!("see {form} there")), format!("see {REDACTED} there"));
    }
}

/// One value with each character that programs escape, and one that mixes them.
#[test]
fn known_secret_values_are_redacted_as_shells_and_tables_quote_them() {
    let rows: [(&str, &[&str]); 9] = [
        (
            "Wm4x'Qz81Lp07",
            &[
                "Wm4x'\\''Qz81Lp07",
                "Wm4x'\"'\"'Qz81Lp07",
                "Wm4x\\'Qz81Lp07",
                "Wm4x''Qz81Lp07",
                "Wm4x\\u0027Qz81Lp07",
                "Wm4x&apos;Qz81Lp07",
                "Wm4x&#x27;Qz81Lp07",
                "Wm4x&#039;Qz81Lp07",
            ],
        ),
        ("Wm4x$Qz81Lp07", &["Wm4x\\$Qz81Lp07", "Wm4x$$Qz81Lp07"]),
        ("Wm4x&Qz81Lp07", &["Wm4x\\&Qz81Lp07", "Wm4x&#38;Qz81Lp07", "Wm4x\\u0026Qz81Lp07"]),
        ("Wm4xQz81+/aaZZ1w==", &["Wm4xQz81+/aaZZ1w\\u003d\\u003d", "Wm4xQz81\\u002B/aaZZ1w=="]),
        ("Wm4x\"Qz81Lp07", &["Wm4x\"\"Qz81Lp07", "Wm4x&#34;Qz81Lp07", "Wm4x\\u0022Qz81Lp07"]),
        ("Wm4x!Qz81#Lp07", &["Wm4x\\!Qz81#Lp07"]),
        ("Wm4x Qz81, Lp07", &["Wm4x\\ Qz81\\,\\ Lp07"]),
        (
            "zQ7#d/3w\"x\\p&5'sm<9",
            &[
                "zQ7#d/3w\"x\\\\p&5\\'sm<9",
                "zQ7#d/3w\"x\\p&amp;5'sm&lt;9",
                "zQ7#d\\/3w\\\"x\\\\p\\u00265'sm\\u003c9",
                "zQ7#d/3w\"x\\p&amp;5&#39;sm&lt;9",
            ],
        ),
        ("Wm4x%Qz81Lp07", &["Wm4x%%Qz81Lp07"]),
    ];
    for (value, forms) in rows {
        let redactor = Redactor::new(KnownSecrets::new([value]));
        for form in forms {
            assert_eq!(
                redactor.redact(&format!("see {form} there")),
                format!("see {REDACTED} there")
            );
        }
    }
}

/// The program `base64` begins a new line after 76 characters, openssl after 64.
#[test]
fn known_secret_values_are_redacted_in_base64_with_line_feeds() {
    let value =
        "Ab3dEf6hIj9kLmNopQrStUvWxYz0123456789_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789abcdefghij";
    let redactor = Redactor::new(KnownSecrets::new([value]));
    for (before, columns) in (0..80).flat_map(|before| [(before, 76), (before, 64)]) {
        let text = base64(&format!("{}{value}", "-".repeat(before)));
        let lines = text.as_bytes().chunks(columns).map(String::from_utf8_lossy);
        let hidden = redactor.redact(&lines.collect::<Vec<_>>().join("\n"));
        let filler = base64(&"-".repeat(before)).trim_end_matches('=').len();
        let rest = hidden.replace(REDACTED, "").replace(['\n', '='], "").len();
        // A line feed leaves less than a half of a part on either side.
        assert!(rest < filler + 3 * 24, "{before}, {columns}: {hidden}");
    }
    // An unbroken one is redacted at once, also in pieces of a stream.
    assert_eq!(redactor.redact(&base64(value)).matches(REDACTED).count(), 1);
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn a_short_value_is_not_redacted_and_a_longer_one_is_redacted_whole() {
    let known = KnownSecrets::new(["sho", "long-secret", "long-secret-and-more"]);
    let redactor = Redactor::new(known.clone());
    assert_eq!(
        redactor.redact("sho long-secret long-secret-and-more"),
        "sho [redacted] [redacted]"
    );
    known.add(" learnt-on-the-way\n");
    assert_eq!(redactor.redact("learnt-on-the-way."), "[redacted].");
}

#[test]
fn the_model_sees_keys_in_files_but_not_those_of_the_run_or_the_job() {
    let redactor = Redactor::for_model(KnownSecrets::new(["our-own-key-0123456789"]));
    assert_eq!(redactor.redact("our-own-key-0123456789"), REDACTED);
    for example in examples() {
        let hidden = redactor.redact(&example.text);
        let in_checkouts = KEY_PATTERNS.iter().any(|s| s.name == example.name && s.in_checkouts);
        assert_eq!(hidden != example.text, in_checkouts, "{}: {hidden}", example.name);
    }
}
