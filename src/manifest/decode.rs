//! Decodes a node to a settings type through serde, and reports faults with their positions.

use serde::de::DeserializeOwned;
use serde_aux::serde_introspection::serde_introspect;

use super::finding::{Finding, Severity};
use super::node::Node;
use super::rule::Rule;
use crate::suggest;

/// Maximum number of findings of one reading, and of unknown keys of one map. Registered tools are read by the same
/// code, and each finding costs a search for its position.
const MAX_FINDINGS: usize = 1000;
const MAX_UNKNOWN_KEYS: usize = 50;

/// Collects the findings of one reading, as many as possible at once.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn error(&mut self, node: &Node, path: &[String], entry_path: &str, message: impl Into<String>) {
        self.error_with_rule(Rule::Invalid, node, path, entry_path, message);
    }

    pub(super) fn warning(&mut self, node: &Node, path: &[String], entry_path: &str, message: impl Into<String>) {
        self.warning_with_rule(Rule::Ineffective, node, path, entry_path, message);
    }

    pub(super) fn error_with_rule(
        &mut self,
        rule: Rule,
        node: &Node,
        path: &[String],
        entry_path: &str,
        message: impl Into<String>,
    ) {
        if self.is_full() && self.0.iter().any(|finding| finding.severity == Severity::Error) {
            return;
        }
        let finding = Finding::error(node.locate(path).clone(), join_path(entry_path, path), message).with_rule(rule);
        // The same key is reported only once.
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    pub(super) fn warning_with_rule(
        &mut self,
        rule: Rule,
        node: &Node,
        path: &[String],
        entry_path: &str,
        message: impl Into<String>,
    ) {
        if !self.is_full() {
            self.0.push(
                Finding::warning(node.locate(path).clone(), join_path(entry_path, path), message).with_rule(rule),
            );
        }
    }

    /// Whether no further finding is stored, except that there is an error.
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_FINDINGS
    }

    /// Reads `node` as a `T` in which every key is optional. Reports one fault of each key.
    pub(super) fn decode_keys<T: DeserializeOwned>(&mut self, node: &Node, entry_path: &str) -> Option<T> {
        let faults = self.0.len();
        for (key, _) in node.entries().unwrap_or_default() {
            let _: Option<T> = self.decode_value(&node.filtered(|name| name == key.text), entry_path);
        }
        if self.0.len() > faults { None } else { self.decode_value(node, entry_path) }
    }

    /// Reads `node`, whose own path is `entry_path`, as a `T`. Reports all unknown keys, and of other faults the first.
    pub(super) fn decode<T: DeserializeOwned>(&mut self, node: &Node, entry_path: &str) -> Option<T> {
        if node.entries().is_none() {
            self.error(node, &[], entry_path, "a map is expected here");
            return None;
        }
        let known = field_names::<T>();
        self.report_unknown_keys(node, entry_path, known);
        let known_only = node.filtered(|key| known.contains(&key));
        self.decode_value(&known_only, entry_path)
    }

    /// Reads any value as a `T`.
    pub(super) fn decode_value<T: DeserializeOwned>(&mut self, node: &Node, entry_path: &str) -> Option<T> {
        match serde_path_to_error::deserialize(node.to_json()) {
            Ok(value) => Some(value),
            Err(error) => {
                let path: Vec<String> = error
                    .path()
                    .iter()
                    .filter_map(|segment| match segment {
                        serde_path_to_error::Segment::Seq { index } => Some(index.to_string()),
                        serde_path_to_error::Segment::Map { key } => Some(key.clone()),
                        _ => None,
                    })
                    .collect();
                self.report_serde_error(node, path, entry_path, error.inner().to_string());
                None
            }
        }
    }

    /// Reports serde's message about the value at `path`. An unknown field is reported as an unknown key.
    pub(super) fn report_serde_error(&mut self, node: &Node, mut path: Vec<String>, entry_path: &str, message: String) {
        let (rule, message) = match parse_unknown_field(&message) {
            Some((field, known)) => {
                if path.last() != Some(&field) {
                    path.push(field.clone());
                }
                (Rule::UnknownKey, unknown_key_message(&field, &known))
            }
            None => (Rule::Invalid, message),
        };
        self.error_with_rule(rule, node, &path, entry_path, message);
    }

    /// Reports the keys that are not in `known`: the first ones, and the number of further ones.
    pub(super) fn report_unknown_keys(&mut self, node: &Node, entry_path: &str, known: &[&str]) {
        let keys = node.entries().unwrap_or_default().iter().map(|(key, _)| key.text.as_str());
        let mut unknown = keys.filter(|key| !known.contains(key));
        let known: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
        for key in unknown.by_ref().take(MAX_UNKNOWN_KEYS) {
            let path = [key.to_owned()];
            self.error_with_rule(Rule::UnknownKey, node, &path, entry_path, unknown_key_message(key, &known));
        }
        let more = unknown.count();
        if more > 0 {
            self.error_with_rule(Rule::UnknownKey, node, &[], entry_path, format!("{more} more unknown keys"));
        }
    }
}

/// The keys of a settings type.
pub(super) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    serde_introspect::<T>()
}

fn unknown_key_message(key: &str, known: &[String]) -> String {
    match suggest::closest_name(key, known.iter().map(String::as_str), suggest::MIN_HINT_RATIO) {
        Some(near) => format!("unknown key, did you mean {near}?"),
        None => format!("unknown key; there are {}", known.join(", ")),
    }
}

/// The field and the known names of serde's message "unknown field `x`, expected one of `a`, `b`".
fn parse_unknown_field(message: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (field, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some((field.to_owned(), known))
}

pub(super) fn join_path(entry_path: &str, path: &[String]) -> String {
    let parts = std::iter::once(entry_path).filter(|part| !part.is_empty()).chain(path.iter().map(String::as_str));
    parts.collect::<Vec<_>>().join(".")
}
