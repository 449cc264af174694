//! The findings about the sandbox of a run, and about `--profile untrusted`.

use outlast::doctor::checks::sandbox::{check_profile, check_run_sandbox};
use outlast::doctor::{Finding, ProfileFacts, ResolvedConfig, Severity};
use outlast::tools::{Enforced, SandboxGaps, SandboxMode, SandboxState};

fn facts(network: &'static str) -> ProfileFacts {
    let sandbox = SandboxState {
        mode: SandboxMode::ReadOnly,
        enforced: Enforced::Full,
        abi: 7,
        network,
        allowed_domains: Vec::new(),
        denied_domains: Vec::new(),
        egress: None,
        signals: "own_only",
        processes: "own_only",
        exposed: Vec::new(),
    };
    let gaps = SandboxGaps::default();
    ProfileFacts { sandbox, gaps, no_egress: None, missing_limits: Vec::new(), no_price: None }
}

fn judge(profile: Result<ProfileFacts, String>) -> Finding {
    let known = ResolvedConfig { profile: Some(profile), ..ResolvedConfig::default() };
    check_profile(&known).expect("a finding")
}

/// Whether each promise, in their order, holds.
fn promises(finding: &Finding) -> Vec<(&str, bool)> {
    let promise = |line: &'_ String| line.contains(": holds: ");
    let name = |line: &'_ String| line.find(": ").expect("a name");
    finding.details.iter().map(|line| (&line[..name(line)], promise(line))).collect()
}

#[test]
fn each_promise_of_the_profile_is_told_with_what_holds_it() {
    let finding = judge(Ok(facts("off")));
    assert_eq!(finding.status, Severity::Ok, "{finding:?}");
    let all = ["sandbox", "network", "checkout", "limits"];
    assert_eq!(promises(&finding), all.map(|name| (name, true)));
    let some = |text: &str| Some(text.to_owned());
    let mut listed = facts("allowlist");
    listed.sandbox.allowed_domains = vec!["docs.example".to_owned(), "b.example".to_owned()];
    let finding = judge(Ok(listed));
    assert!(finding.details[1].contains("docs.example, b.example only"), "{finding:?}");
    let finding = judge(Ok(ProfileFacts { missing_limits: vec!["max-duration"], ..facts("off") }));
    assert_eq!(finding.status, Severity::Ok, "{finding:?}");
    assert!(finding.details[3].ends_with("without --max-duration"), "{finding:?}");

    let kernel = SandboxGaps { kernel: some("no Landlock here"), exposed: None };
    let exposed = SandboxGaps { kernel: None, exposed: some("/tmp/h/.ssh is reached") };
    let rows = [
        // The kernel closes neither files nor sockets.
        (ProfileFacts { gaps: kernel, ..facts("open") }, &["sandbox", "network"][..], "Linux 6.2"),
        (ProfileFacts { gaps: exposed, ..facts("off") }, &["sandbox"], "HOME"),
        (ProfileFacts { no_egress: some("EBUSY"), ..facts("off") }, &["network"], "seccomp"),
    ];
    for (facts, broken, fix) in rows {
        let finding = judge(Ok(facts));
        assert_eq!(finding.status, Severity::Warning, "{finding:?}");
        let wanted = all.map(|name| (name, !broken.contains(&name)));
        assert_eq!(promises(&finding), wanted, "{finding:?}");
        assert!(finding.fix.contains(fix) && !finding.why.is_empty(), "{finding:?}");
    }
    let finding = judge(Err("--profile needs x\nand y".to_owned()));
    assert_eq!(
        (finding.status, &finding.details[..]),
        (Severity::Warning, &["and y".to_owned()][..])
    );
    assert!(finding.what.contains("--profile needs x"), "{finding:?}");
    assert_eq!(check_profile(&ResolvedConfig::default()), None);
}

#[test]
fn a_run_that_would_be_partial_is_a_warning() {
    assert_eq!(check_run_sandbox(&ResolvedConfig::default()), []);
    let exposed = Some("/tmp/h/.ssh cannot be kept from commands".to_owned());
    let found = check_run_sandbox(&ResolvedConfig { exposed, ..ResolvedConfig::default() });
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.check.as_str(), finding.status), ("sandbox", Severity::Warning));
    assert!(finding.what.contains("partial: /tmp/h/.ssh"), "{finding:?}");
}
