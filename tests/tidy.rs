//! House rules that the compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules, lowest layer first. A module may use only modules listed
/// on earlier lines.
const LAYERS: &[&[&str]] = &[
    &["recovery", "transcript"],
    &["model", "tools", "journal"],
    &["agent"],
    &["rehearsal"],
    &["cli"],
];

/// Modules that must stay free of clocks, chance, and the outside world.
const PURE: &[&str] = &["recovery", "transcript"];
const IMPURE: &[&str] = &[
    "tokio",
    "reqwest",
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "Instant",
    "SystemTime",
    "thread",
    "async ",
    ".await",
];

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 60;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn check(path: &Path, module: &str, text: &str, faults: &mut Vec<String>) {
    let mut fault =
        |line: usize, what: String| faults.push(format!("{}:{}: {what}", path.display(), line + 1));
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > FILE_LINES_MAX {
        fault(0, format!("{} lines; at most {FILE_LINES_MAX}", lines.len()));
    }
    let mut opened: Option<(usize, usize)> = None;
    for (number, line) in lines.iter().enumerate() {
        if PURE.contains(&module) {
            for word in IMPURE.iter().filter(|word| code(line).contains(**word)) {
                fault(number, format!("`{word}` has no place in pure `{module}`"));
            }
        }
        for used in code(line).split("crate::").skip(1) {
            let used: String = used
                .chars()
                .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
                .collect();
            if let (Some(here), Some(there)) = (layer_of(module), layer_of(&used))
                && used != module
                && there >= here
            {
                fault(number, format!("`{module}` may not use `{used}`: it is not below it"));
            }
        }
        let indent = line.len() - line.trim_start().len();
        match opened {
            None if code(line).contains("fn ") && line.trim_end().ends_with('{') => {
                opened = Some((number, indent))
            }
            Some((start, depth)) if indent == depth && line.trim_start().starts_with('}') => {
                if number - start + 1 > FUNCTION_LINES_MAX {
                    fault(
                        start,
                        format!(
                            "a function of {} lines; at most {FUNCTION_LINES_MAX}",
                            number - start + 1
                        ),
                    );
                }
                opened = None;
            }
            _ => {}
        }
    }
}

#[test]
fn the_source_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut paths, mut faults) = (Vec::new(), Vec::new());
    sources(&root, &mut paths);
    for path in &paths {
        let relative = path.strip_prefix(&root).expect("found below src");
        let module = relative.iter().next().and_then(|first| first.to_str()).unwrap_or_default();
        check(
            relative,
            module.trim_end_matches(".rs"),
            &fs::read_to_string(path).expect("readable"),
            &mut faults,
        );
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    eprintln!("{} files are tidy", paths.len());
}
