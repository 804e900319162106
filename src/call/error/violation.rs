//! A position where arguments violate the schema of a tool.

use serde::{Deserialize, Serialize};

/// One position where arguments violate the schema.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Violation {
    /// JSON Pointer (RFC 6901) into the arguments; for a missing or unexpected property, to that
    /// property.
    pub pointer: String,
    /// The schema keyword that is broken.
    pub keyword: String,
    /// What is wrong and what would be right.
    pub message: String,
    /// JSON Pointer into the input schema.
    pub schema_pointer: String,
}

impl Violation {
    /// All texts of the violation.
    pub fn texts_mut(&mut self) -> [&mut String; 4] {
        let Self {
            pointer,
            keyword,
            message,
            schema_pointer,
        } = self;
        [pointer, keyword, message, schema_pointer]
    }
}

/// The message of the first violation.
pub(super) fn first_violation_message(violations: &[Violation]) -> &str {
    violations.first().map_or("", |v| v.message.as_str())
}

/// One argument that was changed to fit the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Coercion {
    /// JSON Pointer into the arguments.
    pub pointer: String,
    /// JSON type it had.
    pub from: String,
    /// JSON type it has now.
    pub to: String,
}
