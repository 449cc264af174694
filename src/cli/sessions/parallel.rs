//! Reads many sessions on several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::journal::SessionFile;

/// Maximum number of threads. Each may have a whole session in memory.
const READERS_MAX: usize = 4;

/// Reads sessions on as many threads as there are processors. Returns the results in the order of
/// the files.
pub(in crate::cli) fn read_in_parallel<T: Send>(
    files: &[SessionFile],
    read: impl Fn(&SessionFile) -> T + Sync,
) -> Vec<T> {
    let readers = thread::available_parallelism().map_or(1, NonZero::get);
    let readers = readers.min(READERS_MAX).min(files.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let taken = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            files.get(index).map(|file| (index, read(file)))
        };
        std::iter::from_fn(taken).collect::<Vec<_>>()
    };
    let mut found: Vec<(usize, T)> = thread::scope(|scope| {
        // Without further threads, this one reads everything.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..readers).map_while(start).collect();
        let mut found = work();
        let panicked = "a panic of a reader is a bug, which the caller reports";
        found.extend(others.into_iter().flat_map(|reader| reader.join().expect(panicked)));
        found
    });
    found.sort_unstable_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, read)| read).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::*;
    use crate::journal::SessionId;

    #[test]
    fn results_are_in_the_order_of_the_files() {
        let id = SessionId::parse("01a21c3f-4b79-71c5-9da3-efbc0cbb79e0").expect("an id");
        let file = |number: u32| SessionFile {
            id: id.clone(),
            path: PathBuf::from(number.to_string()),
            written: SystemTime::UNIX_EPOCH,
        };
        for count in [0, 1, 2, 500] {
            let files: Vec<SessionFile> = (0..count).map(file).collect();
            let read = read_in_parallel(&files, |file| file.path.display().to_string());
            let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            assert_eq!(read, expected);
        }
    }
}
