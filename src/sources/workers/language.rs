//! The languages of modules.

use crate::call::Kind;

/// The language of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python.
    Python,
    /// TypeScript or JavaScript.
    Typescript,
}

impl Language {
    /// Its name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::Typescript => "TypeScript",
        }
    }

    /// The kind of the tools.
    pub fn kind(self) -> Kind {
        match self {
            Self::Python => Kind::Python,
            Self::Typescript => Kind::Typescript,
        }
    }

    /// Whether its functions may block their thread. Otherwise one process takes many calls at once.
    pub fn may_block(self) -> bool {
        self == Self::Python
    }

    /// The section of the manifest that declares its modules.
    pub fn section(self) -> &'static str {
        match self {
            Self::Python => "python_modules",
            Self::Typescript => "typescript_modules",
        }
    }
}

/// Writes to the log under the target of a language. The target of a message is a constant, so each
/// language needs a statement of its own.
macro_rules! log_as {
    ($language:expr, $level:ident, $($message:tt)+) => {
        match $language {
            $crate::sources::workers::Language::Python => tracing::$level!(target: "toolcrib::python", $($message)+),
            $crate::sources::workers::Language::Typescript => tracing::$level!(target: "toolcrib::typescript", $($message)+),
        }
    };
}

pub(in crate::sources) use log_as;
