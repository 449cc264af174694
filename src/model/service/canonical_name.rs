//! Strips the prefixes and suffixes that clouds add to the names of models.

use std::borrow::Cow;

/// The prefix of Bedrock for the names of this vendor's models.
pub(super) const VENDOR: &str = "anthropic.";

/// Prefixes of Bedrock's cross-region inference profiles.
const PROFILES: [&str; 8] = ["us-gov", "us", "eu", "jp", "au", "apac", "ca", "global"];

/// Strips the prefix and suffix that a cloud adds to a model's name:
/// `us.anthropic.claude-x-20250929-v1:0`, `claude-x@20250929`, and the name at the end of an ARN.
/// Any other name is returned unchanged.
pub fn canonical_name(name: &str) -> Cow<'_, str> {
    let id = if name.starts_with("arn:") { name.rsplit('/').next().unwrap_or(name) } else { name };
    if let Some((model, version)) = id.split_once('@')
        && model.starts_with("claude")
    {
        let dated = version.len() == 8 && version.bytes().all(|digit| digit.is_ascii_digit());
        return if dated { Cow::Owned(format!("{model}-{version}")) } else { Cow::Borrowed(model) };
    }
    let Some(at) = id.find(VENDOR).filter(|at| *at == 0 || profile(&id[..*at]).is_some()) else {
        return Cow::Borrowed(name);
    };
    let model = &id[at + VENDOR.len()..];
    let revision = model.rfind("-v").filter(|at| {
        let rest = &model[at + 2..];
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
    });
    Cow::Borrowed(revision.map_or(model, |at| &model[..at]))
}

/// The inference profile of a Bedrock id, whose prefix ends with a dot.
fn profile(prefix: &str) -> Option<&'static str> {
    let name = prefix.strip_suffix('.')?;
    PROFILES.into_iter().find(|profile| *profile == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_cloud_becomes_the_canonical_name() {
        for (id, name) in [
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929"),
            ("anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
            ("us-gov.anthropic.claude-opus-5-5", "claude-opus-5-5"),
            (
                "arn:aws:bedrock:us-east-1:123456789012:inference-profile/eu.anthropic.claude-opus-5",
                "claude-opus-5",
            ),
            ("claude-haiku-4-5@20251001", "claude-haiku-4-5-20251001"),
            ("claude-haiku-4-5@latest", "claude-haiku-4-5"),
            ("not.anthropic.claude-x", "not.anthropic.claude-x"),
            ("qwen-v2:0", "qwen-v2:0"),
            (
                "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc",
                "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc",
            ),
        ] {
            assert_eq!(canonical_name(id), name);
        }
    }
}
