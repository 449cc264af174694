//! The error type of an invalid step of a scenario file.

/// The reason that a step of a scenario file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StepError {
    #[error("`empty = true` leaves no room for content")]
    EmptyWithContent,
    #[error("a reply needs `text`, `thinking` or `tool`, or `empty = true`")]
    NoContent,
    #[error("`raw` is all that is sent: it has no `fault` and no `headers`")]
    RawWithOthers,
    #[error(
        "a step needs an answer: `text`, `thinking`, `tool`, `empty = true`, `status`, `body`, \
         `raw` or `fault`"
    )]
    NoAnswer,
    #[error(
        "a step is one answer: a reply (`text`, `thinking`, `tool`, `stop_reason`, `usage`, \
         `form`), or `status` and what belongs to it, or `raw`"
    )]
    SeveralAnswers,
    #[error("`error` and `body` exclude each other")]
    ErrorAndBody,
    #[error("`{key}` belongs to a fault of kind {kinds}")]
    KeyOfOtherFault { key: &'static str, kinds: &'static str },
    #[error("this fault can only come after `headers`, or later")]
    BeforeHeaders,
    #[error("this fault can only come after `request`, `headers` or later")]
    BeforeRequest,
    #[error("`input` and `input_json` exclude each other")]
    TwoInputs,
    #[error("`input_json` is not JSON: {0}")]
    InputJson(String),
    #[error("a fault of kind `insert` needs `bytes`")]
    InsertsNothing,
}
