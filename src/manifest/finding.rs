//! What is wrong in a manifest: where, what, and what would be right.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::rule::Rule;

/// A place in a file, counted from 1; or in a JSON document, which has no lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file as it was named; of a JSON document the JSON Pointer (RFC 6901).
    pub file: Arc<Path>,
    /// Line; 0 in a JSON document.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Place {
    /// Whether the document is JSON.
    pub(super) fn is_json(&self) -> bool {
        self.line == 0
    }

    /// A place in a JSON document.
    pub(super) fn in_json(pointer: &str) -> Self {
        Self { file: Path::new(pointer).into(), line: 0, column: 0 }
    }

    /// The JSON Pointer, if it is a place in a JSON document.
    pub fn pointer(&self) -> Option<String> {
        (self.line == 0).then(|| self.file.to_string_lossy().into_owned())
    }
}

/// How bad it is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The manifest cannot be used.
    Error,
    /// It can, but hardly as meant.
    Warning,
    /// It can, and may well be meant so.
    Hint,
}

/// One thing found in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// Keys from the top down to it, e.g. `tools.get_weather.timeout`.
    pub path: String,
    /// What, and what would be right.
    pub message: String,
    /// How bad.
    pub severity: Severity,
    /// Which rule says so.
    pub rule: Rule,
}

impl Finding {
    /// The manifest cannot be used.
    pub fn error(place: Place, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place, path: path.into(), message: message.into(), severity: Severity::Error, rule: Rule::Invalid }
    }

    /// It can be used.
    pub fn warning(place: Place, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, rule: Rule::Ineffective, ..Self::error(place, path, message) }
    }

    /// The same finding under a rule of its own.
    #[must_use]
    pub fn rule(self, rule: Rule) -> Self {
        Self { rule, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.line > 0 {
            write!(f, "{}:{}:{}: ", self.place.file.display(), self.place.line, self.place.column)?;
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
        // What has to be put right needs no name; what may be meant so has one to talk about.
        if self.severity == Severity::Error { Ok(()) } else { write!(f, " [{}]", self.rule.as_str()) }
    }
}
