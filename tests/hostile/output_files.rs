//! Links in place of output files.
