//! The hash that identifies a tool.

use serde_json::{Value, json};

use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::kinds::Tool;

/// SHA-256, in hex, of the tool's definition and the way it runs. If either changes, earlier stored
/// results are not used.
pub fn definition_hash(tool: &Tool) -> String {
    hash_fields(&definition_fields(tool))
}

/// SHA-256, in hex, of the result of [`definition_fields`].
pub(crate) fn hash_fields(fields: &Value) -> String {
    hex::encode(hash_parts([canonical_json(fields).as_slice()]))
}

/// The tool's definition and the way it runs, in the author's order.
pub(crate) fn definition_fields(tool: &Tool) -> Value {
    let Tool {
        definition,
        kind,
        settings,
        ..
    } = tool;
    let mut fields = json!({
        "name": definition.name,
        "description": definition.description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        "annotations": definition.annotations,
        "result_as_answer": definition.result_as_answer,
        "kind": kind,
        "implementation": settings.implementation,
    });
    // A tool without this key keeps the hash that it had before the key existed.
    definition
        .context
        .iter()
        .for_each(|context| fields["context"] = json!(context));
    fields
}
