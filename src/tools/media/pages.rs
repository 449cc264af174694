//! Parses page ranges. Pure.

use std::collections::BTreeSet;

use super::super::outcome::ToolError;

/// The maximum number of pages that one call may request.
pub(super) const PAGES_MAX: usize = 20;

/// Selects pages out of `count`, counted from 1. `wanted` comes from the model, such as `3`, `1-5`,
/// `90-` or `1,4-6`. A range may extend beyond the last page, but not begin there.
pub(super) fn select_pages(wanted: &str, count: u32) -> Result<BTreeSet<u32>, ToolError> {
    let mut picked = BTreeSet::new();
    for part in wanted.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = range(part)
            .ok_or_else(|| format!("`{part}` is not a range of pages; write, for example, 1-5"))?;
        if first > count {
            return Err(format!("there is no page {first}: it has only {count} pages").into());
        }
        let last = last.unwrap_or(count).min(count);
        // One page over the limit is enough to detect too many.
        picked.extend((first..=last).take(PAGES_MAX + 1));
    }
    if picked.is_empty() {
        return Err("no page is named; write, for example, 1-5".into());
    }
    if picked.len() > PAGES_MAX {
        return Err(format!("at most {PAGES_MAX} pages can be read at once").into());
    }
    Ok(picked)
}

/// Parses a range: the first page, and the last unless the range is open.
fn range(part: &str) -> Option<(u32, Option<u32>)> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0);
    let Some((first, last)) = part.split_once(['-', '–']) else {
        let page = number(part)?;
        return Some((page, Some(page)));
    };
    let first = number(first)?;
    let last = if last.trim().is_empty() { None } else { Some(number(last)?) };
    last.is_none_or(|last| first <= last).then_some((first, last))
}

/// Formats pages as `1-3, 7`.
pub(super) fn format_pages(pages: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &page in pages {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == page => *last = page,
            Some(_) | None => ranges.push((page, page)),
        }
    }
    let shown = ranges.into_iter().map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(wanted: &str, count: u32) -> String {
        select_pages(wanted, count).map_or_else(|why| why.to_string(), |pages| format_pages(&pages))
    }

    #[test]
    fn page_ranges_are_parsed() {
        let table = [
            ("3", "3"),
            (" 1-5 ", "1-5"),
            ("1–2", "1-2"),
            ("5, 1-2,2", "1-2, 5"),
            ("28-", "28-30"),
            ("28-99", "28-30"),
            ("11-30", "11-30"),
            ("10-30", "at most 20 pages can be read at once"),
            ("1-10,11-21", "at most 20 pages can be read at once"),
            ("1-4294967295", "at most 20 pages can be read at once"),
            ("31", "there is no page 31: it has only 30 pages"),
            ("1,31-32", "there is no page 31: it has only 30 pages"),
            ("0", "`0` is not a range of pages; write, for example, 1-5"),
            ("5-3", "`5-3` is not a range of pages; write, for example, 1-5"),
            ("-3", "`-3` is not a range of pages; write, for example, 1-5"),
            ("all", "`all` is not a range of pages; write, for example, 1-5"),
            (" , ", "no page is named; write, for example, 1-5"),
        ];
        for (wanted, meant) in table {
            assert_eq!(picks(wanted, 30), meant, "{wanted}");
        }
    }
}
