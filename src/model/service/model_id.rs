//! The names of models at each service, and the regional surcharges on their prices.

use std::borrow::Cow;

use super::canonical_name::{VENDOR, canonical_name};
use super::kind::ServiceKind;
use crate::model::prices;

/// The name of a model at the service `kind`. A name that is not canonical is used as it is.
pub fn model_id<'a>(kind: &ServiceKind, name: &'a str) -> Cow<'a, str> {
    if !name.starts_with("claude-") {
        return Cow::Borrowed(name);
    }
    let date = name
        .rsplit_once('-')
        .filter(|(_, end)| end.len() == 8 && end.bytes().all(|digit| digit.is_ascii_digit()));
    match kind {
        ServiceKind::Messages | ServiceKind::Foundry { .. } => Cow::Borrowed(name),
        ServiceKind::Bedrock { region } => {
            let profile = profile_of_region(region);
            let model = match date {
                Some(_) => Cow::Owned(format!("{name}-v1:0")),
                None => Cow::Borrowed(prices::bedrock_name(name).unwrap_or(name)),
            };
            Cow::Owned(format!("{profile}.{VENDOR}{model}"))
        }
        ServiceKind::Vertex { .. } if name.contains('@') => Cow::Borrowed(name),
        ServiceKind::Vertex { .. } => match date {
            Some((model, date)) => Cow::Owned(format!("{model}@{date}")),
            None => Cow::Borrowed(prices::vertex_name(name).unwrap_or(name)),
        },
    }
}

/// The inference profile that keeps requests within the geography of a region. Regions without one
/// use the global profile.
fn profile_of_region(region: &str) -> &'static str {
    match region {
        _ if region.starts_with("us-gov-") => "us-gov",
        _ if region.starts_with("us-") || region.starts_with("ca-") => "us",
        _ if region.starts_with("eu-") => "eu",
        "ap-northeast-1" | "ap-northeast-3" => "jp",
        "ap-southeast-2" | "ap-southeast-4" => "au",
        _ => "global",
    }
}

/// The price of a model at this service in per cent of its list price: requests that stay within a
/// geography cost more with the models that also have a global endpoint.
pub fn region_surcharge(kind: &ServiceKind, name: &str) -> u64 {
    const LIST: u64 = 100;

    let is_global = match kind {
        ServiceKind::Messages | ServiceKind::Foundry { .. } => true,
        ServiceKind::Bedrock { .. } => {
            let id = model_id(kind, name);
            id.rsplit('/').next().unwrap_or_default().starts_with("global.")
        }
        ServiceKind::Vertex { region, .. } => region == "global",
    };
    if is_global { LIST } else { prices::regional_percent(&canonical_name(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bedrock(region: &str) -> ServiceKind {
        ServiceKind::Bedrock { region: region.to_owned() }
    }

    #[test]
    fn a_canonical_name_becomes_the_id_of_each_cloud() {
        let vertex = ServiceKind::Vertex { region: "global".into(), project: "p".into() };
        for (name, at_bedrock, at_vertex) in [
            ("claude-opus-5-5", "eu.anthropic.claude-opus-5-5", "claude-opus-5-5"),
            (
                "claude-sonnet-4-5",
                "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "claude-sonnet-4-5@20250929",
            ),
            (
                "claude-sonnet-4-5-20250929",
                "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "claude-sonnet-4-5@20250929",
            ),
            ("claude-opus-4-6", "eu.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
            ("claude-x@20270101", "eu.anthropic.claude-x@20270101", "claude-x@20270101"),
            ("global.anthropic.claude-x", "global.anthropic.claude-x", "global.anthropic.claude-x"),
        ] {
            assert_eq!(model_id(&bedrock("eu-west-1"), name), at_bedrock);
            assert_eq!(model_id(&vertex, name), at_vertex);
            assert_eq!(model_id(&ServiceKind::Foundry { resource: String::new() }, name), name);
        }
        for (region, prefix) in [
            ("us-gov-west-1", "us-gov"),
            ("us-east-1", "us"),
            ("ca-central-1", "us"),
            ("ap-northeast-1", "jp"),
            ("ap-southeast-2", "au"),
            ("ap-south-1", "global"),
        ] {
            let id = format!("{prefix}.anthropic.claude-opus-5-5");
            assert_eq!(model_id(&bedrock(region), "claude-opus-5-5"), id);
        }
    }

    #[test]
    fn requests_within_a_geography_cost_more_with_newer_models() {
        let vertex = |region: &str| ServiceKind::Vertex {
            region: region.to_owned(),
            project: "p".to_owned(),
        };
        assert_eq!(region_surcharge(&ServiceKind::Messages, "claude-opus-5-5"), 100);
        assert_eq!(region_surcharge(&bedrock("us-east-1"), "claude-opus-5-5"), 110);
        assert_eq!(
            region_surcharge(&bedrock("us-east-1"), "global.anthropic.claude-opus-5-5"),
            100
        );
        assert_eq!(region_surcharge(&bedrock("us-east-1"), "claude-opus-4-1"), 100);
        assert_eq!(region_surcharge(&vertex("global"), "claude-opus-5-5"), 100);
        assert_eq!(region_surcharge(&vertex("europe-west1"), "claude-opus-5-5"), 110);
        assert_eq!(region_surcharge(&vertex("eu"), "claude-opus-4-1@20250805"), 100);
    }
}
