//! Collects the findings of the lints.

use std::collections::HashSet;

use super::super::finding::{Finding, Location, Severity};
use super::super::rule::Rule;
use super::schema_parts::Part;

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
