//! Lines of Markdown, with the prefixes of quotes and lists. Pure.

/// The maximum number of levels of quotes and lists that prefix a line. Deeper ones are not
/// indented further, so that the size of the text is not quadratic in its depth.
const PREFIXES_MAX: usize = 32;

/// The separator before the next text of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockGap {
    /// The block has not ended.
    Within,
    #[default]
    Line,
    Blank,
}

/// A quote, a list item or a description.
#[derive(Debug)]
struct LineContainer {
    /// The beginning of its first line, until that is written.
    marker: Option<String>,
    prefix: String,
    /// True if blank lines separate its blocks.
    is_loose: bool,
}

/// A sequence of blocks: a page, or a cell of a table.
#[derive(Debug, Default)]
pub(super) struct BlockFlow {
    pub(super) out: String,
    containers: Vec<LineContainer>,
    /// The number of containers that have contained everything since the last line began.
    common: usize,
    /// The gap before the next block.
    gap: BlockGap,
    /// True if the innermost container has no content yet.
    is_fresh: bool,
    /// The level of the open heading, and true if its marker was written.
    heading: Option<(u8, bool)>,
    breaks: usize,
    has_space: bool,
    is_at_line_start: bool,
}

impl BlockFlow {
    /// Ends the block. The gap is left out between the marker of an item and its first block.
    pub(super) fn end_block(&mut self, gap: BlockGap) {
        self.breaks = 0;
        self.heading = self.heading.filter(|(_, is_written)| !is_written);
        if !self.is_fresh {
            self.gap = self.gap.max(gap);
        }
    }

    /// True if the line breaks since the last text end the block.
    pub(super) fn has_paragraph_break(&self) -> bool {
        self.breaks > 1
    }

    pub(super) fn start_heading(&mut self, level: u8) {
        self.heading = Some((level, false));
    }

    pub(super) fn end_heading(&mut self) {
        self.heading = None;
    }

    /// Begins a quote, list item or description, after `end_block`.
    pub(super) fn open_container(&mut self, marker: Option<String>, prefix: String) {
        self.is_fresh |= marker.is_some();
        self.containers.push(LineContainer { marker, prefix, is_loose: false });
    }

    /// Ends the innermost container, after `end_block`. A container without content leaves nothing.
    /// After a container of a single block, the gap of that block is ignored.
    pub(super) fn close_container(&mut self, gap: BlockGap) {
        if let Some(closed) = self.containers.pop()
            && closed.marker.is_none()
            && !closed.is_loose
        {
            self.gap = gap;
        }
        self.common = self.common.min(self.containers.len());
        self.is_fresh = self.containers.last().is_some_and(|outer| outer.marker.is_some());
    }

    /// Records white space, which is significant within a line.
    pub(super) fn space(&mut self) {
        self.has_space = true;
    }

    /// Returns true if a space is due, and records it as written.
    pub(super) fn take_space(&mut self) -> bool {
        std::mem::take(&mut self.has_space)
    }

    /// Records the end of a line within a block. Two in a row end the block.
    pub(super) fn break_line(&mut self) {
        if self.heading.is_some() {
            self.space();
        } else if self.gap == BlockGap::Within {
            self.breaks += 1;
        }
    }

    /// Begins a line, if the next text needs one.
    pub(super) fn start_text(&mut self) {
        if self.gap > BlockGap::Within {
            self.start_line(self.gap);
            self.is_at_line_start = true;
            if let Some((level, is_written @ false)) = &mut self.heading {
                *is_written = true;
                self.out.extend(std::iter::repeat_n('#', usize::from(*level)));
                self.out.push(' ');
                self.is_at_line_start = false;
            }
        } else if self.breaks > 0 {
            self.out.push_str("  ");
            self.start_line(BlockGap::Line);
            self.is_at_line_start = true;
        }
    }

    /// Returns true if nothing was written since the line began, and records that something is.
    pub(super) fn leave_line_start(&mut self) -> bool {
        std::mem::take(&mut self.is_at_line_start)
    }

    /// Writes lines as a block of their own. Stops when the text is longer than `limit`.
    pub(super) fn push_lines(&mut self, text: &str, limit: usize) {
        for line in text.split('\n') {
            if self.out.len() > limit {
                break;
            }
            self.start_line(self.gap);
            self.out.push_str(line);
            if line.is_empty() {
                self.out.truncate(self.out.trim_end_matches(' ').len());
            }
        }
        self.end_block(BlockGap::Blank);
    }

    fn start_line(&mut self, gap: BlockGap) {
        if !self.out.is_empty() {
            self.out.push('\n');
            if gap == BlockGap::Blank {
                for container in self.containers[..self.common].iter_mut().take(PREFIXES_MAX) {
                    self.out.push_str(&container.prefix);
                    container.is_loose = true;
                }
                self.out.truncate(self.out.trim_end_matches(' ').len());
                self.out.push('\n');
            }
        }
        for (level, container) in self.containers.iter_mut().enumerate() {
            if let Some(marker) = container.marker.take() {
                self.out.push_str(&marker);
            } else if level < PREFIXES_MAX {
                self.out.push_str(&container.prefix);
            }
        }
        self.common = self.containers.len();
        self.gap = BlockGap::Within;
        (self.is_fresh, self.breaks, self.has_space) = (false, 0, false);
    }

    pub(super) fn finish(mut self) -> String {
        self.out.truncate(self.out.trim_end().len());
        self.out
    }
}
