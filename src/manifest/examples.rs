//! Checks the `examples` of a tool against its schemas.

use serde_json::Value;

use super::decode::Entry;
use crate::call::json::parse_pointer;
use crate::call::{Definition, Violation};
use crate::schema::{Schema, SchemaOwner};

/// Reports each position where an example violates a schema of its tool. A schema with faults of
/// its own is skipped, because these are reported elsewhere.
pub(super) fn check_examples(definition: &Definition, entry: Entry<'_>) {
    if definition.examples.is_empty() {
        return;
    }
    let arguments = Schema::compile_input(definition.input_schema.clone(), SchemaOwner::Own).ok();
    let result = definition
        .output_schema
        .clone()
        .and_then(|schema| Schema::compile_output(schema, SchemaOwner::Own).ok());
    for (at, example) in definition.examples.iter().enumerate() {
        let report = |part: &str, schema: &Option<Schema>, value: &Value| {
            let violations = schema.iter().flat_map(|schema| schema.violations(value));
            for Violation {
                pointer, message, ..
            } in violations
            {
                let start = ["examples", &at.to_string(), part].map(str::to_owned);
                let path: Vec<String> = start.into_iter().chain(parse_pointer(&pointer)).collect();
                entry.error(&path, message);
            }
        };
        report(
            "arguments",
            &arguments,
            &Value::Object(example.arguments.clone()),
        );
        if let Some(value) = &example.result {
            report("result", &result, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::manifest::testing::load_text;

    fn load_errors(text: &str) -> Vec<String> {
        load_text(text).err().unwrap_or_default()
    }

    const ENTRY: &str = "tools:\n  t:\n    kind: command\n    description: Adds a number to a list of numbers.\n    \
                         parameters: {n: {type: integer, maximum: 9, description: A number}}\n    \
                         output_schema: {type: object, properties: {sum: {type: integer}}}\n    \
                         command: [/bin/echo, \"{{ n }}\"]\n";

    #[test]
    fn valid_examples_have_no_findings() {
        assert_eq!(
            load_errors(&format!(
                "{ENTRY}    examples:\n      - arguments: {{n: 3}}\n        result: {{sum: 3}}\n"
            )),
            [""; 0]
        );
    }

    #[test]
    fn invalid_examples_are_errors_with_positions() {
        let found = load_errors(&format!(
            "{ENTRY}    examples:\n      - arguments: {{n: 3}}\n      - arguments: {{n: 12}}\n        result: {{sum: many}}\n"
        ));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("tools.t.examples.1.arguments.n") && found[0].contains('9'),
            "{found:?}"
        );
        assert!(
            found[1].contains("tools.t.examples.1.result.sum"),
            "{found:?}"
        );
    }

    #[test]
    fn example_without_arguments_is_an_error() {
        let found = load_errors(&format!("{ENTRY}    examples: [{{result: {{sum: 3}}}}]\n"));
        assert!(
            found.iter().any(|line| line.contains("arguments")),
            "{found:?}"
        );
    }
}
