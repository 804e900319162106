//! Reads the schemas of a tool's entry, and reports their faults at their places.

use std::sync::Arc;

use serde_json::Value;

use super::decode::join_path;
use super::input_schema::InputSchema;
use super::node::Node;
use super::parameters;
use super::tool::ToolReader;
use crate::call::json::{escape_pointer_token, parse_pointer};
use crate::schema::{Schema, SchemaFault, SchemaOwner};

impl ToolReader<'_> {
    /// The input schema, from `parameters` or `input_schema`; `None` if there is neither.
    pub(super) fn read_input_schema(
        &mut self,
        node: &Node,
        entry_path: &str,
    ) -> Option<InputSchema> {
        let schema = match (node.get("parameters"), node.get("input_schema")) {
            (Some(_), Some(_)) => {
                let key = ["input_schema".to_owned()];
                self.findings.error(
                    node,
                    &key,
                    entry_path,
                    "parameters and input_schema say the same thing: keep one",
                );
                return None;
            }
            (Some(shorthand), None) => parameters::compile_parameters(
                shorthand,
                &join_path(entry_path, &["parameters".into()]),
                self.findings,
            )?,
            (None, Some(full)) => full.to_json(),
            (None, None) => return None,
        };
        let (key, skip) = if node.get("parameters").is_some() {
            ("parameters", 1)
        } else {
            ("input_schema", 0)
        };
        let value = Arc::new(schema);
        let compiled = match Schema::compile_input(value.clone(), SchemaOwner::Own) {
            Err(fault) => {
                self.report_schema_faults(node, entry_path, key, skip, &value, fault);
                None
            }
            Ok(compiled) => {
                for (name, message) in compiled.misfit_defaults() {
                    let pointer = format!("/properties/{}/default", escape_pointer_token(&name));
                    self.report_schema_fault(
                        node,
                        entry_path,
                        key,
                        skip,
                        &SchemaFault {
                            pointer,
                            message,
                            is_too_large: false,
                        },
                    );
                }
                Some(Arc::new(compiled))
            }
        };
        Some(InputSchema { value, compiled })
    }

    /// Reports all faults of a schema. `fault` is the one that prevents its compilation.
    fn report_schema_faults(
        &mut self,
        node: &Node,
        entry_path: &str,
        key: &str,
        skip: usize,
        schema: &Value,
        fault: SchemaFault,
    ) {
        let mut faults = Schema::definition_faults(schema);
        if faults.is_empty() {
            faults.push(fault);
        }
        for fault in &faults {
            self.report_schema_fault(node, entry_path, key, skip, fault);
        }
    }

    fn report_schema_fault(
        &mut self,
        node: &Node,
        entry_path: &str,
        key: &str,
        skip: usize,
        fault: &SchemaFault,
    ) {
        let tokens = parse_pointer(&fault.pointer).skip(skip);
        let path: Vec<String> = std::iter::once(key.to_owned()).chain(tokens).collect();
        self.findings
            .error(node, &path, entry_path, fault.message.clone());
    }

    /// The output schema. `None` with a warning if it is too large.
    pub(super) fn read_output_schema(
        &mut self,
        node: &Node,
        entry_path: &str,
    ) -> Option<Arc<Value>> {
        let schema = node.get("output_schema")?.to_json();
        let schema = Arc::new(schema);
        match Schema::compile_output(schema.clone(), SchemaOwner::Own) {
            Err(fault) if fault.is_too_large => {
                let tokens = parse_pointer(&fault.pointer);
                let path: Vec<String> = std::iter::once("output_schema".to_owned())
                    .chain(tokens)
                    .collect();
                let message = format!(
                    "{}; the tool is served without its output schema",
                    fault.message
                );
                self.findings.warning(node, &path, entry_path, message);
                return None;
            }
            Err(fault) => {
                self.report_schema_faults(node, entry_path, "output_schema", 0, &schema, fault);
            }
            Ok(_) => {}
        }
        let root = schema.get("type").and_then(Value::as_str);
        if root.is_some_and(|root| root != "object" && root != "array") {
            let message = "structured content is an object or an array; a plain text or number needs no schema";
            self.findings.error(
                node,
                &["output_schema".into(), "type".into()],
                entry_path,
                message,
            );
        }
        Some(schema)
    }
}
