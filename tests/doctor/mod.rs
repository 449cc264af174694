//! Doctor checks, by table, and the detection of installations.

mod checks;
mod clouds;
mod installs;
mod sandbox;
