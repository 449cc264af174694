//! Programs of the user that commands can rewrite.
