//! The tools, on real files and with real processes.

mod adversarial_commands;
mod background;
mod bash;
pub(crate) mod bench;
mod containment;
mod editing;
mod environment;
mod hangs;
mod inputs;
mod job_inits;
mod media;
mod notebooks;
mod paths;
mod pdfs;
mod permission;
mod permission_table;
mod permits;
mod reading;
mod require;
pub(crate) mod sandbox;
mod scripts;
mod searching;
mod structured;
pub(crate) mod web;
pub(crate) mod web_server;
