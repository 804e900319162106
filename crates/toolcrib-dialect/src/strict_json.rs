//! Reads JSON from outside.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::mended_json::{Changes, Mended};

/// A JSON object.
pub type JsonObject = Map<String, Value>;

/// Reads one JSON text, and refuses duplicate keys at any depth.
///
/// Two parsers of `{"a":1,"a":2}` may see different values, so a check of one value says nothing
/// about the other. Nesting is bounded by serde_json (128 levels). A byte order mark at the start
/// is skipped (RFC 8259, 8.1).
///
/// # Errors
/// A sentence that says what is wrong, with line and column. A number that would be changed is
/// refused, too.
pub fn parse_strict(text: &[u8]) -> Result<Value, serde_json::Error> {
    parse_mended(Mended::of_own(text))
}

/// As [`parse_strict`], for a text of another program: halves of surrogate pairs become U+FFFD.
///
/// # Errors
/// As [`parse_strict`].
pub fn parse_foreign(text: &[u8]) -> Result<(Value, Changes), serde_json::Error> {
    let mended = Mended::of_request(text);
    let changes = mended.changes;
    Ok((parse_mended(mended)?, changes))
}

/// As [`parse_foreign`], for a result: numbers that would be changed become texts.
///
/// # Errors
/// As [`parse_strict`], apart from numbers.
pub fn parse_result(text: &[u8]) -> Result<(Value, Changes), serde_json::Error> {
    let mended = Mended::of_result(text);
    let changes = mended.changes;
    Ok((parse_mended(mended)?, changes))
}

fn parse_mended(mended: Mended<'_>) -> Result<Value, serde_json::Error> {
    if let Some(refusal) = mended.refusal {
        return Err(serde::de::Error::custom(refusal));
    }
    let mut reader = serde_json::Deserializer::from_slice(&mended.text);
    let value = StrictSeed.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// The JSON type of a value, as JSON Schema names it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

struct StrictSeed;

impl<'de> DeserializeSeed<'de> for StrictSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(StrictSeed)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(StrictSeed)?;
            if object.contains_key(&key) {
                return Err(serde::de::Error::custom(format_args!(
                    "duplicate key `{key}`"
                )));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_keys_are_rejected_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"x":{"b":1,"c":2,"b":3}}]"#] {
            let error = parse_strict(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("duplicate key"), "{error}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let text = "[".repeat(100_000);
        assert!(
            parse_strict(text.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("recursion limit")
        );
    }

    #[test]
    fn decimals_that_would_change_are_rejected() {
        for bad in [
            "12345678901234567.89",
            "0.12345678901234567890123",
            "1e400",
            "18446744073709551617.0",
        ] {
            let error = parse_strict(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("at most 17 digits"), "{bad}: {error}");
        }
        let exact = parse_strict(b"9007199254740993.0").unwrap();
        assert_eq!(exact, Value::from(9007199254740993_u64));
    }

    #[test]
    fn byte_order_mark_is_skipped() {
        assert_eq!(
            parse_strict("\u{feff}[1]".as_bytes()).unwrap(),
            serde_json::json!([1])
        );
    }

    #[test]
    fn integers_beyond_64_bits_are_rejected() {
        for bad in [
            "18446744073709551616",
            r#"{"a":[1,-9223372036854775809]}"#,
            r#"{"\\":1,"x":12345678901234567890123}"#,
        ] {
            assert!(
                parse_strict(bad.as_bytes())
                    .unwrap_err()
                    .to_string()
                    .contains("64 bits"),
                "{bad}"
            );
        }
        for good in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e30",
            "0.12345678901234567",
            r#""99999999999999999999""#,
        ] {
            assert!(parse_strict(good.as_bytes()).is_ok(), "{good}");
        }
    }

    #[test]
    fn trailing_text_is_rejected() {
        assert!(parse_strict(b"{} {}").is_err());
    }
}
