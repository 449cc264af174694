//! Starts and ends other programs, and makes the system calls that no other crate may make.
//!
//! All `unsafe` is in this crate, because the others forbid it: in `supervisor` to fork, in
//! `command_process` to start a process that shares memory, in `wire` to own received descriptors,
//! in `running_job` to wait for a socket, in `landlock_policy` to call Landlock, in `egress` to
//! install a filter and to exchange its notifications, in `signals`, `incoming_signals`,
//! `own_process` and `panics` for this process itself, in `signals` to send a signal with a number.
//!
//! No program that outlast starts leaves a process running, whatever it does to escape and however
//! outlast itself ends. So outlast does not start programs itself. It starts its own binary as a
//! *supervisor process*, which forks *job init* processes. Each of these runs one job at a time:
//!
//! ```text
//! outlast ──socket──► supervisor ──fork──► job init ──► the command ──► its descendants
//!    └───────────────control──────────────►┘
//! ```
//!
//! Supervisor and job init are subreapers: an orphan below a job init process becomes its child,
//! however it detached (double fork, a session of its own, an empty environment), so the processes
//! of a job are exactly the descendants of its job init. A job init without children has nothing
//! left of its job and takes the next one, unless it was ordered to end processes: a fork costs as
//! much as the start of a shell. When outlast dies, the kernel closes its sockets. Then each job
//! init kills its descendants, and the supervisor kills the rest. The supervisor inherits the
//! orphans of a killed job init. If the supervisor is killed as well, outlast itself inherits them.
//! If outlast may not be a subreaper, because it had children before it was executed or is used as
//! a library, the tag in their environment identifies them.

#[cfg(test)]
mod bpf_interpreter;
mod closed_stdout;
mod code_programs;
mod code_variables;
mod command_process;
mod data_words;
mod egress;
mod env_tag;
mod file_lock;
pub mod file_reads;
mod held_folder;
mod incoming_signals;
mod job;
mod job_init;
mod job_inits;
mod job_output;
mod job_paths;
mod kernel_files;
mod landlock_policy;
mod memory;
mod memory_taken;
mod memory_watch;
mod orphans;
mod own_process;
mod panics;
mod pipes;
mod program_files;
mod program_words;
mod programs;
mod reading_programs;
mod ruleset_cache;
mod running_job;
mod running_time;
mod script_lines;
mod signal_sender;
mod signal_waiter;
mod signals;
mod stat;
mod supervisor;
mod supervisor_handle;
mod syscall_filter;
mod threads;
mod tree;
mod trusted_owners;
mod user_programs;
mod wire;
mod worker_process;
mod writable_folders;

pub use closed_stdout::{break_closed_stdout, was_stdout_closed};
pub use code_programs::{SHELLS, WRAPPERS, is_interpreter, program_name};
pub use egress::{
    ConnectionRegister, ConnectionTarget, EgressTerms, JobEgress, PROBE_ARGUMENT, ProbeResult,
    Refusal, RefusalLog, RefusalReason, RegisteredConnection, RunEgress, SessionEgress,
    UnixSocketTerms,
};
pub use file_lock::{FileLock, LockError, LockHolder, LockedFile};
pub use held_folder::{HeldFolder, create_private_folder, sync_folder};
pub use incoming_signals::{IncomingSignals, ReceivedSignal};
pub use job::{Job, ProgramTerms};
pub use job_output::{JobOutput, OutputError};
pub use kernel_files::{boot_id, read_kernel_file, read_kernel_value, since_boot};
pub use landlock_policy::{
    LandlockPolicy, LandlockRuleset, LandlockSupport, PathAccess, PathRule, RootCapabilities,
    looks_denied,
};
pub use memory::{out_of_memory_kills, usable_memory};
pub use orphans::inherit_orphans;
pub use own_process::{
    die_with_parent, end_with, exit_without_cleanup, forbid_dumps, hide_argument_texts,
    keep_owner_rights, limit_to_raise, share_heap,
};
pub use panics::{Panic, catch_async_panic, catch_panic, last_panic, record_panics};
pub use pipes::{
    Kinship, PipeName, PipeWriters, WriteEnd, has_filter, is_shared_with_shell, pipe_writers,
    writers_of_stdin,
};
pub use program_files::ProgramChange;
pub use programs::{
    absolute_path, checkout_root, find_program, find_user_program, skipped_program,
};
pub use running_job::RunningJob;
pub use running_time::{RunningClock, sleep_while_running, timeout_while_running};
pub use signals::{is_ignored, reset_inherited_signals, restore_default};
pub use stat::process_start;
pub use supervisor::run_supervisor_if_requested;
pub use supervisor_handle::{StartUnknown, Supervisor};
pub use syscall_filter::{CallFilter, NetworkAccess, filters_system_calls};
pub use threads::spawn_detached;
pub use trusted_owners::TrustedOwners;
pub use user_programs::{CommandSandbox, UserPrograms};
pub use worker_process::WorkerProcess;
