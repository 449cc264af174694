//! Shell text that is misread.
