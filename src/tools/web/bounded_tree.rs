//! Parses HTML into a tree of bounded size.
//!
//! The error recovery of HTML lets a small page grow into a tree of any size, and takes quadratic
//! time in its depth. So a page is parsed in small chunks, and the limits are checked between them.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{Attribute, ExpandedName, ParseOpts, QualName, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use tokio_util::sync::CancellationToken;

/// The maximum number of elements and comments of a page.
const NODES_MAX: usize = 100_000;
/// The maximum nesting depth of a page, about the same as in browsers.
const DEPTH_MAX: usize = 512;
/// How many bytes are parsed between checks.
const CHUNK_BYTES: usize = 1024;

/// A page as a tree.
pub(super) struct HtmlTree {
    pub(super) document: Handle,
    /// Why its end is missing, if it is.
    pub(super) cut: Option<&'static str>,
}

/// Parses a page.
pub(super) fn parse_bounded(html: &str, stop: &CancellationToken) -> HtmlTree {
    let options = ParseOpts {
        // Content of `<noscript>` is for readers without scripts.
        tree_builder: TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() },
        ..ParseOpts::default()
    };
    let mut parser = parse_document(HtmlSink::default(), options);
    let mut rest = html;
    let mut cut = None;
    while !rest.is_empty() && cut.is_none() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(CHUNK_BYTES));
        parser.process(StrTendril::from_slice(piece));
        rest = after;
        cut = parser.tokenizer.sink.sink.exceeded_limit(stop);
    }
    let cut = cut.filter(|_| !rest.is_empty());
    HtmlTree { document: parser.finish().document, cut }
}

/// A tree builder that tracks the size of its tree.
struct HtmlSink {
    tree: RcDom,
    nodes: Cell<usize>,
    /// The parent of the last added node.
    last: RefCell<Option<Handle>>,
}

impl Default for HtmlSink {
    fn default() -> Self {
        Self { tree: RcDom::default(), nodes: Cell::new(0), last: RefCell::new(None) }
    }
}

impl HtmlSink {
    /// The limit that is exceeded, if any.
    fn exceeded_limit(&self, stop: &CancellationToken) -> Option<&'static str> {
        if stop.is_cancelled() {
            Some("the run ends")
        } else if self.nodes.get() > NODES_MAX {
            Some("it has more than 100,000 elements")
        } else if self.depth() > DEPTH_MAX {
            Some("its elements lie deeper in one another than 512")
        } else {
            None
        }
    }

    fn depth(&self) -> usize {
        let above = |node: &Handle| {
            let parent = node.parent.take();
            node.parent.set(parent.clone());
            parent?.upgrade()
        };
        std::iter::successors(self.last.borrow().clone(), above).count()
    }

    fn count(&self) {
        self.nodes.set(self.nodes.get() + 1);
    }
}

impl TreeSink for HtmlSink {
    type Handle = Handle;
    type Output = RcDom;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> RcDom {
        self.tree
    }

    /// Most pages have parse errors; they are ignored.
    fn parse_error(&self, _msg: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.tree.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        match &target.data {
            NodeData::Element { name, .. } => name.expanded(),
            NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Text { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => {
                unreachable!("the parser asks only for what it made by a name")
            }
        }
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.count();
        self.tree.create_element(name, attrs, flags)
    }

    fn create_comment(&self, _text: StrTendril) -> Handle {
        self.count();
        self.tree.create_comment(StrTendril::new())
    }

    fn create_pi(&self, _target: StrTendril, _data: StrTendril) -> Handle {
        self.create_comment(StrTendril::new())
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        self.last.replace(Some(Rc::clone(parent)));
        self.tree.append(parent, child);
    }

    fn append_based_on_parent_node(
        &self,
        element: &Handle,
        prev_element: &Handle,
        child: NodeOrText<Handle>,
    ) {
        self.tree.append_based_on_parent_node(element, prev_element, child);
    }

    fn append_doctype_to_document(
        &self,
        _name: StrTendril,
        _public_id: StrTendril,
        _system_id: StrTendril,
    ) {
    }

    fn get_template_contents(&self, target: &Handle) -> Handle {
        self.tree.get_template_contents(target)
    }

    fn same_node(&self, x: &Handle, y: &Handle) -> bool {
        Rc::ptr_eq(x, y)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.tree.set_quirks_mode(mode);
    }

    fn append_before_sibling(&self, sibling: &Handle, new_node: NodeOrText<Handle>) {
        self.tree.append_before_sibling(sibling, new_node);
    }

    fn add_attrs_if_missing(&self, target: &Handle, attrs: Vec<Attribute>) {
        self.tree.add_attrs_if_missing(target, attrs);
    }

    fn remove_from_parent(&self, target: &Handle) {
        self.tree.remove_from_parent(target);
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        self.tree.reparent_children(node, new_parent);
    }

    fn is_mathml_annotation_xml_integration_point(&self, handle: &Handle) -> bool {
        self.tree.is_mathml_annotation_xml_integration_point(handle)
    }
}
