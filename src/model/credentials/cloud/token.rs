//! The credentials that an identity is exchanged for: a bearer token, or keys that sign requests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::fault::missing_credential;
use super::super::secret::Secret;
use crate::model::headers::wall_clock;
use crate::recovery::Fault;

/// A credential for requests to a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct CloudToken {
    pub(in super::super) kind: TokenKind,
    /// `None`: unknown, or never.
    pub(in super::super) expires: Option<SystemTime>,
    /// The project that a Google identity is billed to, if it names one.
    pub(in super::super) quota_project: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum TokenKind {
    Bearer(Secret),
    Aws(AwsKeys),
}

/// Keys that sign requests to AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct AwsKeys {
    pub(in super::super) id: String,
    pub(in super::super) secret: Secret,
    pub(in super::super) session: Option<Secret>,
}

impl CloudToken {
    pub(super) fn bearer(token: &str, expires: Option<SystemTime>) -> Self {
        Self { kind: TokenKind::Bearer(Secret::new(token)), expires, quota_project: None }
    }

    pub(super) fn aws(keys: AwsKeys, expires: Option<SystemTime>) -> Self {
        Self { kind: TokenKind::Aws(keys), expires, quota_project: None }
    }

    /// The keys in an answer of AWS or in the output of a command.
    pub(super) fn of_aws(value: &Value, from: &str) -> Result<Self, Box<Fault>> {
        let text = |names: [&str; 2]| {
            let found = names.iter().find_map(|name| value[*name].as_str());
            found.filter(|text| !text.is_empty())
        };
        let id = text(["AccessKeyId", "accessKeyId"]);
        let secret = text(["SecretAccessKey", "secretAccessKey"]);
        let (Some(id), Some(secret)) = (id, secret) else {
            let message = format!("{from} gave no AccessKeyId and SecretAccessKey");
            return Err(missing_credential("aws_no_credentials", message));
        };
        let session = text(["SessionToken", "sessionToken"]).or_else(|| text(["Token", "token"]));
        let keys = AwsKeys {
            id: id.to_owned(),
            secret: Secret::new(secret),
            session: session.map(Secret::new),
        };
        let expires =
            parse_expiry(&value["Expiration"]).or_else(|| parse_expiry(&value["expiration"]));
        Ok(Self::aws(keys, expires))
    }

    /// The part that identifies the token and is never shown.
    pub(in super::super) fn secret(&self) -> &Secret {
        match &self.kind {
            TokenKind::Bearer(token) => token,
            TokenKind::Aws(keys) => &keys.secret,
        }
    }

    /// All parts that must not be shown.
    pub(super) fn secrets(&self) -> Vec<&Secret> {
        match &self.kind {
            TokenKind::Bearer(token) => vec![token],
            TokenKind::Aws(keys) => [&keys.secret].into_iter().chain(&keys.session).collect(),
        }
    }

    /// True if the token stays valid for longer than `ahead`.
    pub(super) fn is_valid_for(&self, now: SystemTime, ahead: Duration) -> bool {
        let good = |end: SystemTime| end.duration_since(now).is_ok_and(|left| left > ahead);
        self.expires.is_none_or(good)
    }

    pub(super) fn to_json(&self) -> Value {
        let since = self.expires.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        let expires = since.map(|since| since.as_secs());
        let mut value = match &self.kind {
            TokenKind::Bearer(token) => json!({ "bearer": token.reveal() }),
            TokenKind::Aws(keys) => json!({
                "id": keys.id,
                "secret": keys.secret.reveal(),
                "session": keys.session.as_ref().map(Secret::reveal),
            }),
        };
        value["version"] = json!(1);
        value["expires"] = json!(expires);
        value["quota_project"] = json!(self.quota_project);
        value
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        if value["version"] != 1 {
            return None;
        }
        let kind = match value["bearer"].as_str() {
            Some(token) => TokenKind::Bearer(Secret::new(token)),
            None => TokenKind::Aws(AwsKeys {
                id: value["id"].as_str()?.to_owned(),
                secret: Secret::new(value["secret"].as_str()?),
                session: value["session"].as_str().map(Secret::new),
            }),
        };
        let expires = value["expires"].as_u64().map(Duration::from_secs);
        Some(Self {
            kind,
            expires: expires.and_then(|since| UNIX_EPOCH.checked_add(since)),
            quota_project: value["quota_project"].as_str().map(str::to_owned),
        })
    }
}

/// The end of a token with a lifetime of `seconds` from now.
pub(super) fn expiry_in(seconds: Option<u64>) -> Option<SystemTime> {
    wall_clock().checked_add(Duration::from_secs(seconds?))
}

/// Parses the end of a token: RFC 3339, or a number of seconds or milliseconds since 1970.
pub(super) fn parse_expiry(value: &Value) -> Option<SystemTime> {
    /// Larger numbers are milliseconds: as seconds they would be in the year 5138 or later.
    const SECONDS_MAX: f64 = 1e11;

    let seconds = match value {
        Value::String(text) => {
            return text.trim().parse::<jiff::Timestamp>().ok().map(SystemTime::from);
        }
        Value::Number(number) => number.as_f64()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let seconds = if seconds > SECONDS_MAX { seconds / 1e3 } else { seconds };
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}
