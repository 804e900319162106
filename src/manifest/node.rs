//! YAML with positions: every value and every key knows its file, line and column.

use std::path::Path;
use std::sync::Arc;

use saphyr::{MarkedYaml, Scalar, YamlData};
use serde_json::Value;

use super::decode::join_path;
use super::finding::{Finding, Location};
use super::rule::Rule;
use super::yaml_documents::{self, DEEPEST, LoadFault};
use super::yaml_syntax::{self, Explanation};
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
    /// Parses the text of a file, as far as possible, and adds the faults to `findings`.
    pub(super) fn parse(file: &Path, text: &str, findings: &mut Vec<Finding>) -> Option<Self> {
        let file: Arc<Path> = file.into();
        let start = Location {
            file: file.clone(),
            line: 1,
            column: 1,
        };
        let documents = match yaml_documents::load(text) {
            Ok(documents) => documents,
            Err(LoadFault::TooDeep(line)) => {
                let message = format!("the values are nested more than {DEEPEST} levels deep");
                findings.push(
                    Finding::error(Location { line, ..start }, "", message)
                        .with_rule(Rule::Unreadable),
                );
                return None;
            }
            Err(LoadFault::NotYaml(error)) => {
                let (line, column) = (error.marker().line().max(1), error.marker().col() + 1);
                let stop = Location { file, line, column };
                let Explanation {
                    line,
                    column,
                    message,
                } = yaml_syntax::explain(text, &stop, error.info());
                let is_repeated = error.info().contains("duplicated key");
                let rule = if is_repeated {
                    Rule::DuplicateName
                } else {
                    Rule::Unreadable
                };
                findings.push(
                    Finding::error(
                        Location {
                            line,
                            column,
                            ..stop
                        },
                        "",
                        message,
                    )
                    .with_rule(rule),
                );
                return None;
            }
        };
        match documents.as_slice() {
            [] => Some(Self {
                location: start,
                data: Data::Map(Vec::new()),
            }),
            [one] => Some(Converter { file, findings }.convert(one, "")),
            [_, second, ..] => {
                let line = second.span.start.line().max(1);
                let message = "a second YAML document begins here: leave out the line `---` above";
                findings.push(
                    Finding::error(Location { line, ..start }, "", message)
                        .with_rule(Rule::Unreadable),
                );
                None
            }
        }
    }

    /// A definition in JSON. Its positions are JSON Pointers.
    pub(super) fn from_json(value: &Value, pointer: &str) -> Self {
        let location = Location::from_pointer(pointer);
        let below = |token: &str| format!("{pointer}/{}", escape_pointer_token(token));
        let data = match value {
            Value::Array(items) => Data::List(
                items
                    .iter()
                    .enumerate()
                    .map(|(at, it)| Self::from_json(it, &below(&at.to_string())))
                    .collect(),
            ),
            Value::Object(object) => {
                let entry = |(text, value): (&String, &Value)| {
                    let pointer = below(text);
                    (
                        Key {
                            text: text.clone(),
                            location: Location::from_pointer(&pointer),
                        },
                        Self::from_json(value, &pointer),
                    )
                };
                Data::Map(object.iter().map(entry).collect())
            }
            scalar => Data::Scalar(scalar.clone()),
        };
        Self { location, data }
    }

    /// A definition in JSON without positions: all its parts have this one. Its size is then
    /// bounded by that of the JSON.
    pub(super) fn from_foreign_json(value: &Value, location: &Location) -> Self {
        let data = match value {
            Value::Array(items) => Data::List(
                items
                    .iter()
                    .map(|item| Self::from_foreign_json(item, location))
                    .collect(),
            ),
            Value::Object(object) => {
                let entry = |(text, value): (&String, &Value)| {
                    (
                        Key {
                            text: text.clone(),
                            location: location.clone(),
                        },
                        Self::from_foreign_json(value, location),
                    )
                };
                Data::Map(object.iter().map(entry).collect())
            }
            scalar => Data::Scalar(scalar.clone()),
        };
        Self {
            location: location.clone(),
            data,
        }
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
        self.entries()?
            .iter()
            .find(|(key, _)| key.text == name)
            .map(|(_, node)| node)
    }

    /// The value as JSON.
    pub(super) fn to_json(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => items.iter().map(Self::to_json).collect(),
            Data::Map(entries) => entries
                .iter()
                .map(|(key, node)| (key.text.clone(), node.to_json()))
                .collect(),
        }
    }

    /// The position of the value at the end of a path, or of the last part of the path that exists.
    /// If the path ends in an existing key, it is the position of the key.
    pub(super) fn locate(&self, path: &[String]) -> &Location {
        let Some((first, rest)) = path.split_first() else {
            return &self.location;
        };
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
        let selected = entries
            .iter()
            .filter(|(key, _)| keep(&key.text))
            .cloned()
            .collect();
        Self {
            location: self.location.clone(),
            data: Data::Map(selected),
        }
    }
}

/// Converts the nodes of the parser, and reports those that a manifest cannot have.
struct Converter<'f> {
    file: Arc<Path>,
    findings: &'f mut Vec<Finding>,
}

impl Converter<'_> {
    fn locate(&self, node: &MarkedYaml<'_>) -> Location {
        Location {
            file: self.file.clone(),
            line: node.span.start.line().max(1),
            column: node.span.start.col() + 1,
        }
    }

    fn error(&mut self, location: &Location, path: &str, message: impl Into<String>) {
        self.findings
            .push(Finding::error(location.clone(), path, message).with_rule(Rule::Unreadable));
    }

    /// Converts a node. In place of a fault stands what was probably meant, so that the rest is
    /// read too.
    fn convert(&mut self, node: &MarkedYaml<'_>, path: &str) -> Node {
        let location = self.locate(node);
        let data = match &node.data {
            YamlData::Value(scalar) => Data::Scalar(match scalar {
                Scalar::Null => Value::Null,
                Scalar::Boolean(value) => Value::Bool(*value),
                Scalar::Integer(value) => (*value).into(),
                Scalar::FloatingPoint(value) => {
                    match serde_json::Number::from_f64(value.into_inner()) {
                        Some(number) => Value::Number(number),
                        None => {
                            self.error(&location, path, "a finite number is expected here");
                            Value::Null
                        }
                    }
                }
                Scalar::String(text) => Value::String(text.to_string()),
            }),
            YamlData::Sequence(items) => {
                let item = |(at, item): (usize, &MarkedYaml<'_>)| {
                    self.convert(item, &join_path(path, &[at.to_string()]))
                };
                Data::List(items.iter().enumerate().map(item).collect())
            }
            YamlData::Mapping(entries) => {
                if let Some(placeholder) = unquoted_placeholder(node) {
                    let key = path
                        .rsplit('.')
                        .next()
                        .filter(|key| !key.is_empty() && key.parse::<usize>().is_err());
                    let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
                    self.error(
                        &location,
                        path,
                        format!("put a placeholder in quotes: `{key}\"{placeholder}\"`"),
                    );
                    Data::Scalar(Value::String(placeholder))
                } else {
                    Data::Map(
                        entries
                            .iter()
                            .filter_map(|(key, value)| self.convert_entry(key, value, path))
                            .collect(),
                    )
                }
            }
            _ => {
                let message = "YAML tags have no meaning here: write a plain value; a variable is `${env:NAME}`";
                self.error(&location, path, message);
                Data::Scalar(Value::Null)
            }
        };
        Node { location, data }
    }

    fn convert_entry(
        &mut self,
        key: &MarkedYaml<'_>,
        value: &MarkedYaml<'_>,
        path: &str,
    ) -> Option<(Key, Node)> {
        let location = self.locate(key);
        let text = match &key.data {
            YamlData::Value(Scalar::String(text)) => text.to_string(),
            YamlData::Value(Scalar::Boolean(value)) => value.to_string(),
            YamlData::Value(Scalar::Integer(value)) => value.to_string(),
            YamlData::Value(Scalar::FloatingPoint(value)) => value.to_string(),
            _ => {
                self.error(
                    &location,
                    path,
                    "a key is a text here: put it in quotes if it has brackets or braces",
                );
                return None;
            }
        };
        let node = self.convert(value, &join_path(path, std::slice::from_ref(&text)));
        Some((Key { text, location }, node))
    }
}

/// The text of `{{ name }}` without quotes, which YAML reads as a map whose key is a map.
fn unquoted_placeholder(node: &MarkedYaml<'_>) -> Option<String> {
    match &only_key(only_key(node)?)?.data {
        YamlData::Value(Scalar::String(name)) => Some(format!("{{{{ {} }}}}", name.trim())),
        _ => None,
    }
}

/// The key of a map that has one key without a value.
fn only_key<'a, 'i>(node: &'a MarkedYaml<'i>) -> Option<&'a MarkedYaml<'i>> {
    let YamlData::Mapping(entries) = &node.data else {
        return None;
    };
    let (key, value) = entries.iter().next().filter(|_| entries.len() == 1)?;
    matches!(value.data, YamlData::Value(Scalar::Null)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        Node::parse(Path::new("t.yaml"), text, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn deep_values_are_located_errors() {
        let deep = "t.yaml:2:1: the values are nested more than 128 levels deep";
        let blocks: String = (0..3_000)
            .map(|level| format!("{}a:\n", " ".repeat(level)))
            .collect();
        assert_eq!(
            faults(&format!("tools:\n {}a\n", "- ".repeat(5_000))),
            [deep]
        );
        assert_eq!(
            faults(&format!("tools:\n {}a\n", "? ".repeat(5_000))),
            [deep]
        );
        assert_eq!(faults(&blocks), [deep.replace(":2:", ":129:")]);
        let aliases: String = (1..2_000)
            .map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1))
            .collect();
        assert!(faults(&format!("a0: &a0 [1]\n{aliases}"))[0].ends_with("128 levels deep"));
        assert_eq!(
            faults(&format!("tools: {}a{}\n", "[".repeat(100), "]".repeat(100))),
            [""; 0]
        );
    }
}
