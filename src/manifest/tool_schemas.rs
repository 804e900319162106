//! Reads the schemas of a tool's entry, and reports their faults at their places.

use std::sync::Arc;

use serde_json::Value;

use super::decode::Entry;
use super::finding::join_path;
use super::parameters;
use crate::call::json::{escape_pointer_token, parse_pointer};
use crate::call::{Definition, Violation};
use crate::schema::{Schema, SchemaFault, SchemaOwner};

/// The input schema, from `parameters` or `input_schema`; `None` if there is neither.
pub(super) fn read_input_schema(entry: Entry<'_>) -> Option<InputSchema> {
    let (key, schema) = match (entry.get("parameters"), entry.get("input_schema")) {
        (Some(_), Some(_)) => {
            let message = "parameters and input_schema say the same thing: keep one";
            entry.error(&["input_schema"], message);
            return None;
        }
        (Some(shorthand), None) => {
            let path = join_path(entry.path, &["parameters"]);
            let shorthand = entry.findings.entry(shorthand, &path);
            ("parameters", parameters::compile_parameters(shorthand)?)
        }
        (None, Some(full)) => ("input_schema", full.to_json()),
        (None, None) => return None,
    };
    let value = Arc::new(schema);
    let compiled = match Schema::compile_input(value.clone(), SchemaOwner::Own) {
        Err(fault) => {
            report_schema_faults(entry, key, &value, fault);
            None
        }
        Ok(compiled) => {
            for (name, message) in compiled.misfit_defaults() {
                let pointer = format!("/properties/{}/default", escape_pointer_token(&name));
                entry.error(&path_of(key, &pointer), message);
            }
            Some(Arc::new(compiled))
        }
    };
    Some(InputSchema { value, compiled })
}

/// The keys to a place in the schema below `key`. The shorthand leaves `properties` out.
fn path_of(key: &str, pointer: &str) -> Vec<String> {
    let skip = usize::from(key == "parameters");
    let tokens = parse_pointer(pointer).skip(skip);
    std::iter::once(key.to_owned()).chain(tokens).collect()
}

/// Reports all faults of a schema. `fault` is the one that prevents its compilation.
fn report_schema_faults(entry: Entry<'_>, key: &str, schema: &Value, fault: SchemaFault) {
    let mut faults = Schema::definition_faults(schema);
    if faults.is_empty() {
        faults.push(fault);
    }
    for fault in faults {
        entry.error(&path_of(key, &fault.pointer), fault.message);
    }
}

/// The output schema. `None` with a warning if it is too large.
pub(super) fn read_output_schema(entry: Entry<'_>) -> Option<Arc<Value>> {
    let schema = Arc::new(entry.get("output_schema")?.to_json());
    match Schema::compile_output(schema.clone(), SchemaOwner::Own) {
        Err(fault) if fault.is_too_large => {
            let message = format!(
                "{}; the tool is served without its output schema",
                fault.message
            );
            entry.warning(&path_of("output_schema", &fault.pointer), message);
            return None;
        }
        Err(fault) => report_schema_faults(entry, "output_schema", &schema, fault),
        Ok(_) => {}
    }
    let root = schema.get("type").and_then(Value::as_str);
    if root.is_some_and(|root| root != "object" && root != "array") {
        let message =
            "structured content is an object or an array; a plain text or number needs no schema";
        entry.error(&["output_schema", "type"], message);
    }
    Some(schema)
}

/// A schema, and its compiled form for the catalog, which would compile it again.
pub(super) struct InputSchema {
    pub(super) value: Arc<Value>,
    /// `None` if it has faults.
    pub(super) compiled: Option<Arc<Schema>>,
}

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
