//! Limits for glob patterns. The parsers behind globs recurse once for each nested brace, so an
//! untrusted pattern is measured before it is parsed.

/// The longest pattern, in bytes.
const GLOB_BYTES_MAX: usize = 4096;

/// The maximum number of braces that a pattern may open. All are counted, also escaped ones and
/// those that are closed again: that bounds the nesting in every dialect of globs.
const GLOB_BRACES_MAX: usize = 32;

/// The limit that a pattern exceeds; the pattern is then not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OversizedGlob {
    #[error("the pattern is longer than {GLOB_BYTES_MAX} bytes; write a shorter one")]
    Long,
    #[error(
        "the pattern opens more than {GLOB_BRACES_MAX} braces; write several patterns, or a wider \
         one"
    )]
    Braces,
}

/// Checks a pattern against the limits.
pub fn check_glob(pattern: &str) -> Result<(), OversizedGlob> {
    measure(pattern.as_bytes())
}

/// The maximum memory of the globs of all ignore files that apply in one folder, as estimated, in
/// kilobytes.
pub(super) const IGNORE_MEMORY_MAX: u64 = 64 << 10;

/// Estimates the memory that the globs of an ignore file take, in kilobytes: one for each byte of a
/// line with a wildcard, which becomes an automaton, and an eighth for each other byte. `None` if a
/// line exceeds the limits.
pub(super) fn estimate_ignore_file(ignore_file: &[u8]) -> Option<u64> {
    let estimate = |line: &[u8]| {
        let has_wildcard = line.iter().any(|byte| b"*?[{".contains(byte));
        let eighths = if has_wildcard { line.len() * 8 } else { line.len() };
        measure(line).is_ok().then_some(eighths as u64)
    };
    let lines = ignore_file.split(|byte| *byte == b'\n');
    lines.map(estimate).sum::<Option<u64>>().map(|eighths| eighths.div_ceil(8))
}

fn measure(pattern: &[u8]) -> Result<(), OversizedGlob> {
    if pattern.len() > GLOB_BYTES_MAX {
        return Err(OversizedGlob::Long);
    }
    if pattern.split(|byte| *byte == b'{').count() > GLOB_BRACES_MAX + 1 {
        return Err(OversizedGlob::Braces);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use globset::GlobBuilder;
    use proptest::prelude::*;

    use super::*;

    fn compiles_or_is_an_error(pattern: &str) {
        if let Ok(glob) = GlobBuilder::new(pattern).literal_separator(true).build() {
            let _ = glob.compile_matcher().is_match("src/main.rs");
        }
    }

    #[test]
    fn globs_at_the_limits_compile() {
        let nested = "{".repeat(GLOB_BRACES_MAX) + &"}".repeat(GLOB_BRACES_MAX);
        let rich = "{a,b".repeat(GLOB_BRACES_MAX) + &",c}".repeat(GLOB_BRACES_MAX);
        let long = ["?", "**/", "[!a]", "[ä-ü]", "*a"].map(|part| part.repeat(4096 / part.len()));
        for pattern in long.iter().chain([&nested, &rich]) {
            assert_eq!(check_glob(pattern), Ok(()), "{pattern}");
            compiles_or_is_an_error(pattern);
        }
        assert_eq!(check_glob(&format!("{{{nested}}}")), Err(OversizedGlob::Braces));
        assert_eq!(check_glob(&format!("{}a", long[0])), Err(OversizedGlob::Long));
        assert_eq!(estimate_ignore_file(rich.as_bytes()), Some(rich.len() as u64));
        assert_eq!(estimate_ignore_file(format!("a\n{rich}{{b}}\n").as_bytes()), None);
        for (lines, estimate) in [("", 0), ("build\n", 1), ("*.o\n?\n/a-long-name", 6)] {
            assert_eq!(estimate_ignore_file(lines.as_bytes()), Some(estimate), "{lines:?}");
        }
    }

    fn nested_globs() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{", "{", "{a,", "}", ",", "[", "]", "[{]", "[}]", "[!", "\\", "\\{", "**/", "*", "?",
            "a", "/", "ä",
        ]);
        (prop::collection::vec(piece, 0..60), 0..400_usize)
            .prop_map(|(pieces, depth)| format!("{}{}", "{".repeat(depth), pieces.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_bounded_glob_never_panics(pattern in nested_globs()) {
            if check_glob(&pattern).is_ok() {
                compiles_or_is_an_error(&pattern);
                let mut lines = ignore::gitignore::GitignoreBuilder::new("/");
                let _ = lines.add_line(None, &pattern);
                let _ = lines.build();
            }
        }
    }
}
