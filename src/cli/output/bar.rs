//! The live view on a terminal: one line that moves, with a countdown while waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tokio::time::Instant;

use crate::agent::{Heartbeat, Observer, RunEvent, WaitingFor};
use crate::cli::timestamps::{format_duration, format_elapsed};
use crate::recovery::{Money, Pause};
use crate::transcript::Block;

use super::ProgressLines;

const REDRAW: Duration = Duration::from_millis(250);
const CELLS: u32 = 20;

/// Shows the progress of a run on a terminal.
pub struct StatusLine {
    drawn: ProgressBar,
    view: Arc<Mutex<ProgressView>>,
    lines: ProgressLines,
    /// How many seconds of the run pass in one real second.
    scale: f64,
}

/// What the line shows.
#[derive(Clone, Debug)]
struct ProgressView {
    doing: String,
    since: Instant,
    /// The total length of a wait with a known end.
    wait: Option<Duration>,
    turn: u32,
    spent: Money,
    scale: f64,
}

impl ProgressView {
    fn text(&self, now: Instant) -> String {
        let elapsed = now.duration_since(self.since).mul_f64(self.scale);
        let time = match self.wait {
            Some(wait) => {
                format!(
                    "{} {} left",
                    gauge(elapsed, wait),
                    format_duration(wait.saturating_sub(elapsed))
                )
            }
            None => format_elapsed(elapsed),
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

impl StatusLine {
    /// Draws on standard error. The output of `lines` is printed above the bar.
    pub fn new(lines: ProgressLines, scale: f64) -> Self {
        let view = Arc::new(Mutex::new(ProgressView {
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

    fn show(&self, doing: &str, elapsed: Duration, wait: Option<Duration>) {
        let mut view = lock(&self.view);
        view.doing = self.lines.printable(doing);
        view.wait = wait;
        let real = elapsed.div_f64(self.scale);
        view.since = Instant::now().checked_sub(real).unwrap_or_else(Instant::now);
    }

    fn heartbeat(&self, heartbeat: &Heartbeat) {
        let Heartbeat { elapsed, ends_in, .. } = heartbeat;
        let whole = ends_in.map(|left| *elapsed + left);
        let elapsed = *elapsed;
        match &heartbeat.waiting_for {
            WaitingFor::Retry(pause) => self.show(&retry(*pause), elapsed, whole),
            WaitingFor::Model(model) => self.show(model, elapsed, None),
            WaitingFor::Tool { name, .. } => self.show(name, elapsed, whole),
            WaitingFor::Permission { tool, .. } => {
                self.show(&format!("permission for {tool}"), elapsed, None);
            }
            WaitingFor::Hook { event } => {
                self.show(&format!("{} hooks", event.name()), elapsed, None);
            }
            WaitingFor::Work { .. } => {
                self.show("background commands", elapsed, whole);
            }
            WaitingFor::Agents { .. } => self.show("agents", elapsed, None),
            WaitingFor::Servers { names } => {
                self.show(&format!("MCP servers ({names})"), elapsed, whole);
            }
            WaitingFor::Money => self.show("other agents' calls", elapsed, None),
        }
        let mut view = lock(&self.view);
        view.turn = heartbeat.turn;
        view.spent = heartbeat.spent;
    }
}

fn lock(view: &Mutex<ProgressView>) -> MutexGuard<'_, ProgressView> {
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

impl Observer for StatusLine {
    fn observe(&mut self, event: &RunEvent) {
        let line = self.lines.line(event);
        match event {
            // The bar itself shows that the run is alive.
            RunEvent::Heartbeat(heartbeat) => return self.heartbeat(heartbeat),
            RunEvent::WaitBegins { pause, until, now, .. } => {
                self.show(&retry(*pause), Duration::ZERO, Some(now.until(*until)));
            }
            RunEvent::Init(init) => self.show(&init.model, Duration::ZERO, None),
            RunEvent::WaitEnds { .. } | RunEvent::User { .. } => {
                self.show("the model", Duration::ZERO, None);
            }
            RunEvent::Assistant { message, .. } => {
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
                self.show(&calls.join(", "), Duration::ZERO, None);
                lock(&self.view).turn += 1;
            }
            RunEvent::Step { .. }
            | RunEvent::AwaitsAgents(_)
            | RunEvent::ToolEnds { .. }
            | RunEvent::StreamEvent(_)
            | RunEvent::Block { .. }
            | RunEvent::BlocksDropped { .. }
            | RunEvent::ModelSwitched { .. }
            | RunEvent::Compacted { .. }
            | RunEvent::RecoveryEnds(_)
            | RunEvent::Task(_)
            | RunEvent::Agent(_)
            | RunEvent::OfAgent { .. }
            | RunEvent::Denied { .. }
            | RunEvent::Hook(_)
            | RunEvent::HookSays { .. }
            | RunEvent::Remark(_)
            | RunEvent::Warning(_) => {}
        }
        if let Some(line) = line {
            self.drawn.println(self.lines.printable(&line));
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.drawn.finish_and_clear();
    }
}
