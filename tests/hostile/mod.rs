//! Hostile inputs, by class: each against the real binary, or the real sandbox of the kernel.

mod egress;
mod memory;
mod memory_files;
mod nesting;
mod network;
mod output_files;
mod processes;
mod rules;
mod sandbox_settings;
mod secrets;
mod shell_constructs;
mod terminals;
mod user_programs;
