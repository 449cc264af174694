//! Secrets under unusual names.
