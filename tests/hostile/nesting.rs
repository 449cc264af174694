//! Deeply nested input.
