//! Doctor checks, by table, and the detection of installations.

mod checks;
mod installs;
