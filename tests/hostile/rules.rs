//! Rules for programs that run programs.
