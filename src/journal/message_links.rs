//! The tree of a journal's messages: each line names its parent by id.

use std::collections::{HashMap, HashSet};
use std::iter;

/// Parents of messages and of lines that messages may refer to, by id.
#[derive(Default)]
pub(super) struct MessageLinks<'a>(HashMap<&'a str, Option<&'a str>>);

impl<'a> MessageLinks<'a> {
    /// Adds a line. If an earlier line has the same id, and the new parent descends from that line,
    /// the earlier parent is kept: a circle would lose the messages before it.
    pub(super) fn add(&mut self, id: &'a str, parent: Option<&'a str>) {
        let is_circle = || parent.is_some_and(|parent| self.lineage(parent).any(|it| it == id));
        let keeps = self.0.get(id).is_some_and(|known| *known == parent || is_circle());
        if !keeps {
            self.0.insert(id, parent);
        }
    }

    /// A line and its ancestors, from the last to the first.
    pub(super) fn lineage(&self, last: &'a str) -> impl Iterator<Item = &'a str> {
        let mut seen = HashSet::new();
        let before = |id: &&'a str| self.0.get(*id).copied().flatten();
        iter::successors(Some(last), before).take_while(move |id| seen.insert(*id))
    }
}

/// The ids of the messages of a user, other than results of tools.
#[derive(Clone, Debug, Default)]
pub struct UserMessageIds {
    pub earlier: Vec<String>,
    /// Those of the last prompt. Empty if the session is restored up to a chosen message.
    pub last: Vec<String>,
}
