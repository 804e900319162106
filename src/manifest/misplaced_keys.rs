//! Finds keys of a tool that are indented so far that they became parameters.

use serde_json::Value;

use super::decode::{Findings, field_names};
use super::finding::join_path;
use super::node::{Data, Key, Node};
use super::parameters::{PARAMETER_KEYS, is_type};
use super::sections::{DefinitionEntry, PolicyEntry};
use crate::kinds;

/// The entry with such keys in the place where they were meant, so that the rest is read as meant.
/// Each is reported.
pub(super) fn correct_indentation(
    entry: &Node,
    entry_path: &str,
    findings: &Findings,
) -> Option<Node> {
    let kind = entry.get("kind").map(Node::to_json);
    let own = kind
        .as_ref()
        .and_then(|word| word.as_str())
        .and_then(kinds::parse_manifest_kind);
    let of_kind = own.map(kinds::manifest_keys).unwrap_or_default();
    let is_tool_key = |name: &str| {
        [
            of_kind,
            field_names::<DefinitionEntry>(),
            field_names::<PolicyEntry>(),
        ]
        .concat()
        .contains(&name)
    };
    let is_misplaced = |(key, node): &(Key, Node)| {
        is_tool_key(&key.text) && entry.get(&key.text).is_none() && !is_parameter(node)
    };
    let parameters = entry.get("parameters")?;
    let (misplaced, kept): (Vec<_>, Vec<_>) = parameters
        .entries()?
        .iter()
        .cloned()
        .partition(is_misplaced);
    if misplaced.is_empty() {
        return None;
    }
    for (key, _) in &misplaced {
        let message = format!(
            "`{}` is a key of the tool, not a parameter: indent it less",
            key.text
        );
        let path = join_path(entry_path, &["parameters"]);
        findings
            .entry(parameters, &path)
            .error(&[&key.text], message);
    }
    let mut entries: Vec<(Key, Node)> = entry.entries()?.to_vec();
    for (key, node) in &mut entries {
        if key.text == "parameters" {
            node.data = Data::Map(kept.clone());
        }
    }
    entries.extend(misplaced);
    Some(Node {
        location: entry.location.clone(),
        data: Data::Map(entries),
    })
}

/// Whether a value looks like the schema of a parameter.
fn is_parameter(node: &Node) -> bool {
    let is_keyword = |key: &str| PARAMETER_KEYS.contains(&key) || key == "optional";
    match (&node.data, node.entries()) {
        // A type in place of the schema has a message of its own.
        (Data::Scalar(Value::String(word)), _) => is_type(word),
        (_, Some(entries)) => {
            entries.is_empty() || entries.iter().any(|(key, _)| is_keyword(&key.text))
        }
        (_, None) => false,
    }
}
