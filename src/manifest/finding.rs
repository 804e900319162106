//! What is wrong in a manifest: where, what, and what would be right.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A place in a file, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file as it was named.
    pub file: Arc<Path>,
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The manifest cannot be used.
    Error,
    /// It can, but hardly as meant.
    Warning,
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
}

impl Finding {
    /// The manifest cannot be used.
    pub fn error(place: Place, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place, path: path.into(), message: message.into(), severity: Severity::Error }
    }

    /// It can be used.
    pub fn warning(place: Place, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(place, path, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.place.file.display(), self.place.line, self.place.column)?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
