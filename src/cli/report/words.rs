//! Numbers of reports in words.

use std::collections::BTreeMap;

/// A number with commas between the thousands.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part of a whole, rounded down, so that only a whole is 100 %.
pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", (part * 100.0).floor())
}

/// The names of strategies, each with how often it was tried.
pub(super) fn tried(strategies: &BTreeMap<String, u32>) -> String {
    let mut tried: Vec<(&String, &u32)> = strategies.iter().collect();
    tried.sort_unstable_by_key(|(name, times)| (std::cmp::Reverse(**times), *name));
    let names = tried.into_iter().map(|(name, times)| {
        let name = name.replace('_', " ");
        if *times > 1 { format!("{name} x{times}") } else { name }
    });
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        let table = [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")];
        for (number, text) in table {
            assert_eq!(thousands(number), text);
        }
        assert_eq!(
            (percent(0.999), percent(1.0), percent(0.0)),
            ("99 %".into(), "100 %".into(), "0 %".into())
        );
    }

    #[test]
    fn strategies_are_sorted_by_how_often_they_were_tried() {
        let strategies = [("a_b", 1), ("retry", 3)].map(|(name, times)| (name.to_owned(), times));
        assert_eq!(tried(&strategies.into()), "retry x3, a b");
    }
}
