//! Names of the fields of a result, for `--output-fields`.

use strsim::osa_distance;

use crate::messages::result_fields;

/// The error for a name that is not a field of results. The text continues a sentence that begins
/// with the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not a field of the result; {}outlast help result lists them",
    .nearest.as_ref().map_or(String::new(), |near| format!("did you mean {near}? "))
)]
pub(super) struct UnknownField {
    /// The field that was meant.
    nearest: Option<String>,
}

/// Returns the name of a field, without blanks around it.
///
/// # Errors
/// No result has the field.
pub(super) fn parse(name: &str) -> Result<String, UnknownField> {
    let name = name.trim();
    let known = result_fields();
    if known.iter().any(|field| field == name) {
        return Ok(name.to_owned());
    }
    Err(UnknownField { nearest: nearest(name, &known).map(str::to_owned) })
}

fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    // Only outer fields can be chosen: for `usage.input_tokens`, suggest `usage`.
    let outer = name.split(['.', '[']).next().unwrap_or_default();
    let known = known.iter().map(|known| (osa_distance(outer, known), known.as_str()));
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
