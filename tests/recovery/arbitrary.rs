//! The machine under events that neither a walk nor chance would put in this order.

use proptest::prelude::*;

use super::explore::explore_random;
use super::simulate::simulate_run;
use crate::support::rotation::property_cases;

/// Plays what `data` says: the first bit chooses between a day in a whole world, where its bytes
/// stand for the dice, and bare events at any pace. Fuzzing calls this, too.
pub(crate) fn play(data: &[u8]) {
    let Some((mode, tape)) = data.split_first() else { return };
    if mode & 1 == 0 { simulate_run(tape) } else { explore_random(tape) }
}

proptest! {
    #![proptest_config(property_cases(300))]

    #[test]
    fn no_order_of_events_breaks_an_invariant_or_runs_forever(
        data in prop::collection::vec(any::<u8>(), 1..600)
    ) {
        play(&data);
    }
}
