//! Other pages that a browser loads by itself: targets of refreshes, and frames. Pure.

use super::tokens::StartTag;

/// The most frames that are named.
const FRAMES_MAX: usize = 20;

/// The pages that browsers show instead of a page, or within it, as the page writes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct PageTargets {
    pub(in super::super) refresh: Option<String>,
    /// The parts of a page that has no text of its own.
    pub(in super::super) frames: Vec<String>,
    /// Pages within its text.
    pub(in super::super) inner_frames: Vec<String>,
}

impl PageTargets {
    pub(super) fn read(&mut self, tag: &StartTag) {
        let frames = match tag.name.as_slice() {
            b"meta" if self.refresh.is_none() => {
                let is_refresh = tag
                    .attribute("http-equiv")
                    .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("refresh"));
                let content = tag.attribute("content").filter(|_| is_refresh);
                self.refresh = content.and_then(|content| refresh_target(&content));
                return;
            }
            b"frame" => &mut self.frames,
            b"iframe" => &mut self.inner_frames,
            _ => return,
        };
        let source = tag.attribute("src").filter(|_| frames.len() < FRAMES_MAX);
        frames.extend(source.map(|source| source.trim().to_owned()));
    }
}

/// The address of a refresh: `0; url=/there`, with the spellings that browsers accept. `None`: the
/// page refreshes itself.
pub(in super::super) fn refresh_target(content: &str) -> Option<String> {
    let content = content.trim_start();
    let time = |letter: char| letter.is_ascii_digit() || letter == '.';
    let rest = content.trim_start_matches(time);
    let separators = |letter: char| letter.is_whitespace() || matches!(letter, ';' | ',');
    let target = rest.trim_start_matches(separators);
    if target.len() == rest.len() {
        return None;
    }
    let named = target.get(..3).filter(|name| name.eq_ignore_ascii_case("url"));
    let named = named.and_then(|_| target[3..].trim_start().strip_prefix('='));
    let target = named.unwrap_or(target).trim();
    let quote = target.chars().next().filter(|first| matches!(first, '"' | '\''));
    let target = match quote {
        Some(quote) => target[1..].split(quote).next().unwrap_or_default().trim(),
        None => target,
    };
    (!target.is_empty()).then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_names_its_target_in_the_spellings_that_browsers_accept() {
        for (content, target) in [
            ("0; url=/en/", Some("/en/")),
            ("0;URL='/en/?a=b;c'", Some("/en/?a=b;c")),
            (" 5 , Url = \"https://a.example/\" ", Some("https://a.example/")),
            ("0;/en/", Some("/en/")),
            ("0.5 url=en", Some("en")),
            ("; url=en", Some("en")),
            ("300", None),
            ("0;", None),
            ("0; url=", None),
            ("", None),
        ] {
            assert_eq!(refresh_target(content).as_deref(), target, "{content}");
        }
    }
}
