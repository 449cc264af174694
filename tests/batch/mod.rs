//! Batches: tasks that are read, run here, rendered for engines, and collected.

mod engines;
mod fixture;
mod job_controller;
mod kubernetes;
mod local;
mod task_files;
mod worker;
