//! Decodes a node to a settings type, and reports faults with their positions.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_aux::serde_introspection::serde_introspect;
use serde_json::Value;

use super::finding::{Finding, Severity};
use super::node::{Data, Key, Node};
use super::rule::Rule;
use crate::settings::{self, SettingFaultKind, suggests_key, to_flow, unknown_key_message};

/// Maximum number of findings of one reading, and of unknown keys of one map. Registered tools are
/// read by the same code, and each finding costs a search for its position.
const MAX_FINDINGS: usize = 1000;
const MAX_UNKNOWN_KEYS: usize = 50;

/// Collects the findings of one reading, as many as possible at once.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn error(
        &mut self,
        node: &Node,
        path: &[String],
        entry_path: &str,
        message: impl Into<String>,
    ) {
        self.error_with_rule(Rule::Invalid, node, path, entry_path, message);
    }

    pub(super) fn warning(
        &mut self,
        node: &Node,
        path: &[String],
        entry_path: &str,
        message: impl Into<String>,
    ) {
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
        if self.is_full()
            && self
                .0
                .iter()
                .any(|finding| finding.severity == Severity::Error)
        {
            return;
        }
        let finding = Finding::error(
            node.locate(path).clone(),
            join_path(entry_path, path),
            message,
        )
        .with_rule(rule);
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
                Finding::warning(
                    node.locate(path).clone(),
                    join_path(entry_path, path),
                    message,
                )
                .with_rule(rule),
            );
        }
    }

    /// Whether no further finding is stored, except that there is an error.
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_FINDINGS
    }

    /// Reads `node`, whose own path is `entry_path`, as a `T`. Reports all faults.
    pub(super) fn decode<T: DeserializeOwned + JsonSchema>(
        &mut self,
        node: &Node,
        entry_path: &str,
    ) -> Option<T> {
        match settings::decode(&node.to_json()) {
            Ok(value) => Some(value),
            Err(faults) => {
                for fault in faults {
                    let rule = if fault.kind == SettingFaultKind::UnknownKey {
                        Rule::UnknownKey
                    } else {
                        Rule::Invalid
                    };
                    self.error_with_rule(rule, node, &fault.path, entry_path, fault.message);
                }
                None
            }
        }
    }

    /// Whether the entry of a name is a map. `keys` are some of its keys. `as_map` makes a map of a
    /// text that was written instead of one.
    pub(super) fn require_entry(
        &mut self,
        node: &Node,
        entry_path: &str,
        keys: &str,
        as_map: impl FnOnce(&str) -> Option<Value>,
    ) -> bool {
        if node.entries().is_some() {
            return true;
        }
        let text = match &node.data {
            Data::Scalar(Value::String(text)) => text.as_str(),
            _ => "",
        };
        let message = match as_map(text).filter(|_| !text.is_empty()) {
            _ if settings::is_missing_space(text) => {
                format!("a map is expected here; a space is missing after the `:` in `{text}`")
            }
            Some(map) => format!("a map is expected here: write `{}`", to_flow(&map)),
            None => format!("a map is expected here: {keys}"),
        };
        self.error(node, &[], entry_path, message);
        false
    }

    /// The entries of a section whose keys are names. `what` is the plural of what has the names.
    pub(super) fn require_names<'n>(
        &mut self,
        node: &'n Node,
        entry_path: &str,
        what: &str,
    ) -> Option<&'n [(Key, Node)]> {
        if node.entries().is_none() {
            let advice = match &node.data {
                Data::List(_) => {
                    ": write each name as a key, without `-`, and its settings below it"
                }
                Data::Scalar(_) | Data::Map(_) => ": a name, `:`, and its settings below it",
            };
            self.error(
                node,
                &[],
                entry_path,
                format!("a map of {what} is expected here{advice}"),
            );
        }
        node.entries()
    }

    /// Whether an unknown key of the entry was reported with the advice to write `key`.
    pub(super) fn suggests_key(&self, entry_path: &str, key: &str) -> bool {
        let is_in_entry = |path: &str| {
            path.rsplit_once('.')
                .is_some_and(|(entry, _)| entry == entry_path)
        };
        let mut unknown = self
            .0
            .iter()
            .filter(|finding| finding.rule == Rule::UnknownKey && is_in_entry(&finding.path));
        unknown.any(|finding| suggests_key(&finding.message, key))
    }

    /// Reports the keys that are not in `known`: the first ones, and the number of further ones.
    pub(super) fn report_unknown_keys(&mut self, node: &Node, entry_path: &str, known: &[&str]) {
        let keys = node
            .entries()
            .unwrap_or_default()
            .iter()
            .map(|(key, _)| key.text.as_str());
        let mut unknown = keys.filter(|key| !known.contains(key));
        for key in unknown.by_ref().take(MAX_UNKNOWN_KEYS) {
            let path = [key.to_owned()];
            self.error_with_rule(
                Rule::UnknownKey,
                node,
                &path,
                entry_path,
                unknown_key_message(key, known),
            );
        }
        let more = unknown.count();
        if more > 0 {
            self.error_with_rule(
                Rule::UnknownKey,
                node,
                &[],
                entry_path,
                format!("{more} more unknown keys"),
            );
        }
    }
}

/// The keys of a settings type.
pub(super) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    serde_introspect::<T>()
}

pub(super) fn join_path(entry_path: &str, path: &[String]) -> String {
    let parts = std::iter::once(entry_path)
        .filter(|part| !part.is_empty())
        .chain(path.iter().map(String::as_str));
    parts.collect::<Vec<_>>().join(".")
}
