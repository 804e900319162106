//! Values with positions: every value and every key knows its file, line and column.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::finding::{Finding, Location, join_path};
use super::rule::Rule;
use super::yaml_syntax;
use crate::call::json::escape_pointer_token;
use crate::sources::openapi::reader::yaml::{self, Place, Tree};

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
    /// Parses the text of a file, as far as possible. A value with a fault is replaced by what was
    /// probably meant, so that the rest is read too.
    pub(super) fn parse(file: &Path, text: &str) -> (Option<Self>, Vec<Finding>) {
        let mut converter = Converter {
            file: file.into(),
            findings: Vec::new(),
        };
        let node = match yaml::read(text) {
            Ok(None) => Some(Self {
                location: converter.locate(Place { line: 1, column: 1 }),
                data: Data::Map(Vec::new()),
            }),
            Ok(Some(tree)) => Some(converter.convert(tree, "")),
            Err(fault) => {
                let (place, message) = match fault.is_syntax {
                    true => yaml_syntax::explain(text, fault.place, &fault.message),
                    false => (fault.place, fault.message),
                };
                converter.report(Rule::Unreadable, place, "", message);
                None
            }
        };
        let mut findings = converter.findings;
        let is_repeated = |finding: &Finding| finding.rule == Rule::DuplicateName;
        match findings.iter().any(is_repeated) {
            // It is unclear which of two values is meant, so nothing else is read.
            true => {
                findings.retain(is_repeated);
                (None, findings)
            }
            false => (node, findings),
        }
    }

    /// A definition in JSON. Its positions are JSON Pointers.
    pub(super) fn from_json(value: &Value) -> Self {
        Self::from_located_json(value, "", &|pointer| Location::from_pointer(pointer))
    }

    /// A definition in JSON without positions: all its parts have this one. Its size is then
    /// bounded by that of the JSON.
    pub(super) fn from_foreign_json(value: &Value, location: &Location) -> Self {
        Self::from_located_json(value, "", &|_| location.clone())
    }

    fn from_located_json(value: &Value, pointer: &str, locate: &dyn Fn(&str) -> Location) -> Self {
        let below = |token: &str| format!("{pointer}/{}", escape_pointer_token(token));
        let data = match value {
            Value::Array(items) => {
                let item = |(at, item): (usize, &Value)| {
                    Self::from_located_json(item, &below(&at.to_string()), locate)
                };
                Data::List(items.iter().enumerate().map(item).collect())
            }
            Value::Object(object) => {
                let entry = |(text, value): (&String, &Value)| {
                    let (pointer, text) = (below(text), text.clone());
                    let location = locate(&pointer);
                    (
                        Key { text, location },
                        Self::from_located_json(value, &pointer, locate),
                    )
                };
                Data::Map(object.iter().map(entry).collect())
            }
            scalar => Data::Scalar(scalar.clone()),
        };
        Self {
            location: locate(pointer),
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

    /// The items of a list. Other values have none.
    pub(super) fn items(&self) -> &[Self] {
        match &self.data {
            Data::List(items) => items,
            Data::Scalar(_) | Data::Map(_) => &[],
        }
    }

    /// The value, if it is a text.
    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.data {
            Data::Scalar(value) => value.as_str(),
            Data::List(_) | Data::Map(_) => None,
        }
    }

    /// An entry of a map.
    pub(super) fn entry(&self, name: &str) -> Option<&(Key, Node)> {
        self.entries()?.iter().find(|(key, _)| key.text == name)
    }

    /// The value under a key.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.entry(name).map(|(_, node)| node)
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
    pub(super) fn locate<S: AsRef<str>>(&self, path: &[S]) -> &Location {
        let Some((first, rest)) = path.split_first() else {
            return &self.location;
        };
        let first = first.as_ref();
        match self.entry(first) {
            Some((key, _)) if rest.is_empty() => &key.location,
            Some((_, node)) => node.locate(rest),
            None => {
                let at = first.parse::<usize>().ok();
                let item = at.and_then(|at| self.items().get(at));
                item.map_or(&self.location, |item| item.locate(rest))
            }
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

/// Converts what was parsed, and reports what a manifest cannot have.
struct Converter {
    file: Arc<Path>,
    findings: Vec<Finding>,
}

impl Converter {
    fn locate(&self, Place { line, column }: Place) -> Location {
        let file = self.file.clone();
        Location { file, line, column }
    }

    fn report(&mut self, rule: Rule, place: Place, path: &str, message: impl Into<String>) {
        let finding = Finding::error(self.locate(place), path, message);
        self.findings.push(finding.with_rule(rule));
    }

    fn convert(&mut self, tree: Tree, path: &str) -> Node {
        let place = tree.place;
        let placeholder = unquoted_placeholder(&tree);
        let data = if let Some(fault) = tree.fault {
            self.report(Rule::Unreadable, place, path, fault);
            Data::Scalar(Value::Null)
        } else if let Some(placeholder) = placeholder {
            let key = path.rsplit('.').next().filter(|key| !key.is_empty());
            let key = key.filter(|key| key.parse::<usize>().is_err());
            let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
            let message = format!("put a placeholder in quotes: `{key}\"{placeholder}\"`");
            self.report(Rule::Unreadable, place, path, message);
            Data::Scalar(Value::String(placeholder))
        } else {
            match tree.data {
                yaml::Data::Scalar(value) => Data::Scalar(value),
                yaml::Data::List(items) => {
                    let item = |(at, item): (usize, Tree)| {
                        self.convert(item, &join_path(path, &[&at.to_string()]))
                    };
                    Data::List(items.into_iter().enumerate().map(item).collect())
                }
                yaml::Data::Map(entries) => Data::Map(self.convert_entries(entries, path)),
            }
        };
        Node {
            location: self.locate(place),
            data,
        }
    }

    fn convert_entries(&mut self, trees: Vec<(Tree, Tree)>, path: &str) -> Vec<(Key, Node)> {
        let (mut entries, mut lines) = (Vec::new(), HashMap::<String, usize>::new());
        for (key, value) in trees {
            let text = match key.data {
                yaml::Data::Scalar(Value::String(text)) => text,
                yaml::Data::Scalar(value) if !value.is_null() => value.to_string(),
                _ => {
                    let message =
                        "a key is a text here: put it in quotes if it has brackets or braces";
                    self.report(Rule::Unreadable, key.place, path, message);
                    continue;
                }
            };
            if let Some(first) = lines.insert(text.clone(), key.place.line) {
                let message =
                    format!("`{text}` is there twice, first in line {first}: names must be unique");
                self.report(Rule::DuplicateName, key.place, "", message);
                continue;
            }
            let node = self.convert(value, &join_path(path, &[&text]));
            let location = self.locate(key.place);
            entries.push((Key { text, location }, node));
        }
        entries
    }
}

/// The text of `{{ name }}` without quotes, which YAML reads as a map whose key is a map.
fn unquoted_placeholder(tree: &Tree) -> Option<String> {
    match &only_key(only_key(tree)?)?.data {
        yaml::Data::Scalar(Value::String(name)) => Some(format!("{{{{ {} }}}}", name.trim())),
        _ => None,
    }
}

/// The key of a map that has one key without a value.
fn only_key(tree: &Tree) -> Option<&Tree> {
    match &tree.data {
        yaml::Data::Map(entries) => match entries.as_slice() {
            [(key, value)] => matches!(value.data, yaml::Data::Scalar(Value::Null)).then_some(key),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let (_, findings) = Node::parse(Path::new("t.yaml"), text);
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
