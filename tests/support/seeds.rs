//! Seeds of stories that rotate by the commit.

use super::rotation::rotation;

/// The first seed of a story that takes `count` of them in each run.
#[expect(clippy::print_stdout, reason = "a test that fails shows what repeats it")]
pub(crate) fn first_seed(count: u64) -> u64 {
    let first = rotation() * count;
    println!("seeds from {first} on; ROTATION={} repeats them", rotation());
    first
}
