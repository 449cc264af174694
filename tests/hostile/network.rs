//! Ways round a network that is off.
