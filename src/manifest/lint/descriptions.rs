//! Lint: descriptions, the only text that tells a model about a tool and its parameters.
//!
//! A description is vague if no word in it is specific. This is so for a placeholder, or for fewer
//! than three words. It is also so if each word is part of the tool's name, a filler (`the`, `a`),
//! or fits any tool (`handle`, `data`). One specific word is enough, so an ordinary sentence is
//! never reported. Words are examined only in ASCII texts; of other texts only the length is
//! checked.

use std::collections::HashSet;

use super::Lints;
use super::schema_parts::{Applicability, Part, ToolSchema};
use crate::formats::providers::Provider;
use crate::manifest::finding::Location;
use crate::manifest::node::{Data, Node};
use crate::manifest::parsed::ParsedTool;
use crate::manifest::rule::Rule;

const MIN_WORDS: usize = 3;
/// In scripts without spaces, a sentence has about a dozen characters, and four are a name.
const MIN_CHARACTERS: usize = 5;

const PLACEHOLDERS: &str =
    "todo,fixme,tbd,xxx,placeholder,lorem ipsum,description here,add description,no description";

/// Words that fit the description of any tool.
const GENERIC_WORDS: &str = "a an the this that it its is are be to of for in on with by and or from as at you your \
    can will used use uses using useful any some various all do does things thing stuff something tool tools function \
    helper utility util api call calls run runs execute executes perform performs handle handles process processes \
    manage get gets fetch fetches search searches data information info request requests operation operations task \
    tasks result";

/// Checks the description of a tool, if the manifest gives one. The loader has reported a missing
/// or empty one.
pub(super) fn check_description(tool: &ParsedTool, lints: &mut Lints) {
    let Some((location, text)) = description_of(&tool.entry) else {
        return;
    };
    let path = format!("{}.description", tool.path);
    if text.trim().is_empty() {
        return;
    }
    if let Some(fault) = vagueness(text, &tool.key.text) {
        let message = format!("{fault}; say what the tool does, with what, and when to use it");
        lints.warn(Rule::VagueDescription, location, path.clone(), message);
    }
    for provider in Provider::ALL {
        let length = text.chars().count();
        if let Some(most) = provider.max_description_len().filter(|most| length > *most) {
            let name = provider.as_str();
            let message = format!(
                "{length} characters; {name} refuses more than {most} for some models: move the rest"
            );
            lints.hint(
                Rule::LongDescription,
                location,
                path.clone(),
                message + " into the parameters' descriptions",
            );
        }
    }
}

/// Why a description is vague.
fn vagueness(text: &str, name: &str) -> Option<&'static str> {
    let lower = text.trim().to_lowercase();
    if PLACEHOLDERS.split(',').any(|mark| lower.starts_with(mark))
        || lower.chars().all(|c| !c.is_alphanumeric())
    {
        return Some("a placeholder, not a description");
    }
    if !text.is_ascii() {
        return (text.chars().count() < MIN_CHARACTERS)
            .then_some("too short to tell a model anything");
    }
    let (text_words, name_words) = (split_words(text), split_words(name));
    if text_words.iter().all(|word| {
        name_words.iter().any(|part| have_same_stem(word, part))
            || GENERIC_WORDS.split(' ').any(|generic| generic == word)
    }) {
        return Some("says no more than the tool's name");
    }
    (text_words.len() < MIN_WORDS).then_some("too short to tell a model anything")
}

/// Finds parameters without a description.
pub(super) fn check_parameters(schema: &ToolSchema<'_>, parts: &[Part<'_>], lints: &mut Lints) {
    // A branch adds to another schema of the same parameter, so it need not repeat the description.
    let described_elsewhere: HashSet<&str> = parts
        .iter()
        .filter(|part| part.applicability == Applicability::Always)
        .filter(|part| is_described(schema, part.node))
        .filter_map(|part| part.role.property())
        .collect();
    for part in parts {
        let Some(name) = part.role.property() else {
            continue;
        };
        // `true` and `false` cannot have a description.
        let needs_one = part.node.entries().is_some() && !is_described(schema, part.node);
        let is_branch = part.applicability == Applicability::Alternative;
        if needs_one
            && part.applicability != Applicability::Condition
            && !(is_branch && described_elsewhere.contains(name))
        {
            let message = "no description: a model has to guess what belongs here; write description: with the \
                           meaning, the unit or an example";
            let path = part.path.clone();
            lints.warn(Rule::UndescribedParameter, part.location, path, message);
        }
    }
}

fn description_of(node: &Node) -> Option<(&Location, &str)> {
    let (key, value) = node
        .entries()?
        .iter()
        .find(|(key, _)| key.text == "description")?;
    match &value.data {
        Data::Scalar(value) => Some((&key.location, value.as_str()?)),
        _ => None,
    }
}

/// Whether a parameter has a description. A constant needs none. The target of its reference or one
/// of its alternatives may have it.
fn is_described(schema: &ToolSchema<'_>, node: &Node) -> bool {
    let own = |node: &Node| description_of(node).is_some_and(|(_, text)| !text.trim().is_empty());
    let forms = ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|keyword| node.get(keyword));
    let mut forms = forms.flat_map(Node::items);
    let by_reference = || match (node.get("$ref"), schema.reference_target(node)) {
        (Some(_), Some(target)) => own(target),
        // Anchors and the like are not followed, so nothing is reported.
        (Some(_), None) => true,
        (None, _) => node.get("$dynamicRef").is_some(),
    };
    own(node)
        || node.get("const").is_some()
        || by_reference()
        || node.get("items").is_some_and(own)
        || forms.any(|form| own(form) || schema.reference_target(form).is_some_and(own))
}

/// The words of a text or a name. `camelCase` and `snake_case` are split.
fn split_words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in text.chars() {
        let ends = !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase());
        if ends {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether two words differ only in their ending: `count` and `counts`, `city` and `cities`.
fn have_same_stem(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let stem = short.strip_suffix(['y', 'e']).unwrap_or(short);
    long == short || (stem.len() >= 3 && long.starts_with(stem) && long.len() <= stem.len() + 3)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{schema_findings, tool_findings};
    use super::vagueness;

    #[test]
    fn generic_descriptions_are_vague() {
        for (name, text) in [
            ("web_search", "Search for information."),
            ("get_weather", "Get weather"),
            ("get_weather", "Gets the weather."),
            ("sortLines", "Sorts lines"),
            ("calculator", "A calculator tool"),
            ("helper", "Does stuff"),
            ("process", "TODO: describe this"),
            ("x", "..."),
            ("x", "Handles the data"),
            ("x", "Rows"),
            ("x", "查询"),
        ] {
            assert!(vagueness(text, name).is_some(), "{text}");
        }
    }

    #[test]
    fn plain_sentences_are_not_vague() {
        for (name, text) in [
            (
                "get_weather",
                "Current weather for a city. Use for questions about weather now, not for forecasts.",
            ),
            ("delete_rows", "Deletes rows by id."),
            ("word_count", "Counts the words of a text."),
            (
                "sort_lines",
                "Sorts the lines of a text and removes repeated ones.",
            ),
            (
                "web_search",
                "Searches the web for recent events and figures.",
            ),
            ("todo_list", "Lists open todos of the current user."),
            ("x", "查询某个城市的当前天气"),
            ("x", "Søker i arkivet"),
            ("math_specialist", "Works out hard arithmetic step by step."),
            (
                "top_customers",
                "The ten customers with the highest revenue in a year.",
            ),
        ] {
            assert_eq!(vagueness(text, name), None, "{text}");
        }
    }

    #[test]
    fn empty_vague_and_long_descriptions_are_reported() {
        assert_eq!(
            tool_findings("    description: ' '\n"),
            ["error invalid description 5"]
        );
        assert_eq!(
            tool_findings("    description: Does stuff\n"),
            ["warning vague-description description 5"]
        );
        let long = format!(
            "    description: Counts rows of customers. {}\n",
            "x".repeat(1100)
        );
        assert_eq!(
            tool_findings(&long),
            ["hint long-description description 5"]
        );
    }

    #[test]
    fn parameters_need_a_description() {
        let found = tool_findings(
            "    parameters:\n      city: {type: string}\n      unit: {description: Unit of the answer}\n      text: \
             {type: string, description: The text}\n      when:\n        type: object\n        additionalProperties: \
             false\n        properties:\n          from: {type: string}\n          to: {type: string, description: \
             'Last day, ISO 8601'}\n        description: The days in question\n",
        );
        assert_eq!(
            found,
            [
                "warning undescribed-parameter parameters.city 7",
                "warning undescribed-parameter parameters.when.properties.from 14",
            ]
        );
    }

    #[test]
    fn refused_schemas_get_no_lints() {
        assert_eq!(
            tool_findings("    parameters: {city: string}\n"),
            ["error invalid parameters.city 6"]
        );
        assert_eq!(
            tool_findings(
                "    input_schema: {type: object, additionalProperties: false, properties: {a: false}}\n"
            ),
            [""; 0]
        );
        let anything = "    input_schema: {type: object, additionalProperties: false, properties: {a: true}}\n";
        assert_eq!(tool_findings(anything), [""; 0]);
        assert_eq!(
            tool_findings("    input_schema: text\n"),
            ["error invalid input_schema 6"]
        );
    }

    #[test]
    fn descriptions_elsewhere_in_the_schema_count() {
        let schema = r##"{"type": "object", "additionalProperties": false, "$defs": {"c": {"type": "string", "description": "City, country"}},
            "properties": {"a": {"$ref": "#/$defs/c"}, "kind": {"const": "x"}, "b": {"anyOf": [{"type": "string", "description": "Name of a place"}, {"type": "null"}]},
            "ids": {"type": "array", "items": {"type": "integer", "description": "Id of a row"}}},
            "if": {"properties": {"kind": {}}}, "then": {"properties": {"b": {"minLength": 2}}}}"##;
        assert_eq!(schema_findings(schema), [""; 0]);
        let undescribed = schema.replace(r#", "description": "City, country""#, "");
        assert_eq!(
            schema_findings(&undescribed),
            ["warning undescribed-parameter properties.a"]
        );
    }
}
