//! Writes whole numbers as integers where the schema requires an integer.
//!
//! `5.0` and `1e3` are integers for JSON Schema (2020-12 validation, 6.1.1), and clients that
//! compute with doubles send them. A tool would get `5.0`, and put it into a URL or an argument.
//! Where a schema permits any number, the value stays as it is: SQLite divides `7/5.0` differently.

use std::collections::HashSet;

use serde_json::Value;

use super::keywords::{item_schemas, local_target, member_schemas, same_value_parts};

/// Converts the whole numbers in a value that fits the schema.
pub(super) fn write_integers(root: &Value, value: &mut Value) {
    if has_whole_double(value) {
        convert(root, &with_parts(root, vec![root]), value);
    }
}

fn convert(root: &Value, schemas: &[&Value], value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(integer) = number
                .as_f64()
                .filter(|_| number.is_f64())
                .and_then(to_integer)
                && requires_integer(schemas)
            {
                *value = integer;
            }
        }
        Value::Array(items) => {
            let items_with_doubles = items.iter_mut().enumerate();
            for (at, item) in items_with_doubles.filter(|(_, item)| has_whole_double(item)) {
                let of_item = schemas.iter().flat_map(|schema| item_schemas(schema, at));
                let of_item = with_parts(root, of_item.collect());
                convert(root, &of_item, item);
            }
        }
        Value::Object(members) => {
            let members = members.iter_mut();
            for (name, member) in members.filter(|(_, member)| has_whole_double(member)) {
                let of_member = schemas
                    .iter()
                    .flat_map(|schema| member_schemas(schema, name));
                let of_member = with_parts(root, of_member.collect());
                convert(root, &of_member, member);
            }
        }
        _ => {}
    }
}

fn has_whole_double(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().and_then(to_integer).is_some(),
        Value::Array(items) => items.iter().any(has_whole_double),
        Value::Object(members) => members.values().any(has_whole_double),
        _ => false,
    }
}

/// The integer of 64 bits that equals the double.
pub(super) fn to_integer(double: f64) -> Option<Value> {
    // Both bounds are powers of two, so the comparison is exact.
    let (least, beyond) = (-(2_f64.powi(63)), 2_f64.powi(64));
    (double.fract() == 0.0 && (least..beyond).contains(&double)).then(|| match double < 0.0 {
        true => Value::from(double as i64),
        false => Value::from(double as u64),
    })
}

/// Whether one schema asks for an integer, and none permits another number.
fn requires_integer(schemas: &[&Value]) -> bool {
    let names = |schema: &Value, wanted: &str| match schema.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        _ => false,
    };
    schemas.iter().any(|schema| names(schema, "integer"))
        && !schemas.iter().any(|schema| names(schema, "number"))
}

/// The schemas with all others that stand for the same value: references and branches. Every branch
/// counts, because a branch that does not apply rarely names another type.
fn with_parts<'s>(root: &'s Value, mut open: Vec<&'s Value>) -> Vec<&'s Value> {
    let (mut seen, mut schemas) = (HashSet::new(), Vec::new());
    while let Some(schema) = open.pop() {
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        schemas.push(schema);
        open.extend(local_target(root, schema));
        open.extend(same_value_parts(schema));
    }
    schemas
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(schema: Value, mut value: Value) -> String {
        write_integers(&schema, &mut value);
        value.to_string()
    }

    #[test]
    fn whole_numbers_become_integers_where_the_schema_says_so() {
        let schema = json!({
            "$defs": {"id": {"type": "integer"}},
            "properties": {
                "n": {"type": "integer"}, "any": {"type": "number"}, "both": {"type": ["integer", "number"]},
                "list": {"items": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/id"}]}},
                "pair": {"prefixItems": [{"type": "number"}, {"type": "integer"}]},
                "free": {},
            },
            "allOf": [{"properties": {"deep": {"properties": {"n": {"type": ["integer", "null"]}}}}}],
            "additionalProperties": {"type": "integer"},
        });
        let value = json!({
            "n": 5.0, "any": 5.0, "both": 5.0, "list": [1e3, null, 7], "pair": [2.0, 2.0], "free": 1.0,
            "deep": {"n": -0.0}, "other": 1e18,
        });
        assert_eq!(
            written(schema, value),
            r#"{"n":5,"any":5.0,"both":5.0,"list":[1000,null,7],"pair":[2.0,2],"free":1.0,"deep":{"n":0},"other":1000000000000000000}"#
        );
    }

    #[test]
    fn numbers_beyond_64_bits_stay() {
        let schema = json!({"items": {"type": "integer"}});
        let value = json!([1e20, -1e19, 18446744073709549568.0, -9223372036854775808.0]);
        assert_eq!(
            written(schema, value),
            "[1e+20,-1e+19,18446744073709549568,-9223372036854775808]"
        );
    }

    #[test]
    fn recursive_schemas_end() {
        let schema = json!({"anyOf": [{"$ref": "#"}, {"type": "integer"}], "items": {"$ref": "#"}});
        assert_eq!(written(schema, json!([[3.0]])), "[[3]]");
    }
}
