//! Guarantees for a fleet of tasks in every scenario, and their table in the manual.

use std::fmt::Write as _;

use outlast_core::recovery::Persistence;

use super::fleet::{Fleet, FleetFigures, MINUTE, OUTAGE, REPLY_CENTS, TURNS, Trouble};
use crate::support::golden;

/// Half a second of processor time for each row, in a debug build.
const TASKS: usize = 10_000;

const TROUBLES: [(Trouble, &str); 4] = [
    (Trouble::Nothing, "none"),
    (Trouble::AccountLimit, "account limit"),
    (Trouble::Outage, "outage of 1 h"),
    (Trouble::NodeLoss, "1 % node loss"),
];
const MODES: [(Persistence, &str); 2] =
    [(Persistence::Off, "default"), (Persistence::Capacity, "unattended")];

/// A row of the table: what goes wrong, in which mode.
type Row = ((Trouble, &'static str), (Persistence, &'static str));

fn rows() -> impl Iterator<Item = Row> {
    TROUBLES.into_iter().flat_map(|trouble| MODES.map(|mode| (trouble, mode)))
}

fn play(tasks: usize, ((trouble, _), (persistence, _)): Row) -> FleetFigures {
    Fleet::new(tasks, trouble, persistence).play()
}

/// Checks the promises that hold for any number of tasks.
#[track_caller]
fn check(tasks: usize, row: Row, figures: &FleetFigures) {
    let ((trouble, _), (persistence, _)) = row;
    let seen = format!("{tasks} tasks: {}", line(row, figures));
    let needed = tasks as u64 * u64::from(TURNS);
    assert_eq!((figures.completed, figures.failed), (tasks, 0), "every task completes: {seen}");
    assert!(figures.replies >= needed, "{seen}");
    let undisturbed = matches!(trouble, Trouble::Nothing | Trouble::NodeLoss);
    let lost = if trouble == Trouble::NodeLoss { tasks as u64 / 100 } else { 0 };
    // A lost node costs at most the reply that was under way.
    assert!(figures.replies <= needed + lost, "no reply is paid twice: {seen}");
    if undisturbed || persistence != Persistence::Off {
        assert_eq!(figures.restarts, lost, "only lost nodes cost a process: {seen}");
    }
    match trouble {
        Trouble::Nothing | Trouble::NodeLoss => {
            assert_eq!(figures.requests, figures.replies, "{seen}");
        }
        Trouble::AccountLimit => {
            assert!(figures.requests <= 4 * needed, "no storm: {seen}");
        }
        Trouble::Outage => {
            let running = tasks as u64 / 10;
            // Each process gives up after ten retries.
            let most = match persistence {
                Persistence::Off => 11 * (figures.restarts + running),
                // One host probes every 20 seconds at most, and a task asks every 4 minutes.
                Persistence::Capacity | Persistence::All => {
                    let hosts = running.div_ceil(20);
                    running * (10 + OUTAGE / MINUTE / 4) + hosts * 3 * OUTAGE / MINUTE
                }
            };
            assert!(figures.outage_requests <= most, "no storm, {most} at most: {seen}");
        }
    }
    // A task sends about two requests a minute. One that meets an outage sends seven in the first
    // half minute of it.
    let a_minute = tasks as u64 / 10 * if trouble == Trouble::Outage { 8 } else { 4 };
    assert!(figures.busiest_minute <= a_minute, "no storm: {seen}");
    assert!(figures.fairness() >= 850, "no task starves: {seen}");
}

fn line(((_, trouble), (_, mode)): Row, figures: &FleetFigures) -> String {
    let minutes = |length: u64| format!("{} min", length.div_ceil(MINUTE));
    let hours = |length: u64| format!("{}:{:02} h", length / MINUTE / 60, length / MINUTE % 60);
    let dollars = figures.replies * REPLY_CENTS / 100;
    let hundredths = figures.requests * 100 / figures.replies;
    format!(
        "| {trouble} | {mode} | {} | {} | {} | {} | 0.{:03} | {}.{:02} | {} | {} | ${dollars} |",
        hours(figures.makespan),
        minutes(figures.percentile(50)),
        minutes(figures.percentile(95)),
        minutes(figures.percentile(100)),
        figures.fairness().min(999),
        hundredths / 100,
        hundredths % 100,
        figures.busiest_minute,
        figures.restarts,
    )
}

fn heading() -> String {
    let columns = [
        "trouble",
        "mode",
        "all done",
        "median",
        "95 %",
        "longest",
        "fairness",
        "requests a reply",
        "busiest minute",
        "restarts",
        "cost",
    ];
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

#[test]
fn a_fleet_is_played_the_same_way_each_time() {
    let row = ((Trouble::Outage, ""), (Persistence::Capacity, ""));
    let [one, other] = [(); 2].map(|()| format!("{:?}", play(300, row)));
    assert_eq!(one, other);
}

#[test]
fn ten_thousand_tasks_complete_without_a_storm_or_starvation_as_the_manual_says() {
    let mut table = heading();
    for row in rows() {
        let figures = play(TASKS, row);
        check(TASKS, row, &figures);
        writeln!(table, "{}", line(row, &figures)).expect("memory");
    }
    golden::compare("tests/recovery/fleet.md", &table);
}
