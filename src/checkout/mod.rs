//! Git checkouts that runs work in: clones for tasks of a batch, worktrees for `--worktree`.

mod clone;
mod git;
mod worktree;

pub use clone::{check_out, is_checked_out, is_repository, local_path};
pub use git::{GitError, GitStep};
pub use worktree::{AddedBranch, Worktree, WorktreeName};
