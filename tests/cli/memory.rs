//! Memory files: which are read, in which order, and which are not believed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::cli::memory::{Memory, MemorySearch};
use tempfile::TempDir;

use crate::support::scratch::write_file;

/// A home with a project in it.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Self { folder: tempfile::tempdir().expect("a folder can be made") };
        fs::create_dir_all(home.path("code/project/.git")).expect("made");
        fs::create_dir_all(home.path("config")).expect("made");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("it is there").join(name)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        write_file(&self.path(name), text);
        self
    }

    fn search(&self, then: impl FnOnce(MemorySearch<'_>) -> Memory) -> Memory {
        let (own, home) = ([self.path("config"), self.path("shared")], self.path(""));
        then(MemorySearch {
            machine: None,
            own: &own,
            home: Some(&home),
            cwd: &self.path("code/project"),
            project: true,
            local: true,
            trusted: false,
            denial: &|path| path.ends_with(".env").then(|| "a rule denies it".to_owned()),
        })
    }

    fn read(&self) -> Memory {
        self.search(|search| search.read())
    }

    fn texts(&self) -> Vec<String> {
        self.read().files.into_iter().map(|file| file.text).collect()
    }
}

#[test]
fn rules_that_cannot_be_reached_are_reported() {
    let home = Home::new();
    home.write("config/CLAUDE.md", "kept").write("shared/rules/r.md", "kept, too");
    symlink("rules", home.path("config/rules")).expect("a link to itself");
    let memory = home.read();
    assert_eq!(memory.files.len(), 2, "{memory:?}");
    let [warning] = &memory.warnings[..] else { panic!("{memory:?}") };
    assert!(warning.contains("config/rules is left out"), "{warning}");
}

#[test]
fn linked_folders_of_rules_are_read_within_the_limits_of_trust() {
    let home = Home::new();
    home.write("code/project/docs/in.md", "in").write("elsewhere/out.md", "out");
    home.write("mine/own.md", "own").write("config/rules/r.md", "r");
    let rules = home.path("code/project/.claude/rules");
    fs::create_dir_all(&rules).expect("made");
    symlink("../../docs", rules.join("a")).expect("linked");
    symlink(home.path("elsewhere"), rules.join("b")).expect("linked");
    symlink(home.path("mine"), home.path("config/rules/shared")).expect("linked");
    assert_eq!(home.texts(), ["r", "own", "in"]);
    let warnings = home.read().warnings;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("rules/b is left out: leads out of the project"), "{warning}");
    let trusted = home.search(|search| MemorySearch { trusted: true, ..search }.read());
    assert_eq!((trusted.files.len(), trusted.warnings.len()), (4, 0), "{trusted:?}");
}

#[test]
fn files_that_rules_deny_are_neither_imported_nor_read_through_a_link() {
    let home = Home::new();
    home.write("code/project/.env", "SECRET").write("code/project/CLAUDE.md", "see @.env now");
    let memory = home.read();
    assert_eq!(memory.files[0].text, "see @.env now");
    assert!(memory.warnings[0].ends_with(".env is left out: a rule denies it"), "{memory:?}");
    fs::remove_file(home.path("code/project/CLAUDE.md")).expect("it is there");
    symlink(".env", home.path("code/project/CLAUDE.md")).expect("a link");
    let memory = home.read();
    assert!(memory.files.is_empty() && memory.warnings.len() == 1, "{memory:?}");
}

#[test]
fn memory_files_that_cannot_be_reached_are_named() {
    let home = Home::new();
    let text = "@docs/gone.md @gone.md @linked @loop @types/node @none.ts and @file.md/x";
    home.write("code/project/CLAUDE.local.md", text).write("code/project/file.md", "");
    for (name, target) in [
        ("CLAUDE.md", "gone"),
        ("AGENTS.md", "AGENTS.md"),
        (".claude", "none"),
        ("linked", "gone"),
        ("loop", "loop"),
    ] {
        symlink(target, home.path("code/project").join(name)).expect("linked");
    }
    let project = home.path("code/project").display().to_string();
    let expected = [
        ("CLAUDE.md", "it is a link to a file that does not exist"),
        ("AGENTS.md", "Too many levels of symbolic links (os error 40)"),
        ("docs/gone.md", "the file does not exist"),
        ("gone.md", "the file does not exist"),
        ("linked", "it is a link to a file that does not exist"),
        ("loop", "Too many levels of symbolic links (os error 40)"),
    ];
    let expected = expected.map(|(name, why)| format!("{project}/{name} is left out: {why}"));
    let memory = home.read();
    assert_eq!((&*memory.files[0].text, &memory.warnings[..]), (text, &expected[..]));
}

#[test]
fn a_folder_that_a_text_mentions_is_not_imported() {
    let home = Home::new();
    let text = "see @src/components, @src/components/, @src, @alice and @../.. now";
    home.write("code/project/src/components/a.ts", "x").write("code/project/CLAUDE.md", text);
    let memory = home.read();
    assert_eq!((&*memory.files[0].text, &memory.warnings[..]), (text, &[][..]));
}

#[test]
fn files_are_read_from_the_most_general_to_the_most_special() {
    let home = Home::new();
    home.write("config/CLAUDE.md", "user")
        .write("config/rules/style.md", "own rule")
        .write("config/rules/go.md", "---\npaths: '*.go'\n---\nown, not always")
        .write("shared/CLAUDE.md", "shared")
        .write("code/CLAUDE.md", "above")
        .write("code/project/CLAUDE.md", "project")
        .write("code/project/.claude/CLAUDE.md", "hidden")
        .write("code/project/AGENTS.md", "agents")
        .write("code/project/.claude/rules/b.md", "rule b")
        .write("code/project/.claude/rules/a/a.md", "rule a")
        .write("code/project/.claude/rules/c.md", "---\npaths: src/**\n---\nnot always")
        .write("code/project/.claude/rules/d.txt", "no rule")
        .write("code/project/CLAUDE.local.md", "local")
        .write("code/project/src/CLAUDE.md", "below");
    let expected = [
        "shared", "user", "own rule", "above", "project", "hidden", "agents", "rule a", "rule b",
        "local",
    ];
    assert_eq!(home.texts(), expected);
    let prompt = home.read().prompt().expect("there is something to tell");
    let places: Vec<usize> = expected.iter().filter_map(|text| prompt.find(text)).collect();
    assert!(places.len() == expected.len() && prompt.contains("AGENTS.md (kept with the project)"));
    assert_eq!(home.read().warnings, Vec::<String>::new());
    let rule = home.path("code/project/.claude/rules/c.md").display().to_string();
    let own = home.path("config/rules/go.md").display().to_string();
    let rules = format!("follow it:\n- *.go: {own}\n- src/**: {rule}\n");
    assert!(prompt.ends_with(&rules), "{prompt}");
    assert!(!prompt.contains("not always"), "{prompt}");
}

#[test]
fn disabled_memory_sources_are_not_read() {
    let home = Home::new();
    home.write("config/CLAUDE.md", "user")
        .write("code/project/CLAUDE.md", "project")
        .write("code/project/CLAUDE.local.md", "local");
    let read = |with: fn(MemorySearch<'_>) -> MemorySearch<'_>| {
        let memory = home.search(|search| with(search).read());
        memory.files.into_iter().map(|file| file.text).collect::<Vec<_>>()
    };
    assert_eq!(read(|search| MemorySearch { own: &[], ..search }), ["project", "local"]);
    assert_eq!(read(|search| MemorySearch { project: false, ..search }), ["user", "local"]);
    assert_eq!(read(|search| MemorySearch { local: false, ..search }), ["user", "project"]);
    let nothing = home
        .search(|search| MemorySearch { own: &[], project: false, local: false, ..search }.read());
    assert_eq!(nothing.prompt(), None);
}

#[test]
fn memory_imports_are_expanded_in_place() {
    let home = Home::new();
    home.write("code/project/CLAUDE.md", "See @docs/a.md, and `@docs/code.md`; ask @missing.md.\n")
        .write("code/project/docs/a.md", "[a: @b.md]\n")
        .write("code/project/docs/b.md", "b @a.md\n")
        .write("code/project/docs/code.md", "never");
    assert_eq!(
        home.texts(),
        ["See [a: b @a.md], and `@docs/code.md`; ask @missing.md.\n"],
        "a circle ends, code stays code, a word that names no file stays a word"
    );
}

#[test]
fn memory_imports_are_limited_to_four_levels() {
    let home = Home::new();
    home.write("code/project/CLAUDE.md", "0 @1.md");
    for depth in 1..=6 {
        home.write(&format!("code/project/{depth}.md"), &format!("{depth} @{}.md", depth + 1));
    }
    assert_eq!(home.texts(), ["0 1 2 3 4 @5.md"]);
}

#[test]
fn the_same_memory_file_or_text_is_included_once() {
    let home = Home::new();
    home.write("code/project/AGENTS.md", "one").write("config/CLAUDE.md", "same");
    home.write("code/project/.claude/CLAUDE.md", "same");
    symlink("AGENTS.md", home.path("code/project/CLAUDE.md")).expect("linked");
    assert_eq!(home.texts(), ["same", "one"]);
}

#[test]
fn a_project_that_is_not_trusted_leads_nowhere_outside() {
    let home = Home::new();
    home.write("secret.md", "secret").write("config/own.md", "own");
    home.write("config/CLAUDE.md", "mine: @own.md and @~/secret.md");
    home.write(
        "code/project/CLAUDE.md",
        "theirs: @~/secret.md @../../secret.md @docs/link.md @/etc/hostname",
    );
    fs::create_dir_all(home.path("code/project/docs")).expect("made");
    symlink(home.path("secret.md"), home.path("code/project/docs/link.md")).expect("linked");
    symlink(home.path("secret.md"), home.path("code/project/AGENTS.md")).expect("linked");
    let memory = home.read();
    let theirs = &memory.files[1].text;
    assert_eq!(memory.files[0].text, "mine: own and secret");
    assert_eq!(theirs, "theirs: @~/secret.md @../../secret.md @docs/link.md @/etc/hostname");
    assert_eq!(memory.files.len(), 2);
    let told = memory.warnings.iter().filter(|one| one.contains("not trusted")).count();
    assert_eq!(told, 5, "{:?}", memory.warnings);
    let trusted = home.search(|search| MemorySearch { trusted: true, own: &[], ..search }.read());
    assert!(trusted.files[0].text.starts_with("theirs: secret "), "{trusted:?}");
}

#[test]
fn memory_files_of_other_encodings_are_read_and_imports_may_have_blanks() {
    let home = Home::new();
    let latin = b"Gr\xfc\xdfe, see @my\\ own.md";
    fs::write(home.path("code/project/CLAUDE.md"), latin).expect("written");
    let wide: Vec<u8> = "\u{feff}wide".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(home.path("code/project/CLAUDE.local.md"), wide).expect("written");
    home.write("code/project/my own.md", "imported");
    assert_eq!(home.texts(), ["Grüße, see imported", "wide"]);
}

#[test]
fn memory_files_that_are_not_text_are_skipped_and_named() {
    let home = Home::new();
    let program = b"\x7fELF\x02\x01\x01\0\0\xff\0\x01\x02\x03";
    fs::write(home.path("code/project/CLAUDE.md"), program).expect("written");
    mkfifo(&home.path("code/project/AGENTS.md"), Mode::S_IRWXU).expect("made");
    home.write("code/project/CLAUDE.local.md", &"x".repeat(300 << 10));
    home.write("code/CLAUDE.md", "kept");
    let memory = home.read();
    assert_eq!(memory.files.len(), 1);
    for (name, why) in [
        ("project/CLAUDE.md", "not text"),
        ("project/AGENTS.md", "not a regular file"),
        ("project/CLAUDE.local.md", "larger than 256 kB"),
    ] {
        let told = |line: &&String| line.contains(name) && line.contains(why);
        assert_eq!(memory.warnings.iter().filter(told).count(), 1, "{:?}", memory.warnings);
    }
}

#[test]
fn memory_files_are_limited_in_total_size() {
    let home = Home::new();
    for number in 0..4 {
        let name = format!("code/project/.claude/rules/{number}.md");
        home.write(&name, &format!("{number}{}", "x".repeat(200 << 10)));
    }
    let memory = home.read();
    assert_eq!(memory.files.len(), 2);
    assert!(memory.warnings.iter().all(|line| line.contains("longer than 512 kB")));
    assert_eq!(memory.warnings.len(), 2);
}

#[test]
fn memory_files_in_subfolders_are_found_with_the_trust_of_the_project() {
    let home = Home::new();
    home.write("outside.md", "outside")
        .write("code/project/CLAUDE.md", "project")
        .write("code/project/a/CLAUDE.md", "a")
        .write("code/project/a/b/AGENTS.md", "b @../../../../outside.md")
        .write("code/project/a/b/CLAUDE.local.md", "local")
        .write("code/project/c/CLAUDE.md", "c");
    let beside = |file: &str| home.search(|search| search.read_for_file(&home.path(file)));
    let texts = |file: &str| -> Vec<String> {
        beside(file).files.into_iter().map(|file| file.text).collect()
    };
    assert_eq!(texts("code/project/a/b/x.rs"), ["a", "b @../../../../outside.md", "local"]);
    assert_eq!(texts("code/project/a/x.rs"), ["a"]);
    assert_eq!(texts("code/project/x.rs"), [""; 0]);
    assert_eq!(texts("code/x.rs"), [""; 0]);
    let warnings = beside("code/project/a/b/x.rs").warnings;
    assert!(warnings.iter().any(|it| it.contains("leads out of the project")), "{warnings:?}");
    symlink(home.path("outside.md"), home.path("code/project/c/AGENTS.md")).expect("a link");
    assert_eq!(texts("code/project/c/x.rs"), ["c"], "a link out of the project is not believed");
}
