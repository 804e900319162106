//! A fault in a schema, and texts that messages quote.

/// Why a schema cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if pointer.is_empty() { String::new() } else { format!("{pointer}: ") })]
pub struct SchemaFault {
    /// JSON Pointer into the schema.
    pub pointer: String,
    /// The fault and the correct form.
    pub message: String,
    /// The schema is valid but too large.
    pub is_too_large: bool,
}

impl SchemaFault {
    pub(super) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
            is_too_large: false,
        }
    }

    pub(super) fn too_large(pointer: String, message: String) -> Self {
        Self {
            pointer,
            message,
            is_too_large: true,
        }
    }
}

/// Maximum number of characters of a quoted description, constant or pattern.
const MAX_QUOTE: usize = 300;

/// The beginning of a long text.
pub(super) fn abbreviate(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
