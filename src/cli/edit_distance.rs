//! Edit distance between words, for "did you mean" hints. Pure.

/// Returns the Damerau-Levenshtein distance: insertions, deletions, substitutions and swaps of
/// neighbours.
pub(super) fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let first: Vec<usize> = (0..=other.len()).collect();
    // The rows of the table before the last one, and the last one.
    let (mut before, mut row) = (first.clone(), first);
    for (line, letter) in one.iter().enumerate() {
        let mut next = vec![line + 1];
        for (column, there) in other.iter().enumerate() {
            let changed = row[column] + usize::from(letter != there);
            let mut cost = changed.min(next[column] + 1).min(row[column + 1] + 1);
            let is_swap =
                line > 0 && column > 0 && (one[line - 1], *letter) == (*there, other[column - 1]);
            if is_swap {
                cost = cost.min(before[column - 1] + 1);
            }
            next.push(cost);
        }
        (before, row) = (row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_edits_and_swaps() {
        for (one, other, far) in [
            ("review", "review", 0),
            ("reviw", "review", 1),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("raed", "read", 1),
            ("dney", "deny", 1),
            ("abcd", "badc", 2),
        ] {
            assert_eq!(distance(one, other), far, "{one} {other}");
        }
    }
}
