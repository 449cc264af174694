//! The manual: the README and the pages in `man`, which are written in Markdown.
//!
//! The tables of a page are filled from the program's own tables, and its roff form is generated
//! from the Markdown. `UPDATE=1` rewrites both. What the pages show is executed.

mod commands;
mod json;
mod links;
mod pages;
mod promises;
mod recipes;
mod roff;
mod scenario_keys;
mod tables;
mod wording;
