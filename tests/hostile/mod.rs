//! Hostile inputs, by class: each against the real binary, or the real sandbox of the kernel.

mod batch_owner;
mod command_lines;
mod credential_places;
mod egress;
mod file_operands;
mod hook_guard;
mod kernel_objects;
mod memory;
mod memory_files;
mod nesting;
mod network;
mod output_files;
mod processes;
mod program_credentials;
mod rules;
mod sandbox_settings;
mod secrets;
mod shell_constructs;
mod start_files;
mod terminals;
mod user_programs;
mod web_pages;
