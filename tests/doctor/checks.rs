//! Facts in, findings out.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use outlast::doctor::checks::{
    self, credentials, hooks, machine, servers, service, settings, store,
};
use outlast::doctor::facts::install::{Install, Kind};
use outlast::doctor::facts::machine::Machine;
use outlast::doctor::facts::servers::Tried;
use outlast::doctor::facts::service::{Seen, Service};
use outlast::doctor::facts::shell::shadows;
use outlast::doctor::facts::store::{HookLog, Kept};
use outlast::doctor::{Finding, How, Known, Level, Report, Scene, Server as Listed, json, text};
use outlast::journal::Store;
use outlast::mcp::{Standing, Status};
use outlast::secrets::Variables;

/// Names with values.
type Pairs = &'static [(&'static str, &'static str)];

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn scene(pairs: &[(&str, &str)]) -> Scene {
    Scene {
        version: "1.2.3",
        commit: "abc",
        variables: variables(pairs),
        cwd: "/w".into(),
        home: None,
        config_dir: "/c".into(),
        called: "outlast".into(),
        offline: false,
    }
}

fn known(pairs: &[(&str, &str)]) -> Known {
    Known { variables: variables(pairs), ..Known::default() }
}

/// Whether exactly one finding is no good news, of this level, and says all of this somewhere.
#[track_caller]
fn says(findings: &[Finding], level: Level, words: &[&str]) {
    let bad: Vec<_> = findings.iter().filter(|one| one.level != Level::Ok).collect();
    let [one] = bad[..] else { panic!("not one: {findings:#?}") };
    assert_eq!(one.level, level, "{one:?}");
    assert!(!one.why.is_empty() && !one.fix.is_empty(), "{one:?}");
    let details = one.details.join(" ");
    let all = format!("{} {} {details} {} {}", one.check, one.what, one.why, one.fix);
    for word in words {
        assert!(all.contains(word), "{word:?} is not in {one:?}");
    }
}

#[track_caller]
fn is_fine(findings: &[Finding]) {
    assert!(findings.iter().all(|one| one.level == Level::Ok), "{findings:#?}");
}

#[test]
fn whichever_outlast_wins_on_path_is_told() {
    let install = |on_path: &[&str], writable| Install {
        binary: "/a/outlast".into(),
        kind: Kind::Native,
        on_path: on_path.iter().map(|at| (PathBuf::from(at), PathBuf::from(at))).collect(),
        writable,
    };
    let judge = |facts: &Install| checks::installation(&scene(&[]), facts);
    is_fine(&judge(&install(&["/a/outlast"], true)));
    says(&judge(&install(&[], true)), Level::Warning, &["no outlast is on PATH", "/a/outlast"]);
    let two = judge(&install(&["/a/outlast", "/b/outlast"], true));
    says(&two, Level::Warning, &["2 installations", "/a/outlast wins", "remove /b/outlast"]);
    let other = judge(&install(&["/b/outlast", "/a/outlast"], true));
    says(&other, Level::Warning, &["another outlast, /b/outlast", "not to this one, /a/outlast"]);
    says(&judge(&install(&["/a/outlast"], false)), Level::Warning, &["cannot be written", "/a"]);
}

#[test]
fn variables_that_contradict_each_other_are_told() {
    let home = ("HOME", "/h");
    is_fine(&checks::environment(&known(&[home])));
    let both = [home, ("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "t")];
    says(&checks::environment(&known(&both)), Level::Warning, &["only the token is used"]);
    let url = known(&[home, ("ANTHROPIC_BASE_URL", "http://h")]);
    says(&checks::environment(&url), Level::Warning, &["ANTHROPIC_BASE_URL", "no credential"]);
    let keyed = Known { credentials: vec![("API key".into(), "X".into())], ..url };
    is_fine(&checks::environment(&keyed));
    let proxy = [home, ("https_proxy", "http://p")];
    says(&checks::environment(&known(&proxy)), Level::Warning, &["https_proxy", "127.0.0.1,::1"]);
    let spared = [home, ("HTTPS_PROXY", "http://p"), ("NO_PROXY", "corp, 127.0.0.1")];
    is_fine(&checks::environment(&known(&spared)));
    says(&checks::environment(&known(&[])), Level::Warning, &["HOME is not set"]);
}

#[test]
fn every_way_in_which_the_service_fails_has_a_fix_of_its_own() {
    let credentials = vec![("API key".into(), "the variable K".into())];
    let known = Known { credentials, ..Known::default() };
    let judge = |seen: Seen| {
        let origin = "https://h:1".to_owned();
        service::judge(&Service { origin, proxy: None, seen }, &known)
    };
    let answered = |status, foreign, clocks| Seen::Answered {
        asked: "GET /v1/models",
        status,
        message: if status < 300 { String::new() } else { "words".into() },
        foreign,
        clocks,
    };
    let why = || "because".to_owned();
    let portal = Seen::Answered {
        asked: "GET /v1/models",
        status: 200,
        message: "a web page came".into(),
        foreign: false,
        clocks: None,
    };
    let rows: [(Seen, Level, &[&str]); 15] = [
        (portal, Level::Problem, &["a web page came", "not the service", "login page"]),
        (Seen::Unusable(why()), Level::Problem, &["because", "correct ANTHROPIC_BASE_URL"]),
        (
            Seen::NoProxy { proxy: "p:1".into(), why: why() },
            Level::Problem,
            &["proxy p:1", "HTTPS_PROXY", "NO_PROXY"],
        ),
        (Seen::NoName(why()), Level::Problem, &["DNS", "https://h:1"]),
        (Seen::NoConnection(why()), Level::Problem, &["cannot be reached", "firewall"]),
        (Seen::Silent(8), Level::Problem, &["does not answer within 8 s"]),
        (Seen::Certificate(why()), Level::Problem, &["TLS", "--ca-file"]),
        (Seen::NoCredential(why()), Level::Problem, &["because", "apiKeyHelper"]),
        (answered(407, false, None), Level::Problem, &["the proxy wants", "http://user:password"]),
        (
            answered(401, false, None),
            Level::Problem,
            &["rejects the API key from the variable K", "401", "words"],
        ),
        (answered(403, false, None), Level::Problem, &["forbids", "403"]),
        (answered(429, false, None), Level::Warning, &["accepts", "rate limit"]),
        (answered(529, false, None), Level::Warning, &["in trouble", "529"]),
        (answered(302, false, None), Level::Warning, &["302", "ANTHROPIC_BASE_URL"]),
        (answered(200, false, Some(clocks(61))), Level::Warning, &["61 s ahead", "set the clock"]),
    ];
    for (seen, level, words) in rows {
        says(&judge(seen), level, words);
    }
    for fine in [Seen::Offline, answered(200, false, Some(clocks(60))), answered(404, true, None)] {
        is_fine(&judge(fine));
    }
}

/// The service's clock, and ours, which is so many seconds ahead.
fn clocks(ahead: u64) -> (SystemTime, SystemTime) {
    let theirs = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
    (theirs, theirs + Duration::from_secs(ahead))
}

#[test]
fn a_missing_credential_is_a_problem_only_where_one_is_wanted() {
    is_fine(&credentials::judge(&Known::default()));
    let wanted = Known { needs_credential: true, ..Known::default() };
    says(&credentials::judge(&wanted), Level::Problem, &["no credential", "ANTHROPIC_API_KEY"]);
    let two = vec![("login".into(), "F".into()), ("API key".into(), "K".into())];
    let expired = Known { credentials: two, login_expired: true, ..wanted };
    let findings = credentials::judge(&expired);
    says(&findings, Level::Warning, &["expired", "log in again"]);
    assert!(findings[0].what.contains("login from F; not used: API key from K"), "{findings:?}");
}

#[test]
fn mistakes_ignored_settings_and_failed_hooks_are_told() {
    let mistake = Known { mistakes: vec!["/s.json:2:3: wrong".into()], ..Known::default() };
    says(&settings::judge(&mistake), Level::Problem, &["/s.json:2:3: wrong", "exit code 2"]);
    let ignored = Known { ignored: vec![".claude/settings.json env.X".into()], ..Known::default() };
    says(&settings::judge(&ignored), Level::Warning, &["env.X", "--trust-project"]);
    let last = vec!["yesterday Stop: ./x (exit: 3)".to_owned()];
    let log = |failures| HookLog { path: "/c/log".into(), failures, last: last.clone() };
    is_fine(&hooks::log(&log(0)));
    says(&hooks::log(&log(7)), Level::Warning, &["7 failures", "/c/log", "yesterday Stop"]);
    let strange = vec!["OUTLAST_CONFIG_DIRR".to_owned()];
    let strange = Known { strange_variables: strange, ..known(&[("HOME", "/h")]) };
    says(&checks::environment(&strange), Level::Warning, &["no variable OUTLAST_CONFIG_DIRR"]);
}

#[test]
fn a_server_is_judged_by_its_start_or_by_its_looks_when_it_is_not_tried() {
    let server = |how: How| Listed { name: "s".into(), source: "F".into(), how, disabled: false };
    let judge = |how: How, tried: Option<(Status, Option<&str>)>| {
        let known = Known { servers: vec![server(how)], ..known(&[("PATH", "/usr/bin:/bin")]) };
        let tried = tried.map(|(status, why)| Tried {
            standing: Standing { name: "s".into(), status, why: why.map(Into::into) },
            tools: 3,
        });
        servers::judge(&known, &scene(&[]), tried.as_slice())
    };
    let program = |path: &str| How::Program(path.to_owned());
    let far = || How::Address("https://h".to_owned());
    let rows: [(Vec<Finding>, &[&str]); 6] = [
        (judge(program("no-such-77"), None), &["no-such-77 is not there", "install", "F"]),
        (judge(program("/no/such"), Some((Status::Failed, Some("x")))), &["/no/such is not there"]),
        (judge(program("sh"), Some((Status::Failed, Some("boom")))), &["boom", "sh by hand", "F"]),
        (judge(program("sh"), Some((Status::Pending, None))), &["not answer within 8 s"]),
        (judge(far(), Some((Status::NeedsAuth, Some("401")))), &["login", "headers", "F"]),
        (judge(far(), Some((Status::Failed, Some("404")))), &["404", "https://h", "\"url\""]),
    ];
    for (findings, words) in rows {
        says(&findings, Level::Problem, words);
    }
    let connected = judge(far(), Some((Status::Connected, None)));
    assert!(connected[0].what.contains("connected, 3 tools"), "{connected:?}");
    for fine in [connected, judge(far(), None), judge(program("sh"), None)] {
        is_fine(&fine);
    }
    let left_out = Known { bad_servers: vec!["F: no good".into()], ..Known::default() };
    says(&servers::judge(&left_out, &scene(&[]), &[]), Level::Problem, &["F: no good"]);
}

#[test]
fn a_store_that_takes_nothing_is_a_problem_and_little_room_a_warning() {
    let kept = |unwritable: Option<&str>, free| Kept {
        folder: "/c/projects".into(),
        tried: "/c".into(),
        unwritable: unwritable.map(str::to_owned),
        store: Store::default(),
        free: Some(free),
    };
    is_fine(&store::judge(&kept(None, 1 << 30)));
    says(&store::judge(&kept(None, 50 << 20)), Level::Warning, &["52 MB", "make room"]);
    says(&store::judge(&kept(None, 1 << 20)), Level::Problem, &["1 MB", "make room"]);
    let full = kept(Some("No space left on device"), 1 << 30);
    says(&store::judge(&full), Level::Problem, &["No space left", "OUTLAST_CONFIG_DIR"]);
}

#[test]
fn limits_of_the_process_and_a_missing_sandbox_are_told() {
    let good = Machine { landlock: 6, holds_files: true, holds_tcp: true, ..Machine::default() };
    let judge = |machine: Machine| machine::judge(&machine, &scene(&[]));
    is_fine(&judge(good.clone()));
    let rows: [(Machine, &[&str]); 6] = [
        (Machine { landlock: 0, ..good.clone() }, &["no sandbox", "Landlock"]),
        (Machine { holds_files: false, landlock: 2, ..good.clone() }, &["version 2"]),
        (Machine { open_files: Some(255), ..good.clone() }, &["ulimit -n", "255", "256"]),
        (Machine { file_size: Some(1), ..good.clone() }, &["ulimit -f"]),
        (Machine { address_space: Some(1), ..good.clone() }, &["ulimit -v"]),
        (Machine { processor: Some(Duration::from_secs(9)), ..good.clone() }, &["9 s"]),
    ];
    for (machine, words) in rows {
        says(&judge(machine), Level::Warning, words);
    }
    is_fine(&judge(Machine { open_files: Some(256), ..good }));
}

#[test]
fn ci_systems_are_told_with_what_they_do_about_silence() {
    let rows: [(Pairs, &[&str]); 9] = [
        (&[("CI", "true"), ("GITHUB_ACTIONS", "true")], &["GitHub Actions", "6 hours"]),
        (&[("GITLAB_CI", "true")], &["GitLab CI"]),
        (&[("CIRCLECI", "true")], &["CircleCI", "10 minutes"]),
        (&[("JENKINS_URL", "http://j")], &["Jenkins", "5 minutes"]),
        (&[("BUILDKITE", "true")], &["Buildkite"]),
        (&[("TF_BUILD", "True")], &["Azure Pipelines"]),
        (&[("CI", "1")], &["an unknown CI system", "30 s"]),
        (&[("CI", "false")], &["none detected"]),
        (&[], &["none detected"]),
    ];
    for (pairs, words) in rows {
        let finding = machine::ci(&variables(pairs));
        for word in words {
            assert!(finding.what.contains(word), "{pairs:?}: {finding:?}");
        }
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
fn reports_are_one_object_or_lines_without_control_characters() {
    let nasty = "a\u{1b}[31m\nPROBLEM b";
    let findings =
        vec![Finding::problem("mcp", nasty, "why", "fix"), Finding::ok("version", "1.2.3")];
    let report = Report { findings, took: Duration::from_millis(1500) };
    let lines = text(&report);
    assert!(!lines.contains('\u{1b}'), "{lines:?}");
    assert_eq!(lines.lines().count(), 5, "{lines}");
    assert!(lines.ends_with("not healthy: 1 problem, 0 warnings, 1.5 s\n"), "{lines}");
    let object = json(&report, 1);
    assert_eq!(object["healthy"], false);
    assert_eq!(object["findings"][0]["fix"], "fix");
    assert!(object["findings"][1]["fix"].is_null());
}
