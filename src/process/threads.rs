//! Threads that are not joined.

use std::io;
use std::sync::mpsc;
use std::thread::Builder;

/// Starts a thread that is not joined. The thread begins its work once its handle is dropped: in
/// glibc, the `pthread_detach` of that drop may read the freed memory of a thread that ends at the
/// same time (glibc bug 19951), which would end the process by SIGSEGV.
///
/// # Errors
/// The system has no room for another thread.
pub fn spawn_detached(thread: Builder, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (detached, is_detached) = mpsc::channel::<()>();
    let handle = thread.spawn(move || {
        // Nothing is sent: the channel is closed.
        let _ = is_detached.recv();
        work();
    })?;
    drop(handle);
    drop(detached);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_a_detached_thread_is_done() {
        let (done, result) = mpsc::channel();
        let work = move || done.send(7).expect("the test waits");
        spawn_detached(Builder::new(), work).expect("there is room for a thread");
        assert_eq!(result.recv(), Ok(7));
    }
}
