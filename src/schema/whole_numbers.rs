//! Writes whole numbers as integers where the schema requires an integer, and reads texts that stand
//! for numbers.
//!
//! `5.0` and `1e3` are integers for JSON Schema (2020-12 validation, 6.1.1), and clients that
//! compute with doubles send them. A tool would get `5.0`, and put it into a URL or an argument.
//! Where a schema permits any number, the value stays as it is: SQLite divides `7/5.0` differently.
//!
//! A number with more digits than a number holds here is a text in results. Such a text fits where
//! the schema requires a number that fits.

use std::collections::HashSet;

use serde_json::Value;
use toolcrib_dialect::Mended;

use super::keywords::{item_schemas, local_target, member_schemas, same_value_parts};

/// Which values are replaced.
struct Replacement {
    /// The value in place of this one.
    of: fn(&Value) -> Option<Value>,
    /// One schema asks for one of these types.
    types: &'static [&'static str],
    /// No schema permits this type.
    other: &'static str,
}

const WHOLE_DOUBLES: Replacement = Replacement {
    of: |value| {
        let number = value.as_number().filter(|number| number.is_f64())?;
        to_integer(number.as_f64()?)
    },
    types: &["integer"],
    other: "number",
};

const LONG_NUMBERS: Replacement = Replacement {
    of: |value| {
        // The first character decides for most texts.
        let begins = |first: char| first == '-' || first.is_ascii_digit();
        let text = value.as_str().filter(|text| text.starts_with(begins))?;
        let mended = Mended::of_result(text.as_bytes());
        let is_number = mended.changes.numbers && mended.text.len() == text.len() + 2;
        let number: f64 = text.parse().ok().filter(|_| is_number)?;
        Some(number.clamp(f64::MIN, f64::MAX).into())
    },
    types: &["integer", "number"],
    other: "string",
};

/// Converts the whole numbers in a value that fits the schema.
pub(super) fn write_integers(root: &Value, value: &mut Value) {
    WHOLE_DOUBLES.apply(root, value);
}

/// The value with near numbers in place of texts that stand for numbers. `None` without such texts.
pub(super) fn read_long_numbers(root: &Value, value: &Value) -> Option<Value> {
    LONG_NUMBERS.is_in(value).then(|| {
        let mut value = value.clone();
        LONG_NUMBERS.apply(root, &mut value);
        value
    })
}

impl Replacement {
    fn apply(&self, root: &Value, value: &mut Value) {
        if self.is_in(value) {
            self.apply_to(root, &with_parts(root, vec![root]), value);
        }
    }

    fn apply_to(&self, root: &Value, schemas: &[&Value], value: &mut Value) {
        match value {
            Value::Array(items) => {
                let items = items.iter_mut().enumerate();
                for (at, item) in items.filter(|(_, item)| self.is_in(item)) {
                    let of_item = schemas.iter().flat_map(|schema| item_schemas(schema, at));
                    let of_item = with_parts(root, of_item.collect());
                    self.apply_to(root, &of_item, item);
                }
            }
            Value::Object(members) => {
                let members = members.iter_mut();
                for (name, member) in members.filter(|(_, member)| self.is_in(member)) {
                    let of_member = schemas
                        .iter()
                        .flat_map(|schema| member_schemas(schema, name));
                    let of_member = with_parts(root, of_member.collect());
                    self.apply_to(root, &of_member, member);
                }
            }
            leaf => {
                if let Some(other) = (self.of)(leaf).filter(|_| self.is_required(schemas)) {
                    *leaf = other;
                }
            }
        }
    }

    fn is_in(&self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(|item| self.is_in(item)),
            Value::Object(members) => members.values().any(|member| self.is_in(member)),
            leaf => (self.of)(leaf).is_some(),
        }
    }

    fn is_required(&self, schemas: &[&Value]) -> bool {
        let names = |schema: &Value, wanted: &str| match schema.get("type") {
            Some(Value::String(name)) => name == wanted,
            Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
            _ => false,
        };
        let asks = |wanted: &str| schemas.iter().any(|schema| names(schema, wanted));
        self.types.iter().any(|wanted| asks(wanted)) && !asks(self.other)
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
    fn texts_stand_for_numbers_where_the_schema_says_so() {
        let schema = json!({"$defs": {"n": {"type": "integer"}}, "properties": {
            "n": {"$ref": "#/$defs/n"}, "text": {"type": "string"}, "all": {"items": {"type": ["number", "null"]}}, "free": {},
        }});
        let long = "1180591620717411303424";
        let read = |value: Value| read_long_numbers(&schema, &value);
        let value = json!({"n": long, "text": long, "all": ["1.23456789012345678901", long, "x"], "free": long});
        let expected = json!({
            "n": 1180591620717411303424.0, "text": long, "all": [1.234_567_890_123_456_8, 1180591620717411303424.0, "x"],
            "free": long,
        });
        assert_eq!(read(value), Some(expected));
        let huge = "9".repeat(5000);
        assert_eq!(read(json!({"n": huge})), Some(json!({"n": f64::MAX})));
        for plain in ["7", "0.5", "", "x", "1 2", " 1180591620717411303424"] {
            assert_eq!(read(json!({"n": plain})), None, "{plain}");
        }
    }

    #[test]
    fn recursive_schemas_end() {
        let schema = json!({"anyOf": [{"$ref": "#"}, {"type": "integer"}], "items": {"$ref": "#"}});
        assert_eq!(written(schema, json!([[3.0]])), "[[3]]");
    }
}
