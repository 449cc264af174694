//! Finds the address of a service of AWS: the configured one, or the public one of its region.
//!
//! ```text
//! AWS_ENDPOINT_URL_<SERVICE> ► AWS_ENDPOINT_URL ► services section ► endpoint_url of the profile
//! ```

use std::path::Path;

use super::aws_files::{AwsFiles, Section, profile_name, variable};
use crate::model::base_url::BaseUrl;
use crate::secrets::Variables;

/// A service of AWS that a run contacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwsService {
    BedrockRuntime,
    Sts,
    Sso,
    SsoOidc,
}

/// The reason why a service of AWS has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwsEndpointError {
    #[error("{0} is not an http:// or https:// address; correct it")]
    InvalidUrl(String),
    #[error("{0} is neither true nor false; correct it")]
    InvalidSwitch(String),
    #[error("{switch} contradicts the address in {address}; unset one of them")]
    Contradiction { switch: String, address: String },
    #[error("{0}")]
    Unreadable(String),
}

/// A configured value, and its place for messages.
type Configured = (String, String);

impl AwsService {
    /// The name in variables and, in lower case, in `services` sections.
    fn id(self) -> &'static str {
        match self {
            Self::BedrockRuntime => "BEDROCK_RUNTIME",
            Self::Sts => "STS",
            Self::Sso => "SSO",
            Self::SsoOidc => "SSO_OIDC",
        }
    }

    fn host(self) -> &'static str {
        match self {
            Self::BedrockRuntime => "bedrock-runtime",
            Self::Sts => "sts",
            Self::Sso => "portal.sso",
            Self::SsoOidc => "oidc",
        }
    }

    fn public_url(self, region: &str, variant: HostVariant) -> String {
        let (plain, dual_stack) = domains(region);
        let domain = if variant.dual_stack { dual_stack } else { plain };
        // In GovCloud the plain hosts of these services are the validated ones.
        let is_validated =
            region.starts_with("us-gov-") && !variant.dual_stack && self != Self::BedrockRuntime;
        let fips = if variant.fips && !is_validated { "-fips" } else { "" };
        format!("https://{}{fips}.{region}.{domain}", self.host())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HostVariant {
    /// True for the host with validated cryptography (FIPS).
    fips: bool,
    /// True for the host that is also reachable by IPv6.
    dual_stack: bool,
}

/// The domains of a region's partition: the plain one, and the one with IPv6.
fn domains(region: &str) -> (&'static str, &'static str) {
    const PARTITIONS: [(&str, &str, &str); 6] = [
        ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
        ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
        ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
        ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
        ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
        ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    ];
    let own = PARTITIONS.iter().find(|(prefix, ..)| region.starts_with(prefix));
    own.map_or(("amazonaws.com", "api.aws"), |(_, plain, dual_stack)| (plain, dual_stack))
}

/// The address of a service.
///
/// # Errors
/// A configured value is invalid or contradicts another, or a file cannot be read.
pub(super) fn service_url(
    service: AwsService,
    region: &str,
    variables: &Variables,
    home: Option<&Path>,
) -> Result<String, AwsEndpointError> {
    let files = AwsFiles::read(variables, home)
        .map_err(|fault| AwsEndpointError::Unreadable(fault.detail().to_owned()))?;
    let name = profile_name(variables);
    let profile = Profile { variables, section: files.profile(&name), name: &name };
    let fips = profile.switch("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint")?;
    let dual_stack = profile.switch("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint")?;
    let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls");
    let configured = match profile.switch(ignored.0, ignored.1)? {
        Some(_) => None,
        None => profile.url(service, &files),
    };
    let Some((url, address)) = configured else {
        let variant = HostVariant { fips: fips.is_some(), dual_stack: dual_stack.is_some() };
        return Ok(service.public_url(region, variant));
    };
    if let Some(switch) = fips.or(dual_stack) {
        return Err(AwsEndpointError::Contradiction { switch, address });
    }
    if BaseUrl::parse_whole(&url).is_err() {
        return Err(AwsEndpointError::InvalidUrl(address));
    }
    Ok(url)
}

/// The profile in use. The variables take precedence over it.
struct Profile<'a> {
    variables: &'a Variables,
    section: Option<&'a Section>,
    name: &'a str,
}

impl Profile<'_> {
    fn variable(&self, name: &str) -> Option<Configured> {
        Some((variable(self.variables, name)?, name.to_owned()))
    }

    fn key(&self, name: &str) -> Option<Configured> {
        let value = self.section?.get(name).filter(|value| !value.is_empty())?;
        Some((value.clone(), format!("{name} of the profile {:?} in ~/.aws/config", self.name)))
    }

    /// The name of the variable or key that turns a switch on. `None` if the switch is off or not
    /// set.
    fn switch(&self, name: &str, key: &str) -> Result<Option<String>, AwsEndpointError> {
        let Some((value, place)) = self.variable(name).or_else(|| self.key(key)) else {
            return Ok(None);
        };
        match value.to_ascii_lowercase().as_str() {
            "true" => Ok(Some(place)),
            "false" => Ok(None),
            _ => Err(AwsEndpointError::InvalidSwitch(place)),
        }
    }

    fn url(&self, service: AwsService, files: &AwsFiles) -> Option<Configured> {
        let own = || self.variable(&format!("AWS_ENDPOINT_URL_{}", service.id()));
        let of_section = || {
            let (section, _) = self.key("services")?;
            let url = files.service_value(&section, service.id(), "endpoint_url")?;
            Some((url.to_owned(), format!("[services {section}] in ~/.aws/config")))
        };
        own()
            .or_else(|| self.variable("AWS_ENDPOINT_URL"))
            .or_else(of_section)
            .or_else(|| self.key("endpoint_url"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(service: AwsService, region: &str, config: &str, pairs: &[(&str, &str)]) -> String {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join(".aws")).expect("writable");
        std::fs::write(home.path().join(".aws/config"), config).expect("writable");
        let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        service_url(service, region, &pairs.collect(), Some(home.path()))
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn each_partition_has_hosts_with_validated_cryptography_and_with_ipv6() {
        use AwsService::{BedrockRuntime, Sso, SsoOidc, Sts};
        const FIPS: (&str, &str) = ("AWS_USE_FIPS_ENDPOINT", "true");
        const DUAL: (&str, &str) = ("AWS_USE_DUALSTACK_ENDPOINT", "TRUE");
        for (service, region, set, host) in [
            (BedrockRuntime, "us-east-1", &[][..], "bedrock-runtime.us-east-1.amazonaws.com"),
            (BedrockRuntime, "us-east-1", &[FIPS], "bedrock-runtime-fips.us-east-1.amazonaws.com"),
            (
                BedrockRuntime,
                "us-gov-west-1",
                &[FIPS],
                "bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
            ),
            (BedrockRuntime, "eu-west-1", &[DUAL], "bedrock-runtime.eu-west-1.api.aws"),
            (
                BedrockRuntime,
                "cn-north-1",
                &[FIPS, DUAL],
                "bedrock-runtime-fips.cn-north-1.api.amazonwebservices.com.cn",
            ),
            (Sts, "cn-north-1", &[], "sts.cn-north-1.amazonaws.com.cn"),
            (Sts, "us-gov-west-1", &[FIPS], "sts.us-gov-west-1.amazonaws.com"),
            (Sts, "us-gov-west-1", &[FIPS, DUAL], "sts-fips.us-gov-west-1.api.aws"),
            (Sts, "us-isob-east-1", &[], "sts.us-isob-east-1.sc2s.sgov.gov"),
            (Sso, "us-west-2", &[FIPS], "portal.sso-fips.us-west-2.amazonaws.com"),
            (SsoOidc, "eusc-de-east-1", &[], "oidc.eusc-de-east-1.amazonaws.eu"),
        ] {
            assert_eq!(url(service, region, "", set), format!("https://{host}"), "{set:?}");
        }
        let config = "[default]\nuse_fips_endpoint = true\nuse_dualstack_endpoint = true\n";
        let off = [("AWS_USE_FIPS_ENDPOINT", "false")];
        assert_eq!(url(Sts, "us-east-1", config, &off), "https://sts.us-east-1.api.aws");
    }

    #[test]
    fn the_nearest_configured_address_is_used() {
        let config = "[profile p]\nservices = s\nendpoint_url = https://profile.example\n\
                      [services s]\nsts =\n  endpoint_url = https://section.example\n\
                      bedrock_runtime =\n  read_timeout = 5\n";
        let profile = ("AWS_PROFILE", "p");
        let all = ("AWS_ENDPOINT_URL", "https://all.example");
        let own = ("AWS_ENDPOINT_URL_STS", "http://own.example");
        let off = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
        let bad = ("AWS_ENDPOINT_URL_STS", "own.example");
        let fips = ("AWS_USE_FIPS_ENDPOINT", "true");
        for (set, wanted) in [
            (&[profile][..], "https://section.example"),
            (&[profile, all], "https://all.example"),
            (&[profile, all, own], "http://own.example"),
            (&[profile, all, own, off], "https://sts.us-east-1.amazonaws.com"),
            (&[], "https://sts.us-east-1.amazonaws.com"),
            (&[bad], "AWS_ENDPOINT_URL_STS is not an http:// or https:// address; correct it"),
            (
                &[profile, fips],
                "AWS_USE_FIPS_ENDPOINT contradicts the address in [services s] in ~/.aws/config; \
                 unset one of them",
            ),
            (
                &[("AWS_USE_FIPS_ENDPOINT", "yes")],
                "AWS_USE_FIPS_ENDPOINT is neither true nor false; correct it",
            ),
        ] {
            assert_eq!(url(AwsService::Sts, "us-east-1", config, set), wanted, "{set:?}");
        }
        let found = url(AwsService::BedrockRuntime, "us-east-1", config, &[profile]);
        assert_eq!(found, "https://profile.example", "the section has none for it");
    }
}
