//! Reads parts of the manifest as settings types, and collects findings with their positions.

use std::cell::RefCell;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_aux::serde_introspection::serde_introspect;
use serde_json::Value;

use super::finding::{Finding, Severity, join_path};
use super::node::{Data, Key, Node};
use super::rule::Rule;
use crate::settings::{self, SettingFaultKind, suggests_key, to_flow, unknown_key_message};

/// Maximum number of findings of one reading, and of unknown keys of one map. Registered tools are
/// read by the same code, and each finding costs a search for its position.
const MAX_FINDINGS: usize = 1000;
const MAX_UNKNOWN_KEYS: usize = 50;

/// The findings of one reading, as many as possible at once.
#[derive(Default)]
pub(super) struct Findings(RefCell<Vec<Finding>>);

impl Findings {
    /// Adds a finding.
    pub(super) fn push(&self, finding: Finding) {
        self.0.borrow_mut().push(finding);
    }

    /// Adds findings.
    pub(super) fn extend(&self, findings: impl IntoIterator<Item = Finding>) {
        self.0.borrow_mut().extend(findings);
    }

    /// The number of findings so far.
    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether an error was found since there were so many findings, and `is_meant` selects it.
    pub(super) fn has_error(&self, since: usize, is_meant: impl Fn(&Finding) -> bool) -> bool {
        self.0.borrow()[since..]
            .iter()
            .any(|finding| finding.is_error() && is_meant(finding))
    }

    /// All findings.
    pub(super) fn into_list(self) -> Vec<Finding> {
        self.0.into_inner()
    }

    /// The part of the manifest with this value and path.
    pub(super) fn entry<'a>(&'a self, node: &'a Node, path: &'a str) -> Entry<'a> {
        let findings = self;
        Entry {
            node,
            path,
            findings,
        }
    }
}

/// A part of the manifest that is read.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) node: &'a Node,
    /// The path from the root of the manifest.
    pub(super) path: &'a str,
    /// Where its findings go.
    pub(super) findings: &'a Findings,
}

impl<'a> Entry<'a> {
    /// The same part with its references replaced, or with fewer keys.
    pub(super) fn with_node(self, node: &'a Node) -> Self {
        Self { node, ..self }
    }

    /// The value under a key.
    pub(super) fn get(self, key: &str) -> Option<&'a Node> {
        self.node.get(key)
    }

    /// Reports that the part itself cannot be used.
    pub(super) fn own_error(self, message: impl Into<String>) {
        self.error::<&str>(&[], message);
    }

    /// Reports a value that cannot be used.
    pub(super) fn error<S: AsRef<str>>(self, keys: &[S], message: impl Into<String>) {
        self.report(Severity::Error, Rule::Invalid, keys, message);
    }

    /// Reports a value that has no effect.
    pub(super) fn warning<S: AsRef<str>>(self, keys: &[S], message: impl Into<String>) {
        self.report(Severity::Warning, Rule::Ineffective, keys, message);
    }

    /// Reports a value at the end of `keys`. The same finding is reported only once.
    pub(super) fn report<S: AsRef<str>>(
        self,
        severity: Severity,
        rule: Rule,
        keys: &[S],
        message: impl Into<String>,
    ) {
        let mut findings = self.findings.0.borrow_mut();
        // The first error is always stored.
        let is_error = severity == Severity::Error;
        if findings.len() >= MAX_FINDINGS && (!is_error || findings.iter().any(Finding::is_error)) {
            return;
        }
        let finding = Finding {
            location: self.node.locate(keys).clone(),
            path: join_path(self.path, keys),
            message: message.into(),
            severity,
            rule,
        };
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }

    /// Reads the part as a `T`. Reports all faults.
    pub(super) fn decode<T: DeserializeOwned + JsonSchema>(self) -> Option<T> {
        let faults = match settings::decode(&self.node.to_json()) {
            Ok(value) => return Some(value),
            Err(faults) => faults,
        };
        for fault in faults {
            let rule = match fault.kind {
                SettingFaultKind::UnknownKey => Rule::UnknownKey,
                _ => Rule::Invalid,
            };
            self.report(Severity::Error, rule, &fault.path, fault.message);
        }
        None
    }

    /// Reads these keys of the part as a `T`. Reports all faults.
    pub(super) fn decode_keys<T: DeserializeOwned + JsonSchema>(self, keys: &[&str]) -> Option<T> {
        let node = self.node.filtered(|key| keys.contains(&key));
        self.findings.entry(&node, self.path).decode()
    }

    /// Whether the entry of a name is a map. `keys` are some of its keys. `as_map` makes a map of a
    /// text that was written instead of one.
    pub(super) fn require_map(
        self,
        keys: &str,
        as_map: impl FnOnce(&str) -> Option<Value>,
    ) -> bool {
        if self.node.entries().is_some() {
            return true;
        }
        let text = self.node.as_str().unwrap_or_default();
        let message = match as_map(text).filter(|_| !text.is_empty()) {
            _ if settings::is_missing_space(text) => {
                format!("a map is expected here; a space is missing after the `:` in `{text}`")
            }
            Some(map) => format!("a map is expected here: write `{}`", to_flow(&map)),
            None => format!("a map is expected here: {keys}"),
        };
        self.own_error(message);
        false
    }

    /// The entries of a section whose keys are names. `what` is the plural of what has the names.
    pub(super) fn require_names(self, what: &str) -> Option<&'a [(Key, Node)]> {
        if self.node.entries().is_none() {
            let advice = match &self.node.data {
                Data::List(_) => "write each name as a key, without `-`, and its settings below it",
                Data::Scalar(_) | Data::Map(_) => "a name, `:`, and its settings below it",
            };
            self.own_error(format!("a map of {what} is expected here: {advice}"));
        }
        self.node.entries()
    }

    /// Whether an unknown key of the entry was reported with the advice to write `key`.
    pub(super) fn suggests_key(self, key: &str) -> bool {
        self.findings.has_error(0, |finding| {
            let entry = finding.path.rsplit_once('.').map(|(entry, _)| entry);
            finding.rule == Rule::UnknownKey
                && entry == Some(self.path)
                && suggests_key(&finding.message, key)
        })
    }

    /// Reports the keys that are not in `known`: the first ones, and the number of further ones.
    pub(super) fn report_unknown_keys(self, known: &[&str]) {
        let entries = self.node.entries().unwrap_or_default();
        let keys = entries.iter().map(|(key, _)| key.text.as_str());
        let mut unknown = keys.filter(|key| !known.contains(key));
        for key in unknown.by_ref().take(MAX_UNKNOWN_KEYS) {
            let message = unknown_key_message(key, known);
            self.report(Severity::Error, Rule::UnknownKey, &[key], message);
        }
        let more = unknown.count();
        if more > 0 {
            let message = format!("{more} more unknown keys");
            self.report::<&str>(Severity::Error, Rule::UnknownKey, &[], message);
        }
    }
}

/// The keys of a settings type.
pub(super) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    serde_introspect::<T>()
}
