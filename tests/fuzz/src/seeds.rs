//! Runs each target with its seeds, so that a change which breaks a target is found before the
//! fuzzers of `ci/nightly` run.

use std::fs;
use std::path::Path;

use super::{assembly, history, inputs, journal, media, permission, refusal, settings, sse, words};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 10] = [
    ("assembly", assembly::run),
    ("history", history::run),
    ("inputs", inputs::run),
    ("journal", journal::run),
    ("media", media::run),
    ("permission", permission::run),
    ("refusal", refusal::run),
    ("settings", settings::run),
    ("sse", sse::run),
    ("words", words::run),
];

#[test]
fn each_target_accepts_its_seeds() {
    for (name, run) in TARGETS {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(name);
        let seeds: Vec<_> = fs::read_dir(seeds).expect("they exist").flatten().collect();
        assert!(!seeds.is_empty(), "{name}");
        for seed in seeds {
            run(&fs::read(seed.path()).expect("a file"));
        }
    }
}
