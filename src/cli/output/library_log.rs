//! Log messages of libraries, for `--debug` and `--debug-file`: TLS, proxies, look-ups of names,
//! kept connections, messages of MCP.

use std::io;

use parking_lot::RwLock;
use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::args::LogFilter;

use super::lines::one_line;
use super::pipe::PipeSender;

/// The current receiver of the messages. Libraries log for the whole process.
static RECEIVER: RwLock<Option<PipeSender>> = RwLock::new(None);

/// Sends log messages of libraries to `out`, redacted, in place of the previous receiver. The first
/// filter stays in force for the whole process.
pub fn log_libraries(out: PipeSender, filter: &LogFilter) {
    *RECEIVER.write() = Some(out);
    let lines = layer().with_ansi(false).with_writer(|| Messages);
    // A second registration fails: the first writes to the new receiver.
    let _ = registry().with(lines.with_filter(filter.targets().clone())).try_init();
}

/// Ends the log: later messages are dropped.
pub(super) fn stop_library_log() {
    RECEIVER.write().take();
}

/// A writer of whole messages.
struct Messages;

impl io::Write for Messages {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let receiver = RECEIVER.read();
        if let Some(out) = receiver.as_ref() {
            // A slow reader loses messages instead of delaying the run.
            out.offer(&one_line(String::from_utf8_lossy(message).trim()));
        }
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
