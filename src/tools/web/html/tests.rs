//! Tests of the conversion of pages.

use html5gum::Tokenizer;
use html5gum::emitters::callback::CallbackEmitter;
use proptest::prelude::*;

use super::tokens::{PageToken, TokenReader};
use super::*;

fn markdown(html: &str) -> String {
    to_markdown(html, &CancellationToken::new()).text
}

async fn convert(html: impl Into<String>) -> ConvertedPage {
    PageConverter::default().convert(html.into()).await.expect("every page can be converted")
}

#[track_caller]
fn check(rows: &[(&str, &str)]) {
    let converted: Vec<_> = rows.iter().map(|(html, _)| (*html, markdown(html))).collect();
    for ((html, expected), (_, converted)) in rows.iter().zip(&converted) {
        assert_eq!(converted, expected, "{html}");
    }
}

#[test]
fn text_is_in_paragraphs_with_single_spaces() {
    check(&[
        ("", ""),
        (" \n a \t b\n", "a b"),
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("a<p>b</p>c", "a\n\nb\n\nc"),
        ("a<div><div>b</div></div>c", "a\n\nb\n\nc"),
        ("<div>a</div> <span>b</span>c <x-y>d</x-y>", "a\n\nbc d"),
        ("a&nbsp; b&amp;&lt;&eacute;&#x41;", "a b&<éA"),
        ("a<br>b<br/> c<br>", "a  \nb  \nc"),
        ("<p><br>a<br><br><br>b</p>", "a\n\nb"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<h1>a</h1><h6> b\nc </h6>d", "# a\n\n###### b c\n\nd"),
        ("<h2><a href=u>a</a><br>b</h2>", "## [a](u) b"),
        ("<h2></h2><h3><div>a</div><div>b</div></h3>", "### a\n\nb"),
        ("<h2></h2>a", "a"),
        ("<details><summary>a</summary>b</details>", "a\n\nb"),
        ("<figure><img src=u><figcaption>a</figcaption></figure>", "![](u)\n\na"),
        ("a<noscript>b<b>c</b></noscript>", "ab**c**"),
        ("<a href=u><h3>a</h3><p>b</p></a>c", "### [a](u)\n\nb\n\nc"),
    ]);
}

#[test]
fn elements_with_one_meaning_are_converted_alike() {
    let names = "address article aside caption center details dialog div fieldset figcaption figure \
                 footer form header hgroup legend main nav p search section summary textarea";
    for name in names.split(' ') {
        assert_eq!(markdown(&format!("a<{name}>b</{name}>c")), "a\n\nb\n\nc", "{name}");
    }
    for name in ["ul", "menu", "dir"] {
        let list = format!("<ul><li>a<{name}><li>b</{name}></ul>");
        assert_eq!(markdown(&list), "- a\n  - b", "{name}");
    }
    for name in ["select", "optgroup", "option", "button", "input"] {
        assert_eq!(markdown(&format!("a<{name}>b</{name}>c")), "a b c", "{name}");
    }
    for name in ["pre", "listing", "xmp"] {
        assert_eq!(markdown(&format!("<{name}>a\nb</{name}>")), "```\na\nb\n```", "{name}");
    }
}

#[test]
fn styles_are_marked_where_they_have_text() {
    check(&[
        ("<b>a</b><strong>b</strong> <em>c</em><i>d</i>", "**ab** *cd*"),
        ("<del>a</del> <s>b</s> <strike>c</strike>", "~~a b c~~"),
        ("a<b> b </b>c", "a **b** c"),
        ("a<b></b><i> </i>c", "a c"),
        ("<b>a<i>b</b>c</i>d", "**a*b****c*d"),
        ("<b><b>a</b>b</b>c", "**ab**c"),
        ("<b>a<br>b</b>", "**a  \nb**"),
        ("<b>a</b><br>b", "**a**  \nb"),
        ("<b>a<br><br>b</b>", "**a**\n\n**b**"),
        ("<b><p>a</p><p>b</p></b>c", "**a**\n\n**b**\n\nc"),
        ("<p><b>a</p>b", "**a**\n\nb"),
        ("<p><b>a<p>b", "**a**\n\nb"),
        ("<div><i>a</div>b</i>", "*a*\n\nb"),
        ("<b><p>a</b>b</p>", "**a**b"),
        ("</b>a</i>", "a"),
        ("<B>a</B>", "**a**"),
    ]);
}

#[test]
fn code_is_fenced() {
    check(&[
        ("<code>a</code><b>b</b>", "`a`**b**"),
        ("<code>a</code><img src=u>", "`a`![](u)"),
        ("a<code> b\n c </code>d", "a `b c` d"),
        ("<code>a</code><kbd>b</kbd> <samp>c</samp><tt>d</tt>", "`ab` `cd`"),
        ("<code>a`b</code> <code>``</code>", "``a`b`` ``` `` ```"),
        ("<code>a<b>b</b><a href=u>c</a>*_</code><code></code>", "`abc*_`"),
        ("<b><code>a</code></b><code>b</code>", "**`a`**`b`"),
        ("<a href=u><code>a</code></a><code>b</code>", "[`a`](u)`b`"),
        ("<code>a<p>b</code>c", "`a`\n\n`b`c"),
        ("a<pre>\n\n b\n\n  c*&lt;\n\n</pre>d", "a\n\n```\n b\n\n  c*<\n```\n\nd"),
        ("<pre><code class='x language-rs'>a</code></pre>", "```rs\na\n```"),
        ("<pre class=lang-c++>a</pre>", "```c++\na\n```"),
        ("<pre>a```</pre>", "````\na```\n````"),
        ("<pre> </pre>a", "a"),
        ("<pre>a<br>b<div>c</div><p>d<p>e<b>f</b></pre>", "```\na\nb\nc\nd\nef\n```"),
        ("<pre>a<button>copy</button><input>b</pre>", "```\na\nb\n```"),
        ("<pre><img src=u alt=a><h1>b</h1><ul><li>c</ul></pre>", "```\na\nb\nc\n```"),
        ("<pre><table><tr><td>a<td>b<tr><td>c</table></pre>d", "```\na\nb\nc\n```\n\nd"),
        ("<pre><code class=lang-a>a</code><code class=lang-b>b</code></pre>", "```a\na\nb\n```"),
        ("<ul><li><pre>a\n\nb</pre></ul>", "- ```\n  a\n\n  b\n  ```"),
        ("<xmp><b></xmp>a", "```\n<b>\n```\n\na"),
        ("a<plaintext><b>", "a\n\n```\n<b>\n```"),
    ]);
}

#[test]
fn links_and_pictures_keep_their_addresses() {
    check(&[
        ("a<a href=u> b </a>c", "a [b](u) c"),
        ("<a href=u title=' b\n \"c\" '>a</a>", "[a](u \"b \\\"c\\\"\")"),
        ("<a href=' u(1)\n/b '>a</a>", "[a](u\\(1\\)/b)"),
        ("<a href='a b<(>'>a</a>", "[a](<a b\\<(\\>>)"),
        ("<a href=u></a><a href=u> </a><a name=n>a</a>", "a"),
        ("<a href=u>a</a><a href=v>b</a>", "[a](u)[b](v)"),
        ("<a href=u>a<a href=v>b</a>c</a>", "[a](u)[b](v)c"),
        ("<a href=u>a <b>b</b></a>", "[a **b**](u)"),
        ("<a href=u>a <b>b</a>c</b>", "[a **b**](u)**c**"),
        ("<b>a<a href=u>b</b>c</a>", "**a[b](u)**c"),
        ("<a href=u>[a]</a>", "[\\[a\\]](u)"),
        ("a!<a href=u>b</a>", "a\\![b](u)"),
        ("<p><a href=u>a</p>b", "[a](u)\n\nb"),
        ("<a href=u>a<ul><li>b</ul></a>", "[a](u)\n\n- b"),
        ("<img src=u alt=' a\n[b] ' title=t>", "![a b](u \"t\")"),
        ("<img alt=a>b", "b"),
        ("<img src='data:x,y' alt=a><img src='data:x,y'>", "![a](data:)"),
        ("<a href=u><img src=v alt=a></a>", "[![a](v)](u)"),
    ]);
}

#[test]
fn lists_and_quotes_are_nested() {
    check(&[
        ("a<ul><li>b<li>c</ul>d", "a\n\n- b\n- c\n\nd"),
        ("<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>", "- a\n  - b\n- c"),
        ("<ol start=9><li>a<li>b<ul><li>c</ul></ol>", "9. a\n10. b\n    - c"),
        ("<ol start=-2><li>a<li value=7>b<li>c</ol>", "1. a\n7. b\n8. c"),
        ("<ol start=999999999><li>a<li>b</ol>", "999999999. a\n999999999. b"),
        ("<ol><li></li><li>a</ol>b", "2. a\n\nb"),
        ("<ul><li><p>a</p><p>b</p></li><li>c</li></ul>", "- a\n\n  b\n\n- c"),
        ("<ul><li><ul><li>a</ul></ul>", "- - a"),
        ("<ul><li><p>a</p></li><li><div>b</div></li></ul><p>c", "- a\n- b\n\nc"),
        ("<ul><li><p>a</p><ul><li>b</ul><li>c</ul>", "- a\n\n  - b\n- c"),
        ("<ul><li>a</li>b</ul>", "- a\nb"),
        ("<menu><li>a<br>b</menu>", "- a  \n  b"),
        ("<li>a<li>b", "- a\n- b"),
        ("<ul><li><div>a<li>b</div>c</ul>", "- a\n- bc"),
        ("<div><ul><li>a</div>b", "- a\n\nb"),
        ("<ol><li>a<table><td><li>b</table><li>c</ol>", "1. a\n\n   - b\n\n2. c"),
        ("a<blockquote>b<p>c</blockquote>d", "a\n\n> b\n>\n> c\n\nd"),
        ("<blockquote>a<blockquote>b</blockquote></blockquote>", "> a\n>\n> > b"),
        ("<blockquote></blockquote>a", "a"),
        ("<ul><li><blockquote><p>a</blockquote>b</ul>", "- > a\n\n  b"),
        ("<blockquote><h2>a</h2><ul><li>b</ul></blockquote>", "> ## a\n>\n> - b"),
        ("<dl><dt>a<dd>b<dd>c<dt>d<dd>e</dl>f", "a\n: b\n: c\n\nd\n: e\n\nf"),
        ("<dl><dt>a<dd><p>b</p><dl><dt>c<dd>d</dl></dl>", "a\n: b\n\n  c\n  : d"),
        ("<dl><dt><b>a</b></dt><dd>b<ul><li>c</ul></dd></dl>", "**a**\n: b\n  - c"),
    ]);
}

#[test]
fn tables_have_lines_of_cells() {
    check(&[
        (
            "<table><thead><tr><td>a<td>b<tbody><tr><td>c<td>d</table>",
            "| a | b |\n| --- | --- |\n| c | d |",
        ),
        ("<table><tr><th>a<td>b<tr><th>c</table>d", "| a | b |\n| --- | --- |\n| c |  |\n\nd"),
        (
            "<table><tr><td>a<td>b<tr><td>c<td>d</table>",
            "|  |  |\n| --- | --- |\n| a | b |\n| c | d |",
        ),
        (
            "<table><tr><th>a|b</th><th><p>c<p>d<ul><li>e</ul></th></tr></table>",
            "| a\\|b | c d - e |\n| --- | --- |",
        ),
        ("<table><th>a<th>b<br>c<tr><tr><td></table>", "| a | b c |\n| --- | --- |"),
        ("<table><caption>a</caption><tr><th>b<th>c</table>", "a\n\n| b | c |\n| --- | --- |"),
        ("<table><tr><th>a</th>b<th>c</table>", "b\n\n| a | c |\n| --- | --- |"),
        ("<table>a<tr>b<td>c<td>d</table>", "ab\n\nc\n\nd"),
        ("<table><tr><td><p>a<p>b<td>c<tr><td>d</table>", "a\n\nb\n\nc\n\nd"),
        ("<table><tr><th>a</th></tr><tr><td>b</td></tr></table>", "a\n\nb"),
        (
            "<table><td><table><tr><th>a<th>b</table></td><td>c</table>d",
            "| a | b |\n| --- | --- |\n\nc\n\nd",
        ),
        (&format!("{}<table><th>a<th>b", "<table><td>".repeat(7)), "| a | b |\n| --- | --- |"),
        (&format!("{}<table><th>a<th>b", "<table><td>".repeat(8)), "a b"),
        (
            "<table><th>a<th><table><tr><td>b<td>c<tr><td>d</table></table>",
            "| a | b c d |\n| --- | --- |",
        ),
        ("<ul><li><table><tr><th>a<th>b</table></ul>", "- | a | b |\n  | --- | --- |"),
        ("<table><tr><td>a</div></p></table>b", "a\n\nb"),
        ("<div><table><td><b>a</div>b<td>c</table>d</div>e", "**ab**\n\nc\n\nd\n\ne"),
        ("<td>a</td><td>b</td><tr>c</tr></table>d", "a b\ncd"),
    ]);
}

#[test]
fn what_readers_do_not_see_is_left_out() {
    check(&[
        ("a<script>if (b<c) '</b>'</script>d", "ad"),
        ("a<style>b{}</style><template>c<template>d</template>e</template>f", "af"),
        ("a<svg><title>b</title><g/></svg>c<svg/>d", "acd"),
        ("a<iframe><b></iframe>b<object>c</object>d<canvas>e</canvas>", "abd"),
        ("a<!-- <b> -->b<?x?>c<![CDATA[d]]>", "abc"),
        ("<noframes><p>a</noframes><noembed><p>b</noembed><datalist><option>c</datalist>d", "d"),
        ("a<script>b", "a"),
        ("a<!--b", "a"),
        ("a<svg><style/><script/>b</svg>c", "ac"),
        ("a<svg><a>b</a><p>c", "a\n\nc"),
        ("a<svg><foreignObject>b</foreignObject><p>c", "a\n\nc"),
        ("a<svg><foreignObject><p>b</p></foreignObject></svg>c", "ac"),
        ("<form><label>a</label><input><button>b</button></form>", "a b"),
        ("<select><option>a<option>b</select>c<textarea><i>d</textarea>", "a b c\n\n\\<i>d"),
        ("a</script></svg></template>b</br>c", "ab  \nc"),
        ("a</p>b</div></ul></blockquote></table></td></h1></li>c", "a\n\nbc"),
        ("<h1>a</h2>b<h3>c<h4>d<p>e", "# a\n\nb\n\n### c\n\n#### d\n\ne"),
        ("<a", ""),
        ("a<1>< b<>", "a<1>< b<>"),
        ("a\0b\r\nc", "ab c"),
    ]);
}

#[test]
fn text_is_escaped_where_it_would_be_markup() {
    check(&[
        ("a * b 2*3 *c*", "a * b 2\\*3 \\*c\\*"),
        ("a_b_c _d_ __e__ f__g _", "a_b_c \\_d\\_ \\_\\_e\\_\\_ f__g \\_"),
        ("`a` C:\\Users \\* \\", "\\`a\\` C:\\Users \\\\\\* \\\\"),
        ("~~a~~ ~b", "\\~\\~a\\~\\~ ~b"),
        ("&lt;b> &lt;/b> &lt;!-- &lt;?x 1 &lt; 2 &lt;3", "\\<b> \\</b> \\<!-- \\<?x 1 < 2 <3"),
        ("[a](b) [c] [d][e] [f] (g)", "[a]\\(b) [c] [d]\\[e] [f] (g)"),
        ("<p>[a]: b<p>c [a]: b", "\\[a]: b\n\nc [a]: b"),
        ("<p># a<p>#a<p>####### a<p>b # c", "\\# a\n\n#a\n\n####### a\n\nb # c"),
        ("<p>- a<p>-a<p>-<p>---<p>+ a<p>* a", "\\- a\n\n-a\n\n-\n\n\\---\n\n\\+ a\n\n\\* a"),
        (
            "<p>1. a<p>12) a<p>1.5 a<p>1.<p>1234567890. a",
            "1\\. a\n\n12\\) a\n\n1.5 a\n\n1.\n\n1234567890. a",
        ),
        ("<p>> a<p>a<br>===<p>= a", "\\> a\n\na  \n\\===\n\n\\= a"),
        ("<ul><li>- a</ul><h1>1. b</h1><b>- c</b>", "- \\- a\n\n# 1. b\n\n**- c**"),
    ]);
}

#[test]
fn the_title_is_the_first_one() {
    let long = format!("<title>{}</title>", "é ".repeat(300));
    for (html, title, text) in [
        ("<head><title> a \n&amp; <b></title></head>b", Some("a & <b>"), "b"),
        ("<title>a</title><title>b</title>c", Some("a"), "c"),
        ("<svg><title>a</title></svg><title></title>b", None, "b"),
        ("<title> </title><title>a</title>", Some("a"), ""),
        ("a<title>b", Some("b"), "a"),
        (long.as_str(), Some(&*"é ".repeat(100)), ""),
    ] {
        let page = to_markdown(html, &CancellationToken::new());
        assert_eq!((page.title.as_deref(), page.text.as_str()), (title, text), "{html}");
    }
}

#[test]
fn elements_beyond_the_depth_limit_are_text() {
    let deep = "<div>".repeat(600);
    let inner = "<p>a</p><ul><li>b <i>c</i></ul><table><tr><td>d<td>e</table><code>f</code>";
    let page = format!("<ul><li>{deep}{inner}{}g</ul>h", "</div>".repeat(600));
    assert_eq!(markdown(&page), "- a\n\n  b c\n\n  d e\n\n  f\n\n  g\n\nh");
    let anchors = "<a name=n>".repeat(600);
    assert_eq!(markdown(&format!("{anchors}<h1>a</h1>{}<h1>b", "<p>".repeat(600))), "# a\n\n# b");
}

#[tokio::test]
async fn a_page_of_unclosed_or_many_elements_is_converted_in_time() {
    for tag in [
        "<div>",
        "<b>",
        "<table><td>",
        "<svg><g>",
        "<template>",
        "<object>",
        "<font color=1>",
        "<p>x",
        "</div>",
        "<!---->",
        "<li>",
        "<tr><td>",
        "<code>`",
        "<a href=u>x",
        "_",
        "](",
    ] {
        let page = convert(format!("<p>first</p>{}", tag.repeat((1 << 18) / tag.len()))).await;
        assert!(page.text.starts_with("first"), "{tag}");
        assert_eq!(page.cut, None, "{tag}");
    }
    let page = convert("<b>x</b>".repeat(99_000)).await;
    assert_eq!(page.text, format!("**{}**", "x".repeat(99_000)));
}

#[test]
fn a_text_much_larger_than_its_page_is_cut() {
    let quotes = "<blockquote>".repeat(400);
    for tag in ["x<br>", "<p>x", "<pre>x\n\nx"] {
        let html = format!("{quotes}{}", tag.repeat((1 << 18) / tag.len()));
        let page = to_markdown(&html, &CancellationToken::new());
        assert_eq!(page.cut, Some("as Markdown it is more than 4 times as long"), "{tag}");
        assert_eq!(page.text.len(), 4 * html.len() + (64 << 10), "{tag}");
    }
    let lines = format!("{quotes}<pre>{}", "\n".repeat(1 << 18) + "x");
    assert_eq!(markdown(&lines).lines().count(), 3);
    let rows = format!("<table><th>h{}{}", "<td>".repeat(2000), "<tr><td>x".repeat(2000));
    assert!(to_markdown(&rows, &CancellationToken::new()).cut.is_some());
}

#[test]
fn the_tokens_of_a_page_are_few_whatever_its_bytes_are() {
    const COUNT: usize = 5_000;
    let units: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    let references = ["&#0;", "&#x80;", "&#xfffe;", "&amp", "&", "<", "<!", "</", "\r", "\u{fffe}"];
    let units = units.into_iter().chain(references.map(|unit| unit.as_bytes().to_vec()));
    for unit in units {
        for begin in ["", "<html><body>", "<pre>", "<script>", "<!--", "<a ", "<a b='", "<title>"] {
            let html = [begin.as_bytes(), &unit.repeat(COUNT)].concat();
            let html = String::from_utf8_lossy(&html);
            let emitter = CallbackEmitter::new(TokenReader::default());
            let count = Tokenizer::new_with_emitter(&*html, emitter).count();
            assert!(count < 8, "{count} of {unit:?} after {begin:?}");
        }
    }
    let attributes: String =
        (0..COUNT).map(|number| format!(" a{number}=b")).collect::<Vec<_>>().concat();
    let html = format!("<a href=x{attributes} href=y title=t>");
    let emitter = CallbackEmitter::new(TokenReader::default());
    let tokens: Vec<PageToken> = Tokenizer::new_with_emitter(&html, emitter).flatten().collect();
    let [PageToken::StartTag(tag)] = tokens.as_slice() else { panic!("{tokens:?}") };
    assert_eq!(tag.attribute("href").as_deref(), Some("x"));
    assert_eq!(tag.attribute("title").as_deref(), Some("t"));
    assert_eq!(tag.attribute("a1"), None);
}

#[test]
fn a_conversion_can_be_stopped() {
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(to_markdown("<p>a<p>b<p>c", &stop).text, "");
}

/// Tags for random pages, separated by `|`.
pub(super) const TAGS: &str = "<p>|</p>|<b>|</b>|<i>|</i>|<a href=u>|</a>|<code>|</code>|<pre>|</pre>|\
    <ul>|</ul>|</ol>|<li>|</li>|<div>|</div>|<h1>|</h2>|<blockquote>|</blockquote>|\
    <dl>|<dt>|<dd>|</dl>|<br>|<hr>|<img src=x alt=y>";

fn arb_page() -> impl Strategy<Value = String> {
    const OTHERS: &str = "<a>|<ol start=7>|<table>|</table>|<tr>|<td>|<th>|</td>|<thead>|<svg>|</svg>|\
        <title>|<script>|<option>|<template>|</template>|&am|\n| |x|\\|<";
    let pieces: Vec<&str> = TAGS.split('|').chain(OTHERS.split('|')).collect();
    let piece = proptest::sample::select(pieces).prop_map(str::to_owned);
    proptest::collection::vec(prop_oneof![3 => piece, 1 => ".{0,3}"], 0..60)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_page_becomes_bounded_text(html in arb_page()) {
        let page = to_markdown(&html, &CancellationToken::new());
        prop_assert!(page.text.len() <= 4 * html.len() + (64 << 10));
        prop_assert!(!page.text.ends_with(char::is_whitespace), "{:?}", page.text);
        prop_assert!(html.contains("<pre>") || !page.text.contains("\n\n\n"), "{:?}", page.text);
    }
}
