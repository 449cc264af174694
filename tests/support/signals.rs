//! Signal dispositions of the test process, which the processes that it starts inherit.

use std::sync::Once;

use nix::sys::signal::Signal;
use outlast::process::{is_ignored, restore_default};

/// Gives the signals that end a run their default effect where the suite was started with them
/// ignored: by nohup, by a profiler, or as a background job of a shell without job control. What is
/// started from
/// now on inherits it. Handlers of tests in this process stay as they are.
pub(crate) fn hear_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for ending in [
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGHUP,
            Signal::SIGTERM,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
            Signal::SIGALRM,
            Signal::SIGXCPU,
        ] {
            if is_ignored(ending) {
                restore_default(ending).expect("the signal is valid");
            }
        }
    });
}
