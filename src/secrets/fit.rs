//! Whether a key of a known shape stands at a place.

use std::ops::{Range, RangeInclusive};

use super::shapes::{Hides, Shape};

/// How far the end of a block is looked for, in bytes.
pub(super) const BLOCK_MAX: usize = 16 << 10;

/// Less of a block whose end is missing is none, in bytes.
const TORN_BLOCK_MIN: usize = 40;

/// Which bytes a part is made of.
pub(super) type Class = fn(u8) -> bool;

/// One part of a shape, after its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// Exactly this.
    Word(&'static str),
    /// As many bytes of a class as there are: so many at least, and so many at most.
    Run(Class, usize, usize),
    /// Everything up to this mark; or, where the mark is missing, as many bytes of a class as
    /// there are.
    Until(&'static str, Class),
}

/// What stands at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    No,
    /// The text ends before one can tell.
    Unsure,
    /// A key. `open`: the text ends where it ends, and it may go on.
    Yes {
        hidden: Range<usize>,
        open: bool,
    },
}

/// What a part takes of the text.
enum Taken {
    Nothing,
    TooShort,
    Bytes(usize),
    /// So many, and perhaps more of what follows.
    Open(usize),
}

/// Looks at `data`, which begins with `begin` bytes that a shape can begin with. `last` says that
/// no more text will come.
pub(super) fn fit(shape: &Shape, data: &[u8], begin: usize, last: bool) -> Fit {
    let mut at = begin;
    let mut hidden = 0..0;
    let mut open = false;
    for (index, part) in shape.rest.iter().enumerate() {
        let from = at;
        (at, open) = match part.take(&data[at..], last) {
            Taken::Nothing => return Fit::No,
            Taken::TooShort => return Fit::Unsure,
            Taken::Bytes(count) => (at + count, false),
            Taken::Open(count) => (at + count, true),
        };
        if shape.hides == Hides::Part(index) {
            hidden = from..at;
        }
    }
    if shape.hides == Hides::All {
        hidden = 0..at;
    }
    if open || (shape.is_key)(&data[hidden.clone()]) { Fit::Yes { hidden, open } } else { Fit::No }
}

impl Part {
    fn take(self, data: &[u8], last: bool) -> Taken {
        match self {
            Self::Word(word) => {
                let word = word.as_bytes();
                if data.starts_with(word) {
                    Taken::Bytes(word.len())
                } else if !last && word.starts_with(data) {
                    Taken::TooShort
                } else {
                    Taken::Nothing
                }
            }
            Self::Run(class, low, high) => run(class, low..=high, data, last),
            Self::Until(mark, class) => until(mark, class, data, last),
        }
    }

    /// Whether a byte may belong to the end of a key that ends in this part.
    pub(super) fn goes_on(self, byte: u8) -> bool {
        match self {
            Self::Word(_) => false,
            Self::Run(class, ..) | Self::Until(_, class) => class(byte),
        }
    }
}

fn run(class: Class, counts: RangeInclusive<usize>, data: &[u8], last: bool) -> Taken {
    let count = data.iter().position(|&byte| !class(byte)).unwrap_or(data.len());
    let at_end = count == data.len() && !last;
    if count > *counts.end() {
        Taken::Nothing
    } else if count < *counts.start() {
        if at_end { Taken::TooShort } else { Taken::Nothing }
    } else if at_end {
        Taken::Open(count)
    } else {
        Taken::Bytes(count)
    }
}

fn until(mark: &str, class: Class, data: &[u8], last: bool) -> Taken {
    let near = &data[..data.len().min(BLOCK_MAX)];
    // A quotation mark ends the JSON string that the block stands in.
    let quoted = near.iter().position(|&byte| byte == b'"').unwrap_or(near.len());
    let mark = mark.as_bytes();
    if let Some(end) = near[..quoted].windows(mark.len()).position(|window| window == mark) {
        return Taken::Bytes(end);
    }
    if !last && quoted == data.len() && data.len() < BLOCK_MAX {
        return Taken::Open(data.len());
    }
    run(class, TORN_BLOCK_MIN..=usize::MAX, data, last)
}
