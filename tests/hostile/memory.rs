//! Commands that take all memory.
