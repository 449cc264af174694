//! Compares values by how far they restrict a run.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::types::SandboxMode;

/// Returns true if a limit is at most that of the sources below.
pub(super) fn is_at_most<T: DeserializeOwned + PartialOrd>(
    value: &Value,
    below: Option<&Value>,
) -> bool {
    let read = |value: &Value| serde_json::from_value::<T>(value.clone()).ok();
    let below = below.and_then(read);
    read(value).is_some_and(|value| below.is_none_or(|below| value <= below))
}

/// Returns true if a sandbox mode is at least as strict as that of the sources below.
pub(super) fn is_stricter_mode(value: &Value, below: Option<&Value>) -> bool {
    let read = |value: &Value| serde_json::from_value::<SandboxMode>(value.clone()).ok();
    let below = below.and_then(read).unwrap_or(SandboxMode::Off);
    match read(value) {
        None | Some(SandboxMode::Off) => false,
        Some(mode) => {
            (mode.is_read_only() || !below.is_read_only())
                && (mode.is_required() || !below.is_required())
        }
    }
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
        let on = ["workspace", "read-only", "required", "read-only,required"];
        let wanted = [
            (None, on.as_slice()),
            (Some("off"), &on),
            (Some("workspace"), &on),
            (Some("read-only"), &["read-only", "read-only,required"]),
            (Some("required"), &["required", "read-only,required"]),
            (Some("read-only,required"), &["read-only,required"]),
        ];
        for (below, stricter) in wanted {
            let below = below.map(Value::from);
            for mode in on.into_iter().chain(["off"]) {
                let is_stricter = is_stricter_mode(&json!(mode), below.as_ref());
                assert_eq!(is_stricter, stricter.contains(&mode), "{mode} over {below:?}");
            }
        }
    }
}
