//! Why a tool cannot be registered.

use crate::call::NameError;

/// A fault of a tool that a program builds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The name is invalid.
    #[error("`{0}`: {1}")]
    InvalidName(String, NameError),
    /// The description is empty.
    #[error("tool `{0}`: the description is empty: say what the tool does and when to use it")]
    EmptyDescription(String),
    /// Two tools have the same name, or the name of one is an alias of another.
    #[error("`{0}` is declared twice: tool names and aliases are unique")]
    DuplicateTool(String),
    /// Two sources have the same name.
    #[error("source `{0}` is declared twice: names of sources are unique")]
    DuplicateSource(String),
    /// A schema of the tool cannot be used.
    #[error("tool `{tool}`: {schema}: {message}")]
    InvalidSchema {
        /// The name of the tool.
        tool: String,
        /// `input_schema` or `output_schema`.
        schema: &'static str,
        /// What is wrong with the schema.
        message: String,
    },
    /// An agent cannot run as declared.
    #[error("tool `{tool}`: {faults}")]
    InvalidAgent {
        /// The name of the agent's tool.
        tool: String,
        /// What is wrong and what would be right.
        faults: String,
    },
    /// The declared fields of the context cannot be used.
    #[error("tool `{tool}`: context: {message}")]
    InvalidContext {
        /// The name of the tool.
        tool: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A required environment variable is not set.
    #[error("tool `{tool}`: environment variable {name} is not set")]
    MissingEnv {
        /// The name of the tool.
        tool: String,
        /// The name of the variable.
        name: String,
    },
}
