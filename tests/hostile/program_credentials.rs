//! Credentials in variables: who gets them, and what is said about those that are withheld.

use std::fs;
use std::path::Path;

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use crate::support::programs::write_program;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// A variable of a program, the rule that passes it, and a line of the program.
const OWN: [(&str, &str, &str); 15] = [
    ("GH_TOKEN", "gh *", "gh pr create"),
    ("GITHUB_TOKEN", "gh pr *", "gh pr create --fill"),
    ("GITLAB_TOKEN", "glab *", "glab mr list"),
    ("NPM_TOKEN", "npm *", "npm publish"),
    ("NODE_AUTH_TOKEN", "npm ci", "npm ci"),
    ("CARGO_REGISTRY_TOKEN", "cargo publish *", "cargo publish"),
    ("CARGO_REGISTRIES_CORP_TOKEN", "cargo *", "cargo fetch"),
    ("TWINE_PASSWORD", "twine *", "twine upload x"),
    ("AWS_SECRET_ACCESS_KEY", "aws *", "aws s3 ls"),
    ("AZURE_CLIENT_SECRET", "az *", "az login"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "gcloud *", "gcloud auth list"),
    ("DOCKER_PASSWORD", "docker *", "docker push x"),
    ("TF_TOKEN_app_terraform_io", "terraform *", "terraform plan"),
    ("HF_TOKEN", "hf *", "hf upload x"),
    ("GIT_ASKPASS", "git *", "git push"),
];

/// Lines that do not consist of the program alone, or run code of the checkout.
const OTHERS: [(&str, &str, &str); 12] = [
    ("GH_TOKEN", "gh *", "printenv GH_TOKEN"),
    ("GH_TOKEN", "gh *", "gh pr list | tee x"),
    ("GH_TOKEN", "gh *", "gh pr list; make"),
    ("GH_TOKEN", "gh *", "npm publish"),
    ("GH_TOKEN", "gh *", "printf -v PATH . ; gh pr list"),
    ("GIT_TOKEN", "git *", "git submodule foreach x"),
    ("GH_TOKEN", "gh *", "./gh pr list"),
    ("GH_TOKEN", "gh *", "GH_HOST=evil.test gh pr list"),
    ("NPM_TOKEN", "npm *", "npm test"),
    ("NPM_TOKEN", "npm *", "npm run publish"),
    ("CARGO_REGISTRY_TOKEN", "cargo *", "cargo test"),
    ("TWINE_PASSWORD", "poetry *", "poetry run twine upload x"),
];

/// Prints which of the variables it has.
const PROGRAM: &str = "#!/bin/sh\nfor name in $NAMES; do eval \"value=\\$$name\"; \
                       [ -n \"$value\" ] && echo \"has-$name\"; done; exit 1\n";

fn plant(folder: &Path, name: &str) {
    write_program(&folder.join(name), PROGRAM);
}

/// Runs one line with rules for it and for the other programs in it.
async fn run(variable: &str, rules: &str, line: &str, flags: &[&str]) -> FinishedProcess {
    run_all(&[variable], rules, &[line], flags).await
}

/// The same with several lines, one after another, and several variables.
async fn run_all(
    variables: &[&str],
    rules: &str,
    lines: &[&str],
    flags: &[&str],
) -> FinishedProcess {
    let tool = |all: Scenario, line: &&str| all.tool("Bash", json!({ "command": line }));
    let server = serve(lines.iter().fold(Scenario::new(), tool).reply("Done."));
    let run = RunBuilder::bare(&server.base_url());
    let bin = run.work().parent().expect("a folder").join("bin");
    fs::create_dir(&bin).expect("a folder");
    for (_, _, line) in OWN.iter().chain(&OTHERS) {
        plant(&bin, line.split(' ').next().unwrap_or_default().trim_start_matches("./"));
    }
    plant(&bin, "make");
    plant(&bin, "tee");
    plant(&run.work(), "gh");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    let run = run.args(["Do it.", "--output-format", "stream-json", "--allowedTools", rules]);
    let run = run.args(flags).env("PATH", &path).env("NAMES", &variables.join(" "));
    let set = |run: RunBuilder, variable: &&str| run.env(variable, "a1b2c3d4e5f6g7h8");
    variables.iter().fold(run, set).run().await
}

fn shown(ended: &FinishedProcess) -> String {
    Value::from(ended.tool_results()).to_string()
}

#[tokio::test]
async fn a_rule_for_a_program_passes_its_own_variables() {
    for (variable, rule, line) in OWN {
        let ended = run(variable, &format!("Bash({rule})"), line, &[]).await;
        assert!(shown(&ended).contains(&format!("has-{variable}")), "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn a_rule_for_everything_names_no_program_and_passes_no_variable() {
    let (variables, lines) = (OWN.map(|row| row.0), OWN.map(|row| row.2));
    let ended = run_all(&variables, "Bash", &lines, &[]).await;
    let told: Vec<String> = ended.tool_results().iter().map(Value::to_string).collect();
    let warnings = ended.result()["warnings"].to_string();
    assert_eq!(told.len(), OWN.len(), "{ended:?}");
    for ((variable, _, line), text) in OWN.iter().zip(&told) {
        assert!(!text.contains("has-"), "{line}: {ended:?}");
        for told in [text, &warnings] {
            assert!(told.contains(&format!("{variable} was withheld")), "{line}: {told}");
            assert!(told.contains(&format!("--pass-env {variable}")), "{line}: {told}");
        }
    }
}

#[tokio::test]
async fn other_lines_get_no_credentials_of_a_program() {
    let all = "Bash(printenv *),Bash(tee *),Bash(make),Bash(./gh *),Bash(GH_HOST=* gh *),\
               Bash(npm *),Bash(poetry *),Bash(cargo *)";
    for (variable, rule, line) in OTHERS {
        let ended = run(variable, &format!("Bash({rule}),{all}"), line, &[]).await;
        assert!(!shown(&ended).contains(&format!("has-{variable}")), "{line}: {ended:?}");
        assert!(!shown(&ended).contains("a1b2c3d4e5f6g7h8"), "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn bypass_passes_everything_but_the_credentials_of_the_model() {
    let of_model = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OUTLAST_API_KEY"];
    for variable in of_model.into_iter().chain(["GH_TOKEN", "MY_SECRET"]) {
        let ended = run(variable, "Bash", "gh x", &["--dangerously-skip-permissions"]).await;
        let is_passed = shown(&ended).contains(&format!("has-{variable}"));
        assert_eq!(is_passed, !of_model.contains(&variable), "{variable}: {ended:?}");
    }
}

#[tokio::test]
async fn a_rule_that_names_a_withheld_variable_is_a_warning() {
    for rule in
        ["Bash(printenv MY_SECRET)", "Bash(curl -H $MY_SECRET *)", "Bash(echo ${MY_SECRET})"]
    {
        let ended = run("MY_SECRET", rule, "true", &[]).await;
        let warnings = ended.result()["warnings"].to_string();
        assert!(
            warnings.contains("MY_SECRET was withheld: --pass-env MY_SECRET"),
            "{rule}: {warnings}"
        );
    }
    let ended = run("MY_SECRET", "Bash(printenv MY_SECRETS)", "true", &[]).await;
    assert!(!ended.result()["warnings"].to_string().contains("withheld"), "{ended:?}");
    let ended =
        run("MY_SECRET", "Bash(printenv MY_SECRET)", "true", &["--pass-env", "MY_SECRET"]).await;
    assert!(!ended.result()["warnings"].to_string().contains("withheld"), "{ended:?}");
}
