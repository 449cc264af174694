//! Remedies for problems at a cloud, in the cloud's own terms, and the identity of the run there.

use super::super::facts::service::ServiceFacts;
use super::super::finding::Finding;
use crate::model::ServiceKind;
use crate::recovery::ErrorClass;

/// Reports the identity of the run at a cloud. `None`: it was not determined.
pub(super) fn check_identity(service: &ServiceFacts) -> Option<Finding> {
    let name = service.service.name();
    Some(match service.identity.as_ref()? {
        Ok(who) => Finding::ok("identity", format!("{who} at {name}")),
        Err(why) => Finding::warning(
            "identity",
            format!("the identity of the run at {name} is unknown: {why}"),
            "requests to the model may be refused, too",
            credential_remedy(&service.service),
        ),
    })
}

/// Returns the remedy for a missing or rejected credential.
pub(super) fn credential_remedy(service: &ServiceKind) -> &'static str {
    match service {
        ServiceKind::Messages => "log in again, or put an API key in ANTHROPIC_API_KEY",
        ServiceKind::Bedrock { .. } => {
            "see what aws sts get-caller-identity says with the same variables; run aws sso login \
             or aws configure, set AWS_PROFILE, or set AWS_BEARER_TOKEN_BEDROCK"
        }
        ServiceKind::Vertex { .. } => {
            "see what gcloud auth application-default print-access-token says; run gcloud auth \
             application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
        }
        ServiceKind::Foundry { .. } => {
            "see what az account get-access-token --resource https://ai.azure.com says; run az \
             login, or set ANTHROPIC_FOUNDRY_API_KEY"
        }
    }
}

/// Returns the remedy for a refusal by a cloud. `None`: the general remedy applies.
pub(super) fn refusal_remedy(service: &ServiceKind, class: ErrorClass) -> Option<&'static str> {
    if matches!(class, ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked) {
        return service.is_cloud().then(|| credential_remedy(service));
    }
    if class != ErrorClass::AuthError {
        return None;
    }
    match service {
        ServiceKind::Messages => None,
        ServiceKind::Bedrock { .. } => Some(
            "allow bedrock:InvokeModel and bedrock:InvokeModelWithResponseStream on the model and \
             its inference profile in the IAM policy, and submit the use case of the model in the \
             Bedrock console of that account",
        ),
        ServiceKind::Vertex { .. } => Some(
            "grant roles/aiplatform.user in the project, and enable the Vertex AI API and the \
             model in its Model Garden",
        ),
        ServiceKind::Foundry { .. } => {
            Some("grant the role Cognitive Services User or Azure AI User on the resource")
        }
    }
}

/// Returns the remedy for a model that a service does not have.
pub(super) fn model_remedy(service: &ServiceKind) -> &'static str {
    match service {
        ServiceKind::Messages => {
            "check its spelling in --model, ANTHROPIC_MODEL, \"model\" and \"fallbackModel\"; \
             clouds and gateways have their own names and access lists"
        }
        ServiceKind::Bedrock { .. } => {
            "see aws bedrock list-inference-profiles in that region, and name the id of one in \
             --model or ANTHROPIC_DEFAULT_OPUS_MODEL and its like, or choose another AWS_REGION"
        }
        ServiceKind::Vertex { .. } => {
            "enable the model in the Model Garden of the project, or choose another \
             CLOUD_ML_REGION, for example global"
        }
        ServiceKind::Foundry { .. } => {
            "deploy the model in the resource; its name here is that of the deployment"
        }
    }
}
