//! The terminal below a status line.
//!
//! The library fills lines with blanks up to the right edge, so that the output of another program
//! begins on a new line. If such a terminal echoes `^C`, it wraps the line, and a copy of the
//! status line remains above. Here lines end after their text, and leave room for the echo.

use std::io;

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};
use parking_lot::Mutex;

/// The maximum number of drawings per second, as is the default of the library.
const REDRAWS: u8 = 20;

/// The columns reserved for the echo of a control character, and for the cursor.
pub(super) const ECHO_COLUMNS: u16 = 3;

/// Returns the target of status lines: standard error.
pub fn status_target() -> ProgressDrawTarget {
    let terminal = StatusTerminal::new(Term::buffered_stderr());
    ProgressDrawTarget::term_like_with_hz(Box::new(terminal), REDRAWS)
}

/// A terminal to which lines are written without the filling blanks.
#[derive(Debug)]
struct StatusTerminal<T> {
    term: T,
    /// True if the last line is complete, so that the next text begins a new line.
    is_complete: Mutex<bool>,
}

impl<T> StatusTerminal<T> {
    fn new(term: T) -> Self {
        Self { term, is_complete: Mutex::new(false) }
    }

    fn complete(&self, is_complete: bool) -> bool {
        let mut known = self.is_complete.lock();
        std::mem::replace(&mut known, is_complete)
    }
}

impl<T: TermLike> TermLike for StatusTerminal<T> {
    fn width(&self) -> u16 {
        self.term.width().saturating_sub(ECHO_COLUMNS).max(1)
    }

    fn height(&self) -> u16 {
        self.term.height()
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.term.move_cursor_up(n)
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.term.move_cursor_down(n)
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.term.move_cursor_right(n)
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.term.move_cursor_left(n)
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.write_str(s)?;
        self.complete(false);
        self.term.write_str("\r\n")
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        let is_filler = s.bytes().all(|byte| byte == b' ');
        if self.complete(is_filler) && !is_filler {
            self.term.write_str("\r\n")?;
        }
        if is_filler { Ok(()) } else { self.term.write_str(s) }
    }

    fn clear_line(&self) -> io::Result<()> {
        self.term.clear_line()
    }

    /// Ends a drawing. Its last line is the status line, which the next drawing replaces.
    fn flush(&self) -> io::Result<()> {
        self.complete(false);
        self.term.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use indicatif::{ProgressBar, ProgressStyle};

    use super::*;

    /// A terminal of 20 columns that records what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Recorded(Arc<Mutex<String>>);

    impl Recorded {
        fn push(&self, text: &str) {
            self.0.lock().push_str(text);
        }
    }

    impl TermLike for Recorded {
        fn width(&self) -> u16 {
            20
        }
        fn move_cursor_up(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _n: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, s: &str) -> io::Result<()> {
            self.push(&format!("{s}\r\n"));
            Ok(())
        }
        fn write_str(&self, s: &str) -> io::Result<()> {
            self.push(s);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.push("<clear>");
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_status_line_is_not_filled_up_and_printed_lines_end_before_it() {
        let recorded = Recorded::default();
        let target = StatusTerminal::new(recorded.clone());
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(target), REDRAWS);
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{msg}").expect("a template"));
        bar.set_message("busy");
        bar.println("a line of 17 cols");
        bar.println("short");
        bar.finish_and_clear();
        let text = recorded.0.lock().clone();
        let text = text.replace("<clear>", "");
        assert!(text.contains("a line of 17 cols\r\nbusy"), "{text:?}");
        assert!(text.contains("short\r\nbusy"), "{text:?}");
        assert!(!text.contains("  "), "{text:?}");
    }
}
