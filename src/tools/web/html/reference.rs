//! Compares the conversion of pages with a parser that follows the HTML standard: every word that a
//! browser would have in the page is in the Markdown, in the same order, and no other.

use html5ever::tendril::TendrilSink;
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use proptest::prelude::*;

use super::tests::TAGS;
use super::*;

/// Elements without text for readers.
const SKIPPED: [&str; 6] = ["head", "script", "style", "svg", "iframe", "object"];

/// The words of a text: `w` and a number.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_word =
        |part: &&str| part.strip_prefix('w').is_some_and(|number| number.parse::<usize>().is_ok());
    parts.filter(is_word).map(str::to_owned).collect()
}

fn words_of_tree(html: &str) -> Vec<String> {
    fn collect(node: &Handle, text: &mut String) {
        match &node.data {
            NodeData::Text { contents } => text.push_str(&contents.borrow()),
            NodeData::Element { name, .. } if SKIPPED.contains(&&*name.local) => return,
            NodeData::Element { .. } => text.push(' '),
            NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => {}
        }
        for child in node.children.borrow().iter() {
            collect(child, text);
        }
        text.push(' ');
    }
    let tree = parse_document(RcDom::default(), ParseOpts::default()).one(html);
    let mut text = String::new();
    collect(&tree.document, &mut text);
    words(&text)
}

fn words_of_markdown(html: &str) -> Vec<String> {
    words(&to_markdown(html, &CancellationToken::new()).text)
}

#[test]
fn pages_have_the_words_of_their_trees() {
    for html in [
        "<!doctype html><html><head><title>t</title><meta charset=utf-8><style>w1{}</style>\
         <script>let w2 = '<p>w3';</script></head><body><p>w4<p>w5 <script>w6</script> w7</body></html>",
        "<p>w1 <b>w2 <i>w3</b> w4</i> w5",
        "<ul><li>w1<li>w2<ul><li>w3</ul><li>w4</ul>w5",
        "<dl><dt>w1<dd>w2<dt>w3<dd>w4</dl>w5",
        "<table><caption>w1</caption><thead><tr><th>w2<th>w3<tbody><tr><td>w4<td>w5</table>w6",
        "<!-- w1 --><p>w2<!-- > w3 --><p>w4 <!--->w5",
        "<p title='w1 > w2'>w3<img alt=\"x\" src=\"x\">w5",
        "<pre>\nw1\n  w2</pre><code>w3</code>&lt;w4&gt;&amp;w5",
        "<blockquote><p>w1<blockquote>w2</blockquote>w3</blockquote>w4",
        "<a href=x>w1<p>w2</a> w3<h1>w4</h2>w5<h3>w6",
        "<svg><title>w1</title><text>w2</text></svg>w3",
        "<textarea>w1 <b>w2</b></textarea>w3",
        "</p>w1 </div>w2 </span></body> w3 </html> w4",
        "<nav>w1</nav><main><article><header>w2</header>w3</article></main><footer>w4</footer>",
        "<details><summary>w1</summary>w2</details><figure>w3<figcaption>w4</figcaption></figure>",
        "w1<br>w2<hr>w3 <wbr>w4<input value=w5>",
    ] {
        assert_eq!(words_of_markdown(html), words_of_tree(html), "{html}");
    }
}

/// Generates pages of elements that the standard parser does not move.
fn arb_page() -> impl Strategy<Value = String> {
    const OTHERS: &str = "<ol>|</h1>|<h2>|</h3>|<span>|</span>|<!-- w0 -->|<!w0>|<script>w0</script>|\
        <style>w0</style>|&amp;|<section>|</section>|</x>| ";
    let pieces: Vec<&str> = TAGS.split('|').chain(OTHERS.split('|')).collect();
    let piece = proptest::sample::select(pieces).prop_map(Some);
    proptest::collection::vec(prop_oneof![Just(None), piece], 0..40).prop_map(|pieces| {
        let pieces = pieces.into_iter().enumerate().map(|(number, piece)| match piece {
            Some(piece) => piece.to_owned(),
            None => format!(" w{} ", number + 1),
        });
        pieces.collect()
    })
}

proptest! {
    #[test]
    fn any_page_has_the_words_of_its_tree(html in arb_page()) {
        prop_assert_eq!(words_of_markdown(&html), words_of_tree(&html));
    }
}
