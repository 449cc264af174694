//! The classes of failed calls, and the table of their properties.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::exit_code;

/// The properties of a class: its row in the table.
#[derive(Debug)]
pub struct ErrorClassInfo {
    /// The name used in results, events and documentation.
    pub name: &'static str,
    /// The name that hosts of `stream-json` expect.
    pub category: &'static str,
    /// The exit code of a run that ends with this class.
    pub exit_code: u8,
    pub origin: FailureOrigin,
    pub probe: ProbeFinding,
    pub outlook: SubagentOutlook,
    /// True if the service throttles, so that fewer requests at a time may pass.
    pub is_throttling: bool,
    /// The description of the failure.
    pub meaning: &'static str,
    /// The advice on the next step, for a reader of a CI log; may be empty.
    pub hint: &'static str,
}

/// The part of a call at which a failure originates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOrigin {
    /// The connection to the endpoint, or the program that answers there.
    Connection,
    /// The certificate of the endpoint.
    Certificate,
    /// The service.
    Service,
    /// The permission to use the model, which another model may not need.
    Access,
    /// The credential, or the account that it belongs to.
    Credential,
    /// The content of the request.
    Request,
    /// The model, which declined.
    Model,
    /// outlast itself: the run was stopped, or gave up.
    Run,
}

/// The finding of a failed capacity probe about the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFinding {
    /// The service probably still has no capacity.
    StillOut,
    /// The service answers requests again but refuses this credential: the real request handles
    /// that.
    Answers,
    /// The service refuses probes of any kind, so they have no meaning here.
    RefusesProbes,
}

/// The outlook for another sub-agent after one has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubagentOutlook {
    /// The service was too busy or out of reach.
    Busy,
    /// The account has no credit or quota left.
    UsedUp,
    /// No agent of this run can use the service.
    Locked,
    /// The service does not offer the model of the sub-agent, or not to this credential.
    NoModel,
    /// The service refused this request, and would refuse it again.
    Refused,
}

/// Defines the classes from one row each: the variant, then the columns of [`ErrorClassInfo`] in
/// their order, with `throttling` only where the service throttles.
macro_rules! error_classes {
    ($($(#[$doc:meta])* $class:ident => $name:literal, $category:literal, $exit_code:ident,
        $origin:ident, $probe:ident, $outlook:ident $(, $throttling:ident)?:
        $meaning:literal, $hint:literal;)*) => {
        /// The class of a failed call. A new class breaks the build until it has a plan in
        /// `recovery`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorClass {
            $($(#[$doc])* $class,)*
        }

        impl ErrorClass {
            pub const ALL: [Self; 26] = [$(Self::$class),*];

            pub const fn info(self) -> &'static ErrorClassInfo {
                match self {
                    $(Self::$class => &ErrorClassInfo {
                        name: $name,
                        category: $category,
                        exit_code: exit_code::$exit_code,
                        origin: FailureOrigin::$origin,
                        probe: ProbeFinding::$probe,
                        outlook: SubagentOutlook::$outlook,
                        is_throttling: error_classes!(@ $($throttling)?),
                        meaning: $meaning,
                        hint: $hint,
                    },)*
                }
            }
        }
    };
    (@) => { false };
    (@ throttling) => { true };
}

error_classes! {
    /// The run was asked to stop.
    Aborted => "aborted", "unknown", FAILED, Run, RefusesProbes, Busy:
        "the request was cut off on demand", "";
    /// A timer for connecting, the first byte or the whole call ran out.
    ApiTimeout => "api_timeout", "server_error", TEMPORARY, Connection, StillOut, Busy:
        "the service did not answer in time",
        "Try again later. If a proxy or gateway is slow by design, raise --first-byte-timeout or \
         --request-timeout.";
    /// A stream stopped sending, or sent only pings.
    StreamStalled => "stream_stalled", "server_error", TEMPORARY, Connection, StillOut, Busy:
        "the service's answer stalled midway",
        "Try again later. If long silences are normal for this server, raise --stream-idle-timeout \
         or --stream-progress-timeout.";
    /// DNS, refused, reset, broken pipe, unexpected end.
    ConnectionError => "connection_error", "server_error", TEMPORARY, Connection, StillOut, Busy:
        "the service could not be reached, or broke the connection",
        "Check ANTHROPIC_BASE_URL, DNS, proxy variables, the runner's network and its limit of open \
         files (ulimit -n); then try again.";
    /// The server's certificate was not accepted, or one side refused the TLS handshake.
    SslCertError => "ssl_cert_error", "unknown", FAILED, Certificate, StillOut, Locked:
        "no TLS connection was made: a certificate or the handshake was not accepted",
        "Check https:// and the port of ANTHROPIC_BASE_URL. If a corporate proxy replaces certificates, name its CA file with --ca-file or in \
         NODE_EXTRA_CA_CERTS; check the machine's clock too.";
    /// 429: too many requests.
    RateLimit => "rate_limit", "rate_limit", TEMPORARY, Service, StillOut, Busy, throttling:
        "the service says that this account asks too often",
        "Try again later, run fewer jobs at once, have the account's limits raised, or set \
         OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.";
    /// 529 or 498: the service has no capacity.
    ServerOverload => "server_overload", "overloaded",
        TEMPORARY, Service, StillOut, Busy, throttling:
        "the service is overloaded",
        "Try again later, name another model with --fallback-model, or set \
         OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.";
    /// 529 until the retries ran out.
    Repeated529 => "repeated_529", "overloaded", TEMPORARY, Run, StillOut, Busy, throttling:
        "the service stayed overloaded through every retry",
        "Try again later, name another model with --fallback-model, or set \
         OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.";
    /// 5xx, or a 4xx for a condition that passes (408, 409, 423, 425 ...): the service failed.
    ServerError => "server_error", "server_error", TEMPORARY, Service, StillOut, Busy:
        "the service failed", "Try again later; quote the request id if it persists.";
    /// The conversation does not fit the context window.
    PromptTooLong => "prompt_too_long", "invalid_request", CONTEXT, Request, RefusesProbes, Refused:
        "the conversation does not fit the model's context window",
        "Give the task in smaller parts, or name files and line ranges instead of pasting text.";
    /// 413: the request has too many bytes.
    RequestTooLarge => "request_too_large", "invalid_request",
        CONTEXT, Request, RefusesProbes, Refused:
        "the request has more bytes than the service takes",
        "Give the task in smaller parts; keep large files on disk and name them. If a proxy \
         refuses it, raise its body limit (nginx: client_max_body_size).";
    PdfTooLarge => "pdf_too_large", "invalid_request", CONTEXT, Request, RefusesProbes, Refused:
        "a PDF is too large for the service",
        "Extract its text and name that instead, for example with: pdftotext -layout FILE.pdf \
         FILE.txt";
    ImageTooLarge => "image_too_large", "invalid_request", CONTEXT, Request, RefusesProbes, Refused:
        "an image is too large for the service, or the model takes no images",
        "Scale it down first, for example with: magick FILE -resize 1500x1500 SMALL.png; or name a \
         model that takes images.";
    /// A `tool_use` without its `tool_result`, or a `tool_result` without its `tool_use`.
    ToolUseMismatch => "tool_use_mismatch", "invalid_request",
        FAILED, Request, RefusesProbes, Refused:
        "the service found tool calls and results that do not belong together",
        "Begin a new session; if it happens again, please report it with the journal.";
    /// The model does not exist for this account.
    InvalidModel => "invalid_model", "model_not_found", FAILED, Access, RefusesProbes, NoModel:
        "the service does not know this model, or this account may not use it",
        "Check the spelling in --model, ANTHROPIC_MODEL and settings; clouds and gateways have \
         names of their own for models, and lists of who may use them.";
    /// No credit, or a spend limit was reached.
    CreditBalanceLow => "credit_balance_low", "billing_error",
        FAILED, Credential, RefusesProbes, UsedUp:
        "the account has no credit left, or has reached its spend limit",
        "Add credit or raise the limit in the console of the service or gateway; until then no \
         retry helps.";
    InvalidApiKey => "invalid_api_key", "authentication_failed",
        CREDENTIALS, Credential, Answers, Locked:
        "the service rejected the credential",
        "Check that the job's secret is set and current: ANTHROPIC_API_KEY, or \
         ANTHROPIC_AUTH_TOKEN for a bearer token.";
    TokenRevoked => "token_revoked", "authentication_failed",
        CREDENTIALS, Credential, Answers, Locked:
        "the credential was revoked, or has expired",
        "Make a new one and store it as the job's secret; one that lives shorter than the job is \
         best fetched by an API key helper.";
    /// The credentials are valid, but do not permit this request.
    AuthError => "auth_error", "authentication_failed", CREDENTIALS, Access, RefusesProbes, NoModel:
        "the credential is valid but may not do this",
        "Ask for access to this model or workspace, or use another credential.";
    /// The request is invalid, and will stay so.
    InvalidRequest => "invalid_request", "invalid_request", FAILED, Request, RefusesProbes, Refused:
        "the service calls the request wrong, so sending it again cannot help",
        "Check that the server at ANTHROPIC_BASE_URL speaks the Messages API for this model; if \
         its words name a message, a new session begins without it.";
    Refusal => "refusal", "unknown", FAILED, Model, RefusesProbes, Refused:
        "the model declined the task",
        "Its words, if there are any, are in partial_result; say more about the purpose, or change the task.";
    /// A content filter refused the request, or stopped the output each time.
    ContentFiltered => "content_filtered", "invalid_request", FAILED, Model, RefusesProbes, Refused:
        "a content filter of the service or a gateway refused the request, or stopped each reply",
        "Change the task, or the texts that it reads; a filter that a cloud or a gateway adds may \
         have settings there.";
    /// A 200 whose content could not be parsed.
    BadResponse => "bad_response", "server_error", FAILED, Connection, StillOut, Busy:
        "the answers made no sense: not what the Messages API returns",
        "Check that ANTHROPIC_BASE_URL points at an API and not at a web page or a login portal; a \
         gateway there must keep the stop reasons of the Messages API.";
    /// A 200 that ended normally without content.
    EmptyResponse => "empty_response", "unknown", NO_PROGRESS, Run, StillOut, Busy:
        "the model kept answering nothing", "Try again, or try another model.";
    /// A rate limit that resets too late to wait for.
    QuotaExhausted => "quota_exhausted", "rate_limit", TEMPORARY, Run, StillOut, UsedUp, throttling:
        "the quota is used up, and does not come back soon enough to wait for",
        "Schedule the next attempt for then, allow a longer wait with --max-retry-wait and \
         --max-duration, or use another account.";
    Unknown => "unknown", "unknown", FAILED, Request, RefusesProbes, Refused:
        "the service answered in a way that outlast does not know",
        "Check ANTHROPIC_BASE_URL; if it is right, please report this.";
}

impl ErrorClass {
    pub const fn name(self) -> &'static str {
        self.info().name
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl SubagentOutlook {
    /// The advice to the agent that started the sub-agent.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Busy => {
                "The service could not be reached, or was overloaded, after all retries: continue \
                 with the rest later, or do it yourself."
            }
            Self::UsedUp => {
                "The quota of the model is used up for now, for other agents as well: finish with \
                 what there is."
            }
            Self::Locked => {
                "The service rejected the credential, and will reject that of other agents as \
                 well: this cannot be fixed from within the run."
            }
            Self::NoModel => {
                "The service does not have its model, or the credential may not use it: name \
                 another model, or none."
            }
            Self::Refused => {
                "The service refused its request, and would refuse the same request again: \
                 rephrase the task, or split it."
            }
        }
    }

    /// True if a second attempt may end differently.
    pub const fn may_succeed_on_retry(self) -> bool {
        match self {
            Self::Busy | Self::Refused => true,
            Self::UsedUp | Self::Locked | Self::NoModel => false,
        }
    }
}
