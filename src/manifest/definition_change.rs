//! What differs between the approved definition of a tool and the one that its source offers now.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::sources::DiscoveredTool;

/// The parts of a definition as a model sees them, without secrets: `description`, `inputSchema`,
/// `outputSchema`, `annotations`.
pub type DefinitionParts = BTreeMap<String, Value>;

/// The parts of a definition that differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefinitionChange {
    /// The approved parts. `None`: the tool is new, or its pin has no text.
    pub approved: Option<DefinitionParts>,
    /// The parts that the source offers now.
    pub offered: DefinitionParts,
}

/// The definition of a discovered tool.
pub fn definition_parts(offer: &DiscoveredTool) -> DefinitionParts {
    let annotations = (!offer.annotations.is_empty()).then(|| offer.annotations.clone().into());
    let parts = [
        ("description", Some(offer.description.as_str().into())),
        ("inputSchema", Some(offer.input_schema.clone())),
        ("outputSchema", offer.output_schema.clone()),
        ("annotations", annotations),
    ];
    let present = |(name, value): (&str, Option<Value>)| Some((name.to_owned(), value?));
    parts.into_iter().filter_map(present).collect()
}

impl DefinitionChange {
    /// Compares what a source offers with the approved definition, if its text is known.
    pub fn find(approved: Option<&DefinitionParts>, offer: &DiscoveredTool) -> Self {
        let offered = definition_parts(offer);
        let Some(approved) = approved else {
            return Self {
                approved: None,
                offered,
            };
        };
        Self {
            approved: Some(only_in(approved, &offered)),
            offered: only_in(&offered, approved),
        }
    }
}

/// The parts that the others do not have, or have with another value.
fn only_in(parts: &DefinitionParts, others: &DefinitionParts) -> DefinitionParts {
    let differs = |(name, value): &(&String, &Value)| others.get(*name) != Some(value);
    let parts = parts.iter().filter(differs);
    parts
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
