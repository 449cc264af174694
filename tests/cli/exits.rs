//! Exit code and result of every reason to stop.

use std::collections::BTreeSet;
use std::fmt::Write;

use outlast::cli::exit::{MEANINGS, exit_status};
use outlast::recovery::StopReason;

use super::golden;

#[test]
fn the_exit_code_table_matches_the_golden_file() {
    let mut table = String::new();
    for reason in StopReason::all() {
        let verdict = exit_status(reason);
        let row = format!(
            "{:<42} {:>3}  {:<24} {}{}",
            format!("{reason:?}"),
            verdict.exit_code(),
            verdict.subtype(),
            if verdict.is_error() { "error" } else { "success" },
            if verdict.is_temporary() { ", temporary" } else { "" }
        );
        writeln!(table, "{}", row.trim_end()).unwrap();
    }
    golden::compare("tests/cli/golden/ends.txt", &table);
}

#[test]
fn exit_0_success_and_no_error_are_the_same_thing() {
    for reason in StopReason::all() {
        let verdict = exit_status(reason);
        let zero = verdict.exit_code() == 0;
        assert_eq!(zero, verdict.subtype() == "success", "{reason:?}");
        assert_eq!(zero, !verdict.is_error(), "{reason:?}");
        assert_eq!(zero, reason == StopReason::Completed, "{reason:?}");
    }
}

#[test]
fn every_possible_exit_code_is_in_the_manual_once() {
    let documented: Vec<u8> = MEANINGS.iter().map(|(code, _)| *code).collect();
    let distinct: BTreeSet<u8> = documented.iter().copied().collect();
    assert_eq!(distinct.len(), documented.len());
    for reason in StopReason::all() {
        assert!(distinct.contains(&exit_status(reason).exit_code()), "{reason:?}");
    }
}
