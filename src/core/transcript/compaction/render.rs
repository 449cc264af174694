//! Renders the older part of a conversation as plain text for the summary request.

use super::super::excerpt::{EXCERPT_MIN, excerpt, fair_share, shrink_until_fits};
use super::super::tool_exchanges::{label, placeholder};
use super::super::{Block, Message, Role, TokenDensity};
use super::root::{ConversationRoot, added_to};

/// Maximum number of times that the oldest rounds are dropped because the service rejects the text
/// as too long.
pub const DROPS_MAX: u8 = 3;

/// One text, call or result.
struct RenderedPiece {
    heading: String,
    body: String,
    kind: PieceKind,
}

/// The kind of a piece: calls and results are cut before text.
#[derive(Clone, Copy, PartialEq)]
enum PieceKind {
    Text,
    /// Tool calls and results.
    ToolTraffic,
}

impl RenderedPiece {
    fn text(heading: &str, body: impl Into<String>) -> Self {
        Self { heading: heading.to_owned(), body: body.into(), kind: PieceKind::Text }
    }

    /// The length of the heading and the line ends around the body.
    fn frame(&self) -> usize {
        self.heading.len() + "# \n\n\n".len()
    }
}

/// Renders `older` in at most `room` tokens, without thinking and media. `drops` is the number of
/// times that the service rejected it as too long: each time a quarter of the rounds, oldest first,
/// and a quarter of the text are left out.
pub fn render(older: &[Message], room: u64, density: TokenDensity, drops: u8) -> String {
    let drops = usize::from(drops.min(DROPS_MAX));
    shrink_until_fits(room, density, |limit| render_at_most(limit, older, drops))
}

fn render_at_most(limit: usize, older: &[Message], drops: usize) -> String {
    let (opening, mut rounds) = pieces(older);
    let size = |pieces: &[RenderedPiece]| {
        pieces.iter().map(|piece| piece.frame() + piece.body.len()).fold(0, usize::saturating_add)
    };
    let whole = rounds.iter().map(|round| size(round)).fold(size(&opening), usize::saturating_add);
    let limit = if drops == 0 { limit } else { limit.min(whole) / 4 * (4 - drops) };
    let dropped = (rounds.len() * drops).div_ceil(4).min(rounds.len());
    rounds.drain(..dropped);
    let mut pieces = opening;
    let first_round = pieces.len();
    pieces.extend(rounds.into_iter().flatten());
    fit_pieces(pieces, first_round, dropped > 0, limit)
}

/// The opening pieces, and the rounds.
fn pieces(older: &[Message]) -> (Vec<RenderedPiece>, Vec<Vec<RenderedPiece>>) {
    let root = ConversationRoot::parse(older);
    let task: Vec<String> = root.task.iter().filter_map(plain).collect();
    let mut opening = vec![RenderedPiece::text("The task", task.join("\n"))];
    opening.extend(root.later.iter().map(|text| RenderedPiece::text("User", text.as_str())));
    let added = older.first().map(added_to).unwrap_or_default();
    let current = root.current.iter().chain(added);
    opening.extend(current.filter_map(plain).map(|text| RenderedPiece::text("User", text)));
    if !root.summary.is_empty() {
        opening.push(RenderedPiece::text("Summary of what came before", root.summary));
    }
    let mut rounds: Vec<Vec<RenderedPiece>> = Vec::new();
    for (at, message) in older.iter().enumerate().skip(1) {
        let before = &older[at - 1].content;
        let new_pieces =
            message.content.iter().filter_map(|block| piece(message.role, block, before));
        match rounds.last_mut() {
            Some(round) if message.role == Role::User => round.extend(new_pieces),
            Some(_) | None => rounds.push(new_pieces.collect()),
        }
    }
    (opening, rounds)
}

fn plain(block: &Block) -> Option<String> {
    block.as_text().map(str::to_owned).or_else(|| placeholder(block))
}

fn piece(role: Role, block: &Block, before: &[Block]) -> Option<RenderedPiece> {
    Some(match block {
        Block::Text { text } => {
            let who = if role == Role::User { "User" } else { "Assistant" };
            RenderedPiece::text(who, text.trim())
        }
        Block::ToolUse { name, input, .. } => RenderedPiece {
            heading: format!("Assistant calls {}", label(name, input)),
            body: input.to_string(),
            kind: PieceKind::ToolTraffic,
        },
        Block::ToolResult { tool_use_id, content, is_error } => {
            let mut calls = before.iter().filter_map(Block::as_call);
            let called = calls.find(|(id, ..)| id == tool_use_id);
            let called = called.map(|(_, name, input)| label(name, input));
            let failed = if *is_error { " (failed)" } else { "" };
            let parts: Vec<String> = content.iter().filter_map(plain).collect();
            RenderedPiece {
                heading: format!("Result of {}{failed}", called.unwrap_or_default()),
                body: parts.join("\n"),
                kind: PieceKind::ToolTraffic,
            }
        }
        Block::Image { .. } | Block::Document { .. } | Block::Other(_) => {
            RenderedPiece::text("User", placeholder(block)?)
        }
        Block::Thinking { .. } | Block::RedactedThinking { .. } => return None,
    })
}

/// Cuts bodies, calls and results first, until all fits; if necessary, drops the oldest pieces
/// after the opening.
fn fit_pieces(
    mut pieces: Vec<RenderedPiece>,
    first_round: usize,
    gap: bool,
    limit: usize,
) -> String {
    const GAP: &str = "(Earlier rounds are left out.)";
    let frames: usize = pieces.iter().map(RenderedPiece::frame).sum();
    let least = |piece: &RenderedPiece| piece.frame() + piece.body.len().min(EXCERPT_MIN);
    let mut needed = pieces.iter().map(least).fold(GAP.len() + 4, usize::saturating_add);
    let mut surplus = first_round;
    while needed > limit && surplus < pieces.len() {
        needed -= least(&pieces[surplus]);
        surplus += 1;
    }
    let gone: usize = pieces.drain(first_round..surplus).map(|piece| piece.frame()).sum();
    let room = limit.saturating_sub(GAP.len() + 4).saturating_sub(frames - gone);
    cut_bodies(&mut pieces, PieceKind::ToolTraffic, room);
    cut_bodies(&mut pieces, PieceKind::Text, room);
    let mut text = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        if at == first_round && (gap || gone > 0) {
            text.extend([GAP, "\n\n"]);
        }
        text.extend(["# ", &piece.heading, "\n", &piece.body, "\n\n"]);
    }
    excerpt(&text, limit)
}

/// Cuts the bodies of one kind so that all bodies together take at most `room` bytes.
fn cut_bodies(pieces: &mut [RenderedPiece], kind: PieceKind, room: usize) {
    let length = |piece: &RenderedPiece| u64::try_from(piece.body.len()).unwrap_or(u64::MAX);
    let others = pieces.iter().filter(|piece| piece.kind != kind);
    let others = others.map(length).fold(0, u64::saturating_add);
    let room = u64::try_from(room).unwrap_or(u64::MAX).saturating_sub(others);
    let these = pieces.iter().filter(|piece| piece.kind == kind);
    let share = fair_share(these.map(length).collect(), room);
    let share = usize::try_from(share).unwrap_or(usize::MAX).max(EXCERPT_MIN);
    for piece in pieces.iter_mut().filter(|piece| piece.kind == kind && piece.body.len() > share) {
        piece.body = excerpt(&piece.body, share);
    }
}
