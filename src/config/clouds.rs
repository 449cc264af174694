//! Reads the cloud that serves the models, its region or resource, and the identity used there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::environment::{Variables, home, is_enabled};
use super::values::InvalidValue;
use crate::model::{
    AwsIdentity, BaseUrl, CloudIdentity, Credential, EntraIdentity, GoogleIdentity, Secret,
    ServiceKind,
};

/// Variables that select a cloud.
const SELECTING: [(&str, &str); 3] = [
    ("CLAUDE_CODE_USE_BEDROCK", "bedrock"),
    ("CLAUDE_CODE_USE_VERTEX", "vertex"),
    ("CLAUDE_CODE_USE_FOUNDRY", "foundry"),
];

/// The folder of tokens that runs share, in the folder of settings.
const TOKENS: &str = "cloud-tokens";

/// A cloud as the place of a model: `bedrock:us-east-1`, `vertex:global/PROJECT`,
/// `foundry:RESOURCE`. Omitted parts are read from the variables of that cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudPlace {
    Bedrock { region: Option<String> },
    Vertex { region: Option<String>, project: Option<String> },
    Foundry { resource: Option<String> },
}

/// The address of a cloud, and the credential of requests to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEndpoint {
    pub service: ServiceKind,
    pub base_url: String,
    /// [`Credential::None`] if a gateway authenticates requests.
    pub credential: Credential,
}

impl CloudPlace {
    /// Parses the text after the `@` of a model entry. `None`: it does not name a cloud.
    ///
    /// # Errors
    /// A part has characters that cannot be in an address.
    pub fn parse(text: &str) -> Result<Option<Self>, InvalidValue> {
        let (cloud, rest) = text.split_once(':').unwrap_or((text, ""));
        let part = |part: &str| Some(part.to_owned()).filter(|part| !part.is_empty());
        let place = match cloud {
            "bedrock" => Self::Bedrock { region: part(rest) },
            "vertex" => {
                let (region, project) = rest.split_once('/').unwrap_or((rest, ""));
                Self::Vertex { region: part(region), project: part(project) }
            }
            "foundry" => Self::Foundry { resource: part(rest) },
            _ => return Ok(None),
        };
        let parts = match &place {
            Self::Bedrock { region: part } | Self::Foundry { resource: part } => [part, &None],
            Self::Vertex { region, project } => [region, project],
        };
        if let Some(part) = parts.into_iter().flatten().find(|part| !is_name(part)) {
            return Err(format!(
                "{part:?} is not a valid name; write bedrock:REGION, vertex:REGION/PROJECT or \
                 foundry:RESOURCE"
            )
            .into());
        }
        Ok(Some(place))
    }
}

impl std::fmt::Display for CloudPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cloud, parts) = match self {
            Self::Bedrock { region } => ("bedrock", [region.as_deref(), None]),
            Self::Vertex { region, project } => ("vertex", [region.as_deref(), project.as_deref()]),
            Self::Foundry { resource } => ("foundry", [resource.as_deref(), None]),
        };
        match parts {
            [None, None] => f.write_str(cloud),
            [first, None] => write!(f, "{cloud}:{}", first.unwrap_or_default()),
            [first, Some(second)] => write!(f, "{cloud}:{}/{second}", first.unwrap_or_default()),
        }
    }
}

/// Returns true if a text can be part of a host name or of a path.
fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
}

/// The sources of the choice of a cloud, of its address and of its credential.
#[derive(Clone, Copy, Debug)]
pub struct CloudSources<'a> {
    pub variables: &'a Variables,
    pub config_dir: &'a Path,
    pub aws_auth_refresh: Option<&'a str>,
    pub aws_credential_export: Option<&'a str>,
}

impl CloudSources<'_> {
    /// Returns the cloud that a variable selects.
    ///
    /// # Errors
    /// Several variables select clouds.
    pub fn selected(&self) -> Result<Option<CloudPlace>, InvalidValue> {
        let set: Vec<_> =
            SELECTING.iter().filter(|(name, _)| is_enabled(self.variables, name)).collect();
        match set[..] {
            [] => Ok(None),
            [(_, cloud)] => CloudPlace::parse(cloud),
            [(one, _), (other, _), ..] => Err(format!(
                "{one} and {other} contradict each other; unset all but one, and name other \
                 clouds in --fallback-model"
            )
            .into()),
        }
    }

    /// Returns the address and the credential of a cloud.
    ///
    /// # Errors
    /// A region, project or resource is not known, or variables contradict each other.
    pub fn endpoint(
        &self,
        place: &CloudPlace,
        base_url: Option<&str>,
    ) -> Result<CloudEndpoint, InvalidValue> {
        let (service, own_url, skipped) = match place {
            CloudPlace::Bedrock { region } => (
                ServiceKind::Bedrock { region: self.aws_region(region.as_deref())? },
                self.text("ANTHROPIC_BEDROCK_BASE_URL"),
                "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
            ),
            CloudPlace::Vertex { region, project } => (
                self.vertex(region.as_deref(), project.as_deref())?,
                self.text("ANTHROPIC_VERTEX_BASE_URL"),
                "CLAUDE_CODE_SKIP_VERTEX_AUTH",
            ),
            CloudPlace::Foundry { resource } => {
                let (service, own_url) = self.foundry(resource.as_deref(), base_url)?;
                (service, own_url, "CLAUDE_CODE_SKIP_FOUNDRY_AUTH")
            }
        };
        let base_url = base_url.map(str::to_owned).or(own_url);
        let base_url = match (base_url, &service) {
            (Some(url), _) => url,
            (None, ServiceKind::Bedrock { region }) => {
                AwsIdentity::bedrock_url(region, self.variables, home(self.variables).as_deref())
                    .map_err(|error| format!("the address of {}: {error}", service.name()))?
            }
            (
                None,
                ServiceKind::Messages | ServiceKind::Vertex { .. } | ServiceKind::Foundry { .. },
            ) => service.base_url(),
        };
        BaseUrl::parse(&base_url)
            .map_err(|error| format!("the address of {}: {error}", service.name()))?;
        let credential = if is_enabled(self.variables, skipped) {
            Credential::None
        } else {
            self.credential(&service)
        };
        Ok(CloudEndpoint { service, base_url, credential })
    }

    fn credential(&self, service: &ServiceKind) -> Credential {
        let identity = |identity| Credential::Cloud(Box::new(identity));
        match service {
            ServiceKind::Bedrock { region } => match self.text("AWS_BEARER_TOKEN_BEDROCK") {
                Some(token) => Credential::Bearer(Secret::new(&token)),
                None => identity(CloudIdentity::Aws(AwsIdentity {
                    variables: self.variables_of(&["AWS_"]),
                    home: home(self.variables),
                    region: region.clone(),
                    auth_refresh: self.aws_auth_refresh.map(str::to_owned),
                    credential_export: self.aws_credential_export.map(str::to_owned),
                    cache: Some(self.cache()),
                })),
            },
            ServiceKind::Foundry { .. } => match self.text("ANTHROPIC_FOUNDRY_API_KEY") {
                Some(key) => Credential::FoundryKey(Secret::new(&key)),
                None => identity(CloudIdentity::Entra(EntraIdentity {
                    variables: self.variables_of(&["AZURE_", "IDENTITY_"]),
                    cache: Some(self.cache()),
                })),
            },
            ServiceKind::Vertex { .. } => identity(CloudIdentity::Google(self.google())),
            ServiceKind::Messages => Credential::None,
        }
    }

    fn google(&self) -> GoogleIdentity {
        GoogleIdentity {
            variables: self.variables_of(&["GOOGLE_", "CLOUDSDK_", "GCE_"]),
            home: home(self.variables),
            cache: Some(self.cache()),
        }
    }

    fn cache(&self) -> PathBuf {
        self.config_dir.join(TOKENS)
    }

    fn aws_region(&self, named: Option<&str>) -> Result<String, InvalidValue> {
        let named = named.map(str::to_owned).or_else(|| self.text("AWS_REGION"));
        let named = named.or_else(|| self.text("AWS_DEFAULT_REGION"));
        let region = named.or_else(|| {
            AwsIdentity::profile_region(self.variables, home(self.variables).as_deref())
        });
        let region = region.filter(|region| is_name(region));
        region.ok_or_else(|| {
            "no region is known for Amazon Bedrock; set AWS_REGION, or write bedrock:REGION".into()
        })
    }

    fn vertex(
        &self,
        region: Option<&str>,
        project: Option<&str>,
    ) -> Result<ServiceKind, InvalidValue> {
        let region = region.map(str::to_owned).or_else(|| self.text("CLOUD_ML_REGION"));
        let Some(region) = region.filter(|region| is_name(region)) else {
            return Err("no region is known for Google Vertex AI; set CLOUD_ML_REGION, for \
                        example to global, or write vertex:REGION/PROJECT"
                .into());
        };
        let variables = ["ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"];
        let named = project.map(str::to_owned);
        let named = named.or_else(|| variables.iter().find_map(|name| self.text(name)));
        let Some(project) = named.or_else(|| self.google().project()).filter(|it| is_name(it))
        else {
            return Err("no project is known for Google Vertex AI; set \
                        ANTHROPIC_VERTEX_PROJECT_ID, or write vertex:REGION/PROJECT"
                .into());
        };
        Ok(ServiceKind::Vertex { region, project })
    }

    /// Returns the service, and the address that a variable names for it.
    fn foundry(
        &self,
        named: Option<&str>,
        base_url: Option<&str>,
    ) -> Result<(ServiceKind, Option<String>), InvalidValue> {
        let variable = self.text("ANTHROPIC_FOUNDRY_RESOURCE");
        let own_url = self.text("ANTHROPIC_FOUNDRY_BASE_URL");
        if named.is_none() && base_url.is_none() && variable.is_some() && own_url.is_some() {
            return Err("ANTHROPIC_FOUNDRY_RESOURCE and ANTHROPIC_FOUNDRY_BASE_URL contradict \
                        each other; unset one of them"
                .into());
        }
        let resource = named.map(str::to_owned).or(variable).unwrap_or_default();
        if resource.is_empty() && own_url.is_none() && base_url.is_none() {
            return Err("no resource is known for Microsoft Foundry; set \
                        ANTHROPIC_FOUNDRY_RESOURCE, or write foundry:RESOURCE"
                .into());
        }
        if !is_name(&resource) {
            return Err(format!(
                "{resource:?} cannot be the name of a Microsoft Foundry resource; correct \
                 ANTHROPIC_FOUNDRY_RESOURCE"
            )
            .into());
        }
        // The variable holds the address of one resource, which a model entry may replace.
        Ok((ServiceKind::Foundry { resource }, own_url.filter(|_| named.is_none())))
    }

    fn text(&self, name: &str) -> Option<String> {
        let value = self.variables.get(OsStr::new(name))?.to_str()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Returns the variables of one cloud, so that other variables do not change an identity.
    fn variables_of(&self, prefixes: &[&str]) -> Variables {
        let has_prefix = |name: &OsStr| {
            let name = name.to_string_lossy();
            prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        let mut variables = self.variables.clone();
        variables.retain(|name, _| has_prefix(name));
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn sources(variables: &Variables) -> CloudSources<'_> {
        CloudSources {
            variables,
            config_dir: Path::new("/nowhere"),
            aws_auth_refresh: None,
            aws_credential_export: None,
        }
    }

    fn url(pairs: &[(&str, &str)], place: &str) -> Result<String, String> {
        let home = ("HOME", "/nowhere");
        let variables = variables(&[pairs, &[home]].concat());
        let place = CloudPlace::parse(place).map_err(|error| error.to_string())?;
        let endpoint = sources(&variables).endpoint(&place.expect("a cloud"), None);
        endpoint.map(|it| it.base_url).map_err(|error| error.to_string())
    }

    #[test]
    fn a_place_is_read_and_written_alike() {
        for text in
            ["bedrock", "bedrock:us-east-1", "vertex:global/p-1", "vertex:eu", "foundry:my-res"]
        {
            let place = CloudPlace::parse(text).expect("it is right").expect("a cloud");
            assert_eq!(place.to_string(), text);
        }
        assert_eq!(CloudPlace::parse("20250929"), Ok(None));
        assert!(CloudPlace::parse("bedrock:us/east").is_err());
        assert!(CloudPlace::parse("foundry:evil.example/x?").is_err());
    }

    #[test]
    fn each_cloud_has_its_public_address() {
        let project = [("ANTHROPIC_VERTEX_PROJECT_ID", "p")];
        for (place, address) in [
            ("bedrock:us-east-1", "https://bedrock-runtime.us-east-1.amazonaws.com"),
            ("vertex:global", "https://aiplatform.googleapis.com/v1"),
            ("vertex:eu", "https://aiplatform.eu.rep.googleapis.com/v1"),
            ("vertex:us-east5", "https://us-east5-aiplatform.googleapis.com/v1"),
            ("foundry:res", "https://res.services.ai.azure.com/anthropic"),
        ] {
            assert_eq!(url(&project, place).as_deref(), Ok(address));
        }
    }

    /// Otherwise the key of one resource would be sent to another.
    #[test]
    fn the_address_of_one_foundry_resource_is_not_that_of_another() {
        let own = [("ANTHROPIC_FOUNDRY_BASE_URL", "https://one.example/anthropic")];
        assert_eq!(url(&own, "foundry").as_deref(), Ok("https://one.example/anthropic"));
        let two = "https://two.services.ai.azure.com/anthropic";
        assert_eq!(url(&own, "foundry:two").as_deref(), Ok(two));
    }

    #[test]
    fn what_is_missing_or_contradicts_itself_is_named() {
        for (pairs, place, word) in [
            (&[][..], "bedrock", "AWS_REGION"),
            (&[], "vertex", "CLOUD_ML_REGION"),
            (&[], "vertex:global", "ANTHROPIC_VERTEX_PROJECT_ID"),
            (&[], "foundry", "ANTHROPIC_FOUNDRY_RESOURCE"),
            (
                &[
                    ("ANTHROPIC_FOUNDRY_RESOURCE", "r"),
                    ("ANTHROPIC_FOUNDRY_BASE_URL", "https://h.example"),
                ],
                "foundry",
                "contradict",
            ),
        ] {
            let error = url(pairs, place).expect_err("something is missing");
            assert!(error.contains(word), "{place}: {error}");
        }
        let two =
            variables(&[("CLAUDE_CODE_USE_BEDROCK", "1"), ("CLAUDE_CODE_USE_VERTEX", "true")]);
        assert!(sources(&two).selected().is_err());
        let one = variables(&[("CLAUDE_CODE_USE_BEDROCK", "0"), ("CLAUDE_CODE_USE_VERTEX", "1")]);
        let vertex = CloudPlace::Vertex { region: None, project: None };
        assert_eq!(sources(&one).selected(), Ok(Some(vertex)));
    }
}
