//! Makes a value that fits a schema, as an example for people. It states no facts: a better example
//! comes from the tool's author.

use std::cell::Cell;

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value, json};

use super::keywords::local_target;
use super::patterns::parse_pattern;

/// Maximum depth of a sample. A recursive schema ends here.
const MAX_DEPTH: usize = 8;
/// Maximum number of items or characters that a minimum adds.
const MAX_LENGTH: u64 = 64;

/// Maximum number of values in a sample. What a schema requires beyond that is left out.
const MAX_VALUES: usize = 500;

/// A value with the required properties of the schema. Constants, examples and defaults of the
/// schema take precedence. The value may violate the schema where keywords of the schema depend on
/// each other.
pub fn sample_value(schema: &Value) -> Value {
    Sampler {
        root: schema,
        values_left: Cell::new(MAX_VALUES),
    }
    .sample(schema, MAX_DEPTH)
}

struct Sampler<'s> {
    root: &'s Value,
    values_left: Cell<usize>,
}

impl Sampler<'_> {
    fn sample(&self, schema: &Value, depth: usize) -> Value {
        let Some(keywords) = schema.as_object() else {
            return json!("text");
        };
        let first = |name: &str| {
            keywords
                .get(name)
                .and_then(Value::as_array)
                .and_then(|values| values.first())
        };
        let stated = keywords
            .get("const")
            .or_else(|| first("examples"))
            .or_else(|| keywords.get("example"));
        if let Some(value) = stated
            .or_else(|| keywords.get("default"))
            .or_else(|| first("enum"))
        {
            return value.clone();
        }
        let left = self.values_left.get();
        if depth == 0 || left == 0 {
            return Value::Null;
        }
        self.values_left.set(left - 1);
        if let Some(target) = local_target(self.root, schema) {
            return self.sample(target, depth - 1);
        }
        match type_of(keywords) {
            Some("object") => self.sample_object(schema, depth),
            Some("array") => {
                let count = number(keywords, "minItems")
                    .unwrap_or(1.0)
                    .clamp(0.0, MAX_LENGTH as f64) as usize;
                let prefix = keywords
                    .get("prefixItems")
                    .and_then(Value::as_array)
                    .map_or(&[][..], Vec::as_slice);
                let items = keywords.get("items").unwrap_or(&Value::Null);
                let count = count.max(prefix.len()).min(self.values_left.get());
                (0..count)
                    .map(|at| self.sample(prefix.get(at).unwrap_or(items), depth - 1))
                    .collect()
            }
            Some("integer") => sample_number(keywords, true),
            Some("number") => sample_number(keywords, false),
            Some("boolean") => json!(true),
            Some("null") => Value::Null,
            Some("string") => json!(sample_text(keywords)),
            _ => match first("oneOf").or_else(|| first("anyOf")) {
                Some(branch) => self.sample(branch, depth - 1),
                None if keywords.contains_key("allOf") => self.sample_object(schema, depth),
                None => json!("text"),
            },
        }
    }

    /// The required properties, also those that `allOf` and the first branch of an alternative
    /// require.
    fn sample_object(&self, schema: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        let required = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for name in required.take(self.values_left.get()) {
            object.insert(
                name.to_owned(),
                self.sample(&schema["properties"][name], depth - 1),
            );
        }
        if depth == 1 {
            return Value::Object(object);
        }
        let all = schema["allOf"].as_array().into_iter().flatten();
        let one = ["oneOf", "anyOf"]
            .into_iter()
            .filter_map(|keyword| schema[keyword].as_array()?.first());
        for part in all.chain(one).take(self.values_left.get()) {
            let mut part = local_target(self.root, part).unwrap_or(part).clone();
            // A branch often requires properties that the schema around it describes.
            if let (Some(part), Some(outer)) =
                (part.as_object_mut(), schema["properties"].as_object())
                && let Some(own) = part
                    .entry("properties")
                    .or_insert_with(|| json!({}))
                    .as_object_mut()
            {
                for (name, property) in outer {
                    own.entry(name).or_insert_with(|| property.clone());
                }
            }
            if let Value::Object(more) = self.sample_object(&part, depth - 1) {
                for (name, value) in more {
                    object.entry(name).or_insert(value);
                }
            }
        }
        Value::Object(object)
    }
}

/// The type of a schema. Of several types, the first that is not `null`.
fn type_of(keywords: &Map<String, Value>) -> Option<&str> {
    match keywords.get("type") {
        Some(Value::String(name)) => Some(name),
        Some(Value::Array(names)) => {
            let mut names = names.iter().filter_map(Value::as_str);
            names
                .clone()
                .find(|name| *name != "null")
                .or_else(|| names.next())
        }
        _ if keywords.contains_key("properties") => Some("object"),
        _ => None,
    }
}

fn number(keywords: &Map<String, Value>, name: &str) -> Option<f64> {
    keywords.get(name).and_then(Value::as_f64)
}

fn sample_number(keywords: &Map<String, Value>, is_integer: bool) -> Value {
    let above = number(keywords, "exclusiveMinimum");
    let below = number(keywords, "exclusiveMaximum");
    let least = number(keywords, "minimum").or(above.map(|bound| {
        if is_integer {
            bound.floor() + 1.0
        } else {
            bound + 0.5
        }
    }));
    let most = number(keywords, "maximum").or(below.map(|bound| {
        if is_integer {
            bound.ceil() - 1.0
        } else {
            bound - 0.5
        }
    }));
    let wanted = 1.0_f64
        .max(least.unwrap_or(1.0))
        .min(most.unwrap_or(f64::MAX));
    let value = match number(keywords, "multipleOf").filter(|step| *step > 0.0) {
        Some(step) if wanted % step != 0.0 => (wanted / step).ceil() * step,
        _ => wanted,
    };
    // As an integer if it is one: `1`, not `1.0`.
    match value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        true => json!(value as i64),
        false => json!(value),
    }
}

fn sample_text(keywords: &Map<String, Value>) -> String {
    if let Some(text) = keywords
        .get("pattern")
        .and_then(Value::as_str)
        .and_then(text_for_pattern)
    {
        return text;
    }
    let text = match keywords.get("format").and_then(Value::as_str) {
        Some("date") => "2026-01-31",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("time") => "12:00:00Z",
        Some("duration") => "PT5M",
        Some("email" | "idn-email") => "ada@example.com",
        Some("uri" | "url" | "iri" | "uri-reference" | "iri-reference") => "https://example.com/",
        Some("hostname" | "idn-hostname") => "example.com",
        Some("ipv4") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        Some("uuid") => "0192f2b4-7c1a-7000-8000-000000000001",
        _ => "text",
    };
    let bound = |name: &str| {
        number(keywords, name).map(|length| length.clamp(0.0, MAX_LENGTH as f64) as usize)
    };
    let most = bound("maxLength").unwrap_or(usize::MAX);
    let text: String = text
        .chars()
        .chain(std::iter::repeat('x'))
        .take(text.len().max(bound("minLength").unwrap_or(0)))
        .collect();
    text.chars().take(most).collect()
}

/// The shortest text that a pattern describes. `None` for a pattern with features beyond regular
/// expressions.
fn text_for_pattern(pattern: &str) -> Option<String> {
    let mut text = String::new();
    let hir = parse_pattern(pattern)?;
    write_match(&hir, &mut text)?;
    Some(text)
}

fn write_match(hir: &Hir, text: &mut String) -> Option<()> {
    if text.len() as u64 > MAX_LENGTH {
        return None;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(Class::Unicode(class)) => {
            // A letter or digit reads better than a control character, with which many classes
            // begin.
            let ranges = || class.iter().map(|range| (range.start(), range.end()));
            let plain = ['a', 'A', '0']
                .into_iter()
                .find(|one| ranges().any(|(from, to)| (from..=to).contains(one)));
            text.push(plain.or_else(|| ranges().next().map(|(from, _)| from))?);
        }
        HirKind::Class(Class::Bytes(class)) => text.push(char::from(class.iter().next()?.start())),
        HirKind::Repetition(repetition) => {
            for _ in 0..repetition.min {
                write_match(&repetition.sub, text)?;
            }
        }
        HirKind::Capture(capture) => write_match(&capture.sub, text)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write_match(part, text)?;
            }
        }
        HirKind::Alternation(parts) => write_match(parts.first()?, text)?,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Schema, SchemaOwner};
    use super::*;

    #[test]
    fn samples_fit_their_schemas() {
        let property = |schema: Value| json!({"type": "object", "properties": {"x": schema}, "required": ["x"]});
        for schema in [
            property(json!({"type": "string"})),
            property(json!({"type": "string", "minLength": 9})),
            property(json!({"type": "string", "maxLength": 2})),
            property(json!({"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"})),
            property(json!({"type": "string", "pattern": "^(eur|usd)_\\d+$"})),
            property(json!({"type": "string", "enum": ["celsius", "kelvin"]})),
            property(json!({"type": "string", "format": "date-time"})),
            property(json!({"type": "integer", "minimum": 5})),
            property(json!({"type": "integer", "maximum": -3})),
            property(json!({"type": "integer", "exclusiveMinimum": 10, "multipleOf": 7})),
            property(json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.9})),
            property(json!({"type": ["null", "boolean"]})),
            property(json!({"type": "array", "items": {"type": "integer"}, "minItems": 2})),
            property(json!({"const": {"a": [1]}})),
            property(json!({"default": null})),
            property(json!({"anyOf": [{"type": "integer"}, {"type": "string"}]})),
            json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}]}),
            json!({"type": "object", "properties": {"at": {"$ref": "#/$defs/Place"}}, "required": ["at"],
                "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}),
            json!({"type": "object", "properties": {"optional": {"type": "integer"}}}),
        ] {
            let value = sample_value(&schema);
            let compiled = Schema::compile(Arc::new(schema.clone()), SchemaOwner::Own)
                .unwrap_or_else(|fault| panic!("{fault:?}"));
            assert!(compiled.violations(&value).is_empty(), "{schema}: {value}");
        }
    }

    #[test]
    fn stated_values_take_precedence() {
        let schema = json!({"type": "object", "required": ["city", "days"], "properties": {
            "city": {"type": "string", "examples": ["Oslo", "Bergen"]}, "days": {"type": "integer", "default": 3}}});
        assert_eq!(sample_value(&schema), json!({"city": "Oslo", "days": 3}));
    }

    #[test]
    fn recursive_schemas_end() {
        let schema = json!({"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "object", "required": ["next", "all"],
            "properties": {"next": {"$ref": "#/$defs/Node"}, "all": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/Node"}}}}}});
        assert!(sample_value(&schema).to_string().len() < 20_000);
        let names: Vec<String> = (0..90).map(|n| format!("p{n}")).collect();
        let properties: Map<String, Value> = names
            .iter()
            .map(|name| (name.clone(), json!({"$ref": "#"})))
            .collect();
        let wide = json!({"type": "object", "required": names, "properties": properties});
        assert!(sample_value(&wide).to_string().len() < 20_000);
        for odd in [
            json!(true),
            json!({}),
            json!({"type": 7}),
            json!({"$ref": "#/nowhere"}),
            json!({"required": [1]}),
            json!([]),
        ] {
            sample_value(&odd);
        }
    }
}
