//! A ceiling of money holds, whatever a model bills; what costs nothing does not use it up.

use outlast::recovery::{Ledger, Money, StopReason};
use outlast::rehearsal::{
    AfterLast, FaultPosition, Scenario, ScriptStep, ScriptedFaultKind, ScriptedReply,
    ScriptedToolCall, ScriptedUsage, StepAnswer,
};
use serde_json::json;

use super::run_fixture::RunFixture;

/// A model that uses up every token it is given, and calls a tool.
pub(crate) fn greedy() -> Scenario {
    Scenario::new().step(greedy_step()).after(AfterLast::RepeatLast)
}

pub(crate) fn greedy_step() -> ScriptStep {
    let tool = ScriptedToolCall {
        name: "Bash".to_owned(),
        input: json!({ "command": "true" }),
        id: None,
        cut: None,
    };
    let usage = ScriptedUsage { output_tokens: Some(u64::MAX), ..ScriptedUsage::default() };
    let reply = ScriptedReply { tools: vec![tool], usage, ..ScriptedReply::default() };
    ScriptStep::new(StepAnswer::Reply(reply))
}

fn dollars(dollars: f64) -> Money {
    Money::from_dollars(dollars).expect("an amount")
}

/// A run with a ceiling that is reserved from.
fn ceiling(scenario: Scenario, amount: f64) -> RunFixture {
    let mut fixture = RunFixture::of(scenario);
    fixture.setup.ledger = Ledger::new(Some(dollars(amount)));
    fixture
}

/// The last calls are smaller, and one that could not be paid for is not made.
#[tokio::test]
async fn a_budget_is_never_exceeded() {
    for amount in [0.33, 0.15, 0.05] {
        let played = ceiling(greedy(), amount).run().await;
        let ending = &played.ending;
        assert_eq!(ending.reason, StopReason::MaxBudgetUsd, "{amount}");
        assert!(
            ending.costs.spent.amount <= dollars(amount),
            "{} of {amount}",
            ending.costs.spent.amount
        );
        assert_eq!(ending.costs.budget, Some(dollars(amount)));
        assert_eq!(ending.cost(), Some(ending.costs.spent.amount));
        assert_eq!(ending.costs.unsettled, Money::ZERO);
        let lacking = ending.met.shortfall.as_ref();
        assert!(lacking.is_some(), "{amount}: the next request was too expensive");
        let caps = played.caps();
        assert!(caps.iter().all(|cap| (1_024..=8_192).contains(cap)), "{caps:?}");
        assert!(caps.last().is_some_and(|last| *last < 8_192), "the last one shrank: {caps:?}");
        // 1,024 tokens of output would have cost a cent, and input is a few more at most.
        let left = dollars(amount).minus(ending.costs.spent.amount);
        assert!(left < dollars(0.08), "it did not give up early: {left} of {amount} are left");
        assert_eq!(played.server.violations(), [""; 0]);
    }
}

/// Resets before a message begins cost nothing, however many there are: the run goes on, and the
/// numbers agree.
#[tokio::test]
async fn four_resets_do_not_use_up_a_small_budget() {
    let resets =
        Scenario::new().interrupted(ScriptedFaultKind::Reset, FaultPosition::Request).times(2);
    let resets = resets.interrupted(ScriptedFaultKind::Reset, FaultPosition::Headers).times(2);
    let played = ceiling(resets.reply("Done.").usage(1_000, 100), 1.0).run().await;
    played.assert_end(StopReason::Completed, "Done.");
    played.assert_asked(5);
    let ending = &played.ending;
    assert_eq!((ending.costs.spent.amount, ending.costs.unsettled), (dollars(0.003), Money::ZERO));
    assert_eq!(ending.stats.by_model[0].cost, Some(dollars(0.003)));
    assert_eq!(ending.costs.budget, Some(dollars(1.0)));
}

#[tokio::test]
async fn a_budget_checked_afterwards_reserves_nothing() {
    let mut fixture = RunFixture::of(greedy());
    fixture.setup.stop_after = Some(dollars(0.10));
    let played = fixture.run().await;
    assert_eq!(played.ending.reason, StopReason::MaxBudgetUsd);
    assert_eq!(played.caps(), [8_192, 8_192], "the second reply went past it");
    assert!(
        played.ending.costs.spent.amount > dollars(0.16),
        "{}",
        played.ending.costs.spent.amount
    );
    assert_eq!(played.server.violations(), [""; 0]);
}
