//! Long tables and stories, of which every run takes a part: another one at each commit, so that a
//! commit that passed once passes again, and all of them in `ci/nightly`.

use std::fmt::Debug;
use std::process::Command;
use std::sync::LazyLock;

use proptest::test_runner::Config;

/// An environment variable that says how much to do, or where to begin.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Which part it is: `ROTATION`, or else the beginning of the commit's id; 0 without git.
pub(crate) fn rotation() -> u64 {
    static COMMIT: LazyLock<u64> = LazyLock::new(|| {
        let mut git = Command::new("git");
        git.current_dir(env!("CARGO_MANIFEST_DIR")).args(["rev-parse", "--short=8", "HEAD"]);
        let id = git.output().map(|output| output.stdout).unwrap_or_default();
        u64::from_str_radix(String::from_utf8_lossy(&id).trim(), 16).unwrap_or(0)
    });
    number("ROTATION").unwrap_or_else(|| *COMMIT)
}

/// Every `parts`th of the items, from one that rotates on. `FULL=1` takes all of them.
#[expect(clippy::print_stdout, reason = "a test that fails shows what repeats it")]
pub(crate) fn rotating_part<T: Debug>(items: impl IntoIterator<Item = T>, parts: usize) -> Vec<T> {
    if number("FULL").is_some_and(|full| full > 0) {
        return items.into_iter().collect();
    }
    let first = usize::try_from(rotation() % parts as u64).expect("it is below a usize");
    let part: Vec<T> = items.into_iter().skip(first).step_by(parts).collect();
    println!("one of {parts} parts, which ROTATION={} repeats: {part:?}", rotation());
    part
}

/// `cases` random cases of a property, others each time; 20 times as many with `FULL=1`.
pub(crate) fn property_cases(cases: u32) -> Config {
    let factor = if number("FULL").is_some_and(|full| full > 0) { 20 } else { 1 };
    Config { failure_persistence: None, ..Config::with_cases(cases * factor) }
}
