//! Leaves values that the schema marks `writeOnly` out of the record. The tool itself gets them.
//!
//! When in doubt, a value is left out. Every branch of a combination counts. A string is left out
//! completely where a marked value could be inside it (an object sent as JSON text).

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::keywords::{item_schemas, local_target, member_schemas, same_value_parts};
use crate::call::json::children;
use crate::secrets::REDACTED;

/// Bounds on the number of schemas visited for one call, and on their depth. A recursive schema has
/// no end, and each level uses stack. Values beyond these bounds are left out too.
const MAX_STEPS: usize = 20_000;
const MAX_DEPTH: usize = 256;

/// Whether any part of a schema is marked `writeOnly`.
pub fn has_write_only(schema: &Value) -> bool {
    WriteOnly::from_schema(schema).is_some()
}

/// The parts of one schema that lead to a `writeOnly` mark. They are computed once.
pub(super) struct WriteOnly {
    /// Addresses of these parts. They stay valid because the schema is never moved.
    marked_paths: HashSet<usize>,
}

impl WriteOnly {
    /// `None` if nothing is marked.
    pub(super) fn from_schema(schema: &Value) -> Option<Self> {
        // The reverse links: from a part to its container, and from a target to the part that
        // refers to it.
        let (mut led_by, mut marked): (HashMap<usize, Vec<usize>>, Vec<usize>) =
            (HashMap::new(), Vec::new());
        let mut open = vec![schema];
        while let Some(part) = open.pop() {
            let at = std::ptr::from_ref(part).addr();
            if is_marked(part) {
                marked.push(at);
            }
            let mut lead = |to: &Value| {
                led_by
                    .entry(std::ptr::from_ref(to).addr())
                    .or_default()
                    .push(at);
            };
            if let Some(target) = local_target(schema, part) {
                lead(target);
            }
            for inner in children(part) {
                lead(inner);
                open.push(inner);
            }
        }
        let mut leads = HashSet::new();
        while let Some(at) = marked.pop() {
            if leads.insert(at) {
                marked.extend(led_by.get(&at).into_iter().flatten());
            }
        }
        (!leads.is_empty()).then_some(Self {
            marked_paths: leads,
        })
    }

    /// Replaces every marked value by the redaction text.
    pub(super) fn redact(&self, schema: &Value, value: &mut Value) {
        self.redact_value(schema, schema, value, &mut { MAX_STEPS }, 0);
    }

    fn redact_value(
        &self,
        root: &Value,
        schema: &Value,
        value: &mut Value,
        steps: &mut usize,
        depth: usize,
    ) {
        if !self
            .marked_paths
            .contains(&std::ptr::from_ref(schema).addr())
        {
            return;
        }
        let left = *steps;
        *steps = left.saturating_sub(1);
        if left == 0 || depth > MAX_DEPTH || is_marked(schema) || value.is_string() {
            *value = REDACTED.into();
            return;
        }
        let mut redact = |part: &Value, value: &mut Value| {
            self.redact_value(root, part, value, steps, depth + 1);
        };
        let of_same = local_target(root, schema).into_iter();
        let of_same = of_same.chain(same_value_parts(schema));
        of_same
            .chain(schema.get("not"))
            .for_each(|part| redact(part, value));
        match value {
            Value::Object(object) => {
                for (name, inner) in object {
                    let parts = member_schemas(schema, name);
                    parts.into_iter().for_each(|part| redact(part, inner));
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    let parts = item_schemas(schema, at).into_iter();
                    parts
                        .chain(schema.get("contains"))
                        .for_each(|part| redact(part, item));
                }
            }
            _ => {}
        }
    }
}

fn is_marked(schema: &Value) -> bool {
    schema.get("writeOnly") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(schema: &Value, mut value: Value) -> Value {
        WriteOnly::from_schema(schema)
            .unwrap()
            .redact(schema, &mut value);
        value
    }

    /// A schema `levels` levels below `outer`. One level further down, `pin` is marked.
    fn nested(levels: usize, outer: fn(Value) -> Value) -> Value {
        (0..levels).fold(
            json!({"properties": {"pin": {"writeOnly": true}}}),
            |inner, _| outer(inner),
        )
    }

    #[test]
    fn too_deep_schemas_redact_everything() {
        let outers: [fn(Value) -> Value; 5] = [
            |inner| json!({"if": inner}),
            |inner| json!({"not": inner}),
            |inner| json!({"allOf": [inner]}),
            |inner| json!({"oneOf": [true, inner]}),
            |inner| json!({"dependentSchemas": {"x": inner}}),
        ];
        for outer in outers {
            let value = json!({"pin": 1, "x": 2});
            assert_eq!(
                hidden(&nested(MAX_DEPTH - 1, outer), value.clone()),
                json!({"pin": REDACTED, "x": 2})
            );
            assert_eq!(
                hidden(&nested(MAX_DEPTH, outer), value.clone()),
                json!({"pin": REDACTED, "x": 2})
            );
            assert_eq!(
                hidden(&nested(MAX_DEPTH + 1, outer), value),
                json!(REDACTED)
            );
        }
        let mut schema = nested(0, |inner| inner);
        schema["$defs"] = (0..300)
            .map(|n| {
                (
                    format!("d{n}"),
                    json!({"$ref": format!("#/$defs/d{}", n + 1)}),
                )
            })
            .collect();
        schema["$defs"]["d300"] = json!({"properties": {"pin": {"writeOnly": true}}});
        schema["$ref"] = json!("#/$defs/d0");
        assert_eq!(hidden(&schema, json!({"pin": 1, "x": 2})), json!(REDACTED));
    }

    #[test]
    fn too_deep_values_are_redacted() {
        type Wrap = fn(Value) -> Value;
        let parts: [(Wrap, Wrap, &str); 5] = [
            (
                |inner| json!({"properties": {"a": inner}}),
                |inner| json!({"a": inner}),
                "/a",
            ),
            (
                |inner| json!({"additionalProperties": inner}),
                |inner| json!({"a": inner}),
                "/a",
            ),
            (
                |inner| json!({"patternProperties": {"^a": inner}}),
                |inner| json!({"a": inner}),
                "/a",
            ),
            (
                |inner| json!({"items": inner}),
                |inner| json!([inner]),
                "/0",
            ),
            (
                |inner| json!({"prefixItems": [inner]}),
                |inner| json!([inner]),
                "/0",
            ),
        ];
        for (schema, value, token) in parts {
            let deep = |levels: usize| {
                let value = (0..levels).fold(json!({"pin": 1, "x": 2}), |inner, _| value(inner));
                hidden(&nested(levels, schema), value)
                    .pointer(&token.repeat(levels))
                    .cloned()
            };
            assert_eq!(deep(MAX_DEPTH - 1), Some(json!({"pin": REDACTED, "x": 2})));
            assert_eq!(deep(MAX_DEPTH + 1), Some(json!(REDACTED)), "{token}");
        }
    }

    #[test]
    fn values_beyond_the_step_limit_are_redacted() {
        let schema = json!({"items": {"properties": {"pin": {"writeOnly": true}}}});
        let value = hidden(&schema, json!(vec![json!({"pin": 1, "x": 2}); MAX_STEPS]));
        assert_eq!(value[0], json!({"pin": REDACTED, "x": 2}));
        assert_eq!(value[MAX_STEPS / 2 - 2], json!({"pin": REDACTED, "x": 2}));
        assert_eq!(value[MAX_STEPS / 2 + 1], json!(REDACTED));
        assert_eq!(value[MAX_STEPS - 1], json!(REDACTED));
    }
}
