//! What makes a tool the one it is.

use serde_json::{Value, json};

use crate::call::canonical::canonical;
use crate::call::json::digest;
use crate::tools::Tool;

/// SHA-256, in hex, of what the tool is and how it runs: a change of either makes its stored results another tool's.
pub fn definition_hash(tool: &Tool) -> String {
    hash_of(&definition_fields(tool))
}

/// SHA-256, in hex, of what [`definition_fields`] gives.
pub(crate) fn hash_of(fields: &Value) -> String {
    hex::encode(digest([canonical(fields).as_slice()]))
}

/// What the tool is and how it runs, in the author's order.
pub(crate) fn definition_fields(tool: &Tool) -> Value {
    let Tool { definition, kind, settings, .. } = tool;
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
    // A tool without the key keeps the hash that it had before there was one.
    definition.context.iter().for_each(|context| fields["context"] = json!(context));
    fields
}
