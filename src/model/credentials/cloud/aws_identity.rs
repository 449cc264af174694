//! Determines the source of AWS credentials, in the order of the AWS SDKs.
//!
//! ```text
//! awsCredentialExport ► variables ► profile ► web identity ► container ► instance metadata
//! ```

use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use super::super::fault::missing_credential;
use super::super::secret::Secret;
use super::aws_endpoint::{AwsEndpointError, AwsService, service_url};
use super::aws_files::{AwsFiles, Section, profile_name, variable};
use super::token::AwsKeys;
use crate::recovery::Fault;
use crate::secrets::Variables;
use crate::text::hex;

/// Maximum number of profiles in a chain of roles.
const ROLES_MAX: u8 = 5;

/// An identity of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsIdentity {
    pub variables: Variables,
    pub home: Option<PathBuf>,
    pub region: String,
    /// A command that renews the login, for example `aws sso login`.
    pub auth_refresh: Option<String>,
    /// A command that prints credentials.
    pub credential_export: Option<String>,
    /// The folder for credentials that the runs of a host share. `None`: nothing is stored, and no
    /// login is renewed.
    pub cache: Option<PathBuf>,
}

/// A source of AWS credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AwsSource {
    Keys {
        keys: AwsKeys,
        from: String,
    },
    Export {
        command: String,
    },
    Process {
        command: String,
        profile: String,
    },
    WebIdentity {
        token_file: PathBuf,
        role: AwsRole,
    },
    Role {
        role: AwsRole,
        source: Box<Self>,
    },
    Sso(SsoProfile),
    Container {
        url: String,
        token: Option<String>,
        token_file: Option<PathBuf>,
    },
    /// The metadata server of an EC2 instance.
    Instance {
        url: String,
    },
}

/// A role to be assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AwsRole {
    pub(super) arn: String,
    pub(super) session: String,
    pub(super) external_id: Option<String>,
}

/// A profile of IAM Identity Center.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SsoProfile {
    pub(super) profile: String,
    pub(super) region: String,
    pub(super) account: String,
    pub(super) role: String,
    /// True if the login belongs to an `sso-session` and can be renewed.
    pub(super) has_session: bool,
    /// The file with the token of the login.
    pub(super) cache_file: PathBuf,
}

/// A profile in the files.
struct ProfileSection<'a> {
    files: &'a AwsFiles,
    name: &'a str,
    section: &'a Section,
}

impl AwsIdentity {
    /// The region of the profile in use.
    pub fn profile_region(variables: &Variables, home: Option<&Path>) -> Option<String> {
        let files = AwsFiles::read(variables, home).ok()?;
        files.profile(&profile_name(variables))?.get("region").cloned()
    }

    /// The address of Bedrock in a region.
    ///
    /// # Errors
    /// A configured value is invalid or contradicts another.
    pub fn bedrock_url(
        region: &str,
        variables: &Variables,
        home: Option<&Path>,
    ) -> Result<String, AwsEndpointError> {
        service_url(AwsService::BedrockRuntime, region, variables, home)
    }

    /// Determines the source. Reads files, and contacts no service.
    pub(super) fn plan(&self) -> Result<AwsSource, Box<Fault>> {
        if let Some(command) = self.credential_export.as_ref().filter(|it| !it.trim().is_empty()) {
            return Ok(AwsSource::Export { command: command.clone() });
        }
        let set = |name: &str| variable(&self.variables, name);
        if let (Some(id), Some(secret)) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
            let session = set("AWS_SESSION_TOKEN").map(|session| Secret::new(&session));
            let keys = AwsKeys { id, secret: Secret::new(&secret), session };
            return Ok(AwsSource::Keys { keys, from: "the variable AWS_ACCESS_KEY_ID".to_owned() });
        }
        let files = AwsFiles::read(&self.variables, self.home.as_deref())?;
        let profile = profile_name(&self.variables);
        if let Some(source) = self.of_profile(&files, &profile, ROLES_MAX)? {
            return Ok(source);
        }
        if set("AWS_PROFILE").is_some() {
            let found = files.profile(&profile).is_some();
            let what = if found { "holds no credentials" } else { "does not exist" };
            return Err(no_credentials(format!(
                "the profile {profile:?} (AWS_PROFILE) {what} in ~/.aws/config and \
                 ~/.aws/credentials; correct it, or run aws configure --profile {profile}"
            )));
        }
        Ok(self.of_environment())
    }

    /// The commands that print keys or renew the login.
    pub(super) fn commands(&self) -> Vec<String> {
        let plan = self.plan().ok();
        let mut source = plan.as_ref();
        while let Some(AwsSource::Role { source: inner, .. }) = source {
            source = Some(&**inner);
        }
        let mut commands = Vec::from_iter(self.auth_refresh.clone());
        if let Some(AwsSource::Export { command } | AwsSource::Process { command, .. }) = source {
            commands.push(command.clone());
        }
        commands
    }

    /// The source that a profile names, if any.
    fn of_profile(
        &self,
        files: &AwsFiles,
        name: &str,
        depth: u8,
    ) -> Result<Option<AwsSource>, Box<Fault>> {
        let Some(profile) = ProfileSection::find(files, name) else { return Ok(None) };
        let Some(depth) = depth.checked_sub(1) else {
            let message = format!("the profile {name:?} refers to too many others; correct it");
            return Err(no_credentials(message));
        };
        if let Some(arn) = profile.value("role_arn") {
            return self.of_role(&profile, arn, depth).map(Some);
        }
        if profile.value("web_identity_token_file").is_some() {
            return Err(profile.fault("names a web_identity_token_file and no role_arn"));
        }
        if let Some(account) = profile.value("sso_account_id") {
            return self.of_sso(&profile, account).map(Some);
        }
        if profile.value("login_session").is_some() {
            return Err(profile.fault(
                "has a login_session (aws login), which is not supported; use the profile of a \
                 credential_process = aws configure export-credentials",
            ));
        }
        Ok(match profile.value("credential_process") {
            Some(command) => Some(AwsSource::Process { command, profile: name.to_owned() }),
            None => profile.keys(),
        })
    }

    /// The source of a profile with a role.
    fn of_role(
        &self,
        profile: &ProfileSection<'_>,
        arn: String,
        depth: u8,
    ) -> Result<AwsSource, Box<Fault>> {
        let session = profile.value("role_session_name").unwrap_or_else(session_name);
        let role = AwsRole { arn, session, external_id: profile.value("external_id") };
        if let Some(token_file) = profile.value("web_identity_token_file") {
            return Ok(AwsSource::WebIdentity { token_file: token_file.into(), role });
        }
        let named = profile.value("credential_source").map(|named| named.to_ascii_lowercase());
        let source = match (profile.value("source_profile"), named.as_deref()) {
            (Some(_), Some(_)) => {
                return Err(profile.fault("names both a source_profile and a credential_source"));
            }
            (Some(source), None) if source == profile.name => profile.keys(),
            (Some(source), None) => {
                match ProfileSection::find(profile.files, &source).and_then(|source| source.keys())
                {
                    Some(keys) => Some(keys),
                    None => self.of_profile(profile.files, &source, depth)?,
                }
            }
            (None, Some("ec2instancemetadata")) => Some(self.instance()),
            (None, Some("ecscontainer")) => self.container(),
            // Keys in variables are used before any profile is read.
            (None, Some(_) | None) => None,
        };
        let source =
            source.ok_or_else(|| profile.fault("names a role and no usable source_profile"))?;
        Ok(AwsSource::Role { role, source: Box::new(source) })
    }

    /// The source of a profile of IAM Identity Center.
    fn of_sso(
        &self,
        profile: &ProfileSection<'_>,
        account: String,
    ) -> Result<AwsSource, Box<Fault>> {
        let session = profile.value("sso_session");
        let section = session.as_ref().and_then(|session| profile.files.sso_session(session));
        let differs = |key: &str| {
            let of_session = section.and_then(|section| section.get(key));
            profile.value(key).is_some_and(|own| of_session.is_some_and(|other| *other != own))
        };
        if differs("sso_region") || differs("sso_start_url") {
            return Err(profile.fault("contradicts its sso-session"));
        }
        if session.is_some() && section.is_none() {
            return Err(profile.fault("names an sso-session that does not exist"));
        }
        let of_sso = |key: &str| profile.value(key).or_else(|| section?.get(key).cloned());
        let (Some(role), Some(region), Some(start)) =
            (profile.value("sso_role_name"), of_sso("sso_region"), of_sso("sso_start_url"))
        else {
            return Err(profile.fault("lacks sso_role_name, sso_region or sso_start_url"));
        };
        let cache_file = self.sso_cache(session.as_deref().unwrap_or(&start));
        let (profile, has_session) = (profile.name.to_owned(), session.is_some());
        let sso = SsoProfile { profile, region, account, role, has_session, cache_file };
        Ok(AwsSource::Sso(sso))
    }

    /// The source that CI systems and hosts provide.
    fn of_environment(&self) -> AwsSource {
        let set = |name: &str| variable(&self.variables, name);
        let token_file = set("AWS_WEB_IDENTITY_TOKEN_FILE");
        if let (Some(token_file), Some(arn)) = (token_file, set("AWS_ROLE_ARN")) {
            let session = set("AWS_ROLE_SESSION_NAME").unwrap_or_else(session_name);
            let role = AwsRole { arn, session, external_id: None };
            return AwsSource::WebIdentity { token_file: token_file.into(), role };
        }
        self.container().unwrap_or_else(|| self.instance())
    }

    fn container(&self) -> Option<AwsSource> {
        let set = |name: &str| variable(&self.variables, name);
        let relative = set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        // Without the slash, a path with an `@` would name another host.
        let relative =
            relative.map(|path| format!("http://169.254.170.2/{}", path.trim_start_matches('/')));
        let url = relative.or_else(|| set("AWS_CONTAINER_CREDENTIALS_FULL_URI"))?;
        let token = set("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        let token_file = set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from);
        Some(AwsSource::Container { url, token, token_file })
    }

    fn instance(&self) -> AwsSource {
        let set = |name: &str| variable(&self.variables, name);
        let mode = set("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
        let is_ipv6 = mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
        let usual = if is_ipv6 { "http://[fd00:ec2::254]" } else { "http://169.254.169.254" };
        let url = set("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        AwsSource::Instance { url: url.unwrap_or_else(|| usual.to_owned()) }
    }

    /// The file in which the AWS CLI keeps the token of a login.
    fn sso_cache(&self, name: &str) -> PathBuf {
        let digest = Sha1::digest(name.as_bytes());
        let home = self.home.clone().unwrap_or_default();
        home.join(".aws/sso/cache").join(hex(&digest) + ".json")
    }

    /// The address of a service in a region.
    pub(super) fn service_url(
        &self,
        service: AwsService,
        region: &str,
    ) -> Result<String, Box<Fault>> {
        service_url(service, region, &self.variables, self.home.as_deref())
            .map_err(|error| missing_credential("invalid_aws_endpoint", error.to_string()))
    }

    pub(super) fn has_no_metadata(&self) -> bool {
        let off = variable(&self.variables, "AWS_EC2_METADATA_DISABLED");
        off.is_some_and(|off| off.eq_ignore_ascii_case("true"))
    }

    pub(super) fn describe(&self) -> String {
        self.plan().map_or_else(|fault| fault.detail().to_owned(), |source| source.describe())
    }
}

impl AwsSource {
    /// The source, for messages. The text distinguishes sources and contains no secret.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Keys { keys, from } => format!("{from} ({})", keys.id),
            Self::Export { .. } => "the setting awsCredentialExport".to_owned(),
            Self::Process { profile, .. } => {
                format!("credential_process of the profile {profile:?}")
            }
            Self::WebIdentity { token_file, role } => {
                format!("{} with the web identity in {}", role.arn, token_file.display())
            }
            Self::Role { role, source } => format!("{} from {}", role.arn, source.describe()),
            Self::Sso(sso) => format!(
                "the role {} in the account {} (SSO profile {:?})",
                sso.role, sso.account, sso.profile
            ),
            Self::Container { .. } => "the credentials of the container".to_owned(),
            Self::Instance { .. } => "the role of the EC2 instance".to_owned(),
        }
    }

    /// True if the keys are fetched from a service, so that the runs of a host share them.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::WebIdentity { .. } | Self::Role { .. } | Self::Sso(_))
    }
}

impl<'a> ProfileSection<'a> {
    fn find(files: &'a AwsFiles, name: &'a str) -> Option<Self> {
        Some(Self { files, name, section: files.profile(name)? })
    }

    /// A value that is not empty: a template without its secrets leaves empty lines.
    fn value(&self, key: &str) -> Option<String> {
        self.section.get(key).filter(|value| !value.is_empty()).cloned()
    }

    fn fault(&self, what: &str) -> Box<Fault> {
        let name = self.name;
        no_credentials(format!("the profile {name:?} in ~/.aws/config {what}; correct it"))
    }

    fn keys(&self) -> Option<AwsSource> {
        let (id, secret) = (self.value("aws_access_key_id")?, self.value("aws_secret_access_key")?);
        let session = self.section.get("aws_session_token").map(|session| Secret::new(session));
        let keys = AwsKeys { id, secret: Secret::new(&secret), session };
        Some(AwsSource::Keys { keys, from: format!("the profile {:?}", self.name) })
    }
}

/// The name of a session, by which `CloudTrail` distinguishes runs.
fn session_name() -> String {
    format!("outlast-{}", std::process::id())
}

pub(super) fn no_credentials(message: String) -> Box<Fault> {
    missing_credential("aws_no_credentials", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_address_of_a_container_is_at_the_host_of_ecs() {
        for (path, url) in [
            ("/v2/keys", "http://169.254.170.2/v2/keys"),
            ("@evil.example/keys", "http://169.254.170.2/@evil.example/keys"),
        ] {
            let name = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
            let identity = AwsIdentity {
                variables: [(name.into(), path.into())].into_iter().collect(),
                home: None,
                region: "us-east-1".to_owned(),
                auth_refresh: None,
                credential_export: None,
                cache: None,
            };
            let source =
                AwsSource::Container { url: url.to_owned(), token: None, token_file: None };
            assert_eq!(identity.plan(), Ok(source));
        }
    }
}
