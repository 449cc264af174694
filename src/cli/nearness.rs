//! How much two words look like each other, for whoever mistyped one. Pure.

/// How many letters must be added, dropped or changed to turn one word into the other.
pub(super) fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let (mut diagonal, mut left) = (line, line + 1);
        for (column, there) in other.iter().enumerate() {
            let above = row[column + 1];
            let cost = (diagonal + usize::from(letter != *there)).min(left + 1).min(above + 1);
            (row[column], diagonal, left) = (left, above, cost);
        }
        row[other.len()] = left;
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_far_apart_as_they_look() {
        for (one, other, far) in [
            ("review", "review", 0),
            ("reviw", "review", 1),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), far, "{one} {other}");
        }
    }
}
