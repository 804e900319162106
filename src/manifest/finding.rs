//! Findings in a manifest: position, fault, and correct form.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::rule::Rule;

/// A position in a file, counted from 1, or in a JSON document, which has no lines.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{}:{line}:{column}", file.display())]
pub struct Location {
    /// The file as it was named, or the JSON Pointer (RFC 6901) in a JSON document.
    pub file: Arc<Path>,
    /// Line. 0 in a JSON document.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Location {
    /// The first character of a file.
    pub fn start_of(file: impl Into<Arc<Path>>) -> Self {
        Self {
            file: file.into(),
            line: 1,
            column: 1,
        }
    }

    /// Whether the document is JSON.
    pub(super) fn is_json(&self) -> bool {
        self.line == 0
    }

    /// A position in a JSON document.
    pub(super) fn from_pointer(pointer: &str) -> Self {
        Self {
            file: Path::new(pointer).into(),
            line: 0,
            column: 0,
        }
    }

    /// The JSON Pointer, if the position is in a JSON document.
    pub fn pointer(&self) -> Option<String> {
        (self.line == 0).then(|| self.file.to_string_lossy().into_owned())
    }
}

/// The severity of a finding, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The manifest cannot be used.
    Error,
    /// The manifest can be used, but probably not as intended.
    Warning,
    /// The manifest can be used, and this may be intended.
    Hint,
}

/// One finding in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The position.
    pub location: Location,
    /// The keys from the root to the value, e.g. `tools.get_weather.timeout`.
    pub path: String,
    /// The fault and the correct form.
    pub message: String,
    /// The severity.
    pub severity: Severity,
    /// The rule that found it.
    pub rule: Rule,
}

impl Finding {
    /// A finding with which the manifest cannot be used.
    pub fn error(location: Location, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            location,
            path: path.into(),
            message: message.into(),
            severity: Severity::Error,
            rule: Rule::Invalid,
        }
    }

    /// A finding with which the manifest can still be used.
    pub fn warning(
        location: Location,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            rule: Rule::Ineffective,
            ..Self::error(location, path, message)
        }
    }

    /// Whether the manifest cannot be used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The same finding under another rule.
    #[must_use]
    pub fn with_rule(self, rule: Rule) -> Self {
        Self { rule, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.location.line > 0 {
            write!(f, "{}: ", self.location)?;
        }
        match self.severity {
            Severity::Error => {}
            Severity::Warning => f.write_str("warning: ")?,
            Severity::Hint => f.write_str("hint: ")?,
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        // An error must be corrected, so it needs no rule name. A warning or hint may be intended,
        // and users refer to it by name.
        match self.is_error() {
            true => Ok(()),
            false => write!(f, " [{}]", self.rule.as_str()),
        }
    }
}

/// The path of a value below `entry_path`.
pub(super) fn join_path<S: AsRef<str>>(entry_path: &str, keys: &[S]) -> String {
    let mut path = entry_path.to_owned();
    for key in keys {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key.as_ref());
    }
    path
}

/// The most hints of one rule that are listed.
const MAX_LISTED_HINTS: usize = 3;

/// The findings as lines. `lists_all` lists every hint.
pub fn summarize_findings(findings: &[Finding], lists_all: bool) -> Vec<String> {
    let hints_of = |rule: Rule| {
        let of_rule =
            move |finding: &&Finding| finding.severity == Severity::Hint && finding.rule == rule;
        findings.iter().filter(of_rule)
    };
    let is_summarized = |finding: &Finding| {
        !lists_all
            && finding.severity == Severity::Hint
            && hints_of(finding.rule).count() > MAX_LISTED_HINTS
    };
    let listed = findings
        .iter()
        .filter(|finding| !is_summarized(finding))
        .map(ToString::to_string);
    let rules = Rule::ALL.iter().filter_map(|rule| {
        let first = hints_of(*rule)
            .next()
            .filter(|first| is_summarized(first))?;
        let (count, rule) = (hints_of(*rule).count(), rule.as_str());
        Some(format!(
            "hint: {count} times: {} [{rule}] (--hints lists them)",
            first.message
        ))
    });
    listed.chain(rules).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::testing::check_text;

    /// The hints about pipelines for this many tools.
    fn pipelines(tools: usize) -> Vec<Finding> {
        let tool = |at: usize| {
            format!(
                "  rows_{at}: {{kind: command, description: Counts the rows of table {at}., command: [/bin/true, '|']}}\n"
            )
        };
        let tools: String = (0..tools).map(tool).collect();
        let mut findings = check_text(&format!("tools:\n{tools}"));
        findings.retain(|finding| finding.rule == Rule::ShellSyntax);
        findings
    }

    #[test]
    fn many_hints_of_one_rule_become_one_line() {
        assert_eq!(summarize_findings(&pipelines(3), false).len(), 3);
        let findings = pipelines(4);
        let lines = summarize_findings(&findings, false);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("hint: 4 times: no shell reads this")
                && lines[0].ends_with("[shell-syntax] (--hints lists them)"),
            "{lines:?}"
        );
        assert_eq!(summarize_findings(&findings, true).len(), 4);
    }
}
