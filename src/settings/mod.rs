//! Decodes settings, and explains each value that does not fit.
//!
//! The JSON Schema of a settings type is made from the type itself, and editors complete keys with
//! it. Here the same schema finds all faults of a value at once, in words for people, with an
//! example of the right form.
//!
//! - `shape.rs` compares a value with the schema, and `fault.rs` is a value that does not fit.
//! - `unknown_key.rs` has the words about keys that are not known.
//! - `flow.rs` writes values as in a manifest.

mod fault;
mod flow;
mod shape;
mod unknown_key;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use self::fault::{SettingFault, SettingFaultKind};
pub(crate) use self::flow::to_flow;
pub(crate) use self::shape::is_missing_space;
pub(crate) use self::unknown_key::{suggests_key, unknown_key_message};

/// Decodes a value.
///
/// # Errors
/// All faults, in the order of the value.
pub(crate) fn decode<T: DeserializeOwned + JsonSchema>(
    value: &Value,
) -> Result<T, Vec<SettingFault>> {
    let find_faults = || {
        let schema = SchemaSettings::draft2020_12()
            .into_generator()
            .into_root_schema_for::<T>()
            .to_value();
        shape::find_faults(&schema, value)
    };
    let error = match serde_path_to_error::deserialize(value) {
        Ok(decoded) if !contains_list(value) => return Ok(decoded),
        Ok(decoded) => {
            // serde also reads a list as a map whose keys are left out.
            let mut faults = find_faults();
            faults.retain(|fault| fault.kind == SettingFaultKind::ListForMap);
            return match faults.is_empty() {
                true => Ok(decoded),
                false => Err(faults),
            };
        }
        Err(error) => error,
    };
    let faults = find_faults();
    if !faults.is_empty() {
        return Err(faults);
    }
    // A rule that a schema does not have. Its own reader explains it.
    let path = error.path().iter().filter_map(|segment| match segment {
        serde_path_to_error::Segment::Seq { index } => Some(index.to_string()),
        serde_path_to_error::Segment::Map { key } => Some(key.clone()),
        _ => None,
    });
    Err(vec![SettingFault {
        path: path.collect(),
        message: own_message(error.inner()),
        kind: SettingFaultKind::Value,
    }])
}

fn contains_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(entries) => entries.values().any(contains_list),
        _ => false,
    }
}

/// The message of a reader. Messages of serde itself name types of the program, so they are not
/// shown.
fn own_message(error: &serde_json::Error) -> String {
    const OF_SERDE: [&str; 7] = [
        "invalid type",
        "invalid value",
        "invalid length",
        "unknown variant",
        "unknown field",
        "missing field",
        "data did not match",
    ];
    let message = error.to_string();
    match OF_SERDE.iter().any(|start| message.starts_with(start)) {
        true => "this value cannot be used here".into(),
        false => message,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        #[schemars(with = "std::collections::BTreeMap<String, Value>")]
        any: Value,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its shape is read")]
    struct Inner {
        #[schemars(extend("examples" = [3]))]
        attempts: u32,
    }

    #[test]
    fn lists_are_no_maps_at_any_depth() {
        for (value, path) in [
            (json!([null]), ""),
            (json!({"inner": [3]}), "inner"),
            (json!({"list": [{"attempts": 1}, [3]]}), "list.1"),
        ] {
            let faults = decode::<Outer>(&value).unwrap_err();
            let paths: Vec<String> = faults.iter().map(|fault| fault.path.join(".")).collect();
            assert_eq!(paths, [path], "{value}: {faults:?}");
            assert!(
                faults[0].message.starts_with("a map is expected here"),
                "{faults:?}"
            );
        }
        let fitting = json!({"inner": {"attempts": 3}, "list": [{"attempts": 1}], "any": ["x"]});
        let decoded = decode::<Outer>(&fitting).unwrap();
        assert_eq!(
            (decoded.inner.is_some(), decoded.list.len(), decoded.any),
            (true, 1, json!(["x"]))
        );
    }
}
