//! The services and their public addresses.

/// A service that offers the models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServiceKind {
    /// The Messages API, of its vendor or of a gateway.
    #[default]
    Messages,
    /// Amazon Bedrock.
    Bedrock { region: String },
    /// Google Vertex AI.
    Vertex { region: String, project: String },
    /// Microsoft Foundry. The resource is empty if a base URL is configured instead.
    Foundry { resource: String },
}

impl ServiceKind {
    /// The name of the service, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Messages => "the Messages API",
            Self::Bedrock { .. } => "Amazon Bedrock",
            Self::Vertex { .. } => "Google Vertex AI",
            Self::Foundry { .. } => "Microsoft Foundry",
        }
    }

    /// True for a cloud, which has its own identities.
    pub fn is_cloud(&self) -> bool {
        *self != Self::Messages
    }

    /// The public address. Empty if it comes from settings.
    pub fn base_url(&self) -> String {
        match self {
            Self::Messages | Self::Bedrock { .. } => String::new(),
            Self::Vertex { region, .. } => {
                let host = match region.as_str() {
                    "global" => "aiplatform.googleapis.com".to_owned(),
                    "us" | "eu" => format!("aiplatform.{region}.rep.googleapis.com"),
                    region => format!("{region}-aiplatform.googleapis.com"),
                };
                format!("https://{host}/v1")
            }
            Self::Foundry { resource } => {
                format!("https://{resource}.services.ai.azure.com/anthropic")
            }
        }
    }
}
