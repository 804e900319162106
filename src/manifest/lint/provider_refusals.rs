//! Lint: definitions that providers refuse. It is a warning if the formats cannot solve it. It is a
//! hint if they can, or if only a provider's restricted mode refuses the definition.

use std::collections::{BTreeMap, BTreeSet};

use super::Lints;
use super::schema_parts::{Part, Role, ToolSchema};
use crate::call::words;
use crate::call::{NameMatching, ToolName};
use crate::formats::NameRules;
use crate::formats::providers::{Provider, Subset};
use crate::manifest::finding::Location;
use crate::manifest::node::Data;
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;
use crate::schema;

/// The longest name that all providers accept.
const LONGEST_NAME: usize = 64;
/// Keywords that restrict no value, and `additionalProperties`, which every tool here has. Formats
/// leave them out where necessary.
const IGNORED_KEYWORDS: [&str; 9] = words(
    "$schema $comment additionalProperties title examples default deprecated writeOnly
     readOnly",
);
/// Maximum number of keywords that one hint names.
const MAX_KEYWORDS: usize = 8;

/// Checks the names of the tools.
pub(super) fn check_tool_names(tools: &[ParsedTool], matching: NameMatching, lints: &mut Lints) {
    // An invalid name was reported as an error.
    let named: Vec<_> = tools
        .iter()
        .filter_map(|tool| Some((tool, ToolName::parse(&tool.key.text).ok()?)))
        .collect();
    let spellings = named
        .iter()
        .map(|(tool, name)| (name, aliases_of(tool)))
        .collect();
    let names = NameRules {
        spellings: &spellings,
        matching,
    };
    for (tool, name) in &named {
        let path = tool.path.clone();
        let mut refusing = Vec::new();
        let mut renamed: BTreeMap<String, Vec<Provider>> = BTreeMap::new();
        for provider in Provider::ALL
            .into_iter()
            .filter(|provider| !provider.accepts_name(name.as_str()))
        {
            let shown = names.name_for(provider, name, aliases_of(tool));
            match provider.accepts_name(&shown) {
                true => renamed
                    .entry(shown.into_owned())
                    .or_default()
                    .push(provider),
                false => refusing.push(provider),
            }
        }
        if let Some(provider_names) = join_provider_names(refusing) {
            let plain = plain_name(name.as_str());
            let change = if spellings
                .matching_tools(&plain, |other| other != name)
                .is_empty()
            {
                format!("write {plain}, or give it an alias like that")
            } else {
                format!("{plain} could be another tool; write another name, or give it an alias")
            };
            let message = format!(
                "this name is refused by {provider_names}, and all tools of the request with it; {change}"
            );
            lints.warn(Rule::RefusedName, &tool.key.location, path.clone(), message);
        }
        for (shown, providers) in renamed {
            if let Some(provider_names) = join_provider_names(providers) {
                let message = format!(
                    "this name is refused by {provider_names}: their models know the tool as {shown}"
                );
                lints.hint(Rule::RefusedName, &tool.key.location, path.clone(), message);
            }
        }
    }
}

fn aliases_of(tool: &ParsedTool) -> &[ToolName] {
    tool.tool
        .as_ref()
        .map(|tool| tool.definition.aliases.as_slice())
        .unwrap_or_default()
}

/// Finds a schema that the formats cannot convert to basic keywords.
pub(super) fn check_standalone(schema: &ToolSchema<'_>, tool: &ParsedTool, lints: &mut Lints) {
    let definition = tool.tool.as_ref().map(|tool| &tool.definition);
    if definition
        .is_some_and(|definition| schema::to_standalone(&definition.input_schema).is_none())
    {
        let message = "refers to a schema outside of it: formats leave that unchanged, and providers may refuse \
                       it; put that schema in $defs and write $ref: '#/$defs/…'";
        lints.hint(
            Rule::RefusedSchema,
            schema.location,
            schema.path.clone(),
            message,
        );
    }
}

/// Finds parameters whose names a provider refuses.
pub(super) fn check_parameter_names(schema: &ToolSchema<'_>, lints: &mut Lints) {
    let parameters = if schema.shorthand {
        Some(schema.node)
    } else {
        schema.node.get("properties")
    };
    for (key, _) in parameters
        .and_then(|node| node.entries())
        .unwrap_or_default()
    {
        let refusing = Provider::ALL
            .into_iter()
            .filter(|provider| !provider.accepts_parameter(&key.text));
        if let Some(provider_names) = join_provider_names(refusing) {
            let middle = if schema.shorthand { "" } else { "properties." };
            let path = format!("{}.{middle}{}", schema.path, key.text);
            let plain = plain_name(&key.text);
            let message = format!(
                "this name is refused by {provider_names}; write {plain}: 1 to 64 letters, digits, _ . -"
            );
            lints.warn(Rule::RefusedParameter, &key.location, path, message);
        }
    }
}

/// Finds keywords that a provider refuses at the root of a schema.
pub(super) fn check_roots(parts: &[Part<'_>], lints: &mut Lints) {
    for root in parts.iter().filter(|part| part.role == Role::Root) {
        check_root_keywords(root, lints);
    }
}

fn check_root_keywords(root: &Part<'_>, lints: &mut Lints) {
    for keyword in ["oneOf", "anyOf", "allOf", "enum", "const", "not"] {
        if root.get(keyword).is_none() {
            continue;
        }
        let refusing = Provider::ALL
            .into_iter()
            .filter(|provider| provider.forbidden_root_keywords().contains(&keyword));
        if let Some(provider_names) = join_provider_names(refusing) {
            let message = format!(
                "{keyword} at the root is refused by {provider_names}; name all parameters in properties, and say in the \
                 description which belong together"
            );
            lints.warn_at(Rule::RefusedSchema, root, &[keyword], message);
        }
    }
}

/// Finds keywords that a provider refuses in a restricted mode.
pub(super) fn check_subsets(schema: &ToolSchema<'_>, parts: &[Part<'_>], lints: &mut Lints) {
    for subset in Subset::ALL {
        check_subset(schema, parts, subset, lints);
    }
}

/// Makes one hint for a schema, because a user of the subset has to change the schema as a whole.
fn check_subset(schema: &ToolSchema<'_>, parts: &[Part<'_>], subset: Subset, lints: &mut Lints) {
    let keys = parts.iter().flat_map(|part| {
        // The root has its own warning.
        let is_reported = |word: &str| {
            part.role == Role::Root && Provider::OpenAi.forbidden_root_keywords().contains(&word)
        };
        part.node
            .entries()
            .unwrap_or_default()
            .iter()
            .filter(move |(key, _)| !is_reported(&key.text))
    });
    let refused: Vec<(&Location, &str)> = keys
        .filter_map(|(key, node)| match key.text.as_str() {
            "type" if matches!(node.data, Data::List(_)) && !subset.accepts_type_lists() => {
                Some((&key.location, "a list of types"))
            }
            word => {
                let is_ignored = IGNORED_KEYWORDS.contains(&word);
                (!is_ignored && subset.refuses_keyword(word)).then_some((&key.location, word))
            }
        })
        .collect();
    if let Some((location, _)) = refused
        .iter()
        .min_by_key(|(location, _)| (location.line, location.column))
    {
        let words: BTreeSet<&str> = refused.iter().map(|(_, word)| *word).collect();
        let words: Vec<&str> = words.into_iter().take(MAX_KEYWORDS).collect();
        let message = format!("refused by {}: {}", subset.as_str(), words.join(", "));
        lints.hint(Rule::RefusedSchema, location, schema.path.clone(), message);
    }
}

/// The providers as a text. `None` if there are none.
fn join_provider_names(providers: impl IntoIterator<Item = Provider>) -> Option<String> {
    let names: Vec<&str> = providers.into_iter().map(Provider::as_str).collect();
    let (last, rest) = names.split_last()?;
    Some(if rest.is_empty() {
        (*last).to_owned()
    } else {
        format!("{} and {last}", rest.join(", "))
    })
}

/// The name with only characters that all providers accept.
fn plain_name(name: &str) -> String {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || "_-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let mut plain: String = name.chars().map(fits).collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    plain.truncate(LONGEST_NAME);
    plain
}

#[cfg(test)]
mod tests {
    use super::super::testing::{
        all_tool_findings, check_text, finding_lines, schema_findings, tool_findings,
    };

    fn tool(name: &str) -> String {
        format!(
            "tools:\n  {name}:\n    kind: command\n    command: [/bin/true]\n    description: Counts rows of customers.\n"
        )
    }

    #[test]
    fn refused_tool_names_are_reported() {
        assert_eq!(finding_lines(&tool("count_rows-2"), &[]), [""; 0]);
        assert_eq!(
            finding_lines(&tool("rows.count"), &[]),
            ["hint refused-name tools.rows.count 2"]
        );
        assert_eq!(
            finding_lines(&tool("2_rows"), &[]),
            ["warning refused-name tools.2_rows 2"],
            "Gemini's alone"
        );
        assert_eq!(
            finding_lines(&format!("{}    aliases: [rows_2]\n", tool("2_rows")), &[]),
            ["hint refused-name tools.2_rows 2"]
        );
        let messages = |text: &str| {
            check_text(text, &[])
                .findings
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let hint = messages(&tool("rows.count"));
        assert!(
            hint.contains(
                "by OpenAI, Anthropic and Bedrock: their models know the tool as rows_count"
            ),
            "{hint}"
        );
        let long = messages(&tool(&format!("rows.{}", "x".repeat(60))));
        assert!(
            long.contains("refused by OpenAI, Gemini and Bedrock, and all tools"),
            "{long}"
        );
        assert!(
            long.contains("refused by Anthropic: their models know the tool as rows_xxx"),
            "{long}"
        );
    }

    #[test]
    fn refused_name_without_free_form_warns() {
        let two = tool("rows.count") + tool("rows_count").strip_prefix("tools:\n").unwrap();
        let warned = ["warning refused-name tools.rows.count 2"];
        assert_eq!(finding_lines(&two, &[]), warned);
        let messages = check_text(&two, &[]).findings[0].to_string();
        assert!(
            messages.contains("rows_count could be another tool"),
            "{messages}"
        );
        // With exact matching the name cannot be changed either.
        let exact = tool("rows.count") + "calls: {name_matching: exact}\n";
        assert_eq!(
            finding_lines(&exact, &[]),
            ["warning refused-name tools.rows.count 2"]
        );
    }

    #[test]
    fn refused_parameter_names_are_warnings() {
        let found = tool_findings(
            "    parameters: {'filter[id]': {type: string, description: 'Id, e.g. 5'}}\n",
        );
        assert_eq!(found, ["warning refused-parameter parameters.filter[id] 6"]);
    }

    #[test]
    fn alternatives_at_the_root_are_warnings() {
        let schema = r#"{"type": "object", "additionalProperties": false, "properties": {"a": {"type": "string", "description": "Name of a row"}}, "anyOf": [{"required": ["a"]}]}"#;
        assert_eq!(schema_findings(schema), ["warning refused-schema anyOf"]);
    }

    #[test]
    fn schema_with_nested_id_is_a_hint() {
        let schema = r#"{"type": "object", "additionalProperties": false, "properties": {"a": {"$ref": "https://json-schema.org/draft/2020-12/schema", "description": "Row"}}}"#;
        let found = all_tool_findings(&format!("    input_schema: {schema}\n"));
        assert!(
            found.contains(&"hint refused-schema input_schema 6".to_owned()),
            "{found:?}"
        );
        let text = format!(
            "tools:\n  t:\n    kind: command\n    command: [/bin/true]\n    description: Counts.\n    input_schema: {schema}\n"
        );
        let messages = check_text(&text, &[])
            .findings
            .iter()
            .map(ToString::to_string)
            .collect::<String>();
        assert!(messages.contains("a schema outside of it"), "{messages}");
    }

    #[test]
    fn keywords_outside_subsets_are_hints() {
        let found = all_tool_findings(
            "    parameters: {id: {const: 5, multipleOf: 5}, n: {not: {type: string}, description: Rows}}\n",
        );
        assert_eq!(
            found,
            [
                "hint refused-schema parameters 6",
                "hint refused-schema parameters 6"
            ]
        );
    }
}
