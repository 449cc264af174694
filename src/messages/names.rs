//! Schemas of the names that tables of other modules define.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::recovery::{ErrorClass, StopReason};

/// The `terminal_reason` for hosts of a run that ended with a failure of the service.
pub const API_ERROR: &str = "api_error";

/// The `terminal_reason` for hosts of a run that reached its budget.
pub const BUDGET_EXHAUSTED: &str = "budget_exhausted";

/// The `terminal_reason` of a run that did not begin because an MCP server was not available.
pub const MCP_UNAVAILABLE: &str = "mcp_unavailable";

/// Returns the schema of `terminal_reason`.
pub(super) fn terminal_reasons(_: &mut SchemaGenerator) -> Schema {
    let own = StopReason::all().map(StopReason::name);
    one_of(own.chain([MCP_UNAVAILABLE, API_ERROR, BUDGET_EXHAUSTED]))
}

/// Returns the schema of the `subtype` of a result.
pub(super) fn subtypes(_: &mut SchemaGenerator) -> Schema {
    one_of(StopReason::all().map(|reason| reason.info().subtype))
}

/// Returns the schema of the name of an error class, or null.
pub(super) fn error_class_or_null(_: &mut SchemaGenerator) -> Schema {
    let names = ErrorClass::ALL.into_iter().map(|class| Value::from(class.name()));
    json_schema!({ "enum": names.chain([Value::Null]).collect::<Vec<_>>() })
}

fn one_of(names: impl Iterator<Item = &'static str>) -> Schema {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    json_schema!({ "type": "string", "enum": distinct })
}
