//! Anthropic's form of a search result: references to tools that the list has deferred
//! (`ToolReferenceBlockParam` of its SDK). The API then shows the definitions to the model.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use crate::call::Caller;
use crate::catalog::Catalog;
use crate::formats::providers::Provider;

/// Whether the results of searches are references in this dialect, for this caller.
pub(super) fn are_used(catalog: &Catalog, caller: &Caller, dialect: Dialect) -> bool {
    dialect == Dialect::Anthropic && catalog.defers_tools(caller, &catalog.tools_for(caller))
}

/// Replaces the content of a search's result by references.
pub(super) fn write(messages: &mut [Value], catalog: &Catalog, id: &str, found: &Value) {
    let tools = found["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| catalog.get(tool["name"].as_str()?));
    let references: Vec<Value> = names
        .map(|entry| {
            let name = catalog.name_for(Provider::Anthropic, &entry.definition);
            json!({"type": "tool_reference", "tool_name": name})
        })
        .collect();
    // Without a reference, the text says that nothing was found.
    if references.is_empty() {
        return;
    }
    let contents = messages
        .iter_mut()
        .filter_map(|message| message["content"].as_array_mut());
    for result in contents.flatten() {
        if result["type"] == "tool_result" && result["tool_use_id"] == id {
            result["content"] = references.clone().into();
        }
    }
}
