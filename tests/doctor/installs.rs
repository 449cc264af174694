//! Detection of the installer of a binary, in fabricated root folders.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use outlast::doctor::facts::install::{all_on, installation_kind};

use crate::support::scratch::write_file;

/// Paths with what is in them.
type Files<'a> = &'a [(&'a str, &'a str)];

/// Writes files below a root, each with its content, and a binary. Returns its kind.
fn kind_of(binary: &str, beside: &[(&str, &str)]) -> &'static str {
    let root = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        write_file(&root.path().join(path), text);
    };
    write(binary, "binary");
    for (path, text) in beside {
        write(path, text);
    }
    installation_kind(&root.path().join(binary), root.path()).into_str()
}

#[test]
fn the_installation_kind_is_detected_from_nearby_files() {
    let crates = "[v1]\n\"outlast 0.1.0 (registry)\" = [\"outlast\"]\n";
    let rows: &[(&str, Files, &str)] = &[
        ("src/outlast/target/debug/outlast", &[("src/outlast/Cargo.toml", "")], "development"),
        ("w/target/x86_64-linux/release/outlast", &[("w/Cargo.toml", "")], "development"),
        ("srv/target/outlast", &[], "native"),
        ("home/me/.cargo/bin/outlast", &[], "cargo"),
        ("opt/rust/bin/outlast", &[("opt/rust/.crates.toml", crates)], "cargo"),
        ("p/node_modules/outlast/bin/outlast", &[("p/package.json", "{}")], "npm-local"),
        ("p/node_modules/.bin/outlast", &[], "npm-local"),
        ("usr/lib/node_modules/outlast/outlast", &[], "npm-global"),
        ("h/.nvm/versions/v22/lib/node_modules/outlast/outlast", &[], "npm-global"),
        ("h/pnpm/global/5/node_modules/outlast/outlast", &[], "npm-global"),
        ("lib/node_modules/outlast/outlast", &[("lib/package.json", "{}")], "npm-local"),
        ("usr/bin/outlast", &[("var/lib/dpkg/info/outlast.list", "/usr/bin/outlast\n")], "deb"),
        ("usr/bin/outlast", &[("var/lib/dpkg/info/outlast.list", "/usr/bin/other\n")], "native"),
        ("home/me/.local/bin/outlast", &[], "native"),
        // What looks like one kind and is another.
        ("ci/cache/debug/outlast", &[("ci/cache/.rustc_info.json", "{}")], "development"),
        ("ci/cache/x86/release/outlast", &[("ci/cache/.rustc_info.json", "{}")], "development"),
        ("h/.cargo/bin/outlast", &[("h/.cargo/.crates.toml", "[v1]\n")], "native"),
        ("h/outlast/bin/outlast", &[("h/outlast/Cargo.toml", "")], "native"),
        (
            "p/node_modules/a/lib/node_modules/outlast/outlast",
            &[("p/package.json", "")],
            "npm-local",
        ),
        (
            "h/.npm/_npx/1a/node_modules/outlast/x",
            &[("h/.npm/_npx/1a/package.json", "")],
            "npm-local",
        ),
        (
            "h/.local/share/pnpm/global/5/node_modules/outlast/outlast",
            &[("h/.local/share/pnpm/global/5/package.json", "{}")],
            "npm-global",
        ),
        (
            "h/.bun/install/global/node_modules/outlast/outlast",
            &[("h/.bun/install/global/package.json", "{}")],
            "npm-global",
        ),
        ("h/global/node_modules/outlast/outlast", &[("h/global/package.json", "{}")], "npm-local"),
        ("usr/bin/outlast", &[("var/lib/dpkg/info/outlast.list", "/bin/outlast\n")], "deb"),
        (
            "usr/local/bin/outlast",
            &[("var/lib/dpkg/info/outlast.list", "/usr/bin/outlast\n")],
            "native",
        ),
    ];
    for &(binary, beside, expected) in rows {
        assert_eq!(kind_of(binary, beside), expected, "{binary} {beside:?}");
    }
}

#[test]
fn path_is_searched_in_order_and_links_to_one_binary_count_once() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| {
        let path = root.path().join(name);
        fs::create_dir(&path).expect("a folder");
        path
    };
    let put = |at: &Path, mode: u32| {
        fs::write(at, "").expect("a file");
        fs::set_permissions(at, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    let (one, two, three, four) = (folder("1"), folder("2"), folder("3"), folder("4"));
    put(&one.join("outlast"), 0o644);
    put(&two.join("outlast"), 0o755);
    symlink(two.join("outlast"), three.join("outlast")).expect("a link");
    put(&four.join("outlast"), 0o755);
    let path: OsString =
        std::env::join_paths([&one, &two, &three, &four]).expect("there are no colons");
    let found = all_on(&path);
    let at: Vec<_> = found.iter().map(|(at, _)| at.clone()).collect();
    assert_eq!(at, [two.join("outlast"), four.join("outlast")]);
}
