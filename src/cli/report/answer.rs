//! Formats answers of models, which are Markdown, for reports, without dangerous content: no answer
//! embeds an image, runs a script, mentions a user or has a hidden link.

use pulldown_cmark::html::push_html;
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::cli::output::is_terminal_control;

use super::markup::{displayable, escaped};

/// Renders an answer as Markdown within a document. Code and emphasis stay; links, images, mentions
/// and HTML become text.
pub(super) fn markdown(answer: &str) -> String {
    let mut safe: Vec<String> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in answer.lines() {
        let line = without_controls(line);
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        safe.push(match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                // The text after the mark is the name of a language.
                let language = start.trim_start_matches(['`', '~']).trim();
                let is_word = language.chars().all(|one| one.is_ascii_alphanumeric());
                format!("{mark}{}", if is_word { language } else { "" })
            }
            (Some(open), Some(mark)) if open == mark && start.trim_end() == mark => {
                fence = None;
                mark.to_owned()
            }
            // A fence of another length would end the block in another line.
            (Some(open), Some(mark)) if open == mark => {
                format!(" {}", start.trim_start_matches(['`', '~']))
            }
            (Some(_), _) => line,
            (None, None) => inert(&line),
        });
    }
    safe.extend(fence.map(str::to_owned));
    safe.push(String::new());
    safe.join("\n")
}

/// Renders a text as a block of code.
pub(super) fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|one| one != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    let text: Vec<String> = text.lines().map(without_controls).collect();
    format!("{fence}{language}\n{}\n{fence}\n", text.join("\n"))
}

fn without_controls(line: &str) -> String {
    line.chars()
        .map(|one| if is_terminal_control(one) && one != '\t' { ' ' } else { one })
        .collect()
}

/// Escapes a line outside of code blocks, so that it has no links, images, mentions or HTML.
fn inert(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches([' ', '>']).len();
    let (quote, rest) = line.split_at(indent);
    // Deep indentation would make a block of code, which would show the escapes below.
    let mut safe: String = quote.chars().take(8).collect();
    // Code between backticks would show escapes.
    let parts: Vec<&str> = rest.split('`').collect();
    let last = parts.len() - 1;
    for (index, part) in parts.iter().enumerate() {
        let is_code = index % 2 == 1 && index < last;
        if index > 0 {
            safe.push_str(if index % 2 == 1 && index == last { "\\`" } else { "`" });
        }
        if is_code {
            safe.push_str(part);
            continue;
        }
        let mut letters = part.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '&' => safe.push_str("&amp;"),
                '<' => safe.push_str("&lt;"),
                '>' => safe.push_str("&gt;"),
                '@' => safe.push_str("&#64;"),
                ':' if letters.as_str().starts_with("//") => safe.push_str("&#58;"),
                '[' | ']' | '\\' | '!' | '$' => {
                    safe.push('\\');
                    safe.push(letter);
                }
                // A reference to an issue, unlike the marks of a heading.
                '#' if letters.as_str().starts_with(|one: char| one.is_ascii_digit()) => {
                    safe.push_str("\\#");
                }
                other => safe.push(other),
            }
        }
    }
    safe
}

/// Renders an answer as HTML. Only links to the web stay, and images become their descriptions.
pub(super) fn html(answer: &str) -> String {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    // For each open link, true if it leads to the web.
    let mut links = Vec::new();
    let events = Parser::new_ext(answer, options).flat_map(|event| harmless(event, &mut links));
    let mut page = String::new();
    push_html(&mut page, events);
    page
}

/// Replaces an event by harmless ones. HTML becomes text.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum of many variants")]
fn harmless<'a>(event: Event<'a>, links: &mut Vec<bool>) -> Vec<Event<'a>> {
    let heading =
        |level| if level <= HeadingLevel::H2 { HeadingLevel::H3 } else { HeadingLevel::H4 };
    match event {
        Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
            vec![Event::Text(displayable(&text).into())]
        }
        Event::Code(code) => vec![Event::Code(displayable(&code).into())],
        Event::TaskListMarker(done) => vec![Event::Text((if done { "☑ " } else { "☐ " }).into())],
        // Headings are below those of the page.
        Event::Start(Tag::Heading { level, .. }) => {
            let (id, classes, attrs) = (None, Vec::new(), Vec::new());
            vec![Event::Start(Tag::Heading { level: heading(level), id, classes, attrs })]
        }
        Event::End(TagEnd::Heading(level)) => vec![Event::End(TagEnd::Heading(heading(level)))],
        Event::Start(Tag::CodeBlock(_)) => {
            vec![Event::Start(Tag::CodeBlock(CodeBlockKind::Indented))]
        }
        Event::Start(Tag::Table(_)) => vec![Event::Html("<div class=\"scroll\">".into()), event],
        Event::End(TagEnd::Table) => vec![event, Event::Html("</div>\n".into())],
        Event::Start(Tag::Link { dest_url, .. }) => {
            let is_web = ["https://", "http://"].iter().any(|it| dest_url.starts_with(it));
            links.push(is_web);
            let link =
                || format!("<a href=\"{}\" rel=\"noopener noreferrer\">", escaped(&dest_url));
            is_web.then(|| Event::InlineHtml(link().into())).into_iter().collect()
        }
        Event::End(TagEnd::Link) => {
            let is_web = links.pop().unwrap_or_default();
            is_web.then(|| Event::InlineHtml("</a>".into())).into_iter().collect()
        }
        Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => Vec::new(),
        other => vec![other],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "# Done\n\n<script>x</script> and ![i](https://e.example/x.png) [a](https://e.example) \
        [r][1] @user #12 https://e.example `<b>` &lt; \\[x](https://e.example)\n\n[1]: https://e.example\n\
        > quoted @user\n- item\n\n````\n@not-a-mention\n```\n![i](x)\n";

    #[test]
    fn an_answer_in_markdown_has_neither_links_nor_images_nor_html() {
        let text = markdown(HOSTILE);
        for event in Parser::new_ext(&text, Options::all()) {
            let is_harmful = matches!(
                event,
                Event::Html(_)
                    | Event::InlineHtml(_)
                    | Event::Start(Tag::Link { .. } | Tag::Image { .. } | Tag::HtmlBlock)
            );
            assert!(!is_harmful, "{event:?} in {text}");
        }
        assert!(text.starts_with("# Done\n"), "{text}");
        assert!(text.contains("\n- item\n") && text.contains("`<b>`"), "{text}");
        let outside = text.split("```").next().unwrap_or_default();
        assert!(!outside.contains('@') && !outside.contains("://"), "{outside}");
    }

    #[test]
    fn a_code_block_that_is_left_open_is_closed() {
        assert_eq!(markdown("```rust\nlet a = [1];"), "```rust\nlet a = [1];\n```\n");
        assert_eq!(fenced("a ``` b", ""), "````\na ``` b\n````\n");
    }

    #[test]
    fn an_answer_in_html_is_formatted_and_harmless() {
        let page = html("# Title\n\nA **bold** `<i>` word.\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n");
        assert!(page.contains("<h3>Title</h3>"), "{page}");
        assert!(page.contains("<strong>bold</strong> <code>&lt;i&gt;</code>"), "{page}");
        assert!(page.contains("<td style=\"text-align: right\">2</td>"), "{page}");
        let page = html(HOSTILE);
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
        let page = html("[a](javascript:alert(1)) [b](https://e.example/?a=\"b)");
        assert!(!page.contains("javascript:"), "{page}");
    }
}
