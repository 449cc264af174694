//! Formats the numbers of reports.

use std::collections::BTreeMap;

use indicatif::HumanCount;

/// Formats a number with commas between the thousands.
pub(super) fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Formats a fraction as a rounded percentage. Only 1 is 100 %, and only 0 is 0 %.
pub(super) fn percent(part: f64) -> String {
    let hundredths = part * 100.0;
    if hundredths >= 99.5 && part < 1.0 {
        ">99 %".to_owned()
    } else if hundredths < 0.5 && part > 0.0 {
        "<1 %".to_owned()
    } else {
        format!("{hundredths:.0} %")
    }
}

/// Lists strategies with the number of their attempts.
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
        let shares = [0.0, 0.001, 0.125, 0.666, 0.999, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "<1 %", "12 %", "67 %", ">99 %", "100 %"]);
    }

    #[test]
    fn strategies_are_sorted_by_how_often_they_were_tried() {
        let strategies = [("a_b", 1), ("retry", 3)].map(|(name, times)| (name.to_owned(), times));
        assert_eq!(tried(&strategies.into()), "retry x3, a b");
    }
}
