//! What an MCP tool says beyond its arguments (2025-11-25 and 2026-07-28, Tool).

use serde_json::Value;

use super::Offer;
use crate::call::{Effect, JsonObject};
use crate::schema;

/// The hints that an effect is good for.
const HINTS: [&str; 3] = ["readOnlyHint", "destructiveHint", "idempotentHint"];

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
