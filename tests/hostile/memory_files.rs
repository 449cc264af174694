//! Instructions in folders of other users.
