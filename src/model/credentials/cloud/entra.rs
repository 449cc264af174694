//! Microsoft Entra identities: a client secret, a federated token, a managed identity, or the Azure
//! CLI.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::Value;

use super::super::fault::missing_credential;
use super::super::files::FILE_BYTES_MAX;
use super::aws_files::variable;
use super::command::{printed_json, printing};
use super::token::{CloudToken, expiry_in, parse_expiry};
use super::token_http::{TokenCall, TokenContext, has_answered, invalid_answer};
use crate::json;
use crate::process::file_reads;
use crate::recovery::{ErrorBody, Fault};
use crate::secrets::Variables;

const RESOURCE: &str = "https://ai.azure.com";
const ENTRA: &str = "Microsoft Entra ID";
const INSTANCE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

/// An identity of Microsoft Entra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntraIdentity {
    pub variables: Variables,
    /// The folder for tokens that the runs of a host share.
    pub cache: Option<PathBuf>,
}

/// A source of Entra tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntraSource {
    ClientSecret {
        tenant: String,
        client: String,
    },
    Federated {
        tenant: String,
        client: String,
        token_file: PathBuf,
    },
    /// A managed identity of an app or a container.
    App {
        url: String,
        header: String,
    },
    /// A managed identity of a virtual machine, or else the login of the Azure CLI.
    Machine,
}

impl EntraIdentity {
    pub(super) fn plan(&self) -> EntraSource {
        let set = |name: &str| variable(&self.variables, name);
        if let (Some(tenant), Some(client)) = (set("AZURE_TENANT_ID"), set("AZURE_CLIENT_ID")) {
            if set("AZURE_CLIENT_SECRET").is_some() {
                return EntraSource::ClientSecret { tenant, client };
            }
            if let Some(file) = set("AZURE_FEDERATED_TOKEN_FILE") {
                return EntraSource::Federated { tenant, client, token_file: file.into() };
            }
        }
        match (set("IDENTITY_ENDPOINT"), set("IDENTITY_HEADER")) {
            (Some(url), Some(header)) => EntraSource::App { url, header },
            (Some(_) | None, Some(_) | None) => EntraSource::Machine,
        }
    }

    /// Fetches a token.
    pub(super) async fn fetch(&self, context: &TokenContext) -> Result<CloudToken, Box<Fault>> {
        match self.plan() {
            EntraSource::ClientSecret { tenant, client } => {
                let secret = variable(&self.variables, "AZURE_CLIENT_SECRET").unwrap_or_default();
                let remedy = "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET";
                let fields = [("client_secret", secret.as_str())];
                self.grant(&tenant, &client, &fields, remedy, context).await
            }
            EntraSource::Federated { tenant, client, token_file } => {
                let token = file_reads::read_unblocked(&token_file, FILE_BYTES_MAX).await;
                let token = token.map_err(|error| {
                    let path = token_file.display();
                    no_credentials(format!("the token file {path} cannot be read: {error}"))
                })?;
                let token = json::decode(&token).trim().to_owned();
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                let fields = [("client_assertion_type", kind), ("client_assertion", &token)];
                let remedy = "check the federated credential of the application";
                self.grant(&tenant, &client, &fields, remedy, context).await
            }
            EntraSource::App { url, header } => {
                let fields = [("api-version", "2019-08-01"), ("resource", RESOURCE)];
                let call = self.managed(&url, &fields)?.header("x-identity-header", &header);
                of_answer(&context.http.send_for_json(call).await?)
            }
            EntraSource::Machine => self.of_machine(context).await,
        }
    }

    async fn grant(
        &self,
        tenant: &str,
        client: &str,
        fields: &[(&str, &str)],
        remedy: &str,
        context: &TokenContext,
    ) -> Result<CloudToken, Box<Fault>> {
        let authority = variable(&self.variables, "AZURE_AUTHORITY_HOST");
        let authority = authority.unwrap_or_else(|| "https://login.microsoftonline.com".to_owned());
        let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
        let scope = format!("{RESOURCE}/.default");
        let usual =
            [("grant_type", "client_credentials"), ("client_id", client), ("scope", &scope)];
        let call = TokenCall::new(ENTRA, Method::POST, &url, remedy)?
            .form(usual.into_iter().chain(fields.iter().copied()));
        of_answer(&context.http.send_for_json(call).await?)
    }

    fn managed(
        &self,
        url: &str,
        fields: &[(&str, &str)],
    ) -> Result<TokenCall<'static>, Box<Fault>> {
        let remedy = "assign a managed identity with the role Cognitive Services User";
        let mut call = TokenCall::local("the managed identity", Method::GET, url, remedy)?;
        let client = variable(&self.variables, "AZURE_CLIENT_ID");
        let client = client.as_deref().map(|client| ("client_id", client));
        call.request.url_mut().query_pairs_mut().extend_pairs(fields.iter().copied().chain(client));
        Ok(call)
    }

    async fn of_machine(&self, context: &TokenContext) -> Result<CloudToken, Box<Fault>> {
        let host = variable(&self.variables, "AZURE_POD_IDENTITY_AUTHORITY_HOST");
        let url = host.map(|host| format!("{host}/metadata/identity/oauth2/token"));
        let fields = [("api-version", "2018-02-01"), ("resource", RESOURCE)];
        let url = url.unwrap_or_else(|| INSTANCE.to_owned());
        let call = self.managed(&url, &fields)?.header("metadata", "true");
        let refused = match context.http.send_for_json(call).await {
            Ok(answer) => return of_answer(&answer),
            // The metadata server is overloaded, and will answer later. A portal answers in the
            // place of one that is not there.
            Err(fault) if fault.status().is_some() && fault.body != ErrorBody::Portal => {
                return Err(fault);
            }
            Err(fault) => fault,
        };
        let command = printing(&azure_command());
        let printed = printed_json("the Azure CLI", command, &context.supervisor).await;
        let printed = printed.map_err(|_| {
            if has_answered(&refused) {
                return refused;
            }
            no_credentials(
                "no Microsoft Entra identity was found: no AZURE_CLIENT_ID with a secret or a \
                 federated token, no managed identity that answers within 2 s, and no login of \
                 the Azure CLI; run az login, or set ANTHROPIC_FOUNDRY_API_KEY"
                    .to_owned(),
            )
        })?;
        let token = printed["accessToken"].as_str().ok_or_else(|| invalid_answer("az"))?;
        Ok(CloudToken::bearer(token, parse_expiry(&printed["expires_on"])))
    }

    /// A text that distinguishes applications with the same id.
    pub(super) fn fingerprint(&self) -> String {
        let set = |name: &str| variable(&self.variables, name).unwrap_or_default();
        format!("{} {}", set("AZURE_TENANT_ID"), set("AZURE_AUTHORITY_HOST"))
    }

    pub(super) fn describe(&self) -> String {
        match self.plan() {
            EntraSource::ClientSecret { client, .. } => {
                format!("the application {client} with AZURE_CLIENT_SECRET")
            }
            EntraSource::Federated { client, token_file, .. } => {
                format!("the application {client} with the token in {}", token_file.display())
            }
            EntraSource::App { .. } => "the managed identity of the app".to_owned(),
            EntraSource::Machine => "the managed identity, or the Azure CLI".to_owned(),
        }
    }
}

impl EntraSource {
    /// True if the tokens are fetched from a service, so that the runs of a host share them. The
    /// identity of a machine or of the Azure CLI can differ from run to run.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::ClientSecret { .. } | Self::Federated { .. } => true,
            Self::App { .. } | Self::Machine => false,
        }
    }
}

/// The command of the Azure CLI that prints a token.
pub(super) fn azure_command() -> String {
    format!("az account get-access-token --output json --resource {RESOURCE}")
}

fn of_answer(answer: &Value) -> Result<CloudToken, Box<Fault>> {
    let token = answer["access_token"].as_str().ok_or_else(|| invalid_answer(ENTRA))?;
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let expires = expiry_in(number(&answer["expires_in"]));
    let named = number(&answer["expires_on"]).and_then(|end| parse_expiry(&end.into()));
    Ok(CloudToken::bearer(token, expires.or(named)))
}

fn no_credentials(message: String) -> Box<Fault> {
    missing_credential("entra_no_credentials", message)
}
