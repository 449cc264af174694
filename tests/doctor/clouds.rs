//! Reports of the doctor on clouds, in the words of their services.

use outlast::doctor::checks::service;
use outlast::doctor::facts::service::{ServiceAnswer, ServiceFacts, ServiceProbe};
use outlast::doctor::{Finding, Severity};
use outlast::model::{ProbeAnswer, ServiceKind};
use outlast::recovery::{FailureStage, Fault, FaultKind};

fn clouds() -> [ServiceKind; 3] {
    [
        ServiceKind::Bedrock { region: "us-east-1".into() },
        ServiceKind::Vertex { region: "global".into(), project: "p".into() },
        ServiceKind::Foundry { resource: "r".into() },
    ]
}

fn at(service: ServiceKind, seen: ServiceProbe) -> ServiceFacts {
    ServiceFacts {
        service,
        identity: None,
        origin: "https://h:1".into(),
        proxy: None,
        models: vec!["m".into()],
        is_fallback: false,
        credential: Some(("AWS credentials", "the profile \"ci\"".into())),
        outcome: seen,
    }
}

fn answered(status: u16, label: &str) -> ServiceProbe {
    let kind = FaultKind::Refused {
        status,
        label: label.to_owned(),
        code: String::new(),
        message: "No.".to_owned(),
    };
    let refusal = (status != 200).then(|| Fault::new(kind, FailureStage::Status).into());
    let request = "POST /model/.../invoke";
    let probe = ProbeAnswer { request, status, refusal, is_web_page: false, clocks: None };
    ServiceProbe::Answered(ServiceAnswer { probe, unknown: Vec::new() })
}

fn told(findings: &[Finding], severity: Severity, words: &[&str]) {
    let texts: Vec<String> = findings
        .iter()
        .filter(|finding| finding.status == severity)
        .map(|finding| format!("{finding:?}"))
        .collect();
    let found = texts.iter().any(|text| words.iter().all(|word| text.contains(word)));
    assert!(found, "{words:?} is not in {findings:?}");
}

#[test]
fn a_refused_role_has_a_remedy_of_its_cloud() {
    let roles = ["bedrock:InvokeModel", "roles/aiplatform.user", "Cognitive Services User"];
    let commands = ["aws sso login", "gcloud auth", "az login"];
    for ((cloud, role), command) in clouds().into_iter().zip(roles).zip(commands) {
        let denied = at(cloud.clone(), answered(403, "AccessDeniedException"));
        told(&service::check_service(&denied), Severity::Problem, &[role]);
        let expired = at(cloud.clone(), answered(403, "ExpiredTokenException"));
        told(&service::check_service(&expired), Severity::Problem, &[command]);
        let none = at(cloud, ServiceProbe::NoCredential("nothing was found".into()));
        told(&service::check_service(&none), Severity::Problem, &[command, "nothing was found"]);
    }
}

#[test]
fn an_unknown_model_has_a_remedy_of_its_cloud() {
    let remedies = ["aws bedrock list-inference-profiles", "Model Garden", "deployment"];
    for (cloud, remedy) in clouds().into_iter().zip(remedies) {
        let ServiceProbe::Answered(answer) = answered(200, "") else { unreachable!() };
        let unknown = vec![("m".to_owned(), "no such model".to_owned())];
        let facts = at(cloud, ServiceProbe::Answered(ServiceAnswer { unknown, ..answer }));
        told(&service::check_service(&facts), Severity::Problem, &[remedy, "no such model"]);
    }
}

#[test]
fn the_identity_is_named_or_why_it_is_not_known() {
    let [bedrock, ..] = clouds();
    let facts = at(bedrock, answered(200, ""));
    let arn = "arn:aws:sts::123456789012:assumed-role/ci/outlast-1";
    let known = ServiceFacts { identity: Some(Ok(arn.into())), ..facts.clone() };
    told(&service::check_service(&known), Severity::Ok, &[arn, "Amazon Bedrock"]);
    let unknown = ServiceFacts { identity: Some(Err("not in time".into())), ..facts };
    told(&service::check_service(&unknown), Severity::Warning, &["not in time"]);
}
