//! JSON values for the validator. Each access to a value spends a step of a [`Meter`].

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp};
use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::meter::Meter;
use super::whole_numbers::to_integer;

/// The instance of errors that are built after the end of the validation. It is not part of any
/// value.
static PLACEHOLDER: Value = Value::Null;

/// Whether an error is about a value that was really examined.
pub(super) fn is_examined(instance: &Value) -> bool {
    !std::ptr::eq(instance, &raw const PLACEHOLDER)
}

/// The representation of JSON for the library `jsonschema`.
pub(super) struct Metered;

/// A value, and the meter for access to it.
#[derive(Clone, Copy)]
pub(super) struct MeteredValue<'a> {
    value: &'a Value,
    /// `None` for the name of a property, which the library examines as a value.
    meter: Option<&'a Meter<'a>>,
    /// The length of its JSON Pointer, in bytes.
    pointer: usize,
}

impl<'a> MeteredValue<'a> {
    pub(super) fn new(value: &'a Value, meter: &'a Meter<'a>) -> Self {
        Self {
            value,
            meter: Some(meter),
            pointer: 0,
        }
    }

    #[inline]
    pub(super) fn spend(&self, steps: u64) -> bool {
        self.meter.is_none_or(|meter| meter.spend(steps))
    }

    /// Whether it is the name of a property.
    pub(super) fn is_name(&self) -> bool {
        self.meter.is_none()
    }

    /// Notes that the text is accepted although nobody compared it with this pattern.
    pub(super) fn report_unjudged(&self, pattern: &str) {
        if let Some(meter) = self.meter {
            meter.report_unjudged(pattern);
        }
    }

    /// Reserves memory for an error with a copy of the text. Returns `false` if no memory remains.
    pub(super) fn reserve_copy(&self) -> bool {
        let bytes = self.value.as_str().map_or(0, str::len);
        self.meter.is_none_or(|meter| meter.reserve_error(bytes))
    }

    #[inline]
    fn descend(&self) -> bool {
        self.meter.is_none_or(Meter::descend)
    }

    fn child(&self, value: &'a Value, pointer: usize) -> Self {
        Self {
            value,
            pointer: self.pointer + 1 + pointer,
            ..*self
        }
    }
}

impl Json for Metered {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    // The same number as in the library for the same maps.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        f: impl FnOnce(MeteredValue<'_>) -> T,
    ) -> T {
        *buffer = Value::String(string.to_owned());
        f(MeteredValue {
            value: buffer,
            meter: None,
            pointer: 0,
        })
    }
}

impl<'a> Node<'a, Metered> for MeteredValue<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a Number;

    #[inline]
    fn as_object(&self) -> Option<Members<'a>> {
        let Value::Object(members) = self.value else {
            return None;
        };
        Some(Members {
            members: self.descend().then_some(members),
            of: *self,
        })
    }

    #[inline]
    fn as_array(&self) -> Option<Elements<'a>> {
        let Value::Array(items) = self.value else {
            return None;
        };
        Some(Elements {
            items: if self.descend() { items } else { &[] },
            of: *self,
        })
    }

    #[inline]
    fn as_string(&self) -> Option<Cow<'a, str>> {
        let Value::String(text) = self.value else {
            return None;
        };
        let weight = self.meter.map_or(0, |meter| meter.text_weight.get());
        let may = self.spend((text.len() as u64).saturating_mul(weight).saturating_add(1));
        Some(Cow::Borrowed(if may { text } else { "" }))
    }

    #[inline]
    fn as_number(&self) -> Option<&'a Number> {
        self.spend(1);
        match self.value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    #[inline]
    fn as_boolean(&self) -> Option<bool> {
        self.spend(1);
        self.value.as_bool()
    }

    #[inline]
    fn is_null(&self) -> bool {
        self.spend(1);
        self.value.is_null()
    }

    #[inline]
    fn is_number(&self) -> bool {
        self.spend(1);
        self.value.is_number()
    }

    #[inline]
    fn json_type(&self) -> JsonType {
        self.spend(1);
        match self.value {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let Value::String(text) = self.value else {
            return None;
        };
        self.spend(text.len() as u64 / 8 + 1)
            .then(|| text.chars().count() as u64)
            .or(Some(0))
    }

    fn equals_value(&self, expected: &Value) -> bool {
        // Equal values have equal sizes, so the comparison reads at most the size of `expected`.
        self.spend(1) && std::mem::discriminant(self.value) == std::mem::discriminant(expected) && {
            let steps = match self.value {
                Value::String(text) => text.len() as u64 / 16,
                Value::Array(_) | Value::Object(_) => value_weight(expected, u64::MAX),
                _ => 0,
            };
            self.spend(steps + 1) && cmp::equal(self.value, expected)
        }
    }

    /// The library calls this only for errors. All other operations are implemented in this type.
    fn to_value(&self) -> Cow<'a, Value> {
        let may = self
            .meter
            .is_none_or(|meter| meter.reserve_error(self.pointer));
        Cow::Borrowed(if may { self.value } else { &PLACEHOLDER })
    }

    #[inline]
    fn identity(&self) -> Option<NodeIdentity> {
        self.descend();
        Some(NodeIdentity::new(std::ptr::from_ref(self.value).addr()))
    }
}

/// The properties of an object.
pub(super) struct Members<'a> {
    members: Option<&'a Map<String, Value>>,
    of: MeteredValue<'a>,
}

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = EachMember<'a>;

    fn len(&self) -> usize {
        self.members.map_or(0, Map::len)
    }

    #[inline]
    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        let value = self.members?.get(key)?;
        self.of.spend(1).then(|| self.of.child(value, key.len()))
    }

    fn members(&self) -> EachMember<'a> {
        EachMember {
            members: self.members.map(Map::iter),
            of: self.of,
        }
    }
}

pub(super) struct EachMember<'a> {
    members: Option<serde_json::map::Iter<'a>>,
    of: MeteredValue<'a>,
}

impl<'a> Iterator for EachMember<'a> {
    type Item = (&'a str, MeteredValue<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.members.as_mut()?.next()?;
        let weight = self.of.meter.map_or(0, |meter| meter.name_weight.get());
        let steps = (name.len() as u64).saturating_mul(weight).saturating_add(1);
        self.of
            .spend(steps)
            .then(|| (name.as_str(), self.of.child(value, name.len())))
    }
}

/// The items of a list.
pub(super) struct Elements<'a> {
    items: &'a [Value],
    of: MeteredValue<'a>,
}

impl<'a> Array<'a, Metered> for Elements<'a> {
    type Node = MeteredValue<'a>;
    type ElementsIter = EachElement<'a>;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn elements(&self) -> EachElement<'a> {
        EachElement {
            items: self.items.iter(),
            of: self.of,
        }
    }

    /// With the library's own hashes, lists that differ only in their nesting collide, which takes
    /// quadratic time.
    fn is_unique(&self) -> bool {
        if let [] | [_] = self.items {
            return true;
        }
        let steps = self
            .items
            .iter()
            .map(|item| value_weight(item, u64::MAX))
            .sum::<u64>();
        if !self.of.spend(steps.saturating_mul(4)) {
            return true;
        }
        let text = |item| serde_json::to_vec(&Comparable(item)).unwrap_or_default();
        let mut seen = HashSet::new();
        self.items.iter().all(|item| seen.insert(text(item)))
    }
}

pub(super) struct EachElement<'a> {
    items: std::slice::Iter<'a, Value>,
    of: MeteredValue<'a>,
}

impl<'a> Iterator for EachElement<'a> {
    type Item = MeteredValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<MeteredValue<'a>> {
        let value = self.items.next()?;
        self.of.spend(1).then(|| self.of.child(value, 8))
    }
}

/// The number of values in a value, plus a share of the bytes of its texts. It stops counting above
/// `most`.
pub fn value_weight(value: &Value, most: u64) -> u64 {
    let mut sum = 1;
    match value {
        Value::String(text) => sum += text.len() as u64 / 16,
        Value::Array(items) => {
            for item in items {
                if sum > most {
                    break;
                }
                sum += value_weight(item, most - sum);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if sum > most {
                    break;
                }
                sum += name.len() as u64 / 16 + value_weight(member, most - sum);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    sum
}

/// A value whose text is the same for all values that are equal in JSON Schema, where 1 is 1.0, and
/// where the order of members does not matter.
struct Comparable<'a>(&'a Value);

impl Serialize for Comparable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) if number.is_f64() => {
                match number.as_f64().and_then(to_integer) {
                    Some(integer) => integer.serialize(serializer),
                    None => number.serialize(serializer),
                }
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Comparable)),
            Value::Object(members) => {
                let sorted: BTreeMap<&String, &Value> = members.iter().collect();
                let each = sorted.into_iter();
                serializer.collect_map(each.map(|(name, member)| (name, Comparable(member))))
            }
            scalar => scalar.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn weights_count_values_and_texts() {
        for (value, counted) in [
            (json!(1), 1),
            (json!("x".repeat(15)), 1),
            (json!("x".repeat(160)), 11),
            (json!([1, null, [true]]), 5),
            (
                json!({"a": 1, "k".repeat(32): "x".repeat(32)}),
                1 + 1 + 2 + 3,
            ),
        ] {
            assert_eq!(value_weight(&value, u64::MAX), counted, "{value}");
        }
    }

    #[test]
    fn weight_stops_above_the_bound() {
        let many = vec![1; 100];
        let members: Map<String, Value> = (0..100).map(|n| (format!("m{n}"), json!(1))).collect();
        for value in [
            json!(many),
            json!(members),
            json!([many, many]),
            json!({"a": members, "b": members}),
        ] {
            assert_eq!(value_weight(&value, 10), 11, "{value}");
        }
    }
}
