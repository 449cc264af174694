//! Journal: sessions on disk, their recovery and cleanup.

mod arbitrary;
mod cleanup;
mod contract;
mod conversation_rewrites;
mod crash;
mod cuts;
mod damaged;
mod disk;
mod foreign_sessions;
mod owner;
mod recorded_prompt;
mod recoveries;
mod restored;
pub(crate) mod restored_whole;
mod session_files;
mod session_fixture;
mod torn;
