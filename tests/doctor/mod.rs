//! The doctor's judgement, by table, and its eye for installations.

mod checks;
mod installs;
