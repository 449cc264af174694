//! The table of error classes: what each class means, and what to do about it.

use crate::recovery::ErrorClass;

/// Class, what happened, what to do next: written for a CI log.
pub(super) const CLASSES: [(ErrorClass, &str, &str); 25] = [
    (ErrorClass::Aborted, "the request was cut off on demand", ""),
    (
        ErrorClass::ApiTimeout,
        "the service did not answer in time",
        "Try again later. If a proxy or gateway is slow by design, raise \
             --first-byte-timeout or --request-timeout.",
    ),
    (
        ErrorClass::StreamStalled,
        "the service's answer stalled midway",
        "Try again later. If long silences are normal for this server, raise \
             --stream-idle-timeout or --stream-progress-timeout.",
    ),
    (
        ErrorClass::ConnectionError,
        "the service could not be reached, or broke the connection",
        "Check ANTHROPIC_BASE_URL, DNS, proxy variables and the runner's network; then try \
             again.",
    ),
    (
        ErrorClass::SslCertError,
        "the server's certificate was not accepted",
        "If a corporate proxy replaces certificates, name its CA file with --ca-file or in \
             NODE_EXTRA_CA_CERTS; check the machine's clock too.",
    ),
    (
        ErrorClass::RateLimit,
        "the service says that this account asks too often",
        "Try again later, run fewer jobs at once, have the account's limits raised, or set \
             OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.",
    ),
    (
        ErrorClass::ServerOverload,
        "the service is overloaded",
        "Try again later, name another model with --fallback-model, or set \
             OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.",
    ),
    (
        ErrorClass::Repeated529,
        "the service stayed overloaded through every retry",
        "Try again later, name another model with --fallback-model, or set \
             OUTLAST_UNATTENDED_RETRY=1 to wait as long as it takes.",
    ),
    (
        ErrorClass::ServerError,
        "the service failed",
        "Try again later; quote the request id if it persists.",
    ),
    (
        ErrorClass::QuotaExhausted,
        "the quota is used up, and does not come back soon enough to wait for",
        "Schedule the next attempt for then, raise --max-retry-wait, or use another account.",
    ),
    (
        ErrorClass::PromptTooLong,
        "the conversation does not fit the model's context window",
        "Give the task in smaller parts, or name files and line ranges instead of pasting \
             text.",
    ),
    (
        ErrorClass::RequestTooLarge,
        "the request has more bytes than the service takes",
        "Give the task in smaller parts; keep large files on disk and name them. If a proxy \
             refuses it, raise its body limit (nginx: client_max_body_size).",
    ),
    (
        ErrorClass::PdfTooLarge,
        "a PDF is too large for the service",
        "Extract its text and name that instead, for example with: pdftotext -layout FILE.pdf \
             FILE.txt",
    ),
    (
        ErrorClass::ImageTooLarge,
        "an image is too large for the service",
        "Scale it down first, for example with: magick FILE -resize 1500x1500 SMALL.png",
    ),
    (
        ErrorClass::ToolUseMismatch,
        "the service found tool calls and results that do not belong together",
        "Begin a new session; if it happens again, please report it with the journal.",
    ),
    (
        ErrorClass::InvalidModel,
        "the service does not know this model, or this account may not use it",
        "Check the spelling in --model, ANTHROPIC_MODEL and settings; clouds and gateways have \
             names of their own for models, and lists of who may use them.",
    ),
    (
        ErrorClass::CreditBalanceLow,
        "the account has no credit left, or has reached its spend limit",
        "Add credit or raise the limit in the console of the service or gateway; until then no \
             retry helps.",
    ),
    (
        ErrorClass::InvalidApiKey,
        "the service rejected the credential",
        "Check that the job's secret is set and current: ANTHROPIC_API_KEY, or \
             ANTHROPIC_AUTH_TOKEN for a bearer token.",
    ),
    (
        ErrorClass::TokenRevoked,
        "the credential was revoked, or has expired",
        "Make a new one and store it as the job's secret; one that lives shorter than the job \
             is best fetched by an API key helper.",
    ),
    (
        ErrorClass::AuthError,
        "the credential is valid but may not do this",
        "Ask for access to this model or workspace, or use another credential.",
    ),
    (
        ErrorClass::InvalidRequest,
        "the service calls the request wrong, so sending it again cannot help",
        "Check that the server at ANTHROPIC_BASE_URL speaks the Messages API for this model; if \
             its words name a message, a new session begins without it.",
    ),
    (
        ErrorClass::Refusal,
        "the model declined the task",
        "Its words are in partial_result; say more about the purpose, or change the task.",
    ),
    (
        ErrorClass::BadResponse,
        "the answers made no sense: not what the Messages API returns",
        "Check that ANTHROPIC_BASE_URL points at an API and not at a web page or a login \
             portal; a gateway there must keep the stop reasons of the Messages API.",
    ),
    (
        ErrorClass::EmptyResponse,
        "the model kept answering nothing",
        "Try again, or try another model.",
    ),
    (
        ErrorClass::Unknown,
        "the service answered in a way that outlast does not know",
        "Check ANTHROPIC_BASE_URL; if it is right, please report this.",
    ),
];
