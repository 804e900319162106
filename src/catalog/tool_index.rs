//! Finds tools by words: names, descriptions, parameters, tags and examples.

use std::sync::Arc;

use serde_json::Value;

use super::entry::Entry;
use crate::call::Definition;
use crate::text::word_index::WordIndex;

/// A word of the name counts as much as this many words of the description.
const NAME_WEIGHT: f32 = 3.0;

/// The tools of one catalog by their words.
pub(super) struct ToolIndex {
    tools: Vec<Arc<Entry>>,
    words: WordIndex,
}

impl ToolIndex {
    pub(super) fn new(tools: Vec<Arc<Entry>>) -> Self {
        let words = WordIndex::new(tools.iter().map(|entry| searched_text(&entry.definition)));
        Self { tools, words }
    }

    /// The tools that match a query and that `admits` accepts, the best first.
    pub(super) fn find(
        &self,
        query: &str,
        admits: impl Fn(&Entry) -> bool,
        limit: usize,
    ) -> Vec<Arc<Entry>> {
        let found = self.words.find(query);
        let found = found.iter().filter_map(|number| self.tools.get(*number));
        let admitted = found.filter(|entry| admits(entry));
        admitted.take(limit).cloned().collect()
    }
}

/// The parts of a definition that are searched, with their weights.
fn searched_text(definition: &Definition) -> Vec<(&str, f32)> {
    let names = definition.names().map(|name| (name, NAME_WEIGHT));
    let tags = definition.tags.iter().map(|tag| (tag.as_str(), 1.0));
    let mut parts: Vec<(&str, f32)> = names.chain(tags).collect();
    parts.push((&definition.description, 1.0));
    let title = definition.annotations.get("title").and_then(Value::as_str);
    parts.extend(title.map(|title| (title, 1.0)));
    let mut schemas = vec![&*definition.input_schema];
    while let Some(schema) = schemas.pop() {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            parts.push((name, 1.0));
            let description = schema.get("description").and_then(Value::as_str);
            parts.extend(description.map(|text| (text, 1.0)));
            let values = schema.get("enum").and_then(Value::as_array);
            let values = values.into_iter().flatten().filter_map(Value::as_str);
            parts.extend(values.map(|value| (value, 1.0)));
            schemas.push(schema);
        }
        let shared = schema.get("$defs").and_then(Value::as_object);
        schemas.extend(shared.into_iter().flat_map(|shared| shared.values()));
        schemas.extend(schema.get("items"));
    }
    let arguments = definition.examples.iter().flat_map(|one| &one.arguments);
    parts.extend(arguments.filter_map(|(_, value)| Some((value.as_str()?, 1.0))));
    parts
}
