//! The agent shell: its driver on paused time, and whole runs at library level.

mod accepting;
mod counting;
mod delegating;
mod drive;
mod lease;
mod notices;
mod probing;
mod sending;
mod sharing;
mod stage;
mod tools;
mod windows;
