//! Terminals for the programs that a test starts.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use nix::pty::{Winsize, openpty};

/// Opens a terminal of this size; 0 if a program must not know it. The thread returns all that was
/// written to it, once the last program has closed it. The terminal itself writes line ends as two
/// characters.
pub(crate) fn open_terminal(rows: u16, columns: u16) -> (OwnedFd, JoinHandle<String>) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).expect("a terminal");
    let screen = thread::spawn(move || {
        let (mut screen, mut shown, mut chunk) = (File::from(pty.master), Vec::new(), [0; 4096]);
        // The terminal ends with an error when the last program has closed it.
        while let Ok(count @ 1..) = screen.read(&mut chunk) {
            shown.extend_from_slice(&chunk[..count]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    (pty.slave, screen)
}
