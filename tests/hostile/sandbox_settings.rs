//! Settings that promise a protection.
