//! The canonical form of JSON, over which hashes, keys and digests are computed.
//!
//! Objects keep the author's order of keys, because a model reads it. But two objects with the same
//! members in different order are equal. So the canonical form sorts the keys.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::json::JsonObject;

/// The canonical bytes of a value: object keys sorted, no white space, 64-bit integers exact.
///
/// RFC 8785 would print numbers as doubles. Then different integers above 2^53 would be equal, and
/// two different calls would share a cache entry. Ledgers and lock files hold hashes of these
/// bytes, so the form must not change.
pub fn canonical_json<'a, T: ?Sized>(value: &'a T) -> Vec<u8>
where
    Sorted<'a, T>: Serialize,
{
    serde_json::to_vec(&Sorted(value)).unwrap_or_default()
}

/// Serializes a value with the keys of all objects sorted. Only types for which that holds at any
/// depth implement it.
pub struct Sorted<'a, T: ?Sized>(pub &'a T);

impl Serialize for Sorted<'_, Value> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(object) => Sorted(object).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            scalar => scalar.serialize(serializer),
        }
    }
}

impl Serialize for Sorted<'_, JsonObject> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.keys().is_sorted() {
            return serializer.collect_map(self.0.iter().map(|(key, value)| (key, Sorted(value))));
        }
        let mut members: Vec<(&String, &Value)> = self.0.iter().collect();
        members.sort_unstable_by_key(|(key, _)| *key);
        serializer.collect_map(members.into_iter().map(|(key, value)| (key, Sorted(value))))
    }
}

impl Serialize for Sorted<'_, BTreeMap<&str, Value>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, Sorted(value))))
    }
}

impl Serialize for Sorted<'_, str> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Serialize for Sorted<'_, (&str, &JsonObject)> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0.0, Sorted(self.0.1)).serialize(serializer)
    }
}

impl Serialize for Sorted<'_, (&str, &JsonObject, &JsonObject)> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0.0, Sorted(self.0.1), Sorted(self.0.2)).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::parse_strict;
    use super::*;

    #[test]
    fn canonical_json_sorts_keys_at_any_depth() {
        let text = br#"{"b":{"d":[{"z":1,"y":2}],"c":"x"},"a":null}"#;
        let value = parse_strict(text).unwrap();
        assert_eq!(serde_json::to_vec(&value).unwrap(), text);
        assert_eq!(
            canonical_json(&value),
            br#"{"a":null,"b":{"c":"x","d":[{"y":2,"z":1}]}}"#
        );
        assert_eq!(
            canonical_json(value.as_object().unwrap()),
            canonical_json(&value)
        );
    }

    #[test]
    fn canonical_json_keeps_large_integers() {
        let value = parse_strict(br#"{"b": 9007199254740993, "a": 18446744073709551615}"#).unwrap();
        assert_eq!(
            canonical_json(&value),
            br#"{"a":18446744073709551615,"b":9007199254740993}"#
        );
    }
}
