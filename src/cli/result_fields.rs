//! Names of the fields of a result, for `--output-fields` and its completions.

use strsim::osa_distance;

/// All fields that results have, some of them only at certain ends.
pub const RESULT_FIELDS: [&str; 48] = [
    "type",
    "subtype",
    "is_error",
    "exit_code",
    "schema_version",
    "outlast_version",
    "outlast_commit",
    "session_id",
    "uuid",
    "result",
    "partial_result",
    "errors",
    "structured_output",
    "schema_attempts",
    "requirement",
    "terminal_reason",
    "stop_reason",
    "api_error_status",
    "api_error_class",
    "retryable",
    "retry_at",
    "request_id",
    "resume",
    "num_turns",
    "duration_ms",
    "duration_api_ms",
    "ttft_ms",
    "total_cost_usd",
    "usage",
    "modelUsage",
    "permission_denials",
    "recovery",
    "tools",
    "agents",
    "background",
    "budget",
    "durable",
    "journal",
    "warnings",
    "sandbox",
    "ignored_settings",
    "network_refused",
    "hooks",
    "mcp",
    "contract_changes",
    "deferred_tool_use",
    "rate_limits",
    "stdin",
];

/// No result has a field of a name. The text continues a sentence that began with the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not a field of the result; {}outlast help result lists them",
    .nearest.map_or(String::new(), |near| format!("did you mean {near}? "))
)]
pub(super) struct UnknownField {
    /// The field that was meant.
    nearest: Option<&'static str>,
}

/// Returns the name of a field, without blanks around it.
///
/// # Errors
/// No result has the field.
pub(super) fn parse(name: &str) -> Result<String, UnknownField> {
    let name = name.trim();
    if RESULT_FIELDS.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(UnknownField { nearest: nearest(name) })
}

fn nearest(name: &str) -> Option<&'static str> {
    // Only whole fields can be chosen: of `usage.input_tokens`, `usage`.
    let outer = name.split(['.', '[']).next().unwrap_or_default();
    let known = RESULT_FIELDS.iter().map(|known| (osa_distance(outer, known), *known));
    let (distance, near) = known.min()?;
    // A third of the letters may be wrong, but no more than three.
    (distance <= (outer.len() / 3).clamp(1, 3)).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_or_inner_field_is_refused_with_the_one_that_is_meant() {
        for (name, meant) in [
            ("structured_outputs", "structured_output"),
            ("model_usage", "modelUsage"),
            ("exit-code", "exit_code"),
            ("usage.input_tokens", "usage"),
            ("permission_denials[0]", "permission_denials"),
        ] {
            let error = parse(name).expect_err(name).to_string();
            assert!(error.contains(&format!("did you mean {meant}?")), "{name}: {error}");
        }
        for name in ["", "nonesuch"] {
            let error = parse(name).expect_err(name).to_string();
            assert!(!error.contains("did you mean"), "{name:?}: {error}");
        }
    }

    #[test]
    fn fields_of_certain_ends_and_blanks_around_a_name_are_allowed() {
        assert_eq!(parse("requirement"), Ok("requirement".to_owned()));
        assert_eq!(parse(" session_id "), Ok("session_id".to_owned()));
    }
}
