//! Lint: open objects and arrays. Keys or items that a model invents or misspells would reach the tool unnoticed.

use super::Lints;
use super::walk::{Part, Role, Standing};
use crate::manifest::rule::Rule;

/// With any of these keywords, the schema restricts the object's keys.
const SAYS_ITS_KEYS: [&str; 14] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "maxProperties",
    "$ref",
    "$dynamicRef",
    "anyOf",
    "oneOf",
    "allOf",
    "enum",
    "const",
    "required",
];

/// With any of these keywords, the schema restricts the array's items.
const SAYS_ITS_ITEMS: [&str; 10] =
    ["items", "prefixItems", "contains", "$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "enum", "const"];

/// Checks objects and arrays. The root must decide about unknown names. An inner object must restrict its keys in
/// some way. An explicit `additionalProperties: true` shows that an open object is intended.
pub(super) fn look(parts: &[Part<'_>], lints: &mut Lints) {
    for part in parts.iter().filter(|part| part.node.entries().is_some()) {
        if part.standing == Standing::Plain && part.types().contains(&"array") && !part.has(&SAYS_ITS_ITEMS) {
            let message = "takes an array of anything, so a model has to guess; write items: with the schema of one";
            lints.warn(Rule::OpenObject, part.place, part.path.clone(), message);
        }
        if part.role == Role::Root {
            if !part.has(&["additionalProperties", "unevaluatedProperties"]) {
                let message = "takes parameters that it does not name: a misspelt one is let through unseen; write \
                               additionalProperties: false (or true, if that is meant)";
                lints.warn(Rule::OpenObject, part.place, part.path.clone(), message);
            }
        } else if part.standing == Standing::Plain && part.types().contains(&"object") && !part.has(&SAYS_ITS_KEYS) {
            let message = "takes an object with any keys; write properties: and additionalProperties: false (or \
                           additionalProperties: with the schema of its values)";
            lints.warn(Rule::OpenObject, part.place, part.path.clone(), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{of_schema, of_tool};

    #[test]
    fn a_root_that_takes_other_names() {
        assert_eq!(of_schema(r#"{"type": "object"}"#), ["warning open-object input_schema"]);
        for closed in ["false", "true", r#"{"type": "string"}"#] {
            let schema = format!(r#"{{"type": "object", "additionalProperties": {closed}}}"#);
            assert_eq!(of_schema(&schema), [""; 0], "{closed}");
        }
        assert_eq!(of_schema(r#"{"type": "object", "unevaluatedProperties": false}"#), [""; 0]);
    }

    #[test]
    fn an_object_that_says_nothing_of_its_keys() {
        let found = of_tool(
            "    parameters:\n      options: {type: object, description: Further options of the table}\n      labels:\n        \
             type: object\n        description: Text by name of a row\n        additionalProperties: {type: string}\n      \
             list:\n        type: array\n        description: Rows to count\n        items: {type: object}\n",
        );
        assert_eq!(found, ["warning open-object parameters.options 7", "warning open-object parameters.list.items 15"]);
    }

    #[test]
    fn an_array_that_does_not_say_what_it_holds() {
        let found = of_tool("    parameters: {ids: {type: array, description: Rows to count}}\n");
        assert_eq!(found, ["warning open-object parameters.ids 6"]);
        let found = of_tool("    parameters: {ids: {type: array, description: Rows to count, items: {}}}\n");
        assert_eq!(found, [""; 0]);
    }
}
