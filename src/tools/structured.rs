//! The `StructuredOutput` tool: receives the answer of a run and validates it against the schema.
//!
//! A call only stores the answer. It ends the run only after every call of the same reply is done:
//! an answer that was written before the model saw another call fail is discarded.

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::json::read_exact;
use crate::transcript::{ToolDefinition, input_in_json, last_data_block};

use super::coercion::coerce;
use super::outcome::ToolOutcome;
use super::schema::AnswerSchema;

/// The tool's name.
pub const STRUCTURED_OUTPUT: &str = "StructuredOutput";

const DESCRIPTION: &str = "Gives the final answer of this task, and ends it. Call it once, by \
                           itself, when everything else is done and you have seen how it went. \
                           The input is the answer. If it does not fit, the error says where: \
                           correct that and call again.";

/// The outcome of the other calls of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherCalls {
    /// All succeeded, or there were none.
    Succeeded,
    /// At least one failed, was refused or was cancelled.
    Failed,
}

/// The result of the `StructuredOutput` calls of one reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// There were none.
    Nothing,
    /// The valid answer; the last one of several.
    Answer(Value),
    /// None was valid, or another call of the reply failed.
    Invalid,
}

#[derive(Debug)]
pub(super) struct StructuredAnswers {
    schema: AnswerSchema,
    book: Mutex<AnswerBook>,
}

#[derive(Debug, Default)]
struct AnswerBook {
    /// The number of calls that were checked since the last settling.
    calls: u32,
    latest: Option<Value>,
    /// The number of calls that were checked in total.
    attempts: u32,
    delivered: Option<Value>,
}

impl StructuredAnswers {
    pub(super) fn new(schema: AnswerSchema) -> Self {
        Self { schema, book: Mutex::default() }
    }

    pub(super) fn define(&self) -> ToolDefinition {
        ToolDefinition {
            name: STRUCTURED_OUTPUT.to_string(),
            description: DESCRIPTION.to_string(),
            input_schema: self.schema.offered().clone(),
        }
    }

    /// Returns the input of a call with the answer that the model wrote as text: JSON, alone or in
    /// the code block at the end, also as a call of this tool. It is not validated.
    pub(super) fn input_in_text(&self, text: &str) -> Option<Value> {
        let value = read_exact(last_data_block(text).unwrap_or(text).trim()).ok()?;
        let answer = match input_in_json(&value, STRUCTURED_OUTPUT) {
            Some(Value::String(input)) => read_exact(input).ok()?,
            Some(input) => input.clone(),
            None => value,
        };
        self.schema.input_for(answer)
    }

    /// Validates the input of a call, and stores it if it is valid, with its types repaired if need
    /// be. Blocks: a schema may be slow to check. A cancelled call has no effect.
    pub(super) fn validate_and_store(
        &self,
        input: &Value,
        stop: &CancellationToken,
    ) -> ToolOutcome {
        let read = self.schema.extract_answer(input).or_else(|violations| {
            let mut repaired = input.clone();
            coerce(&mut repaired, self.schema.offered());
            self.schema.extract_answer(&repaired).map_err(|_| violations)
        });
        if stop.is_cancelled() {
            return ToolOutcome::interrupted();
        }
        let mut book = self.book.lock();
        book.calls += 1;
        book.attempts += 1;
        match read {
            Ok(answer) => {
                let detail = json!({ "structured_output": answer });
                book.latest = Some(answer);
                ToolOutcome::text(
                    "The answer fits. It is final, unless another call of the same reply failed: \
                     then see to that first, and give the answer again.",
                    detail,
                )
            }
            Err(violations) => ToolOutcome::failure(format!(
                "InputValidationError: {STRUCTURED_OUTPUT}: the answer does not fit the schema:\n\
                 - {}\nCorrect this, and call {STRUCTURED_OUTPUT} again with the whole answer.",
                violations.join("\n- ")
            )),
        }
    }

    /// Settles the calls of a finished reply.
    pub(super) fn settle(&self, others: OtherCalls) -> Delivery {
        let mut book = self.book.lock();
        let calls = std::mem::take(&mut book.calls);
        match (book.latest.take(), others) {
            (Some(answer), OtherCalls::Succeeded) => {
                book.delivered = Some(answer.clone());
                Delivery::Answer(answer)
            }
            (Some(_), OtherCalls::Failed) => Delivery::Invalid,
            (None, _) if calls > 0 => Delivery::Invalid,
            (None, _) => Delivery::Nothing,
        }
    }

    pub(super) fn attempts(&self) -> u32 {
        self.book.lock().attempts
    }

    pub(super) fn delivered(&self) -> Option<Value> {
        self.book.lock().delivered.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_structured_output_call_is_neither_stored_nor_counted() {
        let schema = AnswerSchema::new(json!({ "type": "object" })).expect("a schema");
        let (answers, stop) = (StructuredAnswers::new(schema), CancellationToken::new());
        stop.cancel();
        assert_eq!(answers.validate_and_store(&json!({}), &stop), ToolOutcome::interrupted());
        assert_eq!(answers.settle(OtherCalls::Succeeded), Delivery::Nothing);
        assert_eq!(answers.attempts(), 0);
    }
}
