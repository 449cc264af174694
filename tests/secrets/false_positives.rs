//! False positives of redaction: hashes, ids, checksums, lock files, images, code.

use std::fmt::Write as _;
use std::fs;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use outlast_core::secrets::Redactor;
use uuid::Uuid;

use crate::support::golden;

fn stays(what: &str, text: &str) {
    let hidden = Redactor::default().redact(text);
    let change = text.lines().zip(hidden.lines()).find(|(before, after)| before != after);
    assert!(hidden == text, "{what}: {change:?}");
}

/// Bytes that are as good as random, and always the same.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..count).map(|_| next()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn redaction_keeps_the_files_of_this_repository() {
    let root = golden::root();
    for name in ["Cargo.lock", "README.md", "CHANGELOG.md", "man/outlast.1", "Cargo.toml"] {
        stays(name, &fs::read_to_string(root.join(name)).expect("it is there"));
    }
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                // Where the shapes are told, private keys begin and do not end.
                stays(&path.display().to_string(), &fs::read_to_string(&path).expect("text"));
            }
        }
    }
}

#[test]
fn redaction_keeps_hashes_ids_and_checksums() {
    let mut text = String::new();
    for seed in 0..500 {
        let bytes = noise(seed, 64);
        let hash = hex(&bytes[..20]);
        let id = Uuid::from_slice(&bytes[..16]).expect("16 bytes");
        let _ = writeln!(text, "commit {hash}\n    key: {hash} (HEAD -> main, tag: v1.{seed})");
        let _ = writeln!(text, "{id}  sha256:{}  {}", hex(&bytes[..32]), hex(&bytes));
        let _ = writeln!(text, "md5 {}; cache-key-{}", hex(&bytes[..16]), hex(&bytes[..16]));
        let _ = writeln!(text, "\"integrity\": \"sha512-{}\",", STANDARD.encode(&bytes));
        let _ =
            writeln!(text, "\"resolved\": \"https://registry.npmjs.org/@a/b/-/b-1.{seed}.tgz\",");
        let _ = writeln!(
            text,
            "h1:{} SHA256:{}",
            STANDARD.encode(&bytes[..32]),
            STANDARD.encode(&bytes[..32])
        );
        let _ = writeln!(text, "toolu_{} req_{} msg_01{}", id.simple(), id.simple(), &hash[..22]);
        let _ = writeln!(
            text,
            "etag: W/\"{}\" nonce {}",
            hex(&bytes[..8]),
            URL_SAFE_NO_PAD.encode(&bytes)
        );
    }
    stays("hashes", &text);
}

#[test]
fn redaction_keeps_ordinary_words() {
    stays(
        "words",
        "Basic authentication and Bearer authentication are schemes; a bearer token is sent. \
         https://host.invalid:8080/a@b and ssh://git@host.invalid:22/x, http://[::1]:80/ and \
         postgres://$USER:$PASSWORD@db, postgres://user:***@db, {}://{}:{}@{}, file:///etc/x:y. \
         task-force, risk-sk-learn, desk-12345678901234567890123456789012, npm_config_user_agent, \
         SKU SK-1, AKIA, hf_hub_download, pypi-server, key-value, xoxo, AccountKey=, dapi, SG.x, \
         Authorization: Bearer $TOKEN, x-api-key: $ANTHROPIC_API_KEY, _authToken=${NPM_TOKEN}, \
         csk-kebab-case-name, sk-SK, sk_index, re_export_all, secret_name, fw_config, napi_create_function, \
         \"auth\": \"OAuth2AuthorizationCode\", ?password=changeme, machine learning login, \
         aws_secret_access_key = <your key>, data:application/json;base64,eyJ2ZXJzaW9uIjozfQ==",
    );
}

#[test]
fn redaction_keeps_megabytes_of_base64() {
    for seed in 1..=4 {
        let bytes = noise(seed, 1 << 20);
        stays("an image", &STANDARD.encode(&bytes));
        let lines: Vec<String> = STANDARD
            .encode(&bytes)
            .as_bytes()
            .chunks(76)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        stays("an attachment", &lines.join("\n"));
    }
}

#[test]
fn redaction_keeps_text_and_code_about_private_keys() {
    let mark = |end: &str| format!("-----{end} RSA PRIVATE KEY-----");
    let (begin, end) = (mark("BEGIN"), mark("END"));
    for text in [
        format!(
            "It begins with {begin} and every line after it has to be base64 text of 64 columns."
        ),
        format!("The body stands between `{begin}` and `{end}`, in base64."),
        format!("BEGIN = '{begin}'\nEND = '{end}'\n\ndef f(x):\n    return x\n"),
        format!(
            "if text.startswith('{begin}'):\n    total = sum(lines)\n    text.split('{end}')\n"
        ),
    ] {
        stays("text about keys", &text);
    }
}
