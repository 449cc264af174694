//! Escape sequences for terminals.
