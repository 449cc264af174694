//! Tests of the commands that may name a file that has changed.

use super::tests::Folders;
use super::*;

/// Commands that read the script `guard.sh`, which is executable, or the module `late.py`.
const READING: &[&str] = &[
    "grep -q x guard.sh",
    "test -s ./guard.sh || exit 2",
    "wc -l late.py",
    "set -eu; cat ./late.py | grep -q x && exit 2; exit 0",
    "if diff -q guard.sh ./guard.sh; then exit 0; fi",
    "head -1 \"$CLAUDE_PROJECT_DIR\"/guard.sh",
    "sed -n 1p guard.sh",
    "awk 1 late.py",
    "git diff --quiet -- guard.sh",
    "/usr/bin/env cksum guard.sh",
    "cp guard.sh /dev/null",
    "bash -n guard.sh",
    "timeout 5 sh -n ./guard.sh",
    "python3 -m py_compile late.py && echo checked",
    "python3 -m unittest ./late.py",
    "node --check late.py",
    "ruff check late.py",
    "pytest -q ./late.py",
    "eslint --config ~/x.js -- guard.sh",
    "npx --no-install prettier --check ./late.py",
    "uv run ruff check late.py",
    "pnpm exec eslint ./late.py",
    "shellcheck guard.sh",
    "bash -c 'cat ./guard.sh | tail -1'",
    "x=$(wc -l < late.py); [ \"$x\" -gt 9 ] && exit 2; exit 0",
];

/// Commands that run one of these files, or may run it.
const RUNNING: &[&str] = &[
    "./guard.sh",
    "timeout 5 ./guard.sh",
    "sudo -u me ./guard.sh",
    "~/runner ./guard.sh",
    "~/linter late.py",
    "true && sh guard.sh late.py",
    ". ./late.py",
    "python3 late.py",
    "python3 -W error late.py",
    "python3 ~/x.js ./guard.sh",
    "python3 -m pdb late.py",
    "bash -m ./guard.sh",
    "bash +e ./guard.sh",
    "perl -c late.py",
    "node -r ~/x.js ./late.py",
    "env -S 'python3 late.py'",
    "uv run late.py",
    "uv run --with x late.py",
    "uv run python3.12 ./late.py",
    "uv run mcp run late.py",
    "npx ts-node ./late.py",
    "npx nodemon late.py",
    "deno run ./late.py",
    "flock ~/lock python3 late.py",
    "cat guard.sh | sh",
    "cat guard.sh | bash -euo pipefail",
    "cat ./guard.sh | sudo -u me bash -s -- x",
    "cat late.py | python3 - arg",
    "ls guard.sh | xargs -n1 timeout 5",
    "echo ./guard.sh | xargs -I{} bash {}",
    "find . -name x -exec ./guard.sh {} \\;",
    "$(cat guard.sh)",
    "python3 -c \"$(cat late.py)\"",
    "c=$(cat guard.sh); eval \"$c\"",
    "$PYTHON ./late.py",
    "for f in ./late.py; do python3 \"$f\"; done",
    "check() { python3 \"$1\"; }; check ./late.py",
    "trap 'python3 late.py' EXIT; grep x y",
    "set -- ./late.py; python3 \"$@\"",
    "cp guard.sh ~/x.js; sh ~/x.js",
    "sed '1e ./guard.sh' notes",
    "rg --pre ./guard.sh x",
    "sort --compress-program=./guard.sh notes",
    "awk 'BEGIN { system(\"./guard.sh\") }'",
    "git bisect run ./guard.sh",
    "git -c core.pager=./guard.sh log",
    "eslint -c ./late.py notes",
    "tools/prettier ./guard.sh",
    "bash -c 'cat ./guard.sh | sh'",
    "bash -n guard.sh; ./guard.sh",
    "\"$(pwd)/guard.sh\"",
    "\"$(git rev-parse --show-toplevel)\"/guard.sh",
    "sh `pwd`/guard.sh",
    "${GUARD:-./guard.sh}",
    "sh \"${GUARD-./guard.sh}\"",
    "eslint --config=late.py .",
    "pytest -clate.py",
    "true && \\\n./guard.sh",
    ": \"${CFG:=./late.py}\"; eslint -c \"$CFG\" .",
    "eslint -c \"$(ls ./late.py | head -1)\" .",
    "ls ./late.py | while read f; do eslint -c \"$f\"; done",
    "jq -e -f guard.sh",
    "awk \"$(cat ./late.py)\" notes",
    "x=$(cat ./guard.sh); awk \"$x\" notes",
    "cp late.py conftest.py; pytest -q",
    "cat late.py > eslint.config.js; eslint .",
    "jest --reporters default ./late.py",
    "vitest run --diff ./late.py",
    "node --check --import ./late.py x.js",
    "sh -n +n ./guard.sh",
    "sed -n -E -e '1e ./guard.sh' notes",
    "git grep -lO./guard.sh x",
    "git grep --open=./guard.sh x",
    "sort --compress=./guard.sh notes",
    "yarn run test ./guard.sh",
    "yarn run prettier -- --plugin ./late.py",
    "eval cat guard.sh '|' sh",
    "echo ./late.py | xargs eslint -c",
    "true\u{a0}#\u{a0}; ./guard.sh",
    "sh < guard.sh",
    "cat <<X\n./guard.sh\nX",
];

#[test]
fn a_changed_file_counts_if_it_is_run_and_not_if_it_is_read() {
    for (lines, is_run) in [(READING, false), (RUNNING, true)] {
        for line in lines {
            let folders = Folders::new();
            let (guard, module) = (folders.at("work/guard.sh"), folders.at("work/late.py"));
            fs::write(&module, "first").expect("a file");
            let (programs, job) = (folders.programs(&[]), folders.job(line, &[]));
            programs.remember(&job);
            for path in [&guard, &module] {
                fs::write(path, "other").expect("a file");
            }
            let admitted = programs.admit(job);
            assert_eq!(admitted.is_err(), is_run, "{line}");
        }
    }
}

#[test]
fn a_program_that_reads_a_changed_file_is_confined() {
    let folders = Folders::new();
    fs::write(folders.at("work/late.py"), "first").expect("a file");
    for line in READING.iter().filter(|line| line.contains("late.py")) {
        let (programs, job) = (folders.programs(&[]), folders.job(line, &[]));
        programs.remember(&job);
        fs::write(folders.at("work/late.py"), line).expect("a file");
        let admitted = programs.admit(job).expect(line);
        assert!(admitted.job.landlock.is_some(), "{line}");
    }
}

#[test]
fn a_changed_file_counts_for_programs_without_the_sandbox() {
    let folders = Folders::new();
    let lifted = folders.programs(&["pytest"]);
    let open = UserPrograms::new(vec![folders.at("work")], Vec::new(), Box::new(|| Ok(None)));
    let env = Job::new("env", ["uv", "run", "guard.sh"], folders.at("work"), []);
    for (programs, job) in [
        (&lifted, folders.job("pytest ./guard.sh", &[])),
        (&open, folders.job("pytest ./guard.sh", &[])),
        (&folders.programs(&[]), env),
    ] {
        fs::write(folders.at("work/guard.sh"), "first").expect("a file");
        programs.remember(&job);
        fs::write(folders.at("work/guard.sh"), "other").expect("a file");
        programs.admit(job).expect_err("it was changed");
    }
}
