//! System calls about outlast's own process.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::{io, iter};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{Mode, umask};

use super::kernel_files::read_kernel_file;
use super::stat;

/// Makes this process undumpable, so that other processes of the same user cannot read its memory
/// or its initial environment, which contain API keys. Also prevents core dumps.
///
/// Child processes are not affected. Root with all capabilities can still read any process, which
/// only a sandbox prevents.
pub fn forbid_dumps() {
    // If this is refused, the rest of the protection still holds.
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// Returns the advice to raise the limit of this process that an error, or its cause, names.
pub fn limit_to_raise(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let causes = iter::successors(Some(error), |error| (*error).source());
    let codes = causes.filter_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
    codes.map(Errno::from_raw).find_map(|errno| {
        if errno == Errno::EMFILE {
            Some("raise the limit of open files (ulimit -n)")
        } else if errno == Errno::ENFILE {
            Some("close files of other programs, or raise the limit of the system (sysctl fs.file-max)")
        } else if errno == Errno::EFBIG {
            Some("raise the limit of the size of files (ulimit -f)")
        } else {
            None
        }
    })
}

/// Keeps the rights of the owner out of the umask: later runs could not use the files of this one.
/// Commands inherit the umask. Must be called before the first thread starts.
pub fn keep_owner_rights() {
    let given = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    umask(given.difference(Mode::S_IRWXU));
}

/// Makes all threads allocate from one heap: separate heaps grow page by page, each with a system
/// call. Must be called before the first thread starts.
pub fn share_heap() {
    // SAFETY: the call takes two numbers. If it is refused, each thread has a heap of its own.
    #[cfg(target_env = "gnu")]
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// The replacement of a text in the process list.
const HIDDEN: &[u8] = b"[hidden]";

/// Removes the texts of the command line from the process list: other users of the machine can read
/// it, and `pkill -f` of a command must not find this process by the words of its prompt.
///
/// The arguments that the standard library returns change as well, so they must be copied before.
/// Must be called before the first thread starts, and before [`forbid_dumps`].
pub fn hide_argument_texts() {
    // Without `/proc`, the process list keeps them.
    let _ = overwrite_argument_texts();
}

fn overwrite_argument_texts() -> io::Result<()> {
    let Some(range) = stat::argument_range(&read_kernel_file("/proc/self/stat")?) else {
        return Ok(());
    };
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let mut arguments = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
    memory.read_exact_at(&mut arguments, range.start)?;
    hide_texts(&mut arguments);
    memory.write_all_at(&arguments, range.start)
}

/// Replaces the arguments that are texts: those with white space or JSON. In `--flag=TEXT` the flag
/// is kept. No argument changes its length.
fn hide_texts(arguments: &mut [u8]) {
    for argument in arguments.split_mut(|byte| *byte == 0).skip(1) {
        let flag_ends = if argument.starts_with(b"--") {
            argument.iter().position(|byte| *byte == b'=').map_or(0, |at| at + 1)
        } else {
            0
        };
        let value = &mut argument[flag_ends..];
        if value.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'{') {
            value.fill(b' ');
            let shown = HIDDEN.len().min(value.len());
            value[..shown].copy_from_slice(&HIDDEN[..shown]);
        }
    }
}

/// Asks the kernel for SIGTERM when the parent process dies.
///
/// Only for CI systems, which often signal only the shell of a step, and so leave this process
/// behind. Elsewhere it would break `nohup outlast &`.
pub fn die_with_parent() {
    // Without kernel support, the signal does not come.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
}

/// Asks the kernel for SIGTERM when the process `parent`, which started this one, dies. Returns
/// true if it is still alive.
pub fn end_with(parent: u32) -> bool {
    die_with_parent();
    // It may have died before the signal was requested.
    u32::try_from(nix::unistd::getppid().as_raw()).is_ok_and(|now| now == parent)
}

/// Ends the process now. Nothing is dropped or flushed, and no lock is taken: a thread that hangs
/// may hold any.
pub fn exit_without_cleanup(code: u8) -> ! {
    // SAFETY: the call takes any number, accesses no memory, and does not return.
    unsafe { libc::_exit(libc::c_int::from(code)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_hidden_and_flags_and_names_stay() {
        let mut arguments = b"/bin/out last\0-p\0fix the build\0--require=cargo test\0a\tb\0\
            --settings\0{}\0--model=opus\0src/a.rs\0"
            .to_vec();
        hide_texts(&mut arguments);
        let wanted = b"/bin/out last\0-p\0[hidden]     \0--require=[hidden]  \0[hi\0\
            --settings\0[h\0--model=opus\0src/a.rs\0";
        assert_eq!(String::from_utf8_lossy(&arguments), String::from_utf8_lossy(wanted));
    }
}
