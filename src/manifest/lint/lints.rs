//! Collects the findings of the lints.

use std::collections::HashSet;

use super::super::finding::{Finding, Location, Severity, join_path};
use super::super::node::{Key, Node};
use super::super::rule::Rule;
use super::schema_parts::Part;

/// A value of the manifest, with its path.
#[derive(Clone)]
pub(super) struct Located<'a> {
    pub(super) node: &'a Node,
    pub(super) path: String,
}

impl<'a> Located<'a> {
    pub(super) fn new(node: &'a Node, path: &str) -> Self {
        let path = path.to_owned();
        Self { node, path }
    }

    /// The value under a key.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        let path = join_path(&self.path, &[key]);
        self.node.get(key).map(|node| Self { node, path })
    }

    /// The items of the list under a key.
    pub(super) fn items(&self, key: &str) -> Vec<Self> {
        let items = self.node.get(key).map(Node::items).unwrap_or_default();
        let item = |(at, node): (usize, &'a Node)| Self {
            node,
            path: join_path(&self.path, &[key, &at.to_string()]),
        };
        items.iter().enumerate().map(item).collect()
    }

    /// The values under the keys of a map.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a Key, Self)> {
        let entries = self.node.entries().unwrap_or_default();
        entries.iter().map(|(key, node)| {
            let path = join_path(&self.path, &[&key.text]);
            (key, Self { node, path })
        })
    }

    /// The text. Other values have none.
    pub(super) fn text(&self) -> &'a str {
        self.node.as_str().unwrap_or_default()
    }
}

/// The findings so far.
#[derive(Default)]
pub(in crate::manifest) struct Lints(Vec<Finding>, HashSet<(Rule, String, String)>);

impl Lints {
    pub(super) fn warn(
        &mut self,
        rule: Rule,
        location: &Location,
        path: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.push(
            Severity::Warning,
            rule,
            location,
            path.into(),
            message.into(),
        );
    }

    /// Warns at a value.
    pub(super) fn warn_of(&mut self, rule: Rule, at: &Located<'_>, message: impl Into<String>) {
        self.warn(rule, &at.node.location, at.path.clone(), message);
    }

    /// Warns at a key of a part of a schema.
    pub(super) fn warn_at(
        &mut self,
        rule: Rule,
        part: &Part<'_>,
        keys: &[&str],
        message: impl Into<String>,
    ) {
        self.warn(rule, part.node.locate(keys), part.key_path(keys), message);
    }

    pub(super) fn hint(
        &mut self,
        rule: Rule,
        location: &Location,
        path: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.push(Severity::Hint, rule, location, path.into(), message.into());
    }

    /// Reports each finding once, even if several lints examine the same schema.
    pub(super) fn push(
        &mut self,
        severity: Severity,
        rule: Rule,
        location: &Location,
        path: String,
        message: String,
    ) {
        if self.1.insert((rule, path.clone(), message.clone())) {
            self.0.push(Finding {
                location: location.clone(),
                path,
                message,
                severity,
                rule,
            });
        }
    }

    /// All findings, in the order in which they were found.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.0
    }
}
