//! Lint: descriptions, the only text that tells a model about a tool and its parameters.
//!
//! A description is vague if no word in it is specific. This is so for a placeholder, or for fewer than three words.
//! It is also so if each word is part of the tool's name, a filler (`the`, `a`), or fits any tool (`handle`, `data`).
//! One specific word is enough, so an ordinary sentence is never reported. Words are examined only in ASCII texts; of
//! other texts only the length is checked.

use std::collections::HashSet;

use serde_json::Value;

use super::Lints;
use super::walk::{Part, Standing, ToolSchema};
use crate::manifest::finding::Place;
use crate::manifest::load::WrittenTool;
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;
use crate::providers::Provider;

const FEWEST_WORDS: usize = 3;
/// In scripts without spaces, a sentence has about a dozen characters, and four are a name.
const FEWEST_CHARACTERS: usize = 5;

const PLACEHOLDERS: [&str; 9] = [
    "todo",
    "fixme",
    "tbd",
    "xxx",
    "placeholder",
    "lorem ipsum",
    "description here",
    "add description",
    "no description",
];

/// Words that fit the description of any tool.
const ANY_TOOL: [&str; 77] = [
    "a",
    "an",
    "the",
    "this",
    "that",
    "it",
    "its",
    "is",
    "are",
    "be",
    "to",
    "of",
    "for",
    "in",
    "on",
    "with",
    "by",
    "and",
    "or",
    "from",
    "as",
    "at",
    "you",
    "your",
    "can",
    "will",
    "used",
    "use",
    "uses",
    "using",
    "useful",
    "any",
    "some",
    "various",
    "all",
    "do",
    "does",
    "things",
    "thing",
    "stuff",
    "something",
    "tool",
    "tools",
    "function",
    "helper",
    "utility",
    "util",
    "api",
    "call",
    "calls",
    "run",
    "runs",
    "execute",
    "executes",
    "perform",
    "performs",
    "handle",
    "handles",
    "process",
    "processes",
    "manage",
    "get",
    "gets",
    "fetch",
    "fetches",
    "search",
    "searches",
    "data",
    "information",
    "info",
    "request",
    "requests",
    "operation",
    "operations",
    "task",
    "tasks",
    "result",
];

/// Words that fit the description of any parameter.
const ANY_PARAMETER: [&str; 20] = [
    "a",
    "an",
    "the",
    "this",
    "that",
    "is",
    "of",
    "to",
    "for",
    "be",
    "value",
    "parameter",
    "param",
    "argument",
    "arg",
    "input",
    "given",
    "use",
    "used",
    "its",
];

/// Checks the description of a tool, if the manifest gives one. The loader has reported a missing or empty one.
pub(super) fn of_tool(tool: &WrittenTool, under: &str, lints: &mut Lints) {
    let Some((place, text)) = text_of(&tool.entry) else { return };
    let path = format!("{under}.description");
    if text.trim().is_empty() {
        return;
    }
    if let Some(why) = vague(text, &tool.key.text) {
        let message = format!("{why}; say what the tool does, with what, and when to use it");
        lints.warn(Rule::VagueDescription, place, path.clone(), message);
    }
    for provider in Provider::ALL {
        let length = text.chars().count();
        if let Some(most) = provider.longest_description().filter(|most| length > *most) {
            let name = provider.as_str();
            let message =
                format!("{length} characters; {name} refuses more than {most} for some models: move the rest");
            lints.hint(Rule::LongDescription, place, path.clone(), message + " into the parameters' descriptions");
        }
    }
}

/// Why a description is vague.
fn vague(text: &str, name: &str) -> Option<&'static str> {
    let lower = text.trim().to_lowercase();
    if PLACEHOLDERS.iter().any(|mark| lower.starts_with(mark)) || lower.chars().all(|c| !c.is_alphanumeric()) {
        return Some("a placeholder, not a description");
    }
    if !text.is_ascii() {
        return (text.chars().count() < FEWEST_CHARACTERS).then_some("too short to tell a model anything");
    }
    let (said, known) = (words(text), words(name));
    if said.iter().all(|word| known.iter().any(|part| alike(word, part)) || ANY_TOOL.contains(&word.as_str())) {
        return Some("says no more than the tool's name");
    }
    (said.len() < FEWEST_WORDS).then_some("too short to tell a model anything")
}

/// Finds parameters without a description, or with a vague one.
pub(super) fn of_parameters(schema: &ToolSchema<'_>, parts: &[Part<'_>], lints: &mut Lints) {
    let names = |wanted: fn(&ToolSchema<'_>, &Node) -> bool| -> HashSet<&str> {
        let plain = parts.iter().filter(|part| part.standing == Standing::Plain && wanted(schema, part.node));
        plain.filter_map(|part| part.role.property()).collect()
    };
    // A branch adds to another schema of the same parameter, so it need not repeat type and description.
    let (described_elsewhere, typed_elsewhere) = (names(is_described), names(|_, node| is_typed(node)));
    for part in parts {
        let Some(name) = part.role.property() else { continue };
        // `false` forbids the parameter. The loader refuses anything but a map and `true`.
        let is_schema = part.node.entries().is_some() || matches!(part.node.data, Data::Scalar(Value::Bool(true)));
        if part.standing == Standing::Test || !is_schema {
            continue;
        }
        let is_branch = part.standing == Standing::Branch;
        let has_type = is_typed(part.node) || (is_branch && typed_elsewhere.contains(name));
        if !has_type {
            let message = "takes any value at all; write type: string, integer, number, boolean, array or object";
            lints.warn(Rule::UntypedParameter, part.place, part.path.clone(), message);
        }
        match text_of(part.node) {
            Some((place, text)) if !text.trim().is_empty() => {
                if repeats(text, name) {
                    let message = "says no more than the name; add the meaning, the unit or an example";
                    lints.hint(Rule::RepeatedName, place, part.below(&["description"]), message);
                }
            }
            // `true` cannot have a description, and its missing type was reported.
            _ if part.node.entries().is_none() => {}
            _ if is_described(schema, part.node) || (is_branch && described_elsewhere.contains(name)) => {}
            _ => {
                let message = "no description: a model has to guess what belongs here; write description: with the \
                               meaning, the unit or an example";
                lints.warn(Rule::UndescribedParameter, part.place, part.path.clone(), message);
            }
        }
    }
}

fn text_of(node: &Node) -> Option<(&Place, &str)> {
    let (key, value) = node.entries()?.iter().find(|(key, _)| key.text == "description")?;
    match &value.data {
        Data::Scalar(value) => Some((&key.place, value.as_str()?)),
        _ => None,
    }
}

/// Whether a parameter has a description. A constant needs none. The target of its reference or one of its
/// alternatives may have it.
fn is_described(schema: &ToolSchema<'_>, node: &Node) -> bool {
    let own = |node: &Node| text_of(node).is_some_and(|(_, text)| !text.trim().is_empty());
    let forms = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|keyword| node.get(keyword));
    let mut forms = forms.flat_map(|list| if let Data::List(items) = &list.data { items.as_slice() } else { &[] });
    let by_reference = || match (node.get("$ref"), schema.target(node)) {
        (Some(_), Some(target)) => own(target),
        // Anchors and the like are not followed, so nothing is reported.
        (Some(_), None) => true,
        (None, _) => node.get("$dynamicRef").is_some(),
    };
    own(node)
        || node.get("const").is_some()
        || by_reference()
        || node.get("items").is_some_and(own)
        || forms.any(|form| own(form) || schema.target(form).is_some_and(own))
}

fn is_typed(node: &Node) -> bool {
    const SAY_IT: [&str; 13] = [
        "type",
        "enum",
        "const",
        "$ref",
        "$dynamicRef",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "properties",
        "items",
        "prefixItems",
    ];
    SAY_IT.iter().any(|keyword| node.get(keyword).is_some())
}

fn repeats(text: &str, name: &str) -> bool {
    let (said, known) = (words(text), words(name));
    text.is_ascii()
        && said.iter().all(|word| known.iter().any(|part| alike(word, part)) || ANY_PARAMETER.contains(&word.as_str()))
}

/// The words of a text or a name. `camelCase` and `snake_case` are split.
fn words(text: &str) -> Vec<String> {
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
fn alike(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let stem = short.strip_suffix(['y', 'e']).unwrap_or(short);
    long == short || (stem.len() >= 3 && long.starts_with(stem) && long.len() <= stem.len() + 3)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{of_schema, of_tool};
    use super::vague;

    #[test]
    fn a_description_with_nothing_particular_is_vague() {
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
            assert!(vague(text, name).is_some(), "{text}");
        }
    }

    #[test]
    fn a_plain_sentence_is_not() {
        for (name, text) in [
            ("get_weather", "Current weather for a city. Use for questions about weather now, not for forecasts."),
            ("delete_rows", "Deletes rows by id."),
            ("word_count", "Counts the words of a text."),
            ("sort_lines", "Sorts the lines of a text and removes repeated ones."),
            ("web_search", "Searches the web for recent events and figures."),
            ("todo_list", "Lists open todos of the current user."),
            ("x", "查询某个城市的当前天气"),
            ("x", "Søker i arkivet"),
            ("math_specialist", "Works out hard arithmetic step by step."),
            ("top_customers", "The ten customers with the highest revenue in a year."),
        ] {
            assert_eq!(vague(text, name), None, "{text}");
        }
    }

    #[test]
    fn tools_without_words_and_with_too_many() {
        assert_eq!(of_tool("    description: ' '\n"), ["error invalid description 5"]);
        assert_eq!(of_tool("    description: Does stuff\n"), ["warning vague-description description 5"]);
        let long = format!("    description: Counts rows of customers. {}\n", "x".repeat(1100));
        assert_eq!(of_tool(&long), ["hint long-description description 5"]);
    }

    #[test]
    fn parameters_say_what_they_are() {
        let found = of_tool(
            "    parameters:\n      city: {type: string}\n      unit: {description: Unit of the answer}\n      text: \
             {type: string, description: The text}\n      when:\n        type: object\n        additionalProperties: \
             false\n        properties:\n          from: {type: string}\n          to: {type: string, description: \
             'Last day, ISO 8601'}\n        description: The days in question\n",
        );
        assert_eq!(
            found,
            [
                "warning undescribed-parameter parameters.city 7",
                "warning untyped-parameter parameters.unit 8",
                "warning undescribed-parameter parameters.when.properties.from 14",
                "hint repeated-name parameters.text.description 9",
            ]
        );
    }

    #[test]
    fn what_was_refused_is_not_judged() {
        assert_eq!(of_tool("    parameters: {city: string}\n"), ["error invalid parameters.city 6"]);
        assert_eq!(
            of_tool("    input_schema: {type: object, additionalProperties: false, properties: {a: false}}\n"),
            [""; 0]
        );
        let anything = "    input_schema: {type: object, additionalProperties: false, properties: {a: true}}\n";
        assert_eq!(of_tool(anything), ["warning untyped-parameter input_schema.properties.a 6"]);
        assert_eq!(of_tool("    input_schema: text\n"), ["error invalid input_schema 6"]);
    }

    #[test]
    fn what_is_said_elsewhere_need_not_be_said_again() {
        let schema = r##"{"type": "object", "additionalProperties": false, "$defs": {"c": {"type": "string", "description": "City, country"}},
            "properties": {"a": {"$ref": "#/$defs/c"}, "kind": {"const": "x"}, "b": {"anyOf": [{"type": "string", "description": "Name of a place"}, {"type": "null"}]},
            "ids": {"type": "array", "items": {"type": "integer", "description": "Id of a row"}}},
            "if": {"properties": {"kind": {}}}, "then": {"properties": {"b": {"minLength": 2}}}}"##;
        assert_eq!(of_schema(schema), [""; 0]);
        let undescribed = schema.replace(r#", "description": "City, country""#, "");
        assert_eq!(of_schema(&undescribed), ["warning undescribed-parameter properties.a"]);
    }
}
