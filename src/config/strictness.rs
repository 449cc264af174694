//! Compares values by how far they restrict a run.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::types::SandboxMode;

/// Whether a limit is no higher than the one below it.
pub(super) fn is_at_most<T: DeserializeOwned + PartialOrd>(
    value: &Value,
    below: Option<&Value>,
) -> bool {
    let read = |value: &Value| serde_json::from_value::<T>(value.clone()).ok();
    let below = below.and_then(read);
    read(value).is_some_and(|value| below.is_none_or(|below| value <= below))
}

/// Whether a sandbox holds at least what the one below it holds.
pub(super) fn is_stricter_mode(value: &Value, below: Option<&Value>) -> bool {
    let read = |value: &Value| serde_json::from_value::<SandboxMode>(value.clone()).ok();
    match (read(value), below.and_then(read)) {
        (None | Some(SandboxMode::Off), _) => false,
        (Some(_), None | Some(SandboxMode::Off | SandboxMode::Workspace)) => true,
        // Each holds something that the other does not.
        (Some(mode), Some(below @ (SandboxMode::ReadOnly | SandboxMode::Required))) => {
            mode == below
        }
    }
}

/// Whether to require a sandbox restricts a run, given the mode below.
pub(super) fn is_stricter_to_require(value: &Value, below: Option<&Value>) -> bool {
    value == true && is_stricter_mode(&Value::from("required"), below)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_counts_only_if_it_is_no_higher() {
        let table = [
            (json!(5), None, true),
            (json!(5), Some(json!(6)), true),
            (json!(5), Some(json!(5)), true),
            (json!(7), Some(json!(6)), false),
            (json!(0), Some(json!(6)), false),
            (json!("5"), None, false),
            (json!(null), None, false),
        ];
        for (value, below, wanted) in table {
            assert_eq!(
                is_at_most::<NonZeroU32>(&value, below.as_ref()),
                wanted,
                "{value} {below:?}"
            );
        }
    }

    #[test]
    fn a_sandbox_mode_counts_only_if_it_gives_nothing_up() {
        let modes = ["off", "workspace", "read-only", "required"];
        let wanted = [
            (None, ["workspace", "read-only", "required"].as_slice()),
            (Some("off"), &["workspace", "read-only", "required"]),
            (Some("workspace"), &["workspace", "read-only", "required"]),
            (Some("read-only"), &["read-only"]),
            (Some("required"), &["required"]),
        ];
        for (below, stricter) in wanted {
            let below = below.map(Value::from);
            for mode in modes {
                let is_stricter = is_stricter_mode(&json!(mode), below.as_ref());
                assert_eq!(is_stricter, stricter.contains(&mode), "{mode} over {below:?}");
            }
            let requires = is_stricter_to_require(&json!(true), below.as_ref());
            assert_eq!(requires, stricter.contains(&"required"), "{below:?}");
            assert!(!is_stricter_to_require(&json!(false), below.as_ref()));
        }
    }
}
