//! What an MCP tool says beyond its arguments (2025-11-25 and 2026-07-28, Tool).

use serde_json::Value;

use super::Offer;
use crate::call::{Definition, Effect, JsonObject};
use crate::schema;

/// The hints that an effect is good for.
const HINTS: [&str; 3] = ["readOnlyHint", "destructiveHint", "idempotentHint"];

/// A tool as `tools/list` of the MCP server shows it: the input schema as it was written, with `$schema`, `$defs` and all
/// that 2020-12 has, since whoever speaks MCP must take that; an output schema of any type, which 2026-07-28 allows.
pub(crate) fn written(offer: &Offer<'_>) -> JsonObject {
    let Definition { name, description, input_schema, output_schema, .. } = offer.definition;
    let mut tool = JsonObject::new();
    tool.insert("name".into(), name.as_str().into());
    if !description.trim().is_empty() {
        tool.insert("description".into(), description.as_str().into());
    }
    // MCP wants the root to say so itself.
    let is_object = input_schema.get("type") == Some(&Value::from("object"));
    let plain = (!is_object).then(|| schema::standalone(input_schema)).flatten();
    tool.insert("inputSchema".into(), plain.unwrap_or_else(|| Value::clone(input_schema)));
    complete(&mut tool, offer);
    if let Some(output) = output_schema.as_deref().and_then(schema::standalone) {
        tool.insert("outputSchema".into(), output);
    }
    tool
}

/// Adds title, output schema and annotations.
pub(super) fn complete(tool: &mut JsonObject, offer: &Offer<'_>) {
    let annotations = annotations(offer);
    // Clients before 2025-06-18 look for it among the annotations only.
    if let Some(title) = annotations.get("title") {
        tool.insert("title".into(), title.clone());
    }
    // Before 2026-07-28 structured content is an object, and so is the root of its schema.
    let output = offer.definition.output_schema.as_deref().and_then(schema::standalone);
    if let Some(output) = output.filter(|output| output.get("type") == Some(&Value::from("object"))) {
        tool.insert("outputSchema".into(), output);
    }
    tool.insert("annotations".into(), annotations.into());
}

/// What the tool says of itself, and of the rest what its effect says. A hint of another type than MCP's is left out: a
/// client would refuse the whole list for it.
fn annotations(offer: &Offer<'_>) -> JsonObject {
    let fits = |(name, value): &(&String, &Value)| match name.as_str() {
        "title" => value.is_string(),
        name => !name.ends_with("Hint") || value.is_boolean(),
    };
    let said = offer.definition.annotations.iter().filter(fits);
    let mut annotations: JsonObject = said.map(|(name, value)| (name.clone(), value.clone())).collect();
    let reads = annotations.get("readOnlyHint").and_then(Value::as_bool).unwrap_or(offer.effect == Effect::Read);
    let repeatable = reads || offer.effect == Effect::Idempotent;
    // What a write does to what was there is not known: MCP's default is the worst.
    for (name, hint) in HINTS.into_iter().zip([reads, !reads, repeatable]) {
        annotations.entry(name).or_insert(hint.into());
    }
    annotations
}
