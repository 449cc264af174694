//! Money, and the ledger that keeps a ceiling.

use outlast_core::recovery::{
    Action, AvailableMitigations, CallPurpose, Event, Ledger, LoopStatus, Moment, Money, Phase,
    ReplyDisposition, Run, StopReason, TokenEstimate,
};

use super::{ANSWER, FREE, TOOL_CALLS, limits};

const fn pico(amount: u64) -> Money {
    Money::from_pico_dollars(amount)
}

fn dollars(amount: f64) -> Money {
    Money::from_dollars(amount).expect("an amount of money")
}

#[test]
fn prices_per_million_tokens_are_exact() {
    // $3 a million tokens, $0.30 to read them from the cache.
    assert_eq!(dollars(3.0 / 1e6), pico(3_000_000));
    assert_eq!(dollars(0.3 / 1e6), pico(300_000));
    assert_eq!(dollars(3.0 / 1e6) * 1_000_000, dollars(3.0));
}

#[test]
fn an_invalid_amount_of_money_is_rejected() {
    let never = [-0.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.9e7];
    for amount in never {
        assert_eq!(Money::from_dollars(amount), None, "{amount}");
    }
    assert_eq!(Money::from_dollars(0.0), Some(Money::ZERO));
    assert_eq!(Money::from_dollars(-0.0), Some(Money::ZERO));
    let rich = dollars(17_999_999.0);
    assert!((rich.as_dollars() - 17_999_999.0).abs() < 0.01);
}

#[test]
fn money_arithmetic_saturates_instead_of_wrapping() {
    let most = pico(u64::MAX);
    assert_eq!(most + pico(1), most);
    assert_eq!(pico(u64::MAX / 2 + 1) * 2, most);
    assert_eq!(pico(1).minus(pico(2)), Money::ZERO);
    assert_eq!([pico(1), pico(2), pico(3)].into_iter().sum::<Money>(), pico(6));
}

#[test]
fn a_small_amount_spent_is_never_displayed_as_zero() {
    let shown = |amount| pico(amount).to_string();
    assert_eq!(shown(0), "$0.0000");
    assert_eq!(shown(1), "$0.0001");
    assert_eq!(shown(100_000_000), "$0.0001");
    assert_eq!(shown(100_000_001), "$0.0002");
    assert_eq!(dollars(12.3456).to_string(), "$12.3456");
    assert_eq!(dollars(0.05).to_string(), "$0.0500");
}

#[test]
fn a_zero_price_affords_any_number_of_tokens() {
    assert_eq!(pico(10).buys(pico(3)), 3);
    assert_eq!(pico(10).buys(pico(11)), 0);
    assert_eq!(pico(0).buys(Money::ZERO), u64::MAX);
}

#[test]
fn affordable_output_is_what_the_input_cost_leaves() {
    let weight =
        |left| TokenEstimate { input: pico(100), token: pico(7), left, ceiling: 1, ..FREE };
    assert_eq!(weight(None).affordable(), u64::MAX);
    assert_eq!(weight(Some(pico(99))).affordable(), 0);
    assert_eq!(weight(Some(pico(106))).affordable(), 0);
    assert_eq!(weight(Some(pico(107))).affordable(), 1);
    assert_eq!(weight(Some(pico(800))).affordable(), 100);
}

#[test]
fn a_saturated_price_affords_no_tokens() {
    let weight = TokenEstimate { input: pico(u64::MAX), token: pico(u64::MAX), ..FREE };
    for left in [0, 1, u64::MAX - 1] {
        assert_eq!(TokenEstimate { left: Some(pico(left)), ..weight }.affordable(), 0, "{left}");
    }
    assert_eq!(TokenEstimate { left: None, ..weight }.affordable(), u64::MAX);
}

/// A chat of many turns, each of which is summed up first: reserved as the machine asks, and
/// always charged in full.
#[test]
fn summaries_and_replies_share_one_budget() {
    let remedies = AvailableMitigations { rounds: true, ..AvailableMitigations::NONE };
    for ceiling in [0, 1_123, 1_124, 9_000, 20_000, 50_000, 200_000] {
        let mut ledger = Ledger::new(Some(pico(ceiling)));
        let (mut run, mut event) = (Run::new(7, &limits()), Event::Begin);
        for _ in 0..1_000 {
            let step = run.step(Moment::default(), event, &limits()).expect("the event fits");
            run = step.next;
            let heavy = step.edit.reply != ReplyDisposition::Summary;
            event = match step.action {
                Action::Estimate { .. } => Event::Estimated(TokenEstimate {
                    input: pico(100),
                    token: pico(1),
                    left: ledger.left(),
                    size: if heavy { 190_000 } else { 10_000 },
                    window: 200_000,
                    counted: false,
                    mitigations: remedies,
                    ..FREE
                }),
                Action::Ask(ask) => {
                    let worst = pico(100) + pico(1) * u64::from(ask.cap);
                    let call = ledger.reserve(worst).expect("what is asked for is affordable");
                    ledger.settle(call, worst);
                    if ask.purpose == CallPurpose::Reply { TOOL_CALLS } else { ANSWER }
                }
                Action::RunTools => Event::ToolsDone(LoopStatus::Fresh),
                Action::Finish(reason) => {
                    assert_eq!(reason, StopReason::MaxBudgetUsd, "{ceiling}");
                    break;
                }
                Action::Refresh
                | Action::RunStopHooks
                | Action::RunRequirement
                | Action::AwaitWork { .. }
                | Action::Wait { .. }
                | Action::Probe { .. } => panic!("{step:?}"),
            };
        }
        assert!(matches!(run.phase, Phase::Stopped(_)), "{ceiling}: still going");
        let left = ledger.left().expect("there is a ceiling");
        assert!(left < pico(1_124), "{ceiling}: {left:?} would have paid for another call");
    }
}

#[test]
fn the_ledger_never_reserves_more_than_is_left() {
    let mut ledger = Ledger::new(Some(pico(100)));
    let first = ledger.reserve(pico(60)).expect("it fits");
    assert_eq!(ledger.left(), Some(pico(40)));
    assert!(ledger.reserve(pico(41)).is_none());
    let second = ledger.reserve(pico(40)).expect("it fits exactly");
    assert_eq!(ledger.left(), Some(Money::ZERO));
    ledger.settle(first, pico(10));
    assert_eq!((ledger.spent(), ledger.left()), (pico(10), Some(pico(50))));
    ledger.settle(second, pico(40));
    assert_eq!((ledger.spent(), ledger.left()), (pico(50), Some(pico(50))));
    assert_eq!(ledger.unsettled(), Money::ZERO);
}

#[test]
fn a_broken_call_is_charged_for_what_it_received_and_frees_the_rest() {
    let mut ledger = Ledger::new(Some(pico(100)));
    let call = ledger.reserve(pico(60)).expect("it fits");
    ledger.settle(call, Money::ZERO);
    ledger.charge_uncounted(pico(7));
    assert_eq!((ledger.spent(), ledger.unsettled()), (pico(7), pico(7)));
    assert_eq!(ledger.left(), Some(pico(93)));
}

#[test]
fn a_dropped_reservation_stays_reserved() {
    let mut ledger = Ledger::new(Some(pico(100)));
    assert!(ledger.reserve(pico(60)).is_some());
    assert!(ledger.reserve(pico(60)).is_none());
    assert_eq!(ledger.spent(), Money::ZERO);
}

#[test]
fn without_a_budget_every_reservation_fits_and_is_counted() {
    let mut ledger = Ledger::new(None);
    assert_eq!((ledger.left(), ledger.ceiling()), (None, None));
    let call = ledger.reserve(pico(u64::MAX)).expect("there is no ceiling");
    ledger.settle(call, pico(5));
    assert_eq!(ledger.spent(), pico(5));
}

#[test]
fn spend_of_an_earlier_process_counts_against_the_budget() {
    let ledger = Ledger::new(Some(pico(100))).with_spent(pico(70));
    assert_eq!((ledger.spent(), ledger.left()), (pico(70), Some(pico(30))));
    let overdrawn = Ledger::new(Some(pico(100))).with_spent(pico(170));
    assert_eq!(overdrawn.left(), Some(Money::ZERO));
    let shared = ledger.with_earlier(pico(20));
    assert_eq!((shared.spent(), shared.counted()), (pico(70), pico(90)));
    assert_eq!(shared.left(), Some(pico(10)), "other runs share the ceiling");
}
