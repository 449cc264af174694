//! JSON Schema (draft 2020-12) of the messages.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::result::ResultObject;
use super::stream::StreamMessage;

/// Returns the schema of the result object.
pub fn result_schema() -> Value {
    schema_of::<ResultObject>()
}

/// Returns the schema of a line of `stream-json`.
pub fn stream_schema() -> Value {
    schema_of::<StreamMessage>()
}

/// Returns the names of all fields that results have, some of them only at certain ends.
pub fn result_fields() -> Vec<String> {
    let schema = result_schema();
    let fields = schema["properties"].as_object().into_iter().flat_map(|fields| fields.keys());
    fields.filter(|field| !ONLY_FOR_HOSTS.contains(&field.as_str())).cloned().collect()
}

/// Fields of results for hosts, which have no `--output-fields`.
const ONLY_FOR_HOSTS: [&str; 2] = ["user_message_uuid", "origin"];

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>().to_value()
}
