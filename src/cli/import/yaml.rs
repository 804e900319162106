//! JSON values as YAML.

use saphyr::{Mapping, Scalar, Yaml, YamlEmitter};
use serde_json::Value;

/// The value as a YAML document.
///
/// # Errors
/// A sentence, if the value cannot be written.
pub(super) fn to_yaml(value: &Value) -> Result<String, String> {
    let mut text = String::new();
    YamlEmitter::new(&mut text)
        .dump(&yaml_node(value))
        .map_err(|error| format!("cannot write YAML: {error}"))?;
    Ok(text.trim_start_matches("---\n").to_owned())
}

fn yaml_node(value: &Value) -> Yaml<'_> {
    match value {
        Value::Null => Yaml::Value(Scalar::Null),
        Value::Bool(value) => Yaml::Value(Scalar::Boolean(*value)),
        Value::Number(number) => Yaml::Value(match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Scalar::Integer(number),
            (None, number) => Scalar::FloatingPoint(number.unwrap_or_default().into()),
        }),
        Value::String(text) => Yaml::Value(Scalar::String(text.as_str().into())),
        Value::Array(items) => Yaml::Sequence(items.iter().map(yaml_node).collect()),
        Value::Object(fields) => {
            let mut mapping = Mapping::new();
            for (name, value) in fields {
                mapping.insert(
                    Yaml::Value(Scalar::String(name.as_str().into())),
                    yaml_node(value),
                );
            }
            Yaml::Mapping(mapping)
        }
    }
}

#[cfg(test)]
mod tests {
    use saphyr::LoadableYamlNode as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_keeps_every_value() {
        let value = json!({
            "a": ["yes", "no", "1", "1.5", "null", "~", "", " x ", "a: b", "- x", "# x", "{{ x }}", "'", "\"", "a\nb\n", "é", "0x1", "1_000", "2026-11-23", "\t"],
            "b": {"true": true, "n": null, "i": -7, "f": 2.5, "empty": {}, "none": []},
            "off": "on"
        });
        let text = to_yaml(&value).unwrap();
        let parsed = Yaml::load_from_str(&text).unwrap();
        assert_eq!(parsed, [yaml_node(&value)], "{text}");
    }
}
