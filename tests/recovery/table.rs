//! The whole recovery table as one reviewable text file.

use std::fmt::Write as _;

use outlast::recovery::{
    Account, Budgets, Call, ErrorClass, Limits, Moment, Persistence, Phase, RecoveryPlan, Run,
    Setback, Source, StopReason, plan,
};

use super::{failure, limits};

const RICH: Budgets = Budgets { switches: 1, ..Budgets::DEFAULT };
const POOR: Budgets = Budgets {
    turns: Some(0),
    retries: 0,
    bucket: 0,
    switches: 0,
    refreshes: 0,
    escalations: 0,
    continuations: 0,
    empty_replies: 0,
    resumptions: 0,
    nudges: 0,
};

fn modes() -> [(&'static str, Limits); 5] {
    let plain = limits();
    [
        ("ordinary", plain),
        ("persistent", Limits { persistence: Persistence::Capacity, ..plain }),
        ("all", Limits { persistence: Persistence::All, ..plain }),
        ("subscription", Limits { account: Account::Subscription, ..plain }),
        ("background", Limits { source: Source::Background, ..plain }),
    ]
}

fn show(plan: RecoveryPlan) -> String {
    match plan {
        RecoveryPlan::Stop(StopReason::ModelError(class)) => format!("stop: model_error, {class}"),
        RecoveryPlan::Stop(reason) => format!("stop: {}", reason.name()),
        RecoveryPlan::Retry { tokens } => format!("retry for {tokens}"),
        RecoveryPlan::RetryAtOnce { tokens } => format!("retry at once for {tokens}"),
        RecoveryPlan::WaitForCapacity
        | RecoveryPlan::SwitchModel
        | RecoveryPlan::Refresh
        | RecoveryPlan::Escalate
        | RecoveryPlan::Continue
        | RecoveryPlan::AskAgain
        | RecoveryPlan::Resume
        | RecoveryPlan::Nudge => plan.name().to_owned(),
    }
}

#[test]
fn every_failure_has_a_plan_in_every_mode() {
    let mut table = String::new();
    for (mode, rules) in modes() {
        writeln!(table, "{mode:<18} {:<5} {:<42} poor", "", "rich").expect("a string never fails");
        for class in ErrorClass::ALL {
            for (overloads, nth) in [(1, "first"), (3, "third")] {
                let [rich, poor] = [RICH, POOR].map(|budgets| {
                    let begun = Run::new(7, &Limits { budgets, ..rules });
                    let phase = Phase::Calling(Call::Reply);
                    let run = Run { phase, failures: overloads, overloads, ..begun };
                    show(plan(Setback::Failed(failure(class)), &run, Moment::default(), &rules))
                });
                writeln!(table, "{:<18} {nth:<5} {rich:<42} {poor}", class.name())
                    .expect("a string never fails");
            }
        }
        table.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recovery/table.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &table).expect("the table can be written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let differs = committed.lines().zip(table.lines()).find(|(old, new)| old != new);
    assert!(committed == table, "{differs:?}: run with UPDATE=1 and review the diff");
}
