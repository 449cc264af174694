//! The whole recovery table as one reviewable text file.

use std::fmt::Write as _;

use outlast::recovery::{
    Account, Budgets, Call, ErrorClass, Limits, Moment, Persistence, Phase, Purpose, RecoveryPlan,
    Run, Setback, Source, StopReason, plan,
};

use super::{NOTHING, failure, limits};

const RICH: Budgets = Budgets { switches: 1, ..Budgets::DEFAULT };
const POOR: Budgets = Budgets { turns: Some(0), switches: 0, ..NOTHING };

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
        _named => plan.name().to_owned(),
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
                    let rules = Limits { budgets, ..rules };
                    let begun = Run::new(7, &rules);
                    let phase = Phase::Calling(Call::Ask(Purpose::Reply));
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
