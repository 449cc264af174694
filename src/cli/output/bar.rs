//! The status line on a terminal: a line that is updated, with a countdown while waiting.

use std::sync::Arc;
use std::time::Duration;

use console::truncate_str;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::agent::{Heartbeat, Observer, RunEvent, WaitingFor};
use crate::cli::awaited::{awaited, retry};
use crate::cli::timestamps::{format_duration, format_elapsed};
use crate::recovery::{Phase, Spending};

use super::calls::NamedCall;
use super::status_terminal::{ECHO_COLUMNS, status_target};
use super::terminal_filter::columns;
use super::{ProgressLines, one_line};

const REDRAW: Duration = Duration::from_millis(250);
const CELLS: u32 = 20;

/// The columns of the spinner and of the echo of a control character.
const MARGIN: usize = 2 + ECHO_COLUMNS as usize;

/// Minimum width of the description of the current work, in columns.
const NARROWEST: usize = 12;

/// Shows the progress of a run on a terminal.
pub struct StatusLine {
    drawn: ProgressBar,
    view: Arc<Mutex<ProgressView>>,
    lines: ProgressLines,
    /// Seconds of the run per second of real time.
    scale: f64,
    /// The model that answers.
    model: String,
    /// The calls of the latest reply that have not ended.
    running: Vec<NamedCall>,
    /// Number of replies so far.
    turns: u32,
}

/// Content of the status line.
#[derive(Clone, Debug)]
struct ProgressView {
    doing: String,
    since: Instant,
    /// The total length of a wait with a known end.
    wait: Option<Duration>,
    turn: u32,
    spent: Spending,
    scale: f64,
}

impl ProgressView {
    /// Returns the line, in at most `width` columns: the description of the current work is
    /// shortened first.
    fn text(&self, now: Instant, width: usize) -> String {
        let elapsed = now.duration_since(self.since).mul_f64(self.scale);
        let time = match self.wait {
            Some(wait) => {
                let left = format_duration(wait.saturating_sub(elapsed));
                format!("{} {left} left", gauge(elapsed, wait))
            }
            None => format_elapsed(elapsed),
        };
        let (turn, spent) = (self.turn, self.spent);
        // The work is described between the first two dots.
        let others = format!("turn {turn} ·  · {time} · {spent}").chars().count();
        let doing = truncate_str(&self.doing, width.saturating_sub(others).max(NARROWEST), "…");
        let whole = format!("turn {turn} · {doing} · {time} · {spent}");
        truncate_str(&whole, width, "…").into_owned()
    }
}

fn gauge(elapsed: Duration, whole: Duration) -> String {
    let part = elapsed.as_secs_f64() / whole.as_secs_f64().max(0.001);
    let filled = (0..CELLS).take_while(|cell| f64::from(*cell) < part * f64::from(CELLS)).count();
    let empty = CELLS as usize - filled;
    format!("[{}{}]", "#".repeat(filled), "-".repeat(empty))
}

impl StatusLine {
    /// Draws on standard error. The output of `lines` is printed above the line.
    pub fn new(lines: ProgressLines, scale: f64) -> Self {
        let view = Arc::new(Mutex::new(ProgressView {
            doing: "starting".to_owned(),
            since: Instant::now(),
            wait: None,
            turn: 1,
            spent: Spending::default(),
            scale,
        }));
        let bar = ProgressBar::with_draw_target(None, status_target());
        let shown = Arc::clone(&view);
        let style = ProgressStyle::with_template("{spinner} {view}")
            .expect("the template is a constant")
            .with_key("view", move |_: &ProgressState, line: &mut dyn std::fmt::Write| {
                let width = columns().saturating_sub(MARGIN);
                let _ = line.write_str(&shown.lock().text(Instant::now(), width));
            });
        bar.set_style(style);
        bar.enable_steady_tick(REDRAW);
        let (model, running) = (String::new(), Vec::new());
        Self { drawn: bar, view, lines, scale, model, running, turns: 0 }
    }

    fn show(&self, doing: &str, elapsed: Duration, wait: Option<Duration>) {
        let mut view = self.view.lock();
        view.doing = self.lines.redact(&one_line(doing));
        view.wait = wait;
        let real = elapsed.div_f64(self.scale);
        view.since = Instant::now().checked_sub(real).unwrap_or_else(Instant::now);
    }

    /// Shows the wait for the next reply.
    fn show_model(&self) {
        self.view.lock().turn = self.turns + 1;
        self.show(&format!("waiting for {}", self.model), Duration::ZERO, None);
    }

    /// Returns a short description of the running calls. `None`: there are none.
    fn running(&self) -> Option<String> {
        let first = &self.running.first()?.short;
        Some(match self.running.len() - 1 {
            0 => first.clone(),
            more => format!("{first} and {more} more"),
        })
    }

    fn heartbeat(&self, heartbeat: &Heartbeat) {
        let Heartbeat { elapsed, ends_in, .. } = heartbeat;
        let whole = ends_in.map(|left| *elapsed + left);
        let waiting_for = &heartbeat.waiting_for;
        let doing = if let WaitingFor::Tool { name, id } = waiting_for {
            let is_known = self.running.iter().any(|call| call.id == *id && call.tool == *name);
            self.running().filter(|_| is_known).unwrap_or_else(|| name.clone())
        } else if matches!(waiting_for, WaitingFor::Credentials | WaitingFor::Model(_)) {
            format!("waiting for {}", awaited(waiting_for))
        } else {
            awaited(waiting_for)
        };
        self.show(&doing, *elapsed, whole);
        let mut view = self.view.lock();
        view.turn = heartbeat.turn;
        view.spent = heartbeat.spent;
    }
}

impl Observer for StatusLine {
    fn observe(&mut self, event: &RunEvent) {
        let lines = self.lines.lines(event);
        if let RunEvent::Heartbeat(heartbeat) = event {
            // The line itself shows that the run is alive.
            return self.heartbeat(heartbeat);
        } else if let RunEvent::WaitBegins { pause, until, now, spent, .. } = event {
            self.show(&retry(*pause), Duration::ZERO, Some(now.until(*until)));
            self.view.lock().spent = *spent;
        } else if let RunEvent::Init(init) = event {
            self.model.clone_from(&init.model);
            self.show_model();
        } else if let RunEvent::ModelSwitched { to, .. } = event {
            self.model.clone_from(to);
        } else if let RunEvent::Step { transition, .. } = event {
            if matches!(transition.next.phase, Phase::Calling(_)) {
                self.show_model();
            }
        } else if let RunEvent::Assistant { message, spent, .. } = event {
            self.turns += 1;
            self.running = self.lines.named_calls(message);
            {
                let mut view = self.view.lock();
                (view.turn, view.spent) = (self.turns, *spent);
            }
            let doing = self.running().unwrap_or_else(|| "finishing".to_owned());
            self.show(&doing, Duration::ZERO, None);
        } else if let RunEvent::ToolEnds(call) = event {
            self.running.retain(|running| running.id != call.id);
            if let Some(running) = self.running() {
                self.view.lock().doing = self.lines.redact(&one_line(&running));
            }
        }
        for line in lines {
            self.drawn.println(self.lines.printable(&line, columns()));
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.drawn.finish_and_clear();
    }
}
