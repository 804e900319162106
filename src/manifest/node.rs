//! YAML with positions: every value and every key knows its file, line and column.

use std::path::Path;
use std::sync::Arc;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use serde_json::Value;

use super::finding::{Finding, Location};
use super::rule::Rule;
use crate::call::json::escape_pointer_token;

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) location: Location,
    pub(super) data: Data,
}

/// The content of a value.
#[derive(Debug, Clone)]
pub(super) enum Data {
    /// A value without parts.
    Scalar(Value),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// The key of a map and its position.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) location: Location,
}

impl Node {
    /// Parses the text of a file.
    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, Finding> {
        let file: Arc<Path> = file.into();
        let start = Location { file: file.clone(), line: 1, column: 1 };
        let documents = MarkedYaml::load_from_str(text).map_err(|error| {
            let (line, column) = (error.marker().line().max(1), error.marker().col() + 1);
            let location = Location { file: file.clone(), line, column };
            let (rule, message) = match error.info() {
                twice if twice.contains("duplicated key") => {
                    (Rule::DuplicateName, "this name is used twice: names must be unique".into())
                }
                other => (Rule::Unreadable, format!("not YAML: {other}")),
            };
            Finding::error(location, "", message).with_rule(rule)
        })?;
        match documents.as_slice() {
            [] => Ok(Self { location: start, data: Data::Map(Vec::new()) }),
            [one] => convert_node(&file, one),
            _ => Err(Finding::error(start, "", "the file has more than one YAML document")),
        }
    }

    /// A definition in JSON. Its positions are JSON Pointers.
    pub(super) fn from_json(value: &Value, pointer: &str) -> Self {
        let location = Location::from_pointer(pointer);
        let below = |token: &str| format!("{pointer}/{}", escape_pointer_token(token));
        let data = match value {
            Value::Array(items) => Data::List(
                items.iter().enumerate().map(|(at, it)| Self::from_json(it, &below(&at.to_string()))).collect(),
            ),
            Value::Object(object) => {
                let entry = |(text, value): (&String, &Value)| {
                    let pointer = below(text);
                    (
                        Key { text: text.clone(), location: Location::from_pointer(&pointer) },
                        Self::from_json(value, &pointer),
                    )
                };
                Data::Map(object.iter().map(entry).collect())
            }
            scalar => Data::Scalar(scalar.clone()),
        };
        Self { location, data }
    }

    /// A definition in JSON without positions: all its parts have this one. Its size is then bounded by that of the JSON.
    pub(super) fn from_foreign_json(value: &Value, location: &Location) -> Self {
        let data = match value {
            Value::Array(items) => {
                Data::List(items.iter().map(|item| Self::from_foreign_json(item, location)).collect())
            }
            Value::Object(object) => {
                let entry = |(text, value): (&String, &Value)| {
                    (Key { text: text.clone(), location: location.clone() }, Self::from_foreign_json(value, location))
                };
                Data::Map(object.iter().map(entry).collect())
            }
            scalar => Data::Scalar(scalar.clone()),
        };
        Self { location: location.clone(), data }
    }

    /// The entries of a map. An empty value counts as an empty map.
    pub(super) fn entries(&self) -> Option<&[(Key, Node)]> {
        match &self.data {
            Data::Map(entries) => Some(entries),
            Data::Scalar(Value::Null) => Some(&[]),
            Data::Scalar(_) | Data::List(_) => None,
        }
    }

    /// The value under a key.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.entries()?.iter().find(|(key, _)| key.text == name).map(|(_, node)| node)
    }

    /// The value as JSON.
    pub(super) fn to_json(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => items.iter().map(Self::to_json).collect(),
            Data::Map(entries) => entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect(),
        }
    }

    /// The position of the value at the end of a path, or of the last part of the path that exists. If the path ends
    /// in an existing key, it is the position of the key.
    pub(super) fn locate(&self, path: &[String]) -> &Location {
        let Some((first, rest)) = path.split_first() else { return &self.location };
        match &self.data {
            Data::Map(entries) => match entries.iter().find(|(key, _)| key.text == *first) {
                Some((key, _)) if rest.is_empty() => &key.location,
                Some((_, node)) => node.locate(rest),
                None => &self.location,
            },
            Data::List(items) => match first.parse::<usize>().ok().and_then(|at| items.get(at)) {
                Some(item) => item.locate(rest),
                None => &self.location,
            },
            Data::Scalar(_) => &self.location,
        }
    }

    /// The same map with only the keys that `keep` selects.
    pub(super) fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        let entries = self.entries().unwrap_or_default();
        let selected = entries.iter().filter(|(key, _)| keep(&key.text)).cloned().collect();
        Self { location: self.location.clone(), data: Data::Map(selected) }
    }
}

fn convert_node(file: &Arc<Path>, node: &MarkedYaml<'_>) -> Result<Node, Finding> {
    let at = |node: &MarkedYaml<'_>| Location {
        file: file.clone(),
        line: node.span.start.line().max(1),
        column: node.span.start.col() + 1,
    };
    let location = at(node);
    let data = match &node.data {
        YamlData::Value(scalar) => Data::Scalar(match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(value) => Value::Bool(*value),
            Scalar::Integer(value) => (*value).into(),
            Scalar::FloatingPoint(value) => serde_json::Number::from_f64(value.into_inner())
                .map(Value::Number)
                .ok_or_else(|| Finding::error(location.clone(), "", "a number that JSON cannot hold"))?,
            Scalar::String(text) => Value::String(text.to_string()),
        }),
        YamlData::Sequence(items) => {
            Data::List(items.iter().map(|item| convert_node(file, item)).collect::<Result<_, _>>()?)
        }
        YamlData::Mapping(entries) => {
            let entry = |(key, value): (&MarkedYaml<'_>, &MarkedYaml<'_>)| {
                let key_place = at(key);
                let text = match convert_node(file, key)?.data {
                    Data::Scalar(Value::String(text)) => text,
                    Data::Scalar(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                    _ => return Err(Finding::error(key_place, "", "a key is a plain text")),
                };
                Ok((Key { text, location: key_place }, convert_node(file, value)?))
            };
            Data::Map(entries.iter().map(entry).collect::<Result<_, _>>()?)
        }
        _ => return Err(Finding::error(location, "", "YAML tags have no meaning here: write plain values")),
    };
    Ok(Node { location, data })
}
