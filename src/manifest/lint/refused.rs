//! What providers refuse. A warning where the service gives definitions out in the provider's shape; else a hint.

use std::collections::BTreeSet;

use super::Lints;
use super::walk::{Part, Role, ToolSchema};
use crate::call::ToolName;
use crate::manifest::finding::Place;
use crate::manifest::node::{Data, Key};
use crate::manifest::rule::Rule;
use crate::providers::{Provider, Subset};

/// The longest name that all take.
const LONGEST_NAME: usize = 64;
/// Keywords that say nothing a provider could mind losing, and one that each tool of ours has; formats leave them out
/// where they must.
const LEFT_OUT: [&str; 9] = [
    "$schema",
    "$comment",
    "additionalProperties",
    "title",
    "examples",
    "default",
    "deprecated",
    "writeOnly",
    "readOnly",
];
/// So many keywords are named in one hint.
const MOST_WORDS: usize = 8;

/// A tool's name.
pub(super) fn name(key: &Key, under: &str, lints: &mut Lints) {
    // A name that no tool may have was reported as an error.
    if ToolName::parse(&key.text).is_err() {
        return;
    }
    let refusing = Provider::ALL.into_iter().filter(|provider| !provider.takes_name(&key.text));
    if let Some((who, is_ours)) = list(refusing) {
        let plain = plain(&key.text);
        let message = format!("this name is refused by {who}, and all tools of the request with it; write {plain}");
        say(lints, is_ours, Rule::RefusedName, &key.place, under.to_owned(), message);
    }
}

/// A tool's input schema.
pub(super) fn schema(schema: &ToolSchema<'_>, parts: &[Part<'_>], lints: &mut Lints) {
    let parameters = if schema.shorthand { Some(schema.node) } else { schema.node.get("properties") };
    for (key, _) in parameters.and_then(|node| node.entries()).unwrap_or_default() {
        let refusing = Provider::ALL.into_iter().filter(|provider| !provider.takes_parameter(&key.text));
        if let Some((who, is_ours)) = list(refusing) {
            let middle = if schema.shorthand { "" } else { "properties." };
            let path = format!("{}.{middle}{}", schema.path, key.text);
            let plain = plain(&key.text);
            let message = format!("this name is refused by {who}; write {plain}: 1 to 64 letters, digits, _ . -");
            say(lints, is_ours, Rule::RefusedParameter, &key.place, path, message);
        }
    }
    for part in parts {
        if part.role == Role::Root {
            at_root(part, lints);
        }
        if part.types().contains(&"array") && !part.has(&["items", "prefixItems"]) {
            let refusing = Provider::ALL.into_iter().filter(|provider| provider.wants_items());
            if let Some((who, is_ours)) = list(refusing) {
                let message = format!("an array that does not say what it holds is refused by {who}; write items:");
                say(lints, is_ours, Rule::RefusedSchema, part.place, part.path.clone(), message);
            }
        }
    }
    for subset in Subset::ALL {
        in_subset(schema, parts, subset, lints);
    }
}

fn at_root(root: &Part<'_>, lints: &mut Lints) {
    for keyword in ["oneOf", "anyOf", "allOf", "enum", "const", "not"] {
        let Some((place, _)) = root.keyword(keyword) else { continue };
        let refusing = Provider::ALL.into_iter().filter(|provider| provider.refused_at_root().contains(&keyword));
        if let Some((who, is_ours)) = list(refusing) {
            let message = format!(
                "{keyword} at the root is refused by {who}; name all parameters in properties, and say in the \
                 description which belong together"
            );
            say(lints, is_ours, Rule::RefusedSchema, place, root.below(&[keyword]), message);
        }
    }
}

/// One hint for a schema: who uses the subset changes the schema as a whole.
fn in_subset(schema: &ToolSchema<'_>, parts: &[Part<'_>], subset: Subset, lints: &mut Lints) {
    let keys = parts.iter().flat_map(|part| {
        // The root has its own warning.
        let said = |word: &str| part.role == Role::Root && Provider::OpenAi.refused_at_root().contains(&word);
        part.node.entries().unwrap_or_default().iter().filter(move |(key, _)| !said(&key.text))
    });
    let refused: Vec<(&Place, &str)> = keys
        .filter_map(|(key, node)| match key.text.as_str() {
            "type" if matches!(node.data, Data::List(_)) && !subset.takes_type_lists() => {
                Some((&key.place, "a list of types"))
            }
            word => (!LEFT_OUT.contains(&word) && subset.refuses(word)).then_some((&key.place, word)),
        })
        .collect();
    if let Some((place, _)) = refused.iter().min_by_key(|(place, _)| (place.line, place.column)) {
        let words: BTreeSet<&str> = refused.iter().map(|(_, word)| *word).collect();
        let words: Vec<&str> = words.into_iter().take(MOST_WORDS).collect();
        let message = format!("refused by {}: {}", subset.as_str(), words.join(", "));
        lints.hint(Rule::RefusedSchema, place, schema.path.clone(), message);
    }
}

/// The providers in words, and whether the service gives out definitions for one of them.
fn list(providers: impl Iterator<Item = Provider>) -> Option<(String, bool)> {
    let providers: Vec<Provider> = providers.collect();
    let is_ours = providers.iter().any(|provider| provider.has_format());
    let names: Vec<&str> = providers.iter().map(|provider| provider.as_str()).collect();
    let (last, rest) = names.split_last()?;
    Some((if rest.is_empty() { (*last).to_owned() } else { format!("{} and {last}", rest.join(", ")) }, is_ours))
}

fn say(lints: &mut Lints, is_ours: bool, rule: Rule, place: &Place, path: String, message: String) {
    if is_ours {
        lints.warn(rule, place, path, message);
    } else {
        lints.hint(rule, place, path, message);
    }
}

/// The name with what all take.
fn plain(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    let mut plain: String = name.chars().map(fits).collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    plain.truncate(LONGEST_NAME);
    plain
}

#[cfg(test)]
mod tests {
    use super::super::testing::{checked, everything_of_tool, found, of_schema, of_tool};

    fn tool(name: &str) -> String {
        format!(
            "tools:\n  {name}:\n    kind: command\n    command: [/bin/true]\n    description: Counts rows of customers.\n"
        )
    }

    #[test]
    fn a_name_that_some_refuse() {
        assert_eq!(found(&tool("count_rows-2"), &[]), [""; 0]);
        assert_eq!(found(&tool("rows.count"), &[]), ["warning refused-name tools.rows.count 2"]);
        assert_eq!(found(&tool("2_rows"), &[]), ["hint refused-name tools.2_rows 2"], "Gemini's alone");
        let said = checked(&tool("rows.count"), &[]).findings[0].to_string();
        assert!(
            said.contains("refused by OpenAI, Anthropic and Bedrock") && said.contains("write rows_count"),
            "{said}"
        );
    }

    #[test]
    fn a_parameter_that_some_refuse() {
        let found = of_tool("    parameters: {'filter[id]': {type: string, description: 'Id, e.g. 5'}}\n");
        assert_eq!(found, ["warning refused-parameter parameters.filter[id] 6"]);
    }

    #[test]
    fn a_root_of_alternatives() {
        let schema = r#"{"type": "object", "additionalProperties": false, "properties": {"a": {"type": "string", "description": "Name of a row"}}, "anyOf": [{"required": ["a"]}]}"#;
        assert_eq!(of_schema(schema), ["warning refused-schema anyOf"]);
    }

    #[test]
    fn arrays_of_anything_and_keywords_of_the_narrower_ways() {
        let found = of_tool("    parameters: {ids: {type: array, description: Rows to count}}\n");
        assert_eq!(found, ["warning refused-schema parameters.ids 6"]);
        let found = everything_of_tool(
            "    parameters: {id: {const: 5, multipleOf: 5}, n: {not: {type: string}, description: Rows}}\n",
        );
        assert_eq!(found, ["hint refused-schema parameters 6", "hint refused-schema parameters 6"]);
    }
}
