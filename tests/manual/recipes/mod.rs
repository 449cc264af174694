//! The scripts of outlast-recipes(7), each run as it stands. What they start beside outlast and git is
//! replaced by programs that record how they were called.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use outlast::rehearsal::RehearsalServer;

use super::commands::blocks;
use super::pages::read;
use crate::support::programs::write_program;
use crate::support::python::search_path;
use crate::support::scratch::write_file;
use crate::support::{FinishedProcess, RunBuilder};

mod ci;
mod many;
mod nightly;
mod pull_requests;

/// The text below a heading of a page.
fn section(page: &str, heading: &str) -> String {
    let page = read(page);
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("a section");
    section.split("\n## ").next().expect("a text").to_owned()
}

/// The script in a section of a page.
fn script(section: &str) -> String {
    let mut scripts = blocks(section, "sh").into_iter();
    scripts.find(|block| block.starts_with("#!")).expect("a script")
}

/// A recipe in a folder to work in.
struct Recipe {
    run: RunBuilder,
}

impl Recipe {
    fn new(heading: &str, server: &RehearsalServer) -> Self {
        Self::prepared(heading, RunBuilder::bare(&server.base_url()))
    }

    /// Another start in the folder of one that ended.
    fn again(heading: &str, ended: FinishedProcess, server: &RehearsalServer) -> Self {
        Self::prepared(heading, ended.again_bare(&server.base_url()))
    }

    fn prepared(heading: &str, run: RunBuilder) -> Self {
        let recipe = Self { run };
        let section = section("man/outlast-recipes.7.md", heading);
        write_program(&recipe.run.work().join("recipe.sh"), script(&section));
        let home = recipe.home();
        let bin = home.join(".local/bin");
        fs::create_dir_all(&bin).expect("the folder is ours");
        if !bin.join("outlast").exists() {
            symlink(env!("CARGO_BIN_EXE_outlast"), bin.join("outlast")).expect("a link");
        }
        let path = search_path().display();
        let run = recipe.run.env("PATH", &format!("{}:{path}", bin.display()));
        Self { run: run.env("HOME", &home.display().to_string()) }
    }

    fn home(&self) -> PathBuf {
        self.run.work().parent().expect("a folder").to_owned()
    }

    fn program(self, name: &str, text: &str) -> Self {
        write_program(&self.home().join(".local/bin").join(name), text);
        self
    }

    fn file(self, name: &str, text: &str) -> Self {
        write_file(&self.run.work().join(name), text);
        self
    }

    fn env(self, name: &str, value: &str) -> Self {
        Self { run: self.run.env(name, value) }
    }

    /// Runs it with an argument. Its own output is that of the whole script.
    async fn run(self, argument: &str) -> FinishedProcess {
        self.run.in_shell(&format!("exec ./recipe.sh {argument}")).run().await
    }
}

fn read_work(of: &FinishedProcess, name: &str) -> String {
    let path = of.work().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}: {of:?}", path.display()))
}
