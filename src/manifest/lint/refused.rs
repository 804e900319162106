//! Lint: definitions that providers refuse. It is a warning if the formats cannot solve it. It is a hint if they can,
//! or if only a provider's restricted mode refuses the definition.

use std::collections::{BTreeMap, BTreeSet};

use super::Lints;
use super::walk::{Part, Role, ToolSchema};
use crate::call::{NameMatching, ToolName};
use crate::formats::Names;
use crate::manifest::finding::Place;
use crate::manifest::load::WrittenTool;
use crate::manifest::node::Data;
use crate::manifest::rule::Rule;
use crate::providers::{Provider, Subset};
use crate::schema;

/// The longest name that all providers accept.
const LONGEST_NAME: usize = 64;
/// Keywords that restrict no value, and `additionalProperties`, which every tool here has. Formats leave them out
/// where necessary.
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
/// Maximum number of keywords that one hint names.
const MOST_WORDS: usize = 8;

/// Checks the names of the tools.
pub(super) fn names(tools: &[WrittenTool], matching: NameMatching, lints: &mut Lints) {
    // An invalid name was reported as an error.
    let named: Vec<_> = tools.iter().filter_map(|tool| Some((tool, ToolName::parse(&tool.key.text).ok()?))).collect();
    let spellings = named.iter().map(|(tool, name)| (name, aliases(tool))).collect();
    let names = Names { spellings: &spellings, matching };
    for (tool, name) in &named {
        let path = tool.under.clone();
        let mut refusing = Vec::new();
        let mut told: BTreeMap<String, Vec<Provider>> = BTreeMap::new();
        for provider in Provider::ALL.into_iter().filter(|provider| !provider.takes_name(name.as_str())) {
            let shown = names.shown(provider, name, aliases(tool));
            match provider.takes_name(&shown) {
                true => told.entry(shown.into_owned()).or_default().push(provider),
                false => refusing.push(provider),
            }
        }
        if let Some(who) = list(refusing) {
            let plain = plain(name.as_str());
            let change = if spellings.of(&plain, |other| other != name).is_empty() {
                format!("write {plain}, or give it an alias like that")
            } else {
                format!("{plain} could be another tool; write another name, or give it an alias")
            };
            let message = format!("this name is refused by {who}, and all tools of the request with it; {change}");
            lints.warn(Rule::RefusedName, &tool.key.place, path.clone(), message);
        }
        for (shown, providers) in told {
            if let Some(who) = list(providers) {
                let message = format!("this name is refused by {who}: models of theirs know the tool as {shown}");
                lints.hint(Rule::RefusedName, &tool.key.place, path.clone(), message);
            }
        }
    }
}

fn aliases(tool: &WrittenTool) -> &[ToolName] {
    tool.tool.as_ref().map(|tool| tool.definition.aliases.as_slice()).unwrap_or_default()
}

/// Finds a schema that the formats cannot convert to basic keywords.
pub(super) fn references(schema: &ToolSchema<'_>, tool: &WrittenTool, lints: &mut Lints) {
    let definition = tool.tool.as_ref().map(|tool| &tool.definition);
    if definition.is_some_and(|definition| schema::standalone(&definition.input_schema).is_none()) {
        let message = "refers to its parts by way of an $id: formats give it out as it is, and providers may not follow; \
                       put them in $defs and write $ref: '#/$defs/…'";
        lints.hint(Rule::RefusedSchema, schema.place, schema.path.clone(), message);
    }
}

/// Checks the input schema of a tool.
pub(super) fn schema(schema: &ToolSchema<'_>, parts: &[Part<'_>], lints: &mut Lints) {
    let parameters = if schema.shorthand { Some(schema.node) } else { schema.node.get("properties") };
    for (key, _) in parameters.and_then(|node| node.entries()).unwrap_or_default() {
        let refusing = Provider::ALL.into_iter().filter(|provider| !provider.takes_parameter(&key.text));
        if let Some(who) = list(refusing) {
            let middle = if schema.shorthand { "" } else { "properties." };
            let path = format!("{}.{middle}{}", schema.path, key.text);
            let plain = plain(&key.text);
            let message = format!("this name is refused by {who}; write {plain}: 1 to 64 letters, digits, _ . -");
            lints.warn(Rule::RefusedParameter, &key.place, path, message);
        }
    }
    for part in parts {
        if part.role == Role::Root {
            at_root(part, lints);
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
        if let Some(who) = list(refusing) {
            let message = format!(
                "{keyword} at the root is refused by {who}; name all parameters in properties, and say in the \
                 description which belong together"
            );
            lints.warn(Rule::RefusedSchema, place, root.below(&[keyword]), message);
        }
    }
}

/// Makes one hint for a schema, because a user of the subset has to change the schema as a whole.
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

/// The providers as a text. `None` if there are none.
fn list(providers: impl IntoIterator<Item = Provider>) -> Option<String> {
    let names: Vec<&str> = providers.into_iter().map(Provider::as_str).collect();
    let (last, rest) = names.split_last()?;
    Some(if rest.is_empty() { (*last).to_owned() } else { format!("{} and {last}", rest.join(", ")) })
}

/// The name with only characters that all providers accept.
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
        assert_eq!(found(&tool("rows.count"), &[]), ["hint refused-name tools.rows.count 2"]);
        assert_eq!(found(&tool("2_rows"), &[]), ["warning refused-name tools.2_rows 2"], "Gemini's alone");
        assert_eq!(
            found(&format!("{}    aliases: [rows_2]\n", tool("2_rows")), &[]),
            ["hint refused-name tools.2_rows 2"]
        );
        let said =
            |text: &str| checked(text, &[]).findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let hint = said(&tool("rows.count"));
        assert!(
            hint.contains("by OpenAI, Anthropic and Bedrock: models of theirs know the tool as rows_count"),
            "{hint}"
        );
        let long = said(&tool(&format!("rows.{}", "x".repeat(60))));
        assert!(long.contains("refused by OpenAI, Gemini and Bedrock, and all tools"), "{long}");
        assert!(long.contains("refused by Anthropic: models of theirs know the tool as rows_xxx"), "{long}");
    }

    #[test]
    fn a_name_that_cannot_be_changed_since_another_tool_has_it() {
        let two = tool("rows.count") + tool("rows_count").strip_prefix("tools:\n").unwrap();
        let warned = ["warning refused-name tools.rows.count 2", "warning ambiguous-name tools.rows_count 6"];
        assert_eq!(found(&two, &[]), warned);
        let said = checked(&two, &[]).findings[0].to_string();
        assert!(said.contains("rows_count could be another tool"), "{said}");
        // With exact matching the name cannot be changed either.
        let exact = tool("rows.count") + "calls: {name_matching: exact}\n";
        assert_eq!(found(&exact, &[]), ["warning refused-name tools.rows.count 2"]);
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
    fn a_schema_that_leads_outside_itself() {
        let schema = r#"{"type": "object", "additionalProperties": false, "properties": {"a": {"$ref": "https://example.com/a", "description": "Row"}}, "$defs": {"a": {"$id": "https://example.com/a", "type": "string"}}}"#;
        let found = everything_of_tool(&format!("    input_schema: {schema}\n"));
        assert!(found.contains(&"hint refused-schema input_schema 6".to_owned()), "{found:?}");
        let text = format!(
            "tools:\n  t:\n    kind: command\n    command: [/bin/true]\n    description: Counts.\n    input_schema: {schema}\n"
        );
        let said = checked(&text, &[]).findings.iter().map(ToString::to_string).collect::<String>();
        assert!(said.contains("by way of an $id"), "{said}");
    }

    #[test]
    fn keywords_of_the_narrower_ways() {
        let found = everything_of_tool(
            "    parameters: {id: {const: 5, multipleOf: 5}, n: {not: {type: string}, description: Rows}}\n",
        );
        assert_eq!(found, ["hint refused-schema parameters 6", "hint refused-schema parameters 6"]);
    }
}
