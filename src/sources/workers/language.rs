//! The languages of modules.

use crate::call::Kind;

/// The language of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python.
    Python,
}

impl Language {
    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
        }
    }

    /// The kind of the tools.
    pub fn kind(self) -> Kind {
        match self {
            Self::Python => Kind::Python,
        }
    }

    /// The section of the manifest that declares its modules.
    pub fn section(self) -> &'static str {
        match self {
            Self::Python => "python_modules",
        }
    }
}

/// Writes to the log under the target of a language. The target of a message is a constant, so each
/// language needs a statement of its own.
macro_rules! log_as {
    ($language:expr, $level:ident, $($message:tt)+) => {
        match $language {
            $crate::sources::workers::Language::Python => tracing::$level!(target: "toolcrib::python", $($message)+),
        }
    };
}

pub(in crate::sources) use log_as;
