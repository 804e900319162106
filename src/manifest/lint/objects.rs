//! Lint: open objects and arrays. Keys or items that a model invents or misspells would reach the
//! tool unnoticed.

use super::Lints;
use super::schema_parts::{Applicability, Part, Role};
use crate::call::words;
use crate::manifest::rule::Rule;

/// With any of these keywords, a schema restricts its values.
const RESTRICTING: [&str; 7] = words("$ref $dynamicRef anyOf oneOf allOf enum const");
/// Further ones for the keys of an object, and for the items of an array.
const OF_OBJECTS: [&str; 7] = words(
    "properties patternProperties additionalProperties unevaluatedProperties propertyNames
     maxProperties required",
);
const OF_ARRAYS: [&str; 3] = ["items", "prefixItems", "contains"];

/// Checks objects and arrays. The root must decide about unknown names. An inner object must
/// restrict its keys in some way. An explicit `additionalProperties: true` shows that an open
/// object is intended.
pub(super) fn check_objects(parts: &[Part<'_>], lints: &mut Lints) {
    for part in parts.iter().filter(|part| part.node.entries().is_some()) {
        if part.applicability == Applicability::Always
            && part.types().contains(&"array")
            && !part.has_any(&RESTRICTING)
            && !part.has_any(&OF_ARRAYS)
        {
            let message = "accepts any items, so a model has to guess; write items: with the schema of an item";
            lints.warn(Rule::OpenObject, part.location, part.path.clone(), message);
        }
        if part.role == Role::Root {
            if !part.has_any(&["additionalProperties", "unevaluatedProperties"]) {
                let message = "accepts unknown parameters, so a misspelt name goes unnoticed; write \
                               additionalProperties: false (or true, if that is intended)";
                lints.warn(Rule::OpenObject, part.location, part.path.clone(), message);
            }
        } else if part.applicability == Applicability::Always
            && part.types().contains(&"object")
            && !part.has_any(&RESTRICTING)
            && !part.has_any(&OF_OBJECTS)
        {
            let message = "accepts an object with any keys; write properties: and additionalProperties: false (or \
                           additionalProperties: with the schema of its values)";
            lints.warn(Rule::OpenObject, part.location, part.path.clone(), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{schema_findings, tool_findings};

    #[test]
    fn open_roots_are_warnings() {
        assert_eq!(
            schema_findings(r#"{"type": "object"}"#),
            ["warning open-object input_schema"]
        );
        for closed in ["false", "true", r#"{"type": "string"}"#] {
            let schema = format!(r#"{{"type": "object", "additionalProperties": {closed}}}"#);
            assert_eq!(schema_findings(&schema), [""; 0], "{closed}");
        }
        assert_eq!(
            schema_findings(r#"{"type": "object", "unevaluatedProperties": false}"#),
            [""; 0]
        );
    }

    #[test]
    fn objects_with_any_keys_are_warnings() {
        let found = tool_findings(
            "    parameters:\n      options: {type: object, description: Further options of the table}\n      labels:\n        \
             type: object\n        description: Text by name of a row\n        additionalProperties: {type: string}\n      \
             list:\n        type: array\n        description: Rows to count\n        items: {type: object}\n",
        );
        assert_eq!(
            found,
            [
                "warning open-object parameters.options 7",
                "warning open-object parameters.list.items 15"
            ]
        );
    }

    #[test]
    fn arrays_of_anything_are_warnings() {
        let found =
            tool_findings("    parameters: {ids: {type: array, description: Rows to count}}\n");
        assert_eq!(found, ["warning open-object parameters.ids 6"]);
        let found = tool_findings(
            "    parameters: {ids: {type: array, description: Rows to count, items: {}}}\n",
        );
        assert_eq!(found, [""; 0]);
    }
}
