//! Facts in, findings out.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use outlast::doctor::checks::{
    credentials, environment, hooks, installation, machine, servers, service, settings, store,
};
use outlast::doctor::facts::hooks::{BrokenHook, HookObstacle};
use outlast::doctor::facts::install::{InstallKind, Installation, InstalledCopy};
use outlast::doctor::facts::machine::{
    MachineFacts, ResourceLimits, TempFolder, TempFolderProblem,
};
use outlast::doctor::facts::servers::TriedServer;
use outlast::doctor::facts::service::{ServiceAnswer, ServiceFacts, ServiceProbe};
use outlast::doctor::facts::shell::shadows;
use outlast::doctor::facts::store::{HookLog, SessionStoreFacts};
use outlast::doctor::{
    ConfiguredServer as Listed, DoctorContext, DoctorReport, Finding, FindingCause, ResolvedConfig,
    ServerTransport, ServicePlace, Severity, json, merge_causes,
};
use outlast::journal::{SessionFile, SessionId, SessionStore};
use outlast::mcp::{ServerReport, ServerStatus};
use outlast::model::{Credential, ModelService, ProbeAnswer, ServiceKind};
use outlast::recovery::{FailureStage, Fault, FaultKind};
use outlast::secrets::Variables;

/// Names with values.
type Pairs = &'static [(&'static str, &'static str)];

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn context(pairs: &[(&str, &str)]) -> DoctorContext {
    DoctorContext {
        version: "1.2.3",
        commit: "abc",
        variables: variables(pairs),
        cwd: "/w".into(),
        home: None,
        config_dir: "/c".into(),
        program_name: "outlast".into(),
        offline: false,
    }
}

fn known(pairs: &[(&str, &str)]) -> ResolvedConfig {
    ResolvedConfig { variables: variables(pairs), ..ResolvedConfig::default() }
}

/// Whether exactly one finding is no good news, of this level, and says all of this somewhere.
#[track_caller]
fn has_single_finding(findings: &[Finding], level: Severity, words: &[&str]) {
    let bad: Vec<_> = findings.iter().filter(|one| one.status != Severity::Ok).collect();
    let [one] = bad[..] else { panic!("not one: {findings:#?}") };
    assert_eq!(one.status, level, "{one:?}");
    assert!(!one.why.is_empty() && !one.fix.is_empty(), "{one:?}");
    let details = one.details.join(" ");
    let all = format!("{} {} {details} {} {}", one.check, one.what, one.why, one.fix);
    for word in words {
        assert!(all.contains(word), "{word:?} is not in {one:?}");
    }
}

#[track_caller]
fn is_fine(findings: &[Finding]) {
    assert!(findings.iter().all(|one| one.status == Severity::Ok), "{findings:#?}");
}

fn copy(at: &str, is_equal: bool) -> InstalledCopy {
    InstalledCopy { path: PathBuf::from(at), target: PathBuf::from(at), is_equal }
}

#[test]
fn doctor_reports_which_outlast_is_first_on_path() {
    let install = |on_path: &[&str], writable| Installation {
        binary: "/a/outlast".into(),
        kind: InstallKind::Native,
        on_path: on_path
            .iter()
            .map(|at| copy(at, at.starts_with("/a") || *at == "/e/outlast"))
            .collect(),
        writable,
    };
    let judge = |facts: &Installation| installation::check_installation(&context(&[]), facts);
    let unknown = Installation { binary: PathBuf::new(), ..install(&["/b/outlast"], true) };
    has_single_finding(&judge(&unknown), Severity::Warning, &["is unknown", "/proc"]);
    is_fine(&judge(&install(&["/a/outlast"], true)));
    has_single_finding(
        &judge(&install(&[], true)),
        Severity::Warning,
        &["no outlast is on PATH", "/a/outlast"],
    );
    let three = judge(&install(&["/a/outlast", "/b/outlast", "/c/outlast"], true));
    let wanted = ["3 installations", "/a/outlast wins", "remove /b/outlast, /c/outlast"];
    has_single_finding(&three, Severity::Warning, &wanted);
    let equal = judge(&install(&["/a/outlast", "/e/outlast"], true));
    has_single_finding(&equal, Severity::Warning, &["2 equal installations", "remove /e/outlast"]);
    let equal = judge(&install(&["/e/outlast"], true));
    has_single_finding(&equal, Severity::Warning, &["an equal outlast, /e/outlast", "keep one"]);
    let other = judge(&install(&["/b/outlast", "/a/outlast"], true));
    let wanted = ["another outlast, /b/outlast", "not to this one, /a/outlast", "/b/outlast, /a"];
    has_single_finding(&other, Severity::Problem, &wanted);
    let many: Vec<String> = (0..12).map(|n| format!("/{n}/outlast")).collect();
    let many: Vec<&str> = std::iter::once("/a/outlast").chain(many.iter().map(|n| &**n)).collect();
    has_single_finding(
        &judge(&install(&many, true)),
        Severity::Warning,
        &["13 installations", "and 5 more"],
    );
    has_single_finding(
        &judge(&install(&["/a/outlast"], false)),
        Severity::Warning,
        &["cannot be written", "/a"],
    );
}

#[test]
fn doctor_reports_contradicting_variables() {
    let home = ("HOME", "/h");
    let path = ("PATH", "/bin");
    is_fine(&environment::check_environment(&known(&[home, path])));
    let both = [home, path, ("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "t")];
    has_single_finding(
        &environment::check_environment(&known(&both)),
        Severity::Warning,
        &["only the token is used"],
    );
    let proxy = [home, path, ("https_proxy", "http://p")];
    has_single_finding(
        &environment::check_environment(&known(&proxy)),
        Severity::Warning,
        &["https_proxy", "127.0.0.1,::1"],
    );
    let spared = [home, path, ("HTTPS_PROXY", "http://p"), ("NO_PROXY", "corp, 127.0.0.1")];
    is_fine(&environment::check_environment(&known(&spared)));
    has_single_finding(
        &environment::check_environment(&known(&[path])),
        Severity::Warning,
        &["HOME is not set"],
    );
    has_single_finding(
        &environment::check_environment(&known(&[home])),
        Severity::Warning,
        &["PATH is not set"],
    );
    let root = ResolvedConfig { bypasses_as_root: true, ..known(&[home, path]) };
    has_single_finding(
        &environment::check_environment(&root),
        Severity::Warning,
        &["as root", "bypassPermissions"],
    );
}

#[test]
fn doctor_suggests_a_specific_fix_for_every_service_failure() {
    let answered = |status, message: &str, clocks| answer(status, "", message, clocks);
    let why = || "because".to_owned();
    let page = FaultKind::HtmlPage { detail: "a web page came".into() };
    let refusal = Some(Fault::new(page, FailureStage::Status).into());
    let portal = ProbeAnswer { refusal, is_web_page: true, ..knock(200, None) };
    let firewall = ProbeAnswer { is_web_page: true, ..knock(403, Some(("", "Blocked"))) };
    let late = "the API key helper did not end within 7 s".to_owned();
    let rows: [(ServiceProbe, Severity, &[&str]); 26] = [
        (seen(portal), Severity::Problem, &["a web page came", "not the service", "login page"]),
        (seen(firewall), Severity::Problem, &["Blocked", "403", "not the service", "firewall"]),
        (
            ServiceProbe::Unusable(why()),
            Severity::Problem,
            &["because", "correct ANTHROPIC_BASE_URL"],
        ),
        (
            ServiceProbe::NoProxy { proxy: "p:1".into(), why: why() },
            Severity::Problem,
            &["proxy p:1", "HTTPS_PROXY", "NO_PROXY"],
        ),
        (ServiceProbe::UnknownHost(why()), Severity::Problem, &["DNS", "https://h:1"]),
        (ServiceProbe::NoConnection(why()), Severity::Problem, &["cannot be reached", "firewall"]),
        (ServiceProbe::TimedOut(8), Severity::Problem, &["does not answer within 8 s"]),
        (ServiceProbe::Certificate(why()), Severity::Problem, &["TLS", "--ca-file"]),
        (
            ServiceProbe::Certificate("certificate expired".into()),
            Severity::Problem,
            &["clock", "certificate renewed"],
        ),
        (
            ServiceProbe::Certificate("certificate not valid for name \"h\"".into()),
            Severity::Problem,
            &["correct the host"],
        ),
        (
            ServiceProbe::HelperFailed { why: late, limit: Duration::from_secs(30) },
            Severity::Problem,
            &[
                "the API key helper did not end within 7 s (it is from the variable K)",
                "a run waits 30s",
                "by hand",
            ],
        ),
        (ServiceProbe::NoCredential(why()), Severity::Problem, &["because", "log in again"]),
        (
            answered(407, "x", None),
            Severity::Problem,
            &["the proxy requires", "http://user:password"],
        ),
        (
            answered(401, "words", None),
            Severity::Problem,
            &["rejects the API key from the variable K", "401", "words", "put a good API key into"],
        ),
        (answered(401, "token revoked", None), Severity::Problem, &["revoked or has expired"]),
        (answered(403, "words", None), Severity::Problem, &["forbids", "403"]),
        (answered(402, "pay", None), Severity::Problem, &["no credit left", "402", "add credit"]),
        (
            answered(400, "Your credit balance is too low to access the API", None),
            Severity::Problem,
            &["no credit left", "400", "console"],
        ),
        (answered(400, "bad beta", None), Severity::Problem, &["simplest request", "betas"]),
        (answered(413, "large", None), Severity::Problem, &["413", "client_max_body_size"]),
        (answered(429, "words", None), Severity::Warning, &["accepts", "rate limit", "429"]),
        (answered(500, "words", None), Severity::Warning, &["in trouble", "500"]),
        (
            answered(529, "words", None),
            Severity::Warning,
            &["overloaded", "529", "--fallback-model"],
        ),
        (
            answered(302, "redirected to http://x", None),
            Severity::Problem,
            &["302", "http://x", "not the service", "ANTHROPIC_BASE_URL"],
        ),
        (
            seen(ProbeAnswer { is_web_page: true, ..knock(404, Some(("", "nginx"))) }),
            Severity::Warning,
            &["web page", "404", "base URL"],
        ),
        (
            seen(ProbeAnswer { clocks: Some(clocks(61)), ..knock(200, None) }),
            Severity::Warning,
            &["1m01s ahead", "set the clock"],
        ),
    ];
    for (seen, level, words) in rows {
        has_single_finding(&service::check_service(&at(seen)), level, words);
    }
    let agrees = ProbeAnswer { clocks: Some(clocks(60)), ..knock(200, None) };
    for fine in [ServiceProbe::Offline, seen(agrees), answered(404, "no", None)] {
        is_fine(&service::check_service(&at(fine)));
    }
}

#[test]
fn doctor_names_unknown_models_and_failing_fallbacks() {
    let unknown = vec![("no-such".to_owned(), "model: no-such".to_owned())];
    let lacks = at(ServiceProbe::Answered(ServiceAnswer { probe: knock(200, None), unknown }));
    has_single_finding(
        &service::check_service(&lacks),
        Severity::Problem,
        &["does not know the model \"no-such\"", "--model", "fallback model"],
    );
    let other = ServiceFacts { is_fallback: true, ..at(ServiceProbe::TimedOut(8)) };
    has_single_finding(
        &service::check_service(&other),
        Severity::Problem,
        &["https://h:1 (fallback, for m)", "falls back to it"],
    );
}

/// A service on which nothing else is wrong.
fn at(seen: ServiceProbe) -> ServiceFacts {
    ServiceFacts {
        service: ServiceKind::Messages,
        identity: None,
        origin: "https://h:1".into(),
        proxy: None,
        models: vec!["m".into()],
        is_fallback: false,
        credential: Some(("API key", "the variable K".into())),
        outcome: seen,
    }
}

fn seen(knock: ProbeAnswer) -> ServiceProbe {
    ServiceProbe::Answered(ServiceAnswer { probe: knock, unknown: Vec::new() })
}

fn answer(
    status: u16,
    label: &str,
    message: &str,
    clocks: Option<(SystemTime, SystemTime)>,
) -> ServiceProbe {
    seen(ProbeAnswer { clocks, ..knock(status, Some((label, message))) })
}

/// An answer with this status, and the type and words of its refusal.
fn knock(status: u16, refusal: Option<(&str, &str)>) -> ProbeAnswer {
    let refusal = refusal.map(|(label, message)| {
        let kind = FaultKind::Refused {
            status,
            label: label.to_owned(),
            code: String::new(),
            message: message.to_owned(),
        };
        Fault::new(kind, FailureStage::Status).into()
    });
    ProbeAnswer { request: "GET /v1/models", status, refusal, is_web_page: false, clocks: None }
}

/// The service's clock, and ours, which is so many seconds ahead.
fn clocks(ahead: u64) -> (SystemTime, SystemTime) {
    let theirs = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
    (theirs, theirs + Duration::from_secs(ahead))
}

#[test]
fn doctor_reports_a_missing_credential_only_where_one_is_required() {
    is_fine(&credentials::check_credentials(&ResolvedConfig::default()));
    let wanted = ResolvedConfig { needs_credential: true, ..ResolvedConfig::default() };
    has_single_finding(
        &credentials::check_credentials(&wanted),
        Severity::Problem,
        &["no credential", "ANTHROPIC_API_KEY"],
    );
    let unread = ResolvedConfig { broken: vec!["/s.json".into()], ..wanted.clone() };
    has_single_finding(
        &credentials::check_credentials(&unread),
        Severity::Warning,
        &["not checked", "/s.json"],
    );
    let two = vec![("login", "F".into()), ("API key", "K".into())];
    let place = ServicePlace {
        endpoint: ModelService::new("http://h", Credential::None),
        models: Vec::new(),
        credential: None,
        login_expired: true,
        is_fallback: false,
    };
    let expired = ResolvedConfig { credentials: two, endpoints: vec![place], ..wanted.clone() };
    let findings = credentials::check_credentials(&expired);
    has_single_finding(&findings, Severity::Warning, &["expired", "log in again"]);
    assert!(findings[0].what.contains("login from F; not used: API key from K"), "{findings:?}");
}

#[test]
fn doctor_reports_mistakes_ignored_settings_and_failed_hooks() {
    let mistake =
        ResolvedConfig { mistakes: vec!["/s.json:2:3: wrong".into()], ..ResolvedConfig::default() };
    has_single_finding(
        &settings::check_settings(&mistake),
        Severity::Problem,
        &["/s.json:2:3: wrong", "exit code 2"],
    );
    let ignored = ResolvedConfig {
        ignored: vec![".claude/settings.json env.X".into()],
        ..ResolvedConfig::default()
    };
    has_single_finding(
        &settings::check_settings(&ignored),
        Severity::Warning,
        &["env.X", "--trust-project"],
    );
    let last = vec!["yesterday Stop: ./x (exit: 3)".to_owned()];
    let log = |failures| HookLog {
        path: "/c/log".into(),
        failures,
        last: last.clone(),
        ..HookLog::default()
    };
    is_fine(&hooks::check_hook_log(&log(0)));
    has_single_finding(
        &hooks::check_hook_log(&log(7)),
        Severity::Warning,
        &["7 failures", "/c/log", "yesterday Stop"],
    );
    has_single_finding(&hooks::check_hook_log(&log(1)), Severity::Warning, &["1 failure of"]);
    let rubbish = HookLog { unreadable_lines: 2, ..log(0) };
    has_single_finding(
        &hooks::check_hook_log(&rubbish),
        Severity::Warning,
        &["2 lines of /c/log", "delete it"],
    );
    let strange = vec![("OUTLAST_CONFIG_DIRR".to_owned(), Some("OUTLAST_CONFIG_DIR"))];
    let strange =
        ResolvedConfig { unknown_variables: strange, ..known(&[("HOME", "/h"), ("PATH", "/bin")]) };
    has_single_finding(
        &environment::check_environment(&strange),
        Severity::Warning,
        &["no variable OUTLAST_CONFIG_DIRR", "did you mean OUTLAST_CONFIG_DIR?"],
    );
}

#[test]
fn doctor_checks_an_mcp_server_by_starting_it_or_by_its_configuration() {
    let server = |how: ServerTransport| Listed {
        name: "s".into(),
        source: "F".into(),
        how,
        disabled: false,
        login_advice: "run `outlast mcp login files`".to_owned(),
    };
    let judge_for = |seconds, how, tried: Option<(ServerStatus, Option<&str>)>| {
        let known = ResolvedConfig {
            servers: vec![server(how)],
            mcp_wait: Duration::from_secs(seconds),
            ..known(&[("PATH", "/usr/bin:/bin")])
        };
        let tried = tried.map(|(status, why)| TriedServer {
            report: ServerReport {
                name: "s".into(),
                status,
                why: why.map(Into::into),
                identity: None,
            },
            tools: 3,
        });
        servers::check_servers(&known, &context(&[]), tried.as_slice(), None)
    };
    let judge = |how: ServerTransport, tried| judge_for(8, how, tried);
    let program = |path: &str| ServerTransport::Program(path.to_owned());
    let far = || ServerTransport::Address("https://h".to_owned());
    let rows: [(Vec<Finding>, &[&str]); 6] = [
        (judge(program("no-such-77"), None), &["no-such-77 is not there", "install", "F"]),
        (
            judge(program("/no/such"), Some((ServerStatus::Failed, Some("x")))),
            &["/no/such is not there"],
        ),
        (
            judge(program("sh"), Some((ServerStatus::Failed, Some("boom")))),
            &["boom", "sh by hand", "F"],
        ),
        (judge(program("sh"), Some((ServerStatus::Pending, None))), &["not answer within 8 s"]),
        (
            judge(far(), Some((ServerStatus::NeedsAuth, Some("401")))),
            &["401", "outlast mcp login files", "F"],
        ),
        (judge(far(), Some((ServerStatus::Failed, Some("404")))), &["404", "https://h", "\"url\""]),
    ];
    for (findings, words) in rows {
        has_single_finding(&findings, Severity::Problem, words);
    }
    let slow = judge_for(30, program("sh"), Some((ServerStatus::Pending, None)));
    let words = ["not answer within 8 s", "a run begins without it, and waits 30s", "required"];
    has_single_finding(&slow, Severity::Warning, &words);
    let connected = judge(far(), Some((ServerStatus::Connected, None)));
    assert!(connected[0].what.contains("connected, 3 tools"), "{connected:?}");
    for fine in [connected, judge(far(), None), judge(program("sh"), None)] {
        is_fine(&fine);
    }
    let left_out =
        ResolvedConfig { bad_servers: vec!["F: no good".into()], ..ResolvedConfig::default() };
    has_single_finding(
        &servers::check_servers(&left_out, &context(&[]), &[], None),
        Severity::Problem,
        &["F: no good"],
    );
}

#[test]
fn doctor_names_three_unfinished_sessions_and_counts_the_others() {
    let left = |count: usize| {
        let open = |_| SessionFile {
            id: SessionId::generate(),
            path: "/c/projects/a.jsonl".into(),
            written: SystemTime::UNIX_EPOCH,
        };
        let unfinished: Vec<SessionFile> = (0..count).map(open).collect();
        let store = SessionStore { unfinished, ..SessionStore::default() };
        let facts = SessionStoreFacts {
            folder: "/c/projects".into(),
            tried: "/c".into(),
            is_folder: true,
            unwritable: None,
            store,
            free: None,
            free_files: None,
        };
        let findings = store::check_store(&facts);
        findings.into_iter().find(|one| one.status == Severity::Warning).expect("a warning").what
    };
    assert!(!left(3).contains("more"), "{}", left(3));
    assert!(left(4).ends_with(", 1 more"), "{}", left(4));
}

#[test]
fn doctor_reports_an_unwritable_state_folder_and_low_disk_space() {
    let kept = |unwritable: Option<&str>, free| SessionStoreFacts {
        folder: "/c/projects".into(),
        tried: "/c".into(),
        is_folder: true,
        unwritable: unwritable.map(str::to_owned),
        store: SessionStore::default(),
        free: Some(free),
        free_files: Some(100),
    };
    is_fine(&store::check_store(&kept(None, 1 << 30)));
    has_single_finding(
        &store::check_store(&kept(None, 50 << 20)),
        Severity::Warning,
        &["52 MB", "make room"],
    );
    has_single_finding(
        &store::check_store(&kept(None, 1 << 20)),
        Severity::Problem,
        &["1 MB", "make room"],
    );
    let no_inodes = SessionStoreFacts { free_files: Some(0), ..kept(None, 1 << 30) };
    has_single_finding(
        &store::check_store(&no_inodes),
        Severity::Problem,
        &["only 0 files more", "inodes"],
    );
    let a_file = SessionStoreFacts { is_folder: false, ..kept(Some("it is a file"), 1 << 30) };
    has_single_finding(
        &store::check_store(&a_file),
        Severity::Problem,
        &["it is a file", "move the file /c away"],
    );
    let full = kept(Some("No space left on device"), 1 << 30);
    has_single_finding(
        &store::check_store(&full),
        Severity::Problem,
        &["No space left", "OUTLAST_CONFIG_DIR"],
    );
}

#[test]
fn doctor_reports_process_limits_and_a_missing_sandbox() {
    let good = MachineFacts {
        landlock: 6,
        restricts_files: true,
        filters_system_calls: true,
        ..MachineFacts::default()
    };
    let judge = |machine: MachineFacts| machine::check_machine(&machine);
    is_fine(&judge(good.clone()));
    let temporary = |problem| TempFolder { path: "/t".into(), problem: Some(problem) };
    let limited = |limits| MachineFacts { limits, ..good.clone() };
    let none = ResourceLimits::default();
    let rows: [(MachineFacts, &[&str]); 12] = [
        (MachineFacts { landlock: 0, ..good.clone() }, &["no sandbox", "Landlock"]),
        (MachineFacts { restricts_files: false, landlock: 2, ..good.clone() }, &["version 2"]),
        (MachineFacts { filters_system_calls: false, ..good.clone() }, &["seccomp"]),
        (limited(ResourceLimits { open_files: Some(255), ..none }), &["ulimit -n", "255", "256"]),
        (
            limited(ResourceLimits { file_size: Some(1), ..none }),
            &["ulimit -f", "1 bytes", "104 MB"],
        ),
        (limited(ResourceLimits { address_space: Some(1), ..none }), &["ulimit -v", "1 GB"]),
        (limited(ResourceLimits { processes: Some(63), ..none }), &["ulimit -u", "63", "64"]),
        (MachineFacts { is_first: true, ..good.clone() }, &["process 1", "--init"]),
        (
            MachineFacts { missing_home: Some("/nowhere".into()), ..good.clone() },
            &["/nowhere", "HOME"],
        ),
        (
            MachineFacts { unknown_zone: Some("Mars/Base".into()), ..good.clone() },
            &["Mars/Base", "TZ", "tzdata"],
        ),
        (
            MachineFacts { temporary: temporary(TempFolderProblem::NoExec), ..good.clone() },
            &["/t", "noexec", "TMPDIR"],
        ),
        (limited(ResourceLimits { processor: Some(Duration::from_secs(9)), ..none }), &["9s"]),
    ];
    for (machine, words) in rows {
        has_single_finding(&judge(machine), Severity::Warning, words);
    }
    is_fine(&judge(limited(ResourceLimits { open_files: Some(256), ..none })));
    for (problem, word) in
        [(TempFolderProblem::Missing, "not there"), (TempFolderProblem::Unwritable, "written")]
    {
        let machine = MachineFacts { temporary: temporary(problem), ..good.clone() };
        has_single_finding(&judge(machine), Severity::Problem, &["/t", word, "TMPDIR"]);
    }
}

#[test]
fn doctor_reports_the_ci_system_and_its_output_timeout() {
    let rows: [(Pairs, &[&str]); 15] = [
        (&[("CI", "true"), ("GITHUB_ACTIONS", "true")], &["GitHub Actions", "6 hours"]),
        (&[("GITLAB_CI", "true")], &["GitLab CI"]),
        (&[("CIRCLECI", "true")], &["CircleCI", "10 minutes"]),
        (&[("JENKINS_URL", "http://j")], &["Jenkins", "5 minutes"]),
        (&[("BUILDKITE", "true")], &["Buildkite"]),
        (&[("TF_BUILD", "True")], &["Azure Pipelines"]),
        (&[("TRAVIS", "true")], &["Travis CI", "10 minutes"]),
        (&[("CI", "true"), ("BITBUCKET_BUILD_NUMBER", "7")], &["Bitbucket Pipelines"]),
        (&[("TEAMCITY_VERSION", "2026.1")], &["TeamCity"]),
        (&[("APPVEYOR", "True")], &["AppVeyor"]),
        (&[("DRONE", "true")], &["Drone"]),
        (&[("CODEBUILD_BUILD_ID", "x:1")], &["AWS CodeBuild"]),
        (&[("CI", "1")], &["an unknown CI system", "30s"]),
        (&[("CI", "false")], &["none detected"]),
        (&[], &["none detected"]),
    ];
    for (pairs, words) in rows {
        let finding = machine::check_ci(&variables(pairs), Duration::from_secs(30));
        for word in words {
            assert!(finding.what.contains(word), "{pairs:?}: {finding:?}");
        }
    }
}

#[test]
fn doctor_reports_a_heartbeat_slower_than_the_ci_output_timeout() {
    let of =
        |minutes, pairs: Pairs| machine::check_ci(&variables(pairs), Duration::from_mins(minutes));
    let circle: Pairs = &[("CIRCLECI", "true")];
    has_single_finding(
        &[of(10, circle)],
        Severity::Problem,
        &["10m00s", "10 minutes", "heartbeatInterval"],
    );
    is_fine(&[of(9, circle), of(10, &[("GITHUB_ACTIONS", "true")])]);
}

#[test]
fn doctor_reports_hooks_that_cannot_run_with_the_reason() {
    let judge = |obstacle, guard| {
        let program = "/h/x.sh".to_owned();
        let broken = BrokenHook { event: "Stop", program, obstacle, source: "F".into(), guard };
        hooks::check_hooks(&ResolvedConfig::default(), &[broken])
    };
    let rows: [(HookObstacle, &[&str]); 4] = [
        (HookObstacle::Missing, &["which is not there", "install /h/x.sh", "allowed"]),
        (HookObstacle::NotExecutable, &["not executable", "chmod +x /h/x.sh"]),
        (HookObstacle::NoInterpreter("/bin/zz".into()), &["wants /bin/zz", "install /bin/zz"]),
        (HookObstacle::CarriageReturn, &["CR LF", "sed -i"]),
    ];
    for (obstacle, words) in rows {
        has_single_finding(&judge(obstacle, false), Severity::Problem, words);
    }
    has_single_finding(
        &judge(HookObstacle::Missing, true),
        Severity::Problem,
        &["a guard", "is denied"],
    );
}

#[test]
fn doctor_reports_malformed_keys_without_showing_them() {
    let rows = [
        ("\"sk-secret-1\"", Severity::Problem, "quotation marks"),
        ("Bearer sk-secret-1", Severity::Problem, "begins with the word Bearer"),
        ("sk-sec ret-1", Severity::Problem, "inside"),
        ("sk-s\u{e9}cret-1", Severity::Problem, "in a header"),
        ("sk-secret-1\n", Severity::Warning, "at one of its ends"),
        ("  ", Severity::Warning, "empty"),
    ];
    for (value, level, word) in rows {
        let set = [("HOME", "/h"), ("PATH", "/bin"), ("ANTHROPIC_API_KEY", value)];
        let findings = environment::check_environment(&known(&set));
        has_single_finding(&findings, level, &["ANTHROPIC_API_KEY", word]);
        let value = value.trim();
        let told = |text: &str| !value.is_empty() && text.contains(value);
        assert!(!findings.iter().any(|one| told(&one.what) || told(&one.fix)), "{findings:?}");
    }
}

#[test]
fn doctor_reports_contradicting_and_unused_proxies() {
    let judge = |pairs: &[(&str, &str)]| {
        let base = [("HOME", "/h"), ("PATH", "/bin")];
        environment::check_environment(&known(&[&base[..], pairs].concat()))
    };
    let local = ("NO_PROXY", "localhost");
    let two = [("https_proxy", "http://a"), ("HTTPS_PROXY", "http://b"), local];
    has_single_finding(
        &judge(&two),
        Severity::Warning,
        &["https_proxy and HTTPS_PROXY", "https_proxy is used"],
    );
    let cgi = [("HTTP_PROXY", "http://a"), ("REQUEST_METHOD", "GET"), local];
    has_single_finding(
        &judge(&cgi),
        Severity::Warning,
        &["HTTP_PROXY is not used", "REQUEST_METHOD"],
    );
    for spared in
        ["localhost", ".localhost,x", "127.0.0.0/8", "x ::1", "[::1]:80", "*", "LOCALHOST"]
    {
        is_fine(&judge(&[("HTTP_PROXY", "http://a"), ("NO_PROXY", spared)]));
    }
}

#[test]
fn shell_files_are_searched_for_the_name_and_nothing_else() {
    let file = "alias outlast='x'\nalias outlasts=y\n  alias ll='outlast'\nfunction outlast {\n\
        outlast() {\noutlast run\n# alias outlast=z\nalias outlast 'fish'\nfunction outlast_x {";
    let lines: Vec<usize> = shadows(file).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 4, 5, 8]);
}

#[test]
fn a_cause_is_reported_once_by_its_gravest_finding() {
    let cause = Some(FindingCause::Credential);
    let findings = vec![
        Finding::ok("version", "1.2.3"),
        Finding::warning("environment", "empty", "w", "f").caused_by(cause),
        Finding::problem("acceptance", "rejected", "w", "f")
            .with(["more".to_owned()])
            .caused_by(cause),
        Finding::problem("mcp", "gone", "w", "f"),
        Finding::problem("mcp", "gone too", "w", "f"),
        Finding::problem("credentials", "none", "w", "f").caused_by(cause),
    ];
    let merged = merge_causes(findings);
    let told: Vec<_> = merged.iter().map(|one| (one.what.as_str(), one.details.len())).collect();
    assert_eq!(told, [("1.2.3", 0), ("rejected", 3), ("gone", 0), ("gone too", 0)]);
    assert_eq!(merged[1].details, ["more", "environment: empty", "credentials: none"]);
}

#[test]
fn a_report_is_one_object() {
    let findings =
        vec![Finding::problem("mcp", "what", "why", "fix"), Finding::ok("version", "1.2.3")];
    let report = DoctorReport { findings, took: Duration::from_millis(1500) };
    let object = json(&report, 1);
    assert_eq!(object["healthy"], false);
    assert_eq!(object["findings"][0]["status"], "problem");
    assert_eq!(object["findings"][0]["fix"], "fix");
    assert!(object["findings"][1]["fix"].is_null());
}
