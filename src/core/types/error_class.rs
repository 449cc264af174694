//! The classes of failed calls, and the table of their properties.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::exit_code;

/// The class of a failed call. A new class breaks the build until it has a row in the table below
/// and a plan in `recovery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The run was asked to stop.
    Aborted,
    /// A timer for connecting, the first byte or the whole call ran out.
    ApiTimeout,
    /// A stream stopped sending, or sent nothing but pings.
    StreamStalled,
    /// DNS, refused, reset, broken pipe, unexpected end.
    ConnectionError,
    /// The server's certificate was not accepted.
    SslCertError,
    /// 429: too many requests.
    RateLimit,
    /// 529: the service has no capacity.
    ServerOverload,
    /// 529 until the retries ran out.
    Repeated529,
    /// 5xx, 408, 409: the service failed.
    ServerError,
    /// The conversation does not fit the context window.
    PromptTooLong,
    /// 413: the request has too many bytes.
    RequestTooLarge,
    PdfTooLarge,
    ImageTooLarge,
    /// A `tool_use` without its `tool_result`, or the other way round.
    ToolUseMismatch,
    /// The model does not exist for this account.
    InvalidModel,
    /// No credit, or a spend limit was reached.
    CreditBalanceLow,
    InvalidApiKey,
    TokenRevoked,
    /// The credentials are valid, but do not permit this request.
    AuthError,
    /// The request is invalid, and will stay so.
    InvalidRequest,
    Refusal,
    /// A 200 whose content could not be parsed.
    BadResponse,
    /// A 200 that ended normally without content.
    EmptyResponse,
    /// A rate limit that resets too late to wait for.
    QuotaExhausted,
    Unknown,
}

/// The properties of a class: its row in the table.
#[derive(Debug)]
pub struct ErrorClassInfo {
    pub class: ErrorClass,
    pub origin: FailureOrigin,
    /// The name used in results, events and documentation.
    pub name: &'static str,
    /// The name that hosts of `stream-json` expect.
    pub category: &'static str,
    /// The exit code of a run that ends with it.
    pub exit_code: u8,
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
    /// The service does not offer the model of the sub-agent.
    UnknownModel,
    /// The service refused this request, and would refuse it again.
    Refused,
}

impl ErrorClass {
    /// Every class, in the order of the enum. A class without a row, or with one out of place,
    /// does not compile.
    pub const ALL: [Self; ROWS.len()] = {
        let mut all = [Self::Unknown; ROWS.len()];
        let mut at = 0;
        while at < all.len() {
            assert!(ROWS[at].class as usize == at, "the rows are in the order of the enum");
            all[at] = ROWS[at].class;
            at += 1;
        }
        assert!(all.len() == Self::Unknown as usize + 1, "every class has a row");
        all
    };

    pub const fn info(self) -> &'static ErrorClassInfo {
        &ROWS[self as usize]
    }

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
            Self::UnknownModel => {
                "The service does not have its model, or not for this user: name another model, or \
                 none."
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
            Self::UsedUp | Self::Locked | Self::UnknownModel => false,
        }
    }
}

const ROWS: &[ErrorClassInfo; 25] = &[
    ErrorClassInfo {
        class: ErrorClass::Aborted,
        origin: FailureOrigin::Run,
        name: "aborted",
        category: "unknown",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Busy,
        is_throttling: false,
        meaning: "the request was cut off on demand",
        hint: "",
    },
    ErrorClassInfo {
        class: ErrorClass::ApiTimeout,
        origin: FailureOrigin::Connection,
        name: "api_timeout",
        category: "server_error",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: false,
        meaning: "the service did not answer in time",
        hint: "Try again later. If a proxy or gateway is slow by design, raise \
               --first-byte-timeout or --request-timeout.",
    },
    ErrorClassInfo {
        class: ErrorClass::StreamStalled,
        origin: FailureOrigin::Connection,
        name: "stream_stalled",
        category: "server_error",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: false,
        meaning: "the service's answer stalled midway",
        hint: "Try again later. If long silences are normal for this server, raise \
               --stream-idle-timeout or --stream-progress-timeout.",
    },
    ErrorClassInfo {
        class: ErrorClass::ConnectionError,
        origin: FailureOrigin::Connection,
        name: "connection_error",
        category: "server_error",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: false,
        meaning: "the service could not be reached, or broke the connection",
        hint: "Check ANTHROPIC_BASE_URL, DNS, proxy variables and the runner's network; then try \
               again.",
    },
    ErrorClassInfo {
        class: ErrorClass::SslCertError,
        origin: FailureOrigin::Certificate,
        name: "ssl_cert_error",
        category: "unknown",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Locked,
        is_throttling: false,
        meaning: "the server's certificate was not accepted",
        hint: "If a corporate proxy replaces certificates, name its CA file with --ca-file or in \
               NODE_EXTRA_CA_CERTS; check the machine's clock too.",
    },
    ErrorClassInfo {
        class: ErrorClass::RateLimit,
        origin: FailureOrigin::Service,
        name: "rate_limit",
        category: "rate_limit",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: true,
        meaning: "the service says that this account asks too often",
        hint: "Try again later, run fewer jobs at once, have the account's limits raised, or set \
               OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.",
    },
    ErrorClassInfo {
        class: ErrorClass::ServerOverload,
        origin: FailureOrigin::Service,
        name: "server_overload",
        category: "overloaded",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: true,
        meaning: "the service is overloaded",
        hint: "Try again later, name another model with --fallback-model, or set \
               OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.",
    },
    ErrorClassInfo {
        class: ErrorClass::Repeated529,
        origin: FailureOrigin::Run,
        name: "repeated_529",
        category: "overloaded",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: true,
        meaning: "the service stayed overloaded through every retry",
        hint: "Try again later, name another model with --fallback-model, or set \
               OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.",
    },
    ErrorClassInfo {
        class: ErrorClass::ServerError,
        origin: FailureOrigin::Service,
        name: "server_error",
        category: "server_error",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: false,
        meaning: "the service failed",
        hint: "Try again later; quote the request id if it persists.",
    },
    ErrorClassInfo {
        class: ErrorClass::PromptTooLong,
        origin: FailureOrigin::Request,
        name: "prompt_too_long",
        category: "invalid_request",
        exit_code: exit_code::CONTEXT,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "the conversation does not fit the model's context window",
        hint: "Give the task in smaller parts, or name files and line ranges instead of pasting \
               text.",
    },
    ErrorClassInfo {
        class: ErrorClass::RequestTooLarge,
        origin: FailureOrigin::Request,
        name: "request_too_large",
        category: "invalid_request",
        exit_code: exit_code::CONTEXT,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "the request has more bytes than the service takes",
        hint: "Give the task in smaller parts; keep large files on disk and name them. If a proxy \
               refuses it, raise its body limit (nginx: client_max_body_size).",
    },
    ErrorClassInfo {
        class: ErrorClass::PdfTooLarge,
        origin: FailureOrigin::Request,
        name: "pdf_too_large",
        category: "invalid_request",
        exit_code: exit_code::CONTEXT,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "a PDF is too large for the service",
        hint: "Extract its text and name that instead, for example with: pdftotext -layout \
               FILE.pdf FILE.txt",
    },
    ErrorClassInfo {
        class: ErrorClass::ImageTooLarge,
        origin: FailureOrigin::Request,
        name: "image_too_large",
        category: "invalid_request",
        exit_code: exit_code::CONTEXT,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "an image is too large for the service",
        hint: "Scale it down first, for example with: magick FILE -resize 1500x1500 SMALL.png",
    },
    ErrorClassInfo {
        class: ErrorClass::ToolUseMismatch,
        origin: FailureOrigin::Request,
        name: "tool_use_mismatch",
        category: "invalid_request",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "the service found tool calls and results that do not belong together",
        hint: "Begin a new session; if it happens again, please report it with the journal.",
    },
    ErrorClassInfo {
        class: ErrorClass::InvalidModel,
        origin: FailureOrigin::Access,
        name: "invalid_model",
        category: "model_not_found",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::UnknownModel,
        is_throttling: false,
        meaning: "the service does not know this model, or this account may not use it",
        hint: "Check the spelling in --model, ANTHROPIC_MODEL and settings; clouds and gateways \
               have names of their own for models, and lists of who may use them.",
    },
    ErrorClassInfo {
        class: ErrorClass::CreditBalanceLow,
        origin: FailureOrigin::Credential,
        name: "credit_balance_low",
        category: "billing_error",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::UsedUp,
        is_throttling: false,
        meaning: "the account has no credit left, or has reached its spend limit",
        hint: "Add credit or raise the limit in the console of the service or gateway; until then \
               no retry helps.",
    },
    ErrorClassInfo {
        class: ErrorClass::InvalidApiKey,
        origin: FailureOrigin::Credential,
        name: "invalid_api_key",
        category: "authentication_failed",
        exit_code: exit_code::CREDENTIALS,
        probe: ProbeFinding::Answers,
        outlook: SubagentOutlook::Locked,
        is_throttling: false,
        meaning: "the service rejected the credential",
        hint: "Check that the job's secret is set and current: ANTHROPIC_API_KEY, or \
               ANTHROPIC_AUTH_TOKEN for a bearer token.",
    },
    ErrorClassInfo {
        class: ErrorClass::TokenRevoked,
        origin: FailureOrigin::Credential,
        name: "token_revoked",
        category: "authentication_failed",
        exit_code: exit_code::CREDENTIALS,
        probe: ProbeFinding::Answers,
        outlook: SubagentOutlook::Locked,
        is_throttling: false,
        meaning: "the credential was revoked, or has expired",
        hint: "Make a new one and store it as the job's secret; one that lives shorter than the \
               job is best fetched by an API key helper.",
    },
    ErrorClassInfo {
        class: ErrorClass::AuthError,
        origin: FailureOrigin::Access,
        name: "auth_error",
        category: "authentication_failed",
        exit_code: exit_code::CREDENTIALS,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Locked,
        is_throttling: false,
        meaning: "the credential is valid but may not do this",
        hint: "Ask for access to this model or workspace, or use another credential.",
    },
    ErrorClassInfo {
        class: ErrorClass::InvalidRequest,
        origin: FailureOrigin::Request,
        name: "invalid_request",
        category: "invalid_request",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "the service calls the request wrong, so sending it again cannot help",
        hint: "Check that the server at ANTHROPIC_BASE_URL speaks the Messages API for this model; \
               if its words name a message, a new session begins without it.",
    },
    ErrorClassInfo {
        class: ErrorClass::Refusal,
        origin: FailureOrigin::Model,
        name: "refusal",
        category: "unknown",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "the model declined the task",
        hint: "Its words are in partial_result; say more about the purpose, or change the task.",
    },
    ErrorClassInfo {
        class: ErrorClass::BadResponse,
        origin: FailureOrigin::Connection,
        name: "bad_response",
        category: "server_error",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: false,
        meaning: "the answers made no sense: not what the Messages API returns",
        hint: "Check that ANTHROPIC_BASE_URL points at an API and not at a web page or a login \
               portal; a gateway there must keep the stop reasons of the Messages API.",
    },
    ErrorClassInfo {
        class: ErrorClass::EmptyResponse,
        origin: FailureOrigin::Run,
        name: "empty_response",
        category: "unknown",
        exit_code: exit_code::NO_PROGRESS,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::Busy,
        is_throttling: false,
        meaning: "the model kept answering nothing",
        hint: "Try again, or try another model.",
    },
    ErrorClassInfo {
        class: ErrorClass::QuotaExhausted,
        origin: FailureOrigin::Run,
        name: "quota_exhausted",
        category: "rate_limit",
        exit_code: exit_code::TEMPORARY,
        probe: ProbeFinding::StillOut,
        outlook: SubagentOutlook::UsedUp,
        is_throttling: true,
        meaning: "the quota is used up, and does not come back soon enough to wait for",
        hint: "Schedule the next attempt for then, raise --max-retry-wait, or use another account.",
    },
    ErrorClassInfo {
        class: ErrorClass::Unknown,
        origin: FailureOrigin::Request,
        name: "unknown",
        category: "unknown",
        exit_code: exit_code::FAILED,
        probe: ProbeFinding::RefusesProbes,
        outlook: SubagentOutlook::Refused,
        is_throttling: false,
        meaning: "the service answered in a way that outlast does not know",
        hint: "Check ANTHROPIC_BASE_URL; if it is right, please report this.",
    },
];
