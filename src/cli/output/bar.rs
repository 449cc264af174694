//! The live view on a terminal: one line that moves, with a countdown while waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tokio::time::Instant;

use crate::agent::{Heartbeat, Notice, Observer, WaitingFor};
use crate::cli::wall::{passed, span};
use crate::recovery::{Money, Pause};
use crate::transcript::Block;

use super::Lines;

const REDRAW: Duration = Duration::from_millis(250);
const CELLS: u32 = 20;

/// Shows people what goes on.
pub struct Bar {
    drawn: ProgressBar,
    view: Arc<Mutex<View>>,
    lines: Lines,
    /// How many seconds of the run pass in one of the world.
    scale: f64,
}

/// What the line shows.
#[derive(Clone, Debug)]
struct View {
    doing: String,
    since: Instant,
    /// A wait that ends: how long it is in all.
    wait: Option<Duration>,
    turn: u32,
    spent: Money,
    scale: f64,
}

impl View {
    fn text(&self, now: Instant) -> String {
        let elapsed = now.duration_since(self.since).mul_f64(self.scale);
        let time = match self.wait {
            Some(wait) => {
                format!("{} {} left", gauge(elapsed, wait), span(wait.saturating_sub(elapsed)))
            }
            None => passed(elapsed),
        };
        format!("turn {}, {}: {time}, {} spent", self.turn, self.doing, self.spent)
    }
}

fn gauge(elapsed: Duration, whole: Duration) -> String {
    let part = elapsed.as_secs_f64() / whole.as_secs_f64().max(0.001);
    let filled = (0..CELLS).take_while(|cell| f64::from(*cell) < part * f64::from(CELLS)).count();
    let empty = CELLS as usize - filled;
    format!("[{}{}]", "#".repeat(filled), "-".repeat(empty))
}

impl Bar {
    /// Draws on standard error. What `lines` would say is printed above the bar.
    pub fn new(lines: Lines, scale: f64) -> Self {
        let view = Arc::new(Mutex::new(View {
            doing: "starting".to_owned(),
            since: Instant::now(),
            wait: None,
            turn: 1,
            spent: Money::ZERO,
            scale,
        }));
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let shown = Arc::clone(&view);
        let style = ProgressStyle::with_template("{spinner} {view}")
            .expect("the template is a constant")
            .with_key("view", move |_: &ProgressState, line: &mut dyn std::fmt::Write| {
                let _ = line.write_str(&lock(&shown).text(Instant::now()));
            });
        bar.set_style(style);
        bar.enable_steady_tick(REDRAW);
        Self { drawn: bar, view, lines, scale }
    }

    fn show(&self, doing: String, elapsed: Duration, wait: Option<Duration>) {
        let mut view = lock(&self.view);
        view.doing = doing;
        view.wait = wait;
        let real = elapsed.div_f64(self.scale);
        view.since = Instant::now().checked_sub(real).unwrap_or_else(Instant::now);
    }

    fn heartbeat(&self, heartbeat: &Heartbeat<'_>) {
        let Heartbeat { elapsed, ends_in, .. } = *heartbeat;
        let whole = ends_in.map(|left| elapsed + left);
        match heartbeat.waiting_for {
            WaitingFor::Retry(pause) => self.show(retry(pause), elapsed, whole),
            WaitingFor::Model(model) => self.show(model.to_owned(), elapsed, None),
            WaitingFor::Tool { name, .. } => self.show(name.to_owned(), elapsed, whole),
            WaitingFor::Hook { event } => self.show(format!("{event} hooks"), elapsed, None),
            WaitingFor::Work { .. } => {
                self.show("background commands".to_owned(), elapsed, whole);
            }
            WaitingFor::Agents { .. } => self.show("agents".to_owned(), elapsed, None),
            WaitingFor::Servers { names } => {
                self.show(format!("MCP servers ({names})"), elapsed, whole);
            }
            WaitingFor::Money => self.show("other agents' calls".to_owned(), elapsed, None),
        }
        let mut view = lock(&self.view);
        view.turn = heartbeat.turn;
        view.spent = heartbeat.spent;
    }
}

fn lock(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

fn retry(pause: Pause) -> String {
    if pause.is_for_others() {
        return "rate limit shared by other runs".to_owned();
    }
    match pause.of {
        Some(of) => format!("retry {} of {of} after {}", pause.retry, pause.class),
        None => format!("retry {} after {}", pause.retry, pause.class),
    }
}

impl Observer for Bar {
    fn observe(&mut self, notice: &Notice<'_>) {
        let line = self.lines.line(notice);
        match notice {
            // The bar itself is the sign of life.
            Notice::Heartbeat(heartbeat) => return self.heartbeat(heartbeat),
            Notice::WaitBegins { pause, until, now, .. } => {
                self.show(retry(*pause), Duration::ZERO, Some(now.until(*until)));
            }
            Notice::Init(init) => self.show(init.model.clone(), Duration::ZERO, None),
            Notice::WaitEnds { .. } | Notice::User { .. } => {
                self.show("the model".to_owned(), Duration::ZERO, None);
            }
            Notice::Assistant { message, .. } => {
                let calls: Vec<&str> = message
                    .content
                    .iter()
                    .filter_map(|block| match block {
                        Block::ToolUse { name, .. } => Some(name.as_str()),
                        Block::Text { .. }
                        | Block::Thinking { .. }
                        | Block::RedactedThinking { .. }
                        | Block::ToolResult { .. }
                        | Block::Image { .. }
                        | Block::Document { .. }
                        | Block::Other(_) => None,
                    })
                    .collect();
                self.show(calls.join(", "), Duration::ZERO, None);
                lock(&self.view).turn += 1;
            }
            Notice::Step { .. }
            | Notice::StreamEvent(_)
            | Notice::Block { .. }
            | Notice::BlocksDropped { .. }
            | Notice::ModelSwitched { .. }
            | Notice::Compacted { .. }
            | Notice::RecoveryEnds(_)
            | Notice::Task(_)
            | Notice::Agent(_)
            | Notice::OfAgent { .. }
            | Notice::Denied { .. }
            | Notice::Hook(_)
            | Notice::HookSays { .. }
            | Notice::Remark(_)
            | Notice::Warning(_) => {}
        }
        if let Some(line) = line {
            self.drawn.println(self.lines.printable(&line));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.drawn.finish_and_clear();
    }
}
