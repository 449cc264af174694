//! Finds out which functions of outlast a run executes, in all of its processes: a breakpoint at the
//! beginning of each function is removed when it is reached. The run is otherwise as it always is, with
//! its sandbox and its commands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::libc::PTRACE_EVENT_EXEC;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The instruction `int3`.
const BREAKPOINT: u8 = 0xcc;

/// Stops the process, and executes the program in the arguments when it continues.
const STOP_FIRST: &str = "kill -STOP $$; exec \"$0\" \"$@\"";

/// The functions of a program, and those among them that were executed.
pub(crate) struct ExecutedFunctions<'a> {
    program: &'a Path,
    /// The symbols of functions, by offset in the program.
    names: HashMap<u64, Vec<String>>,
    /// The sizes of functions in bytes, by symbol.
    sizes: HashMap<String, u64>,
    /// The bytes that breakpoints replace, by offset.
    replaced: HashMap<u64, u8>,
    /// Base address of the program in the memory of each thread that has reached a breakpoint.
    bases: HashMap<Pid, u64>,
    /// The symbols of the functions that were executed.
    symbols: BTreeSet<String>,
}

impl<'a> ExecutedFunctions<'a> {
    /// Reads the functions of a program, by `readelf`.
    pub(crate) fn of(program: &'a Path) -> Self {
        let listed = Command::new("readelf").arg("-sW").arg(program).output();
        let listed = listed.expect("binutils are installed").stdout;
        let mut names: HashMap<u64, Vec<String>> = HashMap::new();
        let mut sizes = HashMap::new();
        for line in String::from_utf8_lossy(&listed).lines() {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let [_, address, size, "FUNC", _, _, section, name] = columns[..] else { continue };
            if section != "UND" {
                let size = match size.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => size.parse(),
                };
                sizes.insert(name.to_owned(), size.expect("sizes are numbers"));
                let address = u64::from_str_radix(address, 16).expect("addresses are hexadecimal");
                names.entry(address).or_default().push(name.to_owned());
            }
        }
        assert!(names.len() > 1000, "no symbols: RUSTFLAGS=-Cstrip=none keeps them");
        let (replaced, bases) = (HashMap::new(), HashMap::new());
        Self { program, names, sizes, replaced, bases, symbols: BTreeSet::new() }
    }

    /// Returns patterns of the symbols of what was executed, without the hashes in them, which differ
    /// between builds. Where most code of a pattern was not executed, as that of other instances of a
    /// generic function, the symbols themselves are returned.
    pub(crate) fn patterns(&self) -> BTreeSet<String> {
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for (symbol, size) in &self.sizes {
            *sizes.entry(without_hashes(symbol)).or_default() += size;
        }
        let mut executed: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for symbol in &self.symbols {
            executed.entry(without_hashes(symbol)).or_default().push(symbol);
        }
        let mut patterns = BTreeSet::new();
        for (pattern, symbols) in executed {
            let size: u64 = symbols.iter().map(|symbol| self.sizes[*symbol]).sum();
            if size * 2 >= sizes[&pattern] {
                patterns.insert(pattern);
            } else {
                patterns.extend(symbols.into_iter().cloned());
            }
        }
        patterns
    }

    /// The command that starts a program for [`Self::watch`].
    pub(crate) fn starter() -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", STOP_FIRST]);
        shell
    }

    /// Watches a process and those that it starts, until it ends. Returns true if it succeeds.
    pub(crate) fn watch(&mut self, child: &Child) -> bool {
        let root = Pid::from_raw(child.id().cast_signed());
        waitpid(root, Some(WaitPidFlag::WUNTRACED)).expect("it stops");
        let kinds = [Options::PTRACE_O_TRACEFORK, Options::PTRACE_O_TRACEVFORK];
        let more = [Options::PTRACE_O_TRACECLONE, Options::PTRACE_O_TRACEEXEC];
        let options = kinds.into_iter().chain(more).fold(Options::PTRACE_O_EXITKILL, |a, b| a | b);
        ptrace::seize(root, options).expect("a child can be traced");
        kill(root, Signal::SIGCONT).expect("it is stopped");
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::__WALL)) {
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(error) => panic!("the end of the run was missed: {error}"),
            };
            match status {
                WaitStatus::Exited(ended, code) if ended == root => return code == 0,
                WaitStatus::Signaled(ended, ..) if ended == root => return false,
                WaitStatus::Stopped(thread, Signal::SIGTRAP) => {
                    let signal = (!self.pass_breakpoint(thread)).then_some(Signal::SIGTRAP);
                    let _ = ptrace::cont(thread, signal);
                }
                WaitStatus::Stopped(thread, signal) => {
                    let _ = ptrace::cont(thread, signal);
                }
                WaitStatus::PtraceEvent(thread, _, event) => {
                    if event == PTRACE_EVENT_EXEC {
                        self.bases.remove(&thread);
                        self.set_breakpoints(thread);
                    }
                    let _ = ptrace::cont(thread, None);
                }
                WaitStatus::Exited(..)
                | WaitStatus::Signaled(..)
                | WaitStatus::PtraceSyscall(_)
                | WaitStatus::Continued(_)
                | WaitStatus::StillAlive => {}
            }
        }
    }

    /// Sets all breakpoints in a process that has just executed a program, if it is this one.
    fn set_breakpoints(&mut self, process: Pid) {
        let Some(mapped) = self.mapped(process) else { return };
        for (start, end) in mapped.code {
            let length = usize::try_from(end - start).expect("it is in memory");
            let (memory, mut code) = (memory_of(process), vec![0; length]);
            memory.read_exact_at(&mut code, start).expect("code can be read");
            for offset in self.names.keys() {
                let at = (mapped.base + offset).checked_sub(start).map(usize::try_from);
                if let Some(byte) = at.and_then(|at| code.get_mut(at.ok()?)) {
                    self.replaced.insert(*offset, std::mem::replace(byte, BREAKPOINT));
                }
            }
            memory.write_all_at(&code, start).expect("a tracer can write");
        }
    }

    /// Lets a thread go on that has stopped at a breakpoint, without it. Returns false if it has
    /// stopped for another reason.
    fn pass_breakpoint(&mut self, thread: Pid) -> bool {
        if !self.bases.contains_key(&thread) {
            let Some(mapped) = self.mapped(thread) else { return false };
            self.bases.insert(thread, mapped.base);
        }
        let Ok(mut registers) = ptrace::getregs(thread) else { return false };
        let at = registers.rip - 1;
        let offset = at - self.bases[&thread];
        let Some(byte) = self.replaced.get(&offset) else { return false };
        // Another thread may have removed it already.
        memory_of(thread).write_all_at(&[*byte], at).expect("a tracer can write");
        registers.rip = at;
        ptrace::setregs(thread, registers).expect("it is stopped");
        self.symbols.extend(self.names.get(&offset).into_iter().flatten().cloned());
        true
    }

    /// The mapping of the program in a process. `None` if the process executes another program.
    fn mapped(&self, process: Pid) -> Option<Mapped> {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
        let (mut base, mut code) = (None, Vec::new());
        let path = self.program.to_str()?;
        for line in maps.lines().filter(|line| line.ends_with(path)) {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let parse = |number| u64::from_str_radix(number, 16).ok();
            let (start, end) = (parse(start)?, parse(end)?);
            base.get_or_insert(start);
            if rest.starts_with("r-x") {
                code.push((start, end));
            }
        }
        Some(Mapped { base: base?, code })
    }
}

/// The places of a program in memory.
struct Mapped {
    base: u64,
    /// The first address of each part with code, and that after its last one.
    code: Vec<(u64, u64)>,
}

fn memory_of(process: Pid) -> File {
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/mem"));
    memory.expect("a tracer can open it")
}

/// Returns the pattern of the symbols that differ from this one only in their hashes: one at the end
/// or, in the newer form, one of each crate.
fn without_hashes(symbol: &str) -> String {
    if let Some((path, _)) = symbol.rsplit_once("17h").filter(|_| symbol.starts_with("_ZN")) {
        return format!("{path}17h*");
    }
    if !symbol.starts_with("_R") {
        return symbol.to_owned();
    }
    let mut parts = symbol.split("Cs");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |pattern, part| {
        let rest = part.split_once('_').map_or(part, |(_, rest)| rest);
        format!("{pattern}Cs*_{rest}")
    })
}
