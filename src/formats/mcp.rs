//! The fields of an MCP tool besides its name and input schema (Tool, MCP 2025-11-25 and
//! 2026-07-28).

use serde_json::Value;

use super::ListedTool;
use crate::call::{Effect, JsonObject};
use crate::schema;

/// The hints that can be derived from an effect.
const EFFECT_HINTS: [&str; 3] = ["readOnlyHint", "destructiveHint", "idempotentHint"];

/// A tool as `tools/list` of the MCP server shows it. The input schema is unchanged, with
/// `$schema`, `$defs` and all of 2020-12, because every MCP client must accept that. The output
/// schema may have any type, which 2026-07-28 allows.
pub(crate) fn render_tool(offer: &ListedTool<'_>) -> JsonObject {
    let definition = offer.definition;
    let mut tool = JsonObject::new();
    tool.insert("name".into(), definition.name.as_str().into());
    if !definition.description.trim().is_empty() {
        tool.insert("description".into(), definition.description.as_str().into());
    }
    // MCP requires `type: object` at the root itself.
    let is_object = definition.input_schema.get("type") == Some(&Value::from("object"));
    let plain = (!is_object)
        .then(|| schema::to_standalone(&definition.input_schema))
        .flatten();
    tool.insert(
        "inputSchema".into(),
        plain.unwrap_or_else(|| Value::clone(&definition.input_schema)),
    );
    add_mcp_fields(&mut tool, offer);
    if let Some(output) = definition
        .output_schema
        .as_deref()
        .and_then(schema::to_standalone)
    {
        tool.insert("outputSchema".into(), output);
    }
    let meta = &definition.meta;
    if !meta.is_empty() {
        tool.insert("_meta".into(), meta.clone().into());
    }
    tool
}

/// Adds title, output schema and annotations.
pub(super) fn add_mcp_fields(tool: &mut JsonObject, offer: &ListedTool<'_>) {
    let annotations = annotations_with_hints(offer);
    // Clients before 2025-06-18 read the title only from the annotations.
    if let Some(title) = annotations.get("title") {
        tool.insert("title".into(), title.clone());
    }
    // Before 2026-07-28, structured content must be an object, and so must the root of its schema.
    let output = offer
        .definition
        .output_schema
        .as_deref()
        .and_then(schema::to_standalone);
    if let Some(output) = output.filter(|output| output.get("type") == Some(&Value::from("object")))
    {
        tool.insert("outputSchema".into(), output);
    }
    tool.insert("annotations".into(), annotations.into());
}

/// The annotations that the tool declares, completed with hints derived from its effect. A hint of
/// a type that MCP does not allow is left out: a client would refuse the whole list because of it.
fn annotations_with_hints(offer: &ListedTool<'_>) -> JsonObject {
    let fits = |(name, value): &(&String, &Value)| match name.as_str() {
        "title" => value.is_string(),
        name => !name.ends_with("Hint") || value.is_boolean(),
    };
    let declared = offer.definition.annotations.iter().filter(fits);
    let mut annotations: JsonObject = declared
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let read_only = annotations
        .get("readOnlyHint")
        .and_then(Value::as_bool)
        .unwrap_or(offer.effect == Effect::Read);
    let repeatable = read_only || offer.effect == Effect::Idempotent;
    // The effect of a write on existing data is unknown. MCP's default assumes the worst.
    for (name, hint) in EFFECT_HINTS
        .into_iter()
        .zip([read_only, !read_only, repeatable])
    {
        annotations.entry(name).or_insert(hint.into());
    }
    annotations
}
